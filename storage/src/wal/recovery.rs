//! Reading the log at start: intact frames in order, a torn tail cut, damage refused.

use std::path::Path;

use bytes::Bytes;

use super::encoding;
use super::files::{self, LogFile, corrupt};
use super::frame::{Frame, FrameNumber};
use super::record::{self, FILE_HEADER, Fault, FileHeader, Kind};
use crate::Result;
use crate::disk::Disk;

/// What recovery found, all of it durable.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) files: Vec<LogFile>,
    /// Number that the next frame gets.
    pub(super) next: FrameNumber,
}

/// Reads all log files in `dir` and hands their frames to `replay`.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
) -> Result<Recovered> {
    let paths = files::list(disk, dir)?;
    let mut recovered = Recovered { files: Vec::with_capacity(paths.len()), next: 1 };
    for (position, path) in paths.iter().enumerate() {
        let last = position + 1 == paths.len();
        let bytes = disk.read(path)?;
        let header = FileHeader::decode(&bytes).map_err(|reason| corrupt(path, 0, reason))?;
        if *path != files::path(dir, header.first) {
            return Err(corrupt(
                path,
                0,
                format!("its header says that it begins with frame {}", header.first),
            ));
        }
        if position > 0 && header.first != recovered.next {
            let reason = format!("begins with frame {}, expected {}", header.first, recovered.next);
            return Err(corrupt(path, 0, format!("{reason}; a log file is missing")));
        }
        if last {
            // What is intact may so far be in the page cache only, and what is replayed may be
            // committed before all of it is.
            disk.sync_file(path)?;
        }
        let file = scan(path, &bytes, header, last, replay)?;
        if last && file.len < bytes.len() as u64 {
            disk.truncate(path, file.len)?;
        }
        recovered.next = file.next;
        recovered.files.push(file);
    }
    Ok(recovered)
}

fn scan(
    path: &Path,
    bytes: &[u8],
    header: FileHeader,
    last: bool,
    replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
) -> Result<LogFile> {
    let mut file = LogFile::new(path.to_owned(), header);
    let mut at = FILE_HEADER;
    while at < bytes.len() {
        let record = match record::read_record(&bytes[at..], header.id) {
            Ok(record) => record,
            Err(fault) => {
                judge(path, bytes, header, last, at, fault)?;
                break;
            }
        };
        if record.number != file.next {
            let reason = format!("record numbered {}, expected {}", record.number, file.next);
            return Err(corrupt(path, at as u64, reason));
        }
        if record.kind == Kind::Frame {
            let payload = Bytes::copy_from_slice(record.payload);
            let frame = encoding::decode(&payload).map_err(|reason| corrupt(path, at as u64, reason))?;
            file.note(record.number, at as u64);
            replay(record.number, frame)?;
        }
        at += record.len;
    }
    file.len = at as u64;
    Ok(file)
}

/// Decides whether a record that cannot be read was torn by a crash (then the caller cuts the file
/// there) or damaged later.
fn judge(path: &Path, bytes: &[u8], header: FileHeader, last: bool, at: usize, fault: Fault) -> Result<()> {
    let offset = at as u64;
    if !last || matches!(fault, Fault::Unknown(_)) {
        return Err(corrupt(path, offset, fault.reason()));
    }
    if let Some(mark) = record::proof_of_damage(bytes, at, header.id) {
        let reason = format!("{}; it was synced, as the mark at offset {mark} says", fault.reason());
        return Err(corrupt(path, offset, reason));
    }
    if fault != Fault::Zeros {
        let (file, cut) = (path.display(), bytes.len() - at);
        let reason = fault.reason();
        tracing::warn!(%file, offset, bytes = cut, %reason, "torn tail of the log cut off");
    }
    Ok(())
}
