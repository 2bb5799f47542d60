//! The inverted index of a segment: tantivy postings of all fields in a single file.
// CONTRACT STUB (owner: bundle)
use std::io::Write;
use std::path::Path;

use roaring::RoaringBitmap;
use tantivy::postings::SegmentPostings;

use crate::Result;
use crate::document::Chunk;
use crate::mapping::{Mapping, PathId, Scalar};

/// Builds the bundle of freshly written rows.
///
/// # Errors
/// A term over 32,766 bytes is an invalid-input error that names the field.
pub fn build(_mapping: &Mapping, _chunk: &Chunk) -> Result<Vec<u8>> {
    todo!()
}

/// Where the rows of an input segment go in the output of a merge.
#[derive(Clone, Debug)]
pub enum RowMap {
    /// All rows live: row `r` becomes `base + r`.
    Offset(u32),
    /// Row `r` becomes `table[r]`, or is dropped where that is `u32::MAX`. Values ascend, except
    /// after sorting by `index.sort.*`.
    Table(Vec<u32>),
}

/// Merges bundles by their postings, without tokenising again, streaming through files in `scratch`.
pub fn merge(_inputs: &[(&Bundle, RowMap)], _rows: u32, _scratch: &Path, _out: &mut dyn Write) -> Result<()> {
    todo!()
}

/// An open bundle.
#[derive(Debug)]
pub struct Bundle {}

impl Bundle {
    /// Opens a bundle's bytes (a memory map or a heap buffer), checking its footer and checksum.
    /// `name` is the file for error messages.
    pub fn open(_bytes: tantivy::directory::OwnedBytes, _name: &str) -> Result<Self> {
        todo!()
    }
    /// Counts rows, deleted ones included.
    pub fn rows(&self) -> u32 {
        todo!()
    }
    /// Finds the rows with an exact value (of keyword, ip, boolean, low-cardinality integer fields).
    pub fn postings(&self, _path: PathId, _value: &Scalar) -> Result<Option<SegmentPostings>> {
        todo!()
    }
    /// Counts the rows (deleted included) with an exact value.
    pub fn doc_freq(&self, _path: PathId, _value: &Scalar) -> Result<u32> {
        todo!()
    }
    /// Whether the exact values of a path are terms here; numbers of high cardinality are not and
    /// are found by [`crate::segment::Segment::range_rows`].
    pub fn has_exact(&self, _path: PathId) -> bool {
        todo!()
    }
    /// Finds the rows whose exact string value starts with `prefix`.
    pub fn prefix_rows(&self, _path: PathId, _prefix: &[u8]) -> Result<RoaringBitmap> {
        todo!()
    }
    /// Finds the rows whose exact string value lies in a range of byte strings
    /// (bound, included); `None` is open.
    pub fn range_rows(
        &self,
        _path: PathId,
        _from: Option<(&[u8], bool)>,
        _to: Option<(&[u8], bool)>,
    ) -> Result<RoaringBitmap> {
        todo!()
    }
    /// Finds the rows that have any indexed value of the path.
    pub fn exists(&self, _path: PathId) -> Result<Option<SegmentPostings>> {
        todo!()
    }
    /// Returns the full-text index of a text field, where the segment has it.
    pub fn text(&self, _path: PathId) -> Option<&TextIndex> {
        todo!()
    }
}

/// The full-text index of one field in one segment.
#[derive(Debug)]
pub struct TextIndex {}

impl TextIndex {
    /// Counts the rows that have the field.
    pub fn doc_count(&self) -> u32 {
        todo!()
    }
    /// Counts the field's tokens over all rows.
    pub fn total_tokens(&self) -> u64 {
        todo!()
    }
    /// Returns the postings of a term with frequencies (and positions where the field keeps them).
    pub fn postings(&self, _term: &str) -> Result<Option<SegmentPostings>> {
        todo!()
    }
    /// Counts the rows with a term.
    pub fn doc_freq(&self, _term: &str) -> Result<u32> {
        todo!()
    }
    /// Finds the rows with a term that starts with `prefix`.
    pub fn prefix_rows(&self, _prefix: &str) -> Result<RoaringBitmap> {
        todo!()
    }
    /// Whether norms are kept.
    pub fn has_norms(&self) -> bool {
        todo!()
    }
    /// Returns the length of the field in a row as Lucene's norm encodes it (decoded length).
    pub fn norm(&self, _row: u32) -> u32 {
        todo!()
    }
}
