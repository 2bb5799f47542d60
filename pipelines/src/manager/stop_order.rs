//! The order in which pipelines stop: senders before the pipelines that they send to.
//!
//! A pipeline gives up its addresses when it stops. Events that another one still sends there would be lost with that one. Pipelines
//! in a cycle would wait for each other, so [`is_in_cycle`] tells of these before they run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use millrace_runtime::Instant;

use crate::Graph;
use crate::runtime::Pipeline;

/// Addresses of other pipelines that a pipeline has and sends to.
#[derive(Debug)]
struct PipelineAddresses {
    receiving: HashSet<String>,
    sending: HashSet<String>,
}

impl PipelineAddresses {
    fn of_graph(graph: &Graph) -> Self {
        Self { receiving: graph.receiving_addresses(), sending: graph.sending_addresses() }
    }
}

/// Returns whether events of a graph come back to it through pipelines that run.
pub(super) fn is_in_cycle(graph: &Graph, running: &[Arc<Pipeline>]) -> bool {
    let running: Vec<_> =
        running.iter().map(|pipeline| PipelineAddresses::of_graph(&pipeline.graph())).collect();
    comes_back(&PipelineAddresses::of_graph(graph), running)
}

fn comes_back(own: &PipelineAddresses, mut others: Vec<PipelineAddresses>) -> bool {
    let mut reached = own.sending.clone();
    loop {
        if !reached.is_disjoint(&own.receiving) {
            return true;
        }
        let is_reached = |other: &PipelineAddresses| !other.receiving.is_disjoint(&reached);
        let (next, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_reached);
        if next.is_empty() {
            return false;
        }
        reached.extend(next.into_iter().flat_map(|other| other.sending));
        others = rest;
    }
}

/// Stops pipelines, senders first. All of them have until the deadline; while others wait, half of the time that is left.
pub(super) async fn stop_senders_first(mut pipelines: Vec<Arc<Pipeline>>, deadline: Instant) {
    while !pipelines.is_empty() {
        let addresses: Vec<_> =
            pipelines.iter().map(|pipeline| PipelineAddresses::of_graph(&pipeline.graph())).collect();
        let is_next = next_to_stop(&addresses);
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
    fn events_come_back_through_other_pipelines() {
        let others = || vec![addresses(&["b"], &["c"]), addresses(&["c"], &["a", "d"])];
        assert!(comes_back(&addresses(&["a"], &["b"]), others()));
        assert!(!comes_back(&addresses(&["e"], &["b"]), others()));
        assert!(!comes_back(&addresses(&["a"], &[]), others()));
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
