//! The full-text index of one field in one segment.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::{fmt, io};

use millrace_mapping::term;
use millrace_runtime::Result;
use roaring::RoaringBitmap;
use tantivy::InvertedIndexReader;
use tantivy::directory::OwnedBytes;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::positions::PositionReader;
use tantivy::postings::TermInfo;
use tantivy_fst::Automaton;

use super::contents::Text;
use super::dense_postings::FrequentTerms;
use super::dictionary::Dictionary;
use super::norms::Norms;
use super::postings::Record;
use super::reader::unreadable;
use super::row_list::RowList;
use super::skips::Skips;
use super::term_rows::{Source, TermRows};
use super::text_postings::{Positions, TextPostings};
use super::{Impact, impacts, rows};

/// The full-text index of one field in one segment.
pub struct TextIndex {
    pub(super) name: Arc<str>,
    pub(super) reader: Arc<InvertedIndexReader>,
    pub(super) dictionary: Arc<Dictionary>,
    pub(super) rows: u32,
    pub(super) field: Text,
    pub(super) norms: Norms,
    /// The postings of all fields of the same record, from their first term.
    pub(super) postings: OwnedBytes,
    /// The positions of all fields that keep them.
    pub(super) positions: OwnedBytes,
    /// Rows of frequent terms, if they are kept.
    pub(super) frequent: Option<FrequentTerms>,
}

impl fmt::Debug for TextIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextIndex")
            .field("name", &self.name)
            .field("field", &self.field)
            .finish_non_exhaustive()
    }
}

impl TextIndex {
    /// Counts the rows that have a token of the field.
    pub fn doc_count(&self) -> u32 {
        self.field.doc_count
    }

    /// Counts the field's tokens over all rows: the sum of all frequencies, or of the row counts of
    /// all terms where frequencies are not kept.
    pub fn total_tokens(&self) -> u64 {
        self.field.total_tokens
    }

    /// Counts the rows of the segment.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Says what postings carry beside rows.
    pub fn record(&self) -> Record {
        self.field.record
    }

    /// Returns the average length for which the block maxima of the postings were computed: pruning
    /// by them is exact only for a score with the same average.
    pub fn block_max_average(&self) -> f32 {
        self.field.block_max_average
    }

    /// Returns the postings of a term with frequencies (and positions where the field keeps them).
    ///
    /// # Errors
    /// Postings that cannot be read are corrupt.
    pub fn postings(&self, term: &str) -> Result<Option<TextPostings>> {
        let Some(info) = self.term_info(term)? else { return Ok(None) };
        let open = || {
            let rows = RowList::open(&self.reader, &info, self.field.record)?;
            let positions = match self.field.record {
                Record::Positions => Some(self.positions(&info)?),
                _ => None,
            };
            Ok(TextPostings::new(rows, positions))
        };
        open().map(Some).map_err(|error| unreadable(&self.name, &error))
    }

    fn positions(&self, info: &TermInfo) -> io::Result<Positions> {
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "positions are cut");
        let positions = part(&self.positions, &info.positions_range).ok_or_else(cut)?;
        Ok(Positions::new(PositionReader::open(positions)?, self.skips(info).ok_or_else(cut)?))
    }

    fn skips(&self, info: &TermInfo) -> Option<Skips> {
        Skips::open(self.field.record, info.doc_freq, &part(&self.postings, &info.postings_range)?)
    }

    /// Returns the rows of a term with frequencies, which are 1 where the field keeps none.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn frequencies(&self, term: &str) -> Result<Option<TermRows>> {
        self.rows_of(term, self.field.record)
    }

    /// Returns the rows of a term: its postings without what else they carry.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn row_postings(&self, term: &str) -> Result<Option<TermRows>> {
        self.rows_of(term, Record::Rows)
    }

    fn rows_of(&self, term: &str, record: Record) -> Result<Option<TermRows>> {
        let Some(info) = self.term_info(term)? else { return Ok(None) };
        let frequent = self.frequent.as_ref();
        let source =
            frequent.filter(|_| FrequentTerms::are_worth_it(info.doc_freq, self.rows)).map(|terms| Source {
                name: Arc::clone(&self.name),
                terms: terms.clone(),
                key: self.key(term),
                reader: Arc::clone(&self.reader),
                info: info.clone(),
                record: self.field.record,
                rows: self.rows,
            });
        TermRows::open(&self.reader, &info, record, source)
            .map(Some)
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Returns the runs of a term's rows with what scores best in each; `None` where they are not kept
    /// or not worth it.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn impacts(&self, term: &str) -> Result<Option<Vec<Impact>>> {
        if !self.has_norms() {
            return Ok(None);
        }
        let Some(info) = self.term_info(term)? else { return Ok(None) };
        Ok(self.skips(&info).as_ref().and_then(impacts::list))
    }

    /// Counts the rows with a term.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn doc_freq(&self, term: &str) -> Result<u32> {
        Ok(self.term_info(term)?.map_or(0, |info| info.doc_freq))
    }

    /// Finds the rows with a term that starts with `prefix`, until `go_on`, which is asked after each term, says not to.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn prefix_rows(&self, prefix: &str, go_on: &dyn Fn() -> bool) -> Result<RoaringBitmap> {
        let key = self.key(prefix);
        let after = rows::after_prefix(&key);
        let to = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        rows::union(&self.dictionary, &self.reader, Bound::Included(&key), to, self.rows, go_on)
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Calls `each` with the terms that start with `prefix`, ascending, and their row counts
    /// (deleted included), until it breaks.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn for_each_term(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        let key = self.key(prefix);
        let after = rows::after_prefix(&key);
        let to = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.dictionary
            .visit(Bound::Included(&key), to, |key, info| Ok(each(&key[4..], info.doc_freq).is_continue()))
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Finds the rows with a term within bounds (bound, included); `None` is open. `go_on` is asked after each term.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn range_rows(
        &self,
        from: Option<(&str, bool)>,
        to: Option<(&str, bool)>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<RoaringBitmap> {
        let low = self.key(from.map_or("", |(bound, _)| bound));
        let from = match from {
            Some((_, false)) => Bound::Excluded(low.as_slice()),
            _ => Bound::Included(low.as_slice()),
        };
        let high = match to {
            Some((bound, _)) => self.key(bound),
            None => rows::after_prefix(&self.field.path.0.to_be_bytes()).unwrap_or_default(),
        };
        let to = match to {
            Some((_, true)) => Bound::Included(high.as_slice()),
            _ => Bound::Excluded(high.as_slice()),
        };
        rows::union(&self.dictionary, &self.reader, from, to, self.rows, go_on)
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Calls `each` with the terms that begin with `start` and go on as `automaton` says, ascending,
    /// and their row counts (deleted included), until it breaks.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn for_each_match<A: Automaton<State: Clone>>(
        &self,
        start: &str,
        automaton: A,
        each: &mut dyn FnMut(&[u8], u32) -> ControlFlow<()>,
    ) -> Result<()> {
        self.dictionary
            .visit_matching(&self.key(start), &automaton, |key, info| {
                Ok(each(&key[4..], info.doc_freq).is_continue())
            })
            .map_err(|error| unreadable(&self.name, &error))
    }

    /// Finds the rows with a term as [`TextIndex::for_each_match`] finds them.
    ///
    /// # Errors
    /// As [`TextIndex::postings`].
    pub fn matching_rows<A: Automaton<State: Clone>>(
        &self,
        start: &str,
        automaton: A,
    ) -> Result<RoaringBitmap> {
        let mut joined = rows::ConcatenatedRows::new(&self.reader, self.rows);
        self.dictionary
            .visit_matching(&self.key(start), &automaton, |_, info| joined.add(info))
            .map_err(|error| unreadable(&self.name, &error))?;
        Ok(joined.finish())
    }

    /// Returns whether norms are kept.
    pub fn has_norms(&self) -> bool {
        self.field.norms.is_some()
    }

    /// Returns the length of the field in a row as Lucene's norm encodes it (decoded length), 0 for a
    /// row without a token or a field without norms.
    pub fn norm(&self, row: u32) -> u32 {
        Self::decode_norm(self.norms.id(row))
    }

    /// Returns the encoded length of the field in a row: an index for tables a scorer makes of
    /// [`TextIndex::decode_norm`].
    #[inline]
    pub fn norm_id(&self, row: u32) -> u8 {
        self.norms.id(row)
    }

    /// Returns the encoded lengths of all rows where they are kept a byte a row.
    pub fn norm_ids(&self) -> Option<&[u8]> {
        self.norms.dense()
    }

    /// Decodes an encoded length.
    pub fn decode_norm(id: u8) -> u32 {
        FieldNormReader::id_to_fieldnorm(id)
    }

    fn key(&self, text: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(4 + text.len());
        term::write(self.field.path, text.as_bytes(), &mut key);
        key
    }

    fn term_info(&self, text: &str) -> Result<Option<TermInfo>> {
        self.reader.terms().get(self.key(text)).map_err(|error| unreadable(&self.name, &error))
    }
}

/// Returns a part of bytes; `None` where it is not all there.
fn part(bytes: &OwnedBytes, range: &Range<usize>) -> Option<OwnedBytes> {
    bytes.get(range.clone()).is_some().then(|| bytes.slice(range.clone()))
}
