//! The order of sending, committing and telling: however deliveries are computed, batches of one partition follow each other, and
//! all of them do where the pipeline keeps the order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use millrace_ingest::Move;
use millrace_ingest::output::OrderTicket;
use tokio::sync::watch;

use super::generation::Generation;

/// Partitions remembered before those are forgotten that nobody waits for.
const REMEMBERED: usize = 1_024;

/// Last ticket of each partition, and over all.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// By source and partition.
    last: HashMap<(String, String), TicketRelease>,
    last_of_all: Option<TicketRelease>,
}

/// Signals that close when the places of a ticket are left, and the graph of its events.
#[derive(Clone, Debug)]
struct TicketRelease {
    generation: Weak<Generation>,
    sending: watch::Receiver<()>,
    writing: watch::Receiver<()>,
    reporting: watch::Receiver<()>,
}

/// A ticket has three places: one among those who send to sinks, one among those who write, and one among those who tell their
/// sources. Each is to be kept until it has come: dropped, it lets the next ones go.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) sending: Stage,
    pub(super) writing: Stage,
    pub(super) reporting: Stage,
}

/// A place and those before it.
#[derive(Debug)]
pub(super) struct Stage {
    before: Vec<watch::Receiver<()>>,
    place: OrderTicket,
}

impl Sequence {
    /// Takes a place behind all that concern the same partitions, or behind all. Behind what goes through another
    /// graph nothing is sent before that is written: sinks of different graphs know nothing of each other's order, and what one
    /// of them gives up is sent again.
    pub(super) fn enter<'m>(
        &mut self,
        moves: impl Iterator<Item = &'m Move>,
        behind_all: bool,
        generation: &Arc<Generation>,
    ) -> Ticket {
        let [(sending, sent), (writing, written), (reporting, told)] = [(); 3].map(|()| OrderTicket::new());
        let generation = Arc::downgrade(generation);
        let own = TicketRelease {
            generation: Weak::clone(&generation),
            sending: sent,
            writing: written,
            reporting: told,
        };
        let mut before: Vec<TicketRelease> = Vec::new();
        for position in moves {
            let partition = (position.source.clone(), position.partition.clone());
            if let Some(last) = self.last.insert(partition, own.clone())
                && !last.reporting.same_channel(&own.reporting)
            {
                before.push(last);
            }
        }
        let last_of_all = self.last_of_all.replace(own);
        if behind_all {
            before.extend(last_of_all);
        }
        if self.last.len() > REMEMBERED {
            self.last.retain(|_, last| last.reporting.has_changed().is_ok());
        }
        let stage = |place, of: fn(&TicketRelease) -> &watch::Receiver<()>| Stage {
            before: before.iter().map(|left| of(left).clone()).collect(),
            place,
        };
        Ticket {
            sending: Stage {
                before: before.iter().map(|left| left.before_sending(&generation)).collect(),
                place: sending,
            },
            writing: stage(writing, |left| &left.writing),
            reporting: stage(reporting, |left| &left.reporting),
        }
    }
}

impl TicketRelease {
    fn before_sending(&self, generation: &Weak<Generation>) -> watch::Receiver<()> {
        let same = Weak::ptr_eq(&self.generation, generation);
        if same { self.sending.clone() } else { self.writing.clone() }
    }
}

impl Stage {
    /// Waits until all before are through.
    pub(super) async fn come(&mut self) {
        while let Some(before) = self.before.last_mut() {
            // Nothing is ever sent: the only change is that the other side is gone.
            while before.changed().await.is_ok() {}
            self.before.pop();
        }
    }

    /// The place: it is kept for as long as somebody has it.
    pub(super) fn place(&self) -> OrderTicket {
        self.place.clone()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;

    use super::super::generation::Generations;
    use super::*;
    use crate::Graph;

    fn move_of(partition: &str) -> Move {
        let partition = partition.to_owned();
        Move {
            source: "s".to_owned(),
            partition,
            previous: None,
            new: Bytes::from_static(b"1"),
            owner_epoch: 1,
        }
    }

    fn generations() -> Generations {
        Generations::new(Arc::from("main"), graph(), None)
    }

    fn graph() -> Arc<Graph> {
        Arc::new(Graph { inputs: Vec::new(), filters: Vec::new(), outputs: Vec::new() })
    }

    #[tokio::test]
    async fn behind_another_graph_nothing_is_sent_before_that_is_written() {
        let (mut sequence, generations) = (Sequence::default(), generations());
        let a = move_of("a");
        let Ticket { sending, writing, reporting: _reporting } =
            sequence.enter([&a].into_iter(), false, &generations.current());
        generations.replace(graph());
        let mut second = sequence.enter([&a].into_iter(), false, &generations.current());
        let mut third = sequence.enter([&a].into_iter(), false, &generations.current());
        drop(sending);
        assert!(second.sending.come().now_or_never().is_none());
        drop(writing);
        assert!(second.sending.come().now_or_never().is_some());
        assert!(third.sending.come().now_or_never().is_none());
        drop(second.sending);
        assert!(third.sending.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn partitions_wait_for_themselves_only() {
        let (mut sequence, generation) = (Sequence::default(), generations().current());
        let (a, b) = (move_of("a"), move_of("b"));
        let first = sequence.enter([&a, &a].into_iter(), false, &generation);
        let mut second = sequence.enter([&b].into_iter(), false, &generation);
        let mut third = sequence.enter([&a, &b].into_iter(), false, &generation);
        assert!(second.writing.come().now_or_never().is_some());
        assert!(third.writing.come().now_or_never().is_none());
        drop(first);
        assert!(third.writing.come().now_or_never().is_none(), "the second is not through");
        drop(second);
        assert!(third.writing.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn in_order_everything_waits() {
        let (mut sequence, generation) = (Sequence::default(), generations().current());
        let first = sequence.enter(std::iter::empty(), true, &generation);
        let mut second = sequence.enter(std::iter::empty(), true, &generation);
        assert!(second.writing.come().now_or_never().is_none());
        drop(first);
        let mut third = sequence.enter(std::iter::empty(), true, &generation);
        drop(second);
        assert!(third.writing.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn the_next_may_send_before_it_may_write() {
        let (mut sequence, generation) = (Sequence::default(), generations().current());
        let a = move_of("a");
        let Ticket { sending, writing, reporting } = sequence.enter([&a].into_iter(), false, &generation);
        let mut second = sequence.enter([&a].into_iter(), false, &generation);
        let in_flight = sending.place();
        drop(sending);
        assert!(second.sending.come().now_or_never().is_none(), "a sink has the place");
        drop(in_flight);
        assert!(second.sending.come().now_or_never().is_some());
        assert!(second.writing.come().now_or_never().is_none());
        drop(writing);
        assert!(second.writing.come().now_or_never().is_some());
        assert!(second.reporting.come().now_or_never().is_none());
        drop(reporting);
        assert!(second.reporting.come().now_or_never().is_some());
    }
}
