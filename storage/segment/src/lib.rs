//! Segments: immutable rows with their inverted index, in memory or in an object store.
//!
//! [`Segment`] answers searches with rows and values. [`bundle`] is its inverted index; [`objects`] is the object store of
//! its files. `millrace-engine` writes and merges segments, queries read them by [`SegmentView`].

pub mod bundle;
pub mod objects;
mod segment;

pub use segment::*;
