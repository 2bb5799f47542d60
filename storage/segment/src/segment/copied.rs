//! Row groups that a merge takes over as they are: encoded and compressed anew they would be the same.

use bytes::{Buf, Bytes};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::file::DataFile;

/// A column of a row group in another file.
pub(super) struct Chunk<'a> {
    file: &'a DataFile,
    bytes: usize,
}

impl<'a> Chunk<'a> {
    /// Finds a column, and what the footer of its file says of it.
    pub(super) fn find(
        file: &'a DataFile,
        metadata: &ParquetMetaData,
        group: usize,
        column: usize,
        of_column: &ColumnChunkMetaData,
    ) -> (Self, ColumnCloseResult) {
        let rows = metadata.row_group(group).num_rows();
        let bytes = of_column.compressed_size();
        let closed = ColumnCloseResult {
            bytes_written: bytes.unsigned_abs(),
            rows_written: rows.unsigned_abs(),
            metadata: of_column.clone(),
            bloom_filter: None,
            column_index: metadata.column_index().and_then(|index| index.get(group)?.get(column).cloned()),
            offset_index: metadata.offset_index().and_then(|index| index.get(group)?.get(column).cloned()),
        };
        (Self { file, bytes: usize::try_from(bytes).unwrap_or(0) }, closed)
    }
}

impl Length for Chunk<'_> {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for Chunk<'_> {
    type T = bytes::buf::Reader<Bytes>;

    /// Reads the whole column, which its file's own reader does not where it is asked for a start alone.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.file.get_bytes(start, self.bytes)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.file.get_bytes(start, length)
    }
}
