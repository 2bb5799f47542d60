//! An open file: what it is called, how far it was sent and stored, and what is to be done with it next.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use bytes::Bytes;

use super::super::position::Position;
use super::super::reader::Reader;
use super::super::steps::Start;

/// An open file.
pub(super) struct Tracked {
    pub(super) path: PathBuf,
    pub(super) state: State,
    /// What the file is called in parts; empty until it is known.
    pub(super) name: String,
    /// Part that another input left behind, which this one went on from.
    pub(super) left_behind: Option<String>,
    pub(super) epoch: u64,
    /// Position of the last batch that was sent.
    pub(super) sent: Option<Bytes>,
    /// Offset up to which everything is stored.
    pub(super) stored: u64,
    pub(super) in_flight: usize,
    /// Another one each time that the file is opened or read again: what was sent before counts no more.
    pub(super) generation: u64,
    pub(super) again: bool,
    pub(super) changed: Instant,
    /// The names of which a renamed file must have one: another one is none of this input's.
    pub(super) only: Option<Vec<String>>,
    /// Whether it was there when the input began: an input that was stopped for this one may have it.
    pub(super) early: bool,
    /// Whether it was read to its end before this start.
    pub(super) was_complete: bool,
}

/// What is known of an open file.
pub(super) enum State {
    /// Nothing can be said about the file before its first line is there.
    Unknown(File, Start),
    Known(Box<Reader>),
    /// Read to its end; waits for its batches.
    Complete(File, Position),
    /// In use by a thread, or failed.
    Gone,
}
