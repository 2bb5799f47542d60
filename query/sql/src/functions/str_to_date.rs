//! Moments that `str_to_date` reads by MySQL's letters, as MariaDB does. Parts that a format does not name are those of 2000-01-01.

use chrono::{Duration, NaiveDate, Weekday};

use super::time::{DAY, SECOND, days, time};

/// Parts of a moment as they are read.
#[derive(Debug, Default)]
struct DateParts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    /// Day of the year, from 1.
    ordinal: Option<i64>,
    week: Option<Week>,
    /// The year of `%X` or `%x`, and true where its weeks begin with Sunday.
    week_year: Option<(i64, bool)>,
    /// Monday is 1, Sunday 7.
    weekday: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Half of the day, where hours are those of a clock of twelve.
    afternoon: Option<bool>,
}

/// A week of a year.
#[derive(Clone, Copy, Debug)]
struct Week {
    number: i64,
    /// Weeks begin with Sunday, not with Monday.
    sunday: bool,
    /// Its year is that of weeks, `%X` or `%x`.
    strict: bool,
}

/// Reads a text by a format, in microseconds since 1970; `None` where the text is not of the format.
pub(super) fn parsed(text: &str, format: &str) -> Option<i64> {
    let mut parts = DateParts::default();
    let mut rest = text;
    parts.read(&mut rest, format)?;
    let days = i64::from(days(parts.date()?)?);
    Some(days * DAY + parts.time_of_day()?)
}

impl DateParts {
    /// Reads what a format has letters for, and goes past it.
    fn read(&mut self, rest: &mut &str, format: &str) -> Option<()> {
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter == '%' {
                self.letter(letters.next()?, rest)?;
            } else if letter.is_whitespace() {
                *rest = rest.trim_start();
            } else {
                *rest = rest.strip_prefix(letter)?;
            }
        }
        Some(())
    }

    fn letter(&mut self, letter: char, rest: &mut &str) -> Option<()> {
        match letter {
            'Y' => self.year = Some(number(rest, 4)?),
            'y' => {
                let year = number(rest, 2)?;
                self.year = Some(year + if year < 70 { 2000 } else { 1900 });
            }
            'm' | 'c' => self.month = Some(number(rest, 2)?),
            'M' | 'b' => {
                self.month = Some(word(rest).parse::<chrono::Month>().ok()?.number_from_month().into());
            }
            'd' | 'e' => self.day = Some(number(rest, 2)?),
            'D' => {
                self.day = Some(number(rest, 2)?);
                if word(rest).len() != 2 {
                    return None;
                }
            }
            'j' => self.ordinal = Some(number(rest, 3)?),
            'U' | 'u' | 'V' | 'v' => {
                let (sunday, strict) = (letter.is_ascii_uppercase(), letter.eq_ignore_ascii_case(&'v'));
                self.week = Some(Week { number: number(rest, 2)?, sunday, strict });
            }
            'X' | 'x' => self.week_year = Some((number(rest, 4)?, letter == 'X')),
            'W' | 'a' => {
                self.weekday = Some(word(rest).parse::<Weekday>().ok()?.number_from_monday().into());
            }
            'w' => {
                let weekday = number(rest, 1).filter(|weekday| *weekday < 7)?;
                self.weekday = Some(if weekday == 0 { 7 } else { weekday });
            }
            'H' | 'k' | 'h' | 'I' | 'l' => self.hour = number(rest, 2)?,
            'i' => self.minute = number(rest, 2)?,
            'S' | 's' => self.second = number(rest, 2)?,
            'f' => {
                let before = rest.len();
                self.micros = number(rest, 6)?;
                for _ in before - rest.len()..6 {
                    self.micros *= 10;
                }
            }
            'p' => {
                self.afternoon = Some(match word(rest).to_ascii_lowercase().as_str() {
                    "am" => false,
                    "pm" => true,
                    _ => return None,
                });
            }
            'r' => self.read(rest, "%I:%i:%S %p")?,
            'T' => {
                let length = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b':').count();
                let (own, left) = rest.split_at(length);
                let seconds = time(own)? / SECOND;
                (self.hour, self.minute, self.second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
                *rest = left;
            }
            _ => return None,
        }
        Some(())
    }

    /// The date: by the day of the year, by week and weekday, or by month and day.
    fn date(&self) -> Option<NaiveDate> {
        let first = |year: i64| NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1);
        let year = self.year.unwrap_or(2000);
        if let Some(ordinal) = self.ordinal {
            let ordinal = Some(ordinal).filter(|ordinal| (1..=366).contains(ordinal))?;
            return first(year)?.checked_add_signed(Duration::days(ordinal - 1));
        }
        if let (Some(week), Some(weekday)) = (self.week, self.weekday) {
            let year = match (week.strict, self.week_year) {
                (true, Some((year, sunday))) if sunday == week.sunday => year,
                (false, None) => year,
                _ => return None,
            };
            let number = Some(week.number).filter(|number| (0..=53).contains(number))?;
            return first(year)?.checked_add_signed(Duration::days(week.days(number, weekday, first(year)?)));
        }
        let part = |part: Option<i64>| u32::try_from(part.unwrap_or(1)).ok();
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, part(self.month)?, part(self.day)?)
    }

    fn time_of_day(&self) -> Option<i64> {
        let hour = match self.afternoon {
            None => self.hour,
            Some(afternoon) if (1..=12).contains(&self.hour) => {
                self.hour % 12 + if afternoon { 12 } else { 0 }
            }
            Some(_) => return None,
        };
        let fits =
            (0..24).contains(&hour) && (0..60).contains(&self.minute) && (0..60).contains(&self.second);
        fits.then_some((hour * 3_600 + self.minute * 60 + self.second) * SECOND + self.micros)
    }
}

impl Week {
    /// Days from the first of January to a day of a week of the year.
    fn days(self, number: i64, weekday: i64, first: NaiveDate) -> i64 {
        use chrono::Datelike;
        let (of_first, of_day) = match self.sunday {
            true => (first.weekday().num_days_from_sunday(), weekday % 7),
            false => (first.weekday().num_days_from_monday(), weekday - 1),
        };
        // Week 1 has a Sunday, or four days.
        let begins_before = if self.sunday { of_first == 0 } else { of_first <= 3 };
        let begin = if begins_before { 0 } else { 7 } - i64::from(of_first);
        begin + (number - 1) * 7 + of_day
    }
}

fn number(rest: &mut &str, most: usize) -> Option<i64> {
    let length = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (digits, left) = rest.split_at_checked(length).filter(|(digits, _)| !digits.is_empty())?;
    *rest = left;
    digits.parse().ok()
}

fn word<'r>(rest: &mut &'r str) -> &'r str {
    let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, left) = rest.split_at(length);
    *rest = left;
    word
}

#[cfg(test)]
mod tests {
    use super::super::time::shown_timestamp;
    use super::*;

    #[test]
    fn texts_are_read_as_mariadb_does() {
        for (text, format, expected) in [
            ("01,5,2013", "%d,%m,%Y", Some("2013-05-01 00:00:00")),
            ("x", "%d", None),
            ("2024-060", "%Y-%j", Some("2024-02-29 00:00:00")),
            ("2023-366", "%Y-%j", Some("2024-01-01 00:00:00")),
            ("2023-367", "%Y-%j", None),
            ("2023-0", "%Y-%j", None),
            ("2024-01-02 11:22:33 PM", "%Y-%m-%d %r", Some("2024-01-02 23:22:33")),
            ("2024-01-02 12:00:00 am", "%Y-%m-%d %r", Some("2024-01-02 00:00:00")),
            ("2024-01-02 13:00:00 PM", "%Y-%m-%d %r", None),
            ("2024-01-02 0:30 AM", "%Y-%m-%d %h:%i %p", None),
            ("2024-01-02 12:30 XM", "%Y-%m-%d %h:%i %p", None),
            ("2024 05 Mon", "%x %v %a", Some("2024-01-29 00:00:00")),
            ("200442 Monday", "%X%V %W", Some("2004-10-18 00:00:00")),
            ("2024 05 1", "%Y %u %w", Some("2024-01-29 00:00:00")),
            ("2024 05 0", "%Y %U %w", Some("2024-02-04 00:00:00")),
            ("2024 05 Mon", "%X %v %a", None),
            ("2024 05 Mon", "%Y %v %a", None),
            ("2024 54 Mon", "%x %v %a", None),
            ("3rd Jan 2024", "%D %b %Y", Some("2024-01-03 00:00:00")),
            ("2024-01-02 10:11:12.1234", "%Y-%m-%d %T.%f", Some("2024-01-02 10:11:12.1234")),
            ("2024-02-30", "%Y-%m-%d", None),
            ("2024", "%q", None),
            ("10:11", "%H:%i", Some("2000-01-01 10:11:00")),
        ] {
            let read = parsed(text, format).map(|at| shown_timestamp(at, SECOND));
            assert_eq!(read.as_deref(), expected, "{text} by {format}");
        }
    }
}
