//! Activity of the compute threads: the job that each runs, since when, and the task that the job belongs to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Instant;

/// The threads of one priority and their queue, at one moment.
#[derive(Clone, Debug)]
pub struct PoolActivity {
    /// Name of the pool, with which the names of its threads begin.
    pub name: &'static str,
    /// Threads that take jobs.
    pub threads: usize,
    /// Jobs that no thread has taken.
    pub queued: usize,
    /// Jobs that have ended since the start.
    pub completed: u64,
    /// Threads that run a job.
    pub busy: Vec<BusyThread>,
}

/// A thread that runs a job.
#[derive(Clone, Copy, Debug)]
pub struct BusyThread {
    /// Number of the thread in its pool.
    pub thread: usize,
    /// Time since the job began.
    pub running: Duration,
    /// Number of the task that queued the job.
    pub task: Option<u64>,
}

/// The job that a thread runs.
#[derive(Debug, Default)]
pub(super) struct JobSlot {
    thread: usize,
    job: Mutex<Option<(Instant, Option<u64>)>>,
}

impl JobSlot {
    /// Notes that a job of a task begins.
    pub(super) fn begin(&self, task: Option<u64>) {
        *self.job.lock() = Some((Instant::now(), task));
    }

    /// Notes that the job has ended.
    pub(super) fn end(&self) {
        *self.job.lock() = None;
    }
}

/// The slots of a pool's threads: as many as threads live.
#[derive(Debug, Default)]
pub(super) struct JobSlots(Mutex<Vec<Arc<JobSlot>>>);

impl JobSlots {
    /// Adds the slot of a thread.
    pub(super) fn add(&self, thread: usize) -> Arc<JobSlot> {
        let slot = Arc::new(JobSlot { thread, job: Mutex::default() });
        self.0.lock().push(Arc::clone(&slot));
        slot
    }

    /// Removes the slot of a thread that has ended.
    pub(super) fn remove(&self, slot: &Arc<JobSlot>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, slot));
    }

    /// Lists the threads that run a job.
    pub(super) fn busy(&self) -> Vec<BusyThread> {
        let slots = self.0.lock();
        let busy = slots.iter().filter_map(|slot| {
            let (began, task) = (*slot.job.lock())?;
            Some(BusyThread { thread: slot.thread, running: began.elapsed(), task })
        });
        busy.collect()
    }
}
