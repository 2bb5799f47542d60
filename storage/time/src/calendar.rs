//! The proleptic Gregorian calendar in integers (Howard Hinnant's `chrono`-compatible algorithms).

/// Counts the days from 1970-01-01 to a date.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Finds year, month and day of a day number.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// Returns true if a year has 366 days.
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Counts the days of a month.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of week, Monday = 1.
pub fn iso_weekday(days: i64) -> u32 {
    (days + 3).rem_euclid(7) as u32 + 1
}

/// Day number of a weekday of an ISO week.
pub fn days_from_iso_week(year: i64, week: u32, weekday: u32) -> i64 {
    let fourth_of_january = days_from_civil(year, 1, 4);
    let first_monday = fourth_of_january - i64::from(iso_weekday(fourth_of_january)) + 1;
    first_monday + (i64::from(week) - 1) * 7 + i64::from(weekday) - 1
}

/// ISO week year and week of a day number.
pub fn iso_week(days: i64) -> (i64, u32) {
    let thursday = days - i64::from(iso_weekday(days)) + 4;
    let (year, _, _) = civil_from_days(thursday);
    let week = (thursday - days_from_civil(year, 1, 1)) / 7 + 1;
    (year, week as u32)
}
