//! The computing part of a delivery of the queue: events through filters, then what is to be written and sent.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrace_catalog::operation::WriteOp;
use millrace_ingest::budget::{AnswerAllowance, PipelineShare, Reservation};
use millrace_ingest::output::{Local, LocalWrite, Output, Sink};
use millrace_ingest::{Ack, Event, Move, Provenance};
use millrace_runtime::Instant;
use ring::digest::{Context, SHA256};

use super::delivery::Delivery;
use super::generation::Generation;
use super::queue::Entry;
use crate::filter::Flush;
use crate::graph::output_event::OutputEvent;
use crate::graph::route::Route;
use crate::graph::walk::{Flow, Origin, RejectedEvent, Slot};
use crate::graph::{Label, Node, OutputNode};
use crate::meter::Meter;

/// Result of the filters for a delivery.
#[derive(Debug)]
pub(super) struct FilteredDelivery {
    /// Waiting acknowledgements, by batch.
    pub(super) acks: Vec<Ack>,
    /// Room that the events of the batches take.
    pub(super) held: Vec<Reservation>,
    pub(super) delivery: Delivery,
}

/// Events that came through the filters.
#[derive(Debug)]
pub(super) struct Filtered {
    /// By place; an event that ended in the filters left its place empty.
    pub(super) events: Vec<Option<(OutputEvent, Origin)>>,
    /// Positions to be moved, by batch.
    pub(super) moves: Vec<Option<Move>>,
}

/// Plan of the outputs for a delivery.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Operations on this server's indices.
    pub(super) ops: Vec<PlannedOperation>,
    /// Outputs of the operations.
    pub(super) outputs: Vec<Arc<OutputNode>>,
    /// Events that go elsewhere.
    pub(super) sends: Vec<SinkEvents>,
    /// Events that end here.
    pub(super) rejected: Vec<RejectedEvent>,
    /// `true` once the operations went through ingest pipelines.
    pub(super) is_pipelined: bool,
}

/// An operation and where it comes from.
#[derive(Debug)]
pub(super) struct PlannedOperation {
    pub(super) op: WriteOp,
    pub(super) batch: usize,
    /// Index of the output in its plan, `None` for a dead letter.
    pub(super) output: Option<usize>,
    /// Place of its event in the delivery, and the ingest pipeline that its output names.
    pub(super) event: Option<usize>,
    pub(super) pipeline: Option<Arc<str>>,
}

impl PlannedOperation {
    /// Makes an operation of the server's own, which no output asks for.
    pub(super) fn of_server(op: WriteOp, batch: usize) -> Self {
        Self { op, batch, output: None, event: None, pipeline: None }
    }
}

/// Events for a sink.
#[derive(Debug)]
pub(super) struct SinkEvents {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) label: Label,
    /// With their stable ids.
    pub(super) events: Vec<(Arc<Event>, Option<String>)>,
    /// The place of each in the delivery.
    pub(super) places: Vec<usize>,
}

/// Places of events that sinks have taken, by the ids of outputs.
pub(super) type AcceptedPositions = HashMap<Arc<str>, Vec<usize>>;

/// Takes a delivery through a graph. `is_last` says that no more come for this graph. What filters add from other servers counts in the
/// share of the pipeline, as its events do.
pub(super) async fn run(
    (pipeline, share): (Arc<str>, PipelineShare),
    entries: Vec<Entry>,
    generation: Arc<Generation>,
    meter: Arc<Meter>,
    is_last: bool,
) -> FilteredDelivery {
    let began = Instant::now();
    let flush = if is_last { Flush::Final } else { Flush::Due };
    let allowance = Arc::new(AnswerAllowance::new(&share));
    let flush = generation.graph.is_flushed().then_some(flush);
    let mut flow = Flow { flush, allowance: Arc::clone(&allowance), ..Flow::default() };
    let (mut moves, mut acks) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
    let mut held = Vec::with_capacity(entries.len());
    let total: usize = entries.iter().map(|entry| entry.batch.events.len()).sum();
    // Events that no filter waits for are at their end at once.
    let for_sinks = generation.graph.has_sinks();
    let has_filters = !generation.graph.filters.is_empty();
    let mut unfiltered = Vec::new();
    match has_filters {
        true => flow.slots.reserve(total),
        false => unfiltered.reserve(total),
    }
    for (number, mut entry) in entries.into_iter().enumerate() {
        entry.input.decoration.apply(&mut entry.batch.events);
        for event in entry.batch.events {
            let provenance = event.provenance();
            let origin = Origin { batch: number, provenance, made: 0 };
            match has_filters {
                true => {
                    flow.add(event, origin);
                }
                false => unfiltered.push(Some((OutputEvent::new(event, for_sinks), origin))),
            }
        }
        moves.push(entry.batch.position);
        acks.push(entry.batch.ack);
        held.push(entry.batch.held);
    }
    let all: Vec<usize> = (0..total).collect();
    let (filtered, left, rejected) = match has_filters {
        true => {
            let left = flow.filter(&generation.graph.filters, all).await;
            let (filtered, rejected) = end_of_filters(flow, moves, for_sinks);
            (filtered, left, rejected)
        }
        false => (Filtered { events: unfiltered, moves }, all, Vec::new()),
    };
    held.push(allowance.take());
    meter.were_filtered(left.len());
    let plan = plan(&pipeline, &filtered, &left, &generation.graph.outputs, &AcceptedPositions::new());
    meter.took(began.elapsed());
    FilteredDelivery { acks, held, delivery: Delivery::new(filtered, left, rejected, generation, plan) }
}

/// Takes the event of a dead letter through the part of a graph that is meant by the id of what refused it. With what becomes
/// of it, its letter is removed.
///
/// # Errors
/// There is no such part, with what to do.
pub(super) async fn run_letter(
    pipeline: Arc<str>,
    event: Event,
    removal: WriteOp,
    id: String,
    generation: Arc<Generation>,
) -> Result<Delivery, String> {
    let graph = Arc::clone(&generation.graph);
    let route = graph.route(&id)?;
    let mut flow = Flow::default();
    let mut left = vec![flow.add(event, Origin { batch: 0, provenance: None, made: 0 })];
    let outputs = match route {
        Route::Whole => {
            left = flow.filter(&graph.filters, left).await;
            graph.outputs.as_slice()
        }
        Route::Outputs(outputs) => outputs,
    };
    let (filtered, rejected) = end_of_filters(flow, vec![None], graph.has_sinks());
    let mut plan = plan(&pipeline, &filtered, &left, outputs, &AcceptedPositions::new());
    plan.ops.push(PlannedOperation::of_server(removal, 0));
    let mut delivery = Delivery::new(filtered, left, rejected, generation, plan);
    delivery.is_letter = true;
    Ok(delivery)
}

/// Splits the result of the filters: events that passed, and events that were rejected.
fn end_of_filters(flow: Flow, moves: Vec<Option<Move>>, for_sinks: bool) -> (Filtered, Vec<RejectedEvent>) {
    let slots = flow.slots.into_iter();
    let output_event = |slot: Slot| (OutputEvent::new(slot.event, for_sinks), slot.origin);
    let events = slots.map(|slot| slot.map(output_event)).collect();
    (Filtered { events, moves }, flow.rejected)
}

/// Asks outputs what is to be done with the events at some places, but for those that a sink has taken already.
pub(super) fn plan(
    pipeline: &str,
    filtered: &Filtered,
    places: &[usize],
    outputs: &[Node<Arc<OutputNode>>],
    taken: &AcceptedPositions,
) -> Plan {
    let mut plan = Plan::default();
    let mut flow = Flow::default();
    let Filtered { events, moves } = filtered;
    flow.output(outputs, events, places, &mut |flow, node: &Arc<OutputNode>, selected| {
        let began = Instant::now();
        node.label.meter.came_in(selected.len());
        let chosen = selected.iter().filter_map(|at| Some((*at, events.get(*at).and_then(Option::as_ref)?)));
        match &node.output {
            Output::Local(local) => {
                let chosen: Vec<(usize, &(OutputEvent, Origin))> = chosen.collect();
                let output = Some(plan.outputs.len());
                plan.outputs.push(Arc::clone(node));
                plan.ops.reserve(chosen.len());
                for (at, reason) in add_operations(&**local, &chosen, output, &mut plan.ops) {
                    let Some((_, (event, origin))) = chosen.get(at) else { continue };
                    node.label.meter.failed(1);
                    flow.rejected.push(RejectedEvent {
                        event: event.to_shared(),
                        batch: origin.batch,
                        plugin: Arc::clone(&node.label.id),
                        reason,
                    });
                }
                node.label.meter.took(began.elapsed());
            }
            Output::Sink(sink) => {
                let mut send = SinkEvents {
                    sink: Arc::clone(sink),
                    label: node.label.clone(),
                    events: Vec::with_capacity(selected.len()),
                    places: Vec::with_capacity(selected.len()),
                };
                let taken: HashSet<usize> =
                    taken.get(&node.label.id).into_iter().flatten().copied().collect();
                for (at, (event, origin)) in chosen.filter(|(at, _)| !taken.contains(at)) {
                    let position = moves.get(origin.batch).and_then(Option::as_ref);
                    let id =
                        position.and_then(|position| stable_id(pipeline, &node.label.id, position, *origin));
                    send.events.push((event.to_shared(), id));
                    send.places.push(at);
                }
                if !send.events.is_empty() {
                    plan.sends.push(send);
                }
            }
        }
    });
    plan.rejected = flow.rejected;
    plan
}

/// Asks an output for the operations of events, and adds them; returns the numbers of events that there are none for, with the reasons.
/// Positions move with what is written here: it is there once, whatever its id.
fn add_operations(
    local: &dyn Local,
    chosen: &[(usize, &(OutputEvent, Origin))],
    output: Option<usize>,
    ops: &mut Vec<PlannedOperation>,
) -> Vec<(usize, String)> {
    let events: Vec<&Event> = chosen.iter().map(|(_, (event, _))| &**event).collect();
    let mut refused = Vec::new();
    let add_to =
        |number: usize, made, ops: &mut Vec<PlannedOperation>, refused: &mut Vec<(usize, String)>| {
            let Some((at, (_, origin))) = chosen.get(number) else { return };
            match made {
                Ok(LocalWrite { op, pipeline }) => {
                    let (batch, event) = (origin.batch, Some(*at));
                    ops.push(PlannedOperation { op, batch, output, event, pipeline });
                }
                Err(reason) => refused.push((number, reason)),
            }
        };
    let (before, mut number) = (ops.len(), 0);
    let all = catch_unwind(AssertUnwindSafe(|| {
        local.operations(&events, &mut |made| {
            add_to(number, made, ops, &mut refused);
            number += 1;
        });
    }));
    if all.is_ok() && number == events.len() {
        return refused;
    }
    // A defect costs the event that brings it to light, not the others.
    ops.truncate(before);
    refused.clear();
    for (number, event) in events.iter().enumerate() {
        let made = catch_unwind(AssertUnwindSafe(|| local.operation(event, None)));
        let made = made.unwrap_or_else(|_| Err("the output panicked".to_owned()));
        add_to(number, made, ops, &mut refused);
    }
    refused
}

/// An id that an event has again when it is read again, however it is cut into batches then.
/// Another pipeline, and another output of this one, may send the same event to the same place: theirs is another document.
fn stable_id(pipeline: &str, output: &str, position: &Move, origin: Origin) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let Provenance { record, incarnation, ordinal } = origin.provenance?;
    let mut context = Context::new(&SHA256);
    for part in [pipeline, output, &position.source, &position.partition].map(str::as_bytes) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.update(&record.to_be_bytes());
    context.update(&incarnation.to_be_bytes());
    context.update(&ordinal.to_be_bytes());
    context.update(&origin.made.to_be_bytes());
    let digest = context.finish();
    Some(URL_SAFE_NO_PAD.encode(digest.as_ref().get(..15).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn ids_are_stable_and_tell_events_apart() {
        let at = |partition: &str| Move {
            source: "topic".to_owned(),
            partition: partition.to_owned(),
            previous: None,
            new: Bytes::from_static(b"9"),
            owner_epoch: 7,
        };
        let provenance = Provenance { record: 4, incarnation: 5, ordinal: 0 };
        let origin = Origin { batch: 3, provenance: Some(provenance), made: 0 };
        let id = stable_id("main", "out", &at("0"), origin).unwrap();
        assert_eq!(id.len(), 20);
        let previous = Some(Bytes::from_static(b"3"));
        let again = Move { owner_epoch: 8, new: Bytes::from_static(b"10"), previous, ..at("0") };
        let same = stable_id("main", "out", &again, Origin { batch: 0, ..origin });
        assert_eq!(same.as_ref(), Some(&id), "the same event read again");
        let other = |provenance| {
            stable_id("main", "out", &at("0"), Origin { provenance: Some(provenance), ..origin })
        };
        let others = [
            stable_id("other", "out", &at("0"), origin),
            stable_id("main", "other", &at("0"), origin),
            stable_id("main", "out", &at("1"), origin),
            stable_id("main", "out", &at("0"), Origin { made: 1, ..origin }),
            other(Provenance { record: 5, ..provenance }),
            other(Provenance { incarnation: 4, ..provenance }),
            other(provenance.next()),
        ];
        for other in others {
            assert_ne!(other.unwrap(), id);
        }
        assert_eq!(stable_id("main", "out", &at("0"), Origin { provenance: None, ..origin }), None);
    }
}
