//! Tags around matches, and text escaped for HTML.

use millrace_dsl::highlight::Options;

/// Writes marked text.
#[derive(Debug)]
pub(super) struct Markup<'a> {
    options: &'a Options,
    out: String,
}

impl<'a> Markup<'a> {
    pub(super) fn new(options: &'a Options) -> Self {
        Self { options, out: String::new() }
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
        self.out.push_str(&self.options.pre_tag);
        self.text(units);
        self.out.push_str(&self.options.post_tag);
    }

    /// Counts what is written, in bytes.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns what is written.
    pub(super) fn finish(self) -> String {
        self.out
    }
}
