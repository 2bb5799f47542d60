//! Tags around matches, and text escaped for HTML.

use millrace_dsl::highlight::Options;
use millrace_work::error::{Error, Result};

/// Longest text of a field with its tags, in bytes.
const MAX_MARKED_BYTES: usize = 32 << 20;

/// Writes marked text.
#[derive(Debug)]
pub(super) struct Markup<'a> {
    options: &'a Options,
    out: String,
    /// True if tags were left out, because they would make the text too long.
    overflown: bool,
}

impl<'a> Markup<'a> {
    pub(super) fn new(options: &'a Options) -> Self {
        Self { options, out: String::new(), overflown: false }
    }

    /// Writes text as it is.
    pub(super) fn text(&mut self, units: &[u16]) {
        let text =
            char::decode_utf16(units.iter().copied()).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        if !self.options.html {
            self.out.extend(text);
            return;
        }
        for c in text {
            match c {
                '"' => self.out.push_str("&quot;"),
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '\'' => self.out.push_str("&#x27;"),
                '/' => self.out.push_str("&#x2F;"),
                other => self.out.push(other),
            }
        }
    }

    /// Writes text between the tags.
    pub(super) fn marked(&mut self, units: &[u16]) {
        let tags = self.options.pre_tag.len() + self.options.post_tag.len();
        if self.out.len().saturating_add(tags) > MAX_MARKED_BYTES {
            self.overflown = true;
            return;
        }
        self.out.push_str(&self.options.pre_tag);
        self.text(units);
        self.out.push_str(&self.options.post_tag);
    }

    /// Counts what is written, in bytes.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns the written text.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where tags make it longer than 32 MB.
    pub(super) fn finish(self) -> Result<String> {
        match self.overflown {
            false => Ok(self.out),
            true => Err(Error::CircuitBreaking(format!(
                "the tags of a highlighted field exceed [{MAX_MARKED_BYTES}] bytes; use shorter tags"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_do_not_multiply_a_text_without_bound() {
        let options = Options { pre_tag: "x".repeat(1 << 20), ..Options::default() };
        let text: Vec<u16> = "a".encode_utf16().collect();
        let marked = |times: usize| {
            let mut markup = Markup::new(&options);
            (0..times).for_each(|_| markup.marked(&text));
            markup.finish()
        };
        assert!(marked(30).is_ok());
        assert_eq!(marked(3_000).unwrap_err().status(), 429);
    }
}
