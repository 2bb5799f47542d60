//! Patterns of times, as they are written in formats (`%{+yyyy.MM.dd}`, `%{{yyyy-MM-dd}}`) and in the `date`
//! filter: those of Joda-Time and those of `java.time`, with English names and, for reading, those of [`TimeNames`].
//!
//! [`TimeFormat`] is a compiled pattern; it writes times ([`TimeFormat::format`]) and reads them
//! ([`TimeFormat::parse`], Joda's patterns only). What was read is a [`ParsedTime`], whose gaps are filled and which
//! becomes an instant in a [`Zone`]. [`iso8601`] reads times without a pattern.

mod epoch;
mod format;
mod iso8601;
mod names;
mod parse;
mod resolve;
mod zone;

pub use epoch::{tai64n, unix_millis, unix_seconds};
pub use iso8601::iso8601;
pub use names::TimeNames;
pub use resolve::ParsedTime;
pub use zone::Zone;

/// Longest pattern in bytes.
const MAX_PATTERN: usize = 1024;
/// Most digits of one field, which bounds what is written and read.
const MAX_DIGITS: usize = 30;

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeFormat {
    items: Vec<Item>,
    /// Names that are read before those of English.
    names: Option<&'static TimeNames>,
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Literal(String),
    /// A field and how often its letter stands there.
    Field(Field, usize),
}

/// Field that a letter of a pattern means, in either notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Era,
    Century,
    Year,
    WeekYear,
    /// Year of the week that begins on a Sunday, as `java.time` has it in the United States.
    UsWeekYear,
    Quarter,
    MonthNumber,
    MonthText,
    Week,
    UsWeek,
    DayOfMonth,
    DayOfYear,
    /// Monday is 1.
    DayOfWeek,
    /// Sunday is 1.
    UsDayOfWeek,
    DayText,
    HalfDay,
    Hour,
    /// 1 to 24.
    ClockHour,
    /// 0 to 11.
    HalfDayHour,
    /// 1 to 12.
    HalfDayClockHour,
    Minute,
    Second,
    Fraction,
    Nanosecond,
    MilliOfDay,
    NanoOfDay,
    ZoneName,
    /// `+0000`.
    Offset,
    /// `+00:00`.
    OffsetColon,
    /// Of `java.time`, with `Z` for none.
    OffsetOrZ,
    /// Of `java.time`, always with digits.
    OffsetDigits,
    ZoneId,
    /// `GMT+1`.
    LocalizedOffset,
}

impl Field {
    /// Returns whether it is read as a number, so that digits before it do not run into it.
    fn is_numeric(self) -> bool {
        use Field::{
            Century, ClockHour, DayOfMonth, DayOfWeek, DayOfYear, Fraction, HalfDayClockHour, HalfDayHour,
            Hour, Minute, MonthNumber, Second, Week, WeekYear, Year,
        };
        matches!(
            self,
            Century
                | Year
                | WeekYear
                | Week
                | MonthNumber
                | DayOfMonth
                | DayOfYear
                | DayOfWeek
                | Hour
                | ClockHour
                | HalfDayHour
                | HalfDayClockHour
                | Minute
                | Second
                | Fraction
        )
    }
}

impl TimeFormat {
    /// Compiles a pattern of Joda-Time.
    ///
    /// # Errors
    /// The fault of the pattern, naming it.
    pub fn joda(pattern: &str) -> Result<Self, String> {
        Self::compile(pattern, |letter, count| {
            Some(match letter {
                'G' => Field::Era,
                'C' => Field::Century,
                'Y' | 'y' => Field::Year,
                'x' => Field::WeekYear,
                'M' if count >= 3 => Field::MonthText,
                'M' => Field::MonthNumber,
                'w' => Field::Week,
                'd' => Field::DayOfMonth,
                'D' => Field::DayOfYear,
                'e' => Field::DayOfWeek,
                'E' => Field::DayText,
                'a' => Field::HalfDay,
                'H' => Field::Hour,
                'k' => Field::ClockHour,
                'K' => Field::HalfDayHour,
                'h' => Field::HalfDayClockHour,
                'm' => Field::Minute,
                's' => Field::Second,
                'S' => Field::Fraction,
                'z' => Field::ZoneName,
                'Z' if count == 1 => Field::Offset,
                'Z' if count == 2 => Field::OffsetColon,
                'Z' => Field::ZoneId,
                _ => return None,
            })
        })
    }

    /// Compiles a pattern of `java.time`.
    ///
    /// # Errors
    /// The fault of the pattern, naming it.
    pub fn java(pattern: &str) -> Result<Self, String> {
        if let Some(letter) =
            outside_quotes(pattern).find(|letter| matches!(letter, '[' | ']' | '{' | '}' | '#'))
        {
            return Err(format!("the time pattern [{pattern}] has [{letter}], which must be in quotes"));
        }
        Self::compile(pattern, |letter, count| {
            Some(match letter {
                'G' => Field::Era,
                'y' | 'u' => Field::Year,
                'Y' => Field::UsWeekYear,
                'Q' | 'q' if count <= 4 => Field::Quarter,
                'M' | 'L' if count <= 2 => Field::MonthNumber,
                'M' | 'L' if count <= 5 => Field::MonthText,
                'w' if count <= 2 => Field::UsWeek,
                'd' if count <= 2 => Field::DayOfMonth,
                'D' if count <= 3 => Field::DayOfYear,
                'e' | 'c' if count <= 2 => Field::UsDayOfWeek,
                'E' | 'e' | 'c' if count <= 5 => Field::DayText,
                'a' if count == 1 => Field::HalfDay,
                'H' if count <= 2 => Field::Hour,
                'k' if count <= 2 => Field::ClockHour,
                'K' if count <= 2 => Field::HalfDayHour,
                'h' if count <= 2 => Field::HalfDayClockHour,
                'm' if count <= 2 => Field::Minute,
                's' if count <= 2 => Field::Second,
                'S' if count <= 9 => Field::Fraction,
                'n' => Field::Nanosecond,
                'A' => Field::MilliOfDay,
                'N' => Field::NanoOfDay,
                'V' if count == 2 => Field::ZoneId,
                'z' if count <= 4 => Field::ZoneName,
                'O' if matches!(count, 1 | 4) => Field::LocalizedOffset,
                'Z' if count <= 3 => Field::Offset,
                'Z' if count == 4 => Field::LocalizedOffset,
                'X' if count <= 5 => Field::OffsetOrZ,
                'x' if count <= 5 => Field::OffsetDigits,
                'Z' if count == 5 => Field::OffsetOrZ,
                _ => return None,
            })
        })
    }

    fn compile(pattern: &str, field: impl Fn(char, usize) -> Option<Field>) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("a time pattern has at most {MAX_PATTERN} bytes"));
        }
        if pattern.is_empty() {
            return Err("a time pattern cannot be empty".to_owned());
        }
        let mut items: Vec<Item> = Vec::new();
        let mut literal = String::new();
        let mut rest = pattern.chars().peekable();
        while let Some(letter) = rest.next() {
            if letter == '\'' {
                quoted(&mut rest, &mut literal)
                    .ok_or_else(|| format!("the time pattern [{pattern}] has a quote that is not closed"))?;
                continue;
            }
            if !letter.is_ascii_alphabetic() {
                literal.push(letter);
                continue;
            }
            let mut count = 1;
            while rest.next_if_eq(&letter).is_some() {
                count += 1;
            }
            let field = field(letter, count).filter(|_| count <= MAX_DIGITS).ok_or_else(|| {
                format!(
                    "the time pattern [{pattern}] has [{}], which means nothing",
                    letter.to_string().repeat(count)
                )
            })?;
            if !literal.is_empty() {
                items.push(Item::Literal(std::mem::take(&mut literal)));
            }
            items.push(Item::Field(field, count));
        }
        if !literal.is_empty() {
            items.push(Item::Literal(literal));
        }
        Ok(Self { items, names: None })
    }

    /// Reads names of another language, too.
    #[must_use]
    pub fn with_names(self, names: Option<&'static TimeNames>) -> Self {
        Self { names, ..self }
    }

    /// Returns whether the pattern has names that languages have of their own: of months, days, eras, halves of a day.
    pub fn has_names(&self) -> bool {
        let is_name =
            |field: &Field| matches!(field, Field::MonthText | Field::DayText | Field::Era | Field::HalfDay);
        self.items.iter().any(|item| matches!(item, Item::Field(field, _) if is_name(field)))
    }

    /// Returns whether the pattern has a year, of any kind.
    pub fn has_year(&self) -> bool {
        self.items
            .iter()
            .any(|item| matches!(item, Item::Field(Field::Year | Field::WeekYear | Field::Century, _)))
    }
}

/// Reads what stands behind an opening quote: two quotes are one, and a quote ends it.
fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Option<()> {
    if rest.next_if_eq(&'\'').is_some() {
        out.push('\'');
        return Some(());
    }
    loop {
        match rest.next()? {
            '\'' if rest.next_if_eq(&'\'').is_some() => out.push('\''),
            '\'' => return Some(()),
            letter => out.push(letter),
        }
    }
}

fn outside_quotes(pattern: &str) -> impl Iterator<Item = char> {
    pattern.split('\'').step_by(2).flat_map(str::chars)
}

#[cfg(test)]
mod tests;
