//! Calls, lambdas, and the forms of functions that have a syntax of their own: `case`, `cast`, `interval` and others.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    self, BinaryOperator, CaseWhen, CastKind, DataType, DateTimeField, Expr, ExtractSyntax, Ident, Interval,
    LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, TypedString, Value,
};

use super::expression::{binary, function};
use super::{Expectation, Mismatch, Parser, Parsing};

/// Relevance functions of one field.
const SINGLE_FIELD: [&str; 4] = ["match", "match_phrase", "match_bool_prefix", "match_phrase_prefix"];
/// Relevance functions of a list of fields.
const MULTI_FIELD: [&str; 3] = ["simple_query_string", "multi_match", "query_string"];
/// Words behind a field that begin no literal of an interval.
const OPERATORS: [&str; 12] =
    ["and", "or", "xor", "in", "is", "not", "like", "ilike", "between", "as", "contains", "regexp"];

impl Parser<'_> {
    /// Reads a form that begins with this word and is neither a name nor a plain call.
    pub(super) fn special_form(&mut self, word: &str) -> Parsing<Option<Expr>> {
        let name = word.to_ascii_lowercase();
        if !matches!(name.as_str(), "exists" | "interval" | "date" | "time" | "timestamp") {
            return Ok(None);
        }
        let place = self.cursor.checkpoint();
        self.cursor.advance(word.len());
        match name.as_str() {
            "exists" if self.peek_symbol("[") => {
                let subquery = self.subsearch_reference()?;
                return Ok(Some(Expr::Exists { subquery, negated: false }));
            }
            "interval" if self.begins_interval() => return self.interval().map(Some),
            "date" | "time" | "timestamp" if self.peek_string() => {
                let at = self.cursor.offset();
                let text = self.string()?.value;
                let data_type = match name.as_str() {
                    "date" => DataType::Date,
                    "time" => DataType::Time(None, ast::TimezoneInfo::None),
                    _ => DataType::Timestamp(None, ast::TimezoneInfo::None),
                };
                let value = ast::ValueWithSpan {
                    value: Value::SingleQuotedString(text),
                    span: self.location_span(at),
                };
                self.levels = 1;
                return Ok(Some(Expr::TypedString(TypedString {
                    data_type,
                    value,
                    uses_odbc_syntax: false,
                })));
            }
            _ => {}
        }
        self.cursor.back_to(place);
        Ok(None)
    }

    fn begins_interval(&mut self) -> bool {
        let word = self.peek_word();
        let is_operator = OPERATORS.iter().any(|operator| operator.eq_ignore_ascii_case(word));
        let rest = self.cursor.rest();
        let is_negative =
            rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '(' | '"' | '\''))
            || is_negative
            || (!word.is_empty() && !is_operator)
    }

    fn interval(&mut self) -> Parsing<Expr> {
        let value = self.nest(Self::additive)?;
        let unit = self.interval_unit()?;
        self.check_levels(self.levels + 1)?;
        Ok(Expr::Interval(Interval {
            value: Box::new(value),
            leading_field: Some(unit),
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        }))
    }

    fn interval_unit(&mut self) -> Parsing<DateTimeField> {
        self.note(Expectation::Other("a unit of time"));
        let word = self.peek_word().to_owned();
        let field = match word.to_ascii_lowercase().as_str() {
            "microsecond" => DateTimeField::Microsecond,
            "millisecond" => DateTimeField::Millisecond,
            "second" => DateTimeField::Second,
            "minute" => DateTimeField::Minute,
            "hour" => DateTimeField::Hour,
            "day" => DateTimeField::Day,
            "week" => DateTimeField::Week(None),
            "month" => DateTimeField::Month,
            "quarter" => DateTimeField::Quarter,
            "year" => DateTimeField::Year,
            "second_microsecond" | "minute_microsecond" | "minute_second" | "hour_microsecond"
            | "hour_second" | "hour_minute" | "day_microsecond" | "day_second" | "day_minute"
            | "day_hour" | "year_month" => DateTimeField::Custom(Ident::new(word.clone())),
            _ => return Err(Mismatch),
        };
        self.cursor.advance(word.len());
        Ok(field)
    }

    /// Reads `x -> expression`.
    pub(super) fn lambda(&mut self) -> Parsing<Expr> {
        let parameter = self.lambda_parameter()?;
        self.lambda_body(OneOrManyWithParens::One(parameter))
    }

    /// Reads `(x, y) -> expression`, if it is next.
    pub(super) fn lambda_of_several(&mut self) -> Parsing<Option<Expr>> {
        if !self.is_lambda_of_several() {
            return Ok(None);
        }
        self.expect_symbol("(")?;
        let mut parameters = vec![self.lambda_parameter()?];
        while self.symbol(",") {
            let start = self.start();
            parameters.push(self.lambda_parameter()?);
            self.check_count(start, parameters.len())?;
        }
        self.expect_symbol(")")?;
        self.lambda_body(OneOrManyWithParens::Many(parameters)).map(Some)
    }

    /// Looks ahead: names with commas between them, a parenthesis, an arrow.
    fn is_lambda_of_several(&self) -> bool {
        let Some((names, behind)) = self.cursor.rest().get(1..).and_then(|rest| rest.split_once(')')) else {
            return false;
        };
        behind.trim_start().starts_with("->")
            && names.split(',').map(str::trim).all(|name| {
                name.starts_with(super::cursor::is_name_start)
                    && name.chars().all(super::cursor::is_name_part)
            })
    }

    fn lambda_parameter(&mut self) -> Parsing<LambdaFunctionParameter> {
        self.note(Expectation::Alias);
        let start = self.cursor.offset();
        let word = self.peek_word();
        if word.is_empty() {
            return Err(Mismatch);
        }
        let value = self.cursor.advance(word.len()).to_owned();
        let name = Ident { value, quote_style: None, span: self.location_span(start) };
        Ok(LambdaFunctionParameter { name, data_type: None })
    }

    fn lambda_body(&mut self, params: OneOrManyWithParens<LambdaFunctionParameter>) -> Parsing<Expr> {
        self.expect_symbol("->")?;
        let body = self.logical()?;
        self.check_levels(self.levels + 1)?;
        Ok(Expr::Lambda(LambdaFunction { params, body: Box::new(body), syntax: LambdaSyntax::Arrow }))
    }

    /// Reads the arguments of a call; its name has been read.
    pub(super) fn call(&mut self, name: Ident) -> Parsing<Expr> {
        let lower = name.value.to_ascii_lowercase();
        self.nest(|parser| {
            parser.expect_symbol("(")?;
            parser.levels = 1;
            let expr = match lower.as_str() {
                "cast" => parser.cast()?,
                "case" => parser.case()?,
                "position" => return parser.position(name),
                "extract" => return parser.extract(name),
                _ if SINGLE_FIELD.contains(&lower.as_str()) || MULTI_FIELD.contains(&lower.as_str()) => {
                    let args = parser.relevance_arguments(MULTI_FIELD.contains(&lower.as_str()))?;
                    function(name, args)
                }
                _ => {
                    let mut args = parser.arguments()?;
                    match (lower.as_str(), args.len()) {
                        ("isnull", 1) => Expr::IsNull(Box::new(args.remove(0))),
                        ("isnotnull", 1) => Expr::IsNotNull(Box::new(args.remove(0))),
                        _ => function(name, args),
                    }
                }
            };
            parser.expect_symbol(")")?;
            parser.check_levels(parser.levels + 1)?;
            Ok(expr)
        })
    }

    /// Reads arguments with commas between them, up to the closing parenthesis.
    pub(super) fn arguments(&mut self) -> Parsing<Vec<Expr>> {
        let mut args = Vec::new();
        let mut levels = 1;
        self.note(Expectation::Symbol(")"));
        while !self.peek_symbol(")") {
            let start = self.start();
            args.push(self.logical()?);
            levels = levels.max(self.levels);
            self.check_count(start, args.len())?;
            if !self.symbol(",") {
                break;
            }
            if self.peek_symbol(")") {
                return self.expected(Expectation::Function);
            }
        }
        self.levels = levels;
        Ok(args)
    }

    fn cast(&mut self) -> Parsing<Expr> {
        let expr = self.logical()?;
        self.expect_keyword("as")?;
        let types = [
            ("date", DataType::Date),
            ("timestamp", DataType::Timestamp(None, ast::TimezoneInfo::None)),
            ("time", DataType::Time(None, ast::TimezoneInfo::None)),
            ("integer", DataType::Integer(None)),
            ("int", DataType::Int(None)),
            ("double", DataType::Double(ast::ExactNumberInfo::None)),
            ("long", custom_type("LONG")),
            ("float", DataType::Float(ast::ExactNumberInfo::None)),
            ("string", DataType::String(None)),
            ("boolean", DataType::Boolean),
            ("ip", custom_type("IP")),
            ("json", DataType::JSON),
            ("byte", custom_type("BYTE")),
            ("short", custom_type("SHORT")),
            ("bigint", DataType::BigInt(None)),
        ];
        let mut data_type = None;
        for (word, candidate) in types {
            if self.keyword(word) {
                data_type = Some(candidate);
                break;
            }
        }
        let data_type = data_type.ok_or(Mismatch)?;
        Ok(Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None })
    }

    /// Reads `case(condition, value, … [else value])`.
    fn case(&mut self) -> Parsing<Expr> {
        let mut conditions = Vec::new();
        let mut levels = 1;
        loop {
            let start = self.start();
            let condition = self.logical()?;
            levels = levels.max(self.levels);
            self.expect_symbol(",")?;
            let result = self.logical()?;
            levels = levels.max(self.levels);
            conditions.push(CaseWhen { condition, result });
            self.check_count(start, conditions.len())?;
            if !self.symbol(",") {
                break;
            }
        }
        let else_result = if self.keyword("else") { Some(Box::new(self.logical()?)) } else { None };
        self.levels = levels.max(self.levels);
        Ok(Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions,
            else_result,
        })
    }

    /// Reads `position(text in text)`.
    fn position(&mut self, name: Ident) -> Parsing<Expr> {
        let text = self.additive()?;
        let levels = self.levels;
        let is_list = !self.keyword("in");
        if is_list {
            self.expect_symbol(",")?;
        }
        let within = self.additive()?;
        self.expect_symbol(")")?;
        self.check_levels(levels.max(self.levels) + 1)?;
        Ok(match is_list {
            true => function(name, vec![text, within]),
            false => Expr::Position { expr: Box::new(text), r#in: Box::new(within) },
        })
    }

    /// Reads `extract(unit from value)`.
    fn extract(&mut self, name: Ident) -> Parsing<Expr> {
        let place = self.cursor.checkpoint();
        if let Ok(field) = self.interval_unit()
            && self.keyword("from")
        {
            let expr = self.logical()?;
            self.expect_symbol(")")?;
            self.check_levels(self.levels + 1)?;
            return Ok(Expr::Extract { field, syntax: ExtractSyntax::From, expr: Box::new(expr) });
        }
        self.cursor.back_to(place);
        let args = self.arguments()?;
        self.expect_symbol(")")?;
        self.check_levels(self.levels + 1)?;
        Ok(function(name, args))
    }

    /// Reads fields, text and options of a relevance function.
    fn relevance_arguments(&mut self, is_multi: bool) -> Parsing<Vec<Expr>> {
        let mut args = Vec::new();
        if is_multi {
            if self.symbol("[") {
                args.push(self.weighted_fields()?);
                self.expect_symbol(",")?;
            }
        } else {
            args.push(self.relevance_field()?);
            self.expect_symbol(",")?;
        }
        args.push(self.relevance_value()?);
        while self.symbol(",") {
            let start = self.start();
            let name = self.peek_option().unwrap_or_default().to_owned();
            if name.is_empty() {
                return self.expected(Expectation::Other("an option such as operator='and'"));
            }
            self.cursor.advance(name.len());
            let name = Ident { value: name, quote_style: None, span: self.location_span(start) };
            self.expect_symbol("=")?;
            let value = self.relevance_value()?;
            args.push(binary(Expr::Identifier(name), BinaryOperator::Eq, value));
            self.check_count(start, args.len())?;
        }
        self.levels = 3;
        Ok(args)
    }

    fn relevance_field(&mut self) -> Parsing<Expr> {
        let start = self.start();
        if self.peek_string() {
            let text = self.string()?;
            return Ok(self.value_at(start, Value::SingleQuotedString(text.value)));
        }
        self.note(Expectation::Field);
        let mut segments = self.segments(true)?;
        match segments.len() {
            1 => segments.pop().map(Expr::Identifier).ok_or(Mismatch),
            _ => Ok(Expr::CompoundIdentifier(segments)),
        }
    }

    fn weighted_fields(&mut self) -> Parsing<Expr> {
        let mut elem = Vec::new();
        loop {
            let start = self.start();
            let field = self.relevance_field()?;
            let has_sign = self.symbol("^");
            let at = self.start();
            elem.push(if has_sign || self.peek_digit() {
                let number = self.number()?;
                let weight = self.value_at(at, Value::Number(number.to_string(), false));
                binary(field, BinaryOperator::BitwiseXor, weight)
            } else {
                field
            });
            self.check_count(start, elem.len())?;
            if !self.symbol(",") {
                break;
            }
        }
        self.expect_symbol("]")?;
        Ok(Expr::Array(ast::Array { elem, named: false }))
    }

    /// Reads a value of a relevance function: a literal, or a word that is a text.
    fn relevance_value(&mut self) -> Parsing<Expr> {
        self.note(Expectation::Text);
        let start = self.cursor.offset();
        if self.peek_string() {
            let text = self.string()?;
            return Ok(self.value_at(start, Value::SingleQuotedString(text.value)));
        }
        if !self.peek_name() {
            return self.additive();
        }
        let text = super::name::path_of(&self.segments(false)?);
        let value = match text.to_ascii_lowercase().as_str() {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            _ => Value::SingleQuotedString(text),
        };
        Ok(self.value_at(start, value))
    }
}

fn custom_type(name: &str) -> DataType {
    DataType::Custom(Ident::new(name).into(), Vec::new())
}
