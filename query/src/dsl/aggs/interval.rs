//! Intervals of time: calendar units, and spans of fixed length.

/// The interval of a histogram over dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// One unit of the calendar, in the time zone.
    Calendar(CalendarUnit),
    /// Milliseconds, at least 1.
    Fixed(i64),
}

/// A unit of the calendar. Weeks begin on Mondays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub(crate) enum CalendarUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}
