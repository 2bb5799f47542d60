//! The dialect of OpenSearch's SQL for DataFusion's parser: MySQL's words, with backticks around
//! identifiers and strings in either kind of quotes.

use std::any::TypeId;
use std::cell::Cell;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, MySqlDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

/// The dialect.
#[derive(Debug, Default)]
pub(crate) struct OpenSearchDialect {
    mysql: MySqlDialect,
    /// The token at which the last operand began.
    at: Cell<usize>,
    /// Tokens that were passed, forth and back.
    passed: Cell<usize>,
    /// Tokens that a return costs: how far the parser was ahead is not told.
    per_return: usize,
}

/// Most tokens that the parser may pass: where it tries several readings, each within the others, it reads the same ones again
/// and again. It is several times what the longest statement has.
const MAX_PASSED: usize = 1_000_000;

/// A return costs one in so many tokens of the statement.
const RETURN_SHARE: usize = 16;

impl OpenSearchDialect {
    /// Makes the dialect for a statement of so many tokens.
    pub(crate) fn new(tokens: usize) -> Self {
        Self { per_return: tokens / RETURN_SHARE, ..Self::default() }
    }

    /// Accounts for what was read; `begins` tells that an operand does.
    fn pass(&self, parser: &Parser, begins: bool) -> Result<(), ParserError> {
        let at = parser.get_current_index();
        let last = self.at.replace(at);
        let returned = if begins && at <= last { self.per_return } else { 0 };
        self.passed.set(self.passed.get() + at.abs_diff(last) + returned + 1);
        // No other error ends all readings.
        if self.is_exhausted() { Err(ParserError::RecursionLimitExceeded) } else { Ok(()) }
    }

    /// Returns whether the parser was ended because it read the same tokens again and again.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.passed.get() > MAX_PASSED
    }
}

impl Dialect for OpenSearchDialect {
    // What the tokenizer and the parser do for MySQL by its name, such as `#` comments.
    fn dialect(&self) -> TypeId {
        self.mysql.dialect()
    }

    fn is_identifier_start(&self, letter: char) -> bool {
        letter.is_alphabetic() || matches!(letter, '_' | '@')
    }

    fn is_identifier_part(&self, letter: char) -> bool {
        letter.is_alphanumeric() || matches!(letter, '_' | '@')
    }

    fn is_delimited_identifier_start(&self, letter: char) -> bool {
        letter == '`'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn requires_single_line_comment_whitespace(&self) -> bool {
        true
    }

    fn is_select_item_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        explicit || self.mysql.is_select_item_alias(false, keyword, parser)
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.pass(parser, true).err().map(Err)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        self.pass(parser, false).err().map(Err)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        self.mysql.parse_infix(parser, expr, precedence)
    }
}
