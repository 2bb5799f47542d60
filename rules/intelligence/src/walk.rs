//! From which times a run predicts.
//!
//! Without `start_date`, from the start of the bucket that is filling. With one in the past a run also goes over history: from there on it predicts,
//! goes on behind what it predicted, and so on up to now, each time from what was there by then; later runs go on
//! where it ended. What is too much to go over is refused once; where a rule was away for long, later runs leave its beginning out.

use crate::definition::ForecastStart;
use crate::frame::TimeFrame;
use crate::samples::MAX_BUCKETS;

/// Steps over history of a run, at most.
const MAX_STEPS: i64 = 1_000;
/// Samples that all steps of a run may train with, all values together.
const MAX_WORK: i64 = 10_000_000;
/// Predictions of a run, all values together, at most.
const MAX_PREDICTIONS: i64 = 1_000_000;

/// State of the walk over a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) start: ForecastStart,
    pub(crate) frame: TimeFrame,
    pub(crate) probes: usize,
    pub(crate) predictions: usize,
    /// Values that a rule is multiplied by, else 1.
    pub(crate) values: usize,
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
    /// What is too much the first time, as a reason against `start_date`.
    pub(crate) fn origins(&self, now_ms: i64) -> Result<Vec<i64>, String> {
        let (frame, last) = (self.frame, self.frame.start(now_ms));
        let from = match self.start {
            ForecastStart::Now => return Ok(vec![last]),
            ForecastStart::At(start) if start > now_ms => return Ok(Vec::new()),
            ForecastStart::At(start) => frame.start(start),
        };
        let step = frame.ms() * self.predictions as i64;
        // On the same grid, whenever it goes on.
        let begun = self.walked_ms.map_or(0, |walked| ((walked - from).div_euclid(step) + 1).max(0));
        let first = from + begun * step;
        let steps = if first < last { (last - first + step - 1) / step } else { 0 };
        let (allowed, instead) = self.allowed();
        if steps > allowed && self.walked_ms.is_none() {
            return Err(format!(
                "makes {steps} steps over history, each of [max_predictions]; {allowed} are allowed: choose a later one, {instead}"
            ));
        }
        let left_out = (steps - allowed).max(0);
        let mut origins: Vec<i64> = (left_out..steps).map(|at| first + at * step).collect();
        origins.push(last);
        Ok(origins)
    }

    /// Returns how many steps over history a run may make, and what would allow more.
    fn allowed(&self) -> (i64, &'static str) {
        let (probes, predictions, values) = (self.probes as i64, self.predictions as i64, self.values as i64);
        // The one from now is made, too.
        let by_work = MAX_WORK / (probes * self.weight * values) - 1;
        let by_predictions = MAX_PREDICTIONS / (predictions * values) - 1;
        let by_buckets = (MAX_BUCKETS - probes) / predictions;
        let mut least = (MAX_STEPS, "or more predictions");
        for bound in [
            (by_work, "fewer probes or values, or more predictions"),
            (by_predictions, "or fewer values"),
            (by_buckets, "or fewer probes"),
        ] {
            if bound.0 < least.0 {
                least = bound;
            }
        }
        (least.0.max(0), least.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn walk(start: ForecastStart) -> Walk {
        let (probes, predictions, values) = (100, 10, 1);
        Walk { start, frame: TimeFrame::Hour, probes, predictions, values, walked_ms: None, weight: 1 }
    }

    #[test]
    fn history_is_gone_over_once() {
        let now = 100 * HOUR + 5;
        assert_eq!(walk(ForecastStart::Now).origins(now).unwrap(), [100 * HOUR]);
        assert_eq!(walk(ForecastStart::At(now + 1)).origins(now).unwrap(), [0_i64; 0]);
        assert_eq!(walk(ForecastStart::At(now)).origins(now).unwrap(), [100 * HOUR]);
        let past = walk(ForecastStart::At(71 * HOUR + 60_000));
        let hours = |hours: &[i64]| hours.iter().map(|hour| hour * HOUR).collect::<Vec<_>>();
        assert_eq!(past.origins(now).unwrap(), hours(&[71, 81, 91, 100]));
        let again = Walk { walked_ms: Some(100 * HOUR), ..past };
        assert_eq!(again.origins(now).unwrap(), hours(&[100]));
        assert_eq!(again.origins(now + 12 * HOUR).unwrap(), hours(&[101, 111, 112]));
    }

    #[test]
    fn too_much_history_is_refused() {
        let past = walk(ForecastStart::At(0));
        assert!(past.origins(20_000 * HOUR).unwrap_err().contains("1000 are allowed"));
        let heavy = Walk { probes: 100_000, ..past };
        assert!(heavy.origins(5_000 * HOUR).unwrap_err().contains("99 are allowed"));
        assert_eq!(Walk { start: ForecastStart::Now, ..heavy }.origins(5_000 * HOUR).unwrap().len(), 1);
    }

    #[test]
    fn values_are_as_much_work_as_they_are() {
        let many = Walk { values: 100, ..walk(ForecastStart::At(0)) };
        let refused = many.origins(10_000 * HOUR).unwrap_err();
        assert!(refused.contains("999 are allowed") && refused.contains("or values"), "{refused}");
        assert!(many.origins(9_990 * HOUR).is_ok());
        let forest = Walk { weight: 10, ..many };
        assert!(forest.origins(1_000 * HOUR).unwrap_err().contains("99 are allowed"));
        let wide = Walk { predictions: 10_000, ..walk(ForecastStart::At(0)) };
        assert!(wide.origins(1_000_000 * HOUR).unwrap_err().contains("19 are allowed"));
    }

    #[test]
    fn after_a_pause_the_last_steps_are_made() {
        let past = Walk { walked_ms: Some(100 * HOUR), ..walk(ForecastStart::At(0)) };
        let now = 20_000 * HOUR;
        let origins = past.origins(now).unwrap();
        assert_eq!(origins.len(), 1_001);
        assert_eq!((origins[0], origins[999], origins[1_000]), (10_000 * HOUR, 19_990 * HOUR, now));
        let heavy = Walk { probes: 100_000, values: 100, ..past };
        assert_eq!(heavy.origins(now).unwrap(), [now]);
    }
}
