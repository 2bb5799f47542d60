//! Interface of segments for searches, as traits: the store's segments implement them, and tests build small ones by hand.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arrow::array::ArrayRef;
use futures::stream::BoxStream;
use millrace_mapping::{PathId, Scalar};
use millrace_runtime::Result;
use millrace_segment::bundle::{Bundle, Impact, TextIndex, ValueWalker};
use millrace_segment::{
    ColumnBatch, Minutes, Nested, PageBounds, PagedRange, RowParts, Segment, StoredFiles, StoredRow, Tally,
    ValueRange,
};
use millrace_work::compute::Stop;
use roaring::RoaringBitmap;
use tantivy::postings::Postings;

use crate::automaton::CancellablePattern;
use crate::metadata_columns;
use crate::metadata_columns::is_metadata_column;
use crate::operands::{RawBound, TextBound};
use crate::positions::RowPositions;
pub use crate::row_postings::RowPostings;
use crate::row_postings::{row_list, rows_of, term_rows};
use crate::union::PostingsUnion;

/// A segment as a search reads it. Every call but [`SegmentReader::rows`] may block on a remote
/// store, so they are made on compute threads; [`SegmentReader::scan`] hops there itself.
pub trait SegmentReader: fmt::Debug + Send + Sync {
    /// Counts rows, deleted ones included.
    fn rows(&self) -> u32;
    /// Returns the number, unique in the process, and the bytes of a segment that lies in memory.
    fn in_memory(&self) -> Option<(u64, u64)> {
        None
    }
    /// Returns the files of a stored segment.
    fn stored_files(&self) -> Option<StoredFiles> {
        None
    }
    /// Estimates the bytes that a row takes once it is read, on average.
    fn row_bytes(&self) -> u64 {
        0
    }
    /// Returns the inverted index.
    fn inverted(&self) -> Result<Arc<dyn InvertedIndex>>;
    /// Finds the rows with a value of a column in a range.
    fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap>;
    /// Opens a range over a column that is evaluated where its rows are asked for; `None` where `range_rows` must find them.
    fn paged_range(&self, _column: PathId, _range: &ValueRange) -> Result<Option<PagedRange>> {
        Ok(None)
    }
    /// Returns the numbers of a column in some rows, null where a row has none; `None` where they must be read.
    fn numbers(&self, _column: PathId, _rows: &RoaringBitmap) -> Result<Option<ArrayRef>> {
        Ok(None)
    }
    /// Finds the rows of document ids.
    fn id_rows(&self, ids: &[String]) -> Result<RoaringBitmap>;
    /// Reads columns, batch by batch until `sink` returns false.
    fn read(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> Result<()>;
    /// Reads columns as a stream.
    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>>;
    /// Returns whether a row may have several values of a column.
    fn is_list(&self, _column: PathId) -> bool {
        true
    }
    /// Returns the bounds of a column over the whole segment, as far as they are known without reading.
    fn bounds(&self, column: PathId) -> PageBounds;
    /// Returns the bounds of a column over runs of rows that cover the segment in order.
    fn pages(&self, column: PathId) -> Result<Vec<PageBounds>>;
    /// Returns whether a column is known to have many strings of which few are equal.
    fn hardly_repeats(&self, _column: PathId) -> Result<bool> {
        Ok(false)
    }
    /// Returns the rows of each page of the sources; none where these are in memory.
    fn source_pages(&self) -> Result<Vec<Range<u32>>> {
        Ok(Vec::new())
    }
    /// Counts the rows by minute of a column of times in milliseconds, deleted rows included; `None` where that is not known.
    fn minutes(&self, _column: PathId) -> Result<Option<Arc<Minutes>>> {
        Ok(None)
    }
    /// Counts the rows by value of a column of integers, deleted rows included; `None` where that is not known.
    fn tally(&self, _column: PathId) -> Result<Option<Arc<Tally>>> {
        Ok(None)
    }
    /// Reads metadata and, where asked, sources of a few rows.
    fn fetch(&self, rows: &[u32], wanted: RowParts) -> Result<Vec<StoredRow>>;
    /// Reads sources of a few rows; other parts of a row may be empty.
    fn sources(&self, rows: &[u32]) -> Result<Vec<StoredRow>> {
        self.fetch(rows, RowParts { source: true, versions: false })
    }
    /// Returns the elements of a nested path, where the segment has any.
    fn nested(&self, _path: PathId) -> Result<Option<Arc<Nested>>> {
        Ok(None)
    }
    /// Returns the segment of the documents, where rows are elements of them.
    fn documents(&self) -> Option<&dyn SegmentReader> {
        None
    }
}

/// Takes an exact value as terms write it, and its rows.
pub type EachRows<'a> = dyn FnMut(&[u8], &mut dyn RowPostings) -> ControlFlow<()> + 'a;

/// Takes the place of an exact value among those that are looked up, and rows of it.
pub type EachValueRows<'a> = dyn FnMut(usize, &[u32]) + 'a;

/// An inverted index as a search reads it.
pub trait InvertedIndex: fmt::Debug + Send + Sync {
    /// Opens the postings of an exact value.
    fn exact(&self, path: PathId, value: &Scalar) -> Result<Option<Box<dyn Postings>>>;
    /// Opens the rows of an exact value.
    fn exact_rows(&self, path: PathId, value: &Scalar) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(self.exact(path, value)?.map(rows_of))
    }
    /// Counts the rows with an exact value.
    fn exact_count(&self, path: PathId, value: &Scalar) -> Result<u32>;
    /// Calls `each` with the places and rows of exact values, the rows of a value in ascending order. Returns `false` where the
    /// values have more than `most` rows: then `each` is not called. Ends early once it is told to stop.
    fn rows_of_values(
        &self,
        path: PathId,
        values: &[Scalar],
        most: u64,
        stop: &Stop,
        each: &mut EachValueRows<'_>,
    ) -> Result<bool>;
    /// Returns whether the exact values of a path are terms.
    fn has_exact(&self, path: PathId) -> bool;
    /// Finds the rows with an exact value of a pattern; some of them once it is told to stop.
    fn matching_rows(&self, path: PathId, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap>;
    /// Calls `each` with the exact values of a pattern and their row counts, ascending, until it breaks or the walk is told
    /// to stop.
    fn for_each_match(
        &self,
        path: PathId,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Calls `each` with the exact values of a path, as terms write them, ascending, and their row counts (deleted rows
    /// included), until it breaks, where [`InvertedIndex::has_exact`].
    fn for_each_value(&self, path: PathId, each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>)
    -> Result<()>;
    /// Walks over the exact values of a path, ascending, and the rows of those that are wanted, where [`InvertedIndex::has_exact`].
    fn walk_values(&self, path: PathId, walker: &mut dyn ValueWalker) -> Result<()>;
    /// Finds the rows with an exact value between byte strings; some of them once it is told to stop.
    fn range_rows(&self, path: PathId, from: &RawBound, to: &RawBound, stop: &Stop) -> Result<RoaringBitmap>;
    /// Finds the rows with an exact value between two integers, both included; `None` where they are not terms, and where more
    /// than so many terms or rows would have to be joined.
    fn few_rows(
        &self,
        _path: PathId,
        _range: (&Scalar, &Scalar),
        _most_terms: usize,
        _most_rows: u32,
    ) -> Result<Option<RoaringBitmap>> {
        Ok(None)
    }
    /// Calls `each` with the exact values of a path as terms write them and their rows, in the order of the values or
    /// against it, from one on or from the first, until it breaks.
    fn for_each_rows(
        &self,
        path: PathId,
        from: Option<&[u8]>,
        descending: bool,
        each: &mut EachRows<'_>,
    ) -> Result<()>;
    /// Opens the postings of the rows that have a path.
    fn exists(&self, path: PathId) -> Result<Option<Box<dyn Postings>>>;
    /// Opens the rows that have a path.
    fn exists_rows(&self, path: PathId) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(self.exists(path)?.map(rows_of))
    }
    /// Counts the rows that have a path.
    fn exists_count(&self, path: PathId) -> Result<u32>;
    /// Counts the exact values of a path over all rows, each once a row.
    fn value_count(&self, path: PathId) -> Result<u64>;
    /// Returns the full-text index of a path.
    fn text(&self, path: PathId) -> Option<&dyn TextReader>;
}

/// A full-text index as a search reads it.
pub trait TextReader: Send + Sync {
    /// Counts the rows of the segment.
    fn rows(&self) -> u32;
    /// Counts the rows that have the field.
    fn docs(&self) -> u32;
    /// Counts the tokens of the field.
    fn tokens(&self) -> u64;
    /// Opens the postings of a term.
    fn postings(&self, term: &str) -> Result<Option<Box<dyn Postings>>>;
    /// Opens the positions of a term.
    fn positions(&self, term: &str) -> Result<Option<Box<dyn RowPositions>>> {
        Ok(self
            .postings(term)?
            .map(|postings| Box::new(PostingsUnion::new(vec![postings])) as Box<dyn RowPositions>))
    }
    /// Opens the rows of a term.
    fn row_postings(&self, term: &str) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(self.postings(term)?.map(rows_of))
    }
    /// Opens the rows of a term with how often each has it.
    fn frequencies(&self, term: &str) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(self.postings(term)?.map(rows_of))
    }
    /// Returns the runs of a term's rows with what scores best in each, where they are kept.
    fn impacts(&self, term: &str) -> Result<Option<Vec<Impact>>>;
    /// Returns the average length for which [`TextReader::impacts`] name the best.
    fn impact_average(&self) -> f32;
    /// Counts the rows with a term.
    fn count(&self, term: &str) -> Result<u32>;
    /// Finds the rows with a term of a pattern; some of them once it is told to stop.
    fn matching_rows(&self, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap>;
    /// Calls `each` with the terms of a pattern and their row counts, ascending, until it breaks or the walk is told to stop.
    fn for_each_match(
        &self,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Finds the rows with a term between two; some of them once it is told to stop.
    fn range_rows(&self, from: &TextBound, to: &TextBound, stop: &Stop) -> Result<RoaringBitmap>;
    /// Returns whether norms are kept.
    fn has_norms(&self) -> bool;
    /// Returns the field's length in a row.
    fn norm(&self, row: u32) -> u32 {
        TextIndex::decode_norm(self.norm_id(row))
    }
    /// Returns the encoded length in a row, as [`TextIndex::decode_norm`] decodes it.
    fn norm_id(&self, row: u32) -> u8;
    /// Returns the encoded lengths of all rows, where they are kept a byte a row.
    fn norm_ids(&self) -> Option<&[u8]> {
        None
    }
}

impl SegmentReader for Segment {
    fn rows(&self) -> u32 {
        Segment::rows(self)
    }

    fn in_memory(&self) -> Option<(u64, u64)> {
        Segment::in_memory(self)
    }

    fn stored_files(&self) -> Option<StoredFiles> {
        Segment::stored_files(self)
    }

    fn row_bytes(&self) -> u64 {
        Segment::row_bytes(self)
    }

    fn inverted(&self) -> Result<Arc<dyn InvertedIndex>> {
        Ok(self.bundle_blocking()?)
    }

    fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        self.range_rows_blocking(column, range, among)
    }

    fn paged_range(&self, column: PathId, range: &ValueRange) -> Result<Option<PagedRange>> {
        self.paged_range_blocking(column, range)
    }

    fn numbers(&self, column: PathId, rows: &RoaringBitmap) -> Result<Option<ArrayRef>> {
        self.numbers_blocking(column, rows)
    }

    fn id_rows(&self, ids: &[String]) -> Result<RoaringBitmap> {
        self.id_rows_blocking(ids)
    }

    fn read(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        let plain = |columns: &[PathId], rows, sink: &mut dyn FnMut(ColumnBatch) -> bool| {
            self.scan_blocking(columns, rows, sink)
        };
        metadata_columns::read(self, columns, rows, sink, Box::new(plain))
    }

    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>> {
        Segment::scan(self, columns, rows)
    }

    fn is_list(&self, column: PathId) -> bool {
        Segment::is_list(self, column)
    }

    fn bounds(&self, column: PathId) -> PageBounds {
        match is_metadata_column(column) {
            true => metadata_columns::bounds(self),
            false => self.column_bounds(column),
        }
    }

    fn pages(&self, column: PathId) -> Result<Vec<PageBounds>> {
        match is_metadata_column(column) {
            true => Ok(vec![metadata_columns::bounds(self)]),
            false => self.pages_blocking(column),
        }
    }

    fn hardly_repeats(&self, column: PathId) -> Result<bool> {
        self.hardly_repeats_blocking(column)
    }

    fn source_pages(&self) -> Result<Vec<Range<u32>>> {
        self.source_pages_blocking()
    }

    fn minutes(&self, column: PathId) -> Result<Option<Arc<Minutes>>> {
        self.minutes_blocking(column)
    }

    fn tally(&self, column: PathId) -> Result<Option<Arc<Tally>>> {
        self.tally_blocking(column)
    }

    fn fetch(&self, rows: &[u32], wanted: RowParts) -> Result<Vec<StoredRow>> {
        self.fetch_blocking(rows, wanted)
    }

    fn sources(&self, rows: &[u32]) -> Result<Vec<StoredRow>> {
        self.sources_blocking(rows)
    }

    fn nested(&self, path: PathId) -> Result<Option<Arc<Nested>>> {
        self.nested_blocking(path)
    }
}

fn boxed<P: Postings>(postings: P) -> Box<dyn Postings> {
    Box::new(postings)
}

impl InvertedIndex for Bundle {
    fn exact(&self, path: PathId, value: &Scalar) -> Result<Option<Box<dyn Postings>>> {
        Ok(self.postings(path, value)?.map(boxed))
    }

    fn exact_rows(&self, path: PathId, value: &Scalar) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(self.postings(path, value)?.map(row_list))
    }

    fn exact_count(&self, path: PathId, value: &Scalar) -> Result<u32> {
        self.doc_freq(path, value)
    }

    fn rows_of_values(
        &self,
        path: PathId,
        values: &[Scalar],
        most: u64,
        stop: &Stop,
        each: &mut EachValueRows<'_>,
    ) -> Result<bool> {
        Bundle::rows_of_values(self, path, values, most, &|| !stop.requested(), each)
    }

    fn has_exact(&self, path: PathId) -> bool {
        Bundle::has_exact(self, path)
    }

    fn matching_rows(&self, path: PathId, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap> {
        match pattern.pattern.only_prefix() {
            Some(prefix) => Bundle::prefix_rows(self, path, prefix.as_bytes(), &|| pattern.goes_on()),
            None => Bundle::matching_rows(self, path, pattern.pattern.start().as_bytes(), pattern),
        }
    }

    fn for_each_match(
        &self,
        path: PathId,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        let start = pattern.pattern.start().as_bytes();
        Bundle::for_each_match(self, path, start, pattern, &mut |term, count| {
            std::str::from_utf8(term).map_or(ControlFlow::Continue(()), |term| each(term, count))
        })
    }

    fn for_each_value(
        &self,
        path: PathId,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        Bundle::for_each_value(self, path, each)
    }

    fn walk_values(&self, path: PathId, walker: &mut dyn ValueWalker) -> Result<()> {
        Bundle::walk_values(self, path, walker)
    }

    fn range_rows(&self, path: PathId, from: &RawBound, to: &RawBound, stop: &Stop) -> Result<RoaringBitmap> {
        Bundle::range_rows(
            self,
            path,
            from.as_ref().map(|(bytes, included)| (bytes.as_slice(), *included)),
            to.as_ref().map(|(bytes, included)| (bytes.as_slice(), *included)),
            &|| !stop.requested(),
        )
    }

    fn few_rows(
        &self,
        path: PathId,
        range: (&Scalar, &Scalar),
        most_terms: usize,
        most_rows: u32,
    ) -> Result<Option<RoaringBitmap>> {
        Bundle::few_rows(self, path, range, most_terms, most_rows)
    }

    fn for_each_rows(
        &self,
        path: PathId,
        from: Option<&[u8]>,
        descending: bool,
        each: &mut EachRows<'_>,
    ) -> Result<()> {
        self.for_each_postings(path, from, descending, &mut |value, mut rows| each(value, &mut rows))
    }

    fn exists(&self, path: PathId) -> Result<Option<Box<dyn Postings>>> {
        Ok(Bundle::exists(self, path)?.map(boxed))
    }

    fn exists_rows(&self, path: PathId) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(Bundle::exists(self, path)?.map(row_list))
    }

    fn exists_count(&self, path: PathId) -> Result<u32> {
        Bundle::exists_count(self, path)
    }

    fn value_count(&self, path: PathId) -> Result<u64> {
        Bundle::value_count(self, path)
    }

    fn text(&self, path: PathId) -> Option<&dyn TextReader> {
        Bundle::text(self, path).map(|text| text as &dyn TextReader)
    }
}

impl TextReader for TextIndex {
    fn rows(&self) -> u32 {
        TextIndex::rows(self)
    }

    fn docs(&self) -> u32 {
        self.doc_count()
    }

    fn tokens(&self) -> u64 {
        self.total_tokens()
    }

    fn postings(&self, term: &str) -> Result<Option<Box<dyn Postings>>> {
        Ok(TextIndex::postings(self, term)?.map(boxed))
    }

    fn positions(&self, term: &str) -> Result<Option<Box<dyn RowPositions>>> {
        let postings = TextIndex::postings(self, term)?;
        Ok(postings.map(|postings| Box::new(postings) as Box<dyn RowPositions>))
    }

    fn row_postings(&self, term: &str) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(TextIndex::row_postings(self, term)?.map(term_rows))
    }

    fn frequencies(&self, term: &str) -> Result<Option<Box<dyn RowPostings>>> {
        Ok(TextIndex::frequencies(self, term)?.map(term_rows))
    }

    fn impacts(&self, term: &str) -> Result<Option<Vec<Impact>>> {
        TextIndex::impacts(self, term)
    }

    fn impact_average(&self) -> f32 {
        self.block_max_average()
    }

    fn count(&self, term: &str) -> Result<u32> {
        self.doc_freq(term)
    }

    fn matching_rows(&self, pattern: CancellablePattern<'_>) -> Result<RoaringBitmap> {
        match pattern.pattern.only_prefix() {
            Some(prefix) => TextIndex::prefix_rows(self, prefix, &|| pattern.goes_on()),
            None => TextIndex::matching_rows(self, pattern.pattern.start(), pattern),
        }
    }

    fn for_each_match(
        &self,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        TextIndex::for_each_match(self, pattern.pattern.start(), pattern, &mut |term, count| {
            std::str::from_utf8(term).map_or(ControlFlow::Continue(()), |term| each(term, count))
        })
    }

    fn range_rows(&self, from: &TextBound, to: &TextBound, stop: &Stop) -> Result<RoaringBitmap> {
        TextIndex::range_rows(
            self,
            from.as_ref().map(|(term, included)| (term.as_str(), *included)),
            to.as_ref().map(|(term, included)| (term.as_str(), *included)),
            &|| !stop.requested(),
        )
    }

    fn has_norms(&self) -> bool {
        TextIndex::has_norms(self)
    }

    fn norm_id(&self, row: u32) -> u8 {
        TextIndex::norm_id(self, row)
    }

    fn norm_ids(&self) -> Option<&[u8]> {
        TextIndex::norm_ids(self)
    }
}
