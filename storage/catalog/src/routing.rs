//! Routing of documents to shards, exactly as OpenSearch decides it, and the ids that the server generates.
//!
//! A shard is `floor_mod(murmur3(routing), routing_shards) / routing_factor` with Murmur3 (x86, 32
//! bit, seed 0) over the UTF-16LE form of the routing value, which is `_id` where none was given.

use millrace_runtime::murmur;

use crate::metadata::IndexMeta;

/// Number of shards that an index could be split into, which fixes the factor of the formula: its
/// setting, else OpenSearch's default.
pub fn routing_shards(meta: &IndexMeta) -> u32 {
    meta.integer("index.number_of_routing_shards")
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n >= meta.shards && n.is_multiple_of(meta.shards.max(1)))
        .unwrap_or_else(|| default_routing_shards(meta.shards))
}

/// The largest `shards * 2^n` that stays at or below 1,024, but at least a split into two.
fn default_routing_shards(shards: u32) -> u32 {
    let log2_max = 10u32;
    let log2_shards = 32 - (shards.max(1) - 1).leading_zeros();
    let splits = log2_max.saturating_sub(log2_shards).max(1);
    shards.max(1) << splits.min(16)
}

/// Decides the shard of a routing value in an index of `shards` shards that could be split into
/// `routing_shards`.
pub fn shard_of(routing: &str, shards: u32, routing_shards: u32) -> u32 {
    if shards <= 1 {
        return 0;
    }
    let factor = (routing_shards / shards).max(1);
    let hash = murmur3_utf16(routing);
    let bucket = hash.rem_euclid(i32::try_from(routing_shards).unwrap_or(i32::MAX));
    u32::try_from(bucket).unwrap_or(0) / factor
}

/// Decides the shard of a routing value in an index.
pub fn shard_in(meta: &IndexMeta, routing: &str) -> u32 {
    shard_of(routing, meta.shards, routing_shards(meta))
}

/// Hashes the UTF-16LE form of a string with Murmur3 x86 32, seed 0.
pub fn murmur3_utf16(text: &str) -> i32 {
    murmur::hash32(text.encode_utf16().flat_map(u16::to_le_bytes), 0).cast_signed()
}

/// Length of a generated id in characters.
pub(crate) const GENERATED_ID_LEN: usize = 20;

/// URL-safe characters in byte order, so that ids sort as the numbers that they encode.
const ALPHABET: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// Makes document ids that sort by the time of their making: 48 bits of milliseconds, 24 bits of
/// sequence, 48 bits that tell this process from every other. Neighbours share all but their
/// sequence, so a column of them costs about a byte a row.
#[derive(Debug)]
pub struct IdGenerator {
    last_ms: i64,
    sequence: u32,
    process: u64,
}

const PROCESS_BITS: u32 = 48;
const SEQUENCE_BITS: u32 = 24;

impl IdGenerator {
    /// Starts a generator; `process` is random.
    pub fn new(process: u64) -> Self {
        Self { last_ms: 0, sequence: 0, process: process & ((1 << PROCESS_BITS) - 1) }
    }

    /// Takes note of an id made earlier, by this process or another: the next ones are greater, also
    /// when the clock was set back.
    pub fn observe(&mut self, id: &str) {
        if let Some(bits) = decode(id) {
            let time = i64::try_from(bits >> (SEQUENCE_BITS + PROCESS_BITS)).unwrap_or(0);
            self.last_ms = self.last_ms.max(time + 1);
        }
    }

    /// Makes the next id for which `routes_here`; greater than every id made before.
    pub fn next(&mut self, now_ms: i64, routes_here: impl Fn(&str) -> bool) -> String {
        if now_ms > self.last_ms {
            self.last_ms = now_ms;
            self.sequence = 0;
        }
        loop {
            self.sequence += 1;
            if self.sequence >= 1 << SEQUENCE_BITS {
                self.last_ms += 1;
                self.sequence = 1;
            }
            let time = u128::from(self.last_ms.cast_unsigned() & 0xffff_ffff_ffff);
            let head = (time << SEQUENCE_BITS) | u128::from(self.sequence);
            let id = encode((head << PROCESS_BITS) | u128::from(self.process));
            if routes_here(&id) {
                return id;
            }
        }
    }
}

/// Returns whether a string has the form of a generated id; a client may have made it up.
pub fn looks_generated(id: &str) -> bool {
    id.len() == GENERATED_ID_LEN && id.bytes().all(|b| ALPHABET.contains(&b))
}

fn decode(id: &str) -> Option<u128> {
    if id.len() != GENERATED_ID_LEN {
        return None;
    }
    id.bytes().try_fold(0u128, |bits, byte| {
        let digit = ALPHABET.iter().position(|&b| b == byte)?;
        Some((bits << 6) | digit as u128)
    })
}

fn encode(bits: u128) -> String {
    (0..GENERATED_ID_LEN)
        .rev()
        .map(|i| char::from(ALPHABET[usize::try_from((bits >> (6 * i)) & 63).unwrap_or(0)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_opensearch() {
        // Values of OpenSearch's Murmur3HashFunctionTests.
        for (text, hash) in [
            ("hell", 0x5a0c_b7c3_u32),
            ("hello", 0xd7c3_1989),
            ("hello w", 0x22ab_2984),
            ("hello wo", 0xdf0c_a123),
            ("hello wor", 0xe774_4d61),
            ("The quick brown fox jumps over the lazy dog", 0xe07d_b09c),
            ("The quick brown fox jumps over the lazy cog", 0x4e63_d2ad),
        ] {
            assert_eq!(murmur3_utf16(text), hash.cast_signed(), "{text}");
        }
    }

    #[test]
    fn spreads_over_shards_by_the_split_factor() {
        assert_eq!(default_routing_shards(1), 1024);
        assert_eq!(default_routing_shards(5), 640);
        assert_eq!(default_routing_shards(1000), 2000);
        assert!((0..100).all(|i| shard_of(&format!("id{i}"), 5, 640) < 5));
    }

    #[test]
    fn generated_ids_ascend_and_route_to_their_shard() {
        let mut generator = IdGenerator::new(7);
        let mut last = String::new();
        for i in 0..10_000u32 {
            let id =
                generator.next(1_700_000_000_000 + i64::from(i / 1000), |id| shard_of(id, 5, 640) == i % 5);
            assert!(id > last && looks_generated(&id));
            assert_eq!(shard_of(&id, 5, 640), i % 5);
            last = id;
        }
    }

    #[test]
    fn ids_ascend_after_a_restart_with_a_clock_set_back() {
        let first = IdGenerator::new(u64::MAX).next(1_700_000_000_000, |_| true);
        let mut later = IdGenerator::new(1);
        later.observe(&first);
        later.observe("not an id");
        assert!(later.next(1_600_000_000_000, |_| true) > first);
        assert_eq!(encode(decode(&first).unwrap()), first);
    }
}
