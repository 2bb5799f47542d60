//! Rounding of instants down to the beginning of a span of time: of fixed length, or a unit of the
//! calendar in a time zone.

use chrono::{DateTime, Datelike, LocalResult, Months, NaiveDate, NaiveDateTime, TimeZone};
use millrace_dsl::aggs::{CalendarUnit, Interval, Zone};

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
/// Milliseconds of a day.
const DAY: i64 = 24 * HOUR;

/// Spans of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounding {
    /// Their length.
    pub interval: Interval,
    /// The zone of local time.
    pub zone: Zone,
    /// Milliseconds that all spans begin later.
    pub offset_ms: i64,
}

impl Rounding {
    /// Returns the beginning of the span that an instant is in.
    pub(crate) fn round(&self, at: i64) -> i64 {
        let at = at.saturating_sub(self.offset_ms);
        self.floor(at).saturating_add(self.offset_ms)
    }

    /// Returns the beginning of the span behind the one that begins at `start`.
    pub(crate) fn next(&self, start: i64) -> i64 {
        let start = start.saturating_sub(self.offset_ms);
        self.following(start).saturating_add(self.offset_ms)
    }

    /// Walks over the beginnings of spans from one on, as long as they ascend.
    pub(crate) fn starts(&self, first: i64) -> impl Iterator<Item = i64> {
        let rounding = *self;
        std::iter::successors(Some(first), move |start| {
            Some(rounding.next(*start)).filter(|next| next > start)
        })
    }

    fn fixed_zone(&self) -> Option<i64> {
        match self.zone {
            Zone::Fixed(seconds) => Some(i64::from(seconds) * 1000),
            Zone::Named(_) => None,
        }
    }

    fn local(&self, at: i64) -> i64 {
        at.saturating_add(i64::from(self.zone.offset_seconds(at)) * 1000)
    }

    /// The instant of a local time: the earlier of two, the end of a gap.
    fn instant(&self, local: i64) -> i64 {
        match self.zone {
            Zone::Fixed(seconds) => local.saturating_sub(i64::from(seconds) * 1000),
            Zone::Named(zone) => {
                let Some(naive) = DateTime::from_timestamp_millis(local).map(|at| at.naive_utc()) else {
                    return local;
                };
                match zone.from_local_datetime(&naive) {
                    LocalResult::Single(at) => at.timestamp_millis(),
                    LocalResult::Ambiguous(early, _) => early.timestamp_millis(),
                    LocalResult::None => {
                        // Clocks were set forward over this time: the first instant behind.
                        let mut behind = naive;
                        for _ in 0..(48 * 4) {
                            behind += chrono::Duration::minutes(15);
                            if let Some(at) = zone.from_local_datetime(&behind).earliest() {
                                return self.gap_end(at.timestamp_millis());
                            }
                        }
                        local
                    }
                }
            }
        }
    }

    /// The instant at which the offset in effect at `at` began, where that is at most two days earlier.
    fn gap_end(&self, at: i64) -> i64 {
        let offset = self.zone.offset_seconds(at);
        let (mut low, mut high) = (at.saturating_sub(2 * DAY), at);
        if self.zone.offset_seconds(low) == offset {
            return at;
        }
        while high.saturating_sub(low) > 1000 {
            let middle = low + (high - low) / 2;
            if self.zone.offset_seconds(middle) == offset { high = middle } else { low = middle }
        }
        high.div_euclid(1000) * 1000
    }

    fn floor(&self, at: i64) -> i64 {
        match self.interval {
            Interval::Fixed(width) => self.floor_by(at, width),
            Interval::Calendar(CalendarUnit::Second) => self.floor_by(at, 1000),
            Interval::Calendar(CalendarUnit::Minute) => self.floor_by(at, 60_000),
            Interval::Calendar(CalendarUnit::Hour) => self.floor_by(at, HOUR),
            Interval::Calendar(unit) => {
                let local = self.local(at);
                let floored = floor_unit(local, unit);
                let start = self.instant(floored);
                // A midnight that comes twice begins the day once.
                if start > at { self.instant(floor_unit(floored.saturating_sub(1), unit)) } else { start }
            }
        }
    }

    fn floor_by(&self, at: i64, width: i64) -> i64 {
        let width = width.max(1);
        if let Some(offset) = self.fixed_zone() {
            let local = at.saturating_add(offset);
            return local.div_euclid(width).saturating_mul(width).saturating_sub(offset);
        }
        let offset = i64::from(self.zone.offset_seconds(at)) * 1000;
        let rounded = at.saturating_add(offset).div_euclid(width).saturating_mul(width);
        // The offset that was in effect at the instant counts, unless it began within the span.
        let start = rounded.saturating_sub(offset);
        if i64::from(self.zone.offset_seconds(start)) * 1000 == offset {
            return start;
        }
        let changed = self.gap_end(at);
        let resolved = self.instant(rounded);
        match width <= HOUR {
            true => start.max(changed.min(at)),
            false if resolved > at => changed.min(at),
            false => resolved,
        }
    }

    fn following(&self, start: i64) -> i64 {
        match self.interval {
            Interval::Calendar(unit) if unit >= CalendarUnit::Day => {
                let local = self.local(start);
                // A day that begins behind its midnight.
                let local = floor_unit(local, unit);
                let next = self.instant(next_unit(local, unit));
                if next > start { next } else { start.saturating_add(DAY) }
            }
            interval => {
                let width = match interval {
                    Interval::Fixed(width) => width.max(1),
                    Interval::Calendar(CalendarUnit::Second) => 1000,
                    Interval::Calendar(CalendarUnit::Minute) => 60_000,
                    Interval::Calendar(_) => HOUR,
                };
                if self.fixed_zone().is_some() {
                    return start.saturating_add(width);
                }
                let mut at = start;
                // Spans around a change of offset may be shorter or longer.
                for _ in 0..64 {
                    at = at.saturating_add(width);
                    let floored = self.floor(at);
                    if floored > start {
                        return floored;
                    }
                }
                start.saturating_add(width)
            }
        }
    }

    /// Rounds one instant after the other, which is cheap where they are near each other.
    pub(crate) fn cached(&self) -> CachedRounding<'_> {
        let fixed = match (self.interval, self.fixed_zone()) {
            (Interval::Fixed(width), Some(zone)) => Some((width.max(1), zone)),
            (Interval::Calendar(CalendarUnit::Second), Some(zone)) => Some((1000, zone)),
            (Interval::Calendar(CalendarUnit::Minute), Some(zone)) => Some((60_000, zone)),
            (Interval::Calendar(CalendarUnit::Hour), Some(zone)) => Some((HOUR, zone)),
            (Interval::Calendar(CalendarUnit::Day), Some(zone)) => Some((DAY, zone)),
            _ => None,
        };
        CachedRounding { rounding: self, fixed, start: 0, end: 0 }
    }
}

/// A [`Rounding`] that remembers the last span.
#[derive(Debug)]
pub(crate) struct CachedRounding<'a> {
    rounding: &'a Rounding,
    /// Width and offset of the zone, where spans are of equal length.
    fixed: Option<(i64, i64)>,
    start: i64,
    end: i64,
}

impl CachedRounding<'_> {
    /// Returns the beginning of the span that an instant is in.
    #[inline]
    pub(crate) fn round(&mut self, at: i64) -> i64 {
        if at >= self.start && at < self.end {
            return self.start;
        }
        self.start = self.rounding.round(at);
        self.end = match self.fixed {
            Some((width, _)) => self.start.saturating_add(width),
            None => self.rounding.next(self.start),
        };
        self.start
    }
}

fn naive(local: i64) -> NaiveDateTime {
    DateTime::from_timestamp_millis(local).unwrap_or_default().naive_utc()
}

fn millis(date: NaiveDate) -> i64 {
    date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis()
}

/// The beginning of a unit of the calendar in local time.
fn floor_unit(local: i64, unit: CalendarUnit) -> i64 {
    if unit == CalendarUnit::Day {
        return local.div_euclid(DAY).saturating_mul(DAY);
    }
    if unit == CalendarUnit::Week {
        // The first of January 1970 was a Thursday.
        let weeks = local.saturating_add(3 * DAY).div_euclid(7 * DAY);
        return weeks.saturating_mul(7 * DAY).saturating_sub(3 * DAY);
    }
    let date = naive(local).date();
    let month = match unit {
        CalendarUnit::Month => date.month(),
        CalendarUnit::Quarter => (date.month() - 1) / 3 * 3 + 1,
        _ => 1,
    };
    NaiveDate::from_ymd_opt(date.year(), month, 1).map_or(local, millis)
}

fn next_unit(local: i64, unit: CalendarUnit) -> i64 {
    let date = naive(local).date();
    let months = match unit {
        CalendarUnit::Day => return local.saturating_add(DAY),
        CalendarUnit::Week => return local.saturating_add(7 * DAY),
        CalendarUnit::Month => 1,
        CalendarUnit::Quarter => 3,
        _ => 12,
    };
    date.checked_add_months(Months::new(months)).map_or(local.saturating_add(DAY), millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    #[test]
    fn spans_begin_where_they_should() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let cases = [
            (Interval::Fixed(10), Zone::UTC, 0, "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.990Z"),
            (
                Interval::Calendar(CalendarUnit::Day),
                berlin,
                0,
                "2024-07-01T21:59:59Z",
                "2024-06-30T22:00:00Z",
            ),
            (
                Interval::Calendar(CalendarUnit::Week),
                Zone::UTC,
                0,
                "2024-05-05T12:00:00Z",
                "2024-04-29T00:00:00Z",
            ),
            (
                Interval::Calendar(CalendarUnit::Month),
                berlin,
                0,
                "2024-03-31T22:00:00Z",
                "2024-03-31T22:00:00Z",
            ),
            (
                Interval::Calendar(CalendarUnit::Quarter),
                Zone::UTC,
                0,
                "2024-05-05T12:00:00Z",
                "2024-04-01T00:00:00Z",
            ),
            (
                Interval::Calendar(CalendarUnit::Year),
                Zone::UTC,
                0,
                "2024-05-05T12:00:00Z",
                "2024-01-01T00:00:00Z",
            ),
            (
                Interval::Calendar(CalendarUnit::Day),
                Zone::UTC,
                6 * HOUR,
                "2024-05-05T05:00:00Z",
                "2024-05-04T06:00:00Z",
            ),
            (Interval::Fixed(DAY), Zone::Fixed(3600), 0, "2024-05-05T23:30:00Z", "2024-05-05T23:00:00Z"),
            (
                Interval::Calendar(CalendarUnit::Hour),
                berlin,
                0,
                "2024-10-27T01:30:00Z",
                "2024-10-27T01:00:00Z",
            ),
        ];
        for (interval, zone, offset_ms, instant, expected) in cases {
            let rounding = Rounding { interval, zone, offset_ms };
            let start = rounding.round(at(instant));
            assert_eq!(start, at(expected), "{interval:?} {instant}");
            assert_eq!(rounding.round(start), start);
            assert!(rounding.next(start) > at(instant));
            assert_eq!(rounding.round(rounding.next(start)), rounding.next(start));
            assert_eq!(rounding.cached().round(at(instant)), start);
        }
    }
}
