//! The order in which what was taken from the queue is sent, committed and told: whatever is computed at the same time, batches
//! of one partition follow each other, and all of them do where the pipeline keeps the order.

use std::collections::HashMap;

use millrace_ingest::Move;
use millrace_ingest::output::Place;
use tokio::sync::watch;

/// Partitions remembered before those are forgotten that nobody waits for.
const REMEMBERED: usize = 1_024;

/// Who is last for each partition, and over all.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// By source and partition.
    last: HashMap<(String, String), Left>,
    last_of_all: Option<Left>,
}

/// What closes when the places of a turn are left.
#[derive(Clone, Debug)]
struct Left {
    sending: watch::Receiver<()>,
    writing: watch::Receiver<()>,
    telling: watch::Receiver<()>,
}

/// A turn has three places: one among those who send to sinks, one among those who write, and one among those who tell their
/// sources. Each is to be kept until it has come: dropped, it lets the next ones go.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) sending: Stage,
    pub(super) writing: Stage,
    pub(super) telling: Stage,
}

/// A place and those before it.
#[derive(Debug)]
pub(super) struct Stage {
    before: Vec<watch::Receiver<()>>,
    place: Place,
}

impl Sequence {
    /// Takes a place behind all that concern the same partitions, or behind all.
    pub(super) fn enter<'m>(&mut self, moves: impl Iterator<Item = &'m Move>, behind_all: bool) -> Turn {
        let [(sending, sent), (writing, written), (telling, told)] = [(); 3].map(|()| Place::new());
        let own = Left { sending: sent, writing: written, telling: told };
        let mut before: Vec<Left> = Vec::new();
        for position in moves {
            let partition = (position.source.clone(), position.partition.clone());
            if let Some(last) = self.last.insert(partition, own.clone())
                && !last.telling.same_channel(&own.telling)
            {
                before.push(last);
            }
        }
        let last_of_all = self.last_of_all.replace(own);
        if behind_all {
            before.extend(last_of_all);
        }
        if self.last.len() > REMEMBERED {
            self.last.retain(|_, last| last.telling.has_changed().is_ok());
        }
        let stage = |place, of: fn(&Left) -> &watch::Receiver<()>| Stage {
            before: before.iter().map(|left| of(left).clone()).collect(),
            place,
        };
        Turn {
            sending: stage(sending, |left| &left.sending),
            writing: stage(writing, |left| &left.writing),
            telling: stage(telling, |left| &left.telling),
        }
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
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;

    use super::*;

    fn of(partition: &str) -> Move {
        let partition = partition.to_owned();
        Move {
            source: "s".to_owned(),
            partition,
            previous: None,
            new: Bytes::from_static(b"1"),
            owner_epoch: 1,
        }
    }

    #[tokio::test]
    async fn partitions_wait_for_themselves_only() {
        let mut sequence = Sequence::default();
        let (a, b) = (of("a"), of("b"));
        let first = sequence.enter([&a, &a].into_iter(), false);
        let mut second = sequence.enter([&b].into_iter(), false);
        let mut third = sequence.enter([&a, &b].into_iter(), false);
        assert!(second.writing.come().now_or_never().is_some());
        assert!(third.writing.come().now_or_never().is_none());
        drop(first);
        assert!(third.writing.come().now_or_never().is_none(), "the second is not through");
        drop(second);
        assert!(third.writing.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn in_order_everything_waits() {
        let mut sequence = Sequence::default();
        let first = sequence.enter(std::iter::empty(), true);
        let mut second = sequence.enter(std::iter::empty(), true);
        assert!(second.writing.come().now_or_never().is_none());
        drop(first);
        let mut third = sequence.enter(std::iter::empty(), true);
        drop(second);
        assert!(third.writing.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn the_next_may_send_before_it_may_write() {
        let mut sequence = Sequence::default();
        let a = of("a");
        let Turn { sending, writing, telling } = sequence.enter([&a].into_iter(), false);
        let mut second = sequence.enter([&a].into_iter(), false);
        let in_flight = sending.place();
        drop(sending);
        assert!(second.sending.come().now_or_never().is_none(), "a sink has the place");
        drop(in_flight);
        assert!(second.sending.come().now_or_never().is_some());
        assert!(second.writing.come().now_or_never().is_none());
        drop(writing);
        assert!(second.writing.come().now_or_never().is_some());
        assert!(second.telling.come().now_or_never().is_none());
        drop(telling);
        assert!(second.telling.come().now_or_never().is_some());
    }
}
