//! `include` and `exclude`: which terms make buckets.

use serde_json::Value;

/// Which terms make buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IncludeExclude {
    /// Terms that do; all where absent.
    pub include: Option<Pattern>,
    /// Terms that do not, of these.
    pub exclude: Option<Pattern>,
    /// `(partition, of how many)`: only terms whose hash (Murmur3 x86 32 bits with seed 31 of bytes; of longs by
    /// `BitMixer`) is of that partition. Never with the others.
    pub partition: Option<(u32, u32)>,
}

/// A set of terms.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// Those that a regular expression of Lucene's syntax matches.
    Regexp(String),
    /// A list: JSON strings, numbers or booleans.
    Values(Vec<Value>),
}
