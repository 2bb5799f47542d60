//! `sort [n] [+|-]field [asc|desc], …`: the order of rows.

use crate::ast::{FieldName, TextSpan};
use crate::parser::{Expectation, Parser, Parsing};

/// `sort`: orders rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SortCommand {
    /// The most rows that stay; 0 and `None` mean all.
    pub count: Option<u64>,
    /// At least one key.
    pub keys: Vec<SortTerm>,
}

/// A key of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct SortTerm {
    /// The field.
    pub field: FieldName,
    /// `true` for `-field`, `field desc`, `field d`.
    pub is_descending: bool,
    /// The type that values are compared as.
    pub comparison: SortComparison,
    /// The text of the key.
    pub span: TextSpan,
}

/// The type that values are compared as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortComparison {
    /// The type of the field: the field alone, or `auto(field)`.
    #[default]
    Auto,
    /// `str(field)`
    Text,
    /// `ip(field)`
    Ip,
    /// `num(field)`
    Number,
}

/// The casts by name.
const COMPARISONS: [(&str, SortComparison); 4] = [
    ("auto", SortComparison::Auto),
    ("str", SortComparison::Text),
    ("ip", SortComparison::Ip),
    ("num", SortComparison::Number),
];

impl Parser<'_> {
    pub(crate) fn sort_command(&mut self) -> Parsing<SortCommand> {
        self.note(Expectation::Integer);
        let count = if self.peek_digit() { Some(self.count("sort")?) } else { None };
        let mut keys = Vec::new();
        loop {
            let start = self.start();
            keys.push(self.sort_term()?);
            self.check_count(start, keys.len())?;
            if !self.symbol(",") {
                return Ok(SortCommand { count, keys });
            }
        }
    }

    /// Reads a key of an order.
    pub(crate) fn sort_term(&mut self) -> Parsing<SortTerm> {
        let start = self.start();
        let is_minus = self.symbol("-");
        let has_sign = is_minus || self.symbol("+");
        let comparison = self.sort_comparison();
        let field = self.field()?;
        if comparison.is_some() {
            self.expect_symbol(")")?;
        }
        let words = [("asc", false), ("desc", true), ("a", false), ("d", true)];
        let at = self.start();
        let order = self.one_of(&words);
        if has_sign && order.is_some() {
            return self.refuse_syntax(
                at,
                "Cannot mix prefix (+/-) and suffix (asc/desc) sort direction syntax in the same command",
            );
        }
        Ok(SortTerm {
            field,
            is_descending: is_minus || order.unwrap_or_default(),
            comparison: comparison.unwrap_or_default(),
            span: self.span_from(start),
        })
    }

    fn sort_comparison(&mut self) -> Option<SortComparison> {
        let place = self.checkpoint();
        let comparison = self.one_of(&COMPARISONS)?;
        if self.symbol("(") {
            return Some(comparison);
        }
        self.back_to(place);
        None
    }
}
