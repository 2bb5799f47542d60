//! Times as counts since an epoch.

use chrono::{DateTime, TimeDelta, Utc};

/// Seconds between the epochs of TAI64 and of Unix.
const TAI64_EPOCH: i64 = 1 << 62;
/// Seconds by which TAI is ahead at the epoch of Unix.
const TAI_AHEAD: i64 = 10;

/// Reads seconds since 1970, with a fraction, up to a last one.
pub fn unix_seconds(text: &str, last: i64) -> Option<DateTime<Utc>> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = whole.parse::<i64>().ok().filter(|seconds| *seconds <= last)?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0, |nanos, digit| nanos * 10 + i64::from(digit - b'0'));
    let nanos = if whole.starts_with('-') { -nanos } else { nanos };
    DateTime::from_timestamp(seconds, 0)?.checked_add_signed(TimeDelta::nanoseconds(nanos))
}

/// Reads milliseconds since 1970; only a number may have a fraction, which is cut.
pub fn unix_millis(text: &str, is_number: bool) -> Option<DateTime<Utc>> {
    let millis = match text.parse::<i64>() {
        Ok(millis) => millis,
        Err(_) if is_number => text.parse::<f64>().ok().filter(|millis| millis.abs() < 9.0e18)? as i64,
        Err(_) => return None,
    };
    DateTime::from_timestamp_millis(millis)
}

/// Reads `@` and 24 hexadecimal digits: seconds and nanoseconds.
pub fn tai64n(text: &str) -> Option<DateTime<Utc>> {
    let digits = text.trim();
    let digits = digits.strip_prefix('@').unwrap_or(digits);
    if digits.len() != 24 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let seconds = i64::from_str_radix(digits.get(..16)?, 16).ok()?.checked_sub(TAI64_EPOCH)?;
    let nanos = u32::from_str_radix(digits.get(16..)?, 16).ok()?;
    DateTime::from_timestamp(seconds.checked_sub(TAI_AHEAD)?, nanos)
}
