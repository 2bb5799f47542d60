//! Times in the form that events usually have: `2026-01-02T03:04:05.678Z`, or with six or nine digits of a second. Other forms take
//! the general ways.

use chrono::{DateTime, Datelike, NaiveDate, SecondsFormat, Timelike, Utc};

/// Nanoseconds of a millisecond and of a microsecond.
const MILLISECOND: u32 = 1_000_000;
const MICROSECOND: u32 = 1_000;

/// Appends a time as it is stored: in UTC, with milliseconds, or as many digits as it has.
pub(super) fn write(time: DateTime<Utc>, out: &mut Vec<u8>) {
    let nanosecond = time.timestamp_subsec_nanos();
    let (digits, fraction) = match nanosecond {
        _ if nanosecond.is_multiple_of(MILLISECOND) => (3, nanosecond / MILLISECOND),
        _ if nanosecond.is_multiple_of(MICROSECOND) => (6, nanosecond / MICROSECOND),
        _ => (9, nanosecond),
    };
    let naive = time.naive_utc();
    let year = u32::try_from(naive.year()).ok().filter(|year| *year <= 9_999);
    // A leap second has more.
    let Some(year) = year.filter(|_| nanosecond < 1_000 * MILLISECOND) else {
        let format = match digits {
            3 => SecondsFormat::Millis,
            6 => SecondsFormat::Micros,
            _ => SecondsFormat::Nanos,
        };
        return out.extend_from_slice(time.to_rfc3339_opts(format, true).as_bytes());
    };
    let begin = out.len();
    out.extend_from_slice(b"0000-00-00T00:00:00.000000000");
    out.truncate(begin + 20 + digits);
    for (at, digits, mut number) in [
        (0, 4, year),
        (5, 2, naive.month()),
        (8, 2, naive.day()),
        (11, 2, naive.hour()),
        (14, 2, naive.minute()),
        (17, 2, naive.second()),
        (20, digits, fraction),
    ] {
        for place in out[begin + at..begin + at + digits].iter_mut().rev() {
            // A digit fits.
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    out.push(b'Z');
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
    use chrono::TimeZone;
    use proptest::prelude::*;

    use super::*;
    use crate::event::time_format::{Zone, iso8601};

    proptest! {
        #[test]
        fn times_are_written_and_read_as_by_the_general_ways(
            seconds in -70_000_000_000i64..300_000_000_000, millisecond in 0u32..2_000,
            less in prop_oneof![Just(0u32), Just(7_000), Just(8)],
        ) {
            let Some(time) = Utc.timestamp_opt(seconds, millisecond * MILLISECOND + less).single() else {
                return Ok(());
            };
            let format = match less {
                0 => SecondsFormat::Millis,
                7_000 => SecondsFormat::Micros,
                _ => SecondsFormat::Nanos,
            };
            let mut text = b"before".to_vec();
            write(time, &mut text);
            let expected = time.to_rfc3339_opts(format, true);
            prop_assert_eq!(std::str::from_utf8(&text[6..]).unwrap(), &expected);
            if less == 0 && millisecond < 1_000 && (0..=9_999).contains(&time.year()) {
                prop_assert_eq!(read(&text[6..]), Some(time));
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
