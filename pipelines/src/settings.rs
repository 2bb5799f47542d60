//! Settings of a pipeline: workers, batches, order.

use std::time::Duration;

/// Most workers of a pipeline.
pub const MAX_WORKERS: usize = 1_024;
/// Most events that a worker takes at once.
pub const MAX_BATCH_SIZE: usize = 100_000;
/// Longest time that a worker waits for more events.
pub const MAX_BATCH_DELAY: Duration = Duration::from_secs(60);
/// Events that a worker takes at once where nothing else is said.
pub const BATCH_SIZE: usize = 4_000;
/// Time that a worker waits for more events where nothing else is said.
pub const BATCH_DELAY: Duration = Duration::from_millis(50);

/// Settings of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Batches that are filtered at the same time.
    pub workers: usize,
    /// Events that a worker takes at once; one batch of a source is never cut.
    pub batch_size: usize,
    /// Time that a worker waits for more events while others are under way.
    pub batch_delay: Duration,
    /// Order of the events.
    pub ordered: EventOrder,
}

/// Order in which events leave a pipeline. Events of one partition of a source always keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrder {
    /// With one worker.
    #[default]
    Auto,
    /// Yes; there must be one worker.
    Yes,
    /// No.
    No,
}

impl Default for Settings {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self { workers, batch_size: BATCH_SIZE, batch_delay: BATCH_DELAY, ordered: EventOrder::Auto }
    }
}

impl Settings {
    /// Returns whether all events leave in the order in which they came.
    pub fn keeps_order(&self) -> bool {
        match self.ordered {
            EventOrder::Auto => self.workers == 1,
            EventOrder::Yes => true,
            EventOrder::No => false,
        }
    }

    /// Checks bounds and what depends on each other.
    ///
    /// # Errors
    /// What is wrong, with what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_WORKERS).contains(&self.workers) {
            return Err(format!(
                "[pipeline.workers] must be from 1 to {MAX_WORKERS}, not [{}]",
                self.workers
            ));
        }
        if !(1..=MAX_BATCH_SIZE).contains(&self.batch_size) {
            let given = self.batch_size;
            return Err(format!("[pipeline.batch.size] must be from 1 to {MAX_BATCH_SIZE}, not [{given}]"));
        }
        if self.batch_delay > MAX_BATCH_DELAY {
            let (most, given) = (MAX_BATCH_DELAY.as_millis(), self.batch_delay.as_millis());
            return Err(format!(
                "[pipeline.batch.delay] must be from 0 to {most} milliseconds, not [{given}]"
            ));
        }
        if self.ordered == EventOrder::Yes && self.workers > 1 {
            let workers = self.workers;
            return Err(format!(
                "[pipeline.ordered] is true, which needs [pipeline.workers] to be 1, not [{workers}]"
            ));
        }
        Ok(())
    }
}
