//! From a chunk to a bundle.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;

use millrace_mapping::document::{Chunk, Values};
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{Error, Result};

use super::contents::{Contents, NORMS, POSITIONS};
use super::exact::{self, IndexedValues};
use super::fields::{self, FieldSpec, Indexing};
use super::file::FileWriter;
use super::nested::{NestedPositions, NestedWriter};
use super::postings::{self, PostingsWriter, Record};
use super::text::{TextBuilder, TextField};

/// Builds the bundle of freshly written rows.
///
/// A value too long for a term is left out: documents are checked with
/// [`check_term`](super::check_term) before they are acknowledged.
///
/// # Errors
/// An analyzer that the mapping names is missing.
pub fn build(mapping: &Mapping, chunk: &Chunk) -> Result<Vec<u8>> {
    build_some(mapping, chunk, None)
}

/// As [`build`], of some of the mapping's fields alone; of all where none are given.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_some(
    mapping: &Mapping,
    chunk: &Chunk,
    some: Option<&BTreeSet<PathId>>,
) -> Result<Vec<u8>> {
    let mut specs = fields::of_mapping(mapping)?;
    if let Some(some) = some {
        specs.retain(|spec| some.contains(&spec.id));
    }
    build_fields(&specs, chunk)
}

/// As [`build`], over given fields instead of a mapping's. Fields without a column in the chunk cost
/// nothing.
///
/// # Errors
/// As [`build`]; a column whose values do not fit its field is an internal error.
pub fn build_fields(fields: &[FieldSpec<'_>], chunk: &Chunk) -> Result<Vec<u8>> {
    let mut file = build_rows(fields, chunk)?;
    if chunk.nested.is_empty() {
        return Ok(file);
    }
    let parts =
        chunk.nested.iter().map(|nested| build_rows(fields, &nested.chunk)).collect::<Result<Vec<_>>>()?;
    let rows_len = file.len() as u64;
    let mut writer = NestedWriter::new(&mut file, rows_len);
    for (nested, bundle) in chunk.nested.iter().zip(parts) {
        writer.out().write_all(&bundle).map_err(unwritable)?;
        let places = NestedPositions {
            path: nested.path,
            outer: nested.outer,
            parents: nested.parents.clone(),
            within: nested.within.clone(),
        };
        writer.push(&places, bundle.len() as u64)?;
    }
    writer.finish()?;
    Ok(file)
}

fn build_rows(fields: &[FieldSpec<'_>], chunk: &Chunk) -> Result<Vec<u8>> {
    let mut present: Vec<_> = fields
        .iter()
        .filter_map(|spec| {
            let at = chunk.columns.binary_search_by_key(&spec.column, |column| column.id).ok()?;
            let column = &chunk.columns[at];
            (!column.rows.is_empty()).then_some((spec, column))
        })
        .collect();
    present.sort_unstable_by_key(|(spec, _)| spec.id);

    let mut terms: [Vec<u8>; 3] = Default::default();
    let mut bodies: [Vec<u8>; 3] = Default::default();
    let mut positions = Vec::new();
    let mut norms = Vec::new();
    let mut contents = Contents { rows: chunk.rows, ..Contents::default() };
    {
        // A dictionary that no field needs is not even started.
        let uses = |record| {
            present
                .iter()
                .any(|(spec, _)| matches!(spec.indexing, Indexing::Text { record: r, .. } if r == record))
        };
        let [rows_terms, frequency_terms, position_terms] = &mut terms;
        let [rows_body, frequency_body, position_body] = &mut bodies;
        let mut rows_out =
            PostingsWriter::new(Record::Rows, rows_terms, rows_body, None).map_err(unwritable)?;
        let mut frequencies_out = uses(Record::Frequencies)
            .then(|| PostingsWriter::new(Record::Frequencies, frequency_terms, frequency_body, None))
            .transpose()
            .map_err(unwritable)?;
        let mut positions_out = uses(Record::Positions)
            .then(|| {
                PostingsWriter::new(Record::Positions, position_terms, position_body, Some(&mut positions))
            })
            .transpose()
            .map_err(unwritable)?;
        let mut texts = TextBuilder::default();
        let mut presence: Vec<(PathId, Cow<'_, [u32]>)> = Vec::with_capacity(present.len());
        for (spec, column) in present {
            let mut rows: Cow<'_, [u32]> = Cow::Borrowed(&column.rows);
            match (&spec.indexing, &column.values) {
                (Indexing::Exact { .. } | Indexing::Number, _) => {
                    match exact::write(spec, column, chunk.rows, &mut rows_out)? {
                        IndexedValues::All if matches!(spec.indexing, Indexing::Number) => {
                            contents.numbers.push(spec.id)
                        }
                        IndexedValues::All => {}
                        IndexedValues::Rows(kept) => rows = Cow::Owned(kept),
                        IndexedValues::TooMany => contents.inexact.push(spec.id),
                    }
                }
                (&Indexing::Text { analyzer, record, norms: keeps_norms, gap }, Values::Str(strings)) => {
                    let field =
                        TextField { id: spec.id, path: spec.path, analyzer, record, norms: keeps_norms, gap };
                    let out = match record {
                        Record::Rows => &mut rows_out,
                        Record::Frequencies => frequencies_out.as_mut().expect("started for this field"),
                        Record::Positions => positions_out.as_mut().expect("started for this field"),
                    };
                    contents.texts.extend(texts.write(
                        &field,
                        &column.rows,
                        strings,
                        chunk.rows,
                        out,
                        &mut norms,
                    )?);
                }
                (Indexing::Text { .. }, _) => {
                    return Err(Error::Internal(format!(
                        "values of text field [{}] are not strings",
                        spec.path
                    )));
                }
                (Indexing::PresenceOnly, _) => contents.inexact.push(spec.id),
            }
            if !rows.is_empty() {
                presence.push((spec.id, rows));
            }
        }
        for (path, rows) in presence {
            exact::write_presence(path, &rows, &mut rows_out)?;
        }
        rows_out.finish().map_err(unwritable)?;
        frequencies_out.map_or(Ok(()), PostingsWriter::finish).map_err(unwritable)?;
        positions_out.map_or(Ok(()), PostingsWriter::finish).map_err(unwritable)?;
    }

    let (empty_terms, empty_body) = postings::empty();
    let size = terms.iter().chain(&bodies).chain([&positions, &norms]).map(Vec::len).sum::<usize>();
    let mut file = Vec::with_capacity(size + 4096);
    let mut out = FileWriter::new(&mut file);
    for record in Record::ALL {
        let bytes = &terms[record.index()];
        out.write(record.index(), if bytes.is_empty() { empty_terms } else { bytes })?;
    }
    for record in Record::ALL {
        let bytes = &bodies[record.index()];
        out.write(3 + record.index(), if bytes.is_empty() { empty_body } else { bytes })?;
    }
    out.write(POSITIONS, &positions)?;
    out.write(NORMS, &norms)?;
    out.finish(contents)?;
    Ok(file)
}

/// Writing to memory fails only for terms out of order.
pub(super) fn unwritable(error: io::Error) -> Error {
    Error::Internal(format!("term dictionary: {error}"))
}
