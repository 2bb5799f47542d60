//! Times at which an input asks others: once, in intervals, or by a line of cron.

use std::time::Duration;

use chrono::{DateTime, Utc};
use millrace_schedule::{Fields, Schedule};
use tokio::sync::watch;

use super::stopped;
use crate::{Options, Setting};

/// Interval between two looks at the clock while waiting: it may be set.
const CLOCK: Duration = Duration::from_secs(30);
/// Longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(366 * 86_400);

/// Times of runs.
#[derive(Clone, Debug)]
pub(super) enum Timer {
    /// One run, after a pause.
    Once(Duration),
    /// A run at the start and in each interval.
    Every(Duration),
    /// A run at each time of a line of cron.
    Cron(Box<Schedule>),
}

impl Timer {
    /// Takes the option `schedule`: a line of cron, or a hash of `cron`, `every`, `in`.
    pub(super) fn take(options: &mut Options) -> Option<Self> {
        let (at, setting) = options.take("schedule")?;
        let parsed = match &setting {
            Setting::Hash(members) => match members.as_slice() {
                [(kind, value)] => Self::parse(kind, &value.as_text().unwrap_or_default()),
                _ => Err("it needs one of [cron, every, in]".to_owned()),
            },
            Setting::Text(line) => Self::parse("cron", line),
            _ => Err("it must be a line of cron or a hash".to_owned()),
        };
        parsed.map_err(|problem| options.fault(at, format!("option [schedule]: {problem}"))).ok()
    }

    fn parse(kind: &str, text: &str) -> Result<Self, String> {
        let duration = || {
            let duration = parse_duration(text).filter(|duration| *duration <= MAX_INTERVAL);
            duration.ok_or_else(|| format!("[{text}] is no duration such as [30s], [5m] or [1h30m]"))
        };
        match kind {
            "cron" => Schedule::parse(text, Fields::FiveOrSix).map(|schedule| Self::Cron(Box::new(schedule))),
            "every" => match duration()? {
                Duration::ZERO => Err("[every] must be more than nothing".to_owned()),
                interval => Ok(Self::Every(interval)),
            },
            "in" => duration().map(Self::Once),
            other => Err(format!("[{other}] is not one of [cron, every, in]")),
        }
    }

    /// Waits for the next run; `run` is its number, from 0. Returns `false` where there is none, or the input is to stop.
    pub(super) async fn wait(&self, run: u64, stopping: &mut watch::Receiver<bool>) -> bool {
        let due = async {
            match self {
                Self::Once(pause) if run == 0 => tokio::time::sleep(*pause).await,
                Self::Once(_) => return false,
                Self::Every(_) if run == 0 => {}
                Self::Every(interval) => tokio::time::sleep(*interval).await,
                Self::Cron(schedule) => {
                    let next = schedule.after(Utc::now().timestamp_millis());
                    let Some(next) = next.and_then(DateTime::from_timestamp_millis) else { return false };
                    while let Ok(left) = (next - Utc::now()).to_std() {
                        tokio::time::sleep(left.min(CLOCK)).await;
                    }
                }
            }
            true
        };
        tokio::select! {
            biased;
            () = stopped(stopping) => false,
            due = due => due,
        }
    }
}

/// Reads a duration: numbers with the units `y`, `w`, `d`, `h`, `m`, `s`, `ms`; seconds where there is none.
fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = text.trim();
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let unit = behind.find(|character: char| character.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let milliseconds: u64 = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        all = all.checked_add(Duration::from_millis(number.checked_mul(milliseconds)?))?;
        rest = behind;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in
            [("30s", 30.0), ("1h30m", 5_400.0), ("250ms", 0.25), ("7", 7.0), ("2d", 172_800.0)]
        {
            assert_eq!(parse_duration(text).map(|duration| duration.as_secs_f64()), Some(seconds), "{text}");
        }
        for wrong in ["", "s", "1x", "-1s", "99999999999999999999y"] {
            assert!(parse_duration(wrong).is_none_or(|duration| duration.is_zero()), "{wrong}");
        }
        assert!(Timer::parse("every", "0s").is_err());
        assert!(Timer::parse("cron", "* * * * *").is_ok());
        assert!(Timer::parse("at", "x").unwrap_err().contains("[cron, every, in]"));
    }
}
