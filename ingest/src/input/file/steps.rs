//! Steps on files, on threads that may block: discovery, identification, opening, reading, and the actions after their end.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;

use super::Settings;
use super::position::{Inode, Position, first_bytes};
use super::reader::{Chunk, Reader, last_line};
use crate::codec::Events;
use crate::input::InputError;

/// Start of reading where no position is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPosition {
    Beginning,
    /// Behind the last whole line.
    End,
    At(u64),
}

/// Facts that one look at a file found.
pub(super) enum FileIdentity {
    NotYet(File),
    Known {
        file: File,
        name: String,
    },
    /// An archive that is damaged, and is to be checked before.
    Refused(io::Error),
}

pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) inode: Inode,
    pub(super) size: u64,
    pub(super) modified: i64,
}

/// Finds files by the patterns, and those with `wanted` inodes beside them.
pub(super) fn discover(
    settings: &Settings,
    wanted: &HashSet<Inode>,
) -> (Vec<FoundFile>, Vec<(Inode, PathBuf)>) {
    let mut paths = Vec::new();
    settings.globs.iter().for_each(|glob| glob.find(&mut paths));
    let mut found: Vec<FoundFile> = Vec::new();
    let mut seen: HashSet<Inode> = HashSet::new();
    for path in paths {
        if settings.exclude.iter().any(|glob| glob.matches(&path)) {
            continue;
        }
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        let inode = Inode::new(&metadata);
        if seen.insert(inode) {
            found.push(FoundFile { path, inode, size: metadata.len(), modified: metadata.mtime() });
        }
    }
    if settings.sort_by_path {
        found.sort_by(|a, b| a.path.cmp(&b.path));
    } else {
        found.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    }
    if settings.descending {
        found.reverse();
    }
    let mut renamed = Vec::new();
    if !settings.once && wanted.iter().any(|inode| !seen.contains(inode)) {
        for directory in settings.globs.iter().flat_map(crate::glob::Glob::directories) {
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                let inode = Inode::new(&metadata);
                if metadata.is_file() && wanted.contains(&inode) && !seen.contains(&inode) {
                    renamed.push((inode, entry.path()));
                }
            }
        }
    }
    (found, renamed)
}

fn is_gzip(settings: &Settings, path: &Path) -> bool {
    settings.once && path.extension().is_some_and(|end| end == "gz" || end == "gzip")
}

pub(super) fn identify(
    settings: &Settings,
    path: &Path,
    inode: Inode,
    file: File,
) -> Result<FileIdentity, InputError> {
    let gzip = is_gzip(settings, path);
    if gzip && settings.check_archives {
        let mut whole = MultiGzDecoder::new(&file);
        if let Err(error) = io::copy(&mut whole, &mut io::sink()) {
            return Ok(FileIdentity::Refused(error));
        }
    }
    let first =
        first_bytes(&file, &settings.delimiter, settings.once).map_err(|error| named(path, &error))?;
    Ok(match first {
        Some(first) => FileIdentity::Known { name: inode.file(&first), file },
        None => FileIdentity::NotYet(file),
    })
}

/// Opens a file where its stored position says, or where one begins that has none: then whether something was
/// left out.
pub(super) fn resume(
    settings: &Settings,
    path: &Path,
    file: File,
    position: Option<Position>,
    start: StartPosition,
    most_of_line: u64,
) -> io::Result<(Reader, bool)> {
    let gzip = is_gzip(settings, path);
    let mut skipped = false;
    let mut truncations = position.map_or(0, |position| position.truncations);
    let offset = match position {
        Some(position) if gzip || position.fits(&file)? => position.offset,
        Some(_) => {
            tracing::info!(path = %path.display(), "file is not what it was, it is read from its beginning");
            truncations += 1;
            0
        }
        None => {
            let offset = match start {
                StartPosition::Beginning => 0,
                StartPosition::End => last_line(&file, &settings.delimiter)?,
                StartPosition::At(offset) if gzip || file.metadata()?.len() >= offset => offset,
                StartPosition::At(_) => 0,
            };
            skipped = offset > 0;
            offset
        }
    };
    let decoder = settings.codec.line_decoder();
    let at = (offset, truncations);
    let reader = Reader::open(file, gzip, at, decoder, &settings.delimiter, most_of_line)?;
    Ok((reader, skipped))
}

pub(super) struct DirectoryScan {
    pub(super) chunk: Chunk,
    /// `None` where there is none in the file any more.
    pub(super) position: Option<Position>,
    pub(super) grew: bool,
    pub(super) replaced: bool,
    pub(super) complete: bool,
    pub(super) gone: bool,
}

/// Reads what is there, at most a batch of `size` events or so many `bytes`.
pub(super) fn examine(
    settings: &Settings,
    reader: &mut Reader,
    size: usize,
    bytes: u64,
    idle: Duration,
) -> io::Result<DirectoryScan> {
    let replaced = !settings.once && reader.at_end() && reader.was_replaced()?;
    if replaced && !reader.holds() {
        let chunk = Chunk::default();
        return Ok(DirectoryScan {
            chunk,
            position: None,
            grew: false,
            replaced,
            complete: false,
            gone: false,
        });
    }
    let before = reader.end();
    let mut chunk = if replaced {
        Chunk { events: Events::default(), at_end: true }
    } else {
        reader.read(size, bytes)?
    };
    let complete = settings.once && chunk.at_end;
    let paused = settings.codec.flush_after().is_some_and(|pause| idle >= pause);
    if complete || (reader.holds() && (replaced || (chunk.at_end && chunk.events.is_empty() && paused))) {
        reader.finish(complete, &mut chunk.events);
    }
    let grew = reader.end() > before;
    let gone = chunk.at_end && is_gone(reader.file());
    if gone && chunk.events.is_empty() {
        reader.finish(true, &mut chunk.events);
    }
    Ok(DirectoryScan {
        chunk,
        position: Some(reader.position(complete)?),
        grew,
        replaced: false,
        complete,
        gone,
    })
}

/// Returns whether no name leads to a file any more.
pub(super) fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// A file that was read to its end.
#[derive(Clone, Debug)]
pub(super) struct Complete {
    pub(super) path: PathBuf,
    pub(super) inode: Inode,
    /// Name of the file.
    pub(super) name: String,
    pub(super) position: Position,
    /// `true` if it was so before this start.
    pub(super) before: bool,
}

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameTarget {
    /// The file, with nothing in it that was not read.
    Same,
    /// The file, with more in it.
    Grown,
    /// Another file, or none.
    Other,
}

/// Result of the actions on a file that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionResult {
    Done,
    /// There is more to read.
    Grown,
    Stays,
}

/// Completes a file that was read to its end, and is stored. Where it was so before this start, it may be listed already.
pub(super) async fn complete(settings: Arc<Settings>, of: Complete) -> CompletionResult {
    let done = blocking(move || {
        let now = now(&settings, &of).map_err(|error| named(&of.path, &error))?;
        if now == NameTarget::Grown {
            return Ok(CompletionResult::Grown);
        }
        if let Some(log) = &settings.completed.log {
            let line = of.path.display().to_string();
            let listed = of.before
                && std::fs::read_to_string(log).is_ok_and(|log| log.lines().any(|listed| listed == line));
            if !listed {
                let opened = std::fs::OpenOptions::new().create(true).append(true).open(log);
                let written = opened.and_then(|mut log| writeln!(log, "{line}"));
                written.map_err(|error| named(log, &error))?;
            }
        }
        if settings.completed.delete && now == NameTarget::Other {
            return Err(InputError(format!("[{}] is another file by now", of.path.display())));
        }
        if settings.completed.delete {
            std::fs::remove_file(&of.path).map_err(|error| named(&of.path, &error))?;
        }
        Ok(CompletionResult::Done)
    });
    done.await.unwrap_or_else(|InputError(reason)| {
        tracing::error!(reason, "file is read to its end and stays");
        CompletionResult::Stays
    })
}

/// Looks what the name of a file that was read leads to.
fn now(settings: &Settings, of: &Complete) -> io::Result<NameTarget> {
    let file = match File::open(&of.path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NameTarget::Other),
        Err(error) => return Err(error),
    };
    if Inode::new(&file.metadata()?) != of.inode {
        return Ok(NameTarget::Other);
    }
    if has_grown(settings, &of.path, &file, of.position)? {
        return Ok(NameTarget::Grown);
    }
    let first = first_bytes(&file, &settings.delimiter, settings.once)?;
    let same = first.is_some_and(|first| of.inode.file(&first) == of.name)
        && (is_gzip(settings, &of.path) || of.position.fits(&file)?);
    Ok(if same { NameTarget::Same } else { NameTarget::Other })
}

/// Returns whether there is more in a file than what was read of it. Nobody knows of archives.
pub(super) fn has_grown(
    settings: &Settings,
    path: &Path,
    file: &File,
    position: Position,
) -> io::Result<bool> {
    Ok(!is_gzip(settings, path) && file.metadata()?.len() > position.offset && position.fits(file)?)
}

pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

pub(super) fn named(path: &Path, error: &io::Error) -> InputError {
    InputError(format!("[{}]: {error}", path.display()))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InputError> + Send + 'static,
) -> Result<T, InputError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(InputError(format!("reading files ended: {error}"))))
}
