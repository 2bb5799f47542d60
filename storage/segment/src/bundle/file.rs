//! The file around the sections: table of contents, footer, checksum.
//!
//! `docs/internals/bundle-format.md` describes it in prose.

use std::io::Write;

use millrace_runtime::{Error, Result};

use super::contents::{Contents, SECTIONS};

/// Last bytes of a bundle.
const MAGIC: [u8; 8] = *b"MRBUNDLE";

/// Version of the layout; raised when a reader of the version before could not read it.
const VERSION: u32 = 1;

/// tantivy's index format, which decides dictionaries and postings.
pub(super) const POSTINGS_FORMAT: u32 = 7;

/// Length of the table of contents, postings format, version, checksum, magic.
const FOOTER_BYTES: usize = 4 + 4 + 4 + 4 + MAGIC.len();

/// Checksum and magic, which the checksum does not cover.
const UNCHECKED_BYTES: usize = 4 + MAGIC.len();

/// Writes a bundle: the sections in order, then the rest.
pub(super) struct FileWriter<'a> {
    out: &'a mut dyn Write,
    crc: u32,
    written: [u64; SECTIONS],
}

impl<'a> FileWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, crc: 0, written: [0; SECTIONS] }
    }

    /// Appends bytes to a section; sections come in order.
    pub(super) fn write(&mut self, section: usize, bytes: &[u8]) -> Result<()> {
        debug_assert!(self.written[section + 1..].iter().all(|&len| len == 0));
        self.written[section] += bytes.len() as u64;
        self.append(bytes)
    }

    /// Ends the file; the lengths of the sections are filled into `contents`.
    pub(super) fn finish(mut self, mut contents: Contents) -> Result<()> {
        contents.sections = self.written;
        let encoded = contents.encode();
        let len = u32::try_from(encoded.len())
            .map_err(|_| Error::Internal("table of contents of a bundle exceeds 4 GiB".to_owned()))?;
        self.append(&encoded)?;
        self.append(&len.to_le_bytes())?;
        self.append(&POSTINGS_FORMAT.to_le_bytes())?;
        self.append(&VERSION.to_le_bytes())?;
        let crc = self.crc;
        self.append(&crc.to_le_bytes())?;
        self.append(&MAGIC)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.out.write_all(bytes).map_err(|error| Error::io("write", "bundle", error))
    }
}

/// Reads footer and table of contents; verifies the checksum of the file if asked.
pub(super) fn open(bytes: &[u8], name: &str, verify: bool) -> Result<Contents> {
    let corrupt = |offset: usize, reason: String| Error::Corrupt {
        file: name.to_owned(),
        offset: offset as u64,
        reason,
    };
    let Some(body) = bytes.len().checked_sub(FOOTER_BYTES) else {
        return Err(corrupt(0, format!("a bundle has at least {FOOTER_BYTES} bytes, found {}", bytes.len())));
    };
    let footer = &bytes[body..];
    let number = |at: usize| u32::from_le_bytes([footer[at], footer[at + 1], footer[at + 2], footer[at + 3]]);
    if footer[16..] != MAGIC {
        return Err(corrupt(body + 16, "not a bundle: its last bytes are not those of one".to_owned()));
    }
    if verify {
        let checked = bytes.len() - UNCHECKED_BYTES;
        let found = crc32c::crc32c(&bytes[..checked]);
        if found != number(12) {
            let reason = format!("checksum of the file is {found:08x}, expected {:08x}", number(12));
            return Err(corrupt(checked, reason));
        }
    }
    if number(8) != VERSION || number(4) != POSTINGS_FORMAT {
        let reason = format!(
            "bundle version {} with postings format {}; this server reads {VERSION} with {POSTINGS_FORMAT}",
            number(8),
            number(4)
        );
        return Err(corrupt(body + 4, reason));
    }
    let Some(start) = body.checked_sub(number(0) as usize) else {
        return Err(corrupt(body, "the table of contents is longer than the file".to_owned()));
    };
    let contents =
        Contents::decode(&bytes[start..body]).map_err(|reason| corrupt(start, reason.to_owned()))?;
    let total = contents.sections.iter().try_fold(0u64, |total, len| total.checked_add(*len));
    if total != Some(start as u64) {
        return Err(corrupt(start, "lengths of the sections do not add up to the file".to_owned()));
    }
    Ok(contents)
}
