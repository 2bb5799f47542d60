//! Reads texts by the items of a pattern.

use super::field::{Field, Fields};
use super::names;
use super::pattern::{Digits, Item, OffsetLayout, OffsetPart, Sign, Width};
use millrace_time::Zone;

use super::zone_names;

/// Furthest offset from UTC.
const MAX_OFFSET: i32 = 18 * 3600;

/// Reads items from the start of `text`; returns the rest of the text.
pub(super) fn read<'t>(items: &[Item], text: &'t str, fields: &mut Fields) -> Option<&'t str> {
    let mut rest = text;
    for item in items {
        rest = read_item(item, rest, fields)?;
    }
    Some(rest)
}

fn read_item<'t>(item: &Item, text: &'t str, fields: &mut Fields) -> Option<&'t str> {
    match item {
        Item::Literal(literal) => text.strip_prefix(literal.as_ref()),
        Item::Number { field, digits } => {
            let (value, rest) = number(*digits, text)?;
            fields.set(*field, value)?;
            Some(rest)
        }
        Item::TwoDigitYear { field, digits } => {
            let (value, rest) = number(*digits, text)?;
            // The hundred years begin with that of 2000-01-01, whose week is one of 1999.
            let century = if *field == Field::WeekYear && value == 99 { 1900 } else { 2000 };
            fields.set(*field, century + value)?;
            Some(rest)
        }
        Item::Fraction { min, max, point } => {
            let digits = if *point { text.strip_prefix('.')? } else { text };
            let run = digit_run(digits, *max);
            if run < *min {
                return None;
            }
            let value = integer(&digits[..run])?;
            fields.set(Field::Nano, value * 10i64.pow(9 - run as u32))?;
            Some(&digits[run..])
        }
        Item::Name { field, width } => read_name(*field, *width, text, fields),
        Item::Offset(layout) => {
            let (seconds, rest) = read_offset(*layout, text)?;
            fields.set(Field::Offset, i64::from(seconds))?;
            Some(rest)
        }
        Item::LocalizedOffset { full } => {
            let rest = text.strip_prefix("GMT")?;
            let (seconds, rest) = read_localized_offset(rest, *full)?;
            fields.set(Field::Offset, i64::from(seconds))?;
            Some(rest)
        }
        Item::ZoneId => read_zone(text, fields, zone_names::find_id),
        Item::ZoneName => read_zone(text, fields, zone_names::find_name),
        Item::Either(choices) => {
            let checkpoint = fields.checkpoint();
            choices.iter().find_map(|choice| {
                let rest = read_item(choice, text, fields).filter(|rest| rest.is_empty());
                if rest.is_none() {
                    fields.restore(checkpoint);
                }
                rest
            })
        }
        Item::Pad(width, inner) => {
            // Blanks and the value together have the width.
            let end = text.char_indices().nth(*width).map_or(text.len(), |(at, _)| at);
            let (head, rest) = text.split_at(end);
            if head.chars().count() < *width {
                return None;
            }
            read_item(inner, head.trim_start_matches(' '), fields)?.is_empty().then_some(rest)
        }
        Item::Optional(inner) => {
            let checkpoint = fields.checkpoint();
            let rest = read(inner, text, fields);
            if rest.is_none() {
                fields.restore(checkpoint);
            }
            rest.or(Some(text))
        }
    }
}

fn digit_run(text: &str, max: usize) -> usize {
    text.bytes().take(max).take_while(u8::is_ascii_digit).count()
}

fn number(digits: Digits, text: &str) -> Option<(i64, &str)> {
    if digits.is_fixed() {
        return fixed_number(digits.min, text);
    }
    let (negative, signed, body) = match (text.as_bytes().first()?, digits.sign) {
        (b'-', Sign::Normal | Sign::ExceedsPad) => (true, true, &text[1..]),
        (b'+', Sign::ExceedsPad) => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let mut run = digit_run(body, digits.max + digits.reserved);
    if run < digits.min {
        return None;
    }
    if digits.reserved > 0 {
        run = run.saturating_sub(digits.reserved).max(digits.min);
    }
    // A sign stands before numbers of more digits than the least, and only there.
    if digits.sign == Sign::ExceedsPad && !negative && signed != (run > digits.min) {
        return None;
    }
    let (number, rest) = body.split_at(run);
    match (negative, integer(number)?) {
        (true, 0) => None,
        (true, value) => Some((-value, rest)),
        (false, value) => Some((value, rest)),
    }
}

/// Reads a number of so many digits.
#[inline]
fn fixed_number(width: usize, text: &str) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(width)?;
    let all_digits = number.bytes().all(|b| b.is_ascii_digit());
    Some((integer(number).filter(|_| all_digits)?, rest))
}

/// Reads digits.
#[inline]
fn integer(digits: &str) -> Option<i64> {
    if digits.len() > 18 {
        return digits.parse().ok();
    }
    Some(digits.bytes().fold(0, |value, digit| value * 10 + i64::from(digit & 15)))
}

fn read_name<'t>(field: Field, width: Width, text: &'t str, fields: &mut Fields) -> Option<&'t str> {
    let Some(names) = names::for_field(field, width) else {
        let (value, rest) = number(Digits::any(), text)?;
        fields.set(field, value)?;
        return Some(rest);
    };
    // No name starts another one; of equal ones, such as the narrow names of days, the last one counts.
    let first = text.as_bytes().first();
    let (index, rest) = names
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, name)| name.as_bytes().first() == first)
        .find_map(|(index, name)| Some((index, text.strip_prefix(*name)?)))?;
    fields.set(field, index as i64 + names::first_value(field))?;
    Some(rest)
}

fn two_digits(text: &str) -> Option<(i32, &str)> {
    if digit_run(text, 2) < 2 {
        return None;
    }
    Some((text[..2].parse().ok()?, &text[2..]))
}

/// Reads an offset such as `+02:00`.
pub(super) fn read_offset(layout: OffsetLayout, text: &str) -> Option<(i32, &str)> {
    if let Some(rest) = text.strip_prefix(layout.zero) {
        return Some((0, rest));
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, mut rest) = two_digits(&text[1..])?;
    let mut seconds = hours * 3600;
    for (part, unit) in [(layout.minutes, 60), (layout.seconds, 1)] {
        let after = if layout.colon { rest.strip_prefix(':') } else { Some(rest) };
        match (part, after.and_then(two_digits)) {
            (OffsetPart::Never, _) => break,
            (_, Some((value, left))) if value < 60 => {
                seconds += value * unit;
                rest = left;
            }
            (OffsetPart::Optional, None) => break,
            _ => return None,
        }
    }
    (seconds <= MAX_OFFSET).then_some((sign * seconds, rest))
}

/// Reads what follows `GMT` of `GMT+2` or, in full, of `GMT+02:00`.
fn read_localized_offset(text: &str, full: bool) -> Option<(i32, &str)> {
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Some((0, text)),
    };
    let body = &text[1..];
    let run = if full { 2 } else { digit_run(body, 2) };
    if digit_run(body, 2) < run.max(1) {
        return None;
    }
    let mut seconds: i32 = body[..run].parse::<i32>().ok()? * 3600;
    let mut rest = &body[run..];
    for unit in [60, 1] {
        match rest.strip_prefix(':').and_then(two_digits) {
            Some((value, left)) if value < 60 => {
                seconds += value * unit;
                rest = left;
            }
            _ if full && unit == 60 => return None,
            _ => break,
        }
    }
    (seconds <= MAX_OFFSET).then_some((sign * seconds, rest))
}

/// Reads a zone; `find` finds the longest name at the start of a text that is no offset.
fn read_zone<'t>(
    text: &'t str,
    fields: &mut Fields,
    find: impl Fn(&str) -> Option<(Zone, usize)>,
) -> Option<&'t str> {
    let mut set = |zone: Zone, rest: &'t str| {
        if fields.zone.is_some_and(|before| before != zone) {
            return None;
        }
        fields.zone = Some(zone);
        Some(rest)
    };
    if text.starts_with(['+', '-']) {
        let (seconds, rest) = read_offset(OffsetLayout::ID, text)?;
        return set(Zone::Fixed(seconds), rest);
    }
    for prefix in ["UTC", "UT", "GMT"] {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        if prefix == "GMT" && rest.starts_with('0') {
            return set(Zone::Fixed(0), &rest[1..]);
        }
        let offset = rest.starts_with(['+', '-']).then(|| read_offset(OffsetLayout::ID, rest)).flatten();
        let (seconds, rest) = offset.unwrap_or((0, rest));
        return set(Zone::Fixed(seconds), rest);
    }
    match find(text) {
        Some((zone, length)) => set(zone, &text[length..]),
        None => set(Zone::Fixed(0), text.strip_prefix('Z')?),
    }
}
