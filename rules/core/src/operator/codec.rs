//! Bytes of snapshots: variable-length numbers, texts behind their length. Reading survives any bytes.

use crate::error::{Error, Result};
use crate::time::Time;

#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn size(&mut self, size: usize) {
        self.number(size as u64);
    }

    pub(crate) fn time(&mut self, time: Time) {
        let ms = time.ms();
        self.number(((ms << 1) ^ (ms >> 63)) as u64);
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_bits().to_be_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or(Error::Corrupt("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Corrupt("a number is too long"))
    }

    /// Reads how many things follow: each takes a byte at least, so that a wrong number reserves nothing.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > self.0.len() {
            Err(Error::Corrupt("a count is larger than what follows"))
        } else {
            Ok(count)
        }
    }

    pub(crate) fn time(&mut self) -> Result<Time> {
        let bits = self.number()?;
        Ok(Time::from_ms((bits >> 1) as i64 ^ -((bits & 1) as i64)))
    }

    pub(crate) fn float(&mut self) -> Result<f64> {
        let (first, rest) = self.0.split_first_chunk::<8>().ok_or(Error::Corrupt("it ends too early"))?;
        self.0 = rest;
        Ok(f64::from_bits(u64::from_be_bytes(*first)))
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Corrupt("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::Corrupt("a text is not UTF-8"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Corrupt("bytes follow its end")) }
    }
}
