//! Bytes of models: [`ArtefactWriter`] writes them, [`ArtefactReader`] reads them with bounds on every count.
//!
//! An artefact is `MLRANOML`, a version (u16), a kind (u8), the body, and the CRC-32C of all before it. Numbers are little-endian,
//! lists have their length (u32) before them. The reader believes no count before the bytes for it are there.

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"MLRANOML";
/// Version that is written, and the only one that is read.
pub(crate) const VERSION: u16 = 2;
/// Largest artefact that is read.
pub(crate) const MAX_BYTES: usize = 256 << 20;

/// Kind of the model within an artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArtefactKind {
    Rows = 1,
    Series = 2,
    Text = 3,
}

/// Writer of an artefact.
pub(crate) struct ArtefactWriter(Vec<u8>);

impl ArtefactWriter {
    pub(crate) fn new(kind: ArtefactKind) -> Self {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(kind as u8);
        Self(bytes)
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(crate) fn f64s(&mut self, values: &[f64]) {
        self.count(values.len());
        values.iter().for_each(|value| self.f64(*value));
    }

    pub(crate) fn u32s(&mut self, values: &[u32]) {
        self.count(values.len());
        values.iter().for_each(|value| self.u32(*value));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Writes an optional cluster; the largest number stands for none.
    pub(crate) fn cluster(&mut self, cluster: Option<u32>) {
        self.u32(cluster.unwrap_or(u32::MAX));
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let sum = crc32c::crc32c(&self.0);
        self.0.extend_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// Reader of an artefact: the rest of its body.
pub(crate) struct ArtefactReader<'a>(&'a [u8]);

impl<'a> ArtefactReader<'a> {
    /// Checks size, magic, version, checksum and kind.
    pub(crate) fn new(bytes: &'a [u8], kind: ArtefactKind) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return Err(corrupt("it is larger than a model may be"));
        }
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
        let mut reader = Self(body);
        if reader.bytes(8)? != MAGIC {
            return Err(corrupt("it does not begin with the mark of a model"));
        }
        let found = u16::from_le_bytes(reader.array()?);
        if found != VERSION {
            return Err(Error::OldVersion { found });
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(corrupt("its checksum differs"));
        }
        if reader.u8()? != kind as u8 {
            return Err(corrupt("it is a model of another kind"));
        }
        Ok(reader)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| corrupt("it ends too soon"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| corrupt("it ends too soon"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        let [value] = self.array()?;
        Ok(value)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    /// Reads a finite number.
    pub(crate) fn finite(&mut self) -> Result<f64> {
        let value = self.f64()?;
        if value.is_finite() { Ok(value) } else { Err(corrupt("a number is not finite")) }
    }

    /// Reads a count of items of at least `item_bytes` each; refuses more than `limit`, and more than the rest has bytes for.
    pub(crate) fn count(&mut self, limit: usize, item_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > limit {
            return Err(corrupt("a list is longer than allowed"));
        }
        if count.saturating_mul(item_bytes) > self.0.len() {
            return Err(corrupt("it ends too soon"));
        }
        Ok(count)
    }

    /// Reads finite numbers.
    pub(crate) fn finites(&mut self, limit: usize) -> Result<Vec<f64>> {
        let count = self.count(limit, 8)?;
        (0..count).map(|_| self.finite()).collect()
    }

    /// Reads exactly `count` finite numbers, with their length before them.
    pub(crate) fn exact_finites(&mut self, count: usize) -> Result<Vec<f64>> {
        let values = self.finites(count)?;
        if values.len() == count { Ok(values) } else { Err(corrupt("a list has another length")) }
    }

    pub(crate) fn u32s(&mut self, limit: usize) -> Result<Vec<u32>> {
        let count = self.count(limit, 4)?;
        (0..count).map(|_| self.u32()).collect()
    }

    pub(crate) fn text(&mut self, limit: usize) -> Result<String> {
        let count = self.count(limit, 1)?;
        let bytes = self.bytes(count)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| corrupt("a text is not UTF-8"))
    }

    /// Reads an optional cluster below a bound.
    pub(crate) fn cluster(&mut self, clusters: usize) -> Result<Option<u32>> {
        match self.u32()? {
            u32::MAX => Ok(None),
            cluster if (cluster as usize) < clusters => Ok(Some(cluster)),
            _ => Err(corrupt("a cluster is not there")),
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(corrupt("bytes follow its end")) }
    }
}

pub(crate) fn corrupt(reason: &str) -> Error {
    Error::Corrupt(reason.to_owned())
}
