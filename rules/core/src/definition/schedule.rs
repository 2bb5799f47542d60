//! `schedule`: when alerts are raised, as the minutes that a line of cron means in a time zone.

use millrace_schedule::{Fields, Schedule};
use serde_json::{Value, json};

use super::options::{MAX_NAME, Options, kind, short, text};
use crate::error::{Error, Result};

const NAME: &str = "schedule";

/// Takes `schedule`: a text with a time zone behind the five fields, or an object with `schedule` and `timezone`.
pub(super) fn take(options: &mut Options) -> Result<Option<Schedule>> {
    let line = match options.take(NAME) {
        None => return Ok(None),
        Some(Value::Object(members)) => {
            let mut members = Options(members);
            let line = members.text("schedule", MAX_NAME)?;
            let zone = members.text("timezone", MAX_NAME)?;
            if let Some(name) = members.0.keys().next() {
                let reason = format!("[{}] is unknown in it: schedule and timezone are there", short(name));
                return Err(Error::invalid(NAME, reason));
            }
            let Some(line) = line else {
                return Err(Error::invalid(NAME, "has no [schedule]: a line of cron is expected"));
            };
            zone.map_or(line.clone(), |zone| format!("{line} {zone}"))
        }
        Some(line @ (Value::String(_) | Value::Number(_))) => text(NAME, line, MAX_NAME)?,
        Some(other) => {
            return Err(Error::invalid(NAME, format!("is {}, a line of cron is expected", kind(&other))));
        }
    };
    parse(NAME, &line).map(Some)
}

/// Reads the minutes of an option.
pub(super) fn parse(name: &str, line: &str) -> Result<Schedule> {
    Schedule::parse(line, Fields::Five).map_err(|reason| Error::invalid(name, reason))
}

/// Writes it as it is stored.
pub(super) fn value(schedule: &Schedule) -> Value {
    json!({"schedule": schedule.line(), "timezone": schedule.zone()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Option<Schedule>> {
        take(&mut Options(serde_json::Map::from_iter([("schedule".to_owned(), value)])))
    }

    #[test]
    fn a_zone_stands_behind_or_beside() {
        let schedule = parse(json!("* 8-15 * * mon-fri Europe/Warsaw")).unwrap().unwrap();
        for same in [json!({"schedule": "* 8-15 * * mon-fri", "timezone": "Europe/Warsaw"}), value(&schedule)]
        {
            assert_eq!(parse(same).unwrap().as_ref(), Some(&schedule));
        }
        assert_eq!(parse(Value::Null).unwrap(), None);
    }

    #[test]
    fn what_means_no_minutes_is_refused() {
        for (value, wrong) in [
            (json!("* 8-15 * *"), "it has 4 fields"),
            (json!("* 8-15 * * mon-fri Europe/Nowhere"), "no time zone [Europe/Nowhere]"),
            (json!("* 25 * * *"), "is no schedule"),
            (json!(["* * * * *"]), "a line of cron is expected"),
            (json!({"timezone": "UTC"}), "has no [schedule]"),
            (json!({"schedule": "* * * * * UTC", "timezone": "UTC"}), "it has 6 fields"),
            (json!({"schedule": "* * * * *", "zone": "UTC"}), "[zone] is unknown"),
        ] {
            let error = parse(value).unwrap_err().to_string();
            assert!(error.starts_with("[schedule]") && error.contains(wrong), "{error}");
        }
    }
}
