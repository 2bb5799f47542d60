//! `search`: free text, comparisons and time modifiers around a source.

use super::{Expectation, Mismatch, Parser, Parsing};
use crate::ast::{
    ComparisonOperator, FieldName, SearchCondition, SearchSource, SearchTerm, SourceRelation, TextSpan,
};
use crate::error::ParseErrorKind;

/// Operators of search conditions; longer signs come first.
const OPERATORS: [(&str, ComparisonOperator); 7] = [
    ("==", ComparisonOperator::Eq),
    ("!=", ComparisonOperator::NotEq),
    ("<=", ComparisonOperator::LtEq),
    (">=", ComparisonOperator::GtEq),
    ("=", ComparisonOperator::Eq),
    ("<", ComparisonOperator::Lt),
    (">", ComparisonOperator::Gt),
];

impl Parser<'_> {
    /// Reads `[search] terms source=… terms`.
    pub(super) fn search_source(&mut self) -> Parsing<SearchSource> {
        let start = self.start();
        self.keyword("search");
        let mut conditions = Vec::new();
        self.search_terms(&mut conditions, true)?;
        if !self.option("source") {
            self.expect_option("index")?;
        }
        let relation = self.source_relation()?;
        self.search_terms(&mut conditions, false)?;
        let condition = match conditions.len() {
            0 | 1 => conditions.pop(),
            _ => Some(SearchCondition::And(conditions)),
        };
        Ok(SearchSource { relation, condition, span: self.span_from(start) })
    }

    /// Reads a list of indices or a subsearch, with an alias.
    pub(crate) fn source_relation(&mut self) -> Parsing<SourceRelation> {
        if self.peek_symbol("[") {
            self.refuse_dynamic_source()?;
            let pipeline = Box::new(self.bracketed_search()?);
            return Ok(SourceRelation::Subsearch { pipeline, alias: self.alias()? });
        }
        self.note(Expectation::Symbol("["));
        let start = self.start();
        let indices = self.index_list()?;
        if self.is_followed_by(&['(']) {
            return self.refuse(
                ParseErrorKind::Unsupported,
                start,
                "table functions are not supported as a source",
                Some("a source names indices, or is a subsearch in brackets"),
            );
        }
        Ok(SourceRelation::Indices { indices, alias: self.alias()? })
    }

    /// Refuses `source=[a, b, field=value]`.
    fn refuse_dynamic_source(&mut self) -> Parsing<()> {
        let place = self.cursor.checkpoint();
        let start = self.start();
        self.cursor.advance(1);
        let is_name = self.peek_pattern() && self.segments(true).is_ok();
        let is_list = is_name && (self.peek_symbol(",") || self.peek_symbol("]") || self.peek_symbol(":"));
        self.cursor.back_to(place);
        if !is_list {
            return Ok(());
        }
        self.refuse(
            ParseErrorKind::Unsupported,
            start,
            "dynamic sources in brackets are not supported",
            Some("write the indices with commas between them: source=a, b"),
        )
    }

    /// Reads terms side by side, up to a pipe, a bracket or the source.
    fn search_terms(&mut self, conditions: &mut Vec<SearchCondition>, is_before: bool) -> Parsing<()> {
        loop {
            let start = self.start();
            if self.ends_search(is_before) {
                return Ok(());
            }
            if !conditions.is_empty() && self.keyword("and") && self.ends_search(is_before) {
                return self.expected(Expectation::Term);
            }
            let condition = self.search_disjunction()?;
            conditions.push(condition);
            self.check_count(start, conditions.len())?;
        }
    }

    fn ends_search(&mut self, is_before: bool) -> bool {
        let is_source = is_before
            && self.peek_option().is_some_and(|word| {
                word.eq_ignore_ascii_case("source") || word.eq_ignore_ascii_case("index")
            });
        let rest = self.cursor.rest();
        is_source || rest.is_empty() || rest.starts_with(['|', ']', ')', ';'])
    }

    fn search_disjunction(&mut self) -> Parsing<SearchCondition> {
        let mut conditions = vec![self.search_negation()?];
        while self.keyword("or") {
            let start = self.start();
            conditions.push(self.search_negation()?);
            self.check_count(start, conditions.len())?;
        }
        Ok(match conditions.len() {
            1 => conditions.pop().ok_or(Mismatch)?,
            _ => SearchCondition::Or(conditions),
        })
    }

    fn search_negation(&mut self) -> Parsing<SearchCondition> {
        if self.keyword("not") {
            let inner = self.nest(Self::search_negation)?;
            return Ok(SearchCondition::Not(Box::new(inner)));
        }
        if self.symbol("(") {
            let mut conditions = Vec::new();
            self.nest(|parser| parser.search_terms(&mut conditions, false))?;
            if conditions.is_empty() {
                return self.expected(Expectation::Term);
            }
            self.expect_symbol(")")?;
            return Ok(match conditions.len() {
                1 => conditions.pop().ok_or(Mismatch)?,
                _ => SearchCondition::And(conditions),
            });
        }
        if let Some(modifier) = self.time_modifier()? {
            return Ok(SearchCondition::Time(modifier));
        }
        if let Some(comparison) = self.search_comparison()? {
            return Ok(comparison);
        }
        self.search_term().map(SearchCondition::Term)
    }

    /// Reads `field operator value` or `field in (value, …)`, if it is next.
    fn search_comparison(&mut self) -> Parsing<Option<SearchCondition>> {
        let place = self.cursor.checkpoint();
        let Some(field) = self.compared_field() else {
            self.cursor.back_to(place);
            return Ok(None);
        };
        for (sign, operator) in OPERATORS {
            if self.symbol(sign) {
                let value = self.search_term()?;
                return Ok(Some(SearchCondition::Comparison { field, operator, value }));
            }
        }
        if self.keyword("in") && self.peek_symbol("(") {
            self.expect_symbol("(")?;
            let mut values = Vec::new();
            loop {
                let start = self.start();
                values.push(self.search_term()?);
                self.check_count(start, values.len())?;
                if !self.symbol(",") {
                    break;
                }
            }
            self.expect_symbol(")")?;
            return Ok(Some(SearchCondition::InList { field, values }));
        }
        self.cursor.back_to(place);
        Ok(None)
    }

    fn compared_field(&mut self) -> Option<FieldName> {
        if !self.peek_pattern() {
            return None;
        }
        self.note(Expectation::Field);
        let start = self.cursor.offset();
        let segments = self.segments(true).ok()?;
        let path = super::name::path_of(&segments);
        Some(FieldName { path, span: self.span_from(start) })
    }

    /// Reads a word of free text, or a text in quotes.
    fn search_term(&mut self) -> Parsing<SearchTerm> {
        self.note(Expectation::Term);
        let start = self.cursor.offset();
        if self.peek_string() {
            let text = self.string()?;
            return Ok(SearchTerm { text: text.value, is_quoted: true, span: text.span });
        }
        if self.cursor.rest().starts_with('`') {
            let text = self.quoted('`')?;
            return Ok(SearchTerm { text, is_quoted: true, span: self.span_from(start) });
        }
        let length = term_length(self.cursor.rest());
        if length == 0 {
            return Err(Mismatch);
        }
        let text = self.cursor.advance(length).to_owned();
        Ok(SearchTerm { text, is_quoted: false, span: TextSpan { start, end: start + length } })
    }
}

/// Returns the length of the search term at the start of a text. A backslash escapes the character behind it.
fn term_length(text: &str) -> usize {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '|' | '(' | ')' | '[' | ']' | ',' | '"' | '\'' | '`' | '=' | '<' | '>' | ';' => return at,
            '!' if text.get(at..).is_some_and(|rest| rest.starts_with("!=")) => return at,
            _ if letter.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}
