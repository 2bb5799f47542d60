//! Hashes of values, as `cardinality` counts them. Numbers have different hashes where they differ; texts share
//! one with a probability of 2⁻⁶⁴ a pair.

use xxhash_rust::xxh3::xxh3_64;

/// Hashes a whole number: a permutation of the 64-bit numbers (the finalizer of MurmurHash3).
pub(crate) fn hash_long(number: i64) -> u64 {
    let mut hash = number as u64;
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Hashes a floating point number; both zeros are one value.
pub(crate) fn hash_double(number: f64) -> u64 {
    hash_long((number + 0.0).to_bits() as i64)
}

/// Hashes a text, or the bytes of an address.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
