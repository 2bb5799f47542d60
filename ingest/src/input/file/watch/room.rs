//! Files that are closed: those that are done, and those that make room where others wait to be read.
//!
//! Where more files are to be read than may be open, those at their end are closed first. Where all have more to read, those are that have had
//! their turn. A file that made room is opened again once it has another size, or in its turn; it is looked for under other names, too.

use std::os::unix::fs::MetadataExt;

use super::super::position::Inode;
use super::super::steps::StartPosition;
use super::Watch;
use super::discovery::NEVER;
use super::tracked::{Candidate, ClosedFile, OpenFile, State};

/// Batches that a file sends before it may have to make room for others.
const TURN: usize = 32;

impl Watch {
    /// Closes files at their end for those that wait; if there are none, lets those leave that have had their turn.
    pub(super) async fn make_room(&mut self) {
        let wanted = self.waiting.len();
        let is_idle = |tracked: &OpenFile| {
            let complete = matches!(tracked.state, State::Complete(..));
            tracked.idle && tracked.in_flight == 0 && !tracked.again && !complete
        };
        let idle = self.files.iter().filter(|(_, tracked)| is_idle(tracked));
        let idle: Vec<Inode> = idle.take(wanted).map(|(inode, _)| *inode).collect();
        if idle.is_empty() {
            let wanted = wanted.saturating_sub(self.files.values().filter(|tracked| tracked.leaving).count());
            // An archive would be decompressed from its beginning again.
            let goes_on = |tracked: &OpenFile| matches!(&tracked.state, State::Known(reader) if reader.read_length().is_some());
            let had = self
                .files
                .values_mut()
                .filter(|tracked| !tracked.leaving && tracked.batches >= TURN && goes_on(tracked));
            had.take(wanted).for_each(|tracked| tracked.leaving = true);
        }
        for inode in idle {
            if let Some(tracked) = self.files.remove(&inode) {
                self.close(inode, tracked, true).await;
            }
        }
    }

    /// Lets go of a file.
    pub(super) async fn close(&mut self, inode: Inode, mut tracked: OpenFile, makes_room: bool) {
        let made_room = makes_room || tracked.leaving;
        let (file, read) = match &tracked.state {
            // It is to be read again.
            State::Unknown(file, _) if !tracked.name.is_empty() => (Some(file), Some(NEVER)),
            State::Unknown(file, _) | State::Complete(file, _) => (Some(file), None),
            // What was read ahead is in no batch yet.
            State::Known(reader) if tracked.leaving && !tracked.idle => (Some(reader.file()), Some(NEVER)),
            State::Known(reader) => (Some(reader.file()), reader.read_length()),
            State::Gone => (None, None),
        };
        let found =
            file.and_then(|file| file.metadata().ok()).or_else(|| std::fs::metadata(&tracked.path).ok());
        let Some(found) = found.filter(|found| Inode::new(found) == inode) else { return };
        if found.nlink() > 0 {
            // One that could not be read is tried again with the next look.
            let failed = matches!(tracked.state, State::Gone) && !self.settings.once;
            let size = if failed { NEVER } else { read.unwrap_or(found.len()) };
            self.closings += 1;
            let (start, closed) = (StartPosition::At(tracked.stored), self.closings);
            let OpenFile { name, path, leaving, .. } = tracked;
            if leaving && size != found.len() {
                let (name, only) = (name.clone(), None);
                self.waiting.push_back(Candidate { inode, path, size, start, closed, name, only });
            }
            self.remember(inode, ClosedFile { size, start, name, closed, made_room });
        } else if !self.settings.once {
            self.forget(&mut tracked).await;
        }
    }
}
