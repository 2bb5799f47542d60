//! The table of contents of a bundle: sections, text fields with their statistics, and the paths
//! whose values are not terms. All numbers are little-endian.

use millrace_mapping::PathId;

use super::norms::Location;
use super::postings::Record;

/// Number of sections: three dictionaries, three runs of postings, positions, norms.
pub(super) const SECTIONS: usize = 8;

/// Index of the first run of postings.
pub(super) const POSTINGS: usize = 3;

/// Index of the positions section.
pub(super) const POSITIONS: usize = 6;

/// Index of the norms section.
pub(super) const NORMS: usize = 7;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// Rows of the segment.
    pub(super) rows: u32,
    /// Length of each section, in file order.
    pub(super) sections: [u64; SECTIONS],
    /// Text fields that have a token, ascending by path.
    pub(super) texts: Vec<Text>,
    /// Integer paths whose values are terms, ascending.
    pub(super) numbers: Vec<PathId>,
    /// Paths that have values here which are not terms, ascending.
    pub(super) inexact: Vec<PathId>,
}

/// A text field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) path: PathId,
    pub(super) record: Record,
    /// Rows with a token.
    pub(super) doc_count: u32,
    /// Sum of the frequencies of all terms (of their row counts where frequencies are not kept).
    pub(super) total_tokens: u64,
    /// Average length for which the block maxima of the postings were computed.
    pub(super) block_max_average: f32,
    /// Location of its norms, if they are kept.
    pub(super) norms: Option<Location>,
}

/// Norms of a text field: how they are stored.
const NO_NORMS: u8 = 0;
const DENSE_NORMS: u8 = 1;
const SPARSE_NORMS: u8 = 2;

impl Contents {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + 38 * self.texts.len());
        out.extend_from_slice(&self.rows.to_le_bytes());
        for len in self.sections {
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(&(self.texts.len() as u32).to_le_bytes());
        for text in &self.texts {
            out.extend_from_slice(&text.path.0.to_le_bytes());
            out.push(text.record.index() as u8);
            out.extend_from_slice(&text.doc_count.to_le_bytes());
            out.extend_from_slice(&text.total_tokens.to_le_bytes());
            out.extend_from_slice(&text.block_max_average.to_le_bytes());
            let norms = text.norms.unwrap_or(Location { offset: 0, len: 0, sparse: false });
            out.push(match text.norms {
                None => NO_NORMS,
                Some(location) if location.sparse => SPARSE_NORMS,
                Some(_) => DENSE_NORMS,
            });
            out.extend_from_slice(&norms.offset.to_le_bytes());
            out.extend_from_slice(&norms.len.to_le_bytes());
        }
        for paths in [&self.numbers, &self.inexact] {
            out.extend_from_slice(&(paths.len() as u32).to_le_bytes());
            for path in paths {
                out.extend_from_slice(&path.0.to_le_bytes());
            }
        }
        out
    }

    /// Decodes what [`Contents::encode`] made; the error says what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut input = Input(bytes);
        let mut contents = Self { rows: input.u32()?, ..Self::default() };
        for len in &mut contents.sections {
            *len = input.u64()?;
        }
        for _ in 0..input.u32()? {
            let text = input.text()?;
            contents.texts.push(text);
        }
        for paths in [&mut contents.numbers, &mut contents.inexact] {
            for _ in 0..input.u32()? {
                paths.push(PathId(input.u32()?));
            }
        }
        let ascending = contents.texts.is_sorted_by(|a, b| a.path < b.path)
            && contents.numbers.is_sorted_by(|a, b| a < b)
            && contents.inexact.is_sorted_by(|a, b| a < b);
        match (ascending, input.0) {
            (true, []) => Ok(contents),
            (true, _) => Err("bytes behind the table of contents"),
            (false, _) => Err("paths of the table of contents do not ascend"),
        }
    }

    pub(super) fn text(&self, path: PathId) -> Option<usize> {
        self.texts.binary_search_by_key(&path, |text| text.path).ok()
    }

    pub(super) fn is_inexact(&self, path: PathId) -> bool {
        self.inexact.binary_search(&path).is_ok()
    }

    /// Returns where a section starts in the file.
    pub(super) fn section_start(&self, section: usize) -> u64 {
        self.sections[..section].iter().sum()
    }
}

/// Reads from the front of a slice; every element read takes bytes, so counts are bounded by them.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("the table of contents ends early")?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<Text, &'static str> {
        let path = PathId(self.u32()?);
        let [record] = self.take()?;
        let record = *Record::ALL.get(usize::from(record)).ok_or("unknown kind of postings")?;
        let doc_count = self.u32()?;
        let total_tokens = self.u64()?;
        let block_max_average = f32::from_le_bytes(self.take()?);
        let [form] = self.take()?;
        let (offset, len) = (self.u64()?, self.u64()?);
        let norms = match form {
            NO_NORMS => None,
            DENSE_NORMS | SPARSE_NORMS => Some(Location { offset, len, sparse: form == SPARSE_NORMS }),
            _ => return Err("unknown form of norms"),
        };
        Ok(Text { path, record, doc_count, total_tokens, block_max_average, norms })
    }
}
