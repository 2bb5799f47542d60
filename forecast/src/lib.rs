//! Models that forecast series of buckets: the pure core, without store, clock or runtime.
