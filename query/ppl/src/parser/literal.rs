//! Literals: numbers, lengths of spans, units of time, points in time.

use super::cursor::{is_name_part, word_length};
use super::token::is_fraction;
use super::{Expectation, Mismatch, ParseResult, Parser};
use crate::ast::{SpanLength, SpanUnit, TimeBound, TimeModifier, TimeModifierValue, TimeStep};

/// Most steps of a relative time.
const MAX_STEPS: usize = 64;

/// Returns the length of the number at the start of a text: digits with a fraction, without sign and exponent.
pub(super) fn decimal_length(text: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = digits(text);
    let behind = text.get(whole..).unwrap_or_default();
    if is_fraction(behind) { whole + 1 + digits(behind.get(1..).unwrap_or_default()) } else { whole }
}

/// Returns the unit of a name. `M` is a month, `m` a minute; case matters nowhere else.
pub(crate) fn span_unit(name: &str) -> Option<SpanUnit> {
    if name == "M" {
        return Some(SpanUnit::Month);
    }
    Some(match name.to_ascii_lowercase().as_str() {
        "us" | "microsecond" | "microseconds" => SpanUnit::Microsecond,
        "ms" | "millisecond" | "milliseconds" => SpanUnit::Millisecond,
        "cs" | "centisecond" | "centiseconds" => SpanUnit::Centisecond,
        "ds" | "decisecond" | "deciseconds" => SpanUnit::Decisecond,
        "s" | "sec" | "secs" | "second" | "seconds" => SpanUnit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => SpanUnit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => SpanUnit::Hour,
        "d" | "day" | "days" => SpanUnit::Day,
        "w" | "wk" | "week" | "weeks" => SpanUnit::Week,
        "mon" | "month" | "months" => SpanUnit::Month,
        "q" | "qtr" | "qtrs" | "quarter" | "quarters" => SpanUnit::Quarter,
        "y" | "yr" | "yrs" | "year" | "years" => SpanUnit::Year,
        _ => return None,
    })
}

impl Parser<'_> {
    /// Reads a number with an optional sign.
    pub(crate) fn number(&mut self) -> ParseResult<f64> {
        self.note(Expectation::Number);
        let rest = self.cursor.rest();
        let sign = usize::from(rest.starts_with(['-', '+']));
        let length = decimal_length(rest.get(sign..).unwrap_or_default());
        let behind = rest.get(sign + length..).unwrap_or_default();
        if length == 0 || behind.starts_with(is_name_part) {
            return Err(Mismatch);
        }
        let start = self.cursor.offset();
        let text = self.cursor.advance(sign + length);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => self.refuse_syntax(start, format!("[{text}] is out of the range of numbers")),
        }
    }

    /// Reads the length of a bucket: a number with or without a unit of time.
    pub(crate) fn span_length(&mut self) -> ParseResult<SpanLength> {
        self.note(Expectation::Span);
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let length = decimal_length(rest);
        if length == 0 {
            return Err(Mismatch);
        }
        let number = rest.get(..length).unwrap_or_default();
        let behind = rest.get(length..).unwrap_or_default();
        let word = behind.get(..word_length(behind)).unwrap_or_default();
        let unit = span_unit(word);
        if unit.is_none() && !word.is_empty() {
            let message =
                format!("[{word}] is no unit of time; units are us, ms, cs, ds, s, m, h, d, w, M, q and y");
            return self.refuse_syntax(start + length, message);
        }
        let count = number.parse::<f64>().unwrap_or(f64::INFINITY);
        if !count.is_finite() || count <= 0.0 {
            let message = format!(
                "Zero or negative time interval not supported: a span must be a positive number, but is [{number}]"
            );
            return self.refuse_syntax(start, message);
        }
        let text = self.cursor.advance(length + word.len()).to_owned();
        Ok(SpanLength { count, unit, text, span: self.span_from(start) })
    }

    /// Reads `earliest=…` or `latest=…`, if it is next.
    pub(crate) fn time_modifier(&mut self) -> ParseResult<Option<TimeModifier>> {
        let start = self.start();
        let bound = if self.option("earliest") {
            TimeBound::Earliest
        } else if self.option("latest") {
            TimeBound::Latest
        } else {
            return Ok(None);
        };
        let value = self.time_value()?;
        Ok(Some(TimeModifier { bound, value, span: self.span_from(start) }))
    }

    fn time_value(&mut self) -> ParseResult<TimeModifierValue> {
        self.note(Expectation::Time);
        let start = self.cursor.offset();
        if self.peek_string() {
            let text = self.string()?.value;
            return Ok(text_to_time(&text));
        }
        if self.take_word("now") {
            if self.symbol("(") {
                self.expect_symbol(")")?;
            }
            return Ok(TimeModifierValue::Now);
        }
        let rest = self.cursor.rest();
        if rest.starts_with(['+', '-', '@']) {
            let length = rest
                .find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '@')))
                .unwrap_or(rest.len());
            let text = rest.get(..length).unwrap_or_default();
            let Some(steps) = time_steps(text) else {
                let message = format!("[{text}] is no time; relative times are such as -7d@d, +1h, @w1");
                return self.refuse_syntax(start, message);
            };
            self.cursor.advance(length);
            return Ok(TimeModifierValue::Relative(steps));
        }
        let length = decimal_length(rest);
        if length == 0 {
            return Err(Mismatch);
        }
        Ok(TimeModifierValue::Epoch(self.cursor.advance(length).to_owned()))
    }

    /// Reads a length in which the number 1 can be left out: `day`.
    pub(crate) fn unit_or_length(&mut self) -> ParseResult<SpanLength> {
        let start = self.start();
        let word = self.peek_word();
        let Some(unit) = span_unit(word) else { return self.span_length() };
        let text = self.cursor.advance(word.len()).to_owned();
        Ok(SpanLength { count: 1.0, unit: Some(unit), text, span: self.span_from(start) })
    }

    /// Reads coefficient and base of a span such as `2log10`, if it is next.
    pub(crate) fn log_span(&mut self) -> ParseResult<Option<(f64, f64)>> {
        self.note(Expectation::Other("a logarithmic span such as log10"));
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let front = decimal_length(rest);
        let behind = rest.get(front..).unwrap_or_default();
        if !behind.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("log")) {
            return Ok(None);
        }
        let length = decimal_length(behind.get(3..).unwrap_or_default());
        let number = |text: Option<&str>, default: f64| match text {
            Some("") | None => Some(default),
            Some(text) => text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0),
        };
        let coefficient = number(rest.get(..front), 1.0);
        let base = number(behind.get(3..3 + length), 10.0).filter(|base| *base > 1.0);
        match (coefficient, base) {
            (Some(coefficient), Some(base)) => {
                self.cursor.advance(front + 3 + length);
                Ok(Some((coefficient, base)))
            }
            _ => {
                self.refuse_syntax(start, "a logarithmic span needs a base above 1 and a coefficient above 0")
            }
        }
    }
}

/// Reads a time of a text: `now`, steps from now, or a date.
pub(crate) fn time_of_text(text: &str) -> TimeModifierValue {
    text_to_time(text)
}

/// Reads a quoted time: `now`, steps from now, or a date.
fn text_to_time(text: &str) -> TimeModifierValue {
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("now") || trimmed.eq_ignore_ascii_case("now()") {
        return TimeModifierValue::Now;
    }
    match time_steps(trimmed) {
        Some(steps) => TimeModifierValue::Relative(steps),
        None => TimeModifierValue::Absolute(text.to_owned()),
    }
}

/// Reads steps such as `-1d+2h@h`; `None` where the text is something else.
fn time_steps(text: &str) -> Option<Vec<TimeStep>> {
    let mut rest = text;
    let mut steps = Vec::new();
    while let Some(sign) = rest.chars().next() {
        let behind = rest.get(1..)?;
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let letters = behind.get(digits..)?;
        let length = letters.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(letters.len());
        let name = letters.get(..length)?;
        let mut used = 1 + digits + length;
        let step = match sign {
            '@' if digits == 0 => {
                let weekday = letters.as_bytes().get(length).filter(|byte| (b'0'..=b'7').contains(byte));
                match weekday.filter(|_| name.eq_ignore_ascii_case("w")) {
                    Some(day) => {
                        used += 1;
                        TimeStep::SnapToWeekday(day - b'0')
                    }
                    None => TimeStep::Snap(span_unit(name)?),
                }
            }
            '+' | '-' => {
                let count: i64 = if digits == 0 { 1 } else { behind.get(..digits)?.parse().ok()? };
                TimeStep::Offset { count: if sign == '-' { -count } else { count }, unit: span_unit(name)? }
            }
            _ => return None,
        };
        steps.push(step);
        rest = rest.get(used..)?;
        if steps.len() > MAX_STEPS {
            return None;
        }
    }
    (!steps.is_empty()).then_some(steps)
}
