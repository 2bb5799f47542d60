//! Time zones: ids as `java.time.ZoneId` reads them, offsets, and the spans of time between two changes of the clock.

mod region;

use std::fmt::Write;

pub use region::{Abbreviation, Region};

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// A constant offset to UTC in seconds.
    Fixed(i32),
    /// A constant offset in seconds to `UTC`, `GMT` or `UT`, which is part of its name.
    Prefixed(&'static str, i32),
    /// A zone of the time zone database.
    Named(&'static Region),
}

/// A span of time in which a zone has one offset. Instants are seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetSpan {
    /// First instant; `i64::MIN` where there is no change before.
    pub from: i64,
    /// First instant behind; `i64::MAX` where there is no change behind.
    pub to: i64,
    /// Offset to UTC in seconds.
    pub offset: i32,
    /// Offset to UTC in seconds of the span before; that of this one where there is none.
    pub before: i32,
}

impl OffsetSpan {
    fn constant(offset: i32) -> Self {
        Self { from: i64::MIN, to: i64::MAX, offset, before: offset }
    }
}

/// Offsets of a local time in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalOffset {
    /// Clocks show it once.
    Single(i32),
    /// Clocks show it twice: with the first offset, then with the second.
    Overlap(i32, i32),
    /// Clocks skip it.
    Gap {
        /// The offset before.
        before: i32,
        /// The offset behind.
        after: i32,
        /// The instant of the change, in seconds since the epoch.
        at: i64,
    },
}

impl LocalOffset {
    /// Returns the offset that leads from the local time to its instant: the first of two, the one before a gap.
    pub fn first(self) -> i32 {
        match self {
            Self::Single(offset) | Self::Overlap(offset, _) | Self::Gap { before: offset, .. } => offset,
        }
    }
}

impl Zone {
    /// The zone without an offset.
    pub const UTC: Self = Self::Fixed(0);

    /// Parses an offset (`+01:00`, `-8`, `Z`), an offset to UTC (`UTC+2`), or a name (`Europe/Berlin`), as Java's `ZoneId` does.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "Z" {
            return Some(Self::UTC);
        }
        if text.starts_with(['+', '-']) {
            return offset(text).map(Self::Fixed);
        }
        for prefix in ["UTC", "GMT", "UT"] {
            match text.strip_prefix(prefix) {
                Some("") => return Some(Self::Prefixed(prefix, 0)),
                Some(rest) if rest.starts_with(['+', '-']) => {
                    return offset(rest).map(|seconds| Self::Prefixed(prefix, seconds));
                }
                _ => {}
            }
        }
        Region::find(text).map(Self::Named)
    }

    /// Returns the zone's id, as date formats write it.
    pub fn name(self) -> String {
        match self {
            Self::Named(region) => region.name().to_owned(),
            Self::Fixed(seconds) => offset_id("", seconds),
            Self::Prefixed(prefix, 0) => prefix.to_owned(),
            Self::Prefixed(prefix, seconds) => offset_id(prefix, seconds),
        }
    }

    /// Returns the offset where it never changes.
    pub fn constant_offset(self) -> Option<i32> {
        match self {
            Self::Fixed(seconds) | Self::Prefixed(_, seconds) => Some(seconds),
            Self::Named(region) => region.constant_offset(),
        }
    }

    /// Returns the span of one offset that an instant in seconds since the epoch is in.
    pub fn span(self, seconds: i64) -> OffsetSpan {
        match self {
            Self::Fixed(offset) | Self::Prefixed(_, offset) => OffsetSpan::constant(offset),
            Self::Named(region) => region.span(seconds),
        }
    }

    /// Returns the offset to UTC in seconds at an instant in milliseconds since the epoch.
    pub fn offset_seconds(self, utc_ms: i64) -> i32 {
        self.span(utc_ms.div_euclid(1000)).offset
    }

    /// Returns the offsets of a local time, given in seconds as if it was UTC.
    pub fn local(self, local: i64) -> LocalOffset {
        // No offset is a day, and changes of the clock are farther from each other than two.
        const DAY: i64 = 86_400;
        let early = self.span(local.saturating_sub(DAY));
        let late = self.span(local.saturating_add(DAY));
        if early == late {
            return LocalOffset::Single(early.offset);
        }
        // The first change behind `early` is the one that counts, unless the local time is beyond it by both offsets.
        let mut span = early;
        while span.to != i64::MAX {
            let next = self.span(span.to);
            let (least, most) = (span.offset.min(next.offset), span.offset.max(next.offset));
            if local < next.from.saturating_add(i64::from(least)) {
                break;
            }
            if local < next.from.saturating_add(i64::from(most)) {
                return match span.offset < next.offset {
                    true => LocalOffset::Gap { before: span.offset, after: next.offset, at: next.from },
                    false => LocalOffset::Overlap(span.offset, next.offset),
                };
            }
            span = next;
        }
        LocalOffset::Single(span.offset)
    }

    /// Returns the first instant of a local time, both in milliseconds; the end of the gap where clocks skip it.
    pub fn first_instant(self, local_ms: i64) -> i64 {
        match self.local(local_ms.div_euclid(1000)) {
            LocalOffset::Gap { at, .. } => at.saturating_mul(1000),
            other => local_ms.saturating_sub(i64::from(other.first()) * 1000),
        }
    }
}

/// Writes an offset as Java does: `Z` or `+01:00`, with seconds where there are some.
fn offset_id(prefix: &str, seconds: i32) -> String {
    if seconds == 0 {
        return "Z".to_owned();
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let all = seconds.unsigned_abs();
    let mut id = format!("{prefix}{sign}{:02}:{:02}", all / 3600, all / 60 % 60);
    if !all.is_multiple_of(60) {
        // Writing to a String does not fail.
        let _ = write!(id, ":{:02}", all % 60);
    }
    id
}

/// Parses an offset: `+h`, `+hh`, `+hh:mm`, `+hhmm`, `+hh:mm:ss`, `+hhmmss`, at most 18 hours.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', ..] => (1, text.get(1..)?),
        [b'-', ..] => (-1, text.get(1..)?),
        _ => return None,
    };
    let parts: Vec<&str> = match (digits.contains(':'), digits.len()) {
        (true, 5 | 8) => digits.split(':').collect(),
        (false, 1 | 2) => vec![digits],
        (false, 4) => vec![digits.get(..2)?, digits.get(2..)?],
        (false, 6) => vec![digits.get(..2)?, digits.get(2..4)?, digits.get(4..)?],
        _ => return None,
    };
    let mut seconds = 0;
    for (part, unit) in parts.iter().zip([3600, 60, 1]) {
        if !part.bytes().all(|b| b.is_ascii_digit()) || (unit < 3600 && part.len() != 2) {
            return None;
        }
        let number: i32 = part.parse().ok()?;
        if unit < 3600 && number > 59 {
            return None;
        }
        seconds += number * unit;
    }
    (seconds <= 18 * 3600).then_some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::parse(name).unwrap()
    }

    #[test]
    fn zones_are_read_as_java_reads_them() {
        let cases = [
            ("Z", Some((0, "Z"))),
            ("+00:00", Some((0, "Z"))),
            ("UTC", Some((0, "UTC"))),
            ("+01:00", Some((3600, "+01:00"))),
            ("-8", Some((-28_800, "-08:00"))),
            ("+0530", Some((19_800, "+05:30"))),
            ("-00:44:30", Some((-2670, "-00:44:30"))),
            ("UTC+2", Some((7200, "UTC+02:00"))),
            ("GMT-01:30", Some((-5400, "GMT-01:30"))),
            ("Europe/Berlin", Some((3600, "Europe/Berlin"))),
            ("europe/berlin", None),
            ("Etc/Unknown", None),
            ("+19:00", None),
            ("+1:00", None),
            ("01:00", None),
            ("Mars/Base", None),
        ];
        for (text, expected) in cases {
            let read = Zone::parse(text).map(|zone| (zone.offset_seconds(1_700_000_000_000), zone.name()));
            assert_eq!(read, expected.map(|(offset, name)| (offset, name.to_owned())), "{text}");
        }
    }

    #[test]
    fn local_times_around_changes_of_the_clock() {
        // Local times in seconds as if they were UTC; each change with its instant.
        let cases = [
            (
                "Europe/Berlin",
                1_711_852_200,
                LocalOffset::Gap { before: 3600, after: 7200, at: 1_711_846_800 },
            ),
            ("Europe/Berlin", 1_729_996_200, LocalOffset::Overlap(7200, 3600)),
            ("Europe/Berlin", 1_729_994_399, LocalOffset::Single(7200)),
            ("Europe/Berlin", 1_729_998_000, LocalOffset::Single(3600)),
            ("Asia/Tokyo", 1_729_998_000, LocalOffset::Single(32_400)),
            // Apia skipped the 30th of December 2011.
            (
                "Pacific/Apia",
                1_325_246_400,
                LocalOffset::Gap { before: -36_000, after: 50_400, at: 1_325_239_200 },
            ),
            ("+05:30", 1_325_246_400, LocalOffset::Single(19_800)),
        ];
        for (name, local, expected) in cases {
            assert_eq!(zone(name).local(local), expected, "{name} {local}");
        }
    }

    #[test]
    fn rules_go_on_behind_the_tables() {
        // Noon on the first of July and of January.
        let cases = [
            ("America/New_York", 5_696_049_600, -14_400),
            ("America/New_York", 5_680_411_200, -18_000),
            ("America/New_York", 5_696_049_600 + 400 * 365 * 86_400 + 97 * 86_400, -14_400),
            ("Asia/Kolkata", 5_696_049_600, 19_800),
            ("Europe/Dublin", 5_696_049_600, 3600),
            // Before the first change it is local mean time.
            ("America/New_York", i64::MIN / 1000, -17_762),
        ];
        for (name, at, expected) in cases {
            let span = zone(name).span(at);
            assert!(span.from <= at && at < span.to, "{name} {span:?}");
            assert_eq!(span.offset, expected, "{name} {at}");
        }
    }

    #[test]
    fn spans_of_one_offset_adjoin() {
        for name in ["Europe/London", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kolkata"] {
            let zone = zone(name);
            let mut span = zone.span(-10_000_000_000);
            while span.to < 90_000_000_000 {
                let next = zone.span(span.to);
                assert_eq!((next.from, next.before), (span.to, span.offset), "{name}");
                assert_eq!(zone.span(span.to - 1), span, "{name}");
                span = next;
            }
        }
    }
}
