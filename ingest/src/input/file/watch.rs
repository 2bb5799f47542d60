//! Finds files, reads them in turns, and follows what becomes of their batches.
//!
//! One task does it all; what touches files runs on blocking threads. A file's batches go to the pipeline in order,
//! a few ahead of what is stored; where one is not stored, the file is read again from its stored position.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use chrono::Utc;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::watch;

use super::Settings;
use super::position::{Inode, Position, partition, parts};
use super::reader::Reader;
use super::steps::{
    Complete, Completed, Found, Identified, Looked, Start, blocking, complete, discover, examine, has_grown,
    identify, is_gone, named, resume, seconds,
};
use crate::batch::NotStored;
use crate::budget::Reservation;
use crate::input::{Context, InputError, mark, room, stopped};
use crate::{Ack, Batch, Event, FieldReference, Move};

/// The source of all positions of files.
const SOURCE: &str = "file";
/// Batches of a file that the pipeline has and has not stored yet.
const WINDOW: usize = 16;
/// Files that are remembered after they were closed, or not opened for their age.
const MAX_REMEMBERED: usize = 100_000;

/// A size that no file has.
const NEVER: u64 = u64::MAX;

type Acked = (Inode, u64, Option<Bytes>, Result<(), NotStored>);

/// The running input.
pub(super) struct Watch {
    settings: Arc<Settings>,
    context: Context,
    stopping: watch::Receiver<bool>,
    files: BTreeMap<Inode, Tracked>,
    /// Files that are not open: their size when they were seen last, and where reading them goes on.
    closed: HashMap<Inode, (u64, Start)>,
    acks: FuturesUnordered<BoxFuture<'static, Acked>>,
    /// Parts with a stored position that no file was found for yet.
    unclaimed: HashMap<Inode, Vec<(String, Bytes)>>,
    /// Parts by the name of their file that belong to no input of the pipeline: positions of an earlier version, or of an
    /// input that was written otherwise. Who finds the file goes on from there.
    left_behind: HashMap<String, (String, Position)>,
    discovered: Option<Instant>,
    /// Whether files are looked for the first time.
    looks_first: bool,
    generations: u64,
    /// Where events have the path of their file and the name of this machine besides.
    metadata: [FieldReference; 2],
}

/// An open file.
struct Tracked {
    path: PathBuf,
    state: State,
    /// What the file is called in parts; empty until it is known.
    name: String,
    /// Part that another input left behind, which this one went on from.
    left_behind: Option<String>,
    epoch: u64,
    /// Position of the last batch that was sent.
    sent: Option<Bytes>,
    /// Offset up to which everything is stored.
    stored: u64,
    in_flight: usize,
    /// Another one each time that the file is opened or read again: what was sent before counts no more.
    generation: u64,
    again: bool,
    changed: Instant,
    /// The names of which a renamed file must have one: another one is none of this input's.
    only: Option<Vec<String>>,
    /// Whether it was there when the input began: an input that was stopped for this one may have it.
    early: bool,
    /// Whether it was read to its end before this start.
    was_complete: bool,
}

enum State {
    /// Nothing can be said about the file before its first line is there.
    Unknown(File, Start),
    Known(Box<Reader>),
    /// Read to its end; waits for its batches.
    Complete(File, Position),
    /// In use by a thread, or failed.
    Gone,
}

impl Watch {
    pub(super) async fn begin(settings: Arc<Settings>, context: Context) -> Result<Self, InputError> {
        let mut unclaimed: HashMap<Inode, Vec<(String, Bytes)>> = HashMap::new();
        let mut left_behind: HashMap<String, (String, Position)> = HashMap::new();
        let listed = if settings.stored { context.positions.list(SOURCE).await? } else { Vec::new() };
        for (partition, position) in listed {
            let (file, input) = parts(&partition);
            let Some(inode) = Inode::of_file(file) else { continue };
            let own = input == Some(&*context.source);
            if !own && input.is_some_and(|input| context.siblings.iter().any(|sibling| &**sibling == input)) {
                continue;
            }
            if !own && let Some(decoded) = Position::decode(&position) {
                let newer = left_behind.get(file).is_none_or(|(_, other)| other.seconds < decoded.seconds);
                if newer {
                    left_behind.insert(file.to_owned(), (partition.clone(), decoded));
                }
            }
            // Where there are others, they may be theirs.
            if own || context.siblings.is_empty() {
                unclaimed.entry(inode).or_default().push((partition, position));
            }
        }
        let stopping = context.stopping.clone();
        Ok(Self {
            settings,
            context,
            stopping,
            files: BTreeMap::new(),
            closed: HashMap::new(),
            acks: FuturesUnordered::new(),
            unclaimed,
            left_behind,
            discovered: None,
            looks_first: true,
            generations: 0,
            metadata: ["[@metadata][path]", "[@metadata][host]"]
                .map(|text| FieldReference::parse(text).expect("it is a reference")),
        })
    }

    pub(super) async fn run(mut self) -> Result<(), InputError> {
        loop {
            if *self.stopping.borrow() {
                return Ok(());
            }
            if self.discovered.is_none_or(|last| last.elapsed() >= self.settings.discover_interval) {
                self.discover().await?;
            }
            let mut progress = false;
            let inodes: Vec<Inode> = self.files.keys().copied().collect();
            for inode in inodes {
                while let Some(acked) = futures::FutureExt::now_or_never(self.acks.next()).flatten() {
                    self.acked(acked);
                }
                let Some(mut tracked) = self.files.remove(&inode) else { continue };
                match self.read_some(inode, &mut tracked).await? {
                    Next::Stop => return Ok(()),
                    Next::Close => self.close(inode, tracked).await,
                    Next::More => {
                        progress = true;
                        self.files.insert(inode, tracked);
                    }
                    Next::Wait => {
                        self.files.insert(inode, tracked);
                    }
                }
            }
            let has_looked = self.discovered.is_some();
            if self.settings.exit_after_read && has_looked && self.files.is_empty() && self.acks.is_empty() {
                return Ok(());
            }
            if progress {
                tokio::task::yield_now().await;
                continue;
            }
            self.pause().await;
        }
    }

    /// Waits until there may be something to do.
    async fn pause(&mut self) {
        let (acks, stopping) = (&mut self.acks, &mut self.stopping);
        let acked = async {
            match acks.next().await {
                Some(acked) => acked,
                None => std::future::pending().await,
            }
        };
        let acked = tokio::select! {
            biased;
            () = stopped(stopping) => None,
            acked = acked => Some(acked),
            () = tokio::time::sleep(self.settings.stat_interval) => None,
        };
        match acked {
            Some(acked) => self.acked(acked),
            None => {
                if self.was_rotated() {
                    self.discovered = None;
                }
            }
        }
    }

    /// Whether a name belongs to another file by now.
    fn was_rotated(&self) -> bool {
        !self.settings.once
            && self.files.iter().any(|(inode, tracked)| {
                std::fs::metadata(&tracked.path)
                    .is_ok_and(|now| Inode::of(&now) != *inode && !self.files.contains_key(&Inode::of(&now)))
            })
    }

    fn acked(&mut self, (inode, generation, position, outcome): Acked) {
        let Some(tracked) = self.files.get_mut(&inode).filter(|tracked| tracked.generation == generation)
        else {
            return;
        };
        tracked.in_flight = tracked.in_flight.saturating_sub(1);
        match outcome {
            Ok(()) => {
                if let Some(position) = position.as_deref().and_then(Position::decode) {
                    // Whatever order these are looked at in: what is behind is stored later.
                    tracked.stored = tracked.stored.max(position.offset);
                }
            }
            Err(reason) => {
                tracing::debug!(path = %tracked.path.display(), %reason, "file is read again from its stored position");
                tracked.again = true;
            }
        }
    }

    /// Looks for files that are not open yet.
    async fn discover(&mut self) -> Result<(), InputError> {
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
    pub(super) async fn open(
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

    fn generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }

    fn remember(&mut self, inode: Inode, size: u64, start: Start) {
        if self.closed.len() < MAX_REMEMBERED || self.closed.contains_key(&inode) {
            self.closed.insert(inode, (size, start));
        }
    }

    /// Reads the next lines of a file.
    async fn read_some(&mut self, inode: Inode, tracked: &mut Tracked) -> Result<Next, InputError> {
        if tracked.again {
            if !self.read_again(tracked).await? {
                return Ok(Next::Close);
            }
            // What was not stored will not be at once.
            return Ok(Next::Wait);
        }
        match std::mem::replace(&mut tracked.state, State::Gone) {
            // What it was moved to must be there.
            State::Unknown(file, start) if tracked.in_flight > 0 => {
                tracked.state = State::Unknown(file, start);
                Ok(Next::Wait)
            }
            State::Unknown(file, start) => self.identify(inode, tracked, file, start).await,
            State::Known(reader) => self.read(inode, tracked, *reader).await,
            State::Complete(file, position) if tracked.in_flight == 0 => {
                let of = Complete {
                    path: tracked.path.clone(),
                    inode,
                    name: tracked.name.clone(),
                    position,
                    before: tracked.was_complete,
                };
                match complete(Arc::clone(&self.settings), of).await {
                    Completed::Done if self.settings.completed.delete => self.forget(tracked).await,
                    Completed::Done | Completed::Stays => {}
                    Completed::Grown => {
                        tracked.was_complete = false;
                        tracked.state = State::Unknown(file, Start::At(position.offset));
                        return Ok(Next::More);
                    }
                }
                Ok(Next::Close)
            }
            State::Complete(file, position) => {
                tracked.state = State::Complete(file, position);
                Ok(Next::Wait)
            }
            State::Gone => Ok(Next::Close),
        }
    }

    /// Finds out which file it is and goes on from its stored position.
    async fn identify(
        &mut self,
        inode: Inode,
        tracked: &mut Tracked,
        file: File,
        start: Start,
    ) -> Result<Next, InputError> {
        let settings = Arc::clone(&self.settings);
        let path = tracked.path.clone();
        let identified = blocking(move || identify(&settings, &path, inode, file)).await?;
        let (file, name) = match identified {
            Identified::NotYet(file) => {
                let gone = is_gone(&file);
                tracked.state = State::Unknown(file, start);
                let idle = tracked.changed.elapsed() >= self.settings.close_older;
                return Ok(if gone || idle { Next::Close } else { Next::Wait });
            }
            Identified::Known { file, name } => (file, name),
            Identified::Refused(error) => {
                tracing::error!(path = %tracked.path.display(), %error, "file is left as it is");
                return Ok(Next::Close);
            }
        };
        if tracked.only.as_ref().is_some_and(|only| !only.contains(&name)) {
            return Ok(Next::Close);
        }
        if !tracked.name.is_empty() && tracked.name != name {
            // What was truncated begins with another line now.
            self.forget(tracked).await;
        }
        let (mut position, mut inherited) = (None, false);
        if self.settings.stored {
            let partition = partition(&name, &self.context.source);
            (tracked.sent, tracked.epoch) = self.context.positions.claim(SOURCE, &partition).await?;
            position = tracked.sent.as_deref().and_then(Position::decode);
            let left_behind = self.left_behind.remove(&name).map(|(part, _)| part);
            match (position, left_behind) {
                (None, left_behind) => {
                    // Its owner may still have batches under way: they come too late from here on, and are read again.
                    let former = if tracked.early { self.context.former.as_slice() } else { &[] };
                    let parts = former.iter().map(|former| self::partition(&name, former));
                    for part in left_behind.into_iter().chain(parts) {
                        let (left, _) = self.context.positions.claim(SOURCE, &part).await?;
                        let Some(left) = left.as_deref().and_then(Position::decode) else { continue };
                        if position.is_none_or(|newest| newest.seconds < left.seconds) {
                            // It stays until this input's own position is there for sure: at the next start.
                            (position, tracked.left_behind) = (Some(left), Some(part));
                        }
                    }
                    inherited = position.is_some();
                }
                (Some(_), Some(part)) => forget_part(&self.context, &part).await,
                (Some(_), None) => {}
            }
        }
        tracked.name = name;
        if let Some(position) = position.filter(|position| position.complete && self.settings.once) {
            let (settings, path) = (Arc::clone(&self.settings), tracked.path.clone());
            let (file, grown) = blocking(move || {
                let grown = has_grown(&settings, &path, &file, position);
                Ok((file, grown.map_err(|error| named(&path, &error))?))
            })
            .await?;
            if !grown {
                tracked.stored = position.offset;
                tracked.was_complete = true;
                if inherited
                    && !self.send(inode, tracked, Vec::new(), Some(position), Reservation::default()).await
                {
                    return Ok(Next::Stop);
                }
                tracked.state = State::Complete(file, position);
                return Ok(Next::More);
            }
            return self.resume(inode, tracked, file, Some(position), start, inherited).await;
        }
        self.resume(inode, tracked, file, position, start, inherited).await
    }

    /// Goes on with a file from its position, where it has one.
    async fn resume(
        &mut self,
        inode: Inode,
        tracked: &mut Tracked,
        file: File,
        position: Option<Position>,
        start: Start,
        inherited: bool,
    ) -> Result<Next, InputError> {
        let (settings, path) = (Arc::clone(&self.settings), tracked.path.clone());
        let most = self.context.budget.most();
        let opened = blocking(move || {
            let reader = resume(&settings, &path, file, position, start, most);
            reader.map_err(|error| named(&path, &error))
        });
        let (reader, skipped) = opened.await?;
        tracked.stored = reader.safe();
        tracked.changed = Instant::now();
        if (skipped || inherited) && self.settings.stored {
            // Where reading begins is kept: what follows is not lost if this ends before.
            let at = reader.position(false).map_err(|error| named(&tracked.path, &error))?;
            if !self.send(inode, tracked, Vec::new(), Some(at), Reservation::default()).await {
                return Ok(Next::Stop);
            }
        }
        tracked.state = State::Known(Box::new(reader));
        Ok(Next::More)
    }

    /// Reads a batch and hands it on.
    async fn read(
        &mut self,
        inode: Inode,
        tracked: &mut Tracked,
        mut reader: Reader,
    ) -> Result<Next, InputError> {
        if tracked.in_flight >= WINDOW {
            tracked.state = State::Known(Box::new(reader));
            return Ok(Next::Wait);
        }
        let Some(mut held) = room(&self.context).await else { return Ok(Next::Stop) };
        let (settings, size) = (Arc::clone(&self.settings), self.context.batch_size.get());
        let bytes = held.bytes();
        let idle = tracked.changed.elapsed();
        let looked = blocking(move || {
            let looked = examine(&settings, &mut reader, size, bytes, idle);
            Ok((reader, looked))
        });
        let (reader, looked) = looked.await?;
        let looked = match looked {
            Ok(looked) => looked,
            Err(error) => {
                // Another try may do; the archive may also be damaged for good.
                tracing::warn!(path = %tracked.path.display(), %error, "cannot read a file, it is tried again");
                tracked.changed = Instant::now();
                tracked.again = true;
                return Ok(Next::Wait);
            }
        };
        let Looked { chunk, position, grew, replaced, complete, gone } = looked;
        if replaced {
            if tracked.in_flight > 0 {
                tracked.state = State::Known(Box::new(reader));
                return Ok(Next::Wait);
            }
            return self.begin_anew(inode, tracked, reader).await;
        }
        let some = !chunk.events.is_empty();
        if grew {
            tracked.changed = Instant::now();
        }
        held.set(chunk.events.bytes());
        if (some || complete) && !self.send(inode, tracked, chunk.events.into_vec(), position, held).await {
            return Ok(Next::Stop);
        }
        if complete {
            let file = reader.file().try_clone().map_err(|error| named(&tracked.path, &error))?;
            let end = reader.position(true).map_err(|error| named(&tracked.path, &error))?;
            tracked.state = State::Complete(file, end);
            return Ok(Next::More);
        }
        tracked.state = State::Known(Box::new(reader));
        if chunk.at_end && !some && tracked.in_flight == 0 {
            let closes = gone || tracked.changed.elapsed() >= self.settings.close_older;
            if closes {
                return Ok(Next::Close);
            }
        }
        Ok(if chunk.at_end { Next::Wait } else { Next::More })
    }

    /// Goes on with a file that was truncated.
    async fn begin_anew(
        &mut self,
        inode: Inode,
        tracked: &mut Tracked,
        reader: Reader,
    ) -> Result<Next, InputError> {
        tracing::info!(path = %tracked.path.display(), "file was truncated, it is read from its beginning");
        let file = reader.file().try_clone().map_err(|error| named(&tracked.path, &error))?;
        let beginning = Position::beginning(reader.truncations() + 1);
        drop(reader);
        tracked.changed = Instant::now();
        tracked.state = State::Unknown(file, Start::Beginning);
        // Its next lines may be the same again: by then, the position must be at its beginning.
        let moved = !self.settings.stored
            || self.send(inode, tracked, Vec::new(), Some(beginning), Reservation::default()).await;
        Ok(if moved { Next::Wait } else { Next::Stop })
    }

    /// Forgets how far a file was read.
    async fn forget(&mut self, tracked: &mut Tracked) {
        if let Some(previous) = tracked.sent.take() {
            let partition = partition(&tracked.name, &self.context.source);
            forget(&self.context, partition, previous, tracked.epoch).await;
        }
        if let Some(part) = tracked.left_behind.take() {
            forget_part(&self.context, &part).await;
        }
    }

    /// Hands a batch to the pipeline; `false` when the input is to stop.
    async fn send(
        &mut self,
        inode: Inode,
        tracked: &mut Tracked,
        mut events: Vec<Event>,
        position: Option<Position>,
        held: Reservation,
    ) -> bool {
        let path = tracked.path.to_string_lossy();
        for event in &mut events {
            mark(event, "host", &self.settings.host);
            mark(event, "path", &path);
            for (field, value) in self.metadata.iter().zip([&*path, self.settings.host.as_str()]) {
                // Nothing can be in the way in the metadata of a new event.
                let _ = event.set(field, Value::from(value));
            }
        }
        let new = position.map(Position::encode);
        let moved = new.clone().filter(|_| self.settings.stored).map(|new| Move {
            source: SOURCE.to_owned(),
            partition: partition(&tracked.name, &self.context.source),
            previous: tracked.sent.clone(),
            new,
            owner_epoch: tracked.epoch,
        });
        if let Some(moved) = &moved {
            tracked.sent = Some(moved.new.clone());
        }
        let (ack, stored) = Ack::channel();
        let generation = tracked.generation;
        tracked.in_flight += 1;
        self.acks.push(Box::pin(async move {
            let outcome = stored.await.unwrap_or(Err(NotStored::Ended));
            (inode, generation, new, outcome)
        }));
        let batch = Batch { events, position: moved, ack, held };
        tokio::select! {
            biased;
            () = stopped(&mut self.stopping) => false,
            sent = self.context.batches.send(batch) => sent.is_ok(),
        }
    }

    /// Goes back to the stored position; `false` where the file cannot be read any more.
    async fn read_again(&mut self, tracked: &mut Tracked) -> Result<bool, InputError> {
        let file = match std::mem::replace(&mut tracked.state, State::Gone) {
            State::Unknown(file, _) | State::Complete(file, _) => Ok(file),
            State::Known(reader) => reader.file().try_clone(),
            State::Gone => return Ok(false),
        };
        let file = file.map_err(|error| named(&tracked.path, &error))?;
        tracked.generation = self.generation();
        (tracked.in_flight, tracked.again) = (0, false);
        // Where positions are not stored, what was stored last is known here only.
        tracked.state = State::Unknown(file, Start::At(tracked.stored));
        Ok(true)
    }

    /// Lets go of a file.
    async fn close(&mut self, inode: Inode, mut tracked: Tracked) {
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

/// Forgets positions of files that were not seen for long.
async fn forget_old(settings: &Settings, context: &Context, parts: Vec<(String, Bytes)>) {
    let oldest = Utc::now().timestamp().saturating_sub(seconds(settings.clean_after));
    for (partition, position) in parts {
        if Position::decode(&position).is_none_or(|position| position.seconds >= oldest) {
            continue;
        }
        forget_part(context, &partition).await;
    }
}

async fn forget_part(context: &Context, partition: &str) {
    if let Ok((Some(previous), owner_epoch)) = context.positions.claim(SOURCE, partition).await {
        forget(context, partition.to_owned(), previous, owner_epoch).await;
    }
}

async fn forget(context: &Context, partition: String, previous: Bytes, owner_epoch: u64) {
    let position = Some(Move {
        source: SOURCE.to_owned(),
        partition,
        previous: Some(previous),
        new: Bytes::new(),
        owner_epoch,
    });
    let batch = Batch { events: Vec::new(), position, ack: Ack::none(), held: Reservation::default() };
    let mut stopping = context.stopping.clone();
    tokio::select! {
        biased;
        () = stopped(&mut stopping) => {}
        // What is not forgotten now is forgotten after another start.
        _ = context.batches.send(batch) => {}
    }
}

/// What is next for a file.
enum Next {
    /// There may be more at once.
    More,
    Wait,
    Close,
    Stop,
}
