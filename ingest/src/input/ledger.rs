//! A store in memory, to test inputs against: it does with positions what the engine does, and counts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::testing::StoredPositions;
use super::{BatchSize, Context, Input, InputError, Positions};
use crate::batch::NotStored;
use crate::budget::Budget;
use crate::options::Location;
use crate::{Batch, Event, Fault, Move, Options, Provenance, Setting};

/// Time that a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Positions and events.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    stored: StoredPositions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    largest: usize,
    /// Batches to be refused for lack of room, from the next on.
    refusals: usize,
    /// Batches refused for their position.
    moved: usize,
}

#[async_trait]
impl Positions for Ledger {
    async fn claim(&self, source: &str, partition: &str) -> Result<(Option<Bytes>, u64), InputError> {
        self.stored.claim(source, partition).await
    }

    async fn list(&self, source: &str) -> Result<Vec<(String, Bytes)>, InputError> {
        self.stored.list(source).await
    }
}

impl Ledger {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Stores a batch, or refuses it, as the engine would.
    fn apply(&self, batch: Batch) {
        let mut state = self.state.lock();
        if state.refusals > 0 {
            state.refusals -= 1;
            drop(state);
            return batch.ack.tell(Err(NotStored::Overloaded("refused by the test".to_owned())));
        }
        if let Some(Err(refused)) = batch.position.as_ref().map(|position| self.stored.apply(position)) {
            state.moved += 1;
            drop(state);
            return batch.ack.tell(Err(refused));
        }
        state.largest = state.largest.max(batch.events.len());
        state.events.extend(batch.events);
        drop(state);
        batch.ack.tell(Ok(()));
    }

    /// Moves a position, as something of before would have.
    pub(crate) fn apply_move(&self, moved: &Move) {
        self.stored.apply(moved).expect("the position is what the move says");
    }

    /// Refuses the next batches.
    pub(crate) fn refuse(&self, batches: usize) {
        self.state.lock().refusals = batches;
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().events.len()
    }

    pub(crate) fn moved(&self) -> usize {
        self.state.lock().moved
    }

    pub(crate) fn largest(&self) -> usize {
        self.state.lock().largest
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.state.lock().events.clone()
    }

    /// Texts of a field of all events with where these are from, sorted by the texts.
    pub(crate) fn provenances(&self, field: &str) -> Vec<(String, Provenance)> {
        let state = self.state.lock();
        let of = |event: &Event| {
            let text = event.fields().get(field)?.as_str()?.to_owned();
            Some((text, event.provenance()?))
        };
        let mut all: Vec<_> = state.events.iter().filter_map(of).collect();
        all.sort_by(|(a, from), (b, other)| (a, from.ordinal).cmp(&(b, other.ordinal)));
        all
    }

    /// Values of a field of all events, sorted.
    pub(crate) fn sorted(&self, field: &str) -> Vec<String> {
        let state = self.state.lock();
        let values = state.events.iter().filter_map(|event| event.fields().get(field));
        let mut values: Vec<String> =
            values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        values.sort();
        values
    }
}

/// An input that runs, again after each failure, into a ledger.
pub(crate) struct RunningInput {
    ledger: Arc<Ledger>,
    stop: watch::Sender<bool>,
    input: JoinHandle<Option<InputError>>,
    worker: JoinHandle<()>,
}

impl RunningInput {
    /// Starts an input. The ledger takes a batch each `pace`.
    pub(crate) fn start(
        ledger: &Arc<Ledger>,
        input: Box<dyn Input>,
        batch_size: usize,
        pace: Duration,
    ) -> Self {
        Self::start_among(ledger, input, batch_size, pace, &["test"])
    }

    /// Starts an input of this name, which stands first, among its siblings.
    pub(crate) fn start_among(
        ledger: &Arc<Ledger>,
        input: Box<dyn Input>,
        batch_size: usize,
        pace: Duration,
        names: &[&str],
    ) -> Self {
        let (batches, mut incoming) = mpsc::channel::<Batch>(4);
        let (stop, stopping) = watch::channel(false);
        let context = Context {
            batches,
            source: names.first().copied().map(Arc::from).unwrap_or_default(),
            siblings: names.iter().skip(1).map(|name| Arc::from(*name)).collect(),
            former: Vec::new(),
            positions: Arc::clone(ledger) as _,
            stopping: stopping.clone(),
            batch_size: BatchSize::new(batch_size),
            budget: Budget::default().share(),
        };
        let input = tokio::spawn(async move {
            let mut last = None;
            while !*stopping.borrow() {
                match input.run(context.clone()).await {
                    Ok(()) => return last,
                    Err(error) => last = Some(error),
                }
                sleep(Duration::from_millis(100)).await;
            }
            last
        });
        let store = Arc::clone(ledger);
        let worker = tokio::spawn(async move {
            while let Some(batch) = incoming.recv().await {
                store.apply(batch);
                if !pace.is_zero() {
                    sleep(pace).await;
                }
            }
        });
        Self { ledger: Arc::clone(ledger), stop, input, worker }
    }

    /// Waits until so many events are there, or gives up.
    pub(crate) async fn wait(&self, events: usize) {
        let reached = async {
            while self.ledger.len() < events {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(PATIENCE, reached).await.is_ok(), "{} of {events} events came", self.ledger.len());
    }

    /// Tells it to stop and waits for it. Answers its last failure.
    pub(crate) async fn stop(self) -> Option<InputError> {
        let _ = self.stop.send(true);
        self.end().await
    }

    /// Waits for its end. Answers its last failure.
    pub(crate) async fn end(self) -> Option<InputError> {
        let last =
            timeout(PATIENCE, self.input).await.expect("the input ends").expect("the input does not panic");
        timeout(PATIENCE, self.worker).await.expect("the worker ends").expect("the worker does not panic");
        last
    }
}

/// Runs an input to its own end. Answers its last failure.
pub(crate) async fn run(
    ledger: &Arc<Ledger>,
    input: Box<dyn Input>,
    batch_size: usize,
) -> Option<InputError> {
    RunningInput::start(ledger, input, batch_size, Duration::ZERO).end().await
}

/// Options of a plugin.
pub(crate) fn options<'a>(plugin: &str, given: impl IntoIterator<Item = (&'a str, Setting)>) -> Options {
    let given = given.into_iter().map(|(name, setting)| (name.to_owned(), Location::default(), setting));
    Options::new(plugin, Location::default(), given)
}

/// A text as a setting.
pub(crate) fn text(text: impl Into<String>) -> Setting {
    Setting::Text(text.into())
}

/// All messages of faults.
pub(crate) fn messages(faults: &[Fault]) -> String {
    faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n")
}
