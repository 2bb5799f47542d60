//! One term dictionary with its postings, written in term order through tantivy's serializers.

use std::io::{self, Write};
use std::sync::LazyLock;

use tantivy::fieldnorm::FieldNormReader;
use tantivy::positions::PositionSerializer;
use tantivy::postings::TermInfo;
use tantivy::postings::serializer::PostingsSerializer;
use tantivy::schema::IndexRecordOption;

use super::dictionary::DictionaryWriter;

/// Content of a posting beside the row: each has a dictionary of its own in the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// Rows alone: exact values, presence, and text without scores.
    Rows,
    /// Rows and how often each has the term.
    Frequencies,
    /// Rows, frequencies and positions.
    Positions,
}

impl Record {
    /// All of them, in file order.
    pub(super) const ALL: [Self; 3] = [Self::Rows, Self::Frequencies, Self::Positions];

    pub(super) fn index(self) -> usize {
        match self {
            Self::Rows => 0,
            Self::Frequencies => 1,
            Self::Positions => 2,
        }
    }

    pub(super) fn option(self) -> IndexRecordOption {
        match self {
            Self::Rows => IndexRecordOption::Basic,
            Self::Frequencies => IndexRecordOption::WithFreqs,
            Self::Positions => IndexRecordOption::WithFreqsAndPositions,
        }
    }
}

/// Rows of a block. Postings shorter than one have no skip list, hence no block maxima.
pub(super) const BLOCK: u32 = 128;

/// Bytes that tantivy expects before the postings (a token count, which bundles keep elsewhere).
const POSTINGS_HEADER: [u8; 8] = [0; 8];

/// Returns dictionary and postings without a term; making them costs more than they are worth.
pub(super) fn empty() -> (&'static [u8], &'static [u8]) {
    static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        DictionaryWriter::new(Vec::new())
            .and_then(DictionaryWriter::finish)
            .expect("writing to memory does not fail")
    });
    (&DICTIONARY, &POSTINGS_HEADER)
}

/// Writes terms in ascending order, and for each its rows in ascending order.
pub(super) struct PostingsWriter<W: Write> {
    record: Record,
    dictionary: DictionaryWriter<W>,
    postings: W,
    postings_bytes: usize,
    positions: Option<PositionSerializer<W>>,
    /// Encodes terms of less than a block; kept from term to term.
    short: PostingsSerializer,
    /// Encodes one longer term: the serializer keeps state that only a new one is free of.
    long: Option<PostingsSerializer>,
    /// Average length and lengths of the current path, for the block maxima of long terms.
    lengths: Option<(f32, FieldNormReader)>,
    encoded: Vec<u8>,
    rows: u32,
    positions_start: usize,
}

impl<W: Write> PostingsWriter<W> {
    /// Starts a dictionary; `positions` is given with [`Record::Positions`] alone.
    pub(super) fn new(record: Record, terms: W, mut postings: W, positions: Option<W>) -> io::Result<Self> {
        debug_assert_eq!(positions.is_some(), record == Record::Positions);
        postings.write_all(&POSTINGS_HEADER)?;
        Ok(Self {
            record,
            dictionary: DictionaryWriter::new(terms)?,
            postings,
            postings_bytes: 0,
            positions: positions.map(PositionSerializer::new),
            short: PostingsSerializer::new(0.0, record.option(), None),
            long: None,
            lengths: None,
            encoded: Vec::new(),
            rows: 0,
            positions_start: 0,
        })
    }

    /// Sets average and lengths of the path whose terms follow.
    pub(super) fn set_lengths(&mut self, lengths: Option<(f32, FieldNormReader)>) {
        self.lengths = lengths;
    }

    /// Starts a term of at most `most_rows` rows (exactly, or an upper bound).
    pub(super) fn begin(&mut self, most_rows: u32) {
        self.rows = 0;
        self.positions_start = self.positions_bytes();
        let with_frequencies = self.record != Record::Rows;
        if most_rows < BLOCK {
            self.short.new_term(most_rows, with_frequencies);
            self.long = None;
        } else {
            let (average, lengths) = match &self.lengths {
                Some((average, lengths)) => (*average, Some(lengths.clone())),
                None => (0.0, None),
            };
            // The document frequency scales all maxima of a term alike: a bound does.
            let most_rows = lengths.as_ref().map_or(most_rows, |lengths| most_rows.min(lengths.num_docs()));
            let mut long = PostingsSerializer::new(average, self.record.option(), lengths);
            long.new_term(most_rows, with_frequencies);
            self.long = Some(long);
        }
    }

    /// Adds a row; `deltas` are its positions as differences, the first from 0.
    #[inline]
    pub(super) fn push(&mut self, row: u32, frequency: u32, deltas: &[u32]) {
        self.rows += 1;
        match &mut self.long {
            None => self.short.write_doc(row, frequency),
            Some(long) => long.write_doc(row, frequency),
        }
        if let Some(positions) = &mut self.positions {
            debug_assert_eq!(deltas.len(), frequency as usize);
            positions.write_positions_delta(deltas);
        }
    }

    /// Ends the term under its key; a term without rows leaves nothing.
    pub(super) fn end(&mut self, key: &[u8]) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.encoded.clear();
        match &mut self.long {
            None => self.short.close_term(self.rows, &mut self.encoded)?,
            Some(long) => long.close_term(self.rows, &mut self.encoded)?,
        }
        self.postings.write_all(&self.encoded)?;
        let start = self.postings_bytes;
        self.postings_bytes += self.encoded.len();
        if let Some(positions) = &mut self.positions {
            positions.close_term()?;
        }
        let info = TermInfo {
            doc_freq: self.rows,
            postings_range: start..self.postings_bytes,
            positions_range: self.positions_start..self.positions_bytes(),
        };
        self.dictionary.insert(key, info)
    }

    /// Ends the dictionary and flushes what was written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if let Some(positions) = self.positions {
            positions.close()?;
        }
        self.postings.flush()?;
        self.dictionary.finish()?.flush()
    }

    fn positions_bytes(&self) -> usize {
        self.positions.as_ref().map_or(0, |positions| positions.written_bytes() as usize)
    }
}
