//! What fuzzers feed: bytes go through a parser of this crate, as `millrace_mapping::fuzzing` does it for storage.

use bytes::Bytes;

/// The body of a bulk request, to an index and to none.
pub fn bulk(data: &[u8]) {
    crate::bulk::parse_only(&Bytes::copy_from_slice(data));
}

/// A file of dashboards.
pub fn dashboards(data: &[u8]) {
    crate::console::dashboards::read_only(data);
}
