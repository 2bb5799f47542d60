//! Merging bundles by their postings, without tokenising again.
//!
//! The terms of the inputs are walked together in order; for each, the rows of every input are
//! decoded block by block, mapped to the rows of the output, and encoded again with their frequencies
//! and positions. Deleted rows fall away, and with them terms, norms and statistics that only they
//! had. What is written goes through files in a scratch directory, since the parts of a bundle lie
//! one after another; in memory are the norms of one field (a byte a row), one term's postings where
//! rows change their order, and the locations of the terms (a few bytes a term).
//!
//! A path whose values are not terms in one input has no terms in the output: integers of high
//! cardinality there. So has a path whose integers become too many by merging.
//!
//! Every row of the output must be the target of exactly one row of the inputs, and every term's rows
//! must ascend; both are checked as the merge goes, because a document number that is not its row
//! would answer wrongly for ever.

mod plan;
mod scratch;
mod terms;

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use millrace_runtime::{CancelSignal, Error, Result};

use self::plan::Plan;
pub(super) use self::scratch::Scratch;
use super::contents::{Contents, NORMS, POSITIONS};
use super::file::FileWriter;
use super::nested::CountingWriter;
use super::postings::{self, PostingsWriter, Record};
use super::{Bundle, nested};

/// Map from the rows of an input segment to the output of a merge.
#[derive(Clone, Debug)]
pub enum RowMap {
    /// All rows live: row `r` becomes `base + r`.
    Offset(u32),
    /// Row `r` becomes `table[r]`, or is dropped where that is `u32::MAX`. Values ascend, except
    /// after sorting by `index.sort.*`.
    Table(Arc<[u32]>),
}

impl RowMap {
    /// Returns the row that a row becomes; `None` for one that is dropped.
    #[inline]
    pub fn of(&self, row: u32) -> Option<u32> {
        match self {
            Self::Offset(base) => base.checked_add(row),
            Self::Table(table) => table.get(row as usize).copied().filter(|row| *row != DROPPED),
        }
    }
}

/// Marks a dropped row in [`RowMap::Table`].
pub(crate) const DROPPED: u32 = u32::MAX;

/// Buffer of each scratch file.
const BUFFER_BYTES: usize = 256 * 1024;

type MergeOutput = BufWriter<File>;

/// Merges bundles by their postings, without tokenising again, streaming through files in `scratch`.
/// `rows` is the number of rows of the output: of all that the maps keep. Elements of nested paths go
/// with their rows.
///
/// # Errors
/// Row maps that do not fill `rows` exactly are an internal error; damaged postings are corrupt; a
/// failing scratch file or `out` is an I/O error.
pub fn merge(inputs: &[(&Bundle, RowMap)], rows: u32, scratch: &Path, out: &mut dyn Write) -> Result<()> {
    merge_cancellable(inputs, rows, scratch, &CancelSignal::default(), out)
}

/// Merges bundles as [`merge`] does, and ends between two terms, or within a long one, once the signal is given.
///
/// # Errors
/// As [`merge`]; [`Error::Cancelled`].
pub fn merge_cancellable(
    inputs: &[(&Bundle, RowMap)],
    rows: u32,
    scratch: &Path,
    cancel: &CancelSignal,
    out: &mut dyn Write,
) -> Result<()> {
    let scratch = Scratch::new(scratch, cancel);
    let mut counted = CountingWriter { out, bytes: 0 };
    merge_rows(inputs, rows, &scratch, &mut counted)?;
    let bytes = counted.bytes;
    if inputs.iter().all(|(bundle, _)| bundle.nested().is_empty()) {
        return Ok(());
    }
    nested::merge(inputs, &scratch, out, bytes)
}

/// Merges the bundles of one kind of rows.
pub(super) fn merge_rows(
    inputs: &[(&Bundle, RowMap)],
    rows: u32,
    scratch: &Scratch<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    scratch.check()?;
    let plan = Plan::new(inputs, rows)?;
    let mut contents = Contents {
        rows,
        numbers: plan.numbers.clone(),
        inexact: plan.inexact.clone(),
        ..Contents::default()
    };
    let mut norms = scratch.section("norms")?;
    let mut dictionaries: [Option<Section>; 3] = Default::default();
    let mut bodies: [Option<Section>; 3] = Default::default();
    let mut positions = None;
    for record in Record::ALL {
        if inputs.iter().all(|(bundle, _)| bundle.reader_of(record).terms().num_terms() == 0) {
            continue;
        }
        let dictionary = scratch.section("terms")?;
        let body = scratch.section("postings")?;
        let positions_section =
            (record == Record::Positions).then(|| scratch.section("positions")).transpose()?;
        let positions_out = positions_section.as_ref().map(|section| section.writer(scratch)).transpose()?;
        let writer =
            PostingsWriter::new(record, dictionary.writer(scratch)?, body.writer(scratch)?, positions_out)
                .map_err(|error| scratch.error(error))?;
        terms::merge(&plan, record, writer, &mut norms, &mut contents, scratch)?;
        dictionaries[record.index()] = Some(dictionary);
        bodies[record.index()] = Some(body);
        positions = positions.or(positions_section);
    }
    contents.texts.sort_unstable_by_key(|text| text.path);

    let (empty_terms, empty_body) = postings::empty();
    let mut file = FileWriter::new(out);
    for (first, sections, empty) in [(0, dictionaries, empty_terms), (3, bodies, empty_body)] {
        for (at, section) in sections.into_iter().enumerate() {
            match section {
                Some(section) => section.copy_to(scratch, &mut file, first + at)?,
                None => file.write(first + at, empty)?,
            }
        }
    }
    if let Some(section) = positions {
        section.copy_to(scratch, &mut file, POSITIONS)?;
    }
    norms.copy_to(scratch, &mut file, NORMS)?;
    file.finish(contents)
}

/// A part of the output on its way there.
struct Section {
    file: File,
    /// Bytes appended by [`Section::append`].
    len: u64,
}

impl Section {
    fn writer(&self, scratch: &Scratch<'_>) -> Result<MergeOutput> {
        let file = self.file.try_clone().map_err(|error| scratch.error(error))?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, file))
    }

    fn append(&mut self, bytes: &[u8], scratch: &Scratch<'_>) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| scratch.error(error))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn copy_to(mut self, scratch: &Scratch<'_>, out: &mut FileWriter<'_>, section: usize) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map_err(|error| scratch.error(error))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            scratch.check()?;
            match self.file.read(&mut buffer).map_err(|error| scratch.error(error))? {
                0 => return Ok(()),
                n => out.write(section, &buffer[..n])?,
            }
        }
    }
}

/// A defect of the caller or of an input: says what does not fit.
fn misfit(reason: impl std::fmt::Display) -> Error {
    Error::Internal(format!("merging bundles: {reason}"))
}
