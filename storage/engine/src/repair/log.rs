//! Resumes the log behind the operations that segments have.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use millrace_catalog::description::IndexDescription;
use millrace_catalog::frame::{Entry, FrameNumber, ShardOps};
use millrace_runtime::disk::Disk;
use millrace_runtime::{Error, Result};
use uuid::Uuid;

use crate::wal;

/// Begin of a shard's replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    pub(super) next_seq_no: u64,
    pub(super) next_frame: FrameNumber,
    pub(super) primary_term: u64,
}

/// Log of the shards that are rebuilt.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Number of the next frame; `None` where there is no log.
    pub(super) next: Option<FrameNumber>,
    pub(super) resumes: BTreeMap<(Uuid, u32), Resume>,
    /// Operations behind that.
    pub(super) replayed: BTreeMap<(Uuid, u32), u64>,
    /// Parts of sources with a position.
    pub(super) positions: u64,
    /// Operations that are neither in segments nor here.
    missing: Vec<((Uuid, u32), u64, u64)>,
    /// Indices that nothing describes.
    unknown: BTreeSet<Uuid>,
}

impl Log {
    /// Reads the log; `resumes` says up to where segments have each shard's operations. Blocks.
    pub(super) fn read(disk: &dyn Disk, dir: &Path, resumes: BTreeMap<(Uuid, u32), Resume>) -> Result<Self> {
        let mut log = Self { resumes, ..Self::default() };
        let mut positions = HashSet::new();
        log.next = wal::survey(disk, dir, &mut |number, frame| {
            for entry in frame.entries {
                match entry {
                    Entry::Ops(ops) => log.operations(number, &ops),
                    Entry::Position(delta) => {
                        positions.insert((delta.pipeline, delta.source, delta.partition));
                    }
                    Entry::Mapping { .. } | Entry::Store(_) => {}
                }
            }
            Ok(())
        })?;
        log.positions = positions.len() as u64;
        Ok(log)
    }

    fn operations(&mut self, frame: FrameNumber, ops: &ShardOps) {
        let key = (ops.index, ops.shard);
        let Some(resume) = self.resumes.get_mut(&key) else {
            self.unknown.insert(ops.index);
            return;
        };
        let replayed = self.replayed.entry(key).or_default();
        let next = resume.next_seq_no + *replayed;
        let below = ops.first_seq_no + ops.ops.len() as u64;
        if below <= next {
            return;
        }
        if ops.first_seq_no == next {
            *replayed += ops.ops.len() as u64;
            return;
        }
        // Replay takes frames whole: what segments have a part of counts as theirs. Behind a gap the log goes on, as a
        // start would, with what follows.
        let (from, at, frame) = match ops.first_seq_no > next {
            true => (next, ops.first_seq_no, frame),
            false => (next, below, frame + 1),
        };
        self.missing.push((key, from, at));
        *resume = Resume { next_seq_no: at, next_frame: frame, ..*resume };
        *replayed = below - at;
    }

    /// Sees whether the log reaches as far as segments know of frames; returns the frame with which a new one is
    /// to begin where there is none.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(super) fn check(&self, known: FrameNumber, dir: &Path) -> Result<Option<FrameNumber>> {
        match self.next {
            None => Ok(Some(known.max(1))),
            Some(next) if next < known => Err(Error::Mismatch {
                what: format!(
                    "the log in [{}] ends before frame {next}, segments know of frames up to {}",
                    dir.display(),
                    known - 1
                ),
                remedy: "restore the files of the log that are missing, or move the directory wal away to go on without a log".to_owned(),
            }),
            Some(_) => Ok(None),
        }
    }

    /// Tells what is missing.
    pub(super) fn tell_missing(&self, indices: &BTreeMap<Uuid, IndexDescription>, lost: &mut Vec<String>) {
        for ((uuid, number), from, below) in &self.missing {
            let name = indices.get(uuid).map_or("?", |index| &index.name);
            lost.push(format!(
                "operations {from} to {} of shard {number} of [{name}]: no segment accounts for them, and the log begins later",
                below - 1
            ));
        }
        for uuid in &self.unknown {
            lost.push(format!("operations in the log of index {uuid}: it was deleted"));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_catalog::frame::Op;

    use super::*;

    fn ops(first_seq_no: u64, count: usize) -> ShardOps {
        let op = Op {
            id: Bytes::new(),
            generated: false,
            created: false,
            version: 1,
            routing: None,
            source: None,
        };
        ShardOps { index: Uuid::nil(), shard: 0, primary_term: 1, first_seq_no, ops: vec![op; count] }
    }

    fn read(next_seq_no: u64, frames: &[(u64, usize)]) -> (Resume, u64, Vec<(u64, u64)>) {
        let key = (Uuid::nil(), 0);
        let resume = Resume { next_seq_no, next_frame: 1, primary_term: 1 };
        let mut log = Log { resumes: BTreeMap::from([(key, resume)]), ..Log::default() };
        for (frame, (first, count)) in (10..).zip(frames) {
            log.operations(frame, &ops(*first, *count));
        }
        (log.resumes[&key], log.replayed[&key], log.missing.iter().map(|(_, a, b)| (*a, *b)).collect())
    }

    #[test]
    fn replay_begins_where_segments_end() {
        let at = |next_seq_no, next_frame| Resume { next_seq_no, next_frame, primary_term: 1 };
        assert_eq!(read(5, &[(0, 3), (3, 2), (5, 1), (6, 4)]), (at(5, 1), 5, vec![]));
        assert_eq!(read(5, &[(0, 5)]), (at(5, 1), 0, vec![]));
        // A part of the log is missing, or a frame is half in segments.
        assert_eq!(read(5, &[(8, 2), (10, 1)]), (at(8, 10), 3, vec![(5, 8)]));
        assert_eq!(read(5, &[(3, 4), (7, 2)]), (at(7, 11), 2, vec![(5, 7)]));
    }
}
