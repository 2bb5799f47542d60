//! Types of date fields by their formats: those of days are `date`, those of times of day are `time`, as in OpenSearch.

use super::types::{Resolution, SqlType};

/// Names of formats of days, without `strict_` and `basic_`.
const DATES: &[&str] = &[
    "date",
    "ordinal_date",
    "week_date",
    "weekyear",
    "weekyear_week",
    "weekyear_week_day",
    "week_year",
    "week_year_week",
    "week_year_week_day",
    "year",
    "year_month",
    "year_month_day",
];

/// Names of formats of times of day, without `strict_` and `basic_`.
const TIMES: &[&str] = &[
    "hour",
    "hour_minute",
    "hour_minute_second",
    "hour_minute_second_fraction",
    "hour_minute_second_millis",
    "t_time",
    "t_time_no_millis",
    "time",
    "time_no_millis",
];

/// Letters of patterns that stand for a part of a day.
const DATE_LETTERS: &str = "FecEWwYqQgdMLDyuG";

/// Letters of patterns that stand for a part of a time of day.
const TIME_LETTERS: &str = "nNASsmHkKhaB";

/// Letters of patterns that stand for a time zone, which only a timestamp has.
const ZONE_LETTERS: &str = "XxZzVO";

/// Content of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Date,
    Time,
    Both,
}

/// Returns the type of a date field with some formats, which `||` separates; `None` stands for the default ones.
pub(super) fn date_type(formats: Option<&str>) -> SqlType {
    let timestamp = SqlType::Timestamp(Resolution::Millis);
    let Some(formats) = formats else { return timestamp };
    let mut contents = formats.split("||").map(|format| content(format.trim()));
    match contents.next() {
        Some(Content::Date) if contents.all(|other| other == Content::Date) => SqlType::Date,
        Some(Content::Time) if contents.all(|other| other == Content::Time) => SqlType::Time,
        _ => timestamp,
    }
}

fn content(format: &str) -> Content {
    let name =
        ["strict_", "basic_"].iter().fold(format, |name, prefix| name.strip_prefix(prefix).unwrap_or(name));
    if DATES.contains(&name) {
        return Content::Date;
    }
    if TIMES.contains(&name) {
        return Content::Time;
    }
    // Other names (`epoch_millis`, `date_time`) are of both; a pattern has no two letters that differ side by side but in quotes.
    let is_name = format.contains('_') || format.starts_with("iso8601") || format.starts_with("date");
    if is_name {
        return Content::Both;
    }
    let (mut quoted, mut has_date, mut has_time) = (false, false, false);
    for letter in format.chars() {
        match letter {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            letter if ZONE_LETTERS.contains(letter) => return Content::Both,
            letter if DATE_LETTERS.contains(letter) => has_date = true,
            letter if TIME_LETTERS.contains(letter) => has_time = true,
            _ => {}
        }
    }
    match (has_date, has_time) {
        (true, false) => Content::Date,
        (false, true) => Content::Time,
        _ => Content::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_the_type() {
        let timestamp = SqlType::Timestamp(Resolution::Millis);
        assert_eq!(date_type(None), timestamp);
        for (formats, expected) in [
            ("yyyy-MM-dd", SqlType::Date),
            ("strict_date||basic_week_date", SqlType::Date),
            ("yyyy", SqlType::Date),
            ("HH:mm:ss", SqlType::Time),
            ("hour_minute_second||t_time", SqlType::Time),
            ("yyyy-MM-dd||HH:mm", timestamp),
            ("yyyy-MM-dd'T'HH:mm:ss", timestamp),
            ("yyyy'HH'MM", SqlType::Date),
            ("HH:mm:ssZ", timestamp),
            ("yyyy-MM-ddXXX", timestamp),
            ("HH:mm'Z'", SqlType::Time),
            ("epoch_millis", timestamp),
            ("yyyy-MM-dd||epoch_millis", timestamp),
            ("strict_date_optional_time", timestamp),
            ("iso8601", timestamp),
        ] {
            assert_eq!(date_type(Some(formats)), expected, "{formats}");
        }
    }
}
