//! Events between the filters and their end: the plan of the outputs, and its completed part.
//!
//! As long as nothing of a delivery is written, its outputs can be asked anew: then it goes the way of another graph. What a
//! sink has taken is not sent again to the output of the same id.

use std::sync::Arc;

use millrace_ingest::Move;
use millrace_ingest::output::RefusedEvent;
use millrace_runtime::{Compute, Priority};

use super::generation::Generation;
use super::work::{AcceptedPositions, Filtered, Plan, PlannedOperation, SinkEvents, plan};
use crate::graph::walk::RejectedEvent;

/// Events on their way out.
#[derive(Debug)]
pub(super) struct Delivery {
    filtered: Arc<Filtered>,
    /// Places of the events that outputs get.
    places: Vec<usize>,
    /// Batches that it is of.
    batches: Vec<usize>,
    /// Events that end as dead letters whatever outputs say: filters or sinks refused them.
    rejected: Vec<RejectedEvent>,
    taken: AcceptedPositions,
    /// The graph that the plan is of.
    pub(super) generation: Arc<Generation>,
    pub(super) plan: Plan,
    /// `true` if it is of a dead letter that is sent again.
    pub(super) is_letter: bool,
}

impl Delivery {
    pub(super) fn new(
        filtered: Filtered,
        places: Vec<usize>,
        rejected: Vec<RejectedEvent>,
        generation: Arc<Generation>,
        plan: Plan,
    ) -> Self {
        let batches = (0..filtered.moves.len()).collect();
        let filtered = Arc::new(filtered);
        Self {
            filtered,
            places,
            batches,
            rejected,
            taken: AcceptedPositions::new(),
            generation,
            plan,
            is_letter: false,
        }
    }

    /// Positions to be moved.
    pub(super) fn moves(&self) -> impl Iterator<Item = &Move> {
        self.batches.iter().filter_map(|batch| self.filtered.moves.get(*batch)?.as_ref())
    }

    /// Returns the events that end as dead letters.
    pub(super) fn rejected(&self) -> impl Iterator<Item = &RejectedEvent> {
        self.rejected.iter().chain(&self.plan.rejected)
    }

    /// Takes note that a sink is through.
    pub(super) fn took(&mut self, send: SinkEvents, refused: Vec<RefusedEvent>) {
        let SinkEvents { label, places, .. } = send;
        for RefusedEvent { event, reason } in refused {
            let at = places.get(event).and_then(|at| self.filtered.events.get(*at)?.as_ref());
            let Some((event, origin)) = at else { continue };
            let (event, plugin) = (event.to_shared(), Arc::clone(&label.id));
            self.rejected.push(RejectedEvent { event, batch: origin.batch, plugin, reason });
        }
        self.taken.entry(label.id).or_default().extend(places);
    }

    /// Takes the planned operations of outputs that are to go through ingest pipelines; those of the server stay.
    pub(super) fn take_unpipelined(&mut self) -> Vec<PlannedOperation> {
        let asked = self.plan.ops.partition_point(|planned| planned.output.is_some());
        let own = self.plan.ops.split_off(asked);
        std::mem::replace(&mut self.plan.ops, own)
    }

    /// Puts planned operations of outputs back before those of the server.
    pub(super) fn restore(&mut self, mut ops: Vec<PlannedOperation>) {
        ops.append(&mut self.plan.ops);
        self.plan.ops = ops;
    }

    /// Rejects the event of a planned operation that an ingest pipeline failed for.
    pub(super) fn reject(&mut self, planned: &PlannedOperation, reason: String) {
        let event = planned.event.and_then(|at| self.filtered.events.get(at)?.as_ref());
        let output = planned.output.and_then(|at| self.plan.outputs.get(at));
        let (Some((event, _)), Some(output)) = (event, output) else { return };
        output.label.meter.failed(1);
        let (event, plugin) = (event.to_shared(), Arc::clone(&output.label.id));
        self.plan.rejected.push(RejectedEvent { event, batch: planned.batch, plugin, reason });
    }

    /// Asks the outputs of another graph.
    ///
    /// # Errors
    /// It could not be computed.
    pub(super) async fn plan_anew(
        &mut self,
        pipeline: Arc<str>,
        compute: &Compute,
        generation: Arc<Generation>,
    ) -> Result<(), millrace_runtime::Error> {
        let (filtered, places) = (Arc::clone(&self.filtered), std::mem::take(&mut self.places));
        let (graph, taken) = (Arc::clone(&generation.graph), std::mem::take(&mut self.taken));
        let job = move || {
            let plan = plan(&pipeline, &filtered, &places, &graph.outputs, &taken);
            Ok((plan, places, taken))
        };
        (self.plan, self.places, self.taken) = compute.run(Priority::Ingest, job).await?;
        self.generation = generation;
        Ok(())
    }

    /// Divides what is to be written into a delivery for each batch. Nothing is left to be sent.
    pub(super) fn by_batch(self) -> Vec<Self> {
        let empty = |batch: usize| Self {
            filtered: Arc::clone(&self.filtered),
            places: Vec::new(),
            batches: vec![batch],
            rejected: Vec::new(),
            taken: AcceptedPositions::new(),
            generation: Arc::clone(&self.generation),
            plan: Plan {
                is_pipelined: self.plan.is_pipelined,
                outputs: self.plan.outputs.clone(),
                ..Plan::default()
            },
            is_letter: self.is_letter,
        };
        // Nothing was divided before, so that batches are numbered from 0 on.
        let mut deliveries: Vec<Self> = self.batches.iter().map(|batch| empty(*batch)).collect();
        let batch_of = |at: usize| self.filtered.events.get(at)?.as_ref().map(|(_, origin)| origin.batch);
        for at in self.places {
            if let Some(delivery) = batch_of(at).and_then(|batch| deliveries.get_mut(batch)) {
                delivery.places.push(at);
            }
        }
        for (output, places) in self.taken {
            for at in places {
                if let Some(delivery) = batch_of(at).and_then(|batch| deliveries.get_mut(batch)) {
                    delivery.taken.entry(Arc::clone(&output)).or_default().push(at);
                }
            }
        }
        for rejected in self.rejected {
            if let Some(delivery) = deliveries.get_mut(rejected.batch) {
                delivery.rejected.push(rejected);
            }
        }
        for rejected in self.plan.rejected {
            if let Some(delivery) = deliveries.get_mut(rejected.batch) {
                delivery.plan.rejected.push(rejected);
            }
        }
        for planned in self.plan.ops {
            if let Some(delivery) = deliveries.get_mut(planned.batch) {
                delivery.plan.ops.push(planned);
            }
        }
        deliveries
    }
}
