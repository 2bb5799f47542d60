//! Schedules: cron, with the name of a time zone behind it where it is not UTC, as rufus-scheduler has it.
//!
//! Daylight saving is as `croner` has it, and told in `docs/ai.md`; `tests/clients/schedule.py` compares with `croniter`.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// Longest text, in bytes.
const MAX_BYTES: usize = 256;

/// When a rule runs.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: Tz,
    text: String,
}

impl Schedule {
    /// Reads five fields of cron, or six with the second, which is one number, before them; or a name such as `@hourly`; behind it a
    /// time zone, or UTC.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let mut zone = Tz::UTC;
        if words.len() > 1
            && let Some(last) = words.last()
        {
            match last.parse::<Tz>() {
                Ok(found) => {
                    zone = found;
                    words.pop();
                }
                // What only a zone looks like; `mon/2` is none.
                Err(_)
                    if last
                        .split_once('/')
                        .is_some_and(|(_, city)| city.starts_with(char::is_alphabetic)) =>
                {
                    return Err(format!("names time zone [{last}], which is not known"));
                }
                Err(_) => {}
            }
        }
        let is_name = words.len() == 1 && words[0].starts_with('@');
        if !is_name && !(5..=6).contains(&words.len()) {
            return Err(format!("[{text}] is no cron schedule: write five fields, such as 0 6 * * *"));
        }
        if words.len() == 6 && !words[0].parse::<u8>().is_ok_and(|second| second < 60) {
            return Err("has a second that is not one number: a rule runs at most once a minute".to_owned());
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build();
        let cron = parser
            .parse(&words.join(" "))
            .map_err(|error| format!("[{text}] is no cron schedule: {error}"))?;
        let schedule = Self { cron, zone, text: text.trim().to_owned() };
        match schedule.next(0) {
            Some(_) => Ok(schedule),
            None => Err(format!("[{text}] never comes")),
        }
    }

    /// Returns the text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn local(&self, ms: i64) -> Option<DateTime<Tz>> {
        Some(DateTime::<Utc>::from_timestamp_millis(ms)?.with_timezone(&self.zone))
    }

    /// Returns the first time behind one, in milliseconds.
    pub fn next(&self, ms: i64) -> Option<i64> {
        let next = self.cron.find_next_occurrence(&self.local(ms)?, false).ok()?;
        Some(next.timestamp_millis())
    }

    /// Returns the latest time that is over, unless it is not later than what was handled.
    pub fn due(&self, handled_ms: i64, now_ms: i64) -> Option<i64> {
        // Times of schedules are whole seconds.
        let second = now_ms.div_euclid(1000) * 1000;
        let latest = self.cron.find_previous_occurrence(&self.local(second)?, true).ok()?.timestamp_millis();
        (latest > handled_ms && latest <= now_ms).then_some(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    #[test]
    fn zones_stand_behind() {
        let daily = Schedule::parse("0 6 * * * Europe/Warsaw").unwrap();
        assert_eq!(daily.next(ms("2026-01-10T00:00:00Z")), Some(ms("2026-01-10T05:00:00Z")));
        assert_eq!(daily.next(ms("2026-07-10T00:00:00Z")), Some(ms("2026-07-10T04:00:00Z")));
        let plain = Schedule::parse("0 6 * * *").unwrap();
        assert_eq!(plain.next(ms("2026-07-10T00:00:00Z")), Some(ms("2026-07-10T06:00:00Z")));
        let named = Schedule::parse("@hourly Asia/Tokyo").unwrap();
        assert_eq!(named.next(ms("2026-07-10T00:30:00Z")), Some(ms("2026-07-10T01:00:00Z")));
        assert_eq!(Schedule::parse("30 0 6 * * *").unwrap().next(0), Some(21_630_000));
    }

    #[test]
    fn only_the_latest_of_missed_times_is_due() {
        let schedule = Schedule::parse("0 * * * *").unwrap();
        let now = ms("2026-07-10T12:20:31.5Z");
        assert_eq!(schedule.due(ms("2026-07-09T00:00:00Z"), now), Some(ms("2026-07-10T12:00:00Z")));
        assert_eq!(schedule.due(ms("2026-07-10T12:00:00Z"), now), None);
        assert_eq!(
            schedule.due(ms("2026-07-10T12:00:00Z"), ms("2026-07-10T13:00:00Z")),
            Some(ms("2026-07-10T13:00:00Z"))
        );
    }

    #[test]
    fn what_is_due_is_the_last_of_what_comes_over_changes_of_the_clock() {
        for text in [
            "30 2 * * * Europe/Warsaw",
            "*/20 * * * * Europe/Warsaw",
            "15 1-3 * * * America/New_York",
            "0 3 * * 0 Europe/Warsaw",
        ] {
            let schedule = Schedule::parse(text).unwrap();
            for start in [
                "2026-03-07T00:00:00Z",
                "2026-03-28T00:00:00Z",
                "2026-10-24T00:00:00Z",
                "2026-10-31T00:00:00Z",
            ] {
                let (start, mut last) = (ms(start), None);
                let mut next = schedule.next(start).unwrap();
                for minute in 0..3 * 1440 {
                    let now = start + minute * 60_000;
                    while next <= now {
                        (last, next) = (Some(next), schedule.next(next).unwrap());
                    }
                    assert_eq!(schedule.due(start, now), last, "{text} at {now}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (text, expected) in [
            ("", "write five fields"),
            ("* * *", "write five fields"),
            ("61 * * * *", "is no cron schedule"),
            ("* * * * * *", "at most once a minute"),
            ("*/5 * * * * *", "at most once a minute"),
            ("0 0 30 2 *", "never comes"),
            ("0 6 * * * Europe/Nowhere", "not known"),
            ("@fortnightly", "is no cron schedule"),
            (&"1,".repeat(500), "longer than"),
        ] {
            let refused = Schedule::parse(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
