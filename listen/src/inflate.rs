//! Decompression in steps, each of which is bounded and charged before its memory is there.
//!
//! The output grows by segments and is put together at the end, so what is charged is what is there: no
//! doubling buffer is copied with both its sizes in memory.

use std::io::Read;

use bytes::Bytes;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use crate::budget::{BudgetExceeded, Reserve};

/// Size of the first segment.
const FIRST_SEGMENT: usize = 32 << 10;
/// Size up to which segments grow.
const LARGEST_SEGMENT: usize = 1 << 20;
/// Greatest window of Zstandard, as a power of two: what RFC 8878 asks decoders to take. It is memory that nothing is charged for.
const MAX_WINDOW_LOG: u32 = 23;

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// gzip, of any number of members.
    Gzip,
    /// zlib.
    Deflate,
    /// Zstandard, of any number of frames.
    Zstd,
}

/// Why a body cannot be inflated; `R` is why a reservation does not grow.
#[derive(Debug, thiserror::Error)]
pub enum InflateError<R = BudgetExceeded> {
    /// It is longer than allowed.
    #[error("the decompressed body exceeds [{0}] bytes")]
    TooLong(u64),
    /// It does not fit beside what else is in memory.
    #[error("{0}")]
    Exceeded(R),
    /// It is not what its coding says.
    #[error("{0}")]
    Invalid(std::io::Error),
}

impl Coding {
    /// Parses the value of a `Content-Encoding`; `None` for others than gzip, deflate, zstd and identity.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Inflates a body of at most `limit` bytes. `held` grows by what is inflated, and ends with exactly that much
/// more; at an error it has grown by less than what is allowed. This is CPU work, not for a runtime's threads.
///
/// # Errors
/// A result that is too long, or does not fit the budget of `held`; bytes that are not of that coding.
pub fn inflate<R: Reserve>(
    coding: Coding,
    body: &[u8],
    limit: u64,
    held: &mut R,
) -> Result<Bytes, InflateError<R::Refusal>> {
    match coding {
        Coding::Identity => {
            if body.len() as u64 > limit {
                return Err(InflateError::TooLong(limit));
            }
            held.grow(body.len() as u64).map_err(InflateError::Exceeded)?;
            Ok(Bytes::copy_from_slice(body))
        }
        Coding::Gzip => segments(MultiGzDecoder::new(body), limit, held),
        Coding::Deflate => segments(ZlibDecoder::new(body), limit, held),
        Coding::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(body).map_err(InflateError::Invalid)?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(InflateError::Invalid)?;
            segments(decoder, limit, held)
        }
    }
}

fn segments<R: Reserve>(
    mut reader: impl Read,
    limit: u64,
    held: &mut R,
) -> Result<Bytes, InflateError<R::Refusal>> {
    let before = held.bytes();
    let mut full: Vec<Vec<u8>> = Vec::new();
    let mut total = 0_u64;
    let mut size = FIRST_SEGMENT;
    let last = loop {
        held.grow(size as u64).map_err(InflateError::Exceeded)?;
        let mut segment = Vec::with_capacity(size);
        let read = (&mut reader).take(size as u64).read_to_end(&mut segment);
        let read = read.map_err(InflateError::Invalid)?;
        total += read as u64;
        if total > limit {
            return Err(InflateError::TooLong(limit));
        }
        if read < size {
            break segment;
        }
        full.push(segment);
        size = (size * 2).min(LARGEST_SEGMENT);
    };
    let whole = if full.is_empty() {
        let mut last = last;
        last.shrink_to_fit();
        last
    } else {
        // Fresh memory of this size becomes resident as it is written, while the segments go.
        let mut whole = Vec::with_capacity(usize::try_from(total).unwrap_or(usize::MAX));
        for segment in full.into_iter().chain([last]) {
            whole.extend_from_slice(&segment);
        }
        whole
    };
    held.shrink_to(before + total);
    Ok(Bytes::from(whole))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;
    use crate::Budget;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn any_length_comes_back_and_is_held() {
        let budget = Budget::new(1 << 30);
        for length in [0, 1, FIRST_SEGMENT - 1, FIRST_SEGMENT, FIRST_SEGMENT + 1, 3 * FIRST_SEGMENT, 5 << 20]
        {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut held = budget.reserve(7).unwrap();
            let inflated = inflate(Coding::Gzip, &gzip(&text), length as u64, &mut held).unwrap();
            assert_eq!(inflated, text);
            assert_eq!((held.bytes(), budget.used()), (7 + length as u64, 7 + length as u64));
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&text).unwrap();
            let zlib = encoder.finish().unwrap();
            let mut held = budget.empty();
            assert_eq!(inflate(Coding::Deflate, &zlib, length as u64, &mut held).unwrap(), text);
        }
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(inflate(Coding::Gzip, &two, 100, &mut budget.empty()).unwrap(), "one two");
        assert_eq!(inflate(Coding::Identity, b"as is", 100, &mut budget.empty()).unwrap(), "as is");
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_bomb_ends_at_the_limit_or_the_budget() {
        let bomb = gzip(&vec![b' '; 64 << 20]);
        let budget = Budget::new(8 << 20);
        let mut held = budget.empty();
        assert!(matches!(inflate(Coding::Gzip, &bomb, 1 << 20, &mut held), Err(InflateError::TooLong(_))));
        // At most one segment beyond the limit was ever there.
        assert!(held.bytes() <= 3 << 20, "{}", held.bytes());
        drop(held);
        let mut held = budget.empty();
        let refused = inflate(Coding::Gzip, &bomb, 1 << 40, &mut held);
        assert!(matches!(refused, Err(InflateError::Exceeded(_))));
        assert!(held.bytes() <= 8 << 20);
        drop(held);
        assert_eq!(budget.used(), 0);
        for broken in [&b"no gzip"[..], &bomb[..100], b""] {
            let refused = inflate(Coding::Gzip, broken, 1 << 20, &mut budget.empty());
            assert!(matches!(refused, Err(InflateError::Invalid(_))), "{refused:?}");
        }
    }

    #[test]
    fn zstd_is_inflated_within_its_bounds() {
        let text = vec![b'x'; 3 << 20];
        let body = zstd::encode_all(&text[..], 3).unwrap();
        let mut held = Budget::new(16 << 20).empty();
        assert_eq!(inflate(Coding::Zstd, &body, 4 << 20, &mut held).unwrap(), text);
        assert_eq!(held.bytes(), text.len() as u64);
        let short = inflate(Coding::Zstd, &body, 1 << 20, &mut Budget::new(16 << 20).empty());
        assert!(matches!(short, Err(InflateError::TooLong(_))));
        // A head that asks for a window of 2 GiB.
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        let refused = inflate(Coding::Zstd, &wide, 1 << 20, &mut Budget::new(16 << 20).empty());
        assert!(matches!(refused, Err(InflateError::Invalid(_))));
        assert!(inflate(Coding::Zstd, b"none", 1 << 20, &mut Budget::new(16 << 20).empty()).is_err());
    }
}
