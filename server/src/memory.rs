//! The allocator of the process, and the thread that gives freed memory back to the system.
//!
//! mimalloc keeps what was freed for a second, for whoever asks next, and looks at what has been kept for longer only while threads
//! allocate. After a large request the process would hold its memory until the next one, and of requests that follow each other it
//! would hold what all of them took. [`return_freed`] purges what is free: each second, and soon where the process has grown
//! ([`PurgePolicy`]).
//! A thread keeps pages for its next allocations; [`collect_thread`] has an idle thread give up its own.

use std::io;
use std::thread;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time between two looks at the size of the process.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks between two purges of what has been free for a second.
const CALM: u32 = 10;
/// Bytes above its level from which on the process gives back all that is free.
const GROWTH: u64 = 128 << 20;
/// Bytes by which the level of a process that stays larger follows, each second.
const RISE: u64 = 16 << 20;
/// Factor of the pause behind a purge whose memory was taken again.
const BACKOFF: u32 = 4;
/// Most looks between two purges of a process that has grown.
const MAX_PAUSE: u32 = 16;

/// Extent of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purge {
    /// What has been free for a second.
    Expired,
    /// All that is free.
    All,
}

/// Decides when free memory goes back to the system.
///
/// A process under load takes the memory again that a purge gave back, and the system has to clear its pages each time. Purges of
/// a process that has grown therefore come at longer intervals for as long as more than half of their memory is taken again.
#[derive(Debug)]
struct PurgePolicy {
    /// Bytes that the process held at least, lately.
    level: u64,
    looks: u32,
    /// Looks since the last purge of all.
    since_purge: u32,
    /// Looks that have to pass before the next one.
    pause: u32,
    /// Bytes of the process from which on the memory of the last purge counts as taken again.
    regrown: u64,
}

impl Default for PurgePolicy {
    fn default() -> Self {
        Self { level: u64::MAX, looks: 0, since_purge: 0, pause: 1, regrown: u64::MAX }
    }
}

impl PurgePolicy {
    /// Looks at the bytes that the process holds; returns the purge that is due.
    fn look(&mut self, held: u64) -> Option<Purge> {
        self.level = self.level.min(held);
        let has_grown = held > self.level.saturating_add(GROWTH);
        self.looks += 1;
        let is_calm = self.looks >= CALM;
        if is_calm {
            self.looks = 0;
            self.level = self.level.saturating_add(RISE);
        }
        self.since_purge = self.since_purge.saturating_add(1);
        if has_grown && self.since_purge >= self.pause {
            self.pause = if held >= self.regrown { (self.pause * BACKOFF).min(MAX_PAUSE) } else { 1 };
            self.since_purge = 0;
            return Some(Purge::All);
        }
        is_calm.then_some(Purge::Expired)
    }

    /// Takes note of the bytes that the process held before and after a purge.
    fn record(&mut self, purge: Purge, before: u64, after: u64) {
        if purge == Purge::All {
            self.regrown = after.saturating_add(before.saturating_sub(after) / 2);
        }
    }
}

/// Starts giving back what is free, for as long as the process runs.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn return_freed() -> io::Result<()> {
    thread::Builder::new().name("memory".to_owned()).spawn(|| {
        let mut policy = PurgePolicy::default();
        loop {
            thread::sleep(PAUSE);
            let before = millrace_api::anonymous_bytes();
            let Some(purge) = policy.look(before) else { continue };
            // SAFETY: the function may be called from any thread that has been initialised by Rust's runtime; it touches the calling
            // thread's own heap, and what is free in the arenas of all, under mimalloc's own guards. `false` leaves what was
            // freed less than the purge delay ago.
            unsafe { libmimalloc_sys::mi_collect(purge == Purge::All) };
            policy.record(purge, before, millrace_api::anonymous_bytes());
        }
    })?;
    Ok(())
}

/// Collections after which an allocator's thread gives up a page that it keeps for the next allocation of its size.
const RETIRED_FOR: u32 = 16;

/// Gives up the free pages of the calling thread, which has nothing to do. The memory stays with the process for a second, for others.
pub(crate) fn collect_thread() {
    for _ in 0..RETIRED_FOR {
        // SAFETY: as in `return_freed`: the function touches the calling thread's own heap, and the arenas under the allocator's guards.
        unsafe { libmimalloc_sys::mi_collect(false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// Looks at a process for seconds; returns the looks at which all is purged, and what it holds at last.
    fn purges(
        policy: &mut PurgePolicy,
        seconds: u32,
        mut held: u64,
        grow: impl Fn(u64) -> u64,
    ) -> (Vec<u32>, u64) {
        let mut purges = Vec::new();
        for look in 0..seconds * CALM {
            held = grow(held);
            if let Some(purge) = policy.look(held) {
                let before = held;
                if purge == Purge::All {
                    purges.push(look);
                    held = 100 * MB;
                }
                policy.record(purge, before, held);
            }
        }
        (purges, held)
    }

    #[test]
    fn memory_that_is_taken_again_is_purged_less_often() {
        let mut policy = PurgePolicy::default();
        policy.look(100 * MB);
        let (busy, _) = purges(&mut policy, 6, 100 * MB, |held| (held + 200 * MB).min(500 * MB));
        assert_eq!(busy, [0, 1, 5, 21, 37, 53]);
        // What one large request took goes back at once, after a pause that is bounded.
        let (idle, held) = purges(&mut policy, 3, 500 * MB, |held| held);
        assert_eq!((idle.len(), held), (1, 100 * MB));
        let (next, _) = purges(&mut policy, 1, 400 * MB, |held| held);
        assert_eq!(next, [0]);
    }

    #[test]
    fn memory_that_is_in_use_is_left_alone_in_time() {
        let mut policy = PurgePolicy::default();
        policy.look(100 * MB);
        // A purge finds nothing that is free.
        let mut all = 0;
        for _ in 0..60 * CALM {
            if let Some(purge) = policy.look(400 * MB) {
                all += u32::from(purge == Purge::All);
                policy.record(purge, 400 * MB, 400 * MB);
            }
        }
        // The level follows within some ten seconds.
        assert!(all < 20, "{all}");
        assert_eq!(policy.look(410 * MB), None);
    }
}
