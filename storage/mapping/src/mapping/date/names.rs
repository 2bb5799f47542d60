//! English names of months, days, halves of a day, eras and quarters.

use super::field::Field;
use super::pattern::Width;

/// Names of the months, in English.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Names of the days of a week, Monday first, in English.
pub const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

const SHORT_MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const SHORT_DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const NARROW_DAYS: [&str; 7] = ["M", "T", "W", "T", "F", "S", "S"];

/// Returns the names of a field's values in their order; `None` where numbers stand for them.
pub(super) fn for_field(field: Field, width: Width) -> Option<&'static [&'static str]> {
    Some(match (field, width) {
        (Field::Era, Width::Short) => &["BC", "AD"],
        (Field::Era, Width::Full) => &["BCE", "CE"],
        (Field::Era, Width::Narrow) => &["B", "A"],
        (Field::Quarter, Width::Short | Width::Full) => &["Q1", "Q2", "Q3", "Q4"],
        (Field::Month, Width::Short) => &SHORT_MONTHS,
        (Field::Month, Width::Full) => &MONTHS,
        (Field::Weekday, Width::Short) => &SHORT_DAYS,
        (Field::Weekday, Width::Full) => &DAYS,
        (Field::Weekday, Width::Narrow) => &NARROW_DAYS,
        (Field::HalfDay, Width::Short | Width::Full) => &["AM", "PM"],
        (Field::HalfDay, Width::Narrow) => &["a", "p"],
        _ => return None,
    })
}

/// Returns the value that the first name of a field stands for.
pub(super) fn first_value(field: Field) -> i64 {
    i64::from(!matches!(field, Field::Era | Field::HalfDay))
}
