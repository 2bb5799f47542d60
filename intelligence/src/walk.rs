//! From which times a run predicts.
//!
//! Without `start_date`, from the start of the bucket that is filling. With one in the past a run also goes over history: from there on it predicts,
//! goes on behind what it predicted, and so on up to now, each time from what was there by then; later runs go on
//! where it ended.

use crate::definition::Start;
use crate::frame::TimeFrame;

/// Steps of a run, at most.
const MAX_STEPS: i64 = 1_000;
/// Samples that all steps of a run may train with, together.
const MAX_WORK: i64 = 10_000_000;

/// What is walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) start: Start,
    pub(crate) frame: TimeFrame,
    pub(crate) probes: usize,
    pub(crate) predictions: usize,
    /// From when the last step predicted.
    pub(crate) walked_ms: Option<i64>,
    /// Samples that one sample of this algorithm is as much work as.
    pub(crate) weight: i64,
}

impl Walk {
    /// Lists the starts of the buckets from which is predicted, the last of which is the one that is filling now. None before a `start_date`
    /// that is to come.
    ///
    /// # Errors
    /// What is too much, as a reason against `start_date`.
    pub(crate) fn origins(&self, now_ms: i64) -> Result<Vec<i64>, String> {
        let (frame, last) = (self.frame, self.frame.start(now_ms));
        let from = match self.start {
            Start::Now => return Ok(vec![last]),
            Start::At(start) if start > now_ms => return Ok(Vec::new()),
            Start::At(start) => frame.start(start),
        };
        let step = frame.ms() * self.predictions as i64;
        // On the same grid, whenever it goes on.
        let begun = self.walked_ms.map_or(0, |walked| ((walked - from).div_euclid(step) + 1).max(0));
        let first = from + begun * step;
        let steps = if first < last { (last - first + step - 1) / step } else { 0 };
        if steps > MAX_STEPS {
            return Err(format!(
                "is {steps} times what is predicted at a time ago; {MAX_STEPS} are allowed: choose a later one, or more predictions"
            ));
        }
        let work = (steps + 1) * self.probes as i64 * self.weight;
        if work > MAX_WORK && steps > 0 {
            let allowed = (MAX_WORK / (self.probes as i64 * self.weight)).max(1);
            return Err(format!(
                "makes {steps} steps over history; with so many probes {allowed} are allowed: choose a later one, fewer probes, or more predictions"
            ));
        }
        let mut origins: Vec<i64> = (0..steps).map(|at| first + at * step).collect();
        origins.push(last);
        Ok(origins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn walk(start: Start) -> Walk {
        Walk { start, frame: TimeFrame::Hour, probes: 100, predictions: 10, walked_ms: None, weight: 1 }
    }

    #[test]
    fn history_is_gone_over_once() {
        let now = 100 * HOUR + 5;
        assert_eq!(walk(Start::Now).origins(now).unwrap(), [100 * HOUR]);
        assert_eq!(walk(Start::At(now + 1)).origins(now).unwrap(), [0_i64; 0]);
        assert_eq!(walk(Start::At(now)).origins(now).unwrap(), [100 * HOUR]);
        let past = walk(Start::At(71 * HOUR + 60_000));
        let hours = |hours: &[i64]| hours.iter().map(|hour| hour * HOUR).collect::<Vec<_>>();
        assert_eq!(past.origins(now).unwrap(), hours(&[71, 81, 91, 100]));
        let again = Walk { walked_ms: Some(100 * HOUR), ..past };
        assert_eq!(again.origins(now).unwrap(), hours(&[100]));
        assert_eq!(again.origins(now + 12 * HOUR).unwrap(), hours(&[101, 111, 112]));
    }

    #[test]
    fn too_much_history_is_refused() {
        let past = walk(Start::At(0));
        assert!(past.origins(20_000 * HOUR).unwrap_err().contains("1000 are allowed"));
        let heavy = Walk { probes: 100_000, ..past };
        assert!(heavy.origins(5_000 * HOUR).unwrap_err().contains("100 are allowed"));
        assert_eq!(Walk { start: Start::Now, ..heavy }.origins(5_000 * HOUR).unwrap().len(), 1);
    }
}
