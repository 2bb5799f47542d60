//! `generator`: events made up, to try things and to measure.
//!
//! Nothing is stored about how far it is: each start begins anew.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, json};

use super::{Context, Input, InputError, additions, host_name, reserve_piece, stopped};
use crate::codec::{self, Codec, Events};
use crate::{Ack, Batch, EcsCompatibility, Event, Fault, Options};

/// Field of the number of a round; within `event` where fields have the names of the schema.
const SEQUENCE: &str = "sequence";
/// Message where none is given.
const MESSAGE: &str = "Hello world!";

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Generator {
    lines: Vec<String>,
    /// Rounds over the lines, 0 for no end.
    count: u64,
    threads: u64,
    codec: Arc<dyn Codec>,
    ecs: EcsCompatibility,
    host: String,
}

impl Generator {
    /// Makes the input.
    ///
    /// # Errors
    /// The faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let lines = options.texts("lines");
        let message = options.text("message");
        let count = options.integer("count", 0..=i64::MAX).unwrap_or(0);
        let threads = options.integer("threads", 1..=64).unwrap_or(1);
        let codec = codec::take(&mut options, "plain");
        let ecs = options.ecs_compatibility();
        if message.as_deref() == Some("stdin") {
            options.fault_here("[message => \"stdin\"] is not supported: use the input [stdin]");
        }
        options.finish()?;
        let lines =
            if lines.is_empty() { vec![message.unwrap_or_else(|| MESSAGE.to_owned())] } else { lines };
        let host = host_name();
        let (count, threads) = (count.unsigned_abs(), threads.unsigned_abs());
        Ok(Self { lines, count, threads, codec: codec?, ecs, host })
    }

    /// Makes the events of rounds from `first` on, every `threads`th of them, until there are `size`, or so many `bytes`;
    /// returns the round that comes next.
    fn events(&self, first: u64, size: usize, bytes: u64, events: &mut Events) -> u64 {
        let mut decoder = self.codec.decoder();
        let mut additions = additions().at(self.ecs.select(&["host"], &["host", "name"]), self.host.as_str());
        let mut round = first;
        // As many rounds at most as there are to be events: a codec may make none of a line.
        for _ in 0..size {
            if events.len() >= size || events.bytes() >= bytes || (self.count > 0 && round >= self.count) {
                break;
            }
            for line in &self.lines {
                let before = events.len();
                decoder.decode(line.as_bytes(), events);
                decoder.finish(events);
                for event in events.iter_mut().skip(before) {
                    additions.add_to(event);
                    self.number(event, round);
                }
            }
            round += self.threads;
        }
        round
    }

    /// Gives an event the number of its round, in place of a field of that name.
    fn number(&self, event: &mut Event, round: u64) {
        match self.ecs {
            EcsCompatibility::Disabled => event.set_number(SEQUENCE, round),
            _ => event.replace_members(&Map::from_iter([("event".to_owned(), json!({ SEQUENCE: round }))])),
        }
    }

    async fn one(&self, thread: u64, context: &Context) {
        let mut stopping = context.stopping.clone();
        let mut round = thread;
        loop {
            let size = context.batch_size.get();
            let Some(mut held) = reserve_piece(context).await else { return };
            let mut events = Events::default();
            round = self.events(round, size, held.bytes(), &mut events);
            if events.is_empty() && (self.count > 0 && round >= self.count) {
                return;
            }
            if events.is_empty() {
                tokio::task::yield_now().await;
                continue;
            }
            held.set(events.bytes());
            let batch = Batch { events: events.into_vec(), position: None, ack: Ack::none(), held };
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return,
                sent = context.batches.send(batch) => if sent.is_err() { return },
            }
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Input for Generator {
    fn identity(&self) -> String {
        "generator".to_owned()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        futures::future::join_all((0..self.threads).map(|thread| self.one(thread, &context))).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::super::testing::{Pipeline, options};
    use super::*;

    #[tokio::test]
    async fn it_makes_each_line_as_often_as_asked() {
        let given = options("generator", &[("count", "5".into())]);
        let generator = Generator::new(given).unwrap();
        let mut pipeline = Pipeline::new(2);
        let run = generator.run(pipeline.context());
        let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
        ended.unwrap();
        let sequence: Vec<_> =
            pipeline.events.iter().map(|event| event.fields()["sequence"].clone()).collect();
        assert_eq!(sequence, [0, 1, 2, 3, 4]);
        assert!(pipeline.events.iter().all(|event| event.fields()["message"] == MESSAGE));
        assert!(pipeline.events.iter().all(|event| event.timestamp() <= Utc::now()));
    }
}
