//! Date formats and date math.
//!
//! A [`DateFormat`] is what a mapping's `format` names: alternatives separated by `||`, each a named
//! format, an epoch, or a pattern of letters. It reads strings into an [`Instant`] and writes instants
//! back. [`DateFormat::parse_math`] adds date math (`now-1d/d`, `2024-01-01||+1M/d`) for queries.
//!
//! ISO 8601 in its usual full form is read by a path of its own: it is what nearly every log carries.

mod field;
mod iso;
mod math;
mod named;
mod names;
mod pattern;
mod reader;
mod resolve;
#[cfg(test)]
mod tests;
mod weeks;
mod writer;
mod zone_names;

use std::sync::Arc;

use millrace_time::Zone;

use field::Fields;
use named::NamedFormat;
pub use names::{DAYS, MONTHS};
use pattern::{Item, LetterSet};
use resolve::Style;
use writer::LocalTime;

/// Most alternatives of a format.
const MAX_ALTERNATIVES: usize = 64;
const NANOS_OF_SECOND: i128 = 1_000_000_000;

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
    Epoch(EpochUnit),
    Pattern(Pattern),
}

/// Unit of a count since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EpochUnit {
    nanos: i128,
    /// Decimals down to a nanosecond.
    decimals: usize,
}

impl EpochUnit {
    const SECOND: Self = Self { nanos: 1_000_000_000, decimals: 9 };
    const MILLI: Self = Self { nanos: 1_000_000, decimals: 6 };
    const MICRO: Self = Self { nanos: 1_000, decimals: 3 };
}

#[derive(Clone, Debug, PartialEq)]
struct Pattern {
    reads: Vec<Item>,
    /// Items that write, where others than those that read do.
    writes: Option<Vec<Item>>,
    style: Style,
    /// Set where it reads the full form of ISO 8601.
    iso: bool,
}

impl Pattern {
    fn from_named(format: NamedFormat) -> Result<Self, String> {
        Ok(Self {
            reads: pattern::compile(format.reads, LetterSet::Named)?,
            writes: Some(pattern::compile(format.writes, LetterSet::Named)?),
            style: format.style,
            // These take a fraction of a second or none, and a zone or none.
            iso: format.reads.contains("[f][,n]") && format.reads.contains("[z]"),
        })
    }

    fn from_letters(letters: &str) -> Result<Self, String> {
        Ok(Self {
            reads: pattern::compile(letters, LetterSet::Java)?,
            writes: None,
            style: Style::Strict,
            iso: false,
        })
    }

    /// Reads a date, and whether it is local time.
    fn read(&self, text: &str, round_up: bool) -> Option<(Instant, bool)> {
        if self.iso
            && let Some(read) = iso::read(text.as_bytes(), round_up)
        {
            return Some(read);
        }
        let mut fields = Fields::default();
        let rest = reader::read(&self.reads, text, &mut fields)?;
        // Rounding up is never strict, so that a day that does not exist ends with its month.
        let style = if round_up { Style::Smart } else { self.style };
        if rest.is_empty() { resolve::resolve(&mut fields, style, round_up) } else { None }
    }
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
        for part in body.split("||").map(str::trim) {
            if part.is_empty() {
                return Err(format!("Cannot have empty element in multi date format pattern: {text}"));
            }
            if alternatives.len() == MAX_ALTERNATIVES {
                return Err(format!("more than {MAX_ALTERNATIVES} alternatives in date format [{text}]"));
            }
            alternatives.push(match part {
                "epoch_millis" | "epochMillis" => Alternative::Epoch(EpochUnit::MILLI),
                "epoch_second" | "epochSecond" => Alternative::Epoch(EpochUnit::SECOND),
                "epoch_micros" | "epochMicros" => Alternative::Epoch(EpochUnit::MICRO),
                _ => named::find(part)
                    .map_or_else(|| Pattern::from_letters(part), Pattern::from_named)
                    .map(Alternative::Pattern)
                    .map_err(|reason| format!("Invalid format: [{part}]: {reason}"))?,
            });
        }
        Ok(Self { text: text.into(), alternatives })
    }

    /// Returns the format as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads a date. `round_up` fills what is missing of a time of day with its last instant instead of its first.
    pub(crate) fn read(&self, text: &str, round_up: bool) -> Option<Instant> {
        self.read_local(text, round_up).map(|(instant, _)| instant)
    }

    /// Reads a date as [`DateFormat::read`] does, and whether it is local time: its text names no zone and is no count since
    /// the epoch. Local time is given as if it was UTC.
    fn read_local(&self, text: &str, round_up: bool) -> Option<(Instant, bool)> {
        self.alternatives.iter().find_map(|alternative| match alternative {
            Alternative::Epoch(unit) => Some((epoch(text, *unit, round_up)?, false)),
            Alternative::Pattern(pattern) => pattern.read(text, round_up),
        })
    }

    /// Returns true where it reads a text.
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

    /// Writes the date that an expression of date math stands for, `now` being `now_ms`, as clocks of a zone show it.
    ///
    /// # Errors
    /// OpenSearch's text for an expression that cannot be read, or a zone that is not known.
    pub fn evaluate(&self, expression: &str, now_ms: i64, zone: Option<&str>) -> Result<String, String> {
        let id = zone.unwrap_or("Z");
        let zone = Zone::parse(id).ok_or_else(|| format!("unknown time zone [{id}]"))?;
        let at = self.parse_math_in(expression, Instant::from_millis(now_ms), false, zone)?.0;
        let seconds = i64::try_from(at.div_euclid(NANOS_OF_SECOND))
            .map_err(|_| format!("date math [{expression}] is out of range"))?;
        Ok(self.format_nanos_at(at, zone.span(seconds).offset, id))
    }

    /// Writes an instant given in nanoseconds since the epoch, in UTC, by the first alternative.
    pub fn format_nanos(&self, nanos: i128) -> String {
        self.format_nanos_at(nanos, 0, "Z")
    }

    /// Writes an instant given in nanoseconds since the epoch by the first alternative, as clocks of a zone show it that is
    /// `offset_seconds` ahead of UTC then. `zone` is the id of the zone.
    pub fn format_nanos_at(&self, nanos: i128, offset_seconds: i32, zone: &str) -> String {
        match self.alternatives.first() {
            Some(Alternative::Epoch(unit)) => format_epoch(nanos, *unit),
            Some(Alternative::Pattern(pattern)) => {
                let mut out = String::new();
                let items = pattern.writes.as_ref().unwrap_or(&pattern.reads);
                writer::write(items, LocalTime::new(nanos, offset_seconds, zone), &mut out);
                out
            }
            None => String::new(),
        }
    }
}

/// Writes a count of units since the epoch, with a fraction where there is one.
fn format_epoch(nanos: i128, unit: EpochUnit) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let count = nanos / unit.nanos.unsigned_abs();
    let fraction = nanos - count * unit.nanos.unsigned_abs();
    if fraction == 0 {
        return format!("{sign}{count}");
    }
    let digits = format!("{fraction:0width$}", width = unit.decimals);
    format!("{sign}{count}.{}", digits.trim_end_matches('0'))
}

/// Reads a count of units since the epoch, with decimals. Without them `round_up` means the last nanosecond of the unit.
fn epoch(text: &str, unit: EpochUnit, round_up: bool) -> Option<Instant> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 19
        || decimals.len() > unit.decimals
        || !is_digits(whole)
        || !is_digits(decimals)
    {
        return None;
    }
    let mut nanos = whole.parse::<i128>().ok()? * unit.nanos;
    if !decimals.is_empty() {
        nanos += decimals.parse::<i128>().ok()? * unit.nanos / 10i128.pow(decimals.len() as u32);
    }
    let rest = if round_up && whole.len() == digits.len() { unit.nanos - 1 } else { 0 };
    Some(Instant(if negative { -nanos } else { nanos } + rest))
}
