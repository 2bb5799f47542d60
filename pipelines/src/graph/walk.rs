//! Events on their way through filters and outputs, many at a time.
//!
//! A selection is a list of places of events. A filter goes over its selection; a branch cuts one into those of
//! its arms. What is dropped or refused leaves its place empty; new events get places behind all others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use millrace_ingest::budget::AnswerAllowance;
use millrace_ingest::{Event, Provenance};
use millrace_runtime::Instant;
use millrace_runtime::panic_text;

use super::output_event::OutputEvent;
use super::{Block, FilterNode, Node};
use crate::condition::Condition;
use crate::filter::{Filter, FilterPlugin, Flush, Outcome, RemoteFilter};

/// Origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Index of the batch among those taken together.
    pub(crate) batch: usize,
    /// Provenance of the event, where its source can tell.
    pub(crate) provenance: Option<Provenance>,
    /// Number among those made of this event; 0 is the event itself. The number does not depend on other events in flight: it is
    /// the same when the event comes again.
    pub(crate) made: u64,
}

/// An event with where it comes from.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) event: Event,
    pub(crate) origin: Origin,
    /// Events made of it so far.
    children: u64,
}

/// Spreads the numbers of events that are made of made events.
const GENERATION: u64 = 1_000_003;

/// An event that ends as a dead letter.
#[derive(Debug)]
pub(crate) struct RejectedEvent {
    pub(crate) event: Arc<Event>,
    pub(crate) batch: usize,
    pub(crate) plugin: Arc<str>,
    pub(crate) reason: String,
}

/// Events under way.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) slots: Vec<Option<Slot>>,
    pub(crate) rejected: Vec<RejectedEvent>,
    /// Flush of the filters on the way, behind the events.
    pub(crate) flush: Option<Flush>,
    /// Memory for what filters add from other servers.
    pub(crate) allowance: Arc<AnswerAllowance>,
}

/// Origin of events that the clock makes.
const CLOCK: Origin = Origin { batch: 0, provenance: None, made: 0 };

impl Flow {
    /// Adds an event; returns its place.
    pub(crate) fn add(&mut self, event: Event, origin: Origin) -> usize {
        self.slots.push(Some(Slot { event, origin, children: 0 }));
        self.slots.len() - 1
    }

    /// Takes a selection through filters; returns what is left of it and what was made of it, in order. The future waits only for
    /// filters that ask other servers.
    pub(crate) fn filter<'a>(
        &'a mut self,
        block: &'a Block<FilterNode>,
        mut selected: Vec<usize>,
    ) -> BoxFuture<'a, Vec<usize>> {
        async move {
            for node in block {
                if selected.is_empty() && self.flush.is_none() {
                    break;
                }
                selected = match node {
                    Node::Plugin(node) => match &node.filter {
                        FilterPlugin::Local(filter) => self.apply(node, &**filter, selected),
                        FilterPlugin::Remote(filter) => self.apply_remote(node, &**filter, selected).await,
                    },
                    Node::Branch(branch) => {
                        let mut rest = selected;
                        let mut through = Vec::with_capacity(rest.len());
                        for (condition, block) in &branch.arms {
                            let (taken, others) = self.cut(condition, rest, &branch.id);
                            through.extend(self.filter(block, taken).await);
                            rest = others;
                        }
                        through.extend(self.filter(&branch.otherwise, rest).await);
                        through.sort_unstable();
                        through
                    }
                };
            }
            selected
        }
        .boxed()
    }

    /// Cuts a selection into those that meet a condition and those that do not.
    fn cut(
        &mut self,
        condition: &Condition,
        selected: Vec<usize>,
        id: &Arc<str>,
    ) -> (Vec<usize>, Vec<usize>) {
        let (mut taken, mut others) = (Vec::new(), Vec::new());
        for at in selected {
            let Some(slot) = self.slots.get(at).and_then(Option::as_ref) else { continue };
            match condition.holds(&slot.event) {
                Ok(true) => taken.push(at),
                Ok(false) => others.push(at),
                Err(undecided) => self.reject(at, id, undecided.0),
            }
        }
        (taken, others)
    }

    fn reject(&mut self, at: usize, plugin: &Arc<str>, reason: String) {
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::take) {
            let (event, batch) = (Arc::new(slot.event), slot.origin.batch);
            self.rejected.push(RejectedEvent { event, batch, plugin: Arc::clone(plugin), reason });
        }
    }

    fn apply(&mut self, node: &FilterNode, filter: &dyn Filter, selected: Vec<usize>) -> Vec<usize> {
        let began = Instant::now();
        let mut left = Vec::with_capacity(selected.len());
        let (mut new, mut made) = (Vec::new(), Vec::new());
        node.label.meter.came_in(selected.len());
        for at in selected {
            let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) else { continue };
            let origin = slot.origin;
            // A defect of a filter costs the event that brings it to light, not the pipeline.
            let applied = catch_unwind(AssertUnwindSafe(|| {
                let outcome = filter.apply(&mut slot.event, &mut made);
                if outcome == Outcome::Matched {
                    node.decoration.apply(&mut slot.event);
                }
                outcome
            }));
            match applied {
                Ok(Outcome::Matched | Outcome::Unmatched) => left.push(at),
                Ok(Outcome::Dropped) => {
                    if let Some(slot) = self.slots.get_mut(at) {
                        *slot = None;
                    }
                }
                Err(panic) => self.reject_panicked(at, node, &*panic),
            }
            let earlier = self.slots.get(at).and_then(Option::as_ref).map_or(0, |slot| slot.children);
            let mut number = earlier;
            for mut event in made.drain(..) {
                node.decoration.apply(&mut event);
                number += 1;
                let made = origin.made.wrapping_mul(GENERATION).wrapping_add(number);
                new.push(self.add(event, Origin { made, ..origin }));
            }
            if let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) {
                slot.children = number;
            }
        }
        if let Some(flush) = self.flush {
            let flushed = catch_unwind(AssertUnwindSafe(|| filter.flush(flush, &mut made)));
            if let Err(panic) = flushed {
                tracing::error!(plugin = %node.label.id, reason = panic_text(&*panic), "the flush of a filter panicked");
            }
            new.extend(made.drain(..).map(|event| self.add(event, CLOCK)));
        }
        left.extend(new);
        node.label.meter.went_out(left.len());
        node.label.meter.took(began.elapsed());
        left
    }

    /// Takes a selection through a filter that asks other servers, several events at the same time.
    async fn apply_remote(
        &mut self,
        node: &FilterNode,
        filter: &dyn RemoteFilter,
        selected: Vec<usize>,
    ) -> Vec<usize> {
        let began = Instant::now();
        node.label.meter.came_in(selected.len());
        let slots: Vec<(usize, Slot)> =
            selected.into_iter().filter_map(|at| Some((at, self.slots.get_mut(at)?.take()?))).collect();
        let allowance = Arc::clone(&self.allowance);
        let allowance = &*allowance;
        let lookups = slots.into_iter().map(|(at, mut slot)| async move {
            let before = slot.event.bytes();
            let outcome = AssertUnwindSafe(filter.apply(&mut slot.event, allowance)).catch_unwind().await;
            allowance.add(slot.event.bytes().saturating_sub(before));
            (at, slot, outcome)
        });
        let mut lookups = futures::stream::iter(lookups).buffered(filter.concurrency().max(1));
        let mut left = Vec::new();
        while let Some((at, mut slot, outcome)) = lookups.next().await {
            let is_matched = matches!(outcome, Ok(Outcome::Matched));
            if is_matched {
                node.decoration.apply(&mut slot.event);
            }
            if let Some(place) = self.slots.get_mut(at) {
                *place = Some(slot);
            }
            match outcome {
                Ok(Outcome::Matched | Outcome::Unmatched) => left.push(at),
                Ok(Outcome::Dropped) => {
                    if let Some(place) = self.slots.get_mut(at) {
                        *place = None;
                    }
                }
                Err(panic) => self.reject_panicked(at, node, &*panic),
            }
        }
        drop(lookups);
        node.label.meter.went_out(left.len());
        node.label.meter.took(began.elapsed());
        left
    }

    fn reject_panicked(&mut self, at: usize, node: &FilterNode, panic: &(dyn Any + Send)) {
        node.label.meter.failed(1);
        let reason = format!("the filter failed: {}", panic_text(panic));
        tracing::error!(plugin = %node.label.id, reason, "a filter panicked");
        self.reject(at, &node.label.id, reason);
    }

    /// Takes a selection through outputs. `send` is told which events an output gets.
    pub(crate) fn output<N>(
        &mut self,
        block: &[Node<N>],
        events: &[Option<(OutputEvent, Origin)>],
        selected: &[usize],
        send: &mut impl FnMut(&mut Self, &N, &[usize]),
    ) {
        for node in block {
            if selected.is_empty() {
                return;
            }
            match node {
                Node::Plugin(node) => send(self, node, selected),
                Node::Branch(branch) => {
                    let mut rest = selected.to_vec();
                    for (condition, block) in &branch.arms {
                        let (mut taken, mut others) = (Vec::new(), Vec::new());
                        for at in rest {
                            let Some((event, origin)) = events.get(at).and_then(Option::as_ref) else {
                                continue;
                            };
                            match condition.holds(event) {
                                Ok(true) => taken.push(at),
                                Ok(false) => others.push(at),
                                Err(undecided) => self.rejected.push(RejectedEvent {
                                    event: event.to_shared(),
                                    batch: origin.batch,
                                    plugin: Arc::clone(&branch.id),
                                    reason: undecided.0,
                                }),
                            }
                        }
                        self.output(block, events, &taken, send);
                        rest = others;
                    }
                    self.output(&branch.otherwise, events, &rest, send);
                }
            }
        }
    }
}
