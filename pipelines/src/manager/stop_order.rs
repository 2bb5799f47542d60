//! The order in which pipelines stop: senders before the pipelines that they send to.
//!
//! A pipeline gives up its addresses when it stops. Events that another one still sends there would be lost with that one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use millrace_runtime::Instant;

use crate::runtime::Pipeline;

/// Addresses of other pipelines that a pipeline has and sends to.
#[derive(Debug)]
struct PipelineAddresses {
    receiving: HashSet<String>,
    sending: HashSet<String>,
}

/// Stops pipelines, senders first. All of them have until the deadline; while others wait, half of the time that is left.
pub(super) async fn stop_senders_first(mut pipelines: Vec<Arc<Pipeline>>, deadline: Instant) {
    while !pipelines.is_empty() {
        let addresses = |pipeline: &Arc<Pipeline>| {
            let graph = pipeline.graph();
            PipelineAddresses { receiving: graph.receiving_addresses(), sending: graph.sending_addresses() }
        };
        let is_next = next_to_stop(&pipelines.iter().map(addresses).collect::<Vec<_>>());
        let mut is_next = is_next.into_iter();
        let (next, others): (Vec<_>, Vec<_>) =
            pipelines.into_iter().partition(|_| is_next.next().unwrap_or(true));
        let left: Duration = deadline.saturating_duration_since(Instant::now());
        let patience = if others.is_empty() { left } else { left / 2 };
        join_all(next.iter().map(|pipeline| pipeline.stop(patience))).await;
        pipelines = others;
    }
}

/// Returns for each pipeline whether it stops next: no other one sends to it. In a cycle, all stop.
fn next_to_stop(pipelines: &[PipelineAddresses]) -> Vec<bool> {
    let has_sender = |at: usize, pipeline: &PipelineAddresses| {
        let mut others = pipelines.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, other)| !other.sending.is_disjoint(&pipeline.receiving))
    };
    let next: Vec<bool> =
        pipelines.iter().enumerate().map(|(at, pipeline)| !has_sender(at, pipeline)).collect();
    match next.contains(&true) {
        true => next,
        false => vec![true; pipelines.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(receiving: &[&str], sending: &[&str]) -> PipelineAddresses {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        PipelineAddresses { receiving: owned(receiving), sending: owned(sending) }
    }

    #[test]
    fn senders_stop_before_receivers() {
        let chain =
            [addresses(&["b"], &["c"]), addresses(&[], &["b"]), addresses(&["c"], &[]), addresses(&[], &[])];
        assert_eq!(next_to_stop(&chain), [false, true, false, true]);
        assert_eq!(next_to_stop(&[addresses(&["b"], &["c"]), addresses(&["c"], &[])]), [true, false]);
        // Another pipeline sends into a cycle; then the cycle remains.
        let cycle = [addresses(&["a"], &["b"]), addresses(&["b"], &["a"]), addresses(&[], &["a"])];
        assert_eq!(next_to_stop(&cycle), [false, false, true]);
        assert_eq!(next_to_stop(&cycle[..2]), [true, true]);
    }
}
