//! Flushes of filters: the clock's, while a pipeline runs, and the last one of a graph.
//!
//! An entry without events goes through the queue for each, so that what it makes keeps the order of the events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::RuntimeContext;
use super::generation::Generation;
use super::queue::QueueSender;

/// Pause between two flushes by the clock, as in Logstash.
const PAUSE: Duration = Duration::from_secs(5);

/// Flushes filters by the clock from the first graph on that has such, until the queue ends.
pub(super) fn start(shared: &Arc<RuntimeContext>, queue: &QueueSender) {
    let is_flushed = shared.generations.current().graph.is_flushed();
    if is_flushed && !shared.flushing.swap(true, Ordering::AcqRel) {
        tokio::spawn(run(Arc::clone(shared), queue.clone()));
    }
}

async fn run(shared: Arc<RuntimeContext>, queue: QueueSender) {
    loop {
        tokio::select! {
            biased;
            () = queue.closed() => break,
            () = tokio::time::sleep(PAUSE) => {}
        }
        let generation = shared.generations.current();
        // A later graph may have such filters again.
        let Some(input) = generation.graph.inputs.first().filter(|_| generation.graph.is_flushed()) else {
            continue;
        };
        // Events that wait flush the filters as well.
        if queue.events() == 0 && !queue.flush(input, Arc::clone(&generation), false) {
            break;
        }
    }
    shared.flushing.store(false, Ordering::Release);
}

/// Queues the last flush of a graph, behind all that was queued for it.
pub(super) fn finish(generation: Arc<Generation>, queue: &QueueSender) {
    if !generation.graph.is_flushed() {
        return;
    }
    if let Some(input) = generation.graph.inputs.first() {
        queue.flush(input, Arc::clone(&generation), true);
    }
}
