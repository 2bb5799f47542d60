//! The computing part of a portion of the queue: events through filters, then what is to be written and sent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use millrace_ingest::budget::Reservation;
use millrace_ingest::output::{Output, Sink};
use millrace_ingest::{Ack, Event, Move};
use millrace_storage::WriteOp;
use ring::digest::{Context, SHA256};

use super::queue::Entry;
use crate::graph::walk::{Flow, Origin, Rejected};
use crate::graph::{Label, OutputNode};
use crate::meter::Meter;

/// What became of a portion.
#[derive(Debug)]
pub(super) struct Work {
    /// Positions to be moved and who waits, by batch.
    pub(super) batches: Vec<(Option<Move>, Ack)>,
    /// Room that the events of the batches take.
    pub(super) held: Vec<Reservation>,
    /// Operations on this server's indices.
    pub(super) ops: Vec<Planned>,
    /// What goes elsewhere.
    pub(super) sends: Vec<Send>,
    /// What ends here.
    pub(super) rejected: Vec<Rejected>,
    /// Events that came through the filters.
    pub(super) filtered: usize,
}

/// An operation and where it comes from.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) op: WriteOp,
    pub(super) batch: usize,
    /// The output, `None` for a dead letter.
    pub(super) output: Option<Arc<OutputNode>>,
}

/// Events for a sink.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) label: Label,
    /// With their stable ids.
    pub(super) events: Vec<(Arc<Event>, Option<String>)>,
    /// Which batch each comes from.
    pub(super) batches: Vec<usize>,
}

/// Takes a portion through its graph.
pub(super) fn run(portion: Vec<Entry>, meter: &Meter) -> Work {
    let began = Instant::now();
    let mut flow = Flow::default();
    let (mut batches, mut held) = (Vec::with_capacity(portion.len()), Vec::with_capacity(portion.len()));
    let mut graph = None;
    for (number, entry) in portion.into_iter().enumerate() {
        for (ordinal, mut event) in entry.batch.events.into_iter().enumerate() {
            entry.input.decoration.apply(&mut event);
            flow.add(event, Origin { batch: number, ordinal, made: 0 });
        }
        batches.push((entry.batch.position, entry.batch.ack));
        held.push(entry.batch.held);
        graph = Some(entry.graph);
    }
    let mut work =
        Work { batches, held, ops: Vec::new(), sends: Vec::new(), rejected: Vec::new(), filtered: 0 };
    let Some(graph) = graph else { return work };
    let all = (0..flow.slots.len()).collect();
    let left = flow.filter(&graph.filters, all);
    work.filtered = left.len();
    let events: Vec<Option<(Arc<Event>, Origin)>> =
        flow.slots.drain(..).map(|slot| slot.map(|slot| (Arc::new(slot.event), slot.origin))).collect();
    flow.output(&graph.outputs, &events, &left, &mut |flow, node: &Arc<OutputNode>, selected| {
        let began = Instant::now();
        node.label.meter.came_in(selected.len());
        let chosen = selected.iter().filter_map(|at| events.get(*at).and_then(Option::as_ref));
        match &node.output {
            Output::Local(local) => {
                for (event, origin) in chosen {
                    // Positions move with what is written here: it is there once, whatever its id.
                    let made = catch_unwind(AssertUnwindSafe(|| local.operation(event, None)));
                    match made.unwrap_or_else(|_| Err("the output panicked".to_owned())) {
                        Ok(op) => {
                            let output = Some(Arc::clone(node));
                            work.ops.push(Planned { op, batch: origin.batch, output });
                        }
                        Err(reason) => {
                            node.label.meter.failed(1);
                            flow.rejected.push(Rejected {
                                event: Arc::clone(event),
                                batch: origin.batch,
                                plugin: Arc::clone(&node.label.id),
                                reason,
                            });
                        }
                    }
                }
                node.label.meter.took(began.elapsed());
            }
            Output::Sink(sink) => {
                let mut send = Send {
                    sink: Arc::clone(sink),
                    label: node.label.clone(),
                    events: Vec::with_capacity(selected.len()),
                    batches: Vec::with_capacity(selected.len()),
                };
                for (event, origin) in chosen {
                    let position = work.batches.get(origin.batch).and_then(|(position, _)| position.as_ref());
                    let id = position.map(|position| stable_id(position, *origin));
                    send.events.push((Arc::clone(event), id));
                    send.batches.push(origin.batch);
                }
                work.sends.push(send);
            }
        }
    });
    work.rejected = flow.rejected;
    meter.were_filtered(work.filtered);
    meter.took(began.elapsed());
    work
}

/// An id that an event has again when it is read again from the same position.
fn stable_id(position: &Move, origin: Origin) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut context = Context::new(&SHA256);
    let previous = position.previous.as_deref().unwrap_or_default();
    for part in [position.source.as_bytes(), position.partition.as_bytes(), previous] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.update(&(origin.ordinal as u64).to_be_bytes());
    context.update(&origin.made.to_be_bytes());
    let digest = context.finish();
    URL_SAFE_NO_PAD.encode(digest.as_ref().get(..15).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn ids_are_stable_and_tell_events_apart() {
        let at = |previous: Option<&'static [u8]>| Move {
            source: "topic".to_owned(),
            partition: "0".to_owned(),
            previous: previous.map(Bytes::from_static),
            new: Bytes::from_static(b"9"),
            owner_epoch: 7,
        };
        let origin = Origin { batch: 3, ordinal: 1, made: 0 };
        let id = stable_id(&at(Some(b"1")), origin);
        assert_eq!(id.len(), 20);
        let again = Move { owner_epoch: 8, new: Bytes::from_static(b"10"), ..at(Some(b"1")) };
        assert_eq!(stable_id(&again, Origin { batch: 0, ..origin }), id, "the same event read again");
        assert_ne!(stable_id(&at(None), origin), id);
        assert_ne!(stable_id(&at(Some(b"1")), Origin { made: 1, ..origin }), id);
        assert_ne!(stable_id(&at(Some(b"1")), Origin { ordinal: 2, ..origin }), id);
    }
}
