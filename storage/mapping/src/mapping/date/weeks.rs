//! Weeks of years and of months, which begin on Monday and belong to where they have four of their days.

use millrace_time::calendar;

/// Counts the ISO weeks of a year.
pub(super) fn weeks_in_year(year: i64) -> u32 {
    calendar::iso_week(calendar::days_from_civil(year, 12, 28)).1
}

/// Returns the week of the month of a day number; 0 before its first week.
pub(super) fn week_of_month(days: i64) -> i64 {
    let (_, _, day) = calendar::civil_from_days(days);
    let first = days - i64::from(day) + 1;
    let weekday_of_first = i64::from(calendar::iso_weekday(first));
    (i64::from(day) + weekday_of_first - 2) / 7 + i64::from(weekday_of_first <= 4)
}
