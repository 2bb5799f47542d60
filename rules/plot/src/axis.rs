//! Axes: times in UTC with ticks where clocks have them, and values.

use std::ops::Range;

use chrono::DateTime;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Distances between ticks.
const STEPS: [i64; 22] = [
    SECOND,
    5 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
    182 * DAY,
    365 * DAY,
    1826 * DAY,
];
/// Ticks of an axis, at most.
const MAX_TICKS: i128 = 9;

/// Times, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Times {
    fn step(&self) -> i64 {
        let span = i128::from(self.to) - i128::from(self.from);
        let fitting = STEPS.into_iter().find(|step| span / i128::from(*step) < MAX_TICKS);
        fitting.unwrap_or_else(|| i64::try_from(span / MAX_TICKS + 1).unwrap_or(i64::MAX))
    }
}

/// Returns the pixel of a share of an axis.
fn pixel(share: f64, (from, to): (i32, i32)) -> i32 {
    from + (share.clamp(-0.5, 1.5) * f64::from(to - from)).round() as i32
}

impl Ranged for Times {
    type FormatOption = NoDefaultFormatting;
    type ValueType = i64;

    fn map(&self, value: &i64, limit: (i32, i32)) -> i32 {
        let place = i128::from(*value) - i128::from(self.from);
        let span = (i128::from(self.to) - i128::from(self.from)).max(1);
        pixel(place as f64 / span as f64, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<i64> {
        let step = i128::from(self.step());
        let first = -(-i128::from(self.from)).div_euclid(step) * step;
        let ticks = (0..=MAX_TICKS).map(|at| first + at * step).filter_map(|tick| i64::try_from(tick).ok());
        ticks.filter(|tick| (self.from..=self.to).contains(tick)).collect()
    }

    fn range(&self) -> Range<i64> {
        self.from..self.to
    }
}

impl ValueFormatter<i64> for Times {
    fn format_ext(&self, value: &i64) -> String {
        let Some(time) = DateTime::from_timestamp_millis(*value) else { return value.to_string() };
        let form = match self.step() {
            step if step >= DAY => "%Y-%m-%d",
            step if step >= MINUTE => "%m-%d %H:%M",
            _ => "%H:%M:%S",
        };
        time.format(form).to_string()
    }
}

/// Values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Values {
    /// Distance between ticks: 1, 2 or 5 by a power of ten.
    fn step(&self) -> f64 {
        let rough = (self.high / 8.0 - self.low / 8.0).max(f64::MIN_POSITIVE * 1e20);
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough);
        factor.unwrap_or(10.0) * power
    }
}

impl Ranged for Values {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        // In parts: the difference of two numbers can be more than a number holds.
        let span = (self.high / 4.0 - self.low / 4.0).max(f64::MIN_POSITIVE);
        pixel((value / 4.0 - self.low / 4.0) / span, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let step = self.step();
        let first = (self.low / step).ceil();
        let ticks = (0..12).map(|at| (first + f64::from(at)) * step);
        ticks.filter(|tick| tick.is_finite() && *tick >= self.low && *tick <= self.high).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Values {
    fn format_ext(&self, value: &f64) -> String {
        let step = self.step();
        let size = value.abs().max(step);
        if !(1e-4..1e7).contains(&size) && *value != 0.0 {
            return format!("{value:.3e}");
        }
        let digits = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
        // No −0.
        format!("{:.digits$}", value + 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::coord::ranged1d::BoldPoints;

    #[test]
    fn ticks_are_where_clocks_have_them() {
        let day = Times { from: 1_769_853_600_000, to: 1_769_853_600_000 + DAY };
        let ticks = day.key_points(BoldPoints(10));
        assert!(ticks.iter().all(|tick| tick % (4 * HOUR) == 0) && ticks.len() >= 4, "{ticks:?}");
        assert_eq!(day.format_ext(&ticks[0]), "01-31 12:00");
        for (from, to) in [(0, 1), (i64::MIN, i64::MAX), (-5, 5), (0, 366 * 100 * DAY)] {
            let times = Times { from, to };
            assert!(times.key_points(BoldPoints(10)).len() <= 10);
            assert_eq!((times.map(&from, (0, 100)), times.map(&to, (0, 100))), (0, 100));
        }
    }

    #[test]
    fn values_have_round_ticks() {
        let values = Values { low: -0.3, high: 7.9 };
        let ticks = values.key_points(BoldPoints(10));
        assert_eq!(
            ticks.iter().map(|tick| values.format_ext(tick)).collect::<Vec<_>>(),
            ["0", "2", "4", "6"]
        );
        let small = Values { low: 0.0, high: 0.01 };
        assert_eq!(small.format_ext(&0.002), "0.002");
        assert_eq!(Values { low: 0.0, high: 1e12 }.format_ext(&2e11), "2.000e11");
    }
}
