//! Dates as text, quickly: generating a corpus formats millions of them.

use std::io::Write;

use millrace_time::calendar::civil_from_days;

/// Appends `2023-01-03T10:22:31.017Z`.
pub(crate) fn push_iso(out: &mut Vec<u8>, epoch_ms: i64) {
    let (days, ms) = (epoch_ms.div_euclid(86_400_000), epoch_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    // Writing to a vector cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (893_964_617_123, "1998-04-30T19:30:17.123Z"),
            (1_704_067_199_999, "2023-12-31T23:59:59.999Z"),
        ] {
            let mut out = Vec::new();
            push_iso(&mut out, ms);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
