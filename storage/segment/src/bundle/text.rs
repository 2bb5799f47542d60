//! Text: tokens are terms.
//!
//! A text column has far fewer distinct values than rows, and fewer distinct terms still. Each
//! distinct value is analyzed once, into a *shape*: its terms, each with its frequency and its
//! positions. A row adds one slot a term of its shape, by a counting sort over the terms; the slots
//! of a term then name the rows in order and the shapes' positions, ready to be written. A row with
//! several values has a shape of its own.

use std::io;

use millrace_mapping::analysis::Analyzer;
use millrace_mapping::document::Strings;
use millrace_mapping::{PathId, term};
use millrace_runtime::{Error, Result};
use tantivy::fieldnorm::FieldNormReader;

use super::interner::Interner;
use super::postings::{PostingsWriter, Record};
use super::{contents, norms};

/// A term in a shape.
#[derive(Clone, Copy)]
struct Entry {
    term: u32,
    frequency: u32,
    /// Begin of its positions in `deltas`.
    deltas: u32,
}

/// Statistics of a value (or all values of a row) in the index.
#[derive(Clone, Copy)]
struct ValueStatistics {
    /// End of its terms in `entries`.
    end: u32,
    /// Tokens, repeated ones counted.
    tokens: u32,
    /// Length as norms count it: positions that have a token.
    length: u32,
    /// Positions taken.
    positions: u32,
    /// Rows with this shape.
    rows: u32,
}

const NO_SHAPE: u32 = u32::MAX;

/// Builds text fields one after another, keeping its buffers.
#[derive(Default)]
pub(super) struct TextBuilder {
    terms: Interner,
    shapes: Vec<ValueStatistics>,
    entries: Vec<Entry>,
    deltas: Vec<u32>,
    /// Shape of each distinct value of the column.
    shape_of: Vec<u32>,
    /// The rows with their shapes.
    documents: Vec<(u32, u32)>,
    /// Tokens of the value at hand: term and position.
    tokens: Vec<(u32, u32)>,
}

/// A text field as the builder is asked for it.
pub(super) struct TextField<'a> {
    pub(super) id: PathId,
    pub(super) path: &'a str,
    pub(super) analyzer: &'a Analyzer,
    pub(super) record: Record,
    pub(super) norms: bool,
    /// Positions between two values of a row.
    pub(super) gap: u32,
}

impl TextBuilder {
    /// Writes the terms of a field and returns its entry for the table of contents; norms are
    /// appended to `norms_section`. `None` where no value has a token.
    pub(super) fn write<W: io::Write>(
        &mut self,
        field: &TextField<'_>,
        rows: &[u32],
        strings: &Strings,
        total_rows: u32,
        out: &mut PostingsWriter<W>,
        norms_section: &mut Vec<u8>,
    ) -> Result<Option<contents::Text>> {
        self.analyze(field, rows, strings)?;
        let mut doc_count = 0;
        let mut total_tokens = 0;
        for (id, shape) in self.shapes.iter().enumerate().filter(|(_, shape)| shape.tokens > 0) {
            doc_count += shape.rows;
            let tokens = match field.record {
                // Without frequencies a term counts once a row, as in Lucene.
                Record::Rows => u64::from(shape.end) - self.start(id) as u64,
                Record::Frequencies | Record::Positions => u64::from(shape.tokens),
            };
            total_tokens += u64::from(shape.rows) * tokens;
        }
        if doc_count == 0 {
            return Ok(None);
        }
        let average = total_tokens as f32 / doc_count as f32;
        let mut norms_range = None;
        out.set_lengths(None);
        if field.norms {
            let mut ids = vec![0u8; total_rows as usize];
            for &(row, shape) in &self.documents {
                ids[row as usize] = FieldNormReader::fieldnorm_to_id(self.shapes[shape as usize].length);
            }
            norms_range = Some(norms::append(&ids, norms_section));
            if field.record != Record::Rows {
                out.set_lengths(Some((average, norms::lengths(ids)?)));
            }
        }
        self.write_terms(field, out)?;
        Ok(Some(contents::Text {
            path: field.id,
            record: field.record,
            doc_count,
            total_tokens,
            block_max_average: average,
            norms: norms_range,
        }))
    }

    /// Analyzes the values and gives each row its shape.
    fn analyze(&mut self, field: &TextField<'_>, rows: &[u32], strings: &Strings) -> Result<()> {
        self.terms.clear();
        self.shapes.clear();
        self.entries.clear();
        self.deltas.clear();
        self.documents.clear();
        self.shape_of.clear();
        self.shape_of.resize(strings.ends.len(), NO_SHAPE);
        let mut at = 0;
        while at < rows.len() {
            let row = rows[at];
            let first = at;
            at += 1;
            while at < rows.len() && rows[at] == row {
                at += 1;
            }
            for &key in &strings.keys[first..at] {
                if self.shape_of[key as usize] == NO_SHAPE {
                    let value = value_of(strings, key as usize, field.path)?;
                    self.shape_of[key as usize] = self.add_value(field, value)?;
                }
            }
            let shape = if at - first == 1 {
                self.shape_of[strings.keys[first] as usize]
            } else {
                self.add_row(field, &strings.keys[first..at])?
            };
            self.shapes[shape as usize].rows += 1;
            self.documents.push((row, shape));
        }
        Ok(())
    }

    fn add_value(&mut self, field: &TextField<'_>, value: &str) -> Result<u32> {
        self.tokens.clear();
        let Self { terms, tokens, .. } = self;
        let outcome = field.analyzer.run(value, &mut |token| {
            tokens.push((terms.intern(token.text.as_bytes()), token.position));
        });
        if outcome.text_cut {
            tracing::warn!(
                field = %field.path,
                bytes = value.len(),
                "the analyzer makes too much of a value: the rest of it is not found"
            );
        }
        self.add_shape(field, outcome.positions)
    }

    /// Makes the shape of a row with several values: positions go on behind a gap.
    fn add_row(&mut self, field: &TextField<'_>, keys: &[u32]) -> Result<u32> {
        self.tokens.clear();
        let mut base = 0u32;
        for &key in keys {
            let shape = self.shape_of[key as usize] as usize;
            let start = self.start(shape);
            for entry in &self.entries[start..self.shapes[shape].end as usize] {
                if field.record != Record::Positions {
                    // Positions are not kept: frequency alone counts.
                    self.tokens.extend((0..entry.frequency).map(|_| (entry.term, base)));
                    continue;
                }
                let mut position = base;
                let deltas = entry.deltas as usize..(entry.deltas + entry.frequency) as usize;
                for &delta in &self.deltas[deltas] {
                    position += delta;
                    self.tokens.push((entry.term, position));
                }
            }
            base = base.saturating_add(self.shapes[shape].positions).saturating_add(field.gap);
        }
        let length = keys.iter().map(|&key| self.shapes[self.shape_of[key as usize] as usize].length).sum();
        let id = self.add_shape(field, base)?;
        self.shapes[id as usize].length = length;
        Ok(id)
    }

    /// Turns the tokens at hand into a shape.
    fn add_shape(&mut self, field: &TextField<'_>, positions: u32) -> Result<u32> {
        let count = |n: usize| {
            u32::try_from(n)
                .map_err(|_| Error::TooLarge(format!("text of [{}] exceeds 4 Gi tokens", field.path)))
        };
        let tokens = count(self.tokens.len())?;
        // Tokens come in position order: those at the position before them add no length.
        let mut length = 0;
        let mut last = None;
        for &(_, position) in &self.tokens {
            length += u32::from(last != Some(position));
            last = Some(position);
        }
        self.tokens.sort_unstable();
        let mut at = 0;
        while at < self.tokens.len() {
            let (term, mut before) = (self.tokens[at].0, 0);
            let deltas = count(self.deltas.len())?;
            let mut frequency = 0;
            while let Some(&(_, position)) = self.tokens.get(at).filter(|token| token.0 == term) {
                if field.record == Record::Positions {
                    self.deltas.push(position - before);
                    before = position;
                }
                frequency += 1;
                at += 1;
            }
            self.entries.push(Entry { term, frequency, deltas });
        }
        let end = count(self.entries.len())?;
        let id = count(self.shapes.len())?;
        self.shapes.push(ValueStatistics { end, tokens, length, positions, rows: 0 });
        Ok(id)
    }

    fn write_terms<W: io::Write>(&self, field: &TextField<'_>, out: &mut PostingsWriter<W>) -> Result<()> {
        let mut starts = vec![0usize; self.terms.len() + 1];
        for (id, shape) in self.shapes.iter().enumerate().filter(|(_, shape)| shape.rows > 0) {
            for entry in &self.entries[self.start(id)..shape.end as usize] {
                starts[entry.term as usize + 1] += shape.rows as usize;
            }
        }
        for term in 0..self.terms.len() {
            starts[term + 1] += starts[term];
        }
        // A slot is a row and an entry; filling moves each start to its end.
        let mut slots = vec![(0u32, 0u32); starts[self.terms.len()]];
        for &(row, shape) in &self.documents {
            let range = self.start(shape as usize)..self.shapes[shape as usize].end as usize;
            for (entry, of) in range.clone().zip(&self.entries[range]) {
                let slot = &mut starts[of.term as usize];
                slots[*slot] = (row, entry as u32);
                *slot += 1;
            }
        }
        let mut key = Vec::new();
        term::start(field.id, &mut key);
        for id in self.terms.sorted() {
            let id = id as usize;
            let start = if id == 0 { 0 } else { starts[id - 1] };
            let slots = &slots[start..starts[id]];
            out.begin(slots.len() as u32);
            for &(row, entry) in slots {
                let entry = &self.entries[entry as usize];
                let positions: &[u32] = if field.record == Record::Positions {
                    &self.deltas[entry.deltas as usize..(entry.deltas + entry.frequency) as usize]
                } else {
                    &[]
                };
                out.push(row, entry.frequency, positions);
            }
            key.truncate(4);
            key.extend_from_slice(self.terms.get(id));
            out.end(&key).map_err(super::build::unwritable)?;
        }
        Ok(())
    }

    fn start(&self, shape: usize) -> usize {
        if shape == 0 { 0 } else { self.shapes[shape - 1].end as usize }
    }
}

fn value_of<'a>(strings: &'a Strings, key: usize, path: &str) -> Result<&'a str> {
    let start = if key == 0 { 0 } else { strings.ends[key - 1] as usize };
    std::str::from_utf8(&strings.bytes[start..strings.ends[key] as usize])
        .map_err(|error| Error::Internal(format!("value of [{path}]: {error}")))
}
