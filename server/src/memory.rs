//! The allocator of the process, and the thread that gives freed memory back to the system.
//!
//! mimalloc keeps what was freed for a second, for whoever asks next, and looks at what has been kept for longer only while threads
//! allocate. After a large request the process would hold its memory until the next one, and of requests that follow each other it
//! would hold what all of them took: [`return_freed`] gives back what is free each second, and at once where the process has grown.
//! A thread keeps pages for its next allocations; [`collect_thread`] has an idle thread give up its own.

use std::io;
use std::thread;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time between two looks at the size of the process.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks between two times that is given back what has been free for a second.
const CALM: u32 = 10;
/// Bytes above its level from which on the process gives back all that is free.
const GROWTH: u64 = 128 << 20;
/// Bytes by which the level of a process that stays larger follows, each second.
const RISE: u64 = 16 << 20;

/// Starts giving back what is free, for as long as the process runs.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn return_freed() -> io::Result<()> {
    thread::Builder::new().name("memory".to_owned()).spawn(|| {
        let (mut level, mut looks) = (u64::MAX, 0);
        loop {
            thread::sleep(PAUSE);
            let held = millrace_api::anonymous_bytes();
            level = level.min(held);
            let has_grown = held > level.saturating_add(GROWTH);
            looks += 1;
            if has_grown || looks >= CALM {
                // SAFETY: the function may be called from any thread that has been initialised by Rust's runtime; it touches the calling
                // thread's own heap, and what is free in the arenas of all, under mimalloc's own guards. `false` leaves what was
                // freed less than the purge delay ago.
                unsafe { libmimalloc_sys::mi_collect(has_grown) };
            }
            if looks >= CALM {
                looks = 0;
                level = level.saturating_add(RISE);
            }
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
