//! A place in the text: moving on, skipping white space and comments, telling line and column.

use millrace_ingest::Location;

/// Most characters of the text shown in a fault.
const SHOWN: usize = 24;

/// A text and an offset in it.
pub(super) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    /// Begins of lines.
    lines: Vec<usize>,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, offset, lines }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    /// Text between an earlier offset and here.
    pub(super) fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.offset).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.offset += next.len_utf8();
        Some(next)
    }

    /// Takes a text if it is next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.offset += text.len();
        }
        is_next
    }

    /// Takes a word if it is next, and not the beginning of a longer one.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.rest().strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_name));
        if is_next {
            self.offset += word.len();
        }
        is_next
    }

    /// Takes characters for as long as they are of a kind.
    pub(super) fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !is_wanted(c)).unwrap_or(rest.len());
        self.offset += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Goes back to an earlier offset.
    pub(super) fn back_to(&mut self, offset: usize) {
        self.offset = offset;
    }

    /// Goes to the end of the text.
    pub(super) fn end(&mut self) {
        self.offset = self.text.len();
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    /// Skips white space and comments.
    pub(super) fn skip_blank(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if self.peek() != Some('#') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    /// Line and column of an offset.
    pub(super) fn location(&self, offset: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        Location { line: count(line.max(1)), column: count(column + 1) }
    }

    /// Describes the next token, for a fault.
    pub(super) fn describe(&self) -> String {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return "the end of the definition".to_owned() };
        let end = if is_name(first) {
            rest.find(|c| !is_name(c))
        } else {
            rest.char_indices().map(|(at, _)| at).nth(1)
        };
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if word.chars().count() > SHOWN {
            let shown: String = word.chars().take(SHOWN).collect();
            return format!("`{shown}…`");
        }
        if first.is_control() { format!("`{}`", word.escape_debug()) } else { format!("`{word}`") }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns whether a character can be in the name of a plugin or an option.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
