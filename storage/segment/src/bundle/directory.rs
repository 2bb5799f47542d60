//! The view of a bundle through which tantivy reads its own formats.
//!
//! tantivy hands out its readers for one segment of an index in a directory only. [`open`] shows it
//! such a directory: `.term`, `.idx` and `.pos` are slices of the bundle with the trailers that
//! tantivy expects made up behind them; the files that bundles do without (document store, fast
//! fields, norms, metadata) are constants. Nothing is copied, and the directory is gone once the
//! three readers are open.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fmt, io};

use tantivy::directory::error::{DeleteError, OpenReadError, OpenWriteError};
use tantivy::directory::footer::Footer;
use tantivy::directory::{
    Directory, FileHandle, OwnedBytes, RamDirectory, WatchCallback, WatchHandle, WritePtr,
};
use tantivy::index::SegmentId;
use tantivy::schema::{Field, Schema, TextFieldIndexing, TextOptions};
use tantivy::{HasLen, Index, InvertedIndexReader, SegmentReader};

use super::contents::{Contents, POSITIONS};
use super::postings::Record;

/// Opens the three dictionaries with their postings, in the order of [`Record::ALL`].
pub(super) fn open(
    bytes: &OwnedBytes,
    contents: &Contents,
) -> tantivy::Result<[Arc<InvertedIndexReader>; 3]> {
    let index = Index::open(View::new(bytes, contents))?;
    let segment = index.segment(index.new_segment_meta(*SEGMENT, contents.rows));
    let reader = SegmentReader::open(&segment)?;
    let [rows, frequencies, positions] =
        Record::ALL.map(|record| reader.inverted_index(Field::from_field_id(record.index() as u32)));
    Ok([rows?, frequencies?, positions?])
}

static SEGMENT: LazyLock<SegmentId> = LazyLock::new(|| {
    SegmentId::from_uuid_string("00000000000000000000000000000001").expect("a valid uuid is parsed")
});

/// tantivy's metadata of an index with one field a kind of postings.
static META: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut schema = Schema::builder();
    for record in Record::ALL {
        let indexing = TextFieldIndexing::default().set_index_option(record.option()).set_fieldnorms(false);
        let options = TextOptions::default().set_indexing_options(indexing);
        schema.add_text_field(&format!("{record:?}"), options);
    }
    let directory = RamDirectory::create();
    Index::create(directory.clone(), schema.build(), tantivy::IndexSettings::default())
        .expect("an index in memory is created");
    directory.atomic_read(Path::new("meta.json")).expect("a created index has metadata")
});

/// Footer that tantivy appends to every file. Readers skip its checksum: the bundle has one of its own.
static FOOTER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const FOOTER_MAGIC: u32 = 1337;
    let footer = Footer { version: tantivy::version().clone(), crc: 0 };
    let mut bytes = serde_json::to_vec(&footer).expect("a footer is plain data");
    let len = bytes.len() as u32;
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&FOOTER_MAGIC.to_le_bytes());
    bytes
});

/// A fast field file without a column.
static FAST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    tantivy::columnar::ColumnarWriter::default()
        .serialize(0, None, &mut bytes)
        .expect("writing to memory does not fail");
    bytes
});

/// The trailer of a file that is partitioned by field, given the lengths of the parts.
fn partition(lens: &[u64]) -> Vec<u8> {
    let mut trailer = Vec::new();
    write_vint(lens.len() as u64, &mut trailer);
    let mut before = 0;
    for (field, len) in lens.iter().enumerate() {
        write_vint(before, &mut trailer);
        trailer.extend_from_slice(&(field as u32).to_le_bytes());
        write_vint(0, &mut trailer);
        before = *len;
    }
    let len = trailer.len() as u32;
    trailer.extend_from_slice(&len.to_le_bytes());
    trailer
}

/// tantivy's variable-length integer: seven bits a byte, lowest first, the last byte marked.
fn write_vint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8 | 0x80);
}

/// A made-up file: a slice of the bundle and a trailer.
struct File {
    body: OwnedBytes,
    trailer: OwnedBytes,
}

impl File {
    fn new(body: OwnedBytes, mut trailer: Vec<u8>) -> Arc<Self> {
        trailer.extend_from_slice(&FOOTER);
        Arc::new(Self { body, trailer: OwnedBytes::new(trailer) })
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl HasLen for File {
    fn len(&self) -> usize {
        self.body.len() + self.trailer.len()
    }
}

impl FileHandle for File {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        let body = self.body.len();
        if range.start > range.end || range.end > self.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "read behind the end of a section"));
        }
        Ok(if range.end <= body {
            self.body.slice(range)
        } else if range.start >= body {
            self.trailer.slice(range.start - body..range.end - body)
        } else {
            let mut bytes = self.body[range.start..].to_vec();
            bytes.extend_from_slice(&self.trailer[..range.end - body]);
            OwnedBytes::new(bytes)
        })
    }
}

/// The directory with the one segment.
#[derive(Clone, Debug)]
struct View {
    terms: Arc<File>,
    postings: Arc<File>,
    positions: Arc<File>,
}

impl View {
    fn new(bytes: &OwnedBytes, contents: &Contents) -> Self {
        let file = |first: usize, lens: &[u64]| {
            let start = contents.section_start(first) as usize;
            let len: u64 = lens.iter().sum();
            File::new(bytes.slice(start..start + len as usize), partition(lens))
        };
        let sections = &contents.sections;
        Self {
            terms: file(0, &sections[0..3]),
            postings: file(3, &sections[3..6]),
            positions: file(POSITIONS, &[0, 0, sections[POSITIONS]]),
        }
    }
}

impl Directory for View {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(match path.extension().and_then(|extension| extension.to_str()) {
            Some("term") => self.terms.clone(),
            Some("idx") => self.postings.clone(),
            Some("pos") => self.positions.clone(),
            Some("fieldnorm") => File::new(OwnedBytes::empty(), partition(&[])),
            Some("store") => File::new(OwnedBytes::empty(), Vec::new()),
            Some("fast") => File::new(OwnedBytes::empty(), FAST.clone()),
            _ => return Err(OpenReadError::FileDoesNotExist(path.to_owned())),
        })
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.get_file_handle(path).is_ok())
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if path == Path::new("meta.json") {
            Ok(META.clone())
        } else {
            Err(OpenReadError::FileDoesNotExist(path.to_owned()))
        }
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        Err(DeleteError::IoError { io_error: Arc::new(read_only()), filepath: path.to_owned() })
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let filepath: PathBuf = path.to_owned();
        Err(OpenWriteError::IoError { io_error: Arc::new(read_only()), filepath })
    }

    fn atomic_write(&self, _path: &Path, _data: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a bundle does not change")
}
