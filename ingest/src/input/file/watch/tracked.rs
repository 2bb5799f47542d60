//! Files: the name of an open one, its sent and stored positions, and its next action; and the remembered ones that are not open.

use std::fs::File;
use std::path::PathBuf;

use bytes::Bytes;
use millrace_runtime::Instant;

use super::super::descriptors::Permit;
use super::super::position::{Inode, Position};
use super::super::reader::Reader;
use super::super::steps::StartPosition;

/// An open file.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) state: State,
    /// Name of the file's partition; empty until it is known.
    pub(super) name: String,
    /// Part that another input left behind, which this one went on from.
    pub(super) left_behind: Option<String>,
    pub(super) epoch: u64,
    /// Position of the last batch that was sent.
    pub(super) sent: Option<Bytes>,
    /// Offset up to which everything is stored.
    pub(super) stored: u64,
    pub(super) in_flight: usize,
    /// Another one each time that the file is opened or read again: earlier batches count no more.
    pub(super) generation: u64,
    pub(super) again: bool,
    pub(super) changed: Instant,
    /// The names of which a renamed file must have one: another one is none of this input's.
    pub(super) only: Option<Vec<String>>,
    /// `true` if it was there when the input began: an input that was stopped for this one may have it.
    pub(super) early: bool,
    /// `true` if it was read to its end before this start.
    pub(super) was_complete: bool,
    /// Name of its partition at the last close; empty where it was not known.
    pub(super) former_name: String,
    /// Batches that were sent since it was opened.
    pub(super) batches: usize,
    /// `true` if the last look found nothing, and nothing is waited for.
    pub(super) idle: bool,
    /// `true` if it is read no further, so that others have a turn: it is closed once its batches are stored.
    pub(super) leaving: bool,
    pub(super) _permit: Permit,
}

/// A file that is not open.
pub(super) struct ClosedFile {
    /// Its size when it was seen last.
    pub(super) size: u64,
    /// Start of further reading.
    pub(super) start: StartPosition,
    /// Name of its partition; empty where that is not known.
    pub(super) name: String,
    /// Ordinal of its last close; 0 where it never was open.
    pub(super) closed: u64,
    /// `true` if it made room for others: it is looked for also where it was renamed.
    pub(super) made_room: bool,
}

/// A file that is to be opened.
pub(in crate::input::file) struct Candidate {
    pub(in crate::input::file) inode: Inode,
    pub(in crate::input::file) path: PathBuf,
    pub(in crate::input::file) size: u64,
    pub(in crate::input::file) start: StartPosition,
    /// Ordinal of its last close, as in [`ClosedFile`].
    pub(in crate::input::file) closed: u64,
    /// Name of its partition at that time.
    pub(in crate::input::file) name: String,
    /// The names of which it must have one.
    pub(in crate::input::file) only: Option<Vec<String>>,
}

/// State of an open file.
pub(in crate::input::file) enum State {
    /// Nothing can be said about the file before its first line is there.
    Unknown(File, StartPosition),
    Known(Box<Reader>),
    /// Read to its end; waits for its batches.
    Complete(File, Position),
    /// In use by a thread, or failed.
    Gone,
}
