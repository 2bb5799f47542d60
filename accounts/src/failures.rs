//! Log of failed authentications: a few lines a second, each with the number of failures since the one before. Anybody can cause
//! failures, and others wait while a line is written.

use parking_lot::Mutex;

/// Lines of a second.
const MAX_LINES: usize = 5;

/// Decides the line to log.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<FailureWindow>);

#[derive(Debug, Default)]
struct FailureWindow {
    /// In seconds since the epoch.
    second: i64,
    lines: usize,
    left_out: u64,
}

impl Failures {
    /// Counts a failure. Returns how many were left out since the last line if this one gets one.
    pub(crate) fn line(&self, now_ms: i64) -> Option<u64> {
        let mut lately = self.0.lock();
        let second = now_ms.div_euclid(1000);
        if lately.second != second {
            (lately.second, lately.lines) = (second, 0);
        }
        if lately.lines >= MAX_LINES {
            lately.left_out += 1;
            return None;
        }
        lately.lines += 1;
        Some(std::mem::take(&mut lately.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_a_second_are_told_with_how_many_were_not() {
        let failures = Failures::default();
        let told = |now_ms| (0..100).filter_map(|_| failures.line(now_ms)).collect::<Vec<_>>();
        assert_eq!(told(1_999), [0; 5]);
        assert_eq!(told(2_000), [95, 0, 0, 0, 0]);
        assert_eq!(told(2_999), [0; 0]);
        // The clock may be set back.
        assert_eq!(told(-1), [195, 0, 0, 0, 0]);
    }
}
