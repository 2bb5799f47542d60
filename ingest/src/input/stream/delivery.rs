//! Events of protocols that acknowledge nothing, on their way to the pipeline.

use crate::budget::Reservation;
use crate::codec::Events;
use crate::input::Context;
use crate::{Ack, Batch, Event};

/// Hands events to the pipeline in batches and waits while it is behind. Returns `false` where the pipeline is gone.
pub(in crate::input) async fn send(events: Events, mut held: Reservation, context: &Context) -> bool {
    held.set(events.bytes());
    send_list(events.into_vec(), held, context).await
}

/// Hands events to the pipeline as [`send`] does. The reservation is that of these events.
pub(in crate::input) async fn send_list(
    mut events: Vec<Event>,
    mut held: Reservation,
    context: &Context,
) -> bool {
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(context.batch_size.get()));
        let part = match rest.is_empty() {
            true => std::mem::take(&mut held),
            false => held.split(events.iter().map(Event::bytes).sum()),
        };
        let batch = Batch { events, position: None, ack: Ack::none(), held: part };
        if context.batches.send(batch).await.is_err() {
            return false;
        }
        events = rest;
    }
    true
}

/// Hands one batch of a stream to the pipeline, once at most one other of the input waits there: more of them would only take memory.
/// Returns `false` where the pipeline is gone.
pub(super) async fn send_batch(events: Vec<Event>, held: Reservation, context: &Context) -> bool {
    let free = context.batches.max_capacity().saturating_sub(1).max(1);
    let Ok(mut permits) = context.batches.reserve_many(free).await else { return false };
    let Some(permit) = permits.next() else { return false };
    permit.send(Batch { events, position: None, ack: Ack::none(), held });
    true
}
