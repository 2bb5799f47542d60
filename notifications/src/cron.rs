//! Patterns of cron, with a time zone behind them where one is given: `* 8-16 * * mon-fri Europe/Berlin`.

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::CronParser;

/// A pattern of cron in its time zone.
#[derive(Debug)]
pub(crate) struct Pattern {
    cron: Cron,
    zone: Tz,
}

impl Pattern {
    /// Reads a pattern of five or six fields (minutes, or seconds and minutes first), with the name of a time zone behind it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let read = Self::parse(text)?;
        // A day that never comes is found here, not when an alert waits for it.
        match read.next(0, true) {
            Some(_) => Ok(read),
            None => Err(format!("[{}] never comes", text.trim())),
        }
    }

    /// Reads one that was looked at when it was saved.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (pattern, zone) = match text.trim().rsplit_once(char::is_whitespace) {
            Some((pattern, zone)) => match zone.parse::<Tz>() {
                Ok(zone) => (pattern.trim(), zone),
                Err(_) => (text.trim(), Tz::UTC),
            },
            None => (text.trim(), Tz::UTC),
        };
        let cron = CronParser::new()
            .parse(pattern)
            .map_err(|error| format!("[{pattern}] is no pattern of cron: {error}"))?;
        Ok(Self { cron, zone })
    }

    /// Returns the first time that matches, in milliseconds: behind a time, or at it where that is `inclusive`.
    pub(crate) fn next(&self, from_ms: i64, inclusive: bool) -> Option<i64> {
        let from: DateTime<Tz> =
            self.zone.from_utc_datetime(&DateTime::<Utc>::from_timestamp_millis(from_ms)?.naive_utc());
        self.cron.find_next_occurrence(&from, inclusive).ok().map(|next| next.timestamp_millis())
    }

    /// Returns when something may be done that is limited to the minutes that match: at once in such a minute, else when the next one
    /// begins.
    pub(crate) fn at_or_after(&self, ms: i64) -> Option<i64> {
        let minute = ms - ms.rem_euclid(60_000);
        let next = self.next(minute, true)?;
        Some(if next < minute + 60_000 { ms } else { next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    #[test]
    fn times_are_those_of_the_zone() {
        let office = Pattern::read("* 8-16 * * mon-fri Europe/Berlin").unwrap();
        for (from, expected) in [
            ("2026-03-27T09:30:20Z", "2026-03-27T09:30:20Z"),
            ("2026-03-27T16:00:00Z", "2026-03-30T06:00:00Z"),
            ("2026-10-23T16:00:00Z", "2026-10-26T07:00:00Z"),
        ] {
            assert_eq!(office.at_or_after(at(from)), Some(at(expected)), "{from}");
        }
        let hourly = Pattern::read("0 * * * *").unwrap();
        assert_eq!(hourly.next(at("2026-01-01T10:00:00Z"), false), Some(at("2026-01-01T11:00:00Z")));
        for wrong in ["", "* *", "61 * * * *", "* * * * * Europe/Nowhere", "0 0 30 2 *", "every hour"] {
            assert!(Pattern::read(wrong).is_err(), "{wrong}");
        }
    }
}
