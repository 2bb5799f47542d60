//! Rows of comma-separated values, as Ruby's `CSV` reads and writes them.
//!
//! [`CsvDialect`] has the separator and the quote, [`CsvConversion`] makes values of columns. The filter, the codec, the output and
//! the ingest processor `csv` use them, and the dictionaries of `translate`.

mod conversion;

use crate::Options;
pub use conversion::CsvConversion;

/// Most values of a row.
const MAX_VALUES: usize = 100_000;

/// Separator and quote of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvDialect {
    separator: String,
    /// `None` where no character quotes.
    quote: Option<char>,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvValue {
    /// Text without its quotes.
    pub text: String,
    /// `true` if it stands in quotes.
    pub is_quoted: bool,
}

/// Bounds and liberties of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowOptions {
    /// `true` if space around values does not count.
    pub is_trimming: bool,
    /// `true` if a line end outside of quotes ends the row; else it is a fault.
    pub ends_with_line: bool,
    /// Values that are read; the rest of the row stays unread.
    pub most: usize,
}

/// A row that no dialect allows, with the place of the fault in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRow {
    /// A quote is not closed.
    #[error("malformed row: a quote is not closed")]
    OpenQuote,
    /// A character follows a closing quote.
    #[error("malformed row: [{0}] follows a closing quote at character {1}")]
    BehindQuote(char, usize),
    /// A quote or a line end stands within a value without quotes.
    #[error("malformed row: a quote or a line end stands within a value at character {0}")]
    WithinValue(usize),
    /// The row has too many values.
    #[error("the row has more than {MAX_VALUES} values")]
    TooMany,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self { separator: ",".to_owned(), quote: Some('"') }
    }
}

impl CsvDialect {
    /// Makes a dialect; the separator is not empty.
    pub fn new(separator: impl Into<String>, quote: Option<char>) -> Self {
        Self { separator: separator.into(), quote }
    }

    /// Takes the options `separator` and `quote_char`.
    pub fn take(options: &mut Options) -> Self {
        let separator = options.read("separator", "a text that is not empty", |setting| {
            setting.as_text().filter(|separator| !separator.is_empty())
        });
        let quote = options.read("quote_char", "one character, or \\x00 for none", |setting| {
            let text = setting.as_text()?;
            let mut letters = text.chars();
            match (text.as_str(), letters.next(), letters.next()) {
                ("\\x00" | "\0" | "", ..) => Some(None),
                (_, Some(quote), None) => Some(Some(quote)),
                _ => None,
            }
        });
        let default = Self::default();
        Self { separator: separator.unwrap_or(default.separator), quote: quote.unwrap_or(default.quote) }
    }

    /// Parses the first row of a text; a value without quotes that is empty is `None`. `Ok(None)` where the text is empty.
    ///
    /// # Errors
    /// [`MalformedRow`] for quotes that are misplaced or not closed, and for more than 100,000 values.
    pub fn parse_row(&self, text: &str) -> Result<Option<Vec<Option<String>>>, MalformedRow> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.starts_with(['\r', '\n']) {
            return Ok(Some(Vec::new()));
        }
        let options = RowOptions { is_trimming: false, ends_with_line: true, most: MAX_VALUES + 1 };
        let values = self.parse_values(text, options)?;
        if values.len() > MAX_VALUES {
            return Err(MalformedRow::TooMany);
        }
        let values = values.into_iter();
        Ok(Some(
            values.map(|value| (value.is_quoted || !value.text.is_empty()).then_some(value.text)).collect(),
        ))
    }

    /// Parses the values of a row.
    ///
    /// # Errors
    /// [`MalformedRow`] with the place of the fault.
    pub fn parse_values(&self, text: &str, options: RowOptions) -> Result<Vec<CsvValue>, MalformedRow> {
        let mut values = Vec::new();
        let mut rest = text;
        while values.len() < options.most {
            let (value, behind) = self.parse_value(text, rest, options)?;
            values.push(value);
            match behind.strip_prefix(&*self.separator) {
                Some(next) => rest = next,
                None => break,
            }
        }
        Ok(values)
    }

    /// Parses the value that the rest of a row begins with; returns it and what follows, which begins with a separator or ends the
    /// row.
    fn parse_value<'a>(
        &self,
        row: &str,
        rest: &'a str,
        options: RowOptions,
    ) -> Result<(CsvValue, &'a str), MalformedRow> {
        let place = |rest: &str| row.get(..row.len() - rest.len()).unwrap_or_default().chars().count();
        let trimmed =
            |rest: &'a str| if options.is_trimming { rest.trim_start_matches([' ', '\t']) } else { rest };
        let rest = trimmed(rest);
        if let Some(quote) = self.quote
            && let Some(mut rest) = rest.strip_prefix(quote)
        {
            let mut text = String::new();
            loop {
                let (before, behind) = rest.split_once(quote).ok_or(MalformedRow::OpenQuote)?;
                text.push_str(before);
                match behind.strip_prefix(quote) {
                    Some(next) => {
                        text.push(quote);
                        rest = next;
                    }
                    None => {
                        rest = trimmed(behind);
                        break;
                    }
                }
            }
            let ends_line = options.ends_with_line && rest.starts_with(['\r', '\n']);
            return match rest.chars().next() {
                Some(letter) if !ends_line && !rest.starts_with(&*self.separator) => {
                    Err(MalformedRow::BehindQuote(letter, place(rest)))
                }
                _ => Ok((CsvValue { text, is_quoted: true }, rest)),
            };
        }
        let separator = rest.find(&*self.separator).unwrap_or(rest.len());
        let line = rest.split_at(separator).0.find(['\r', '\n']);
        let end = line.filter(|_| options.ends_with_line).unwrap_or(separator);
        let (value, behind) = rest.split_at(end);
        let fault = value.find(|letter| self.quote == Some(letter) || matches!(letter, '\r' | '\n'));
        if let Some(fault) = fault.and_then(|fault| rest.get(fault..)) {
            return Err(MalformedRow::WithinValue(place(fault)));
        }
        let value = if options.is_trimming { value.trim_end_matches([' ', '\t']) } else { value };
        Ok((CsvValue { text: value.to_owned(), is_quoted: false }, behind))
    }

    /// Appends a row with its line end. `None` and texts without special characters have no quotes.
    pub fn write_row<'a>(&self, values: impl IntoIterator<Item = Option<&'a str>>, out: &mut String) {
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                out.push_str(&self.separator);
            }
            let Some(value) = value else { continue };
            let special = value.is_empty()
                || value.contains(['\r', '\n'])
                || value.contains(&*self.separator)
                || self.quote.is_some_and(|quote| value.contains(quote))
                || value.starts_with(' ');
            match self.quote.filter(|_| special) {
                None => out.push_str(value),
                Some(quote) => {
                    out.push(quote);
                    for letter in value.chars() {
                        if letter == quote {
                            out.push(quote);
                        }
                        out.push(letter);
                    }
                    out.push(quote);
                }
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(text: &str) -> Option<Vec<Option<String>>> {
        CsvDialect::default().parse_row(text).unwrap()
    }

    #[test]
    fn rows_are_read_as_ruby_reads_them() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(row(""), None);
        assert_eq!(row("\n"), Some(vec![]));
        assert_eq!(row("a,,\"\""), Some(vec![text("a"), None, text("")]));
        assert_eq!(row("a,\"b,\"\"c\"\"\nd\",e\r\nf"), Some(vec![text("a"), text("b,\"c\"\nd"), text("e")]));
        assert_eq!(row(","), Some(vec![None, None]));
        for wrong in ["\"a", "a\"b", "\"a\"b", "a, \"b\""] {
            assert!(CsvDialect::default().parse_row(wrong).is_err(), "{wrong}");
        }
        assert_eq!(CsvDialect::default().parse_row(&",".repeat(MAX_VALUES)), Err(MalformedRow::TooMany));
        let wide = CsvDialect::new("||", None);
        assert_eq!(wide.parse_row("\"a\"||b|c").unwrap(), Some(vec![text("\"a\""), text("b|c")]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec("[a-c,\" \\n\\r;ä]{0,6}", 1..5)) {
            let dialect = CsvDialect::default();
            let mut out = String::new();
            dialect.write_row(values.iter().map(|value| Some(value.as_str())), &mut out);
            let read: Vec<String> = dialect.parse_row(&out).unwrap().unwrap().into_iter().flatten().collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn nothing_panics(text in "[a-b,\"\\n|ä]{0,30}") {
            let _ = CsvDialect::default().parse_row(&text);
            let _ = CsvDialect::new("|ä", Some('b')).parse_row(&text);
        }
    }
}
