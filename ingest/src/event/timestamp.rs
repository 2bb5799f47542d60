//! Times in the form that events usually have: `2026-01-02T03:04:05.678Z`. Other forms take the general ways.

use chrono::{DateTime, Datelike, NaiveDate, Timelike, Utc};

/// Nanoseconds of a millisecond.
const MILLISECOND: u32 = 1_000_000;

/// Writes a time in whole milliseconds of a year with four digits; `None` for any other.
pub(super) fn write(time: DateTime<Utc>) -> Option<[u8; 24]> {
    let time = time.naive_utc();
    let year = u32::try_from(time.year()).ok().filter(|year| *year <= 9_999)?;
    let nanosecond = time.nanosecond();
    // A leap second has more.
    if nanosecond >= 1_000 * MILLISECOND || !nanosecond.is_multiple_of(MILLISECOND) {
        return None;
    }
    let mut text = *b"0000-00-00T00:00:00.000Z";
    for (at, digits, mut number) in [
        (0, 4, year),
        (5, 2, time.month()),
        (8, 2, time.day()),
        (11, 2, time.hour()),
        (14, 2, time.minute()),
        (17, 2, time.second()),
        (20, 3, nanosecond / MILLISECOND),
    ] {
        for place in text[at..at + digits].iter_mut().rev() {
            // A digit fits.
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    Some(text)
}

/// Reads a time of that form, also without milliseconds; `None` for any other.
pub(super) fn read(text: &[u8]) -> Option<DateTime<Utc>> {
    let (end, millisecond) = match text.len() {
        24 if text[19] == b'.' => (23, number(&text[20..23])?),
        20 => (19, 0),
        _ => return None,
    };
    let separators = [text[4], text[7], text[10], text[13], text[16], text[end]];
    if separators != *b"--T::Z" {
        return None;
    }
    let year = i32::try_from(number(&text[..4])?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(&text[5..7])?, number(&text[8..10])?)?;
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    Some(date.and_hms_milli_opt(hour, minute, second, millisecond)?.and_utc())
}

fn number(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use chrono::{SecondsFormat, TimeZone};
    use proptest::prelude::*;

    use super::*;
    use crate::event::time_format::{Zone, iso8601};

    proptest! {
        #[test]
        fn times_are_written_and_read_as_by_the_general_ways(
            seconds in -70_000_000_000i64..300_000_000_000, millisecond in 0u32..1000, nanosecond in 0u32..3
        ) {
            let nanoseconds = millisecond * MILLISECOND + nanosecond;
            let Some(time) = Utc.timestamp_opt(seconds, nanoseconds).single() else { return Ok(()) };
            if let Some(text) = write(time) {
                prop_assert_eq!(nanosecond, 0);
                let expected = time.to_rfc3339_opts(SecondsFormat::Millis, true);
                prop_assert_eq!(std::str::from_utf8(&text).unwrap(), &expected);
                prop_assert_eq!(read(&text), Some(time));
            } else {
                prop_assert!(nanosecond != 0 || !(0..=9_999).contains(&time.year()));
            }
        }

        #[test]
        fn what_is_read_is_what_the_general_way_reads(
            text in "[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{3})?[Zz]"
        ) {
            if let Some(time) = read(text.as_bytes()) {
                prop_assert_eq!(Some(time), iso8601(&text, Zone::UTC));
            }
        }
    }
}
