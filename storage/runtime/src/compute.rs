//! The bounded pool for CPU work: the async runtime never parses, decodes or merges itself.
//!
//! Seven sets of threads at falling priorities of the operating system: *foreground* threads evaluate queries and gets, *ingest*
//! threads parse and apply bulks, *flush* threads refresh and flush, *follow* threads evaluate what follows the change feed, *background*
//! threads compact, *snapshot* threads check, hash and write the files of snapshots, and *spare* threads run models over what is stored. With all
//! cores busy writing, the last two get a few hundredths of a core; idle cores are theirs. So a get never queues behind a bulk, nor a bulk behind a
//! merge. Flushes have the priority of bulks, which wait for the memory that a flush frees. Follow threads get enough to keep up: with all cores
//! busy writing, about a quarter. A bulk parses in slices and lets a read begin in between ([`Compute::give_way`]). Threads that serve reads ask
//! for short time slices ([`run_promptly`]): woken, they do not wait for the end of another thread's.
//! A job that waits for the network holds no thread of its set: another one takes its place meanwhile ([`wait_for_network`]).
//! Jobs of one set start in the order given. The queues are bounded by their callers: by connections, by the one job of a shard.

mod activity;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use std::{fmt, thread};

pub use self::activity::{BusyThread, PoolActivity};
use self::activity::{JobSlot, JobSlots};
use crate::panics::panic_text;
use crate::sync::{self, Condvar, Mutex, Rank};
use crate::tasks::current_task;
use crate::{Error, Instant, Result};
use futures::channel::oneshot;

/// A queued job, with the number of the task that queued it. It runs in the span that queued it.
struct Job {
    work: Box<dyn FnOnce() + Send>,
    task: Option<u64>,
}

impl Job {
    fn new(work: impl FnOnce() + Send + 'static) -> Self {
        let span = tracing::Span::current();
        Self { work: Box::new(move || span.in_scope(work)), task: current_task() }
    }
}

/// Stack of a thread: queries are trees, evaluated by functions that call themselves.
const STACK_BYTES: usize = 8 << 20;
/// Flush threads: one for a large flush, and one for a refresh that does not wait for it; small flushes share them.
const FLUSH_THREADS: usize = 2;
/// Background threads: three for compactions, and one for what is cleaned up.
const BACKGROUND_THREADS: usize = 4;
/// Snapshot threads: they wait for the disk at times.
const SNAPSHOT_THREADS: usize = 4;
/// Spare threads: as many as there are runs at a time.
const SPARE_THREADS: usize = 2;
/// Niceness of the ingest threads and of the flush threads.
const INGEST_NICENESS: i32 = 4;
/// Niceness of the follow threads.
const FOLLOW_NICENESS: i32 = 5;
/// Niceness of the background threads.
const BACKGROUND_NICENESS: i32 = 8;
/// Niceness of the snapshot threads: writes beside them are to keep nine tenths of their speed.
const SNAPSHOT_NICENESS: i32 = 19;
/// Niceness of the spare threads: the least of all.
const SPARE_NICENESS: i32 = 19;

/// Time without a job after which a thread calls the hook of idle threads.
const IDLE_TIME: Duration = Duration::from_millis(500);

/// Jobs of a set that may wait for the network at once. Each has a thread, whose stack is touched for as far as it was used.
const MAX_WAITING: usize = 512;

thread_local! {
    /// The set that the thread belongs to.
    static SET: RefCell<Option<Arc<Set>>> = const { RefCell::new(None) };
}

/// Priority of a job, which selects its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Reads: short jobs that somebody waits for.
    Foreground,
    /// Writes: jobs of some ten milliseconds that somebody waits for.
    Ingest,
    /// Work behind the change feed: nobody waits for it, but it is to keep up.
    Follow,
    /// Refreshes and flushes: what readers wait to see, and writers to have room.
    Flush,
    /// Long jobs that nobody waits for.
    Background,
    /// Checks, hashes and writes of the files of snapshots. Its jobs may wait for the disk.
    Snapshot,
    /// Long jobs that may take as long as they like, if only nobody else notices.
    Spare,
}

/// Threads of one priority, and the jobs that they take.
struct Set {
    name: &'static str,
    niceness: i32,
    queue: Arc<Queue>,
    /// Threads that take jobs, when none waits for the network.
    size: usize,
    threads: Mutex<Threads>,
    slots: JobSlots,
    idle_hook: OnceLock<fn()>,
}

#[derive(Debug, Default)]
struct Threads {
    /// Those that live.
    living: usize,
    /// Those whose job waits for the network.
    waiting: usize,
    /// Counts those that were started, for their names.
    started: usize,
}

impl Set {
    fn new((niceness, name, queue, size): (i32, &'static str, &Arc<Queue>, usize)) -> Arc<Self> {
        Arc::new(Self {
            name,
            niceness,
            queue: Arc::clone(queue),
            size,
            threads: Mutex::new(Rank::Threads, Threads::default()),
            slots: JobSlots::default(),
            idle_hook: OnceLock::new(),
        })
    }

    /// Starts a thread, which is counted already.
    fn start(self: &Arc<Self>, number: usize) -> Result<()> {
        let (set, slot) = (Arc::clone(self), self.slots.add(number));
        let started = Arc::clone(&slot);
        let work = move || {
            if set.niceness > 0 {
                lower_priority(set.niceness);
            } else {
                run_promptly();
            }
            if !sync::modelled() {
                SET.set(Some(Arc::clone(&set)));
            }
            set.queue.run(|| set.leaves(), &slot, &set.idle_hook);
            set.slots.remove(&slot);
        };
        sync::spawn_thread(format!("{}-{number}", self.name), Some(STACK_BYTES), work)
            .inspect_err(|_| self.slots.remove(&started))
            .map_err(|source| Error::io("start thread", self.name, source))?;
        Ok(())
    }

    /// Describes what its threads do now.
    fn activity(&self) -> PoolActivity {
        let queue = &self.queue;
        PoolActivity {
            name: self.name,
            threads: self.size,
            queued: queue.queued.load(Ordering::Relaxed),
            completed: queue.completed.load(Ordering::Relaxed),
            busy: self.slots.busy(),
        }
    }

    /// Returns whether the thread that asks is one too many, and ends.
    fn leaves(&self) -> bool {
        let mut threads = self.threads.lock();
        let leaves = threads.living - threads.waiting > self.size;
        if leaves {
            threads.living -= 1;
        }
        leaves
    }

    /// Takes note that the calling thread's job waits, and has another thread take the next jobs.
    fn wait(self: &Arc<Self>) -> Result<NetworkWaitJob> {
        let number = {
            let mut threads = self.threads.lock();
            if threads.waiting >= MAX_WAITING {
                return Err(Error::Rejected(format!(
                    "{MAX_WAITING} reads wait for the object store, which does not answer: try again once it does"
                )));
            }
            threads.waiting += 1;
            let wanted = threads.living - threads.waiting < self.size;
            threads.living += usize::from(wanted);
            threads.started += usize::from(wanted);
            wanted.then_some(threads.started)
        };
        let waiting = NetworkWaitJob(Arc::clone(self));
        if let Some(Err(error)) = number.map(|number| self.start(self.size + number)) {
            // The others go on with one thread less.
            self.threads.lock().living -= 1;
            tracing::warn!(%error, "no thread takes the place of one that waits for the object store");
        }
        Ok(waiting)
    }
}

/// A job that waits for the network.
struct NetworkWaitJob(Arc<Set>);

impl Drop for NetworkWaitJob {
    fn drop(&mut self) {
        self.0.threads.lock().waiting -= 1;
    }
}

/// Waits for the network on the calling thread. Where that is one of the pool's, another thread takes the jobs behind it
/// meanwhile, so that jobs that need no network do not wait for one that hangs.
///
/// # Errors
/// [`Error::Rejected`] where too many wait already.
pub fn wait_for_network<T>(wait: impl FnOnce() -> T) -> Result<T> {
    let waiting = SET.with_borrow(|set| set.as_ref().map(Set::wait)).transpose()?;
    let waited = wait();
    drop(waiting);
    Ok(waited)
}

struct Queue {
    jobs: Mutex<(std::collections::VecDeque<Job>, bool)>,
    ready: Condvar,
    /// Jobs that no thread has taken.
    queued: AtomicUsize,
    /// Threads that wait for a job, or were woken for one and have not run yet.
    idle: AtomicUsize,
    /// Jobs that have ended.
    completed: AtomicU64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            jobs: Mutex::new(Rank::Jobs, Default::default()),
            ready: Condvar::default(),
            queued: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            completed: AtomicU64::new(0),
        }
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock();
        jobs.0.push_back(job);
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(jobs);
        self.ready.notify_one();
    }

    /// Returns whether a job and a thread for it are there, and only a core is missing.
    fn wants_core(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0 && self.idle.load(Ordering::Relaxed) > 0
    }

    /// Runs jobs until there are to be no more, or the thread is not needed any more. A thread without a job calls the hook once.
    fn run(&self, leaves: impl Fn() -> bool, slot: &JobSlot, idle_hook: &OnceLock<fn()>) {
        loop {
            if leaves() {
                return;
            }
            let mut has_called = false;
            let job = {
                let mut guard = self.jobs.lock();
                loop {
                    if let Some(job) = guard.0.pop_front() {
                        self.queued.fetch_sub(1, Ordering::Relaxed);
                        break job;
                    }
                    if guard.1 {
                        return;
                    }
                    self.idle.fetch_add(1, Ordering::Relaxed);
                    let hook = idle_hook.get().filter(|_| !has_called);
                    let began = hook.map(|_| Instant::now());
                    match hook {
                        Some(_) => self.ready.wait_for(&mut guard, IDLE_TIME),
                        None => self.ready.wait(&mut guard),
                    }
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                    if let Some(hook) = hook
                        && guard.0.is_empty()
                        && began.is_some_and(|began| began.elapsed() >= IDLE_TIME)
                    {
                        has_called = true;
                        drop(guard);
                        hook();
                        guard = self.jobs.lock();
                    }
                }
            };
            // A job that panics is a defect; its caller sees the dropped channel, the thread goes on.
            slot.begin(job.task);
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job.work)) {
                tracing::error!(reason = panic_text(&*panic), "a compute job panicked");
            }
            slot.end();
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Handle to the pool; clones share it. The threads end with the last handle.
#[derive(Clone)]
pub struct Compute {
    inner: Arc<Inner>,
}

struct Inner {
    foreground: Arc<Queue>,
    ingest: Arc<Queue>,
    flush: Arc<Queue>,
    follow: Arc<Queue>,
    background: Arc<Queue>,
    snapshot: Arc<Queue>,
    spare: Arc<Queue>,
    /// The sets of threads, by falling priority.
    sets: Vec<Arc<Set>>,
    threads: usize,
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("threads", &self.inner.threads).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Self { foreground, ingest, flush, follow, background, snapshot, spare, .. } = self;
        for queue in [foreground, ingest, flush, follow, background, snapshot, spare] {
            queue.jobs.lock().1 = true;
            queue.ready.notify_all();
        }
    }
}

impl Compute {
    /// Starts `threads` threads a priority; 0 means one a core.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(threads: usize) -> Result<Self> {
        let threads = match threads {
            0 => thread::available_parallelism().map_or(2, std::num::NonZero::get),
            n => n,
        };
        let foreground = Arc::new(Queue::default());
        let ingest = Arc::new(Queue::default());
        let flush = Arc::new(Queue::default());
        let follow = Arc::new(Queue::default());
        let background = Arc::new(Queue::default());
        let snapshot = Arc::new(Queue::default());
        let spare = Arc::new(Queue::default());
        let mut sets = Vec::new();
        for (niceness, name, queue, count) in [
            (0, "read", &foreground, threads),
            (INGEST_NICENESS, "ingest", &ingest, threads),
            (INGEST_NICENESS, "flush", &flush, FLUSH_THREADS),
            (FOLLOW_NICENESS, "follow", &follow, threads),
            (BACKGROUND_NICENESS, "maintain", &background, BACKGROUND_THREADS),
            (SNAPSHOT_NICENESS, "snapshot", &snapshot, SNAPSHOT_THREADS),
            (SPARE_NICENESS, "spare", &spare, SPARE_THREADS),
        ] {
            let set = Set::new((niceness, name, queue, count));
            set.threads.lock().living = count;
            for number in 0..count {
                set.start(number)?;
            }
            sets.push(set);
        }
        let inner = Inner { foreground, ingest, flush, follow, background, snapshot, spare, sets, threads };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sets a hook that each thread calls once when it has had no job for half a second. It frees what the thread holds for its next
    /// job. The first hook stays.
    pub fn set_idle_hook(&self, hook: fn()) {
        for set in &self.inner.sets {
            if set.idle_hook.set(hook).is_ok() {
                // Threads that wait have no time to look at yet. One that is about to wait holds the lock until it does.
                drop(set.queue.jobs.lock());
                set.queue.ready.notify_all();
            }
        }
    }

    /// Counts the threads of a priority.
    pub fn threads(&self) -> usize {
        self.inner.threads
    }

    /// Describes what the threads of each priority do now.
    pub fn pools(&self) -> Vec<PoolActivity> {
        self.inner.sets.iter().map(|set| set.activity()).collect()
    }

    /// Runs a job and waits for its result. Dropping the future leaves a queued job to run; a job
    /// that wants to be cancelled watches a flag of its own.
    ///
    /// # Errors
    /// The job's own, or [`Error::Internal`] when it panicked.
    pub async fn run<T, F>(&self, priority: Priority, job: F) -> Result<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.spawn(priority, move || {
            let _ = sender.send(job());
        });
        receiver.await.unwrap_or_else(|_| Err(Error::Internal("a compute job panicked".to_owned())))
    }

    /// Queues a job without waiting for it.
    pub fn spawn<F>(&self, priority: Priority, job: F)
    where
        F: FnOnce() + Send + 'static,
    {
        let queue = match priority {
            Priority::Foreground => &self.inner.foreground,
            Priority::Ingest => &self.inner.ingest,
            Priority::Flush => &self.inner.flush,
            Priority::Follow => &self.inner.follow,
            Priority::Background => &self.inner.background,
            Priority::Snapshot => &self.inner.snapshot,
            Priority::Spare => &self.inner.spare,
        };
        queue.push(Job::new(job));
    }

    /// Does something of each of so many parts, on the calling thread and on others of a priority that are free, and returns what came of
    /// each, in order; `None` of one that panicked. Blocks: it is called on a thread of that priority. It waits for no job that
    /// has not begun, so it ends also where all threads are busy.
    pub fn each<T, F>(&self, priority: Priority, parts: usize, work: F) -> Vec<Option<T>>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let shared = Arc::new((AtomicUsize::new(0), work));
        let (sender, receiver) = mpsc::channel();
        for _ in 1..parts.min(self.inner.threads) {
            // One that begins when all is done holds nothing until then.
            let (shared, sender) = (Arc::downgrade(&shared), sender.clone());
            self.spawn(priority, move || {
                if let Some(shared) = shared.upgrade() {
                    take_parts(&shared, parts, &sender);
                }
            });
        }
        take_parts(&shared, parts, &sender);
        drop(sender);
        let mut all: Vec<Option<T>> = (0..parts).map(|_| None).collect();
        for (at, done) in receiver.iter().take(parts) {
            if let Some(place) = all.get_mut(at) {
                *place = done;
            }
        }
        all
    }

    /// Lets a read begin that only waits for a core. A long job of another priority calls it every
    /// millisecond or so; it costs next to nothing where no read waits.
    pub fn give_way(&self) {
        if self.inner.foreground.wants_core() {
            thread::yield_now();
        }
    }
}

/// Takes parts that nobody has taken, until there are none.
fn take_parts<T, F: Fn(usize) -> T>(
    (next, work): &(AtomicUsize, F),
    parts: usize,
    done: &mpsc::Sender<(usize, Option<T>)>,
) {
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= parts {
            return;
        }
        let of_part = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(at)));
        // Who waits for it is there until it has all.
        let _ = done.send((at, of_part.ok()));
    }
}

/// Time slice of a thread that runs promptly, in nanoseconds: the least that Linux takes.
#[cfg(target_os = "linux")]
const PROMPT_SLICE: u64 = 100_000;

/// Asks for short time slices of the calling thread, for threads that others wait for and that never compute for long:
/// Linux (6.12 and later) then lets them run as soon as they are woken, where otherwise they would
/// wait for the next tick of the clock, 4 ms away. Their share of a core stays the same. Elsewhere it does nothing.
pub fn run_promptly() {
    if sync::modelled() {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let this_thread = rustix::thread::gettid();
        let Ok(niceness) = rustix::process::getpriority_process(Some(this_thread)) else { return };
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: libc::SCHED_OTHER as u32,
            sched_flags: 0,
            sched_nice: niceness,
            sched_priority: 0,
            sched_runtime: PROMPT_SLICE,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the call reads as many bytes of the struct as its first field says, which is its size, and
        // changes nothing but the scheduling of this thread. A refusal is harmless.
        unsafe {
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// Gives the calling thread the priority of those that write: threads that compute for long, beside which gets and
/// searches go first.
pub fn run_behind_reads() {
    lower_priority(INGEST_NICENESS);
}

/// Lowers the calling thread's scheduling priority; a refusal is harmless.
fn lower_priority(niceness: i32) {
    if sync::modelled() {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let this_thread = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(this_thread), niceness);
    }
}

#[cfg(test)]
mod tests;
