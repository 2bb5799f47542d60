//! The meaning of values in pipelines where it is not SQL's: arithmetic is wider and reads texts as numbers, results of several types
//! are texts, an array meets a value by any of its elements.

use datafusion::logical_expr::Operator;
use sqlparser::ast;

use super::call::Aggregate;
use super::comparison::compare;
use super::condition::and_or;
use super::lambda::any_element;
use super::{Binder, Bound, ExpressionContext, Literal, Scope};
use crate::error::{Result, SqlError};
use crate::functions::brain::{self, BrainAnswer, BrainBounds};
use crate::functions::{self, lambdas};
use crate::source::SourceKind;
use crate::types::SqlType;

/// Most values of a list that an array is looked up in.
const MAX_ELEMENTS: usize = 1_000;

/// Functions of a date that tell a part of it.
const DATE_PARTS: &[&str] = &[
    "day",
    "dayname",
    "dayofmonth",
    "day_of_month",
    "dayofweek",
    "day_of_week",
    "dayofyear",
    "day_of_year",
    "month",
    "month_of_year",
    "monthname",
    "quarter",
    "weekday",
    "year",
];

impl Binder<'_> {
    /// Returns the operands of arithmetic as a pipeline has them.
    pub(super) fn pipeline_operands(
        &self,
        left: &Bound,
        operator: Operator,
        right: &Bound,
    ) -> Result<(Bound, Bound)> {
        let is_number = |bound: &Bound| bound.ty.is_number();
        let is_text = |bound: &Bound| bound.ty.is_string();
        let both = is_text(left) && is_text(right) && operator != Operator::Plus;
        if both || is_text(left) && is_number(right) || is_number(left) && is_text(right) {
            return Ok((self.number_of(left)?, self.number_of(right)?));
        }
        let is_small = |bound: &Bound| bound.ty.is_integer() && bound.ty != SqlType::UnsignedLong;
        let widens = matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply);
        // The types of accumulators would grow with each round.
        if widens && self.lambdas.is_empty() && is_small(left) && is_small(right) {
            return Ok((long_of(left)?, long_of(right)?));
        }
        Ok((left.clone(), right.clone()))
    }

    /// Reads a text as a number; null where it is none.
    fn number_of(&self, value: &Bound) -> Result<Bound> {
        match value.ty.is_string() {
            true => functions::call("tonumber", std::slice::from_ref(value), self.now_ms),
            false => Ok(value.clone()),
        }
    }

    /// Returns the argument of an aggregate of numbers: texts are read as such.
    pub(super) fn aggregated_number(&self, aggregate: Option<Aggregate>, argument: Bound) -> Result<Bound> {
        let is_of_numbers = aggregate.is_some_and(|aggregate| {
            !matches!(aggregate, Aggregate::Count | Aggregate::Min | Aggregate::Max)
        });
        match self.is_pipeline && is_of_numbers && argument.ty.is_string() {
            true => self.number_of(&argument.single()),
            false => Ok(argument),
        }
    }

    /// Reads the text that a function of dates takes: one that is none fails as a date, not as a timestamp.
    pub(super) fn dated(&self, name: &str, args: Vec<Bound>) -> Vec<Bound> {
        let is_dated = self.is_pipeline && DATE_PARTS.contains(&name);
        let read = |(at, arg): (usize, Bound)| match is_dated && at == 0 && arg.ty.is_string() {
            true => functions::date_text(&arg),
            false => arg,
        };
        args.into_iter().enumerate().map(read).collect()
    }

    /// Returns values of one type: those of several types are texts.
    pub(super) fn alike(&self, values: Vec<Bound>) -> Result<Vec<Bound>> {
        let is_known = |value: &&Bound| value.ty != SqlType::Undefined;
        let texts = values.iter().filter(is_known).filter(|value| value.ty.is_string()).count();
        if !self.is_pipeline || texts == 0 || texts == values.iter().filter(is_known).count() {
            return Ok(values);
        }
        let text = |value: Bound| match value.ty.is_string() || value.ty == SqlType::Undefined {
            true => Ok(value),
            false => Ok(Bound::new(functions::cast(&value, SqlType::Keyword)?, SqlType::Keyword)),
        };
        values.into_iter().map(text).collect()
    }

    /// Gives a path below nested elements the type of its field: a pipeline shows it, and takes the first value where it needs one.
    pub(super) fn typed_path(&self, bound: Bound, scope: &Scope) -> Bound {
        if !self.is_pipeline || bound.ty != SqlType::Array || bound.list {
            return bound;
        }
        let Some((source, path)) = &bound.field else { return bound };
        let Some(SourceKind::Index(index)) = scope.sources.get(*source).map(|source| &source.kind) else {
            return bound;
        };
        let field = index.snapshot.indices.iter().find_map(|index| index.mapping.field(path));
        match field.map(SqlType::of_field) {
            Some(ty) if !ty.is_json() => Bound { element: Some(ty), shown: Some(shown_name(ty)), ..bound },
            _ => bound,
        }
    }

    /// Takes the first values of paths below nested elements, for a function that takes no arrays.
    pub(super) fn first_values(&self, name: &str, args: Vec<Bound>) -> Vec<Bound> {
        let types: Vec<SqlType> = args.iter().map(|arg| arg.ty).collect();
        let has_path = args.iter().any(|arg| arg.ty == SqlType::Array && arg.shown.is_some());
        if !self.is_pipeline || !has_path || functions::taken(name, &types).is_some() {
            return args;
        }
        let first = |arg: Bound| match (arg.ty, arg.element, arg.shown) {
            (SqlType::Array, Some(ty), Some(_)) => functions::first_element(&arg, ty),
            _ => arg,
        };
        args.into_iter().map(first).collect()
    }

    /// Binds the functions of `patterns method=brain`; `None` for another call.
    pub(super) fn brain_call(&self, name: &str, args: &[Bound]) -> Result<Option<Bound>> {
        let (answer, ty) = match name {
            "brain_pattern" => (BrainAnswer::Pattern, SqlType::Keyword),
            "brain_numbered" => (BrainAnswer::Numbered, SqlType::Keyword),
            "brain_tokens" => (BrainAnswer::Tokens, SqlType::Object),
            _ => return Ok(None),
        };
        let [line, lines, count, percent] = args else { return Ok(None) };
        let number = |bound: &Bound| match bound.literal {
            Some(Literal::Int(number)) => u64::try_from(number).unwrap_or(0),
            _ => 0,
        };
        let bounds = BrainBounds { variable_count: number(count), frequency_percent: number(percent) };
        let line = match line.ty.is_json() {
            true => line.expr.clone(),
            false => line.single().to(SqlType::Keyword)?,
        };
        Ok(Some(Bound::new(brain::call(answer, bounds, line, lines.expr.clone()), ty)))
    }

    /// Looks the elements of an array up in a list; `None` where the value is none.
    pub(super) fn elements_in(
        &mut self,
        value: &Bound,
        list: &[ast::Expr],
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Option<Bound>> {
        if !self.is_pipeline || value.ty != SqlType::Array || value.list {
            return Ok(None);
        }
        if list.len() > MAX_ELEMENTS {
            return Err(SqlError::TooLarge(format!("IN over an array has more than {MAX_ELEMENTS} values")));
        }
        let mut any = Vec::with_capacity(list.len());
        for part in list {
            let part = self.expr(part, scope, place)?;
            self.repeat(&value.expr, 1)?;
            match self.elements_compared(value, Operator::Eq, &part, scope)? {
                Some(bound) => any.push(bound),
                None => return Ok(None),
            }
        }
        Ok(Some(and_or(&any, false)))
    }

    /// Compares the elements of an array with a value; `None` where the left side is none.
    pub(super) fn elements_compared(
        &self,
        left: &Bound,
        operator: Operator,
        right: &Bound,
        scope: &Scope,
    ) -> Result<Option<Bound>> {
        let is_array = |bound: &Bound| bound.ty == SqlType::Array && !bound.list;
        if !self.is_pipeline || !is_array(left) || right.ty.is_json() || right.ty == SqlType::Undefined {
            return Ok(None);
        }
        let depth = self.lambdas.len();
        // Doubles do not tell all integers apart.
        let is_whole = |ty: SqlType| ty.is_integer() && ty != SqlType::UnsignedLong;
        let ty = match right.ty {
            ty if is_whole(ty) && left.element.is_some_and(is_whole) => SqlType::Long,
            ty if ty.is_number() => SqlType::Double,
            ty => ty,
        };
        let body = compare(&Bound::new(lambdas::item(depth), ty), operator, right, scope)?;
        any_element(left, ty, depth, body).map(Some)
    }
}

fn long_of(value: &Bound) -> Result<Bound> {
    Ok(Bound { literal: value.literal.clone(), ..Bound::new(value.to(SqlType::Long)?, SqlType::Long) })
}

/// Returns the name of a type in the schema of a pipeline.
fn shown_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Byte => "tinyint",
        SqlType::Short => "smallint",
        SqlType::Integer => "int",
        SqlType::Long | SqlType::UnsignedLong => "bigint",
        SqlType::Keyword | SqlType::Text => "string",
        other => other.name(),
    }
}

/// Returns the name of a type in pipelines, as `typeof` tells it.
pub(super) fn type_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Byte => "TINYINT",
        SqlType::Short => "SMALLINT",
        SqlType::Integer => "INT",
        SqlType::Long => "BIGINT",
        SqlType::Keyword | SqlType::Text => "STRING",
        SqlType::Object => "STRUCT",
        other => other.general_name(),
    }
}
