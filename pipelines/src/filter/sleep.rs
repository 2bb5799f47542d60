//! `sleep`: lets events wait, to slow a pipeline down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use millrace_ingest::budget::AnswerAllowance;
use millrace_ingest::{Event, Fault, Options, Template};
use parking_lot::Mutex;

use super::{Outcome, RemoteFilter};

/// Longest wait of one event, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

#[derive(Debug)]
struct Sleep {
    time: Template,
    every: u64,
    /// `true` if events wait as long as they were apart when they happened.
    replays: bool,
    events: AtomicU64,
    /// Time of the last event, and of the clock then, in milliseconds.
    last: Mutex<Option<(i64, i64)>>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let replays = options.boolean("replay").unwrap_or(false);
    let time = options.template("time");
    if time.is_none() && !replays {
        options.fault_here("[sleep] needs the option [time], a number of seconds, or [replay => true]");
    }
    let every = options.integer("every", 1..=i64::from(i32::MAX)).unwrap_or(1);
    options.finish()?;
    Ok(Arc::new(Sleep {
        time: time.unwrap_or_else(|| Template::parse("1")),
        every: every.unsigned_abs(),
        replays,
        events: AtomicU64::new(0),
        last: Mutex::new(None),
    }))
}

impl Sleep {
    /// Returns the wait of an event.
    fn pause(&self, event: &Event) -> Option<Duration> {
        let factor: f64 = self.time.render(event).trim().parse().ok()?;
        let seconds = if self.replays {
            let (time, now) = (event.timestamp().timestamp_millis(), Utc::now().timestamp_millis());
            let (last, began) = self.last.lock().replace((time, now))?;
            // The time that has passed since then counts.
            (time - last) as f64 / 1000.0 / factor - (now - began) as f64 / 1000.0
        } else {
            let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_multiple_of(self.every) { factor } else { 0.0 }
        };
        Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_SECONDS)).ok()
    }
}

#[async_trait]
impl RemoteFilter for Sleep {
    async fn apply(&self, event: &mut Event, _allowance: &AnswerAllowance) -> Outcome {
        if let Some(pause) = self.pause(event) {
            tokio::time::sleep(pause).await;
        }
        Outcome::Matched
    }

    /// Returns one: each event waits behind the one before it.
    fn concurrency(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::{Location, Setting};
    use millrace_runtime::Instant;
    use serde_json::json;

    use super::*;
    use crate::filter::testing::apply_remote;

    #[tokio::test(start_paused = true)]
    async fn events_wait() {
        let given = [("time", "%{n}"), ("every", "2")]
            .map(|(name, value)| (name.to_owned(), Location::default(), Setting::Text(value.to_owned())));
        let sleep = build(Options::new("sleep", Location::default(), given)).unwrap();
        let began = Instant::now();
        for _ in 0..4 {
            apply_remote(&sleep, json!({"n": 10})).await;
        }
        assert_eq!(began.elapsed().as_secs(), 20);
    }
}
