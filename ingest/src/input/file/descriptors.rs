//! Bound on the files that all inputs of the process may have open at once. It is a part of the system's limit, so that
//! connections, segments and everything else go on, however many files there are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of the process's files that inputs may have: one in so many.
const SHARE: u64 = 4;
/// Files that each input may have in any case, so that all go on.
const LEAST: usize = 4;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Permit to have a file open, for as long as there is this.
#[derive(Debug)]
pub(super) struct Permit(());

impl Permit {
    /// Takes a permit for an input that has so many files open; `None` while there are none.
    pub(super) fn take(have: usize) -> Option<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let taken = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            is_allowed(open, have, limit).then_some(open + 1)
        });
        taken.ok().map(|_| Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns whether an input that has some files may open one more, where all have so many and the process may have `limit`.
fn is_allowed(open: usize, have: usize, limit: u64) -> bool {
    have < LEAST || (open as u64) < limit / SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_a_part_of_the_files_and_each_has_some() {
        assert!(is_allowed(255, 255, 1024) && !is_allowed(256, 256, 1024));
        assert!(is_allowed(1_000, LEAST - 1, 1024) && !is_allowed(1_000, LEAST, 1024));
        assert!(is_allowed(4_094, 4_094, u64::MAX));
    }
}
