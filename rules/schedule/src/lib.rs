//! Schedules: lines of cron, with the name of a time zone behind them where it is not UTC, as rufus-scheduler has it.
//!
//! A [`Schedule`] says when inputs and AI rules run, and in which minutes alerts are raised and sent. Changes of the clock are told in
//! `docs/ai.md`: one time a day is looked up on a clock without changes and made an instant here ([`zone`]), because `croner` drops it
//! where its day ends within a gap; several times a day are as `croner` has them. `tests/clients/schedule.py` compares with `croniter`.

mod zone;

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use croner::parser::{CronParser, Seconds};
use croner::{Cron, JobType};

use zone::ScheduleZone;

/// Longest text, in bytes.
const MAX_BYTES: usize = 256;
const MINUTE_MS: i64 = 60_000;
/// Most days of a schedule that are looked at for the nearest time: a change of the clock moves a time by two days at most.
const MAX_STEPS: usize = 8;
/// Longer than any change of a clock: zones have left out a day, or had one twice.
const LONGEST_CHANGE: TimeDelta = TimeDelta::hours(26);

/// Values that a line consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Minute, hour, day, month, weekday.
    Five,
    /// These, or six with the second first.
    FiveOrSix,
}

/// Times that come again, of whole seconds.
#[derive(Clone, PartialEq, Eq)]
pub struct Schedule {
    line: String,
    zone: ScheduleZone,
    cron: Cron,
}

impl Schedule {
    /// Reads the fields of cron, or a name such as `@hourly`, and behind them a time zone.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str, fields: Fields) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let wrong = |why: &str| {
            let seconds = if fields == Fields::Five { "" } else { ", six with seconds first," };
            format!(
                "[{text}] is no schedule: {why}; write five fields of cron (minute hour day month weekday){seconds} and a time \
                 zone behind them if need be, such as [*/5 8-15 * * mon-fri Europe/Warsaw]"
            )
        };
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let zone = match words.last() {
            Some(last) if words.len() > 1 => ScheduleZone::find(last).ok_or(*last),
            _ => Err(""),
        };
        let zone = match zone {
            Ok(zone) => {
                words.pop();
                zone
            }
            // What only a zone looks like; `mon/2` is none.
            Err(last)
                if last.split_once('/').is_some_and(|(_, city)| city.starts_with(char::is_alphabetic)) =>
            {
                return Err(wrong(&format!("there is no time zone [{last}]")));
            }
            Err(_) => ScheduleZone::UTC,
        };
        let is_name = words.len() == 1 && words[0].starts_with('@');
        if !is_name && words.len() != 5 && (words.len() != 6 || fields == Fields::Five) {
            return Err(wrong(&format!("it has {} fields", words.len())));
        }
        let line = words.join(" ");
        let seconds = if fields == Fields::Five { Seconds::Disallowed } else { Seconds::Optional };
        let cron = CronParser::builder().seconds(seconds).build().parse(&line);
        let schedule = Self { line, zone, cron: cron.map_err(|error| wrong(&error.to_string()))? };
        // A day that never comes is found here, not when something waits for it.
        match schedule.after(0) {
            Some(_) => Ok(schedule),
            None => Err(format!("[{text}] never comes")),
        }
    }

    /// Returns the fields, or the name.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// Returns the first time behind one, in milliseconds.
    pub fn after(&self, ms: i64) -> Option<i64> {
        self.next(ms, false)
    }

    /// Returns the latest time at or before one, in milliseconds.
    pub fn latest(&self, ms: i64) -> Option<i64> {
        if self.is_one_a_day() {
            return self.latest_of_a_day(ms);
        }
        let second = whole(ms, 1000);
        let latest = self.cron.find_previous_occurrence(&self.local(second)?, true).ok()?.timestamp_millis();
        (latest <= ms).then_some(latest)
    }

    /// Tells whether something may be done at a time that is limited to the minutes that the fields mean. A time outside of the calendar
    /// is in none of them.
    pub fn covers(&self, ms: i64) -> bool {
        let minute = self.local(whole(ms, MINUTE_MS));
        minute.is_some_and(|minute| self.cron.is_time_matching(&minute).unwrap_or(false))
    }

    /// Returns when something may be done that is limited to the minutes that the fields mean: at once in such a minute, else when the
    /// next one begins.
    pub fn allows(&self, ms: i64) -> Option<i64> {
        let minute = whole(ms, MINUTE_MS);
        let next = self.next(minute, true)?;
        Some(if next < minute + MINUTE_MS { ms } else { next })
    }

    fn next(&self, ms: i64, inclusive: bool) -> Option<i64> {
        if self.is_one_a_day() {
            return self.next_of_a_day(if inclusive { ms.checked_sub(1)? } else { ms });
        }
        let next = self.cron.find_next_occurrence(&self.local(ms)?, inclusive).ok()?;
        Some(next.timestamp_millis())
    }

    /// Returns true where each of its days has one time.
    fn is_one_a_day(&self) -> bool {
        self.cron.determine_job_type() == JobType::FixedTime
    }

    /// Returns the first time behind one, of a schedule of one time a day.
    fn next_of_a_day(&self, ms: i64) -> Option<i64> {
        let mut clock = self.local(ms)?.naive_local();
        for _ in 0..MAX_STEPS {
            clock = self.cron.find_next_occurrence(&clock.and_utc(), false).ok()?.naive_utc();
            let at = self.zone.first_instant(clock)?.timestamp_millis();
            if at > ms {
                return Some(at);
            }
        }
        None
    }

    /// Returns the latest time at or before one, of a schedule of one time a day.
    fn latest_of_a_day(&self, ms: i64) -> Option<i64> {
        // Of a time that comes twice, what clocks show later may have come already.
        let mut clock = self.local(ms)?.naive_local().checked_add_signed(LONGEST_CHANGE)?;
        for _ in 0..MAX_STEPS {
            clock = self.cron.find_previous_occurrence(&clock.and_utc(), false).ok()?.naive_utc();
            let at = self.zone.first_instant(clock)?.timestamp_millis();
            if at <= ms {
                return Some(at);
            }
        }
        None
    }

    fn local(&self, ms: i64) -> Option<DateTime<ScheduleZone>> {
        Some(DateTime::<Utc>::from_timestamp_millis(ms)?.with_timezone(&self.zone))
    }
}

/// The latest multiple of a length at or before a time.
fn whole(ms: i64, length: i64) -> i64 {
    ms.div_euclid(length).saturating_mul(length)
}

/// As it can be read again.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)?;
        if self.zone == ScheduleZone::UTC { Ok(()) } else { write!(f, " {}", self.zone.name()) }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    fn parse_schedule(text: &str) -> Schedule {
        Schedule::parse(text, Fields::FiveOrSix).unwrap()
    }

    #[test]
    fn zones_stand_behind() {
        for (text, from, expected) in [
            ("0 6 * * * Europe/Warsaw", "2026-01-10T00:00:00Z", "2026-01-10T05:00:00Z"),
            ("0 6 * * * Europe/Warsaw", "2026-07-10T00:00:00Z", "2026-07-10T04:00:00Z"),
            ("0 6 * * * America/Chicago", "2024-01-01T13:00:00Z", "2024-01-02T12:00:00Z"),
            ("0 6 * * *", "2026-07-10T00:00:00Z", "2026-07-10T06:00:00Z"),
            ("@hourly Asia/Tokyo", "2026-07-10T00:30:00Z", "2026-07-10T01:00:00Z"),
            ("30 0 6 * * *", "2026-07-10T00:00:00Z", "2026-07-10T06:00:30Z"),
            ("*/10 * * * * *", "2024-05-01T10:02:03Z", "2024-05-01T10:02:10Z"),
            ("*/5 * * * *", "2024-05-01T10:02:03Z", "2024-05-01T10:05:00Z"),
            ("* 5 * 1-3 *", "2024-05-01T10:00:00Z", "2025-01-01T05:00:00Z"),
        ] {
            assert_eq!(parse_schedule(text).after(ms(from)), Some(ms(expected)), "{text}");
            assert_eq!(parse_schedule(&parse_schedule(text).to_string()), parse_schedule(text));
        }
        assert_eq!(
            (parse_schedule(" 0 6  * * * UTC ").line(), parse_schedule("0 6 * * *").zone()),
            ("0 6 * * *", "UTC")
        );
    }

    #[test]
    fn the_latest_is_the_last_of_what_comes_over_changes_of_the_clock() {
        for text in [
            "30 2 * * * Europe/Warsaw",
            "*/20 * * * * Europe/Warsaw",
            "15 1-3 * * * America/New_York",
            "0 3 * * 0 Europe/Warsaw",
            "0 0 * * * America/Havana",
        ] {
            let schedule = parse_schedule(text);
            for start in [
                "2026-03-07T00:00:00Z",
                "2026-03-28T00:00:00Z",
                "2026-10-24T00:00:00Z",
                "2026-10-31T00:00:00Z",
            ] {
                let start = ms(start);
                let (mut last, mut next) = (schedule.latest(start), schedule.after(start).unwrap());
                for minute in 0..3 * 1440 {
                    let now = start + minute * MINUTE_MS;
                    while next <= now {
                        (last, next) = (Some(next), schedule.after(next).unwrap());
                    }
                    assert_eq!(schedule.latest(now + 31_500), last, "{text} at {now}");
                }
            }
        }
    }

    #[test]
    fn one_time_a_day_comes_once_over_changes_of_the_clock() {
        for (text, from, expected) in [
            // Clocks go forward on a Saturday from 23:00 to Sunday.
            (
                "30 23 * * sat America/Nuuk",
                "2027-03-27T00:00:00Z",
                ["2027-03-28T01:00:00Z", "2027-04-04T00:30:00Z"],
            ),
            (
                "30 23 27 3 * America/Nuuk",
                "2027-03-27T00:00:00Z",
                ["2027-03-28T01:00:00Z", "2028-03-28T00:30:00Z"],
            ),
            (
                "0 23 27 3 * America/Nuuk",
                "2027-03-27T00:00:00Z",
                ["2027-03-28T01:00:00Z", "2028-03-28T00:00:00Z"],
            ),
            // At midnight, and by half an hour.
            (
                "15 0 6 10 * America/Asuncion",
                "2019-10-05T00:00:00Z",
                ["2019-10-06T04:00:00Z", "2020-10-06T03:15:00Z"],
            ),
            (
                "15 2 * * sun Australia/Lord_Howe",
                "2026-09-28T00:00:00Z",
                ["2026-10-03T15:30:00Z", "2026-10-10T15:15:00Z"],
            ),
            (
                "30 2 * * sun Europe/Warsaw",
                "2026-03-28T00:00:00Z",
                ["2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z"],
            ),
            // A day that was left out, and the end of its month.
            (
                "0 12 30 * * Pacific/Apia",
                "2011-12-01T00:00:00Z",
                ["2011-12-30T10:00:00Z", "2012-01-29T22:00:00Z"],
            ),
            (
                "0 12 L 12 * Pacific/Apia",
                "2011-12-01T00:00:00Z",
                ["2011-12-30T22:00:00Z", "2012-12-30T22:00:00Z"],
            ),
            // Of an hour that comes twice the first.
            (
                "30 2 * * sun Europe/Warsaw",
                "2026-10-24T00:00:00Z",
                ["2026-10-25T00:30:00Z", "2026-11-01T01:30:00Z"],
            ),
            (
                "30 0 * * * America/Havana",
                "2024-11-03T04:00:00Z",
                ["2024-11-03T04:30:00Z", "2024-11-04T05:30:00Z"],
            ),
            // The database has Havana on summer time from 2026 on.
            (
                "30 0 * * * America/Havana",
                "2026-11-01T04:00:00Z",
                ["2026-11-01T04:30:00Z", "2026-11-02T04:30:00Z"],
            ),
            // In a gap before midnight: its end.
            (
                "30 0 * * sun America/Havana",
                "2024-03-09T12:00:00Z",
                ["2024-03-10T05:00:00Z", "2024-03-17T04:30:00Z"],
            ),
        ] {
            let schedule = parse_schedule(text);
            let first = schedule.after(ms(from)).unwrap();
            let second = schedule.after(first).unwrap();
            assert_eq!([first, second], expected.map(ms), "{text}");
            for (at, latest) in [(first, first), (first + 1, first), (second - 1, first), (second, second)] {
                assert_eq!(schedule.latest(at), Some(latest), "{text} {at}");
            }
            assert_eq!(schedule.allows(first - 1), Some(first), "{text}");
        }
    }

    #[test]
    fn minutes_are_those_of_the_zone_over_both_changes_of_daylight_saving() {
        let schedule = Schedule::parse("* 8-15 * * mon-fri Europe/Warsaw", Fields::Five).unwrap();
        // Winter, an hour east of Greenwich; summer, two hours.
        for (time, allowed) in [
            ("2026-03-27T06:59:59.999Z", "2026-03-27T07:00:00Z"),
            ("2026-03-27T07:00:00Z", "2026-03-27T07:00:00Z"),
            ("2026-03-27T14:59:59.999Z", "2026-03-27T14:59:59.999Z"),
            ("2026-03-27T15:00:00Z", "2026-03-30T06:00:00Z"),
            ("2026-03-28T10:00:00Z", "2026-03-30T06:00:00Z"),
            ("2026-03-30T05:59:00Z", "2026-03-30T06:00:00Z"),
            ("2026-03-30T06:00:30Z", "2026-03-30T06:00:30Z"),
            ("2026-10-23T06:00:00Z", "2026-10-23T06:00:00Z"),
            ("2026-10-26T06:00:00Z", "2026-10-26T07:00:00Z"),
            ("2026-10-26T07:00:00Z", "2026-10-26T07:00:00Z"),
        ] {
            assert_eq!(schedule.allows(ms(time)), Some(ms(allowed)), "{time}");
            assert_eq!(schedule.covers(ms(time)), time == allowed, "{time}");
        }
        assert!(!parse_schedule("* * * * *").covers(i64::MAX));
        assert_eq!(
            (parse_schedule("* * * * *").allows(i64::MIN), parse_schedule("* * * * *").latest(i64::MAX)),
            (None, None)
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (text, fields, expected) in [
            ("", Fields::Five, "it has 0 fields"),
            ("* 8-15 * *", Fields::Five, "it has 4 fields"),
            ("every 5m", Fields::FiveOrSix, "it has 2 fields"),
            ("* * * * * * *", Fields::FiveOrSix, "it has 7 fields"),
            ("* * * * * *", Fields::Five, "it has 6 fields"),
            ("* * * * * UTC UTC", Fields::Five, "it has 6 fields"),
            ("61 * * * *", Fields::Five, "write five fields of cron"),
            ("0 0 30 2 *", Fields::Five, "never comes"),
            ("0 6 * * * Europe/Nowhere", Fields::Five, "no time zone [Europe/Nowhere]"),
            ("@fortnightly", Fields::Five, "is no schedule"),
            (&"1,".repeat(500), Fields::Five, "longer than"),
        ] {
            let refused = Schedule::parse(text, fields).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
