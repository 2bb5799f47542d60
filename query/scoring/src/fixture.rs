//! A segment built by hand, for tests of scoring and plans; those of other crates use it too.
#![allow(clippy::unwrap_used, reason = "for tests")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::Int64Array;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use millrace_mapping::{PathId, Scalar};
use millrace_runtime::Result;
use millrace_segment::bundle::{Impact, ValueWalker, Walk};
use millrace_segment::{ColumnBatch, Nested, NumberBounds, PageBounds, RowParts, StoredRow, ValueRange};
use millrace_work::compute::Stop;
use roaring::RoaringBitmap;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::Postings;
use tantivy::{DocSet, TERMINATED};

use crate::automaton::{CancellablePattern, Pattern};
use crate::operands::{RawBound, TextBound};
use crate::reader::{EachRows, EachValueRows, InvertedIndex, SegmentReader, TextReader};
use crate::row_postings::RowsOf;

/// Postings as a list of `(row, frequency)` and the positions in each row.
struct List(Vec<(u32, u32)>, usize, Vec<Vec<u32>>);

impl DocSet for List {
    fn advance(&mut self) -> u32 {
        self.1 += 1;
        self.doc()
    }
    fn doc(&self) -> u32 {
        self.0.get(self.1).map_or(TERMINATED, |(row, _)| *row)
    }
    fn size_hint(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Postings for List {
    fn term_freq(&self) -> u32 {
        self.0[self.1].1
    }
    fn append_positions_with_offset(&mut self, offset: u32, output: &mut Vec<u32>) {
        output.extend(self.2[self.1].iter().map(|position| position + offset));
    }
}

/// A segment with one text field (path 1), one keyword field (path 2) and one number (column 3).
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    texts: Vec<Vec<String>>,
    keywords: Vec<String>,
    numbers: Vec<i64>,
}

/// The text field.
pub const TEXT: PathId = PathId(1);
/// The keyword field.
pub const KEYWORD: PathId = PathId(2);
/// The number.
pub const NUMBER: PathId = PathId(3);

impl Fixture {
    /// Makes a segment of `(text, keyword, number)` rows.
    pub fn new(rows: &[(&str, &str, i64)]) -> Arc<Self> {
        Arc::new(Self {
            texts: rows.iter().map(|row| row.0.split_whitespace().map(str::to_owned).collect()).collect(),
            keywords: rows.iter().map(|row| row.1.to_owned()).collect(),
            numbers: rows.iter().map(|row| row.2).collect(),
        })
    }

    fn batch(&self, columns: &[PathId], rows: Option<RoaringBitmap>) -> ColumnBatch {
        let rows: Vec<u32> =
            rows.map_or_else(|| (0..SegmentReader::rows(self)).collect(), |rows| rows.iter().collect());
        let numbers = Int64Array::from_iter_values(rows.iter().map(|row| self.numbers[*row as usize]));
        let numbers: arrow::array::ArrayRef = Arc::new(numbers);
        ColumnBatch { rows, columns: columns.iter().map(|_| Arc::clone(&numbers)).collect() }
    }

    fn keyword_rows(&self, matches: impl Fn(&str) -> bool) -> Vec<(u32, u32)> {
        let rows = self.keywords.iter().enumerate().filter(|(_, keyword)| matches(keyword));
        rows.map(|(row, _)| (row as u32, 1)).collect()
    }
}

/// Calls `each` with the distinct words of a pattern, ascending.
fn for_each_word<'a>(
    words: impl Iterator<Item = &'a String>,
    pattern: &Pattern,
    each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    words.filter(|word| pattern.matches(word)).for_each(|word| *counts.entry(word).or_default() += 1);
    let _ = counts.into_iter().try_for_each(|(word, count)| each(word, count));
}

fn list(rows: Vec<(u32, u32)>) -> Option<Box<dyn Postings>> {
    (!rows.is_empty()).then(|| Box::new(List(rows, 0, Vec::new())) as Box<dyn Postings>)
}

fn bitmap(rows: &[(u32, u32)]) -> RoaringBitmap {
    rows.iter().map(|(row, _)| *row).collect()
}

impl SegmentReader for Fixture {
    fn rows(&self) -> u32 {
        self.keywords.len() as u32
    }
    fn inverted(&self) -> Result<Arc<dyn InvertedIndex>> {
        Ok(Arc::new(self.clone()))
    }
    fn range_rows(
        &self,
        _column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        let ValueRange::I64(from, to) = range else { panic!("a range of numbers") };
        let rows = self.numbers.iter().enumerate();
        let rows = rows.filter(|(row, n)| {
            (from..=to).contains(n) && among.is_none_or(|among| among.contains(*row as u32))
        });
        Ok(rows.map(|(row, _)| row as u32).collect())
    }
    fn id_rows(&self, ids: &[String]) -> Result<RoaringBitmap> {
        Ok(ids.iter().filter_map(|id| id.parse::<u32>().ok()).collect())
    }
    fn read(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        sink(self.batch(columns, rows));
        Ok(())
    }
    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>> {
        let batch = self.batch(columns, rows);
        futures::stream::once(async move { Ok(batch) }).boxed()
    }
    fn is_list(&self, _column: PathId) -> bool {
        false
    }
    fn bounds(&self, column: PathId) -> PageBounds {
        let rows = 0..SegmentReader::rows(self);
        match (column, self.numbers.iter().min(), self.numbers.iter().max()) {
            (NUMBER, Some(min), Some(max)) => {
                PageBounds { rows, values: NumberBounds::I64(*min, *max), full: true }
            }
            _ => PageBounds { rows, values: NumberBounds::Unknown, full: false },
        }
    }
    fn pages(&self, column: PathId) -> Result<Vec<PageBounds>> {
        Ok(vec![self.bounds(column)])
    }
    fn fetch(&self, rows: &[u32], _wanted: RowParts) -> Result<Vec<StoredRow>> {
        let stored = |row: &u32| StoredRow {
            row: *row,
            id: row.to_string(),
            version: 1,
            seq_no: u64::from(*row),
            primary_term: 1,
            routing: None,
            source: Bytes::from_static(b"{}"),
            ignored: Vec::new(),
        };
        Ok(rows.iter().map(stored).collect())
    }
}

impl InvertedIndex for Fixture {
    fn exact(&self, _path: PathId, value: &Scalar) -> Result<Option<Box<dyn Postings>>> {
        let Scalar::Str(value) = value else { return Ok(None) };
        Ok(list(self.keyword_rows(|keyword| keyword == value)))
    }
    fn exact_count(&self, _path: PathId, value: &Scalar) -> Result<u32> {
        let Scalar::Str(value) = value else { return Ok(0) };
        Ok(self.keyword_rows(|keyword| keyword == value).len() as u32)
    }
    fn rows_of_values(
        &self,
        _path: PathId,
        values: &[Scalar],
        most: u64,
        _stop: &Stop,
        each: &mut EachValueRows<'_>,
    ) -> Result<bool> {
        let mut found = Vec::new();
        for (place, value) in values.iter().enumerate() {
            let Scalar::Str(value) = value else { continue };
            found.extend(
                self.keyword_rows(|keyword| keyword == value).into_iter().map(|(row, _)| (place, row)),
            );
        }
        let few = found.len() as u64 <= most;
        found.iter().filter(|_| few).for_each(|(place, row)| each(*place, &[*row]));
        Ok(few)
    }
    fn has_exact(&self, path: PathId) -> bool {
        path == KEYWORD
    }
    fn matching_rows(&self, _path: PathId, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap> {
        Ok(bitmap(&self.keyword_rows(|keyword| pattern.pattern.matches(keyword))))
    }
    fn for_each_match(
        &self,
        _path: PathId,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        for_each_word(self.keywords.iter(), pattern.pattern, each);
        Ok(())
    }
    fn for_each_value(
        &self,
        _path: PathId,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut keywords: Vec<&String> = self.keywords.iter().collect();
        keywords.sort();
        let _ =
            keywords.chunk_by(|a, b| a == b).try_for_each(|same| each(same[0].as_bytes(), same.len() as u32));
        Ok(())
    }
    fn walk_values(&self, _path: PathId, walker: &mut dyn ValueWalker) -> Result<()> {
        let mut keywords: Vec<&String> = self.keywords.iter().collect();
        keywords.sort();
        keywords.dedup();
        for wanted in keywords {
            let found = self.keyword_rows(|keyword| keyword == wanted);
            let rows: Vec<u32> = found.into_iter().map(|(row, _)| row).collect();
            match walker.value(wanted.as_bytes(), rows.len() as u32) {
                Walk::Stop => break,
                Walk::Pass => {}
                Walk::Read => walker.rows(&rows),
            }
        }
        Ok(())
    }
    fn range_rows(
        &self,
        _path: PathId,
        _from: &RawBound,
        _to: &RawBound,
        _stop: &Stop,
    ) -> Result<RoaringBitmap> {
        Ok(RoaringBitmap::new())
    }
    fn for_each_rows(
        &self,
        _path: PathId,
        from: Option<&[u8]>,
        descending: bool,
        each: &mut EachRows<'_>,
    ) -> Result<()> {
        let mut keywords: Vec<&String> = self.keywords.iter().collect();
        keywords.sort();
        keywords.dedup();
        if descending {
            keywords.reverse();
        }
        if let Some(from) = from {
            keywords.retain(|own| if descending { own.as_bytes() <= from } else { own.as_bytes() >= from });
        }
        let _ = keywords.into_iter().try_for_each(|wanted| {
            let mut rows = RowsOf(List(self.keyword_rows(|keyword| keyword == wanted), 0, Vec::new()));
            each(wanted.as_bytes(), &mut rows)
        });
        Ok(())
    }
    fn exists(&self, _path: PathId) -> Result<Option<Box<dyn Postings>>> {
        Ok(list(self.keyword_rows(|_| true)))
    }
    fn exists_count(&self, _path: PathId) -> Result<u32> {
        Ok(self.keywords.len() as u32)
    }
    fn value_count(&self, _path: PathId) -> Result<u64> {
        Ok(self.keywords.len() as u64)
    }
    fn text(&self, _path: PathId) -> Option<&dyn TextReader> {
        Some(self)
    }
}

impl TextReader for Fixture {
    fn rows(&self) -> u32 {
        self.texts.len() as u32
    }
    fn docs(&self) -> u32 {
        self.texts.iter().filter(|tokens| !tokens.is_empty()).count() as u32
    }
    fn tokens(&self) -> u64 {
        self.texts.iter().map(|tokens| tokens.len() as u64).sum()
    }
    fn postings(&self, term: &str) -> Result<Option<Box<dyn Postings>>> {
        let (mut rows, mut positions) = (Vec::new(), Vec::new());
        for (row, tokens) in self.texts.iter().enumerate() {
            let found: Vec<u32> =
                (0..tokens.len()).filter(|at| tokens[*at] == term).map(|at| at as u32).collect();
            if !found.is_empty() {
                rows.push((row as u32, found.len() as u32));
                positions.push(found);
            }
        }
        Ok((!rows.is_empty()).then(|| Box::new(List(rows, 0, positions)) as Box<dyn Postings>))
    }
    /// Runs of two rows, described for twice the average length.
    fn impacts(&self, term: &str) -> Result<Option<Vec<Impact>>> {
        let average = self.impact_average();
        let mut runs: Vec<Vec<(u32, u32, u32)>> = Vec::new();
        for (row, tokens) in self.texts.iter().enumerate() {
            let freq = tokens.iter().filter(|token| *token == term).count() as u32;
            if freq > 0 {
                if runs.last().is_none_or(|run| run.len() == 2) {
                    runs.push(Vec::new());
                }
                let row = row as u32;
                runs.last_mut().unwrap().push((row, self.norm(row), freq));
            }
        }
        let ratio = |run: &(u32, u32, u32)| run.2 as f32 / (0.25 + 0.75 * run.1 as f32 / average);
        let impact = |run: &Vec<(u32, u32, u32)>| {
            let best = run.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b))).unwrap();
            let most = run.iter().map(|row| row.2).max().unwrap();
            Impact { last: run.last().unwrap().0, length: best.1, freq: best.2, most }
        };
        let mut impacts: Vec<Impact> = runs.iter().map(impact).collect();
        impacts.push(Impact { last: u32::MAX, length: 0, freq: u32::MAX, most: u32::MAX });
        Ok(Some(impacts))
    }
    fn impact_average(&self) -> f32 {
        2.0 * TextReader::tokens(self) as f32 / TextReader::docs(self) as f32
    }
    fn count(&self, term: &str) -> Result<u32> {
        Ok(self.texts.iter().filter(|tokens| tokens.iter().any(|token| token == term)).count() as u32)
    }
    fn matching_rows(&self, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap> {
        let found = |tokens: &Vec<String>| tokens.iter().any(|token| pattern.pattern.matches(token));
        let rows = self.texts.iter().enumerate().filter(|(_, tokens)| found(tokens));
        Ok(rows.map(|(row, _)| row as u32).collect())
    }
    fn for_each_match(
        &self,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        for_each_word(self.texts.iter().flatten(), pattern.pattern, each);
        Ok(())
    }
    fn range_rows(&self, _from: &TextBound, _to: &TextBound, _stop: &Stop) -> Result<RoaringBitmap> {
        Ok(RoaringBitmap::new())
    }
    fn has_norms(&self) -> bool {
        true
    }
    fn norm_id(&self, row: u32) -> u8 {
        FieldNormReader::fieldnorm_to_id(self.texts[row as usize].len() as u32)
    }
}

/// Events of an [`ObservedSegment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its inverted index is opened.
    Open,
    /// A column is read for a range.
    Range,
}

/// A segment that tells when it is about to be accessed.
pub struct ObservedSegment {
    segment: Arc<dyn SegmentReader>,
    accessed: Box<dyn Fn(Access) + Send + Sync>,
}

impl ObservedSegment {
    /// Tells `accessed` of a segment, which may block.
    pub fn new(
        segment: Arc<dyn SegmentReader>,
        accessed: impl Fn(Access) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { segment, accessed: Box::new(accessed) })
    }
}

impl fmt::Debug for ObservedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl SegmentReader for ObservedSegment {
    fn rows(&self) -> u32 {
        self.segment.rows()
    }
    fn inverted(&self) -> Result<Arc<dyn InvertedIndex>> {
        (self.accessed)(Access::Open);
        self.segment.inverted()
    }
    fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        (self.accessed)(Access::Range);
        self.segment.range_rows(column, range, among)
    }
    fn id_rows(&self, ids: &[String]) -> Result<RoaringBitmap> {
        self.segment.id_rows(ids)
    }
    fn read(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        self.segment.read(columns, rows, sink)
    }
    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>> {
        self.segment.scan(columns, rows)
    }
    fn bounds(&self, column: PathId) -> PageBounds {
        self.segment.bounds(column)
    }
    fn pages(&self, column: PathId) -> Result<Vec<PageBounds>> {
        self.segment.pages(column)
    }
    fn fetch(&self, rows: &[u32], wanted: RowParts) -> Result<Vec<StoredRow>> {
        self.segment.fetch(rows, wanted)
    }
    fn nested(&self, path: PathId) -> Result<Option<Arc<Nested>>> {
        self.segment.nested(path)
    }
}
