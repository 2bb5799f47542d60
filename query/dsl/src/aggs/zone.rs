//! Errors of time zones, with the texts of Java.

use millrace_work::error::Error;

/// Makes the error of a text that is no zone.
pub(super) fn unknown(text: &str) -> Error {
    let hours: Option<i32> = text.strip_prefix(['+', '-']).and_then(|hours| hours.parse().ok());
    let region = |b: u8| b.is_ascii_alphanumeric() || b"/._~+-".contains(&b);
    let (kind, reason) = match hours {
        Some(hours @ 19..=99) => {
            let hours = if text.starts_with('-') { -hours } else { hours };
            let range = "is not in the range -18 to 18";
            ("date_time_exception", format!("Zone offset hours not in valid range: value {hours} {range}"))
        }
        _ if text.starts_with(['+', '-']) || text.len() < 2 => {
            ("date_time_exception", format!("Invalid ID for ZoneOffset, invalid format: {text}"))
        }
        _ if text.bytes().all(region) => ("zone_rules_exception", format!("Unknown time-zone ID: {text}")),
        _ => ("date_time_exception", format!("Invalid ID for region-based ZoneId, invalid format: {text}")),
    };
    Error::Exception { kind, status: 400, reason }
}
