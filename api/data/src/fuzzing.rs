//! Entry points of fuzzers: bytes go through a parser of this crate, as `millrace_mapping::fuzzing` does it for storage.

use bytes::Bytes;

/// The body of a bulk request, to an index and to none.
pub fn bulk(data: &[u8]) {
    crate::bulk::parse_only(&Bytes::copy_from_slice(data));
}
