//! Terms that an aggregation includes and leaves out.

use std::collections::HashSet;

use millrace_runtime::murmur::hash32;
use millrace_scoring::automaton::Pattern;

/// Selection of terms.
#[derive(Debug, Default)]
pub(crate) struct TermFilter {
    /// Those that do.
    pub include: Option<TermSet>,
    /// Those that do not, of these.
    pub exclude: Option<TermSet>,
    /// Those of a partition of so many.
    pub partition: Option<(u32, u32)>,
}

/// Terms.
#[derive(Debug)]
pub(crate) enum TermSet {
    Pattern(Pattern),
    /// By name.
    Texts(HashSet<String>),
    Addresses(HashSet<[u8; 16]>),
    /// Numbers, as keys.
    Numbers(HashSet<u64>),
}

impl TermFilter {
    /// Returns whether all are wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.partition.is_none()
    }

    /// Returns whether a text is.
    pub(super) fn text(&self, text: &str) -> bool {
        let has = |set: &TermSet| match set {
            TermSet::Pattern(pattern) => pattern.matches(text),
            TermSet::Texts(texts) => texts.contains(text),
            _ => false,
        };
        self.include.as_ref().is_none_or(has)
            && !self.exclude.as_ref().is_some_and(has)
            && self.partition.is_none_or(|(partition, of)| {
                (hash32(text.bytes(), 31) as i32).rem_euclid(of.max(1) as i32) == partition as i32
            })
    }

    /// Returns whether an address is.
    pub(super) fn address(&self, address: &[u8; 16]) -> bool {
        let has = |set: &TermSet| matches!(set, TermSet::Addresses(set) if set.contains(address));
        self.include.as_ref().is_none_or(has) && !self.exclude.as_ref().is_some_and(has)
    }

    /// Returns whether a number is, as a key.
    pub(super) fn number(&self, key: u64) -> bool {
        let has = |set: &TermSet| matches!(set, TermSet::Numbers(set) if set.contains(&key));
        self.include.as_ref().is_none_or(has)
            && !self.exclude.as_ref().is_some_and(has)
            && self.partition.is_none_or(|(partition, of)| {
                (mixed(key) as i64).rem_euclid(i64::from(of.max(1))) == i64::from(partition)
            })
    }
}

/// Spreads the bits of a number, as HPPC's `BitMixer.mix64` does.
fn mixed(mut key: u64) -> u64 {
    key = (key ^ (key >> 32)).wrapping_mul(0x4cd6_944c_5cc2_0b6d);
    key = (key ^ (key >> 29)).wrapping_mul(0xfc12_c5b1_9d32_59e9);
    key ^ (key >> 32)
}
