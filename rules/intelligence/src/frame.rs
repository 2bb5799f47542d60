//! Lengths of buckets, and where they begin: as `date_histogram` cuts time in UTC.

use serde_json::{Value, json};

const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;

/// The length of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeFrame {
    Minutes(u8),
    Hour,
    Day,
    Week,
    Days(u16),
    /// A number of milliseconds, counted from 1970-01-01.
    Fixed(i64),
}

impl TimeFrame {
    const ALL: [(&str, Self); 9] = [
        ("1 minute", Self::Minutes(1)),
        ("5 minutes", Self::Minutes(5)),
        ("15 minutes", Self::Minutes(15)),
        ("30 minutes", Self::Minutes(30)),
        ("1 hour", Self::Hour),
        ("1 day", Self::Day),
        ("1 week", Self::Week),
        ("30 day", Self::Days(30)),
        ("365 day", Self::Days(365)),
    ];

    /// Finds one by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, frame)| frame)
    }

    /// Lists all names.
    pub(crate) fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, frame)| *frame == self).map_or("", |(name, _)| name)
    }

    /// Returns its length in milliseconds: in UTC, days and weeks have one, too.
    pub(crate) fn ms(self) -> i64 {
        match self {
            Self::Minutes(minutes) => i64::from(minutes) * MINUTE,
            Self::Hour => 60 * MINUTE,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Days(days) => i64::from(days) * DAY,
            Self::Fixed(ms) => ms,
        }
    }

    /// Returns the start of the bucket that a time is in. Weeks begin on Monday.
    pub(crate) fn start(self, time_ms: i64) -> i64 {
        // The first day of the epoch was a Thursday.
        let offset = if self == Self::Week { 4 * DAY } else { 0 };
        (time_ms - offset).div_euclid(self.ms()) * self.ms() + offset
    }

    /// Returns how many buckets lie between the starts of two.
    pub(crate) fn between(self, from_ms: i64, to_ms: i64) -> i64 {
        (to_ms - from_ms).div_euclid(self.ms())
    }

    /// Writes the aggregation that makes such buckets.
    pub(crate) fn histogram(self, field: &str) -> Value {
        let (kind, interval) = match self {
            Self::Minutes(minutes) => ("fixed_interval", format!("{minutes}m")),
            Self::Hour => ("fixed_interval", "1h".to_owned()),
            Self::Day => ("calendar_interval", "1d".to_owned()),
            Self::Week => ("calendar_interval", "1w".to_owned()),
            Self::Days(days) => ("fixed_interval", format!("{days}d")),
            Self::Fixed(ms) => ("fixed_interval", format!("{ms}ms")),
        };
        json!({"field": field, kind: interval, "min_doc_count": 1})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_where_they_are_cut() {
        let day = |day: i64| day * DAY;
        assert_eq!(TimeFrame::Week.start(day(4)), day(4), "a Monday");
        assert_eq!(TimeFrame::Week.start(day(3)), day(-3));
        assert_eq!(TimeFrame::Week.start(-1), day(-3));
        assert_eq!(TimeFrame::Days(30).start(day(61)), day(60));
        assert_eq!(TimeFrame::Minutes(15).start(16 * MINUTE + 3), 15 * MINUTE);
        assert_eq!(TimeFrame::Hour.between(0, 180 * MINUTE), 3);
        for (name, frame) in TimeFrame::ALL {
            assert_eq!((TimeFrame::named(name), frame.name()), (Some(frame), name));
            assert_eq!(frame.start(frame.start(123_456_789)), frame.start(123_456_789));
        }
        assert_eq!(TimeFrame::named("2 hours"), None);
    }
}
