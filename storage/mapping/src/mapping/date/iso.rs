//! The full form of ISO 8601, which nearly every log carries, read without a pattern.

use millrace_time::calendar;

use super::Instant;

const NANOS_OF_DAY: i128 = 86_400_000_000_000;

/// Reads `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM:SS[.fraction](Z|offset)?`; anything else is left to the general way. `round_up`
/// fills a missing fraction or time of day with its last nanosecond. Returns whether the text is local time, too.
pub(super) fn read(text: &[u8], round_up: bool) -> Option<(Instant, bool)> {
    fn two(tens: u8, units: u8) -> Option<u32> {
        let (tens, units) = (tens.wrapping_sub(b'0'), units.wrapping_sub(b'0'));
        (tens < 10 && units < 10).then(|| u32::from(tens) * 10 + u32::from(units))
    }
    let (&[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1], time) = text.split_first_chunk::<10>()? else {
        return None;
    };
    let year = i64::from(two(y0, y1)? * 100 + two(y2, y3)?);
    let (month, day) = (two(m0, m1)?, two(d0, d1)?);
    if month == 0 || month > 12 || day == 0 || day > calendar::days_in_month(year, month) {
        return None;
    }
    let days = calendar::days_from_civil(year, month, day);
    if time.is_empty() {
        let nanos = i128::from(days) * NANOS_OF_DAY;
        return Some((Instant(if round_up { nanos + NANOS_OF_DAY - 1 } else { nanos }), true));
    }
    let (&[b'T', h0, h1, b':', m0, m1, b':', s0, s1], mut rest) = time.split_first_chunk::<9>()? else {
        return None;
    };
    let (hour, minute, second) = (two(h0, h1)?, two(m0, m1)?, two(s0, s1)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut nanos = if round_up { 999_999_999 } else { 0 };
    if let [b'.' | b',', fraction @ ..] = rest {
        (nanos, rest) = (0, fraction);
        let mut scale = 100_000_000i64;
        while let [digit @ b'0'..=b'9', behind @ ..] = rest {
            if scale == 0 {
                return None;
            }
            nanos += i64::from(digit - b'0') * scale;
            scale /= 10;
            rest = behind;
        }
        if scale == 100_000_000 {
            return None;
        }
    }
    let offset = match rest {
        [] | [b'Z'] => 0,
        [sign @ (b'+' | b'-'), h0, h1, minutes @ ..] => {
            let ([b':', m0, m1] | [m0, m1]) = minutes else { return None };
            let (hours, minutes) = (two(*h0, *h1)?, two(*m0, *m1)?);
            let seconds = i64::from(hours * 3600 + minutes * 60);
            if minutes > 59 || seconds > 18 * 3600 {
                return None;
            }
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - offset;
    Some((Instant(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)), rest.is_empty()))
}
