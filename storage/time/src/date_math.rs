//! The steps of date math (`+1M`, `-7d`, `/w`) in a time zone.
//!
//! As in OpenSearch days and larger units are steps of local time, hours and smaller ones are exact time, and `/` rounds local
//! time. Instants and local times are nanoseconds since the epoch, wide enough for every date of nine-digit years.

use crate::calendar;
use crate::zone::{LocalOffset, Zone};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Returns the instant of a local time, given as if it was UTC: the first of two, and with the offset before a gap where clocks
/// skip it.
pub fn instant_of(local: i128, zone: Zone) -> i128 {
    Moment::at_local(local, zone, None).instant()
}

/// Applies steps to an instant. `round_up` rounds to the last instant of a unit, not to its first.
///
/// # Errors
/// OpenSearch's text for steps that are none.
pub fn apply(instant: i128, steps: &str, zone: Zone, round_up: bool) -> Result<i128, String> {
    let mut moment = Moment::at(instant, zone);
    let bytes = steps.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let (round, sign) = match bytes[i] {
            b'/' => (true, 1i64),
            b'+' => (false, 1),
            b'-' => (false, -1),
            _ => return Err(format!("operator not supported for date math [{steps}]")),
        };
        i += 1;
        let start = i;
        while i < bytes.len() && bytes[i].is_ascii_digit() {
            i += 1;
        }
        let digits = &steps[start..i];
        let Some(&letter) = bytes.get(i) else {
            return Err(format!("truncated date math [{steps}]"));
        };
        // OpenSearch's amounts have 32 bits.
        let amount =
            match digits {
                "" => 1,
                _ => i64::from(digits.parse::<i32>().map_err(|_| {
                    format!("amount [{digits}] of date math [{steps}] exceeds [{}]", i32::MAX)
                })?),
            };
        if round && amount != 1 {
            return Err(format!("rounding `/` can only be used on single unit types [{steps}]"));
        }
        i += 1;
        let unit = Unit::from_letter(letter).ok_or_else(|| {
            let letter = steps.get(i - 1..).and_then(|rest| rest.chars().next()).unwrap_or('?');
            format!("unit [{letter}] not supported for date math [{steps}]")
        })?;
        let next = match round {
            false => amount.checked_mul(sign).and_then(|amount| moment.plus(unit, amount)),
            true if round_up => {
                moment.floor(unit).and_then(|floor| floor.plus(unit, 1)).map(|next| next.exact(-1))
            }
            true => moment.floor(unit),
        };
        moment = next
            .filter(|next| next.local.unsigned_abs() < 366u128 * 1_000_000_000 * DAY.unsigned_abs())
            .ok_or_else(|| format!("date math [{steps}] leaves the range of dates"))?;
    }
    Ok(moment.instant())
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    /// So many months.
    Months(i64),
    /// So many days.
    Days(i64),
    /// So many nanoseconds.
    Exact(i128),
}

impl Unit {
    fn from_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'y' => Self::Months(12),
            b'M' => Self::Months(1),
            b'w' => Self::Days(7),
            b'd' => Self::Days(1),
            b'h' | b'H' => Self::Exact(3600 * SECOND),
            b'm' => Self::Exact(60 * SECOND),
            b's' => Self::Exact(SECOND),
            _ => return None,
        })
    }
}

/// An instant and what clocks of a zone show then.
#[derive(Clone, Copy, Debug)]
struct Moment {
    local: i128,
    /// Offset to UTC in seconds.
    offset: i32,
    zone: Zone,
}

impl Moment {
    fn at(instant: i128, zone: Zone) -> Self {
        let offset = zone.span(seconds(instant)).offset;
        Self { local: instant + i128::from(offset) * SECOND, offset, zone }
    }

    /// A local time. Of two offsets it is `preferred`, else the first; a time that clocks skip moves on by the gap.
    fn at_local(local: i128, zone: Zone, preferred: Option<i32>) -> Self {
        let offset = match zone.local(seconds(local)) {
            LocalOffset::Overlap(_, second) if preferred == Some(second) => second,
            LocalOffset::Gap { before, .. } => return Self::at(local - i128::from(before) * SECOND, zone),
            other => other.first(),
        };
        Self { local, offset, zone }
    }

    fn instant(&self) -> i128 {
        self.local - i128::from(self.offset) * SECOND
    }

    fn moved(&self, local: i128) -> Self {
        Self::at_local(local, self.zone, Some(self.offset))
    }

    fn exact(&self, nanos: i128) -> Self {
        Self::at(self.instant() + nanos, self.zone)
    }

    /// The date as a number of days; `None` where it is beyond any calendar.
    fn days(&self) -> Option<i64> {
        i64::try_from(self.local.div_euclid(DAY)).ok()
    }

    fn plus(&self, unit: Unit, amount: i64) -> Option<Self> {
        let months = match unit {
            Unit::Exact(length) => return Some(self.exact(length.checked_mul(i128::from(amount))?)),
            Unit::Days(length) => {
                let days = i128::from(length) * i128::from(amount);
                return Some(self.moved(self.local.checked_add(days.checked_mul(DAY)?)?));
            }
            Unit::Months(length) => amount.checked_mul(length)?,
        };
        let (year, month, day) = calendar::civil_from_days(self.days()?);
        let total = year.checked_mul(12)?.checked_add(i64::from(month) - 1)?.checked_add(months)?;
        let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
        if year.abs() > 999_999_999 {
            return None;
        }
        let day = day.min(calendar::days_in_month(year, month));
        let date = i128::from(calendar::days_from_civil(year, month, day)) * DAY;
        Some(self.moved(date + self.local.rem_euclid(DAY)))
    }

    fn floor(&self, unit: Unit) -> Option<Self> {
        let days = self.days()?;
        let date = match unit {
            Unit::Exact(length) => return Some(self.moved(self.local.div_euclid(length) * length)),
            Unit::Days(1) => days,
            Unit::Days(_) => days - i64::from(calendar::iso_weekday(days)) + 1,
            Unit::Months(length) => {
                let (year, month, _) = calendar::civil_from_days(days);
                calendar::days_from_civil(year, if length == 1 { month } else { 1 }, 1)
            }
        };
        Some(self.moved(i128::from(date) * DAY))
    }
}

fn seconds(nanos: i128) -> i64 {
    nanos.div_euclid(SECOND).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn nanos(text: &str) -> i128 {
        text.parse::<Timestamp>().unwrap().as_nanosecond()
    }

    #[test]
    fn steps_in_a_zone() {
        let cases = [
            // Hours are exact time over a change of the clock, days are local.
            ("America/New_York", "2024-03-10T17:00:00Z", "-24h", false, "2024-03-09T17:00:00Z"),
            ("America/New_York", "2024-03-10T17:00:00Z", "-1d", false, "2024-03-09T18:00:00Z"),
            ("America/New_York", "2024-03-10T05:00:00Z", "+12h", false, "2024-03-10T17:00:00Z"),
            ("America/New_York", "2024-11-03T04:00:00Z", "+150m", false, "2024-11-03T06:30:00Z"),
            ("America/New_York", "2024-11-03T04:00:00Z", "+1d", false, "2024-11-04T05:00:00Z"),
            // Rounding is local.
            ("America/New_York", "2024-03-15T10:00:00Z", "/d", false, "2024-03-15T04:00:00Z"),
            ("America/New_York", "2024-03-15T10:00:00Z", "/d", true, "2024-03-16T03:59:59.999999999Z"),
            ("America/New_York", "2024-03-12T10:00:00Z", "/M", false, "2024-03-01T05:00:00Z"),
            ("America/New_York", "2024-07-12T10:00:00Z", "/y", false, "2024-01-01T05:00:00Z"),
            ("America/New_York", "2024-03-10T10:00:00Z", "/w", false, "2024-03-04T05:00:00Z"),
            ("Asia/Kolkata", "2024-03-10T10:45:00Z", "/h", false, "2024-03-10T10:30:00Z"),
            // A midnight that clocks skip: the day begins behind the gap. A step into a gap moves on by it.
            ("America/Havana", "2024-03-10T12:00:00Z", "/d", false, "2024-03-10T05:00:00Z"),
            ("Europe/Berlin", "2024-03-30T01:30:00Z", "+1d", false, "2024-03-31T01:30:00Z"),
            // Times that come twice: a step stays with the offset that it has.
            ("Europe/Berlin", "2024-10-26T00:30:00Z", "+1d", false, "2024-10-27T00:30:00Z"),
            ("Europe/Berlin", "2024-10-28T01:30:00Z", "-1d", false, "2024-10-27T01:30:00Z"),
            ("Europe/Berlin", "2024-10-27T01:30:00Z", "/h", false, "2024-10-27T01:00:00Z"),
            ("Z", "2024-01-31T00:00:00Z", "+1M-1d/d", false, "2024-02-28T00:00:00Z"),
        ];
        for (zone, at, steps, round_up, expected) in cases {
            let zone = Zone::parse(zone).unwrap();
            let reached = apply(nanos(at), steps, zone, round_up).unwrap();
            assert_eq!(reached, nanos(expected), "{at} {steps} in {}", zone.name());
        }
        for steps in ["1d", "+", "+1", "/2d", "+1x", "+2147483647y", "+99999999999999999999d", "*1d"] {
            assert!(apply(0, steps, Zone::UTC, false).is_err(), "{steps}");
        }
        // Amounts have 32 bits.
        assert!(apply(0, "+2147483647s", Zone::UTC, false).is_ok());
        for steps in ["+2147483648s", "-2147483648s", "/2147483648d"] {
            let error = apply(0, steps, Zone::UTC, false).unwrap_err();
            assert!(error.contains("exceeds [2147483647]"), "{error}");
        }
    }

    #[test]
    fn instants_of_local_times() {
        let cases = [
            ("Europe/London", "2024-07-01T00:00:00Z", "2024-06-30T23:00:00Z"),
            ("Atlantic/Azores", "2024-01-10T00:00:00Z", "2024-01-10T01:00:00Z"),
            ("Europe/Berlin", "2024-03-31T02:30:00Z", "2024-03-31T01:30:00Z"),
            ("Europe/Berlin", "2024-10-27T02:30:00Z", "2024-10-27T00:30:00Z"),
            ("America/New_York", "2150-07-01T00:00:00Z", "2150-07-01T04:00:00Z"),
        ];
        for (zone, local, expected) in cases {
            assert_eq!(
                instant_of(nanos(local), Zone::parse(zone).unwrap()),
                nanos(expected),
                "{zone} {local}"
            );
        }
    }
}
