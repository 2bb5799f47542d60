//! Merging one kind of dictionary: the terms of all inputs in order, and their postings.

use millrace_mapping::PathId;
use millrace_mapping::term::path_of;
use millrace_runtime::{Error, Result};
use tantivy::fieldnorm::FieldNormReader;
use tantivy::positions::PositionReader;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::termdict::TermStreamer;

use super::plan::{Input, Plan};
use super::scratch::Scratch;
use super::{DROPPED, MergeOutput, Section, misfit};
use crate::bundle::contents::{Contents, Text};
use crate::bundle::norms::{self, Location};
use crate::bundle::postings::{PostingsWriter, Record};
use crate::bundle::reader::unreadable;

/// Merges the dictionaries of a kind, adding text fields to `contents` and their norms to `norms`.
pub(super) fn merge(
    plan: &Plan<'_>,
    record: Record,
    out: PostingsWriter<MergeOutput>,
    norms: &mut Section,
    contents: &mut Contents,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let mut streams: Vec<TermStreamer<'_>> = Vec::with_capacity(plan.inputs.len());
    let mut sources: Vec<Source> = Vec::with_capacity(plan.inputs.len());
    let mut open: Vec<usize> = Vec::with_capacity(plan.inputs.len());
    for (at, input) in plan.inputs.iter().enumerate() {
        let mut stream = input
            .bundle
            .reader_of(record)
            .terms()
            .stream()
            .map_err(|error| unreadable(input.bundle.name(), &error))?;
        if stream.advance() {
            open.push(at);
        }
        streams.push(stream);
        sources.push(Source::default());
    }
    let mut merger = Merger {
        plan,
        record,
        out,
        scratch,
        norms,
        contents,
        path: None,
        keep: false,
        text: None,
        unordered: Unordered::default(),
    };
    let mut key = Vec::new();
    let mut matching = Vec::with_capacity(plan.inputs.len());
    while let Some((&first, rest)) = open.split_first() {
        scratch.check()?;
        // Few inputs are merged at a time: looking at all is cheaper than keeping a heap.
        matching.clear();
        matching.push(first);
        let mut least = streams[first].key();
        for &at in rest {
            match streams[at].key().cmp(least) {
                std::cmp::Ordering::Less => {
                    least = streams[at].key();
                    matching.clear();
                    matching.push(at);
                }
                std::cmp::Ordering::Equal => matching.push(at),
                std::cmp::Ordering::Greater => {}
            }
        }
        key.clear();
        key.extend_from_slice(least);
        let path = path_of(&key).ok_or_else(|| misfit("a term without a path"))?;
        if merger.path != Some(path) {
            merger.end_path()?;
            merger.start_path(path)?;
        }
        if merger.keep {
            merger.term(&key, &matching, &streams, &mut sources)?;
        }
        for &at in &matching {
            if !streams[at].advance() {
                open.retain(|&other| other != at);
            }
        }
    }
    merger.end_path()?;
    merger.out.finish().map_err(|error| scratch.error(error))
}

/// Blocks of a term, of 128 rows each, between two checks for the cancellation of the merge.
const BLOCKS_A_CHECK: u32 = 256;

/// Decoding state of one input, kept from term to term.
#[derive(Default)]
struct Source {
    blocks: Option<BlockSegmentPostings>,
    /// Position deltas of one block.
    deltas: Vec<u32>,
}

/// Postings of a term whose rows come out of order.
#[derive(Default)]
struct Unordered {
    /// Row, frequency, start in `deltas`.
    rows: Vec<(u32, u32, usize)>,
    deltas: Vec<u32>,
    /// Rows of a term that are all there is of it: a list while they are few, else a bit each.
    few: Vec<u32>,
    bits: Vec<u64>,
}

/// A term in more rows than one in so many has them sorted by a bit each.
const FEW: u32 = 64;

impl Unordered {
    /// Sorts rows that `each` feeds, at most `most` of them among `total`, and hands them on.
    fn sort_rows(
        &mut self,
        most: u32,
        total: u32,
        each: impl FnOnce(&mut dyn FnMut(u32) -> Result<()>) -> Result<()>,
        mut take: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        if most < total / FEW {
            self.few.clear();
            each(&mut |row| {
                self.few.push(row);
                Ok(())
            })?;
            self.few.sort_unstable();
            return self.few.iter().try_for_each(|row| take(*row));
        }
        self.bits.clear();
        self.bits.resize((total as usize).div_ceil(64), 0);
        each(&mut |row| {
            let (word, bit) = (&mut self.bits[row as usize / 64], 1 << (row % 64));
            if *word & bit != 0 {
                return Err(misfit(format!("row {row} of a term comes twice")));
            }
            *word |= bit;
            Ok(())
        })?;
        for (base, &word) in (0u32..).step_by(64).zip(&self.bits) {
            let mut rest = word;
            while rest != 0 {
                take(base + rest.trailing_zeros())?;
                rest &= rest - 1;
            }
        }
        Ok(())
    }
}

/// A text field on its way to the output.
struct TextState {
    path: PathId,
    doc_count: u32,
    total_tokens: u64,
    average: f32,
    norms: Option<Location>,
    /// Rows with a token, a bit each, where norms do not tell.
    seen: Option<Vec<u64>>,
}

struct Merger<'a, 'b> {
    plan: &'a Plan<'b>,
    record: Record,
    out: PostingsWriter<MergeOutput>,
    scratch: &'a Scratch<'a>,
    norms: &'a mut Section,
    contents: &'a mut Contents,
    path: Option<u32>,
    /// `true` if the terms of the path go to the output.
    keep: bool,
    text: Option<TextState>,
    unordered: Unordered,
}

impl Merger<'_, '_> {
    fn start_path(&mut self, path: u32) -> Result<()> {
        self.path = Some(path);
        let path = PathId(path);
        self.keep = !self.contents.is_inexact(path);
        self.out.set_lengths(None);
        let Some(field) = self.plan.texts.get(&path) else { return Ok(()) };
        let mut text =
            TextState { path, doc_count: 0, total_tokens: 0, average: 0.0, norms: None, seen: None };
        text.average = field.total_tokens as f32 / field.doc_count.max(1) as f32;
        if field.norms {
            let ids = self.merged_norms(path)?;
            let mut length = 0u64;
            for &id in ids.iter().filter(|&&id| id != 0) {
                text.doc_count += 1;
                length += u64::from(FieldNormReader::id_to_fieldnorm(id));
            }
            if u64::from(text.doc_count) != field.doc_count && text.doc_count > 0 {
                // Rows fell away. What is left is known to the precision of norms until the terms
                // have passed, which is enough to choose block maxima by.
                text.average = length as f32 / text.doc_count as f32;
            }
            let mut bytes = Vec::new();
            let location = norms::append(&ids, &mut bytes);
            text.norms = Some(Location { offset: self.norms.len, ..location });
            self.norms.append(&bytes, self.scratch)?;
            if self.record != Record::Rows {
                self.out.set_lengths(Some((text.average, norms::lengths(ids)?)));
            }
        } else {
            text.seen = Some(vec![0; (self.plan.rows as usize).div_ceil(64)]);
        }
        self.text = Some(text);
        Ok(())
    }

    fn merged_norms(&self, path: PathId) -> Result<Vec<u8>> {
        let mut ids = vec![0u8; self.plan.rows as usize];
        for input in &self.plan.inputs {
            self.scratch.check()?;
            let Some(index) = input.bundle.text(path) else { continue };
            let mut missing = None;
            index.norms.for_each(|row, id| match input.target(row) {
                Some(DROPPED) => {}
                Some(target) => ids[target as usize] = id,
                None => missing = Some(row),
            });
            if let Some(row) = missing {
                return Err(no_such_row(input, row));
            }
        }
        Ok(ids)
    }

    fn end_path(&mut self) -> Result<()> {
        let Some(text) = self.text.take() else { return Ok(()) };
        let doc_count = match &text.seen {
            Some(seen) => seen.iter().map(|word| word.count_ones()).sum(),
            None => text.doc_count,
        };
        if doc_count > 0 {
            self.contents.texts.push(Text {
                path: text.path,
                record: self.record,
                doc_count,
                total_tokens: text.total_tokens,
                block_max_average: text.average,
                norms: text.norms,
            });
        }
        Ok(())
    }

    fn term(
        &mut self,
        key: &[u8],
        matching: &[usize],
        streams: &[TermStreamer<'_>],
        sources: &mut [Source],
    ) -> Result<()> {
        let most: u64 = matching.iter().map(|&at| u64::from(streams[at].value().doc_freq)).sum();
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(self.plan.rows);
        self.out.begin(most);
        let ordered = self.plan.ordered || (matching.len() == 1 && self.plan.inputs[matching[0]].ascending);
        let mut tokens = 0u64;
        let mut last = None;
        if ordered {
            let Self { plan, record, out, text, scratch, .. } = self;
            let mut seen = text.as_mut().and_then(|text| text.seen.as_mut());
            for &at in matching {
                decode(
                    (&plan.inputs[at], *scratch),
                    *record,
                    streams[at].value(),
                    &mut sources[at],
                    |row, frequency, deltas| {
                        if last.is_some_and(|last| last >= row) {
                            return Err(misfit(format!("row {row} of a term comes out of order")));
                        }
                        last = Some(row);
                        tokens += u64::from(frequency);
                        if let Some(seen) = &mut seen {
                            seen[row as usize / 64] |= 1 << (row % 64);
                        }
                        out.push(row, frequency, deltas);
                        Ok(())
                    },
                )?;
            }
        } else if self.record == Record::Rows {
            let Self { plan, record, unordered, out, text, scratch, .. } = self;
            let mut seen = text.as_mut().and_then(|text| text.seen.as_mut());
            let decode_all = |each: &mut dyn FnMut(u32) -> Result<()>| {
                matching.iter().try_for_each(|&at| {
                    let (info, source) = (streams[at].value(), &mut sources[at]);
                    decode((&plan.inputs[at], *scratch), *record, info, source, |row, _, _| each(row))
                })
            };
            unordered.sort_rows(most, plan.rows, decode_all, |row| {
                if last.replace(row) == Some(row) {
                    return Err(misfit(format!("row {row} of a term comes twice")));
                }
                tokens += 1;
                if let Some(seen) = &mut seen {
                    seen[row as usize / 64] |= 1 << (row % 64);
                }
                out.push(row, 1, &[]);
                Ok(())
            })?;
        } else {
            let Self { plan, record, unordered, scratch, .. } = self;
            unordered.rows.clear();
            unordered.deltas.clear();
            for &at in matching {
                decode(
                    (&plan.inputs[at], *scratch),
                    *record,
                    streams[at].value(),
                    &mut sources[at],
                    |row, frequency, deltas| {
                        unordered.rows.push((row, frequency, unordered.deltas.len()));
                        unordered.deltas.extend_from_slice(deltas);
                        Ok(())
                    },
                )?;
            }
            // Each input's rows mostly ascend: a sort that finds runs merges them.
            unordered.rows.sort_by_key(|(row, ..)| *row);
            for &(row, frequency, start) in &unordered.rows {
                if last == Some(row) {
                    return Err(misfit(format!("row {row} of a term comes twice")));
                }
                last = Some(row);
                tokens += u64::from(frequency);
                if let Some(seen) = self.text.as_mut().and_then(|text| text.seen.as_mut()) {
                    seen[row as usize / 64] |= 1 << (row % 64);
                }
                let deltas = match self.record {
                    Record::Positions => &unordered.deltas[start..start + frequency as usize],
                    Record::Rows | Record::Frequencies => &[],
                };
                self.out.push(row, frequency, deltas);
            }
        }
        if let Some(text) = &mut self.text {
            text.total_tokens += tokens;
        }
        self.out.end(key).map_err(|error| self.scratch.error(error))
    }
}

/// Decodes the postings of a term and hands on the rows that are kept, as rows of the output, with
/// frequency (1 where none are kept) and position deltas.
fn decode(
    (input, scratch): (&Input<'_>, &Scratch<'_>),
    record: Record,
    info: &TermInfo,
    source: &mut Source,
    mut each: impl FnMut(u32, u32, &[u32]) -> Result<()>,
) -> Result<()> {
    let unreadable = |error: std::io::Error| unreadable(input.bundle.name(), &error);
    let reader = input.bundle.reader_of(record);
    let blocks = match &mut source.blocks {
        Some(blocks) => {
            reader.reset_block_postings_from_terminfo(info, blocks).map_err(unreadable)?;
            blocks
        }
        None => {
            let blocks =
                reader.read_block_postings_from_terminfo(info, record.option()).map_err(unreadable)?;
            source.blocks.insert(blocks)
        }
    };
    let mut positions = match record {
        Record::Positions => Some(PositionReader::open(input.bundle.positions_of(info)).map_err(unreadable)?),
        Record::Rows | Record::Frequencies => None,
    };
    let (mut positions_read, mut decoded) = (0u64, 0u32);
    while !blocks.docs().is_empty() {
        decoded += 1;
        if decoded.is_multiple_of(BLOCKS_A_CHECK) {
            scratch.check()?;
        }
        let frequencies = match record {
            Record::Rows => None,
            Record::Frequencies | Record::Positions => Some(blocks.freqs()),
        };
        if let (Some(positions), Some(frequencies)) = (&mut positions, frequencies) {
            let count: u64 = frequencies.iter().map(|&frequency| u64::from(frequency)).sum();
            source.deltas.resize(count as usize, 0);
            positions.read(positions_read, &mut source.deltas);
            positions_read += count;
        }
        let mut start = 0;
        for (at, &row) in blocks.docs().iter().enumerate() {
            let frequency = frequencies.map_or(1, |frequencies| frequencies[at]);
            let deltas = match record {
                Record::Positions => &source.deltas[start..start + frequency as usize],
                Record::Rows | Record::Frequencies => &[],
            };
            start += frequency as usize;
            match input.target(row) {
                Some(DROPPED) => {}
                Some(target) => each(target, frequency, deltas)?,
                None => return Err(no_such_row(input, row)),
            }
        }
        blocks.advance();
    }
    Ok(())
}

fn no_such_row(input: &Input<'_>, row: u32) -> Error {
    Error::Corrupt {
        file: input.bundle.name().to_owned(),
        offset: 0,
        reason: format!("postings name row {row}, the segment has {}", input.bundle.rows()),
    }
}
