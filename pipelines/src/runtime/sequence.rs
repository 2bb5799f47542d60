//! The order in which what was taken from the queue is committed: whatever is computed at the same time, batches of
//! one partition follow each other, and all of them do where the pipeline keeps the order.

use std::collections::HashMap;

use millrace_ingest::Move;
use tokio::sync::watch;

/// Partitions remembered before those are forgotten that nobody waits for.
const REMEMBERED: usize = 1_024;

/// Who is last for each partition, and over all.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// By source and partition.
    last: HashMap<(String, String), watch::Receiver<()>>,
    last_of_all: Option<watch::Receiver<()>>,
}

/// A place in the order. Dropped, it lets the next ones go.
#[derive(Debug)]
pub(super) struct Turn {
    before: Vec<watch::Receiver<()>>,
    _done: watch::Sender<()>,
}

impl Sequence {
    /// Takes a place behind all that concern the same partitions, or behind all.
    pub(super) fn enter<'m>(&mut self, moves: impl Iterator<Item = &'m Move>, behind_all: bool) -> Turn {
        let (done, waiting) = watch::channel(());
        let mut before: Vec<watch::Receiver<()>> = Vec::new();
        for position in moves {
            let partition = (position.source.clone(), position.partition.clone());
            if let Some(last) = self.last.insert(partition, waiting.clone())
                && !last.same_channel(&waiting)
            {
                before.push(last);
            }
        }
        let last_of_all = self.last_of_all.replace(waiting);
        if behind_all {
            before.extend(last_of_all);
        }
        if self.last.len() > REMEMBERED {
            self.last.retain(|_, last| last.has_changed().is_ok());
        }
        Turn { before, _done: done }
    }
}

impl Turn {
    /// Waits until all before are through.
    pub(super) async fn come(&mut self) {
        while let Some(before) = self.before.last_mut() {
            // Nothing is ever sent: the only change is that the other side is gone.
            while before.changed().await.is_ok() {}
            self.before.pop();
        }
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
        assert!(second.come().now_or_never().is_some());
        assert!(third.come().now_or_never().is_none());
        drop(first);
        assert!(third.come().now_or_never().is_none(), "the second is not through");
        drop(second);
        assert!(third.come().now_or_never().is_some());
    }

    #[tokio::test]
    async fn in_order_everything_waits() {
        let mut sequence = Sequence::default();
        let first = sequence.enter(std::iter::empty(), true);
        let mut second = sequence.enter(std::iter::empty(), true);
        assert!(second.come().now_or_never().is_none());
        drop(first);
        let mut third = sequence.enter(std::iter::empty(), true);
        drop(second);
        assert!(third.come().now_or_never().is_some());
    }
}
