//! Expressions: names, literals, and the parts of the language that other modules bind: [`comparison`](super::comparison),
//! [`condition`](super::condition), [`arithmetic`](super::arithmetic), [`case`](super::case), calls.

use datafusion::logical_expr::{Expr, Operator, lit};
use datafusion::scalar::ScalarValue;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::arithmetic::{arithmetic, negative, operation};
use super::case::cast_type;
use super::comparison::compare;
use super::condition::{and_or, like, negated_where, negation, null_test};
use super::{Binder, Bound, ExpressionContext, Literal, Scope, literal, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, time};
use crate::types::{SqlType, TIMESTAMP};

impl Binder<'_> {
    /// Binds an expression.
    pub(crate) fn expr(
        &mut self,
        expr: &ast::Expr,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        use ast::Expr as E;
        self.work.check()?;
        match expr {
            E::Nested(inner) => self.expr(inner, scope, place),
            E::Identifier(ident) => self.name(std::slice::from_ref(ident), scope, place),
            E::CompoundIdentifier(parts) => self.name(parts, scope, place),
            E::Value(value) => self.value(&value.value),
            E::TypedString(typed) => self.typed_string(typed),
            E::Interval(interval) => {
                let count = self.expr(&interval.value, scope, place)?;
                let count = self.spelt_out(count, Literal::Int(1));
                let unit = interval.leading_field.as_ref().map(ToString::to_string).unwrap_or_default();
                literal::interval(&count, &unit)
            }
            E::UnaryOp { op, expr } => self.unary(*op, expr, scope, place),
            E::BinaryOp { op: BinaryOperator::And, .. } => self.connected(true, expr, scope, place),
            E::BinaryOp { op: BinaryOperator::Or, .. } => self.connected(false, expr, scope, place),
            E::BinaryOp { left, op, right } => {
                if let (BinaryOperator::Eq, E::Function(call)) = (op, right.as_ref())
                    && let Some(bound) = self.relevance_of_field(left, call, scope)?
                {
                    return Ok(bound);
                }
                let left = self.expr(left, scope, place)?;
                let right = self.expr(right, scope, place)?;
                self.binary(&left, op, &right, scope)
            }
            E::IsNull(inner) => Ok(null_test(&self.expr(inner, scope, place)?, scope, true)),
            E::IsNotNull(inner) => Ok(null_test(&self.expr(inner, scope, place)?, scope, false)),
            E::IsTrue(inner) => self.is(inner, Expr::IsTrue as fn(Box<Expr>) -> Expr, scope, place),
            E::IsFalse(inner) => self.is(inner, Expr::IsFalse, scope, place),
            E::IsNotTrue(inner) => self.is(inner, Expr::IsNotTrue, scope, place),
            E::IsNotFalse(inner) => self.is(inner, Expr::IsNotFalse, scope, place),
            E::InList { expr, list, negated } => self.in_list(expr, list, *negated, scope, place),
            E::Between { expr, negated, low, high } => {
                let bound = self.between([expr, low, high], scope, place)?;
                Ok(negated_where(*negated, bound))
            }
            E::Like { negated, any: false, expr, pattern, escape_char: None }
            | E::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                let value = self.expr(expr, scope, place)?;
                let pattern = self.expr(pattern, scope, place)?;
                self.infer(&value, SqlType::Keyword);
                let pattern = self.spelt_out(pattern, Literal::Str("%".to_owned()));
                Ok(negated_where(*negated, like(&value, &pattern, scope)?))
            }
            E::RLike { negated, expr, pattern, .. } => {
                let value = self.expr(expr, scope, place)?;
                let pattern = self.expr(pattern, scope, place)?;
                let bound = self.call("regexp", &[value, pattern])?;
                Ok(match negated {
                    true => negation(Bound::new(bound.expr.eq(lit(1i32)), SqlType::Boolean)),
                    false => bound,
                })
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, place)
            }
            E::Cast { expr, data_type, .. } => {
                let value = self.expr(expr, scope, place)?;
                let ty = cast_type(data_type)?;
                self.infer(&value, ty);
                if ty == TIMESTAMP
                    && let Some(spelt) = value.literal.as_ref().and_then(literal::instant)
                {
                    return Ok(literal::bound(Literal::Timestamp(spelt)));
                }
                let ty = if ty == TIMESTAMP { value.ty.finest() } else { ty };
                let cast = if self.is_pipeline { functions::pipeline_cast } else { functions::cast };
                Ok(Bound::new(cast(&value, ty)?, ty))
            }
            E::Function(call) => self.function(call, scope, place),
            E::Substring { expr, substring_from, substring_for, .. } => {
                let given = [Some(expr), substring_from.as_ref(), substring_for.as_ref()];
                let args: Vec<&ast::Expr> = given.into_iter().flatten().map(AsRef::as_ref).collect();
                self.named("substring", &args, scope, place)
            }
            E::Trim { trim_where: None, trim_what: None, expr, trim_characters: None } => {
                self.named("trim", &[expr], scope, place)
            }
            E::Ceil { expr, field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.named("ceil", &[expr], scope, place)
            }
            E::Floor { expr, field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.named("floor", &[expr], scope, place)
            }
            E::Position { expr, r#in } => self.named("position", &[expr, r#in], scope, place),
            E::Extract { field, expr, .. } => {
                let part = literal::bound(Literal::Str(field.to_string()));
                let value = self.expr(expr, scope, place)?;
                self.call("extract", &[part, value])
            }
            E::InSubquery { .. } | E::Exists { .. } | E::Subquery(_) | E::AnyOp { .. } | E::AllOp { .. } => {
                self.subquery(expr, scope)
            }
            other => unsupported(format!("[{other}]")),
        }
    }

    /// Binds BETWEEN of a value, the low and the high end.
    fn between(
        &mut self,
        parts: [&ast::Expr; 3],
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let [value, low, high] = parts;
        let value = self.expr(value, scope, place)?;
        let (low, high) = (self.expr(low, scope, place)?, self.expr(high, scope, place)?);
        self.repeat(&value.expr, 1)?;
        let from = self.binary(&value, &BinaryOperator::GtEq, &low, scope)?;
        let to = self.binary(&value, &BinaryOperator::LtEq, &high, scope)?;
        Ok(and_or(&[from, to], true))
    }

    fn named(
        &mut self,
        name: &str,
        args: &[&ast::Expr],
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let mut bound = Vec::with_capacity(args.len());
        for arg in args {
            bound.push(self.expr(arg, scope, place)?);
        }
        self.call(name, &bound)
    }

    fn is(
        &mut self,
        inner: &ast::Expr,
        test: fn(Box<Expr>) -> Expr,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let inner = self.expr(inner, scope, place)?;
        self.infer(&inner, SqlType::Boolean);
        Ok(Bound::new(test(Box::new(inner.to(SqlType::Boolean)?)), SqlType::Boolean))
    }

    /// Binds a name: an alias where these win, else a column.
    fn name(&mut self, parts: &[ast::Ident], scope: &mut Scope, place: ExpressionContext) -> Result<Bound> {
        let path = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
        if let Some(parameter) = self.lambda_parameter(&path) {
            return Ok(parameter);
        }
        if place == ExpressionContext::Aliased
            && !scope.following
            && let Some(aliased) = scope.aliases.get(&path).cloned()
        {
            scope.following = true;
            let bound = self.expr(&aliased, scope, ExpressionContext::Output);
            scope.following = false;
            let bound = bound?;
            self.repeat(&bound.expr, 1)?;
            return Ok(bound);
        }
        if let Some(bound) = scope.column(&path)? {
            return Ok(self.typed_path(bound, scope));
        }
        if let Some(bound) = self.outer_name(&path, scope, Scope::column)? {
            return Ok(bound);
        }
        if let Some(bound) = scope.column_behind_alias(&path)? {
            return Ok(bound);
        }
        let bound = self.outer_name(&path, scope, Scope::column_behind_alias)?;
        bound.ok_or_else(|| SqlError::unknown_field(&path))
    }

    fn typed_string(&mut self, typed: &ast::TypedString) -> Result<Bound> {
        let text = match &typed.value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => text.as_str(),
            _ => return unsupported(format!("[{typed}]")),
        };
        let wrong = |kind: &str, format: &str| {
            SqlError::Semantic(format!("{kind}:{text} in unsupported format, please use '{format}'"))
        };
        match &typed.data_type {
            ast::DataType::Date => {
                let days = time::date(text).filter(|_| !text.contains(':') || text.contains(['-', ' ']));
                let days = days.ok_or_else(|| wrong("date", "yyyy-MM-dd"))?;
                let literal = Literal::Timestamp(time::nanos_of(i64::from(days) * time::DAY));
                let date = Bound::new(Expr::Literal(ScalarValue::Date32(Some(days)), None), SqlType::Date);
                Ok(Bound { literal: Some(literal), ..date })
            }
            ast::DataType::Time(..) => {
                let micros = time::time(text).ok_or_else(|| wrong("time", "HH:mm:ss[.SSSSSSSSS]"))?;
                let value = ScalarValue::Time64Nanosecond(Some(time::nanos_of_day(micros)));
                Ok(Bound::new(Expr::Literal(value, None), SqlType::Time))
            }
            ast::DataType::Timestamp(..) | ast::DataType::Datetime(_) => {
                let nanos = time::instant(text).filter(|_| text.contains(':'));
                let nanos = nanos.ok_or_else(|| wrong("timestamp", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]"))?;
                Ok(literal::bound(Literal::Timestamp(nanos)))
            }
            other => unsupported(format!("a literal of type {other}")),
        }
    }

    fn unary(
        &mut self,
        op: UnaryOperator,
        inner: &ast::Expr,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let inner = self.expr(inner, scope, place)?;
        match (op, &inner.literal) {
            (UnaryOperator::Not | UnaryOperator::BangNot, _) => Ok(negation(self.truth(inner)?)),
            (UnaryOperator::Plus, _) if inner.ty.is_number() => Ok(inner),
            (UnaryOperator::Minus, Some(Literal::Int(number))) => {
                Ok(literal::bound(negative((*number).into())))
            }
            (UnaryOperator::Minus, Some(Literal::UInt(number))) => {
                Ok(literal::bound(negative((*number).into())))
            }
            (UnaryOperator::Minus, Some(Literal::Float(number))) => {
                Ok(literal::bound(Literal::Float(-number)))
            }
            (UnaryOperator::Minus, _) if inner.ty.is_number() => {
                let zero = literal::bound(Literal::Int(0));
                self.binary(&zero, &BinaryOperator::Minus, &inner, scope)
            }
            (UnaryOperator::Minus, _) if inner.ty == SqlType::Undefined => Ok(inner),
            (op, _) => Err(SqlError::Semantic(format!(
                "{op} function expected number, but get {}",
                inner.ty.general_name()
            ))),
        }
    }

    /// Binds ANDs or ORs as one balanced tree: the syntax tree leans to the left, a level for each.
    fn connected(
        &mut self,
        and: bool,
        whole: &ast::Expr,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let wanted = if and { BinaryOperator::And } else { BinaryOperator::Or };
        let mut parts = Vec::new();
        let mut rest = whole;
        loop {
            match rest {
                ast::Expr::BinaryOp { left, op, right } if *op == wanted => {
                    parts.push(right.as_ref());
                    rest = left;
                }
                last => {
                    parts.push(last);
                    break;
                }
            }
        }
        parts.reverse();
        let mut bound = Vec::with_capacity(parts.len());
        for part in parts {
            let part = self.expr(part, scope, place)?;
            bound.push(self.truth(part)?);
        }
        Ok(and_or(&bound, and))
    }

    /// Binds an operator over two values.
    pub(super) fn binary(
        &mut self,
        left: &Bound,
        op: &BinaryOperator,
        right: &Bound,
        scope: &Scope,
    ) -> Result<Bound> {
        let operator = match op {
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::Lt => Operator::Lt,
            BinaryOperator::LtEq => Operator::LtEq,
            BinaryOperator::Gt => Operator::Gt,
            BinaryOperator::GtEq => Operator::GtEq,
            BinaryOperator::Plus => Operator::Plus,
            BinaryOperator::Minus => Operator::Minus,
            BinaryOperator::Multiply => Operator::Multiply,
            BinaryOperator::Divide | BinaryOperator::MyIntegerDivide => Operator::Divide,
            BinaryOperator::Modulo => Operator::Modulo,
            BinaryOperator::Xor => {
                let (left, right) = (self.truth(left.clone())?, self.truth(right.clone())?);
                return Ok(Bound::new(operation(left.expr, Operator::NotEq, right.expr), SqlType::Boolean));
            }
            other => return unsupported(format!("the operator {other}")),
        };
        self.infer_operands(left, operator, right);
        if matches!(
            operator,
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        ) {
            // A time is one of today where it meets a date.
            let today = |own: &Bound, other: &Bound| match (own.ty, other.ty) {
                (SqlType::Time, SqlType::Date | SqlType::Timestamp(_)) => {
                    functions::call("timestamp", std::slice::from_ref(own), self.now_ms)
                }
                _ => Ok(own.clone()),
            };
            if let Some(bound) = self.elements_compared(left, operator, right, scope)? {
                return Ok(bound);
            }
            return compare(&today(left, right)?, operator, &today(right, left)?, scope);
        }
        match self.is_pipeline {
            true => {
                let (left, right) = self.pipeline_operands(left, operator, right)?;
                arithmetic(&left, operator, &right, self.now_ms)
            }
            false => arithmetic(left, operator, right, self.now_ms),
        }
    }
}
