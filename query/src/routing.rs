//! Routing values to shards, and ids to slices: Murmur3 as OpenSearch hashes them.

use millrace_storage::metadata::IndexMeta;

use crate::table::resolve::setting;

/// Hashes a routing value or id: Murmur3 (x86, 32 bits, seed 0) over its UTF-16LE bytes.
pub(crate) fn hash(text: &str) -> i32 {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut state: u32 = 0;
    let mix = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut blocks = bytes.chunks_exact(4);
    for block in &mut blocks {
        let block = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        state = (state ^ mix(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let mut tail = 0;
    for (at, byte) in blocks.remainder().iter().enumerate() {
        tail |= u32::from(*byte) << (8 * at);
    }
    state ^= mix(tail);
    state ^= bytes.len() as u32;
    state = (state ^ (state >> 16)).wrapping_mul(0x85eb_ca6b);
    state = (state ^ (state >> 13)).wrapping_mul(0xc2b2_ae35);
    (state ^ (state >> 16)) as i32
}

/// Finds the shard of a routing value.
pub(crate) fn shard(meta: &IndexMeta, routing: &str) -> u32 {
    let shards = meta.shards.max(1);
    let routing_shards =
        setting(meta, "index.number_of_routing_shards", default_routing_shards(shards) as usize) as u32;
    let routing_shards = routing_shards.max(shards);
    let factor = (routing_shards / shards).max(1);
    (hash(routing).rem_euclid(routing_shards as i32) as u32 / factor).min(shards - 1)
}

/// The number of routing shards that OpenSearch gives an index: the greatest multiple of its shards
/// by a power of two up to 1,024, but at least a split into two.
fn default_routing_shards(shards: u32) -> u32 {
    let log = 32 - (shards.max(1) - 1).leading_zeros();
    let splits = 10_u32.saturating_sub(log).max(1);
    shards << splits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_opensearch() {
        // From the tests of Murmur3HashFunction.
        assert_eq!(hash("hell"), 0x5a0c_b7c3);
        assert_eq!(hash("hello"), 0xd7c3_1989_u32 as i32);
        assert_eq!(hash("hello w"), 0x22ab_2984);
        assert_eq!(default_routing_shards(1), 1_024);
        assert_eq!(default_routing_shards(5), 640);
    }
}
