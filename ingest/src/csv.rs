//! Rows of comma-separated values, as Ruby's `CSV` reads and writes them.
//!
//! [`CsvDialect`] has the separator and the quote. The filter `csv`, the codec `csv`, the output `csv` and the dictionaries of
//! `translate` use it.

use crate::Options;

/// Separator and quote of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvDialect {
    separator: String,
    /// `None` where no character quotes.
    quote: Option<char>,
}

/// A row that no dialect allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed row: {0}")]
pub struct MalformedRow(&'static str);

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
    /// [`MalformedRow`] for quotes that are misplaced or not closed.
    pub fn parse_row(&self, text: &str) -> Result<Option<Vec<Option<String>>>, MalformedRow> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut values = Vec::new();
        let mut rest = text;
        if !rest.starts_with(['\r', '\n']) {
            loop {
                let (value, behind) = self.parse_value(rest)?;
                values.push(value);
                match behind.strip_prefix(&*self.separator) {
                    Some(next) => rest = next,
                    None => break,
                }
            }
        }
        Ok(Some(values))
    }

    /// Parses a value; returns it and the rest, which begins with a separator or ends the row.
    fn parse_value<'a>(&self, text: &'a str) -> Result<(Option<String>, &'a str), MalformedRow> {
        if let Some(quote) = self.quote
            && let Some(mut rest) = text.strip_prefix(quote)
        {
            let mut value = String::new();
            loop {
                let (before, behind) = rest.split_once(quote).ok_or(MalformedRow("a quote is not closed"))?;
                value.push_str(before);
                match behind.strip_prefix(quote) {
                    Some(next) => {
                        value.push(quote);
                        rest = next;
                    }
                    None => {
                        rest = behind;
                        break;
                    }
                }
            }
            let ends =
                rest.is_empty() || rest.starts_with(&*self.separator) || rest.starts_with(['\r', '\n']);
            return if ends {
                Ok((Some(value), rest))
            } else {
                Err(MalformedRow("text follows a closing quote"))
            };
        }
        let line = text.find(['\r', '\n']).unwrap_or(text.len());
        let (line_text, _) = text.split_at(line);
        let end = line_text.find(&*self.separator).unwrap_or(line);
        let (value, rest) = text.split_at(end);
        if self.quote.is_some_and(|quote| value.contains(quote)) {
            return Err(MalformedRow("a quote stands within a value"));
        }
        Ok(((!value.is_empty()).then(|| value.to_owned()), rest))
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
