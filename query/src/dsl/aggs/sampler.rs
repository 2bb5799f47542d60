//! `sampler`: only the best documents of each shard.

/// A `sampler` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// Most documents of a shard, by score; 100 by default.
    pub shard_size: usize,
}
