//! Requests that are sent again: their keys are positions of the pipeline, stored in the frame of their events.
//!
//! A key is a part of the source whose only position is the time of the first request with it. A second
//! request with the same key comes from "no position" as the first did, so its frame is refused as a whole,
//! and it is answered as the first was. Keys are forgotten after a time, and the oldest ones beyond a
//! number; both by a move to no position.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::super::{Context, InputError, Positions};
use crate::batch::NotStored;
use crate::budget::Reservation;
use crate::{Ack, Batch, Move};

/// Greatest length of a key.
pub(super) const MAX_KEY_BYTES: usize = 1024;
/// Keys forgotten at once: each is a batch of its own.
const FORGOTTEN_AT_ONCE: usize = 4;
/// Part of the source that is taken over to wait until all before it is durable.
const BARRIER: &str = "barrier";

/// Bounds on the age and number of remembered keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) age: Duration,
    /// 0: the header is ignored.
    pub(super) keys: usize,
}

/// The keys of requests that were stored or are on their way.
pub(super) struct Keys {
    source: String,
    bounds: Bounds,
    positions: Arc<dyn Positions>,
    batches: mpsc::Sender<Batch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<String, KeyState>,
    /// Stored keys by their time.
    by_age: BTreeSet<(i64, String)>,
}

#[derive(Clone, Copy)]
enum KeyState {
    Stored,
    OnItsWay,
}

/// Verdict of a key on its request.
pub(super) enum Verdict {
    /// It is new: its batch moves this position.
    New(Move),
    /// It was stored before.
    Stored,
    /// The first request with the key is not through yet.
    OnItsWay,
}

impl Keys {
    /// The keys that were stored.
    pub(super) async fn load(source: String, bounds: Bounds, context: &Context) -> Result<Self, InputError> {
        let mut state = State::default();
        for (key, time) in context.positions.list(&source).await? {
            let Ok(time) = <[u8; 8]>::try_from(&time[..]) else { continue };
            state.by_age.insert((i64::from_be_bytes(time), key.clone()));
            state.known.insert(key, KeyState::Stored);
        }
        let (positions, batches) = (Arc::clone(&context.positions), context.batches.clone());
        Ok(Self { source, bounds, positions, batches, state: Mutex::new(state) })
    }

    /// Looks a key up, and takes note of it where it is new: [`Keys::ended`] must follow.
    pub(super) fn look_up(&self, key: &str) -> Verdict {
        let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        let partition: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let now = Utc::now().timestamp_millis();
        let mut state = self.state.lock();
        match state.known.get(&partition) {
            Some(KeyState::Stored) => return Verdict::Stored,
            Some(KeyState::OnItsWay) => return Verdict::OnItsWay,
            None => {}
        }
        state.known.insert(partition.clone(), KeyState::OnItsWay);
        Verdict::New(Move {
            source: self.source.clone(),
            partition,
            previous: None,
            new: Bytes::copy_from_slice(&now.to_be_bytes()),
            owner_epoch: 0,
        })
    }

    /// Takes note of what became of a new key's batch; returns what its request is to be told.
    pub(super) async fn ended(&self, moved: &Move, outcome: Result<(), NotStored>) -> Result<(), NotStored> {
        let outcome = match outcome {
            // Another input of this pipeline had it; perhaps it is not durable yet.
            Err(NotStored::Moved) => match self.positions.claim(&self.source, BARRIER).await {
                Ok(_) => Ok(()),
                Err(InputError(reason)) => Err(NotStored::Overloaded(reason)),
            },
            other => other,
        };
        let time = <[u8; 8]>::try_from(&moved.new[..]).map_or(0, i64::from_be_bytes);
        let mut state = self.state.lock();
        if outcome.is_ok() {
            state.known.insert(moved.partition.clone(), KeyState::Stored);
            state.by_age.insert((time, moved.partition.clone()));
        } else {
            state.known.remove(&moved.partition);
        }
        outcome
    }

    /// Forgets keys that are too old or too many, a few at a time, if the pipeline has room for that.
    pub(super) fn forget(&self) {
        let now = Utc::now().timestamp_millis();
        let age = i64::try_from(self.bounds.age.as_millis()).unwrap_or(i64::MAX);
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Ok(permit) = self.batches.try_reserve() else { return };
            let (time, partition) = {
                let mut state = self.state.lock();
                let Some((time, _)) = state.by_age.first() else { return };
                if time.saturating_add(age) > now && state.by_age.len() <= self.bounds.keys {
                    return;
                }
                let Some(oldest) = state.by_age.pop_first() else { return };
                state.known.remove(&oldest.1);
                oldest
            };
            let position = Some(Move {
                source: self.source.clone(),
                partition,
                previous: Some(Bytes::copy_from_slice(&time.to_be_bytes())),
                new: Bytes::new(),
                owner_epoch: 0,
            });
            // What is not forgotten now is forgotten after the next start.
            permit.send(Batch {
                events: Vec::new(),
                position,
                ack: Ack::none(),
                held: Reservation::default(),
            });
        }
    }

    /// Returns whether keys are remembered at all.
    pub(super) fn are_kept(&self) -> bool {
        self.bounds.keys > 0
    }
}
