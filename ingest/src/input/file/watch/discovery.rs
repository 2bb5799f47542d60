//! Which files are open: they are found by their names, also where they were renamed meanwhile, opened, remembered and let go of.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use chrono::Utc;

use super::super::position::{Inode, parts};
use super::super::steps::{Found, Start, blocking, discover, named, seconds};
use super::Watch;
use super::stored::forget_old;
use super::tracked::{State, Tracked};
use crate::input::InputError;

/// Files that are remembered after they were closed, or not opened for their age.
const MAX_REMEMBERED: usize = 100_000;

/// A size that no file has.
const NEVER: u64 = u64::MAX;

impl Watch {
    /// Whether a name belongs to another file by now.
    pub(super) fn was_rotated(&self) -> bool {
        !self.settings.once
            && self.files.iter().any(|(inode, tracked)| {
                std::fs::metadata(&tracked.path)
                    .is_ok_and(|now| Inode::of(&now) != *inode && !self.files.contains_key(&Inode::of(&now)))
            })
    }

    /// Looks for files that are not open yet.
    pub(super) async fn discover(&mut self) -> Result<(), InputError> {
        let first = self.looks_first;
        // Files that were found and not opened: a stored position that they have is not forgotten.
        let mut missed: HashSet<Inode> = HashSet::new();
        self.discovered = Some(Instant::now());
        let settings = Arc::clone(&self.settings);
        let wanted: Vec<Inode> = self.unclaimed.keys().copied().collect();
        let (found, renamed) = blocking(move || Ok(discover(&settings, &wanted))).await?;
        let mut known: Vec<(Inode, PathBuf)> =
            found.iter().map(|found| (found.inode, found.path.clone())).collect();
        for Found { path, inode, size, modified } in found {
            if let Some(tracked) = self.files.get_mut(&inode) {
                // The name that the patterns know, rather than one that it had before.
                tracked.path = path;
                continue;
            }
            let mut start = match (self.settings.once, first && !self.settings.from_beginning) {
                (false, true) => Start::End,
                _ => Start::Beginning,
            };
            if let Some((seen, at)) = self.closed.get(&inode) {
                if *seen == size {
                    continue;
                }
                start = *at;
            }
            let age = Utc::now().timestamp().saturating_sub(modified);
            let old = self.settings.ignore_older.is_some_and(|most| age > seconds(most));
            if old && !self.unclaimed.contains_key(&inode) {
                // What comes later is read.
                let start = if self.settings.once { Start::Beginning } else { Start::At(size) };
                self.remember(inode, size, start);
                continue;
            }
            if self.files.len() >= self.settings.max_open_files {
                tracing::debug!(path = %path.display(), "too many open files, it is read later");
                continue;
            }
            self.closed.remove(&inode);
            if !self.open(inode, path, start, None).await {
                missed.insert(inode);
                let start = if start == Start::End { Start::At(size) } else { start };
                self.remember(inode, NEVER, start);
            }
        }
        for (inode, path) in renamed {
            // Rotated while nobody looked: the rest of it is read.
            if !self.files.contains_key(&inode) && !known.iter().any(|(of, _)| *of == inode) {
                known.push((inode, path.clone()));
                let known = self.unclaimed.get(&inode);
                let only =
                    known.map(|known| known.iter().map(|(part, _)| parts(part).0.to_owned()).collect());
                if !self.open(inode, path, Start::End, only).await {
                    missed.insert(inode);
                }
            }
        }
        self.looks_first = false;
        let left = std::mem::take(&mut self.unclaimed);
        for (inode, parts) in left {
            if missed.contains(&inode) {
                self.unclaimed.insert(inode, parts);
            } else if !known.iter().any(|(of, _)| *of == inode) {
                forget_old(&self.settings, &self.context, parts).await;
            }
        }
        Ok(())
    }

    /// Opens a file; returns whether it did. A name that belongs to another file since it was found is looked for again: what
    /// that one has would be stored as of this one, and read twice.
    pub(in crate::input::file) async fn open(
        &mut self,
        inode: Inode,
        path: PathBuf,
        start: Start,
        only: Option<Vec<String>>,
    ) -> bool {
        let opening = path.clone();
        let opened = move || {
            let opened = || {
                let file = File::open(&opening)?;
                let is_it = Inode::of(&file.metadata()?) == inode;
                Ok(is_it.then_some(file))
            };
            opened().map_err(|error| named(&opening, &error))
        };
        match blocking(opened).await {
            Ok(Some(file)) => {
                let tracked = Tracked {
                    path,
                    state: State::Unknown(file, start),
                    name: String::new(),
                    left_behind: None,
                    epoch: 0,
                    sent: None,
                    stored: 0,
                    in_flight: 0,
                    generation: self.generation(),
                    again: false,
                    changed: Instant::now(),
                    only,
                    early: self.looks_first,
                    was_complete: false,
                };
                self.files.insert(inode, tracked);
                true
            }
            Ok(None) => {
                self.discovered = None;
                false
            }
            Err(InputError(reason)) => {
                tracing::warn!(reason, "cannot read a file, it is tried again");
                false
            }
        }
    }

    fn remember(&mut self, inode: Inode, size: u64, start: Start) {
        if self.closed.len() < MAX_REMEMBERED || self.closed.contains_key(&inode) {
            self.closed.insert(inode, (size, start));
        }
    }

    /// Lets go of a file.
    pub(super) async fn close(&mut self, inode: Inode, mut tracked: Tracked) {
        let file = match &tracked.state {
            State::Unknown(file, _) | State::Complete(file, _) => Some(file),
            State::Known(reader) => Some(reader.file()),
            State::Gone => None,
        };
        let found =
            file.and_then(|file| file.metadata().ok()).or_else(|| std::fs::metadata(&tracked.path).ok());
        let Some(found) = found.filter(|found| Inode::of(found) == inode) else { return };
        if found.nlink() > 0 {
            // One that could not be read is tried again with the next look.
            let failed = matches!(tracked.state, State::Gone) && !self.settings.once;
            let size = if failed { u64::MAX } else { found.len() };
            self.remember(inode, size, Start::At(tracked.stored));
        } else if !self.settings.once {
            self.forget(&mut tracked).await;
        }
    }
}
