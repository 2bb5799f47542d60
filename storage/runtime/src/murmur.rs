//! MurmurHash3 of Austin Appleby (public domain).

/// The hash in 32 bits, in the form for machines of 32.
pub fn hash32(bytes: impl IntoIterator<Item = u8>, seed: u32) -> u32 {
    let scrambled = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (mut hash, mut block, mut length) = (seed, 0_u32, 0_u32);
    for byte in bytes {
        block |= u32::from(byte) << (length % 4 * 8);
        length += 1;
        if length % 4 == 0 {
            hash ^= scrambled(std::mem::take(&mut block));
            hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        }
    }
    // Nothing is left of nothing: the scrambled 0 is 0.
    hash ^= scrambled(block);
    avalanche(hash ^ length)
}

/// The last step of the hash in 32 bits: every bit of the result depends on every bit given.
pub fn avalanche(mut hash: u32) -> u32 {
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The hash in 128 bits with seed 0, in the form for machines of 64: its two halves.
pub fn hash128(bytes: &[u8]) -> (u64, u64) {
    hash128_with_seed(bytes, 0)
}

/// The hash in 128 bits, in the form for machines of 64: its two halves.
pub fn hash128_with_seed(bytes: &[u8], seed: u32) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let first = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let second = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut one, mut two) = (u64::from(seed), u64::from(seed));
    let blocks = bytes.chunks_exact(16);
    let tail = blocks.remainder();
    for block in blocks {
        let (low, high) = block.split_at(8);
        one = (one ^ first(word(low))).rotate_left(27).wrapping_add(two);
        one = one.wrapping_mul(5).wrapping_add(0x52dc_e729);
        two = (two ^ second(word(high))).rotate_left(31).wrapping_add(one);
        two = two.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    if !high.is_empty() {
        two ^= second(word(high));
    }
    if !low.is_empty() {
        one ^= first(word(low));
    }
    one ^= bytes.len() as u64;
    two ^= bytes.len() as u64;
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    (one, two) = (finish(one), finish(two));
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    (one, two)
}

fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// Up to eight bytes as a number, the first the least.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{hash32, hash128};

    #[test]
    fn hashes_are_those_of_the_reference() {
        assert_eq!(hash32(*b"", 0), 0);
        assert_eq!(hash32(*b"", 1), 0x514e_28b7);
        assert_eq!(hash32(*b"hello", 0), 0x248b_fa47);
        assert_eq!(hash32(*b"hello, world", 0), 0x149b_bb7f);
        assert_eq!(hash32(*b"The quick brown fox jumps over the lazy dog.", 0), 0xd5c4_8bfc);
        let hex = |bytes: &[u8]| {
            let (one, two) = hash128(bytes);
            format!("{one:016x}{two:016x}")
        };
        assert_eq!(hex(b""), "00000000000000000000000000000000");
        assert_eq!(hex(b"hello"), "cbd8a7b341bd9b025b1e906a48ae1d19");
        assert_eq!(hex(b"The quick brown fox jumps over the lazy dog."), "cd99481f9ee902c9695da1a38987b6e7");
    }
}
