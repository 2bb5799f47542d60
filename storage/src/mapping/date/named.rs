//! Formats that have a name, as patterns.
//!
//! The patterns are those of [`super::pattern`] with two letters of our own: `f` is a fraction of one
//! to nine digits after a `.` or `,` that is part of it, and `z` any time-zone offset or `Z`.

/// A named format: its pattern, and whether numbers need all their digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Pattern.
    pub(super) pattern: &'static str,
    /// Whether numbers need all their digits.
    pub(super) strict: bool,
}

/// Finds a format by name, in snake case or the deprecated camel case.
pub(super) fn find(name: &str) -> Option<Named> {
    let snake =
        if name.bytes().any(|b| b.is_ascii_uppercase()) && name.bytes().all(|b| b.is_ascii_alphabetic()) {
            let mut snake = String::with_capacity(name.len() + 8);
            for c in name.chars() {
                if c.is_ascii_uppercase() {
                    snake.push('_');
                }
                snake.push(c.to_ascii_lowercase());
            }
            snake
        } else {
            name.to_owned()
        };
    let (base, strict) = match snake.strip_prefix("strict_") {
        Some(base) => (base, true),
        None => (snake.as_str(), false),
    };
    let pattern = match base {
        "date_optional_time" => "yyyy[-MM[-dd['T'[HH[:mm[:ss[f]]]][z]]]]",
        "date_optional_time_nanos" => "yyyy[-MM[-dd['T'[HH[:mm[:ss[f]]]][z]]]]",
        "date" | "year_month_day" => "yyyy-MM-dd",
        "date_hour" => "yyyy-MM-dd'T'HH",
        "date_hour_minute" => "yyyy-MM-dd'T'HH:mm",
        "date_hour_minute_second" => "yyyy-MM-dd'T'HH:mm:ss",
        "date_hour_minute_second_fraction" | "date_hour_minute_second_millis" => "yyyy-MM-dd'T'HH:mm:ssf",
        "date_time" => "yyyy-MM-dd'T'HH:mm:ssfz",
        "date_time_no_millis" => "yyyy-MM-dd'T'HH:mm:ssz",
        "hour" => "HH",
        "hour_minute" => "HH:mm",
        "hour_minute_second" => "HH:mm:ss",
        "hour_minute_second_fraction" | "hour_minute_second_millis" => "HH:mm:ssf",
        "ordinal_date" => "yyyy-DDD",
        "ordinal_date_time" => "yyyy-DDD'T'HH:mm:ssfz",
        "ordinal_date_time_no_millis" => "yyyy-DDD'T'HH:mm:ssz",
        "time" => "HH:mm:ssfz",
        "time_no_millis" => "HH:mm:ssz",
        "t_time" => "'T'HH:mm:ssfz",
        "t_time_no_millis" => "'T'HH:mm:ssz",
        "week_date" => "YYYY-'W'ww-e",
        "week_date_time" => "YYYY-'W'ww-e'T'HH:mm:ssfz",
        "week_date_time_no_millis" => "YYYY-'W'ww-e'T'HH:mm:ssz",
        "weekyear" => "YYYY",
        "weekyear_week" => "YYYY-'W'ww",
        "weekyear_week_day" => "YYYY-'W'ww-e",
        "year" => "yyyy",
        "year_month" => "yyyy-MM",
        "basic_week_date" => "YYYY'W'wwe",
        "basic_week_date_time" => "YYYY'W'wwe'T'HHmmssfz",
        "basic_week_date_time_no_millis" => "YYYY'W'wwe'T'HHmmssz",
        // The basic formats have no separators, hence no lenient form; the rest have no strict one.
        _ if strict => return None,
        "iso8601" => return Some(Named { pattern: "yyyy[-MM[-dd['T'[HH[:mm[:ss[f]]]][z]]]]", strict: true }),
        "rfc3339_lenient" => {
            return Some(Named { pattern: "yyyy[-MM[-dd['T'HH:mm[:ss[f]][z]]]]", strict: true });
        }
        "basic_date" => "yyyyMMdd",
        "basic_date_time" => "yyyyMMdd'T'HHmmssfz",
        "basic_date_time_no_millis" => "yyyyMMdd'T'HHmmssz",
        "basic_ordinal_date" => "yyyyDDD",
        "basic_ordinal_date_time" => "yyyyDDD'T'HHmmssfz",
        "basic_ordinal_date_time_no_millis" => "yyyyDDD'T'HHmmssz",
        "basic_time" => "HHmmssfz",
        "basic_time_no_millis" => "HHmmssz",
        "basic_t_time" => "'T'HHmmssfz",
        "basic_t_time_no_millis" => "'T'HHmmssz",
        _ => return None,
    };
    Some(Named { pattern, strict: strict || base.starts_with("basic_") })
}
