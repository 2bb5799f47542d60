//! The `min_hash` filter: the least hashes of the tokens of a text, which are alike where texts are
//! (A. Broder, "On the resemblance and containment of documents", 1997).

use std::collections::BTreeSet;

use millrace_runtime::murmur;

use super::{Filter, Stage, TextEnd, whole};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct MinHash {
    /// Number of hashes of each token.
    pub(crate) hashes: u32,
    pub(crate) buckets: usize,
    /// Number of hashes that a bucket keeps.
    pub(crate) set_size: usize,
    /// `true` if an empty bucket takes the hash of the next that is not.
    pub(crate) rotate: bool,
}

impl Filter for MinHash {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        let run = |tokens: Vec<Token>, end: TextEnd| {
            let taken = tokens.last().map_or(0, |token| token.position + 1);
            // All hashes are at one position; holes behind the last token stay.
            let positions = taken.min(1) + end.positions.saturating_sub(taken);
            (self.run(&tokens), TextEnd { positions, ..end })
        };
        whole(run, next)
    }
}

/// Second and first half of a hash, by which hashes are ordered.
type Hash = (u64, u64);

fn hash(bytes: &[u8]) -> Hash {
    let (first, second) = murmur::hash128(bytes);
    (second, first)
}

impl MinHash {
    fn run(&self, tokens: &[Token]) -> Vec<Token> {
        let Some(last) = tokens.last() else { return Vec::new() };
        let bucket_size = (1u64 << 32).div_ceil(self.buckets as u64);
        let mut out = Vec::new();
        let hashed: Vec<Hash> = tokens
            .iter()
            .map(|token| {
                let bytes: Vec<u8> = token.text.encode_utf16().flat_map(u16::to_le_bytes).collect();
                hash(&bytes)
            })
            .collect();
        for number in 0..self.hashes {
            let salt = hash(&number.to_be_bytes());
            let mut buckets: Vec<BTreeSet<Hash>> = vec![BTreeSet::new(); self.buckets];
            for hash in &hashed {
                let combine = |one: u64, other: u64| one.wrapping_mul(37).wrapping_add(other);
                let hash = (combine(hash.0, salt.0), combine(hash.1, salt.1));
                let bucket = &mut buckets[((hash.0 >> 32) / bucket_size) as usize];
                // As in Lucene a full set gives up its greatest hash for a lesser one, also for one that it has.
                if bucket.len() >= self.set_size && bucket.last().is_some_and(|last| hash < *last) {
                    bucket.pop_last();
                }
                if bucket.len() < self.set_size {
                    bucket.insert(hash);
                }
            }
            if self.rotate && self.set_size == 1 {
                self.fill(&mut buckets);
            }
            for (high, low) in buckets.into_iter().flatten() {
                let mut units: Vec<u16> = Vec::with_capacity(8);
                if self.hashes > 1 {
                    units.extend([(number >> 16) as u16, number as u16]);
                }
                units.extend([48, 32, 16, 0].map(|shift| (high >> shift) as u16));
                let low = [48, 32, 16, 0].map(|shift| (low >> shift) as u16);
                units.extend(if self.hashes > 1 { &low[..2] } else { &low[..] });
                out.push(Token {
                    text: String::from_utf16_lossy(&units),
                    end: last.end,
                    kind: "MIN_HASH",
                    ..Token::default()
                });
            }
        }
        out
    }

    fn fill(&self, buckets: &mut [BTreeSet<Hash>]) {
        for at in 0..self.buckets {
            if buckets[at].is_empty() {
                // A bucket that was filled so counts for those behind it.
                let next =
                    (1..self.buckets).find_map(|ahead| buckets[(at + ahead) % self.buckets].first().copied());
                buckets[at].extend(next);
            }
        }
    }
}
