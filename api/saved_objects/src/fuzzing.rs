//! Entry points of fuzzers: bytes go through a parser of this crate, as `millrace_mapping::fuzzing` does it for storage.

/// A file of dashboards.
pub fn dashboards(data: &[u8]) {
    crate::dashboards::read_only(data);
}
