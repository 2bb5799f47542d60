//! An open bundle: lookups by value.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use millrace_mapping::{PathId, Scalar, term};
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tantivy::InvertedIndexReader;
use tantivy::directory::OwnedBytes;
use tantivy::postings::TermInfo;
use tantivy_fst::Automaton;

use super::contents::{Contents, NORMS, POSITIONS, POSTINGS};
use super::dense_postings::FrequentTerms;
use super::dictionary::Dictionary;
use super::norms::Norms;
use super::postings::Record;
use super::{NestedBundle, RowList, TextIndex, directory, file, nested, rows};

/// Bytes of memory that an open bundle takes, about: mostly what tantivy's readers hold.
const OPEN_BYTES: usize = 8 << 10;
/// Bytes of memory that a text field of it takes, about.
const TEXT_BYTES: usize = size_of::<TextIndex>() + size_of::<super::contents::Text>();

/// An open bundle. Opening reads the table of contents, not the postings; everything else is read
/// where a lookup asks for it.
pub struct Bundle {
    name: Arc<str>,
    bytes: OwnedBytes,
    contents: Contents,
    readers: [Arc<InvertedIndexReader>; 3],
    dictionaries: [Arc<Dictionary>; 3],
    texts: Vec<TextIndex>,
    /// Counts of [`Bundle::value_count`], a number a path.
    value_counts: Mutex<HashMap<PathId, u64>>,
    nested: Vec<NestedBundle>,
    /// Bytes of the file, those of nested paths included.
    size: usize,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("name", &self.name)
            .field("rows", &self.contents.rows)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Continuation of a walk over all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// It is passed over.
    Pass,
    /// Its rows are read.
    Read,
    /// The walk ends before it.
    Stop,
}

/// Walks over the values of a path ([`Bundle::walk_values`]).
pub trait ValueWalker {
    /// Takes a value as terms write it, and the number of its rows.
    fn value(&mut self, value: &[u8], rows: u32) -> Walk;
    /// Takes rows of the last value, ascending, in one or several calls.
    fn rows(&mut self, rows: &[u32]);
}

impl Bundle {
    /// Opens a bundle's bytes (a memory map or a heap buffer), checking its footer. `name` is the
    /// file for error messages. `verify` reads all bytes for their checksum: skip it only for bytes
    /// that were verified before (a bundle built here, a cached file that was checked when fetched),
    /// because lookups in damaged postings answer wrongly or panic.
    ///
    /// # Errors
    /// Bytes that are not a whole bundle of a known version are corrupt.
    pub fn open(bytes: OwnedBytes, name: &str, verify: bool) -> Result<Self> {
        if nested::is_nested(&bytes) {
            return nested::open(&bytes, name, verify);
        }
        Self::open_rows(bytes, name, verify)
    }

    /// Opens the bundle of one kind of rows.
    pub(super) fn open_rows(bytes: OwnedBytes, name: &str, verify: bool) -> Result<Self> {
        let contents = file::open(&bytes, name, verify)?;
        let corrupt = |section: usize, reason: String| Error::Corrupt {
            file: name.to_owned(),
            offset: contents.section_start(section),
            reason,
        };
        let readers = directory::open(&bytes, &contents).map_err(|error| corrupt(0, error.to_string()))?;
        let dictionary = |record: Record| {
            let start = contents.section_start(record.index()) as usize;
            let end = contents.section_start(record.index() + 1) as usize;
            let opened = Dictionary::open(&bytes.slice(start..end));
            opened.map(Arc::new).map_err(|error| corrupt(record.index(), error.to_string()))
        };
        let dictionaries =
            [dictionary(Record::Rows)?, dictionary(Record::Frequencies)?, dictionary(Record::Positions)?];
        let name: Arc<str> = name.into();
        let norms_start = contents.section_start(NORMS);
        let positions =
            contents.section_start(POSITIONS) as usize..contents.section_start(POSITIONS + 1) as usize;
        let positions = bytes.slice(positions);
        let mut texts = Vec::with_capacity(contents.texts.len());
        for text in &contents.texts {
            let norms = match &text.norms {
                None => Norms::Absent,
                Some(location) => location
                    .offset
                    .checked_add(location.len)
                    .filter(|&end| end <= contents.sections[NORMS])
                    .and_then(|end| {
                        let range = norms_start + location.offset..norms_start + end;
                        let range = range.start as usize..range.end as usize;
                        Norms::open(bytes.slice(range), location, contents.rows)
                    })
                    .ok_or_else(|| corrupt(NORMS, format!("norms of path {} are cut", text.path.0)))?,
            };
            let reader = readers[text.record.index()].clone();
            // A run of postings begins with a count of tokens.
            let section = POSTINGS + text.record.index();
            let start = contents.section_start(section).saturating_add(8);
            let end = contents.section_start(section + 1).max(start).min(bytes.len() as u64);
            let postings = bytes.slice(start.min(end) as usize..end as usize);
            texts.push(TextIndex {
                name: name.clone(),
                reader,
                dictionary: Arc::clone(&dictionaries[text.record.index()]),
                rows: contents.rows,
                field: *text,
                norms,
                postings,
                positions: positions.clone(),
                frequent: None,
            });
        }
        let size = bytes.len();
        Ok(Self {
            name,
            bytes,
            contents,
            readers,
            dictionaries,
            texts,
            value_counts: Mutex::default(),
            nested: Vec::new(),
            size,
        })
    }

    /// Keeps the rows of frequent terms of text fields, once they were read.
    pub(crate) fn keep_frequent(&mut self, terms: &FrequentTerms) {
        self.texts.iter_mut().for_each(|text| text.frequent = Some(terms.clone()));
    }

    pub(super) fn set_nested(&mut self, nested: Vec<NestedBundle>, size: usize) {
        self.nested = nested;
        self.size = size;
    }

    /// Counts the bytes of memory that the open bundle takes beside its file, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let paths = self.contents.numbers.len() + self.contents.inexact.len();
        let nested: usize = self
            .nested
            .iter()
            .map(|nested| {
                let places = &nested.places;
                (places.parents.len() + places.within.len()) * size_of::<u32>() + nested.bundle.heap_bytes()
            })
            .sum();
        OPEN_BYTES + paths * size_of::<PathId>() + self.texts.len() * TEXT_BYTES + nested
    }

    /// The nested paths that have elements here, ascending by number.
    pub fn nested(&self) -> &[NestedBundle] {
        &self.nested
    }

    /// Finds the index of a nested path.
    pub fn nested_of(&self, path: PathId) -> Option<&NestedBundle> {
        self.nested.binary_search_by_key(&path, |nested| nested.places.path).ok().map(|at| &self.nested[at])
    }

    /// Counts rows, deleted ones included.
    pub fn rows(&self) -> u32 {
        self.contents.rows
    }

    /// Returns the size of the file.
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// Finds the rows with an exact value (of keyword, ip, boolean, low-cardinality integer fields).
    ///
    /// # Errors
    /// Postings that cannot be read are corrupt.
    pub fn postings(&self, path: PathId, value: &Scalar) -> Result<Option<RowList>> {
        match self.exact_key(path, value) {
            Some(key) => self.postings_of(&key),
            None => Ok(None),
        }
    }

    /// Counts the rows (deleted included) with an exact value.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn doc_freq(&self, path: PathId, value: &Scalar) -> Result<u32> {
        match self.exact_key(path, value) {
            Some(key) => Ok(self.term_info(&key)?.map_or(0, |info| info.doc_freq)),
            None => Ok(0),
        }
    }

    /// Calls `each` with the place of an exact value among `values` and its rows (deleted included), ascending, in one or several
    /// calls a value. Returns `false` where the values have more than `most` rows: then no row is read. `go_on` is asked before each
    /// value, and ends the call.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn rows_of_values(
        &self,
        path: PathId,
        values: &[Scalar],
        most: u64,
        go_on: &dyn Fn() -> bool,
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<bool> {
        let (mut found, mut rows) = (Vec::new(), 0);
        for (place, value) in values.iter().enumerate() {
            if !go_on() {
                return Ok(true);
            }
            let Some(info) =
                self.exact_key(path, value).map(|key| self.term_info(&key)).transpose()?.flatten()
            else {
                continue;
            };
            rows += u64::from(info.doc_freq);
            if rows > most {
                return Ok(false);
            }
            found.push((place, info));
        }
        let mut lists = rows::Lists::new(self.reader());
        for (place, info) in &found {
            if !go_on() {
                break;
            }
            lists.read(info, |rows| each(*place, rows)).map_err(|error| unreadable(&self.name, &error))?;
        }
        Ok(true)
    }

    /// Returns whether a lookup by exact value answers for the path: its values are terms here, or it has none here. Otherwise
    /// (text, dates, floating point, integers of high cardinality, fields that are not indexed)
    /// [`Segment::range_rows`](crate::segment::Segment::range_rows) finds them.
    pub fn has_exact(&self, path: PathId) -> bool {
        !self.contents.is_inexact(path) && self.contents.text(path).is_none()
    }

    /// Returns whether the path has values here that are not terms.
    pub(crate) fn is_inexact(&self, path: PathId) -> bool {
        self.contents.is_inexact(path)
    }

    /// Finds the rows whose exact string value starts with `prefix`, until `go_on`, which is asked after each term, says not to.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn prefix_rows(
        &self,
        path: PathId,
        prefix: &[u8],
        go_on: &dyn Fn() -> bool,
    ) -> Result<RoaringBitmap> {
        if !self.has_exact(path) {
            return Ok(RoaringBitmap::new());
        }
        let mut key = Vec::new();
        term::write(path, prefix, &mut key);
        let after = rows::after_prefix(&key);
        let to = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.union(Bound::Included(&key), to, go_on)
    }

    /// Finds the rows whose exact string value lies in a range of byte strings
    /// (bound, included); `None` is open. `go_on` is asked after each term.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn range_rows(
        &self,
        path: PathId,
        from: Option<(&[u8], bool)>,
        to: Option<(&[u8], bool)>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<RoaringBitmap> {
        if !self.has_exact(path) {
            return Ok(RoaringBitmap::new());
        }
        let (mut low, mut high) = (Vec::new(), Vec::new());
        term::write(path, from.map_or(&[], |(bound, _)| bound), &mut low);
        let from = match from {
            Some((_, false)) => Bound::Excluded(low.as_slice()),
            _ => Bound::Included(low.as_slice()),
        };
        let to = match to {
            Some((bound, included)) => {
                term::write(path, bound, &mut high);
                if included { Bound::Included(high.as_slice()) } else { Bound::Excluded(high.as_slice()) }
            }
            None => {
                high = rows::after_prefix(&path.0.to_be_bytes()).unwrap_or_default();
                Bound::Excluded(high.as_slice())
            }
        };
        self.union(from, to, go_on)
    }

    /// Finds the rows with an exact value from the first to the last of `range`; `None` where the values are not terms, and
    /// where more than so many terms or rows would have to be joined.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn few_rows(
        &self,
        path: PathId,
        range: (&Scalar, &Scalar),
        most_terms: usize,
        most_rows: u32,
    ) -> Result<Option<RoaringBitmap>> {
        let (Some(from), Some(to)) = (self.exact_key(path, range.0), self.exact_key(path, range.1)) else {
            return Ok(None);
        };
        let (from, to) = (Bound::Included(from.as_slice()), Bound::Included(to.as_slice()));
        let (mut terms, mut rows) = (0, 0u64);
        let mut few = true;
        self.dictionary()
            .visit(from, to, |_, info| {
                terms += 1;
                rows += u64::from(info.doc_freq);
                few = terms <= most_terms && rows <= u64::from(most_rows);
                Ok(few)
            })
            .map_err(|error| unreadable(&self.name, &error))?;
        if few { self.union(from, to, &|| true).map(Some) } else { Ok(None) }
    }

    /// Calls `each` with the exact values of a path, as terms write them, ascending, and their row
    /// counts (deleted included), until it breaks.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn for_each_value(
        &self,
        path: PathId,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        if !self.has_exact(path) {
            return Ok(());
        }
        let start = path.0.to_be_bytes();
        let after = rows::after_prefix(&start).unwrap_or_default();
        self.dictionary()
            .visit(Bound::Included(&start), Bound::Excluded(&after), |key, info| {
                Ok(each(&key[start.len()..], info.doc_freq).is_continue())
            })
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Walks over the exact values of a path, ascending, and the rows (deleted included) of those that are wanted.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn walk_values(&self, path: PathId, walker: &mut dyn ValueWalker) -> Result<()> {
        if !self.has_exact(path) {
            return Ok(());
        }
        let start = path.0.to_be_bytes();
        let after = rows::after_prefix(&start).unwrap_or_default();
        let mut lists = rows::Lists::new(self.reader());
        self.dictionary()
            .visit(Bound::Included(&start), Bound::Excluded(&after), |key, info| {
                match walker.value(&key[start.len()..], info.doc_freq) {
                    Walk::Stop => return Ok(false),
                    Walk::Pass => {}
                    Walk::Read => lists.read(info, |rows| walker.rows(rows))?,
                }
                Ok(true)
            })
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Calls `each` with the exact values of a path that begin with `start` and go on as `automaton`
    /// says, ascending, and their row counts (deleted included), until it breaks.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn for_each_match<A: Automaton<State: Clone>>(
        &self,
        path: PathId,
        start: &[u8],
        automaton: A,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        if !self.has_exact(path) {
            return Ok(());
        }
        let mut key = Vec::new();
        term::write(path, start, &mut key);
        self.dictionary()
            .visit_matching(&key, &automaton, |key, info| Ok(each(&key[4..], info.doc_freq).is_continue()))
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Finds the rows with an exact value as [`Bundle::for_each_match`] finds them.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn matching_rows<A: Automaton<State: Clone>>(
        &self,
        path: PathId,
        start: &[u8],
        automaton: A,
    ) -> Result<RoaringBitmap> {
        if !self.has_exact(path) {
            return Ok(RoaringBitmap::new());
        }
        let mut key = Vec::new();
        term::write(path, start, &mut key);
        let mut joined = rows::ConcatenatedRows::new(self.reader(), self.contents.rows);
        self.dictionary()
            .visit_matching(&key, &automaton, |_, info| joined.add(info))
            .map_err(|error| unreadable(&self.name, &error))?;
        Ok(joined.finish())
    }

    /// Calls `each` with the exact values of a path as terms write them and their rows, in the order of the
    /// values or against it, from one on or from the first, until it breaks.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn for_each_postings(
        &self,
        path: PathId,
        from: Option<&[u8]>,
        descending: bool,
        each: &mut dyn FnMut(&[u8], RowList) -> ControlFlow<()>,
    ) -> Result<()> {
        if !self.has_exact(path) {
            return Ok(());
        }
        let start = path.0.to_be_bytes();
        let mut visit = || -> std::io::Result<()> {
            let from = from.map(|from| [start.as_slice(), from].concat());
            let mut terms = rows::behind(self.reader(), &start, from.as_deref(), descending)?;
            while terms.advance() {
                let rows = RowList::open(self.reader(), terms.value(), Record::Rows)?;
                if each(&terms.key()[start.len()..], rows).is_break() {
                    break;
                }
            }
            Ok(())
        };
        visit().map_err(|error| unreadable(&self.name, &error))
    }

    /// Finds the rows that have any indexed value of the path.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn exists(&self, path: PathId) -> Result<Option<RowList>> {
        self.postings_of(&term::presence(path))
    }

    /// Counts the rows (deleted included) that have any indexed value of the path.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn exists_count(&self, path: PathId) -> Result<u32> {
        Ok(self.term_info(&term::presence(path))?.map_or(0, |info| info.doc_freq))
    }

    /// Counts the exact values of a path over all rows (deleted included), each once a row. Reads the
    /// path's part of the dictionary when it is asked for the first time.
    ///
    /// # Errors
    /// As [`Bundle::postings`].
    pub fn value_count(&self, path: PathId) -> Result<u64> {
        if let Some(count) = self.value_counts.lock().get(&path) {
            return Ok(*count);
        }
        let mut count = 0;
        self.for_each_value(path, &mut |_, rows| {
            count += u64::from(rows);
            ControlFlow::Continue(())
        })?;
        self.value_counts.lock().insert(path, count);
        Ok(count)
    }

    /// Returns the full-text index of a text field, where the segment has it.
    pub fn text(&self, path: PathId) -> Option<&TextIndex> {
        self.contents.text(path).map(|at| &self.texts[at])
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    pub(super) fn reader_of(&self, record: Record) -> &Arc<InvertedIndexReader> {
        &self.readers[record.index()]
    }

    /// Returns the encoded positions of a term.
    pub(super) fn positions_of(&self, info: &TermInfo) -> OwnedBytes {
        let start = self.contents.section_start(POSITIONS) as usize;
        self.bytes.slice(start + info.positions_range.start..start + info.positions_range.end)
    }

    /// Returns the terms of a kind of postings.
    pub(super) fn dictionary_of(&self, record: Record) -> &Dictionary {
        &self.dictionaries[record.index()]
    }

    fn dictionary(&self) -> &Dictionary {
        self.dictionary_of(Record::Rows)
    }

    fn reader(&self) -> &InvertedIndexReader {
        self.reader_of(Record::Rows)
    }

    fn exact_key(&self, path: PathId, value: &Scalar) -> Option<Vec<u8>> {
        self.has_exact(path).then(|| term::scalar(path, value)).flatten()
    }

    fn term_info(&self, key: &[u8]) -> Result<Option<TermInfo>> {
        self.reader().terms().get(key).map_err(|error| unreadable(&self.name, &error))
    }

    fn postings_of(&self, key: &[u8]) -> Result<Option<RowList>> {
        let Some(info) = self.term_info(key)? else { return Ok(None) };
        RowList::open(self.reader(), &info, Record::Rows)
            .map(Some)
            .map_err(|error| unreadable(&self.name, &error))
    }

    fn union(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, go_on: &dyn Fn() -> bool) -> Result<RoaringBitmap> {
        rows::union(self.dictionary(), self.reader(), from, to, self.contents.rows, go_on)
            .map_err(|error| unreadable(&self.name, &error))
    }
}

/// Postings are memory once a bundle is open: what cannot be decoded is damaged.
pub(super) fn unreadable(name: &str, error: &std::io::Error) -> Error {
    Error::Corrupt { file: name.to_owned(), offset: 0, reason: format!("postings: {error}") }
}
