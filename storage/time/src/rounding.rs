//! Rounding of instants down to the beginning of a span of time: of fixed length, or a unit of the calendar in a time zone.
//!
//! The rules are those of OpenSearch's `Rounding`. Within a span of one offset ([`OffsetSpan`]) local time is rounded, and the
//! boundary that this gives is turned into an instant; where it is before the last change of the clock, [`Rounding`] says which.
//! So a bucket is one stretch of instants, or several where clocks go back over a boundary: an instant alone decides its bucket.

use crate::calendar;
use crate::zone::{OffsetSpan, Zone};

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;
/// Milliseconds of a day.
const DAY: i64 = 24 * HOUR;
/// Most stretches of a bucket that are looked at for the next bucket.
const MAX_STRETCHES: usize = 64;

/// The interval of a histogram over dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// One unit of the calendar, in the time zone.
    Calendar(CalendarUnit),
    /// Milliseconds, at least 1.
    Fixed(i64),
}

/// A unit of the calendar. Weeks begin on Mondays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum CalendarUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl CalendarUnit {
    /// Reads a unit by any of its names.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "second" | "1s" => Self::Second,
            "minute" | "1m" => Self::Minute,
            "hour" | "1h" => Self::Hour,
            "day" | "1d" => Self::Day,
            "week" | "1w" => Self::Week,
            "month" | "1M" => Self::Month,
            "quarter" | "1q" => Self::Quarter,
            "year" | "1y" => Self::Year,
            _ => return None,
        })
    }

    /// Milliseconds of a unit that has no more than an hour.
    fn width(self) -> Option<i64> {
        match self {
            Self::Second => Some(1000),
            Self::Minute => Some(60_000),
            Self::Hour => Some(HOUR),
            _ => None,
        }
    }
}

/// Spans of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// Their length.
    pub interval: Interval,
    /// The zone of local time.
    pub zone: Zone,
    /// Milliseconds that all spans begin later.
    pub offset_ms: i64,
}

/// A stretch of instants that are of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// First instant.
    from: i64,
    /// First instant behind.
    to: i64,
    /// The beginning of the bucket.
    start: i64,
}

/// A span of one offset in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Regime {
    from: i64,
    to: i64,
    offset: i64,
    before: i64,
}

impl From<OffsetSpan> for Regime {
    fn from(span: OffsetSpan) -> Self {
        Self {
            from: span.from.saturating_mul(1000),
            to: span.to.saturating_mul(1000),
            offset: i64::from(span.offset) * 1000,
            before: i64::from(span.before) * 1000,
        }
    }
}

impl Rounding {
    /// Returns the beginning of the span that an instant is in.
    pub fn round(&self, at: i64) -> i64 {
        let at = at.saturating_sub(self.offset_ms);
        self.stretch(at, &self.regime(at)).start.saturating_add(self.offset_ms)
    }

    /// Returns the beginning of the span behind the one that begins at `start`.
    pub fn next(&self, start: i64) -> i64 {
        let start = start.saturating_sub(self.offset_ms);
        self.following(start).saturating_add(self.offset_ms)
    }

    /// Walks over the beginnings of spans from one on, as long as they ascend.
    pub fn starts(&self, first: i64) -> impl Iterator<Item = i64> {
        let rounding = *self;
        std::iter::successors(Some(first), move |start| {
            Some(rounding.next(*start)).filter(|next| next > start)
        })
    }

    /// Rounds one instant after the other, which is cheap where they are near each other.
    pub fn cached(&self) -> CachedRounding<'_> {
        let width = match self.interval {
            Interval::Fixed(width) => Some(width.max(1)),
            Interval::Calendar(CalendarUnit::Day) => Some(DAY),
            Interval::Calendar(unit) => unit.width(),
        };
        let offset = self.zone.constant_offset().map(|seconds| i64::from(seconds) * 1000);
        CachedRounding {
            rounding: self,
            equal: width.zip(offset).map(|(width, offset)| (width, self.offset_ms.saturating_sub(offset))),
            regime: Regime { from: 0, to: 0, offset: 0, before: 0 },
            stretch: Stretch { from: 0, to: 0, start: 0 },
        }
    }

    fn regime(&self, at: i64) -> Regime {
        self.zone.span(at.div_euclid(1000)).into()
    }

    /// The stretch that an instant is in, of the regime that it is in.
    fn stretch(&self, at: i64, regime: &Regime) -> Stretch {
        let (floor, next) = self.floor(at.saturating_add(regime.offset));
        let (from, to) = (floor.saturating_sub(regime.offset), next.saturating_sub(regime.offset));
        let start = if floor < regime.from.saturating_add(regime.offset.max(regime.before)) {
            self.start(floor, regime)
        } else {
            from
        };
        Stretch { from: from.max(regime.from), to: to.min(regime.to), start }
    }

    /// The instant of a boundary in local time, as a regime sees it that begins behind the boundary or repeats it.
    fn start(&self, floor: i64, regime: &Regime) -> i64 {
        let (mut regime, mut floor) = (*regime, floor);
        // Rarely is the regime before another one that begins behind the boundary.
        for _ in 0..MAX_STRETCHES {
            let (from, offset, before) = (regime.from, regime.offset, regime.before);
            if regime.from == i64::MIN || floor >= from.saturating_add(offset.max(before)) {
                break;
            }
            let last = from.saturating_add(before).saturating_sub(1);
            let skipped = floor > last;
            let repeated = !skipped && floor >= from.saturating_add(offset);
            match self.interval {
                Interval::Calendar(unit) => match unit.width() {
                    // A day begins with its first instant.
                    None if skipped => return from,
                    None => {}
                    Some(_) if repeated => break,
                    Some(width) if offset < before && before - offset >= width => break,
                    Some(_) if offset > before => floor = self.floor(last).0,
                    Some(_) => {}
                },
                Interval::Fixed(_) if skipped => return from,
                Interval::Fixed(_) if repeated => break,
                Interval::Fixed(_) if offset < before => floor = self.floor(last).0,
                Interval::Fixed(_) => {}
            }
            regime = self.regime(from.saturating_sub(1));
        }
        floor.saturating_sub(regime.offset)
    }

    /// The boundaries around a local time: the one that it is at or behind, and the next.
    fn floor(&self, local: i64) -> (i64, i64) {
        let fixed = |width: i64| {
            let floor = local.div_euclid(width).saturating_mul(width);
            (floor, floor.saturating_add(width))
        };
        let unit = match self.interval {
            Interval::Fixed(width) => return fixed(width.max(1)),
            Interval::Calendar(unit) => unit,
        };
        if let Some(width) = unit.width() {
            return fixed(width);
        }
        let floor = floor_unit(local, unit);
        (floor, next_unit(floor, unit))
    }

    fn following(&self, start: i64) -> i64 {
        if let Interval::Calendar(unit) = self.interval
            && unit.width().is_none()
        {
            let (_, next) = self.floor(start.saturating_add(self.regime(start).offset));
            let next = self.zone.first_instant(next);
            return if next > start { next } else { start.saturating_add(DAY) };
        }
        let mut at = start;
        for _ in 0..MAX_STRETCHES {
            let stretch = self.stretch(at, &self.regime(at));
            if stretch.start > start {
                return stretch.start;
            }
            at = stretch.to;
        }
        at
    }
}

/// A [`Rounding`] that remembers the last stretch of one bucket, and the last span of one offset.
#[derive(Debug)]
pub struct CachedRounding<'a> {
    rounding: &'a Rounding,
    /// Width of all buckets and the beginning of one, where they are equally long.
    equal: Option<(i64, i64)>,
    /// Without the rounding's own offset.
    regime: Regime,
    stretch: Stretch,
}

impl CachedRounding<'_> {
    /// Returns the beginning of the span that an instant is in.
    #[inline]
    pub fn round(&mut self, at: i64) -> i64 {
        if at < self.stretch.from || at >= self.stretch.to {
            self.look_up(at);
        }
        self.stretch.start
    }

    /// Returns the beginning of the span that all instants from one to another are in; `None` where they are in several.
    pub fn round_all(&mut self, first: i64, last: i64) -> Option<i64> {
        let start = self.round(first);
        for _ in 0..MAX_STRETCHES {
            if last < self.stretch.to {
                return Some(start);
            }
            if self.round(self.stretch.to) != start {
                return None;
            }
        }
        None
    }

    fn look_up(&mut self, at: i64) {
        if let Some((width, phase)) = self.equal {
            let start =
                at.saturating_sub(phase).div_euclid(width).saturating_mul(width).saturating_add(phase);
            self.stretch = Stretch { from: start, to: start.saturating_add(width), start };
            return;
        }
        let shift = self.rounding.offset_ms;
        let at = at.saturating_sub(shift);
        if at < self.regime.from || at >= self.regime.to {
            self.regime = self.rounding.regime(at);
        }
        let Stretch { from, to, start } = self.rounding.stretch(at, &self.regime);
        let moved = |at: i64| at.saturating_add(shift);
        self.stretch = Stretch { from: moved(from), to: moved(to), start: moved(start) };
    }
}

/// The beginning of a unit of the calendar in local time.
fn floor_unit(local: i64, unit: CalendarUnit) -> i64 {
    let days = local.div_euclid(DAY);
    let first = match unit {
        CalendarUnit::Week => days - i64::from(calendar::iso_weekday(days)) + 1,
        CalendarUnit::Month | CalendarUnit::Quarter | CalendarUnit::Year => {
            let (year, month, _) = calendar::civil_from_days(days);
            let month = match unit {
                CalendarUnit::Month => month,
                CalendarUnit::Quarter => (month - 1) / 3 * 3 + 1,
                _ => 1,
            };
            calendar::days_from_civil(year, month, 1)
        }
        _ => days,
    };
    first.saturating_mul(DAY)
}

/// The beginning of the unit behind the one that begins at a local time.
fn next_unit(floor: i64, unit: CalendarUnit) -> i64 {
    let days = floor.div_euclid(DAY);
    let months = match unit {
        CalendarUnit::Week => return floor.saturating_add(7 * DAY),
        CalendarUnit::Month => 1,
        CalendarUnit::Quarter => 3,
        CalendarUnit::Year => 12,
        _ => return floor.saturating_add(DAY),
    };
    let (year, month, _) = calendar::civil_from_days(days);
    let month = month - 1 + months;
    calendar::days_from_civil(year + i64::from(month / 12), month % 12 + 1, 1).saturating_mul(DAY)
}

#[cfg(test)]
mod tests;
