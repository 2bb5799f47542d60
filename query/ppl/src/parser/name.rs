//! Names of fields, columns and indices.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span;

use super::cursor::{is_name_part, is_name_start, segment_length};
use super::{Expectation, Mismatch, Parser, Parsing};
use crate::ast::{FieldName, FieldPattern, IndexSelector};
use crate::error::ParseErrorKind;

/// Most segments of a dotted name.
const MAX_SEGMENTS: usize = 256;
/// Most members of a list of names.
const MAX_NAMES: usize = 10_000;

impl Parser<'_> {
    /// Returns whether a name is next.
    pub(crate) fn peek_name(&mut self) -> bool {
        self.cursor.skip_blank();
        self.cursor.rest().starts_with(|letter| is_name_start(letter) || letter == '`')
    }

    /// Returns whether a name or a pattern is next.
    pub(crate) fn peek_pattern(&mut self) -> bool {
        self.peek_name() || self.cursor.rest().starts_with('*')
    }

    /// Returns whether a name is next that is no option.
    pub(crate) fn peek_field(&mut self) -> bool {
        self.peek_name() && self.peek_option().is_none()
    }

    /// Reads the segments of a dotted name.
    pub(super) fn segments(&mut self, stars: bool) -> Parsing<Vec<Ident>> {
        self.cursor.skip_blank();
        let mut segments = Vec::new();
        loop {
            let start = self.cursor.offset();
            let rest = self.cursor.rest();
            let (value, quote) = if rest.starts_with('`') {
                (self.quoted('`')?, Some('`'))
            } else {
                let is_begin = |letter: char| {
                    is_name_start(letter)
                        || (stars && letter == '*')
                        || (!segments.is_empty() && is_name_part(letter))
                };
                if !rest.starts_with(is_begin) {
                    return Err(Mismatch);
                }
                let length = segment_length(rest, stars);
                (self.cursor.advance(length).to_owned(), None)
            };
            let span = Span::new(self.cursor.location(start), self.cursor.location(self.cursor.offset()));
            segments.push(Ident { value, quote_style: quote, span });
            if segments.len() > MAX_SEGMENTS {
                let message = format!("a name has more than {MAX_SEGMENTS} segments");
                return self.refuse(ParseErrorKind::TooLarge, start, message, None);
            }
            let behind = self.cursor.rest().strip_prefix('.').unwrap_or_default();
            let goes_on = |letter: char| is_name_part(letter) || letter == '`' || (stars && letter == '*');
            if !behind.starts_with(goes_on) {
                return Ok(segments);
            }
            self.cursor.advance(1);
        }
    }

    /// Reads a name as an expectation of the given kind.
    fn name(&mut self, kind: Expectation) -> Parsing<FieldName> {
        self.note(kind);
        let start = self.cursor.offset();
        let segments = self.segments(false)?;
        Ok(FieldName { path: path_of(&segments), span: self.span_from(start) })
    }

    /// Reads the name of a field.
    pub(crate) fn field(&mut self) -> Parsing<FieldName> {
        self.name(Expectation::Field)
    }

    /// Reads the name of a new column. It may hold stars, which mean nothing there.
    pub(crate) fn new_name(&mut self) -> Parsing<FieldName> {
        self.note(Expectation::Alias);
        if self.peek_string() {
            let text = self.string()?;
            return Ok(FieldName { path: text.value, span: text.span });
        }
        let start = self.cursor.offset();
        let segments = self.segments(true)?;
        Ok(FieldName { path: path_of(&segments), span: self.span_from(start) })
    }

    /// Reads `as name`, if it is next.
    pub(crate) fn alias(&mut self) -> Parsing<Option<FieldName>> {
        if self.keyword("as") { self.new_name().map(Some) } else { Ok(None) }
    }

    /// Reads a field or a pattern.
    pub(crate) fn field_pattern(&mut self) -> Parsing<FieldPattern> {
        self.note(Expectation::Field);
        let start = self.cursor.offset();
        if self.peek_string() {
            let text = self.string()?;
            return Ok(FieldPattern { pattern: text.value, span: text.span });
        }
        let segments = self.segments(true)?;
        Ok(FieldPattern { pattern: path_of(&segments), span: self.span_from(start) })
    }

    /// Reads fields with commas or blanks between them. A list ends before an option.
    pub(crate) fn field_list(&mut self) -> Parsing<Vec<FieldName>> {
        let mut fields = vec![self.field()?];
        loop {
            let has_comma = self.symbol(",");
            if !has_comma && !self.peek_field() {
                return Ok(fields);
            }
            let start = self.start();
            fields.push(self.field()?);
            self.check_count(start, fields.len())?;
        }
    }

    /// Reads fields behind which another clause may stand, which begins with one of these words.
    pub(crate) fn field_list_before(&mut self, words: &[&'static str]) -> Parsing<Vec<FieldName>> {
        let mut fields = vec![self.field()?];
        loop {
            let has_comma = self.symbol(",");
            let word = self.peek_word();
            let ends = words.iter().any(|end| end.eq_ignore_ascii_case(word));
            if !has_comma && (ends || !self.peek_field()) {
                return Ok(fields);
            }
            let start = self.start();
            fields.push(self.field()?);
            self.check_count(start, fields.len())?;
        }
    }

    /// Refuses a list that is too long.
    pub(crate) fn check_count(&mut self, start: usize, count: usize) -> Parsing<()> {
        if count <= MAX_NAMES {
            return Ok(());
        }
        let message = format!("a list has more than {MAX_NAMES} members");
        self.refuse(ParseErrorKind::TooLarge, start, message, None)
    }

    /// Reads the name of an index, an alias or a pattern.
    pub(crate) fn index(&mut self) -> Parsing<IndexSelector> {
        self.note(Expectation::Index);
        let start = self.cursor.offset();
        let mut expression = String::new();
        loop {
            let rest = self.cursor.rest();
            if rest.starts_with('`') {
                expression.push_str(&self.quoted('`')?);
                continue;
            }
            let length = rest.find(|letter: char| !is_index_part(letter)).unwrap_or(rest.len());
            if length == 0 {
                break;
            }
            expression.push_str(self.cursor.advance(length));
        }
        if expression.is_empty() {
            return Err(Mismatch);
        }
        if self.cursor.rest().starts_with(':') {
            return self.refuse(
                ParseErrorKind::Unsupported,
                start,
                format!("[{expression}:] names another cluster, which is not supported"),
                Some("ask the other cluster itself; here a source names indices of this cluster"),
            );
        }
        Ok(IndexSelector { expression, span: self.span_from(start) })
    }

    /// Reads indices with commas between them.
    pub(crate) fn index_list(&mut self) -> Parsing<Vec<IndexSelector>> {
        let mut indices = vec![self.index()?];
        while self.symbol(",") {
            let start = self.start();
            indices.push(self.index()?);
            self.check_count(start, indices.len())?;
        }
        Ok(indices)
    }
}

/// Joins the segments of a name by dots.
pub(super) fn path_of(segments: &[Ident]) -> String {
    segments.iter().map(|segment| segment.value.as_str()).collect::<Vec<_>>().join(".")
}

fn is_index_part(letter: char) -> bool {
    is_name_part(letter) || matches!(letter, '-' | '.' | '*' | '+' | '%' | '<' | '>' | '{' | '}')
}
