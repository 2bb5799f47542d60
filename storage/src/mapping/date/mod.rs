//! Date formats and date math.
//!
//! A [`DateFormat`] is what a mapping's `format` names: alternatives separated by `||`, each a named
//! format, an epoch, or a pattern of letters. It reads strings into an [`Instant`] and writes instants
//! back. [`DateFormat::parse_math`] adds date math (`now-1d/d`, `2024-01-01||+1M/d`) for queries.
//!
//! ISO 8601 in its usual full form is read by a path of its own: it is what nearly every log carries.

mod calendar;
mod math;
mod named;
mod pattern;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use millrace_time::Zone;
pub use pattern::{DAYS, MONTHS};
use pattern::{Item, Parts};

/// Most alternatives of a format.
const MAX_ALTERNATIVES: usize = 64;

/// A point in time: nanoseconds since the Unix epoch, wide enough for every date of nine-digit years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(pub(crate) i128);

impl Instant {
    /// Makes an instant of milliseconds.
    pub(crate) fn from_millis(millis: i64) -> Self {
        Self(i128::from(millis) * 1_000_000)
    }

    /// Milliseconds since the epoch, rounded down; `None` beyond 64 bits.
    pub(crate) fn millis(self) -> Option<i64> {
        i64::try_from(self.0.div_euclid(1_000_000)).ok()
    }

    /// Nanoseconds since the epoch; `None` outside 1970 to 2262, which date_nanos can hold.
    pub(crate) fn nanos(self) -> Option<i64> {
        i64::try_from(self.0).ok().filter(|nanos| *nanos >= 0)
    }
}

/// A date format, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct DateFormat {
    text: Arc<str>,
    alternatives: Vec<Alternative>,
}

#[derive(Clone, Debug, PartialEq)]
enum Alternative {
    EpochMillis,
    EpochSecond,
    EpochMicros,
    Items {
        items: Vec<Item>,
        /// Whether the full form of ISO 8601 is among what it reads.
        iso: bool,
    },
}

impl DateFormat {
    /// Compiles a format.
    ///
    /// # Errors
    /// OpenSearch's text for a pattern with an unknown letter and the like.
    pub fn parse(text: &str) -> Result<Self, String> {
        // A leading 8 once asked for the pattern letters that are the only ones now.
        let body = text.strip_prefix('8').filter(|rest| !rest.is_empty()).unwrap_or(text);
        if body.is_empty() {
            return Err("No date pattern provided".to_owned());
        }
        let mut alternatives = Vec::new();
        for part in body.split("||") {
            if part.is_empty() {
                return Err(format!("Cannot have empty element in multi date format pattern: {text}"));
            }
            if alternatives.len() == MAX_ALTERNATIVES {
                return Err(format!("more than {MAX_ALTERNATIVES} alternatives in date format [{text}]"));
            }
            alternatives.push(match part {
                "epoch_millis" | "epochMillis" => Alternative::EpochMillis,
                "epoch_second" | "epochSecond" => Alternative::EpochSecond,
                "epoch_micros" | "epochMicros" => Alternative::EpochMicros,
                _ => match named::find(part) {
                    Some(named) => Alternative::Items {
                        items: pattern::compile(named.pattern, named.strict, true)
                            .map_err(|reason| format!("Invalid format: [{part}]: {reason}"))?,
                        iso: named.pattern.contains("[z]"),
                    },
                    None => Alternative::Items {
                        items: pattern::compile(part, true, false)
                            .map_err(|reason| format!("Invalid format: [{part}]: {reason}"))?,
                        iso: false,
                    },
                },
            });
        }
        Ok(Self { text: text.into(), alternatives })
    }

    /// Returns the format as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads a date. `round_up` fills a missing time of day with its last instant instead of its first.
    pub(crate) fn read(&self, text: &str, round_up: bool) -> Option<Instant> {
        self.read_local(text, round_up).map(|(instant, _)| instant)
    }

    /// Reads a date as [`DateFormat::read`] does, and whether it is local time: its text names no zone and is no count since
    /// the epoch. Local time is given as if it was UTC.
    fn read_local(&self, text: &str, round_up: bool) -> Option<(Instant, bool)> {
        self.alternatives.iter().find_map(|alternative| {
            let of_epoch = |unit_nanos| epoch(text, unit_nanos).map(|instant| (instant, false));
            match alternative {
                Alternative::EpochMillis => of_epoch(1_000_000),
                Alternative::EpochSecond => of_epoch(1_000_000_000),
                Alternative::EpochMicros => of_epoch(1_000),
                Alternative::Items { items, iso } => {
                    if *iso && let Some(instant) = read_iso(text.as_bytes()) {
                        let is_local = !text.bytes().skip(19).any(|b| matches!(b, b'Z' | b'+' | b'-'));
                        return Some((instant, is_local));
                    }
                    let mut parts = Parts::default();
                    let rest = pattern::read(items, text, &mut parts)?;
                    let instant = if rest.is_empty() { resolve(&parts, round_up)? } else { return None };
                    Some((instant, parts.offset_seconds.is_none() && parts.zone.is_none()))
                }
            }
        })
    }

    /// Whether it reads a string.
    pub(crate) fn reads(&self, text: &str) -> bool {
        self.read(text, false).is_some()
    }

    /// Reads a date or an expression of date math in UTC.
    ///
    /// # Errors
    /// OpenSearch's text for an expression that cannot be read.
    pub(crate) fn parse_math(&self, text: &str, now: Instant, round_up: bool) -> Result<Instant, String> {
        self.parse_math_in(text, now, round_up, Zone::UTC)
    }

    /// Reads a date or an expression of date math: dates that name no zone are local times of `zone`, and steps are taken in it.
    ///
    /// # Errors
    /// OpenSearch's text for an expression that cannot be read.
    pub(crate) fn parse_math_in(
        &self,
        text: &str,
        now: Instant,
        round_up: bool,
        zone: Zone,
    ) -> Result<Instant, String> {
        math::evaluate(self, text, now, round_up, zone)
    }

    /// Reads a date or an expression of date math as milliseconds since the epoch, rounded down; `now_ms` is what
    /// `now` means, `round_up` fills missing parts upwards.
    ///
    /// # Errors
    /// OpenSearch's text for an expression that cannot be read.
    pub fn parse_millis(&self, text: &str, now_ms: i64, round_up: bool) -> Result<i64, String> {
        self.parse_millis_in(text, now_ms, round_up, Zone::UTC)
    }

    /// Reads as [`DateFormat::parse_millis`] does, in a zone.
    ///
    /// # Errors
    /// OpenSearch's text for an expression that cannot be read.
    pub fn parse_millis_in(
        &self,
        text: &str,
        now_ms: i64,
        round_up: bool,
        zone: Zone,
    ) -> Result<i64, String> {
        let instant = self.parse_math_in(text, Instant::from_millis(now_ms), round_up, zone)?;
        instant.millis().ok_or_else(|| format!("failed to parse date field [{text}]"))
    }

    /// Writes an instant given in nanoseconds since the epoch, in UTC, by the first alternative.
    pub fn format_nanos(&self, nanos: i128) -> String {
        self.format_nanos_at(nanos, 0, "UTC")
    }

    /// Writes an instant given in nanoseconds since the epoch by the first alternative, as clocks of a zone show it that is
    /// `offset_seconds` ahead of UTC then.
    pub fn format_nanos_at(&self, nanos: i128, offset_seconds: i32, zone: &str) -> String {
        let mut out = String::new();
        match self.alternatives.first() {
            Some(Alternative::EpochMillis) => return nanos.div_euclid(1_000_000).to_string(),
            Some(Alternative::EpochSecond) => return epoch_seconds(nanos),
            Some(Alternative::EpochMicros) => return nanos.div_euclid(1_000).to_string(),
            Some(Alternative::Items { items, .. }) => {
                const DAY: i128 = 86_400_000_000_000;
                let local = nanos + i128::from(offset_seconds) * 1_000_000_000;
                let (days, nanos_of_day) = (local.div_euclid(DAY) as i64, local.rem_euclid(DAY) as i64);
                pattern::write(items, days, nanos_of_day, (offset_seconds, zone), &mut out);
            }
            None => {}
        }
        out
    }
}

/// Writes seconds since the epoch, with a fraction where there is one.
fn epoch_seconds(nanos: i128) -> String {
    const SECOND: u128 = 1_000_000_000;
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    match nanos % SECOND {
        0 => format!("{sign}{}", nanos / SECOND),
        fraction => {
            let digits = format!("{fraction:09}");
            format!("{sign}{}.{}", nanos / SECOND, digits.trim_end_matches('0'))
        }
    }
}

/// Reads a count of units since the epoch, with decimals.
fn epoch(text: &str, unit_nanos: i128) -> Option<Instant> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, decimals) = match digits.split_once('.') {
        Some((whole, decimals)) if !decimals.is_empty() => (whole, decimals),
        Some((whole, _)) => (whole, ""),
        None => (digits, ""),
    };
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 19 || decimals.len() > 9 || !is_digits(whole) || !is_digits(decimals)
    {
        return None;
    }
    let mut nanos = whole.parse::<i128>().ok()? * unit_nanos;
    if !decimals.is_empty() {
        nanos += decimals.parse::<i128>().ok()? * unit_nanos / 10i128.pow(decimals.len() as u32);
    }
    Some(Instant(if negative { -nanos } else { nanos }))
}

/// Reads `YYYY-MM-DDTHH:MM:SS[.fraction](Z|offset)?`; anything else is left to the general way.
fn read_iso(text: &[u8]) -> Option<Instant> {
    fn two(text: &[u8], at: usize) -> Option<u32> {
        let (tens, units) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
        (tens < 10 && units < 10).then(|| u32::from(tens) * 10 + u32::from(units))
    }
    if text.len() < 19
        || text[4] != b'-'
        || text[7] != b'-'
        || text[10] != b'T'
        || text[13] != b':'
        || text[16] != b':'
    {
        return None;
    }
    let year = i64::from(two(text, 0)? * 100 + two(text, 2)?);
    let (month, day) = (two(text, 5)?, two(text, 8)?);
    let (hour, minute, second) = (two(text, 11)?, two(text, 14)?, two(text, 17)?);
    if month == 0
        || month > 12
        || day == 0
        || day > calendar::days_in_month(year, month)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let mut at = 19;
    let mut nanos = 0i64;
    if matches!(text.get(at), Some(b'.' | b',')) {
        at += 1;
        let mut scale = 100_000_000i64;
        let start = at;
        while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            if scale == 0 {
                return None;
            }
            nanos += i64::from(digit) * scale;
            scale /= 10;
            at += 1;
        }
        if at == start {
            return None;
        }
    }
    let offset = match &text[at..] {
        [] | [b'Z'] => 0,
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let seconds = match rest.len() {
                5 if rest[2] == b':' => two(rest, 0)? * 3600 + two(rest, 3)? * 60,
                4 => two(rest, 0)? * 3600 + two(rest, 2)? * 60,
                _ => return None,
            };
            if seconds > 18 * 3600 {
                return None;
            }
            if *sign == b'-' { -i64::from(seconds) } else { i64::from(seconds) }
        }
        _ => return None,
    };
    let seconds = calendar::days_from_civil(year, month, day) * 86_400
        + i64::from(hour * 3600 + minute * 60 + second)
        - offset;
    Some(Instant(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)))
}

/// Fills what is missing of a date, downwards or upwards.
fn resolve(parts: &Parts, round_up: bool) -> Option<Instant> {
    let fill = |value: Option<u32>, least: u32, greatest: u32| {
        value.unwrap_or(if round_up { greatest } else { least })
    };
    let days = if let (None, Some(week_year)) = (parts.year, parts.week_year) {
        let week = fill(parts.week, 1, calendar::iso_week(calendar::days_from_civil(week_year, 12, 28)).1);
        calendar::days_from_iso_week(week_year, week, fill(parts.weekday, 1, 7))
    } else {
        let has_date = parts.year.is_some()
            || parts.month.is_some()
            || parts.day.is_some()
            || parts.day_of_year.is_some();
        let year = parts.year.unwrap_or(1970);
        if let Some(day_of_year) = parts.day_of_year {
            if day_of_year == 366 && !calendar::is_leap(year) {
                return None;
            }
            calendar::days_from_civil(year, 1, 1) + i64::from(day_of_year) - 1
        } else if has_date {
            // As in OpenSearch only the time of day is filled upwards: `2024-02` ends with its first day.
            let (month, day) = (parts.month.unwrap_or(1), parts.day.unwrap_or(1));
            if day > calendar::days_in_month(year, month) {
                return None;
            }
            calendar::days_from_civil(year, month, day)
        } else {
            0
        }
    };
    let hour = match (parts.hour, parts.hour12) {
        (Some(hour), _) => Some(hour),
        (None, Some(hour)) => Some(hour + if parts.afternoon == Some(true) { 12 } else { 0 }),
        (None, None) => None,
    };
    let mut seconds = i64::from(fill(hour, 0, 23)) * 3600
        + i64::from(fill(parts.minute, 0, 59)) * 60
        + i64::from(fill(parts.second, 0, 59));
    let mut nanos = fill(parts.nanos, 0, 999_999_999);
    if let Some(millis) = parts.milli_of_day {
        seconds = i64::from(millis / 1000);
        nanos = millis % 1000 * 1_000_000;
    }
    let local = days * 86_400 + seconds;
    let utc = match (parts.offset_seconds, parts.zone) {
        (Some(offset), _) => local - i64::from(offset),
        (None, Some(zone)) => {
            use chrono::TimeZone;
            let naive = chrono::DateTime::from_timestamp(local, 0)?.naive_utc();
            zone.from_local_datetime(&naive).earliest()?.timestamp()
        }
        (None, None) => local,
    };
    Some(Instant(i128::from(utc) * 1_000_000_000 + i128::from(nanos)))
}
