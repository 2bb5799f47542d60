//! Discovery of the files to open. They are found by their names, also where they were renamed meanwhile, opened as far as the
//! bound allows, and remembered.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

use chrono::Utc;
use millrace_runtime::Instant;

use super::super::descriptors::Permit;
use super::super::position::{Inode, parts};
use super::super::steps::{FoundFile, StartPosition, blocking, discover, named, seconds};
use super::Watch;
use super::stored::forget_old;
use super::tracked::{Candidate, ClosedFile, OpenFile, State};
use crate::input::InputError;

/// Files that are remembered after they were closed, or not opened for their age.
const MAX_REMEMBERED: usize = 100_000;

/// A size that no file has.
pub(super) const NEVER: u64 = u64::MAX;

impl Watch {
    /// Returns whether a name belongs to another file by now.
    pub(super) fn was_rotated(&self) -> bool {
        !self.settings.once
            && self.files.iter().any(|(inode, tracked)| {
                std::fs::metadata(&tracked.path).is_ok_and(|now| {
                    Inode::new(&now) != *inode && !self.files.contains_key(&Inode::new(&now))
                })
            })
    }

    /// Looks for files that are not open yet.
    pub(super) async fn discover(&mut self) -> Result<(), InputError> {
        let first = self.looks_first;
        // Files that were found and not opened: a stored position that they have is not forgotten.
        let mut missed: HashSet<Inode> = HashSet::new();
        self.discovered = Some(Instant::now());
        let settings = Arc::clone(&self.settings);
        let made_room = self.closed.iter().filter(|(_, closed)| closed.made_room).map(|(inode, _)| *inode);
        let wanted: HashSet<Inode> = self.unclaimed.keys().copied().chain(made_room).collect();
        let (found, renamed) = blocking(move || Ok(discover(&settings, &wanted))).await?;
        let mut known: HashSet<Inode> = found.iter().map(|found| found.inode).collect();
        let mut candidates = Vec::new();
        for FoundFile { path, inode, size, modified } in found {
            if let Some(tracked) = self.files.get_mut(&inode) {
                // The name that the patterns know, rather than one that it had before.
                tracked.path = path;
                continue;
            }
            let mut start = match (self.settings.once, first && !self.settings.from_beginning) {
                (false, true) => StartPosition::End,
                _ => StartPosition::Beginning,
            };
            let (mut closed, mut name) = (0, String::new());
            if let Some(seen) = self.closed.get(&inode) {
                if seen.size == size {
                    continue;
                }
                (start, closed, name) = (seen.start, seen.closed, seen.name.clone());
            }
            let age = Utc::now().timestamp().saturating_sub(modified);
            let old = self.settings.ignore_older.is_some_and(|most| age > seconds(most));
            if old && !self.unclaimed.contains_key(&inode) {
                // What comes later is read.
                let start =
                    if self.settings.once { StartPosition::Beginning } else { StartPosition::At(size) };
                self.remember(inode, ClosedFile { size, start, name, closed, made_room: false });
                continue;
            }
            candidates.push(Candidate { inode, path, size, start, closed, name, only: None });
        }
        for (inode, path) in renamed {
            // Rotated while nobody looked: the rest of it is read.
            if self.files.contains_key(&inode) || !known.insert(inode) {
                continue;
            }
            let of_positions = self.unclaimed.get(&inode).into_iter().flatten();
            let mut only: Vec<String> = of_positions.map(|(part, _)| parts(part).0.to_owned()).collect();
            let (mut start, mut closed, mut name) = (StartPosition::End, 0, String::new());
            if let Some(seen) = self.closed.get(&inode) {
                let size = std::fs::metadata(&path).map(|now| now.len());
                if size.is_ok_and(|size| size == seen.size) {
                    continue;
                }
                (start, closed, name) = (seen.start, seen.closed, seen.name.clone());
                only.push(name.clone());
            }
            candidates.push(Candidate { inode, path, size: NEVER, start, closed, name, only: Some(only) });
        }
        // Those that never were open first, in their order, then those that were closed longest ago.
        candidates.sort_by_key(|candidate| candidate.closed);
        self.waiting = candidates.into();
        let tried: Vec<Inode> = self.waiting.iter().map(|candidate| candidate.inode).collect();
        self.open_waiting().await;
        missed.extend(tried.into_iter().filter(|inode| !self.files.contains_key(inode)));
        self.looks_first = false;
        let left = std::mem::take(&mut self.unclaimed);
        for (inode, parts) in left {
            if missed.contains(&inode) {
                self.unclaimed.insert(inode, parts);
            } else if !known.contains(&inode) {
                forget_old(&self.settings, &self.context, parts).await;
            }
        }
        Ok(())
    }

    /// Opens files that wait, as far as there is room. Returns how many.
    pub(super) async fn open_waiting(&mut self) -> usize {
        let mut opened = 0;
        while let Some(candidate) = self.waiting.pop_front() {
            if self.files.contains_key(&candidate.inode) {
                continue;
            }
            let room = self.files.len() < self.settings.max_open_files;
            let Some(permit) = room.then(|| Permit::take(self.files.len())).flatten() else {
                self.waiting.push_front(candidate);
                break;
            };
            let Candidate { inode, size, start, closed, .. } = candidate;
            let name = candidate.name.clone();
            let found = candidate.only.is_none();
            if self.open(candidate, permit).await {
                self.closed.remove(&inode);
                opened += 1;
            } else if found {
                let start = if start == StartPosition::End { StartPosition::At(size) } else { start };
                self.remember(inode, ClosedFile { size: NEVER, start, name, closed, made_room: closed > 0 });
            }
        }
        // What waits since the first look begins where it ended then.
        let mut begun = Vec::new();
        for candidate in &mut self.waiting {
            if candidate.start == StartPosition::End && candidate.only.is_none() {
                candidate.start = StartPosition::At(candidate.size);
                begun.push((candidate.inode, candidate.start));
            }
        }
        for (inode, start) in begun {
            self.remember(
                inode,
                ClosedFile { size: NEVER, start, name: String::new(), closed: 0, made_room: false },
            );
        }
        opened
    }

    /// Opens a file; returns whether it did. A name that belongs to another file since it was found is looked for again: what
    /// that one has would be stored as of this one, and read twice.
    pub(in crate::input::file) async fn open(&mut self, candidate: Candidate, permit: Permit) -> bool {
        let Candidate { inode, path, start, name: former_name, only, .. } = candidate;
        let opening = path.clone();
        let opened = move || {
            let opened = || {
                let file = File::open(&opening)?;
                let is_it = Inode::new(&file.metadata()?) == inode;
                Ok(is_it.then_some(file))
            };
            opened().map_err(|error| named(&opening, &error))
        };
        match blocking(opened).await {
            Ok(Some(file)) => {
                let tracked = OpenFile {
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
                    former_name,
                    batches: 0,
                    idle: false,
                    leaving: false,
                    _permit: permit,
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

    pub(super) fn remember(&mut self, inode: Inode, closed: ClosedFile) {
        if self.closed.len() < MAX_REMEMBERED || self.closed.contains_key(&inode) {
            self.closed.insert(inode, closed);
        }
    }
}
