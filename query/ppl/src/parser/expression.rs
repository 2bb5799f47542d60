//! Expressions by precedence climbing. From loose to tight: OR, XOR, AND, NOT, comparisons (IN, BETWEEN, IS, LIKE …), `+ -`,
//! `* / %`, signs.
//!
//! Chains of AND and OR become balanced trees, so that their length is no depth. Other trees have a bounded depth.

use sqlparser::ast::{
    self, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, Query, SetExpr, Table, UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

use super::cursor::{is_name_part, word_length};
use super::literal::decimal_length;
use super::{Expectation, Mismatch, Parser, Parsing};
use crate::ast::{Expression, Pipeline};
use crate::error::ParseErrorKind;

/// Most levels of an expression, as in SQL. ANDs and ORs in a row are one level.
const MAX_LEVELS: usize = 200;
/// Most operands of AND or OR that lean to the left, as SQL's parser has them; longer chains are balanced.
const MAX_LEFT_DEEP: usize = 16;
/// Most members of a list or of a chain of AND or OR.
const MAX_OPERANDS: usize = 20_000;
/// Words that are no names where an operand stands.
const RESERVED: [&str; 5] = ["and", "or", "xor", "by", "over"];

/// Precedence of operators, from loose to tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    Xor,
    And,
    Not,
    Comparison,
    Sum,
    Product,
}

impl Binding {
    fn looser(self) -> Option<Self> {
        Some(match self {
            Self::Product => Self::Sum,
            Self::Sum => Self::Comparison,
            Self::Comparison => Self::Not,
            Self::Not => Self::And,
            Self::And => Self::Xor,
            Self::Xor => Self::Or,
            Self::Or => return None,
        })
    }
}

/// Operators of products.
const PRODUCTS: [(&str, BinaryOperator); 3] =
    [("*", BinaryOperator::Multiply), ("/", BinaryOperator::Divide), ("%", BinaryOperator::Modulo)];

/// Operators of sums.
const SUMS: [(&str, BinaryOperator); 2] = [("+", BinaryOperator::Plus), ("-", BinaryOperator::Minus)];

/// Operators of comparisons; longer signs come first.
const COMPARISONS: [(&str, BinaryOperator); 7] = [
    ("==", BinaryOperator::Eq),
    ("!=", BinaryOperator::NotEq),
    ("<=", BinaryOperator::LtEq),
    (">=", BinaryOperator::GtEq),
    ("=", BinaryOperator::Eq),
    ("<", BinaryOperator::Lt),
    (">", BinaryOperator::Gt),
];

impl Parser<'_> {
    /// Reads an expression.
    pub(crate) fn expression(&mut self) -> Parsing<Expression> {
        self.expression_by(Self::logical)
    }

    /// Reads an expression without logical operators and comparisons.
    pub(crate) fn value_expression(&mut self) -> Parsing<Expression> {
        self.expression_by(Self::additive)
    }

    /// Reads an expression by one of the levels below.
    pub(crate) fn expression_by(
        &mut self,
        read: impl FnOnce(&mut Self) -> Parsing<Expr>,
    ) -> Parsing<Expression> {
        let outer = std::mem::take(&mut self.subsearches);
        let start = self.start();
        let expr = read(self);
        let subsearches = std::mem::replace(&mut self.subsearches, outer);
        let span = self.span_from(start);
        Ok(Expression { expr: expr?, subsearches, text: self.text_of(span), span })
    }

    /// Reads an expression with all operators.
    pub(super) fn logical(&mut self) -> Parsing<Expr> {
        self.nest(|parser| parser.climb(Binding::Or))
    }

    /// Reads sums.
    pub(super) fn additive(&mut self) -> Parsing<Expr> {
        self.climb(Binding::Sum)
    }

    /// Reads an operand and the operators behind it that bind at least as tightly. One function reads all levels: the stack
    /// of an expression within parentheses stays small.
    fn climb(&mut self, least: Binding) -> Parsing<Expr> {
        let mut left =
            if least <= Binding::Not && self.keyword("not") { self.negation()? } else { self.signed()? };
        let mut binding = Binding::Product;
        while binding >= least {
            left = match binding {
                Binding::Product => self.operators(left, &PRODUCTS, Self::signed)?,
                Binding::Sum => self.operators(left, &SUMS, |parser| parser.climb(Binding::Product))?,
                Binding::Comparison => self.comparisons(left)?,
                Binding::Not => left,
                Binding::And => self.chain(left, "and", &BinaryOperator::And, Binding::Not)?,
                Binding::Xor => self.chain(left, "xor", &BinaryOperator::Xor, Binding::And)?,
                Binding::Or => self.chain(left, "or", &BinaryOperator::Or, Binding::Xor)?,
            };
            let Some(looser) = binding.looser() else { break };
            binding = looser;
        }
        Ok(left)
    }

    fn chain(
        &mut self,
        first: Expr,
        word: &'static str,
        operator: &BinaryOperator,
        tighter: Binding,
    ) -> Parsing<Expr> {
        if !self.keyword(word) {
            return Ok(first);
        }
        let mut levels = self.levels;
        let mut operands = vec![first];
        loop {
            operands.push(self.climb(tighter)?);
            levels = levels.max(self.levels);
            if operands.len() > MAX_OPERANDS {
                let offset = self.cursor.offset();
                let message = format!(
                    "an expression has more than {MAX_OPERANDS} operands; use IN for long lists of values"
                );
                return self.refuse(ParseErrorKind::TooLarge, offset, message, None);
            }
            if !self.keyword(word) {
                break;
            }
        }
        self.check_levels(levels + 1)?;
        Ok(combine(operands, operator))
    }

    /// Reads the operand of NOT.
    fn negation(&mut self) -> Parsing<Expr> {
        let inner = self.nest(|parser| parser.climb(Binding::Not))?;
        self.check_levels(self.levels + 1)?;
        Ok(match inner {
            Expr::Exists { subquery, negated } => Expr::Exists { subquery, negated: !negated },
            inner => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(inner) },
        })
    }

    fn comparisons(&mut self, mut left: Expr) -> Parsing<Expr> {
        loop {
            let levels = self.levels;
            match self.comparison_tail(left)? {
                (compared, true) => left = compared,
                (operand, false) => {
                    self.levels = levels;
                    return Ok(operand);
                }
            }
            self.check_levels(levels.max(self.levels) + 1)?;
        }
    }

    /// Reads an operator and its right side, if one is next; tells whether it was.
    fn comparison_tail(&mut self, left: Expr) -> Parsing<(Expr, bool)> {
        for (sign, operator) in COMPARISONS {
            if sign == "<" && self.peek_symbol("<<") {
                continue;
            }
            if self.symbol(sign) {
                let right = self.additive()?;
                return Ok((binary(left, operator, right), true));
            }
        }
        if self.keyword("is") {
            let negated = self.keyword("not");
            self.expect_keyword("null")?;
            let left = Box::new(left);
            return Ok((if negated { Expr::IsNotNull(left) } else { Expr::IsNull(left) }, true));
        }
        let place = self.cursor.checkpoint();
        let negated = self.keyword("not");
        if self.keyword("in") {
            return Ok((self.in_tail(left, negated)?, true));
        }
        if self.keyword("between") {
            let low = self.additive()?;
            let levels = self.levels;
            self.expect_keyword("and")?;
            let high = self.additive()?;
            self.levels = levels.max(self.levels);
            return Ok((
                Expr::Between { expr: Box::new(left), negated, low: Box::new(low), high: Box::new(high) },
                true,
            ));
        }
        for word in ["like", "ilike", "regexp", "contains"] {
            if self.keyword(word) {
                let right = self.additive()?;
                return Ok((matched(word, negated, left, right), true));
            }
        }
        if negated {
            // The text needs an operator here, and the notes tell which.
            return Err(Mismatch);
        }
        self.cursor.back_to(place);
        Ok((left, false))
    }

    fn in_tail(&mut self, left: Expr, negated: bool) -> Parsing<Expr> {
        let left = Box::new(left);
        if self.peek_symbol("[") {
            let subquery = self.subsearch_reference()?;
            return Ok(Expr::InSubquery { expr: left, subquery, negated });
        }
        self.expect_symbol("(")?;
        let mut list = Vec::new();
        let mut levels = 0;
        loop {
            list.push(self.additive()?);
            levels = levels.max(self.levels);
            if list.len() > MAX_OPERANDS {
                let offset = self.cursor.offset();
                let message = format!("IN has more than {MAX_OPERANDS} values");
                return self.refuse(ParseErrorKind::TooLarge, offset, message, None);
            }
            if !self.symbol(",") {
                break;
            }
        }
        self.expect_symbol(")")?;
        self.levels = levels;
        Ok(Expr::InList { expr: left, list, negated })
    }

    fn operators(
        &mut self,
        mut left: Expr,
        signs: &[(&'static str, BinaryOperator)],
        read: impl Fn(&mut Self) -> Parsing<Expr>,
    ) -> Parsing<Expr> {
        loop {
            let levels = self.levels;
            let Some((_, operator)) = signs.iter().find(|(sign, _)| self.symbol(sign)) else {
                return Ok(left);
            };
            let right = read(self)?;
            self.check_levels(levels.max(self.levels) + 1)?;
            left = binary(left, operator.clone(), right);
        }
    }

    fn signed(&mut self) -> Parsing<Expr> {
        let op = if self.peek_symbol("-") {
            UnaryOperator::Minus
        } else if self.peek_symbol("+") {
            UnaryOperator::Plus
        } else {
            return self.primary();
        };
        self.cursor.advance(1);
        let inner = self.nest(Self::signed)?;
        self.check_levels(self.levels + 1)?;
        Ok(Expr::UnaryOp { op, expr: Box::new(inner) })
    }

    fn primary(&mut self) -> Parsing<Expr> {
        self.levels = 1;
        self.note(Expectation::Field);
        self.note(Expectation::Function);
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let Some(first) = rest.chars().next() else { return Err(Mismatch) };
        match first {
            '(' => self.parenthesized(),
            '[' => self.subsearch_reference().map(Expr::Subquery),
            '"' | '\'' => {
                let text = self.string()?;
                Ok(self.value_at(start, Value::SingleQuotedString(text.value)))
            }
            '0'..='9' | '.' => self.numeric_literal(),
            '<' if rest.starts_with("<<") => self.placeholder(),
            _ => self.name_or_call(),
        }
    }

    fn parenthesized(&mut self) -> Parsing<Expr> {
        if let Some(lambda) = self.lambda_of_several()? {
            return Ok(lambda);
        }
        self.expect_symbol("(")?;
        let first = self.logical()?;
        let mut levels = self.levels;
        let expr = if self.peek_symbol(",") {
            let mut members = vec![first];
            while self.symbol(",") {
                let start = self.start();
                members.push(self.logical()?);
                levels = levels.max(self.levels);
                self.check_count(start, members.len())?;
            }
            Expr::Tuple(members)
        } else {
            Expr::Nested(Box::new(first))
        };
        self.expect_symbol(")")?;
        self.check_levels(levels + 1)?;
        Ok(expr)
    }

    /// Reads a number in an expression: `1`, `1.5`, `1e3`, `1.5f`, `1.5d`.
    fn numeric_literal(&mut self) -> Parsing<Expr> {
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let mut length = decimal_length(rest);
        let exponent = rest.get(length..).unwrap_or_default();
        if let Some(behind) = exponent.strip_prefix(['e', 'E']) {
            let digits = behind.trim_start_matches(['+', '-']);
            let sign = behind.len() - digits.len();
            let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if sign <= 1 && count > 0 {
                length += 1 + sign + count;
            }
        }
        let suffix = rest.get(length..).unwrap_or_default();
        let word = suffix.get(..word_length(suffix)).unwrap_or_default();
        if length == 0 || !matches!(word, "" | "f" | "F" | "d" | "D") {
            return self.expected(Expectation::Number);
        }
        let text = self.cursor.advance(length).to_owned();
        self.cursor.advance(word.len());
        let number = self.value_at(start, Value::Number(text, false));
        if !word.eq_ignore_ascii_case("f") {
            return Ok(number);
        }
        Ok(Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(number),
            data_type: ast::DataType::Float(ast::ExactNumberInfo::None),
            array: false,
            format: None,
        })
    }

    /// Reads `<<FIELD>>`.
    fn placeholder(&mut self) -> Parsing<Expr> {
        let start = self.cursor.offset();
        let text = self.placeholder_text()?;
        Ok(Expr::Identifier(Ident { value: text, quote_style: None, span: self.location_span(start) }))
    }

    /// Reads the text of a placeholder, angle brackets included.
    pub(crate) fn placeholder_text(&mut self) -> Parsing<String> {
        let rest = self.cursor.rest();
        let inner = rest.strip_prefix("<<").unwrap_or_default();
        let length = inner.find(|letter: char| !is_name_part(letter)).unwrap_or(inner.len());
        if length == 0 || !inner.get(length..).is_some_and(|behind| behind.starts_with(">>")) {
            return self.expected(Expectation::Other("a placeholder such as <<FIELD>>"));
        }
        Ok(self.cursor.advance(length + 4).to_owned())
    }

    fn name_or_call(&mut self) -> Parsing<Expr> {
        let word = self.peek_word();
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word)) {
            return Err(Mismatch);
        }
        let start = self.cursor.offset();
        if let Some(expr) = self.special_form(word)? {
            return Ok(expr);
        }
        let place = self.cursor.checkpoint();
        let mut segments = self.segments(false)?;
        let is_plain = segments.len() == 1 && segments.iter().all(|ident| ident.quote_style.is_none());
        if is_plain && self.peek_symbol("->") {
            self.cursor.back_to(place);
            return self.lambda();
        }
        if is_plain && self.peek_symbol("(") {
            return match segments.pop() {
                Some(name) => self.call(name),
                None => Err(Mismatch),
            };
        }
        if is_plain {
            let value = match word.to_ascii_lowercase().as_str() {
                "true" => Some(Value::Boolean(true)),
                "false" => Some(Value::Boolean(false)),
                "null" => Some(Value::Null),
                _ => None,
            };
            if let Some(value) = value {
                return Ok(self.value_at(start, value));
            }
        }
        Ok(match segments.len() {
            1 => segments.pop().map(Expr::Identifier).ok_or(Mismatch)?,
            _ => Expr::CompoundIdentifier(segments),
        })
    }

    /// Reads a subsearch in brackets and makes a query that refers to it.
    pub(super) fn subsearch_reference(&mut self) -> Parsing<Box<Query>> {
        let pipeline = self.bracketed_search()?;
        self.levels = 1;
        let number = self.subsearches.len();
        self.subsearches.push(pipeline);
        let table = Table {
            table_name: Some(number.to_string()),
            schema_name: Some(crate::ast::SUBSEARCH.to_owned()),
        };
        Ok(Box::new(Query {
            with: None,
            body: Box::new(SetExpr::Table(Box::new(table))),
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks: Vec::new(),
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
        }))
    }

    /// Reads `[ search … ]`.
    pub(crate) fn bracketed_search(&mut self) -> Parsing<Pipeline> {
        self.nest(|parser| {
            parser.expect_symbol("[")?;
            let pipeline = parser.search_pipeline()?;
            parser.expect_symbol("]")?;
            Ok(pipeline)
        })
    }

    /// Records the levels of a tree, within the bound.
    pub(super) fn check_levels(&mut self, levels: usize) -> Parsing<()> {
        self.levels = levels;
        if levels <= MAX_LEVELS {
            return Ok(());
        }
        let offset = self.cursor.offset();
        let message = format!(
            "an expression is nested deeper than {MAX_LEVELS} levels; each operator of a chain is one, except AND and OR"
        );
        self.refuse(ParseErrorKind::TooLarge, offset, message, None)
    }

    /// Returns lines and columns from an offset to the end of the last token.
    pub(super) fn location_span(&self, start: usize) -> Span {
        Span::new(self.cursor.location(start), self.cursor.location(self.cursor.last_end()))
    }

    /// Makes a literal of a value that began at an offset.
    pub(super) fn value_at(&self, start: usize, value: Value) -> Expr {
        Expr::Value(ValueWithSpan { value, span: self.location_span(start) })
    }
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Combines operands by one operator.
fn combine(mut operands: Vec<Expr>, operator: &BinaryOperator) -> Expr {
    if operands.len() > MAX_LEFT_DEEP {
        let right = operands.split_off(operands.len() / 2);
        return binary(combine(operands, operator), operator.clone(), combine(right, operator));
    }
    let mut operands = operands.into_iter();
    match operands.next() {
        Some(first) => operands.fold(first, |left, right| binary(left, operator.clone(), right)),
        None => Expr::Value(Value::Null.into()),
    }
}

/// Makes the expression of an operator that is a word.
fn matched(word: &str, negated: bool, left: Expr, right: Expr) -> Expr {
    let (expr, pattern) = (Box::new(left), Box::new(right));
    match word {
        "like" => Expr::Like { negated, any: false, expr, pattern, escape_char: None },
        "ilike" => Expr::ILike { negated, any: false, expr, pattern, escape_char: None },
        "regexp" => Expr::RLike { negated, expr, pattern, regexp: true },
        _ => {
            let call = function(Ident::new("contains"), vec![*expr, *pattern]);
            match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) },
                false => call,
            }
        }
    }
}

/// Makes a call with plain arguments.
pub(super) fn function(name: Ident, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(function_of(name, args))
}

/// Makes a call of arguments.
pub(super) fn function_of(name: Ident, args: Vec<FunctionArg>) -> Function {
    Function {
        name: name.into(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    }
}
