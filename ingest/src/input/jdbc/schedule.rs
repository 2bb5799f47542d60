//! When a statement runs: a cron line, with seconds and a time zone where they are given.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds};

/// A schedule of five fields, or six with seconds first, and perhaps a time zone behind them.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    cron: Cron,
    zone: Tz,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "[{text}] is not a schedule: {why}; write five cron fields (minute hour day month weekday), six with seconds first, and a time zone behind them if need be"
            )
        };
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        match fields.first() {
            None => return Err(wrong("it is empty")),
            Some(&("every" | "in" | "at" | "first")) => {
                return Err(wrong(
                    "only cron lines are supported, such as [*/5 * * * *] for every five minutes",
                ));
            }
            Some(_) => {}
        }
        let zone = match fields.last().map(|last| last.parse::<Tz>()) {
            Some(Ok(zone)) if fields.len() > 1 => {
                fields.pop();
                zone
            }
            _ => Tz::UTC,
        };
        if fields.len() > 6 || fields.len() < 5 && !fields.first().is_some_and(|field| field.starts_with('@'))
        {
            return Err(wrong(&format!("it has {} fields, or its time zone is not known", fields.len())));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(&fields.join(" ")).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { cron, zone })
    }

    /// The first time after an instant, `None` if there is none.
    pub(super) fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let next = self.cron.find_next_occurrence(&after.with_timezone(&self.zone), false).ok()?;
        Some(next.to_utc())
    }

    /// Whether a time lies between the last run and now.
    pub(super) fn missed(&self, last: DateTime<Utc>, now: DateTime<Utc>) -> bool {
        self.next(last).is_some_and(|next| next <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let after = DateTime::parse_from_rfc3339(after).expect("a time").to_utc();
        Schedule::parse(schedule).expect(schedule).next(after).expect("a next time").to_rfc3339()
    }

    #[test]
    fn five_fields_six_and_zones() {
        assert_eq!(next("*/5 * * * *", "2024-05-01T10:02:03Z"), "2024-05-01T10:05:00+00:00");
        assert_eq!(next("*/10 * * * * *", "2024-05-01T10:02:03Z"), "2024-05-01T10:02:10+00:00");
        assert_eq!(next("0 6 * * * Europe/Berlin", "2024-05-01T10:00:00Z"), "2024-05-02T04:00:00+00:00");
        assert_eq!(next("0 6 * * * America/Chicago", "2024-01-01T13:00:00Z"), "2024-01-02T12:00:00+00:00");
        assert_eq!(next("* 5 * 1-3 *", "2024-05-01T10:00:00Z"), "2025-01-01T05:00:00+00:00");
    }

    #[test]
    fn what_is_not_supported_is_refused_with_what_is() {
        for schedule in
            ["every 5m", "", "* * *", "61 * * * *", "* * * * * * * *", "*/5 * * * * Berlin/Berlin"]
        {
            let refused = Schedule::parse(schedule).expect_err(schedule);
            assert!(refused.contains("five cron fields"), "{refused}");
        }
    }

    #[test]
    fn missed_times_are_seen() {
        let schedule = Schedule::parse("0 * * * *").expect("a schedule");
        let at = |text| DateTime::parse_from_rfc3339(text).expect("a time").to_utc();
        assert!(schedule.missed(at("2024-05-01T09:59:59Z"), at("2024-05-01T12:30:00Z")));
        assert!(!schedule.missed(at("2024-05-01T12:00:00Z"), at("2024-05-01T12:30:00Z")));
    }
}
