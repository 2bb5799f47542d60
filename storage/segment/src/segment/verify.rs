//! Verification of a segment's file as a whole, for what copies files away.

use bytes::Bytes;
use millrace_catalog::SegmentRecord;
use millrace_runtime::{Error, Result};
use object_store::path::Path;

use super::checked::Verifier;
use super::layout::{SegmentFile, file_path};
use super::stored::{DATA_SUMS, IDS_SUMS, sums_of};
use crate::bundle;

/// Checks the bytes of a file of a segment against its length and checksums. Blocks for as long as reading all of it takes.
///
/// # Errors
/// [`Error::Corrupt`] names file and offset.
pub fn verify_file(record: &SegmentRecord, file: SegmentFile, bytes: &Bytes) -> Result<()> {
    let path: Path = file_path(record, file);
    let expected = file.bytes(record);
    if bytes.len() as u64 != expected {
        return Err(Error::Corrupt {
            file: path.to_string(),
            offset: expected.min(bytes.len() as u64),
            reason: format!("{} bytes, the catalog says {expected}", bytes.len()),
        });
    }
    let verify_blocks = |key: &str| {
        let sums = sums_of(record, key, path.as_ref())?;
        Verifier::new(path.as_ref(), sums).verify(bytes, &(0..bytes.len()))
    };
    match file {
        SegmentFile::Data => verify_blocks(DATA_SUMS),
        SegmentFile::Ids => verify_blocks(IDS_SUMS),
        SegmentFile::Bundle => bundle::verify(bytes, path.as_ref()),
    }
}
