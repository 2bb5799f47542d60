//! Time zones by name, by offset, or that of the machine.

use chrono::{DateTime, FixedOffset, Local, LocalResult, NaiveDateTime, Offset, TimeZone, Utc};
use millrace_time::{LocalOffset, Region};

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Coordinated universal time.
    Utc,
    /// That of the machine.
    Local,
    /// One of the time zone database.
    Named(&'static Region),
    /// An offset.
    Fixed(FixedOffset),
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self::Utc;

    /// Finds a zone by its id (`Europe/Berlin`) or offset (`+02:00`).
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Z" | "UTC" | "UT" | "GMT" => return Some(Self::UTC),
            _ => {}
        }
        if let Some((offset, "")) = offset(name) {
            return Some(Self::Fixed(offset));
        }
        Region::find(name).map(Self::Named)
    }

    /// The instant at which clocks of the zone show a time; the earlier one where there are two, none where the
    /// clocks skip it.
    pub fn instant(&self, time: NaiveDateTime) -> Option<DateTime<Utc>> {
        fn earliest<T: TimeZone>(zone: &T, time: NaiveDateTime) -> Option<DateTime<Utc>> {
            match zone.from_local_datetime(&time) {
                LocalResult::Single(time) | LocalResult::Ambiguous(time, _) => Some(time.to_utc()),
                LocalResult::None => None,
            }
        }
        match self {
            Self::Utc => Some(time.and_utc()),
            Self::Local => earliest(&Local, time),
            Self::Named(region) => {
                let local = millrace_time::Zone::Named(region).local(time.and_utc().timestamp());
                let offset = match local {
                    LocalOffset::Gap { .. } => return None,
                    other => FixedOffset::east_opt(other.first())?,
                };
                earliest(&offset, time)
            }
            Self::Fixed(zone) => earliest(zone, time),
        }
    }

    /// The offset at an instant.
    pub(crate) fn offset_at(&self, time: DateTime<Utc>) -> FixedOffset {
        match self {
            Self::Utc => Utc.fix(),
            Self::Local => Local.offset_from_utc_datetime(&time.naive_utc()).fix(),
            Self::Named(region) => {
                let seconds = millrace_time::Zone::Named(region).span(time.timestamp()).offset;
                FixedOffset::east_opt(seconds).unwrap_or_else(|| Utc.fix())
            }
            Self::Fixed(zone) => *zone,
        }
    }

    /// Id of the zone, and its abbreviation at an instant.
    pub(super) fn names_at(&self, time: DateTime<Utc>) -> (String, String) {
        match self {
            Self::Utc => ("UTC".to_owned(), "UTC".to_owned()),
            Self::Named(region) => (region.name().to_owned(), region.abbreviation(time.timestamp()).text),
            zone => {
                let offset = zone.offset_at(time).to_string();
                (offset.clone(), offset)
            }
        }
    }
}

/// Reads `+hh`, `+hhmm`, `+hh:mm` and `+hh:mm:ss`, and answers what stands behind.
pub(super) fn offset(text: &str) -> Option<(FixedOffset, &str)> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, mut rest) = two_digits(rest)?;
    let colon = rest.starts_with(':');
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        let next = if colon { rest.strip_prefix(':') } else { Some(rest) };
        let Some((value, behind)) = next.and_then(two_digits) else { break };
        if value >= 60 {
            return None;
        }
        seconds += value * unit;
        rest = behind;
    }
    FixedOffset::east_opt(sign * seconds).map(|offset| (offset, rest))
}

pub(super) fn two_digits(text: &str) -> Option<(i32, &str)> {
    let digits = text.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((digits.parse().ok()?, &text[2..]))
}
