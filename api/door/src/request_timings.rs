//! Durations of requests by route and status, for metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use millrace_runtime::{DurationHistogram, HistogramSnapshot};

/// Routes with statuses that have a histogram of their own; further ones share that of [`OTHER`]. The listeners have some 300 routes, and
/// four classes of statuses each, so no reader takes the place of another route's failures.
const MAX_SERIES: usize = 2048;
/// Name in place of a route for requests without one, and for those beyond the bound.
const OTHER: &str = "other";

/// The requests that a histogram is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestSeries {
    /// Listener, as the audit names it.
    pub listener: &'static str,
    /// Path of the route with its parameters in braces.
    pub route: &'static str,
    /// Class of the status, such as `2xx`.
    pub status: &'static str,
}

impl RequestSeries {
    /// Returns the series that stands for this one beyond the bound.
    fn beyond_bound(self) -> Self {
        Self { listener: OTHER, route: OTHER, ..self }
    }
}

/// Durations of requests since the start. A reader waits for no writer.
#[derive(Debug, Default)]
pub struct RequestTimings {
    series: ArcSwap<HashMap<RequestSeries, Arc<DurationHistogram>>>,
}

impl RequestTimings {
    /// Adds a request that was answered.
    pub(crate) fn record(
        &self,
        listener: &'static str,
        route: Option<&'static str>,
        status: u16,
        took: Duration,
    ) {
        let status = match status / 100 {
            0..=2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        let series = RequestSeries { listener, route: route.unwrap_or(OTHER), status };
        let known = self.series.load();
        let found = known.get(&series).or_else(|| match known.len() < MAX_SERIES {
            true => None,
            // Beyond the bound no request copies the map again.
            false => known.get(&series.beyond_bound()),
        });
        match found {
            Some(histogram) => histogram.record(took),
            None => self.add(series).record(took),
        }
    }

    /// Adds a series, or finds the one that stands for it.
    fn add(&self, series: RequestSeries) -> Arc<DurationHistogram> {
        let mut histogram = Arc::default();
        self.series.rcu(|known| {
            let series = match known.len() < MAX_SERIES || known.contains_key(&series) {
                true => series,
                false => series.beyond_bound(),
            };
            let mut known = HashMap::clone(known);
            histogram = Arc::clone(known.entry(series).or_default());
            known
        });
        histogram
    }

    /// Reads all series in a stable order.
    pub fn snapshot(&self) -> Vec<(RequestSeries, HistogramSnapshot)> {
        let series = self.series.load();
        let mut all: Vec<_> =
            series.iter().map(|(series, histogram)| (*series, histogram.snapshot())).collect();
        all.sort_unstable_by_key(|(series, _)| *series);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_a_bound_beyond_which_they_are_one() {
        let timings = RequestTimings::default();
        let names: Vec<&'static str> = (0..2 * MAX_SERIES).map(|n| &*format!("/{n}").leak()).collect();
        for name in &names {
            timings.record("data", Some(name), 200, Duration::from_millis(1));
            timings.record("data", Some(name), 404, Duration::from_millis(1));
        }
        let all = timings.snapshot();
        // Two more for what is beyond, one for each class of statuses.
        assert_eq!(all.len(), MAX_SERIES + 2);
        let count: u64 = all.iter().map(|(_, histogram)| histogram.count).sum();
        assert_eq!(count, 4 * MAX_SERIES as u64);
    }
}
