//! Aggregates with aliases, and the keys behind `by`.

use sqlparser::ast::{
    DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Value,
};

use super::cursor::word_length;
use super::expression::{function, function_of};
use super::literal::decimal_length;
use super::{Expectation, Mismatch, ParseResult, Parser};
use crate::ast::{AggregateCall, Grouping, GroupingKey, SpanBucket};

impl Parser<'_> {
    /// Reads aggregates with commas between them.
    pub(crate) fn aggregates(&mut self) -> ParseResult<Vec<AggregateCall>> {
        let mut aggregates = vec![self.aggregate()?];
        while self.symbol(",") {
            let start = self.start();
            aggregates.push(self.aggregate()?);
            self.check_count(start, aggregates.len())?;
        }
        Ok(aggregates)
    }

    /// Reads an aggregate with its alias.
    pub(crate) fn aggregate(&mut self) -> ParseResult<AggregateCall> {
        let call = self.expression_by(Self::aggregate_call)?;
        Ok(AggregateCall { call, alias: self.alias()? })
    }

    fn aggregate_call(&mut self) -> ParseResult<Expr> {
        self.note(Expectation::Aggregate);
        self.levels = 1;
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let word = rest.get(..word_length(rest)).unwrap_or_default();
        if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Mismatch);
        }
        let lower = word.to_ascii_lowercase();
        if let Some(length) = percentile_length(rest, &lower) {
            return self.percentile_shortcut(length);
        }
        self.cursor.advance(word.len());
        let name = Ident { value: word.to_owned(), quote_style: None, span: self.location_span(start) };
        let is_count = matches!(lower.as_str(), "count" | "c");
        if !self.peek_symbol("(") {
            if is_count {
                return Ok(count_of(name, None));
            }
            return self.expected(Expectation::Symbol("("));
        }
        self.nest(|parser| {
            parser.expect_symbol("(")?;
            if is_count && parser.symbol("*") {
                parser.expect_symbol(")")?;
                return Ok(count_of(name, None));
            }
            let args: Vec<Expr> = parser.arguments()?;
            parser.expect_symbol(")")?;
            parser.check_levels(parser.levels + 1)?;
            Ok(normalized(name, &lower, args))
        })
    }

    /// Reads `p95(x)` and `perc99.5(x)`; the name has so many bytes.
    fn percentile_shortcut(&mut self, length: usize) -> ParseResult<Expr> {
        let start = self.cursor.offset();
        let word = self.cursor.advance(length);
        let percent = word.trim_start_matches(|c: char| c.is_ascii_alphabetic()).to_owned();
        let name =
            Ident { value: "percentile".to_owned(), quote_style: None, span: self.location_span(start) };
        if !(0.0..=100.0).contains(&percent.parse::<f64>().unwrap_or(f64::NAN)) {
            return self
                .refuse_syntax(start, format!("a percentile is between 0 and 100, but is [{percent}]"));
        }
        let percent = self.value_at(start, Value::Number(percent, false));
        self.nest(|parser| {
            parser.expect_symbol("(")?;
            let value = parser.logical()?;
            parser.expect_symbol(")")?;
            parser.check_levels(parser.levels + 1)?;
            Ok(function(name, vec![value, percent]))
        })
    }

    /// Reads `by keys`, if it is next.
    pub(crate) fn grouping(&mut self) -> ParseResult<Option<Grouping>> {
        if !self.keyword("by") {
            return Ok(None);
        }
        let start = self.start();
        let mut keys = Vec::new();
        loop {
            let at = self.start();
            keys.push(self.grouping_key()?);
            self.check_count(at, keys.len())?;
            if keys.iter().filter(|key| matches!(key, GroupingKey::Span(_))).count() > 1 {
                return self.refuse_syntax(at, "at most one key of a grouping is a span");
            }
            if !self.symbol(",") && !self.peek_field() {
                break;
            }
        }
        Ok(Some(Grouping { keys, span: self.span_from(start) }))
    }

    fn grouping_key(&mut self) -> ParseResult<GroupingKey> {
        let word = self.peek_word();
        let behind = self.cursor.rest().get(word.len()..).unwrap_or_default();
        self.note(Expectation::Keyword("span"));
        if word.eq_ignore_ascii_case("span") && behind.trim_start().starts_with('(') {
            return self.span_bucket().map(GroupingKey::Span);
        }
        self.field().map(GroupingKey::Field)
    }

    fn span_bucket(&mut self) -> ParseResult<SpanBucket> {
        let start = self.start();
        self.expect_keyword("span")?;
        self.expect_symbol("(")?;
        self.note(Expectation::Field);
        let field = if self.peek_name() {
            let field = self.field()?;
            self.expect_symbol(",")?;
            Some(field)
        } else {
            None
        };
        let length = self.span_length()?;
        self.expect_symbol(")")?;
        let span = self.span_from(start);
        let text = without_blanks(&self.text_of(span));
        Ok(SpanBucket { field, length, alias: self.alias()?, text, span })
    }
}

/// Leaves out the blanks outside of backticks: columns of spans have names without them.
fn without_blanks(text: &str) -> String {
    let mut is_quoted = false;
    let is_part = |letter: &char| {
        is_quoted ^= *letter == '`';
        is_quoted || !letter.is_whitespace()
    };
    text.chars().filter(is_part).collect()
}

/// Returns the length of a name such as `p95` or `perc99.5`.
fn percentile_length(rest: &str, word: &str) -> Option<usize> {
    let prefix = ["perc", "p"].into_iter().find(|prefix| {
        word.strip_prefix(prefix).is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
    })?;
    let length = prefix.len() + decimal_length(rest.get(prefix.len()..)?);
    rest.get(length..)?.trim_start().starts_with('(').then_some(length)
}

/// Makes `count(*)` with a filter.
fn count_of(name: Ident, filter: Option<Expr>) -> Expr {
    let name = Ident { value: "count".to_owned(), ..name };
    let mut call = function_of(name, vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
    call.filter = filter.map(Box::new);
    Expr::Function(call)
}

/// Makes the call of an aggregate by the conventions of [`crate::ast`].
fn normalized(name: Ident, lower: &str, mut args: Vec<Expr>) -> Expr {
    match (lower, args.len()) {
        ("count" | "c", 0) => count_of(name, None),
        ("count" | "c", 1) => match eval_argument(args.remove(0)) {
            (condition, true) => count_of(name, Some(condition)),
            (argument, false) => function(Ident { value: "count".to_owned(), ..name }, vec![argument]),
        },
        ("dc" | "distinct_count", 1) => {
            let argument = FunctionArg::Unnamed(FunctionArgExpr::Expr(eval_argument(args.remove(0)).0));
            let mut call = function_of(Ident { value: "count".to_owned(), ..name }, vec![argument]);
            if let FunctionArguments::List(list) = &mut call.args {
                list.duplicate_treatment = Some(DuplicateTreatment::Distinct);
            }
            Expr::Function(call)
        }
        _ => function(name, args.into_iter().map(|arg| eval_argument(arg).0).collect()),
    }
}

/// Takes the expression out of `eval(…)`; tells whether it was one.
fn eval_argument(arg: Expr) -> (Expr, bool) {
    let Expr::Function(call) = arg else { return (arg, false) };
    if !call.name.to_string().eq_ignore_ascii_case("eval") {
        return (Expr::Function(call), false);
    }
    match &call.args {
        FunctionArguments::List(list) => match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] => (inner.clone(), true),
            _ => (Expr::Function(call), false),
        },
        _ => (Expr::Function(call), false),
    }
}
