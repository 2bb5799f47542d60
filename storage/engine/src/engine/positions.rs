//! Read positions of sources: one for each part of each source of each pipeline.
//!
//! A position moves by compare-and-set in the frame that holds what was read up to it
//! ([`super::source`]), so it is there exactly if its documents are. All of them are in memory. The
//! catalog learns of them before the log is cut ([`Positions::unsaved`]); recovery starts from the
//! catalog's and applies the log's, so the later of the two holds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame, FrameNumber, PositionDelta};
use millrace_catalog::{Commit, Position};
use millrace_runtime::sync::{Mutex, Rank};
use millrace_runtime::{Error, Result};

use super::{Engine, Inner};
use crate::wal::{UnappliedFrame, Wal};

/// Greatest number of positions of a node; more are refused.
const MAX_POSITIONS: usize = 1_000_000;
/// Greatest size of a position.
const MAX_POSITION_BYTES: usize = 16 << 20;
/// Greatest length of the names of pipeline, source and partition together.
const MAX_NAME_BYTES: usize = 64 << 10;
/// Room on the disk that taking a part over asks for.
const CLAIM_BYTES: u64 = 4 << 10;

/// Pipeline, source, partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    pipeline: String,
    source: String,
    partition: String,
}

impl Key {
    fn new(delta: &PositionDelta) -> Self {
        Self {
            pipeline: delta.pipeline.clone(),
            source: delta.source.clone(),
            partition: delta.partition.clone(),
        }
    }

    fn bytes(&self) -> usize {
        self.pipeline.len() + self.source.len() + self.partition.len()
    }
}

/// Position of a part of a source, and its owner.
#[derive(Clone, Debug, Default, PartialEq)]
struct SourcePosition {
    /// `None` where it was taken over and nothing was read yet.
    position: Option<Bytes>,
    owner_epoch: u64,
    /// Frame up to which the catalog's position has what the log says of it; `None` once the log has moved it since.
    saved_frame: Option<FrameNumber>,
}

impl SourcePosition {
    /// Takes a position as the catalog has it.
    fn from_stored(stored: Position) -> (Key, Self) {
        let Position { pipeline, source, partition, position, owner_epoch, frame } = stored;
        let position = Some(Bytes::from(position)).filter(|position| !position.is_empty());
        let saved_frame = Some(frame);
        (Key { pipeline, source, partition }, Self { position, owner_epoch, saved_frame })
    }

    /// The state that a delta leaves; `None` where it forgets the part.
    fn after(delta: &PositionDelta) -> Option<Self> {
        let position = Some(delta.new.clone()).filter(|new| !new.is_empty());
        let forgotten = position.is_none() && delta.previous.is_some();
        (!forgotten).then_some(Self { position, owner_epoch: delta.owner_epoch, saved_frame: None })
    }
}

/// All positions.
#[derive(Debug)]
pub(super) struct Positions(Mutex<State>);

impl Default for Positions {
    fn default() -> Self {
        Self::load(Vec::new())
    }
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<Arc<Key>, SourcePosition>,
    /// The last frame that changed a position (or forgot it) since the catalog was told of it.
    unsaved: BTreeMap<Arc<Key>, FrameNumber>,
}

/// Positions that the catalog is to be told of, as they were at one moment.
pub(super) struct UnsavedPositions {
    pub(super) put: Vec<Position>,
    pub(super) forgotten: Vec<(String, String, String)>,
    /// Greatest frame among theirs: it must be durable before the catalog has them.
    pub(super) last_frame: FrameNumber,
    frames: Vec<(Arc<Key>, FrameNumber)>,
}

impl Positions {
    /// The positions of the catalog.
    pub(super) fn load(stored: Vec<Position>) -> Self {
        let known = stored.into_iter().map(|stored| {
            let (key, position) = SourcePosition::from_stored(stored);
            (Arc::new(key), position)
        });
        Self(Mutex::new(Rank::Positions, State { known: known.collect(), unsaved: BTreeMap::new() }))
    }

    /// Applies a delta of the log at recovery. Frames are replayed in order, and the last one that the
    /// catalog's position came from is among them or was cut: what was decided then is not decided again.
    /// A restored position is behind all frames of the log that were there before it.
    pub(super) fn replay(&self, frame: FrameNumber, delta: &PositionDelta) {
        let (key, mut state) = (Key::new(delta), self.0.lock());
        if state.known.get(&key).and_then(|known| known.saved_frame).is_some_and(|saved| frame <= saved) {
            return;
        }
        state.apply(Arc::new(key), SourcePosition::after(delta), frame);
    }

    /// Chooses the positions of a snapshot whose parts have none here. They count from behind a frame of this log on.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Rejected`] at the bounds.
    pub(super) fn select_missing(
        &self,
        restored: Vec<Position>,
        frame: FrameNumber,
    ) -> Result<Vec<Position>> {
        let state = self.0.lock();
        let (mut missing, mut seen) = (Vec::new(), HashSet::new());
        for restored in restored {
            let (key, _) = SourcePosition::from_stored(restored.clone());
            check_key(&key)?;
            check_position(&restored.source, restored.position.len())?;
            if !restored.position.is_empty() && !state.known.contains_key(&key) && seen.insert(key) {
                missing.push(Position { frame, ..restored });
            }
        }
        state.check_room(missing.len())?;
        Ok(missing)
    }

    /// Adds restored positions that the catalog has. A part that was taken over meanwhile stays where its owner is: so says the
    /// log, too.
    pub(super) fn add_restored(&self, restored: Vec<Position>) {
        let mut state = self.0.lock();
        for restored in restored {
            let (key, position) = SourcePosition::from_stored(restored);
            state.known.entry(Arc::new(key)).or_insert(position);
        }
    }

    /// Lists all positions as they are now; `frame` is 0.
    pub(super) fn list_all(&self) -> Vec<Position> {
        let state = self.0.lock();
        let listed = state.known.iter().map(|(key, known)| Position {
            pipeline: key.pipeline.clone(),
            source: key.source.clone(),
            partition: key.partition.clone(),
            position: known.position.as_ref().map(|position| position.to_vec()).unwrap_or_default(),
            owner_epoch: known.owner_epoch,
            frame: 0,
        });
        listed.collect()
    }

    /// Says whether deltas would be applied now, so that nothing else has to be done for those that
    /// would not.
    ///
    /// # Errors
    /// As [`Positions::append`].
    pub(super) fn check(&self, deltas: &[PositionDelta]) -> Result<()> {
        self.0.lock().decide(deltas).map(drop)
    }

    /// Compares, sets and appends: the frame gets the deltas and its place in the log in one step, so
    /// the order of the moves of a part is that of their frames.
    ///
    /// # Errors
    /// [`Error::PositionMoved`] where a part is not where its delta comes from, or another's;
    /// [`Error::TooLarge`], [`Error::Rejected`] at the bounds; the log's. Then nothing has changed.
    pub(super) fn append(
        &self,
        wal: &Wal,
        frame: &mut Frame,
        deltas: &[PositionDelta],
    ) -> Result<UnappliedFrame> {
        if deltas.is_empty() {
            return wal.append(frame);
        }
        frame.entries.extend(deltas.iter().cloned().map(Entry::Position));
        let encoded = wal.encode(frame)?;
        let mut state = self.0.lock();
        let decided = state.decide(deltas)?;
        let frame = wal.append_encoded(encoded)?;
        for (key, after) in decided {
            state.apply(Arc::new(key), after, frame.number());
        }
        Ok(frame)
    }

    /// Takes a part over: appends the delta that bumps the epoch of its owner.
    fn claim(&self, wal: &Wal, key: Key, now_ms: i64) -> Result<(FrameNumber, Option<Bytes>, u64)> {
        check_key(&key)?;
        let mut state = self.0.lock();
        let before = state.known.get(&key).cloned();
        if before.is_none() {
            state.check_room(1)?;
        }
        let SourcePosition { position, owner_epoch, .. } = before.unwrap_or_default();
        let owner_epoch = owner_epoch + 1;
        let delta = PositionDelta {
            pipeline: key.pipeline.clone(),
            source: key.source.clone(),
            partition: key.partition.clone(),
            previous: position.clone(),
            new: position.clone().unwrap_or_default(),
            owner_epoch,
        };
        let after = SourcePosition::after(&delta);
        let entries = vec![Entry::Position(delta)];
        let frame = wal.append(&Frame { time_ms: now_ms, origin: Origin::System, entries })?;
        state.apply(Arc::new(key), after, frame.number());
        Ok((frame.hand_over(Vec::new(), 0), position, owner_epoch))
    }

    fn list(&self, pipeline: &str, source: &str) -> Vec<(String, Bytes)> {
        let first =
            Key { pipeline: pipeline.to_owned(), source: source.to_owned(), partition: String::new() };
        let state = self.0.lock();
        state
            .known
            .range(Arc::new(first)..)
            .take_while(|(key, _)| key.pipeline == pipeline && key.source == source)
            .filter_map(|(key, reached)| Some((key.partition.clone(), reached.position.clone()?)))
            .collect()
    }

    /// Returns the positions that the catalog lacks; `None` where it has all.
    pub(super) fn unsaved(&self) -> Option<UnsavedPositions> {
        let state = self.0.lock();
        let last_frame = state.unsaved.values().copied().max()?;
        let mut unsaved =
            UnsavedPositions { put: Vec::new(), forgotten: Vec::new(), last_frame, frames: Vec::new() };
        for (key, frame) in &state.unsaved {
            let Key { pipeline, source, partition } = key.as_ref().clone();
            match state.known.get(key) {
                Some(reached) => unsaved.put.push(Position {
                    pipeline,
                    source,
                    partition,
                    position: reached.position.as_deref().map(<[u8]>::to_vec).unwrap_or_default(),
                    owner_epoch: reached.owner_epoch,
                    frame: *frame,
                }),
                None => unsaved.forgotten.push((pipeline, source, partition)),
            }
            unsaved.frames.push((Arc::clone(key), *frame));
        }
        Some(unsaved)
    }

    /// Takes note of what the catalog has now; what has moved meanwhile stays unsaved.
    pub(super) fn saved(&self, saved: &UnsavedPositions) {
        let mut state = self.0.lock();
        for (key, frame) in &saved.frames {
            if state.unsaved.get(key) == Some(frame) {
                state.unsaved.remove(key);
            }
        }
    }

    pub(super) fn has_unsaved(&self) -> bool {
        !self.0.lock().unsaved.is_empty()
    }
}

impl State {
    /// Decides deltas in order, changing nothing: each follows on what those before it leave.
    fn decide(&self, deltas: &[PositionDelta]) -> Result<HashMap<Key, Option<SourcePosition>>> {
        let mut decided: HashMap<Key, Option<SourcePosition>> = HashMap::with_capacity(deltas.len());
        for delta in deltas {
            let key = Key::new(delta);
            check_key(&key)?;
            check_position(&delta.source, delta.new.len())?;
            if delta.new.is_empty() && delta.previous.is_none() {
                let reason = format!("the first position of source [{}] is empty", delta.source);
                return Err(Error::IllegalArgument(reason));
            }
            let now = match decided.get(&key) {
                Some(earlier) => earlier.as_ref(),
                None => self.known.get(&key),
            };
            let (position, owner_epoch) =
                now.map_or((None, 0), |now| (now.position.as_ref(), now.owner_epoch));
            if position != delta.previous.as_ref() || owner_epoch != delta.owner_epoch {
                return Err(Error::PositionMoved {
                    pipeline: key.pipeline,
                    source_id: key.source,
                    partition: key.partition,
                });
            }
            decided.insert(key, SourcePosition::after(delta));
        }
        let new = decided.iter().filter(|(key, after)| after.is_some() && !self.known.contains_key(*key));
        self.check_room(new.count())?;
        Ok(decided)
    }

    fn check_room(&self, new: usize) -> Result<()> {
        if new > 0 && self.known.len() + new > MAX_POSITIONS {
            return Err(Error::Rejected(format!(
                "there are {} positions of sources, more than {MAX_POSITIONS} cannot be kept",
                self.known.len()
            )));
        }
        Ok(())
    }

    fn apply(&mut self, key: Arc<Key>, after: Option<SourcePosition>, frame: FrameNumber) {
        match after {
            Some(reached) => self.known.insert(Arc::clone(&key), reached),
            None => self.known.remove(&key),
        };
        self.unsaved.insert(key, frame);
    }
}

fn check_key(key: &Key) -> Result<()> {
    if key.bytes() > MAX_NAME_BYTES {
        let bytes = key.bytes();
        return Err(Error::TooLarge(format!("names of {bytes} bytes of a source exceed {MAX_NAME_BYTES}")));
    }
    Ok(())
}

fn check_position(source: &str, bytes: usize) -> Result<()> {
    if bytes > MAX_POSITION_BYTES {
        return Err(Error::TooLarge(format!(
            "a position of {bytes} bytes of source [{source}] exceeds {MAX_POSITION_BYTES}"
        )));
    }
    Ok(())
}

impl Engine {
    /// Takes a part of a source over: returns its stored position and the epoch under which its new owner
    /// moves it. Moves of earlier owners are refused from then on. Durable when it returns.
    ///
    /// # Errors
    /// A full disk, too many positions, shutdown.
    pub async fn claim_position(
        &self,
        pipeline: &str,
        source: &str,
        partition: &str,
    ) -> Result<(Option<Bytes>, u64)> {
        let inner = &self.inner;
        inner.check_accepting()?;
        let wal = inner.wal()?;
        wal.admit(CLAIM_BYTES)?;
        let key =
            Key { pipeline: pipeline.to_owned(), source: source.to_owned(), partition: partition.to_owned() };
        let (frame, position, owner_epoch) = inner.positions.claim(wal, key, inner.clock.now_ms())?;
        wal.synced(frame).await?;
        Ok((position, owner_epoch))
    }

    /// Parts of a source that have a position, with it, in the order of their names. The last moves may not
    /// be durable yet.
    pub fn positions(&self, pipeline: &str, source: &str) -> Vec<(String, Bytes)> {
        self.inner.positions.list(pipeline, source)
    }
}

impl Inner {
    /// Tells the catalog of all positions that it does not know yet. One call at a time, so that what it tells is
    /// never older than what was told: the caller holds `cutting`. Returns false where they are not told because
    /// the log waits for room on the disk: then it keeps all that it has of them.
    ///
    /// # Errors
    /// The log's or the catalog's; what was not saved stays in the log.
    pub(super) async fn save_positions(&self) -> Result<bool> {
        let Some(unsaved) = self.positions.unsaved() else { return Ok(true) };
        // A position must not outlive the documents of its frame.
        if !self.wal()?.synced_unless_full(unsaved.last_frame).await? {
            return Ok(false);
        }
        let commit = Commit {
            positions: unsaved.put.clone(),
            forgotten: unsaved.forgotten.clone(),
            ..Commit::default()
        };
        self.services.catalog.commit(&commit).await?;
        self.positions.saved(&unsaved);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
