//! Times as AI rules and their results write them, all in UTC.

use chrono::{DateTime, Datelike, NaiveDateTime, SecondsFormat, Utc};

/// Length of a day.
const DAY_MS: i64 = 86_400_000;
/// Bytes of a date with the `T` behind it.
const DATE_BYTES: usize = 11;
/// The times of the years 0001 to 9999.
const FOUR_DIGIT_YEARS_MS: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;

fn datetime(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}

/// Writes a time as `2026-01-31T10:00:00.000Z`.
pub(crate) fn iso(ms: i64) -> String {
    datetime(ms).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Writes times as [`iso`] does, of which many are of the same day.
#[derive(Debug)]
pub(crate) struct IsoWriter {
    day: i64,
    /// Text of the day, to the `T` behind it.
    date: String,
}

impl IsoWriter {
    /// Makes a writer that knows no day yet.
    pub(crate) fn new() -> Self {
        Self { day: i64::MAX, date: String::new() }
    }

    /// Appends the text of a time.
    pub(crate) fn push(&mut self, ms: i64, text: &mut Vec<u8>) {
        if !FOUR_DIGIT_YEARS_MS.contains(&ms) {
            return text.extend_from_slice(iso(ms).as_bytes());
        }
        let (day, within) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        if self.day != day {
            self.date = iso(ms);
            self.date.truncate(DATE_BYTES);
            self.day = day;
        }
        text.extend_from_slice(self.date.as_bytes());
        let digit = |divisor: i64| b'0' + (within / divisor % 10) as u8;
        let (seconds, minutes, hours) = (within / 1_000 % 60, within / 60_000 % 60, within / 3_600_000);
        let two = |number: i64| [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        let ([h, i], [m, n], [s, t]) = (two(hours), two(minutes), two(seconds));
        text.extend_from_slice(&[h, i, b':', m, n, b':', s, t, b'.', digit(100), digit(10), digit(1), b'Z']);
    }
}

/// Writes a time as `2026-01-31 10:00`.
pub(crate) fn minute(ms: i64) -> String {
    datetime(ms).format("%Y-%m-%d %H:%M").to_string()
}

/// Reads what [`minute`] writes.
pub(crate) fn read_minute(text: &str) -> Option<i64> {
    let shape = text.len() == 16 && text.is_ascii();
    let read = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").ok().filter(|_| shape)?;
    Some(read.and_utc().timestamp_millis())
}

/// Writes the day of a time as `2026.01.31`.
pub(crate) fn day(ms: i64) -> String {
    let date = datetime(ms);
    format!("{:04}.{:02}.{:02}", date.year(), date.month(), date.day())
}

/// Writes a time as `20260131_100000`.
pub(crate) fn underscored(ms: i64) -> String {
    datetime(ms).format("%Y%m%d_%H%M%S").to_string()
}

/// Writes a time as `20260131100000`.
pub(crate) fn packed(ms: i64) -> String {
    datetime(ms).format("%Y%m%d%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_times_are_written_as_each_is() {
        let mut writer = IsoWriter::new();
        for ms in [
            0,
            1_769_853_600_007,
            1_769_853_659_999,
            1_769_903_999_999,
            1_769_904_000_000,
            -1,
            -62_135_596_800_000,
            -62_135_596_800_001,
            253_402_300_799_999,
            253_402_300_800_000,
            i64::MIN,
            i64::MAX,
        ] {
            let mut text = Vec::new();
            writer.push(ms, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), iso(ms));
        }
    }

    #[test]
    fn times_are_written_and_read() {
        let ms = 1_769_853_600_000;
        assert_eq!(iso(ms), "2026-01-31T10:00:00.000Z");
        assert_eq!((minute(ms), underscored(ms)), ("2026-01-31 10:00".into(), "20260131_100000".into()));
        assert_eq!((packed(ms), day(ms)), ("20260131100000".into(), "2026.01.31".into()));
        assert_eq!(read_minute("2026-01-31 10:00"), Some(ms));
        for wrong in ["2026-01-31", "2026-02-30 10:00", "2026-1-31 10:00", "now", "2026-01-31 10:00:00", ""] {
            assert_eq!(read_minute(wrong), None, "{wrong}");
        }
    }
}
