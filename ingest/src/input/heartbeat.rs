//! `heartbeat`: an event in each interval, to see that a pipeline works.
//!
//! Nothing is stored about the beats: each start begins anew.

use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use serde_json::Value;

use super::{Context, Input, InputError, additions, host_name, stopped};
use crate::{Ack, Batch, EcsCompatibility, Event, Fault, Options};

/// Message where none is given.
const MESSAGE: &str = "ok";
/// Seconds between two beats where nothing is said.
const INTERVAL: i64 = 60;
/// Longest interval in seconds.
const MAX_INTERVAL: i64 = 366 * 86_400;

/// Content of the field `clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockField {
    Absent,
    /// Seconds since 1970.
    Epoch,
    /// Number of the beat, from 0.
    Sequence,
}

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Heartbeat {
    /// `None` where it only chose the clock.
    message: Option<String>,
    clock: ClockField,
    interval: Duration,
    /// Beats until the end; `None` for no end.
    count: Option<u64>,
    ecs: EcsCompatibility,
    host: String,
}

impl Heartbeat {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let message = options.text("message").unwrap_or_else(|| MESSAGE.to_owned());
        let sequence = options.one_of("sequence", &["none", "epoch", "sequence"]);
        let interval = options.integer("interval", 1..=MAX_INTERVAL).unwrap_or(INTERVAL);
        let count = options.integer("count", -1..=i64::MAX).and_then(|count| u64::try_from(count).ok());
        let _ = options.integer("threads", 1..=64);
        let _ = crate::codec::take(&mut options, "plain");
        let ecs = options.ecs_compatibility();
        options.finish()?;
        // The message chose the field before there was an option for it.
        let is_choice = !ecs.is_enabled() && sequence.is_none();
        let clock = match (sequence, message.as_str()) {
            (Some("epoch"), _) => ClockField::Epoch,
            (Some("sequence"), _) => ClockField::Sequence,
            (None, "epoch") if is_choice => ClockField::Epoch,
            (None, "sequence") if is_choice => ClockField::Sequence,
            _ => ClockField::Absent,
        };
        let message = (!is_choice || clock == ClockField::Absent).then_some(message);
        let interval = Duration::from_secs(interval.unsigned_abs());
        Ok(Self { message, clock, interval, count, ecs, host: host_name() })
    }

    fn event(&self, beat: u64) -> Event {
        let now = Utc::now();
        let mut event = Event::new(now);
        if let Some(message) = &self.message {
            event.set_text("message", message);
        }
        let mut additions = additions().at(self.ecs.select(&["host"], &["host", "name"]), self.host.as_str());
        let clock = match self.clock {
            ClockField::Absent => None,
            ClockField::Epoch => Some(Value::from(now.timestamp())),
            ClockField::Sequence => Some(Value::from(beat)),
        };
        if let Some(clock) = clock {
            additions = additions.at(self.ecs.select(&["clock"], &["event", "sequence"]), clock);
        }
        additions.add_to(&mut event);
        event
    }
}

#[async_trait]
impl Input for Heartbeat {
    fn identity(&self) -> String {
        "heartbeat".to_owned()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let mut stopping = context.stopping.clone();
        let mut beats = tokio::time::interval(self.interval);
        // A pipeline that was behind gets no burst of old beats.
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut beat = 0;
        while self.count.is_none_or(|count| beat < count) {
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                _ = beats.tick() => {}
            }
            let event = self.event(beat);
            let held = context.budget.overdraw(event.bytes());
            let batch = Batch { events: vec![event], position: None, ack: Ack::none(), held };
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                sent = context.batches.send(batch) => if sent.is_err() { return Ok(()) },
            }
            beat += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OptionValue, Pipeline, options};
    use super::*;

    async fn beats(given: &[(&str, OptionValue)]) -> Vec<Event> {
        let mut all = vec![("count", "3".into())];
        all.extend_from_slice(given);
        let heartbeat = Heartbeat::new(options("heartbeat", &all)).unwrap();
        let mut pipeline = Pipeline::new(1);
        let run = heartbeat.run(pipeline.context());
        let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
        ended.unwrap();
        pipeline.events
    }

    #[tokio::test(start_paused = true)]
    async fn beats_come_at_the_interval_until_the_count() {
        let before = tokio::time::Instant::now();
        let events = beats(&[("interval", "20".into())]).await;
        assert_eq!(before.elapsed(), Duration::from_secs(40));
        assert!(events.iter().all(|event| event.fields()["message"] == MESSAGE && event.has_field("host")));
        let clocks = |events: &[Event]| -> Vec<Value> {
            events.iter().map(|event| event.fields()["clock"].clone()).collect()
        };
        assert_eq!(clocks(&beats(&[("sequence", "sequence".into())]).await), [0, 1, 2]);
        let epochs = clocks(&beats(&[("message", "epoch".into())]).await);
        assert!(epochs.iter().all(Value::is_i64));
    }
}
