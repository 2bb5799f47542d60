//! A position in the text: blanks and comments, words, quotes, numbers.
//!
//! Tokens are read where they are asked for, because their extent depends on the place: `a-b` is a name, `5m` a length, and
//! `10.0.0.*` a search term.

use sqlparser::tokenizer::Location;

/// Bytes between two counted positions.
const STRIDE: usize = 256;

/// A text and an offset in it.
#[derive(Debug)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    /// The end of the last token.
    last_end: usize,
    /// Offsets of lines.
    lines: Vec<usize>,
    /// Characters before each stride.
    characters: Vec<usize>,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut characters = Vec::with_capacity(text.len() / STRIDE + 1);
        let mut count = 0;
        for (at, byte) in text.bytes().enumerate() {
            if at % STRIDE == 0 {
                characters.push(count);
            }
            count += usize::from(is_first(byte));
        }
        if text.len().is_multiple_of(STRIDE) {
            characters.push(count);
        }
        Self { text, offset: 0, last_end: 0, lines, characters }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the end of the last token.
    pub(super) fn last_end(&self) -> usize {
        self.last_end
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    /// Returns the text between two offsets.
    pub(super) fn slice(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Goes back to the start of a token.
    pub(super) fn back_to(&mut self, (offset, last_end): (usize, usize)) {
        self.offset = offset;
        self.last_end = last_end;
    }

    /// Returns a place to come back to.
    pub(super) fn checkpoint(&self) -> (usize, usize) {
        (self.offset, self.last_end)
    }

    /// Takes so many bytes as a token.
    pub(super) fn advance(&mut self, bytes: usize) -> &'t str {
        let start = self.offset;
        self.offset = (start + bytes).min(self.text.len());
        self.last_end = self.offset;
        self.slice(start, self.offset)
    }

    /// Returns whether one of these characters stands right behind the last token.
    pub(super) fn is_followed_by(&self, letters: &[char]) -> bool {
        self.text.get(self.last_end..).is_some_and(|rest| rest.starts_with(letters))
    }

    /// Skips white space and comments.
    pub(super) fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.offset += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.offset += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let Some(end) = trimmed.get(2..).and_then(|comment| comment.find("*/")) else { return };
                self.offset += end + 4;
            } else {
                return;
            }
        }
    }

    /// Returns line and column of an offset.
    pub(super) fn location(&self, offset: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let column = self.characters_before(offset).saturating_sub(self.characters_before(start)) + 1;
        Location { line: line as u64, column: column as u64 }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let stride = (offset / STRIDE).min(self.characters.len().saturating_sub(1));
        let before = self.characters.get(stride).copied().unwrap_or_default();
        let bytes = self.text.as_bytes().get(stride * STRIDE..offset).unwrap_or_default();
        before + bytes.iter().filter(|byte| is_first(**byte)).count()
    }
}

/// Returns whether a byte begins a character.
fn is_first(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Returns whether a character can begin a name.
pub(super) fn is_name_start(letter: char) -> bool {
    letter.is_alphabetic() || matches!(letter, '_' | '@' | '$')
}

/// Returns whether a character can be within a name.
pub(super) fn is_name_part(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '@' | '$')
}

/// Returns the length of the word at the start of a text: letters, digits and `_`.
pub(super) fn word_length(text: &str) -> usize {
    text.find(|letter: char| !is_name_part(letter)).unwrap_or(text.len())
}

/// Returns the length of the name segment at the start of a text. Hyphens stand between other characters of the name; stars
/// count where patterns may stand.
pub(super) fn segment_length(text: &str, stars: bool) -> usize {
    let is_part = |letter: char| is_name_part(letter) || (stars && letter == '*');
    let mut end = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let joins = letter == '-' && at > 0 && letters.peek().is_some_and(|(_, next)| is_part(*next));
        if !is_part(letter) && !joins {
            break;
        }
        end = at + letter.len_utf8();
    }
    end
}
