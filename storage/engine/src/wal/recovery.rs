//! Reading the log at start: intact frames in order, a torn tail cut, damage refused.

use std::path::Path;

use bytes::Bytes;
use millrace_catalog::frame::{Entry, Frame, FrameNumber, StoreStamp};
use millrace_runtime::Result;
use millrace_runtime::disk::Disk;

use super::encoding;
use super::files::{self, LogFile, corrupt};
use super::progress::ReplayProgress;
use super::record::{self, FILE_HEADER, Fault, FileHeader, Kind};

/// Bytes of a frame with a stamp, at most.
const MAX_STAMP: usize = 64;

/// Result of recovery, all of it durable.
#[derive(Debug)]
pub(super) struct RecoveredLog {
    pub(super) files: Vec<LogFile>,
    /// Number that the next frame gets.
    pub(super) next: FrameNumber,
    /// Greatest time of a frame.
    pub(super) last_ms: i64,
}

/// Origin of a log, as far as its own records tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// `true` if there was ever a frame in it.
    pub used: bool,
    /// The newest stamp of a store.
    pub stamp: Option<StoreStamp>,
}

/// Looks which store the log in `dir` belongs to, and changes nothing. What cannot be read is passed over:
/// opening the log tells of it. Blocks.
///
/// # Errors
/// The disk's.
pub fn origin(disk: &dyn Disk, dir: &Path) -> Result<Origin> {
    let mut origin = Origin::default();
    // The newest file that has a stamp has the newest one.
    for path in files::list(disk, dir)?.iter().rev() {
        let bytes = disk.read(path)?;
        let Ok(header) = FileHeader::decode(&bytes) else { continue };
        origin.used |= header.first > 1;
        let mut at = FILE_HEADER;
        while at < bytes.len() {
            let Ok(record) = record::read_record(&bytes[at..], header.id) else { break };
            if record.kind == Kind::Frame {
                origin.used = true;
                // A stamp is a frame of its own, and a short one.
                if record.payload.len() <= MAX_STAMP
                    && let Ok(frame) = encoding::decode(&Bytes::copy_from_slice(record.payload))
                    && let [Entry::Store(stamp)] = frame.entries.as_slice()
                    && origin.stamp.is_none_or(|newest| newest.generation <= stamp.generation)
                {
                    origin.stamp = Some(*stamp);
                }
            }
            at += record.len;
        }
        if origin.stamp.is_some() {
            break;
        }
    }
    Ok(origin)
}

/// Hands the intact frames of the log in `dir` to `visit`, as recovery would, and changes nothing. Returns the number that the
/// next frame would get; `None` where there is no log. Blocks.
///
/// # Errors
/// Damage, the disk's, and those of `visit`.
pub fn survey(
    disk: &dyn Disk,
    dir: &Path,
    visit: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
) -> Result<Option<FrameNumber>> {
    let recovered = read(disk, dir, false, &ReplayProgress::default(), visit)?;
    Ok(recovered.files.last().map(|file| file.next))
}

/// Makes an empty log whose first frame is to have this number. Blocks.
///
/// # Errors
/// The disk's.
pub fn begin_at(disk: &dyn Disk, dir: &Path, first: FrameNumber) -> Result<()> {
    disk.create_dir_all(dir)?;
    files::create(disk, dir, first).map(drop)
}

/// Reads all log files in `dir` and hands their frames to `replay`.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    progress: &ReplayProgress,
    replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
) -> Result<RecoveredLog> {
    read(disk, dir, true, progress, replay)
}

/// Reads the log; `mend` makes it durable and cuts a torn end.
fn read(
    disk: &dyn Disk,
    dir: &Path,
    mend: bool,
    progress: &ReplayProgress,
    replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
) -> Result<RecoveredLog> {
    let paths = files::list(disk, dir)?;
    let lengths: Result<Vec<u64>> = paths.iter().map(|path| disk.len(path)).collect();
    progress.found(lengths?.iter().sum());
    let mut recovered = RecoveredLog { files: Vec::with_capacity(paths.len()), next: 1, last_ms: i64::MIN };
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
        if last && mend {
            // What is intact may so far be in the page cache only, and what is replayed may be
            // committed before all of it is.
            disk.sync_file(path)?;
        }
        let mut timed = |number, frame: Frame| {
            recovered.last_ms = frame.time_ms;
            replay(number, frame)
        };
        let file = scan(path, &bytes, header, last, progress, &mut timed)?;
        if last && mend && file.len < bytes.len() as u64 {
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
    progress: &ReplayProgress,
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
        progress.replayed(record.len as u64);
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
