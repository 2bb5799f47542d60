//! Training windows of detectors, and the buckets that series are cut into.

use crate::frame::TimeFrame;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Shortest and longest window.
const LEAST_MS: i64 = MINUTE;
const MOST_MS: i64 = 366 * DAY;
/// Buckets of a window, at most.
const MAX_BUCKETS: i64 = 2_000;
/// Buckets of the window of a series, at least.
pub(crate) const LEAST_BUCKETS: i64 = 20;
/// Lengths of buckets, in milliseconds.
const LENGTHS: [i64; 9] =
    [MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY];

/// Span of time that a detector is trained on, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrainingWindow {
    text: String,
    ms: i64,
}

impl TrainingWindow {
    /// Reads `<number><unit>`, such as `30 min`, `4h` or `1 day`.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let allowed =
            "must be a number and a unit such as 30 min, 4 h, 1 day or 2 weeks, from 1 minute to 366 days";
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let unit_ms = match unit.trim().to_ascii_lowercase().as_str() {
            "s" | "sec" | "second" | "seconds" => SECOND,
            "m" | "min" | "minute" | "minutes" => MINUTE,
            "h" | "hour" | "hours" => HOUR,
            "d" | "day" | "days" => DAY,
            "w" | "week" | "weeks" => 7 * DAY,
            "month" | "months" => 30 * DAY,
            _ => return Err(format!("{allowed}, not [{}]", excerpt(text))),
        };
        let ms = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit_ms));
        let ms = ms.filter(|ms| (LEAST_MS..=MOST_MS).contains(ms));
        let ms = ms.ok_or_else(|| format!("{allowed}, not [{}]", excerpt(text)))?;
        Ok(Self { text: trimmed.to_owned(), ms })
    }

    /// Returns the text that it was read from.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns its length in milliseconds.
    pub(crate) fn ms(&self) -> i64 {
        self.ms
    }

    /// Returns the shortest bucket of which at most 2,000 make up the window.
    pub(crate) fn bucket(&self) -> TimeFrame {
        let length = LENGTHS.into_iter().find(|length| self.ms / length <= MAX_BUCKETS);
        TimeFrame::Fixed(length.unwrap_or(DAY))
    }

    /// Returns how many buckets make up the window.
    pub(crate) fn buckets(&self) -> i64 {
        self.ms / self.bucket().ms()
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_numbers_with_units() {
        for (text, ms, bucket) in [
            ("30 min", 30 * MINUTE, MINUTE),
            ("1 day", DAY, MINUTE),
            ("12h", 12 * HOUR, MINUTE),
            ("1 week", 7 * DAY, 10 * MINUTE),
            ("30d", 30 * DAY, 30 * MINUTE),
            ("366 days", 366 * DAY, 6 * HOUR),
        ] {
            let window = TrainingWindow::parse(text).unwrap();
            assert_eq!((window.ms(), window.bucket().ms(), window.text()), (ms, bucket, text));
            assert!(window.buckets() >= LEAST_BUCKETS && window.buckets() <= MAX_BUCKETS, "{text}");
        }
        for wrong in
            ["", "day", "5", "5 parsecs", "0 min", "367 d", "99999999999999999999 h", "-1 h", "1.5 h", "10 s"]
        {
            assert!(TrainingWindow::parse(wrong).is_err(), "{wrong}");
        }
    }
}
