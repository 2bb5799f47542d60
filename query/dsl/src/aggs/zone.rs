//! Time zones.

use chrono::{Offset, TimeZone};
use chrono_tz::Tz;
use millrace_work::error::Error;

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// A constant offset to UTC in seconds.
    Fixed(i32),
    /// A zone of the time zone database.
    Named(Tz),
}

impl Zone {
    /// The zone without an offset.
    pub const UTC: Self = Self::Fixed(0);

    /// Parses an offset (`+01:00`, `-8`, `Z`), an offset to UTC (`UTC+2`), or a name (`Europe/Berlin`), as Java's `ZoneId` does.
    pub fn parse(text: &str) -> Option<Self> {
        if matches!(text, "Z" | "UTC" | "GMT" | "UT") {
            return Some(Self::UTC);
        }
        if text.starts_with(['+', '-']) {
            return offset(text).map(Self::Fixed);
        }
        for prefix in ["UTC", "GMT", "UT"] {
            if let Some(rest) = text.strip_prefix(prefix)
                && rest.starts_with(['+', '-'])
            {
                return offset(rest).map(Self::Fixed);
            }
        }
        text.parse::<Tz>().ok().map(Self::Named)
    }

    /// Makes the error of a text that is no zone.
    pub(crate) fn unknown(text: &str) -> Error {
        let hours: Option<i32> = text.strip_prefix(['+', '-']).and_then(|hours| hours.parse().ok());
        let region = |b: u8| b.is_ascii_alphanumeric() || b"/._~+-".contains(&b);
        let (kind, reason) = match hours {
            Some(hours @ 19..=99) => {
                let hours = if text.starts_with('-') { -hours } else { hours };
                let range = "is not in the range -18 to 18";
                (
                    "date_time_exception",
                    format!("Zone offset hours not in valid range: value {hours} {range}"),
                )
            }
            _ if text.starts_with(['+', '-']) || text.len() < 2 => {
                ("date_time_exception", format!("Invalid ID for ZoneOffset, invalid format: {text}"))
            }
            _ if text.bytes().all(region) => {
                ("zone_rules_exception", format!("Unknown time-zone ID: {text}"))
            }
            _ => {
                ("date_time_exception", format!("Invalid ID for region-based ZoneId, invalid format: {text}"))
            }
        };
        Error::Exception { kind, status: 400, reason }
    }

    /// Returns the offset to UTC in seconds at an instant of local time, given in milliseconds as if it was UTC: the
    /// earlier of two that fit, and the one before where none does.
    pub fn local_offset_seconds(self, local_ms: i64) -> i32 {
        const DAY_MS: i64 = 86_400_000;
        match self {
            Self::Fixed(seconds) => seconds,
            Self::Named(zone) => {
                let local = chrono::DateTime::from_timestamp_millis(local_ms).unwrap_or_default();
                match zone.offset_from_local_datetime(&local.naive_utc()).earliest() {
                    Some(offset) => offset.fix().local_minus_utc(),
                    None => self.offset_seconds(local_ms.saturating_sub(DAY_MS)),
                }
            }
        }
    }

    /// Returns the zone's name, as date formats write it.
    pub fn name(self) -> String {
        match self {
            Self::Named(zone) => zone.name().to_owned(),
            Self::Fixed(0) => "Z".to_owned(),
            Self::Fixed(seconds) => {
                let sign = if seconds < 0 { '-' } else { '+' };
                let minutes = seconds.abs() / 60;
                format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }

    /// Returns the offset to UTC in seconds at an instant in milliseconds since the epoch; for instants beyond the years that
    /// the database can tell, the zone's offset at the epoch.
    pub fn offset_seconds(self, utc_ms: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => seconds,
            Self::Named(zone) => {
                let instant = chrono::DateTime::from_timestamp_millis(utc_ms).unwrap_or_default();
                zone.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc()
            }
        }
    }
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

    #[test]
    fn zones_are_read_as_java_reads_them() {
        let cases = [
            ("Z", Some(0)),
            ("+01:00", Some(3600)),
            ("-8", Some(-28_800)),
            ("+0530", Some(19_800)),
            ("UTC+2", Some(7200)),
            ("GMT-01:30", Some(-5400)),
            ("+19:00", None),
            ("+1:00", None),
            ("01:00", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Zone::parse(text), expected.map(Zone::Fixed), "{text}");
        }
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        assert_eq!(berlin.offset_seconds(1_700_000_000_000), 3600);
        assert_eq!(berlin.offset_seconds(1_690_000_000_000), 7200);
        assert_eq!(berlin.local_offset_seconds(1_690_000_000_000), 7200);
        // 02:30 on the days on which clocks go forward and back.
        assert_eq!(berlin.local_offset_seconds(1_711_852_200_000), 3600);
        assert_eq!(berlin.local_offset_seconds(1_729_996_200_000), 7200);
        assert_eq!(Zone::parse("Mars/Base"), None);
    }
}
