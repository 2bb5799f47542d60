//! The allocator of the process, and the thread that gives freed memory back to the system.
//!
//! mimalloc keeps what was freed for a second, for whoever asks next, and looks at what has been kept for longer only while threads
//! allocate. After a large request the process would hold its memory until the next one: [`return_freed`] looks once a second.

use std::io;
use std::thread;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Starts giving back what has been free for a second, for as long as the process runs.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn return_freed() -> io::Result<()> {
    thread::Builder::new().name("memory".to_owned()).spawn(|| {
        loop {
            thread::sleep(LOOK);
            // SAFETY: the function may be called from any thread that has been initialised by Rust's runtime; it touches the calling
            // thread's own heap, and what is free in the arenas of all, under mimalloc's own guards. `false` leaves what was freed
            // less than the purge delay ago.
            unsafe { libmimalloc_sys::mi_collect(false) };
        }
    })?;
    Ok(())
}
