//! `schedule`: when alerts are raised, as the minutes that a line of cron means in a time zone.

use std::fmt;

use chrono::{DateTime, Timelike};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use serde_json::{Value, json};

use super::options::{MAX_NAME, Options, kind, short, text};
use crate::error::{Error, Result};
use crate::time::Time;

const NAME: &str = "schedule";

/// The minutes in which alerts are raised.
#[derive(Clone, PartialEq)]
pub struct Schedule {
    line: String,
    zone: Tz,
    cron: Cron,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("line", &self.line).field("zone", &self.zone.name()).finish()
    }
}

impl Schedule {
    /// Takes `schedule`: a text with a time zone behind the five fields, or an object with `schedule` and `timezone`.
    pub(super) fn take(options: &mut Options) -> Result<Option<Self>> {
        match options.take(NAME) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                let mut members = Options(members);
                let line = members.text("schedule", MAX_NAME)?;
                let zone = members.text("timezone", MAX_NAME)?;
                if let Some(name) = members.0.keys().next() {
                    let reason =
                        format!("[{}] is unknown in it: schedule and timezone are there", short(name));
                    return Err(Error::invalid(NAME, reason));
                }
                let Some(line) = line else {
                    return Err(Error::invalid(NAME, "has no [schedule]: a line of cron is expected"));
                };
                Self::parse(&line, zone.as_deref()).map(Some)
            }
            Some(line @ (Value::String(_) | Value::Number(_))) => {
                Self::parse(&text(NAME, line, MAX_NAME)?, None).map(Some)
            }
            Some(other) => {
                Err(Error::invalid(NAME, format!("is {}, a line of cron is expected", kind(&other))))
            }
        }
    }

    fn parse(line: &str, zone: Option<&str>) -> Result<Self> {
        let wrong = |why: &str| {
            let reason = format!(
                "[{}] means no minutes: {why}; write five fields of cron (minute hour day month weekday), and a time zone \
                 behind them if need be, such as [* 8-15 * * mon-fri Europe/Warsaw]",
                short(line)
            );
            Error::invalid(NAME, reason)
        };
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        let behind = match fields.len() {
            6 => fields.pop(),
            _ => None,
        };
        if fields.len() != 5 {
            return Err(wrong(&format!("it has {} fields", fields.len())));
        }
        let zone = match (zone, behind) {
            (Some(_), Some(_)) => return Err(wrong("there is a time zone in [timezone], too")),
            (Some(zone), None) | (None, Some(zone)) => zone.trim(),
            (None, None) => "UTC",
        };
        let zone: Tz =
            zone.parse().map_err(|_| wrong(&format!("there is no time zone [{}]", short(zone))))?;
        let line = fields.join(" ");
        let parser = CronParser::builder().seconds(Seconds::Disallowed).build();
        let cron = parser.parse(&line).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { line, zone, cron })
    }

    /// Writes it as it is stored.
    pub(super) fn value(&self) -> Value {
        json!({"schedule": self.line, "timezone": self.zone.name()})
    }

    /// Tells whether the minute of a time belongs to it.
    pub fn covers(&self, time: Time) -> bool {
        let minute = DateTime::from_timestamp_millis(time.ms())
            .map(|time| time.with_timezone(&self.zone))
            .and_then(|time| time.with_second(0))
            .and_then(|time| time.with_nanosecond(0));
        // A time outside of the calendar is in no minute of it.
        minute.is_some_and(|minute| self.cron.is_time_matching(&minute).unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: Value) -> Result<Option<Schedule>> {
        Schedule::take(&mut Options(serde_json::Map::from_iter([("schedule".to_owned(), value)])))
    }

    #[test]
    fn minutes_are_those_of_the_zone_over_both_changes_of_daylight_saving() {
        let both = [
            json!("* 8-15 * * mon-fri Europe/Warsaw"),
            json!({"schedule": "* 8-15 * * mon-fri", "timezone": "Europe/Warsaw"}),
        ];
        for value in both {
            let schedule = of(value).unwrap().unwrap();
            let covers = |time: &str| schedule.covers(Time::parse(time).unwrap());
            // Winter, an hour east of Greenwich; summer, two hours.
            for (time, expected) in [
                ("2026-03-27T06:59:59.999Z", false),
                ("2026-03-27T07:00:00Z", true),
                ("2026-03-27T14:59:59.999Z", true),
                ("2026-03-27T15:00:00Z", false),
                ("2026-03-28T10:00:00Z", false),
                ("2026-03-30T05:59:00Z", false),
                ("2026-03-30T06:00:30Z", true),
                ("2026-10-23T06:00:00Z", true),
                ("2026-10-26T06:00:00Z", false),
                ("2026-10-26T07:00:00Z", true),
            ] {
                assert_eq!(covers(time), expected, "{time}");
            }
            let again = of(schedule.value()).unwrap().unwrap();
            assert_eq!(again, schedule);
        }
        assert!(!of(json!("* * * * *")).unwrap().unwrap().covers(Time::from_ms(i64::MAX)));
        assert_eq!(of(Value::Null).unwrap(), None);
    }

    #[test]
    fn what_means_no_minutes_is_refused() {
        for (value, wrong) in [
            (json!("* 8-15 * *"), "it has 4 fields"),
            (json!("* 8-15 * * mon-fri Europe/Nowhere"), "no time zone [Europe/Nowhere]"),
            (json!("* 25 * * *"), "means no minutes"),
            (json!(["* * * * *"]), "a line of cron is expected"),
            (json!({"timezone": "UTC"}), "has no [schedule]"),
            (json!({"schedule": "* * * * * UTC", "timezone": "UTC"}), "[timezone], too"),
            (json!({"schedule": "* * * * *", "zone": "UTC"}), "[zone] is unknown"),
        ] {
            let error = of(value).unwrap_err().to_string();
            assert!(error.starts_with("[schedule]") && error.contains(wrong), "{error}");
        }
    }
}
