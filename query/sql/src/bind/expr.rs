//! Expressions: names, literals, operators, predicates, CASE and CAST.

use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, Operator, lit, not};
use datafusion::scalar::ScalarValue;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::{Binder, Bound, Literal, Place, Scope, literal, operand, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, address, time, values};
use crate::push::{Comparable, Pushed, has_exists, is_null};
use crate::source::{self, SourceKind};
use crate::types::{SqlType, TIMESTAMP};

/// Most values of an IN list.
const MAX_LIST: usize = 65_536;

impl Binder<'_> {
    /// Binds an expression.
    pub(crate) fn expr(&mut self, expr: &ast::Expr, scope: &mut Scope, place: Place) -> Result<Bound> {
        use ast::Expr as E;
        self.work.check()?;
        match expr {
            E::Nested(inner) => self.expr(inner, scope, place),
            E::Identifier(ident) => self.name(std::slice::from_ref(ident), scope, place),
            E::CompoundIdentifier(parts) => self.name(parts, scope, place),
            E::Value(value) => {
                // Placeholders were numbered by their place.
                let number = match &value.value {
                    ast::Value::Placeholder(text) => text.trim_start_matches(['?', '$']).to_owned(),
                    _ => String::new(),
                };
                literal::of_value(&value.value, self.parameters, &number).map(literal::bound)
            }
            E::TypedString(typed) => self.typed_string(typed),
            E::Interval(interval) => {
                let count = self.expr(&interval.value, scope, place)?;
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
                let value = self.expr(expr, scope, place)?;
                let (low, high) = (self.expr(low, scope, place)?, self.expr(high, scope, place)?);
                self.repeat(&value.expr, 1)?;
                let from = self.binary(&value, &BinaryOperator::GtEq, &low, scope)?;
                let to = self.binary(&value, &BinaryOperator::LtEq, &high, scope)?;
                let bound = and_or(&[from, to], true);
                Ok(if *negated { negation(bound) } else { bound })
            }
            E::Like { negated, any: false, expr, pattern, escape_char: None }
            | E::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                let value = self.expr(expr, scope, place)?;
                let pattern = self.expr(pattern, scope, place)?;
                let bound = like(&value, &pattern, scope)?;
                Ok(if *negated { negation(bound) } else { bound })
            }
            E::RLike { negated, expr, pattern, .. } => {
                let value = self.expr(expr, scope, place)?;
                let pattern = self.expr(pattern, scope, place)?;
                let bound = functions::call("regexp", &[value, pattern], self.now_ms)?;
                Ok(if *negated {
                    negation(Bound::new(bound.expr.eq(lit(1i32)), SqlType::Boolean))
                } else {
                    bound
                })
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, place)
            }
            E::Cast { expr, data_type, .. } => {
                let value = self.expr(expr, scope, place)?;
                let ty = cast_type(data_type)?;
                Ok(Bound::new(functions::cast(&value, ty)?, ty))
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
                functions::call("extract", &[part, value], self.now_ms)
            }
            E::InSubquery { .. } | E::Exists { .. } | E::Subquery(_) => {
                unsupported("a subquery in an expression")
            }
            other => unsupported(format!("[{other}]")),
        }
    }

    fn named(&mut self, name: &str, args: &[&ast::Expr], scope: &mut Scope, place: Place) -> Result<Bound> {
        let mut bound = Vec::with_capacity(args.len());
        for arg in args {
            bound.push(self.expr(arg, scope, place)?);
        }
        functions::call(name, &bound, self.now_ms)
    }

    fn is(
        &mut self,
        inner: &ast::Expr,
        test: fn(Box<Expr>) -> Expr,
        scope: &mut Scope,
        place: Place,
    ) -> Result<Bound> {
        let inner = self.expr(inner, scope, place)?;
        Ok(Bound::new(test(Box::new(inner.to(SqlType::Boolean)?)), SqlType::Boolean))
    }

    /// Binds a name: an alias where these win, else a column.
    fn name(&mut self, parts: &[ast::Ident], scope: &mut Scope, place: Place) -> Result<Bound> {
        let path = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
        if place == Place::Aliased
            && !scope.following
            && let Some(aliased) = scope.aliases.get(&path).cloned()
        {
            scope.following = true;
            let bound = self.expr(&aliased, scope, Place::Output);
            scope.following = false;
            let bound = bound?;
            self.repeat(&bound.expr, 1)?;
            return Ok(bound);
        }
        match source::resolve(&mut scope.sources, &path)? {
            Some(bound) => Ok(bound),
            None => Err(SqlError::unknown_field(&path)),
        }
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
                Ok(Bound::new(Expr::Literal(ScalarValue::Date32(Some(days)), None), SqlType::Date))
            }
            ast::DataType::Time(..) => {
                let micros = time::time(text).ok_or_else(|| wrong("time", "HH:mm:ss[.SSSSSSSSS]"))?;
                let value = ScalarValue::Time64Microsecond(Some(micros));
                Ok(Bound::new(Expr::Literal(value, None), SqlType::Time))
            }
            ast::DataType::Timestamp(..) | ast::DataType::Datetime(_) => {
                let micros = time::timestamp(text).filter(|_| text.contains(':'));
                let micros = micros.ok_or_else(|| wrong("timestamp", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]"))?;
                Ok(literal::bound(Literal::Timestamp(micros)))
            }
            other => unsupported(format!("a literal of type {other}")),
        }
    }

    fn unary(
        &mut self,
        op: UnaryOperator,
        inner: &ast::Expr,
        scope: &mut Scope,
        place: Place,
    ) -> Result<Bound> {
        let inner = self.expr(inner, scope, place)?;
        match (op, &inner.literal) {
            (UnaryOperator::Not | UnaryOperator::BangNot, _) => Ok(negation(boolean(inner)?)),
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
    fn connected(&mut self, and: bool, whole: &ast::Expr, scope: &mut Scope, place: Place) -> Result<Bound> {
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
            bound.push(boolean(self.expr(part, scope, place)?)?);
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
                let (left, right) = (boolean(left.clone())?, boolean(right.clone())?);
                return Ok(Bound::new(operation(left.expr, Operator::NotEq, right.expr), SqlType::Boolean));
            }
            other => return unsupported(format!("the operator {other}")),
        };
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
            return compare(&today(left, right)?, operator, &today(right, left)?, scope);
        }
        arithmetic(left, operator, right, self.now_ms)
    }

    fn in_list(
        &mut self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        scope: &mut Scope,
        place: Place,
    ) -> Result<Bound> {
        if list.len() > MAX_LIST {
            return Err(SqlError::TooLarge(format!(
                "IN has {} values, more than the {MAX_LIST} that are allowed",
                list.len()
            )));
        }
        let value = self.expr(expr, scope, place)?;
        let mut ty = value.ty;
        let mut parts = Vec::with_capacity(list.len());
        for part in list {
            let part = self.expr(part, scope, place)?;
            ty = ty.common(part.ty).ok_or_else(|| mismatch("in", &value, &part))?;
            parts.push(part);
        }
        let parts: Vec<Bound> =
            parts.into_iter().map(|part| operand::normalized(&value, &part, scope).unwrap_or(part)).collect();
        if let Some(bound) = any_of_literals(&value, &parts, scope) {
            return Ok(if negated { negation(bound) } else { bound });
        }
        let own = comparable(&value, scope);
        let literals: Option<Vec<_>> = parts.iter().map(|part| as_compared(part, &value)).collect();
        let pushed = own.zip(literals).and_then(|(own, literals)| own.any_of(&literals));
        let mut bound = if value.list {
            self.repeat(&value.expr, parts.len())?;
            let mut any = Vec::with_capacity(parts.len());
            for part in &parts {
                any.push(compare(&value, Operator::Eq, part, scope)?);
            }
            and_or(&any, false)
        } else {
            let exprs = parts.iter().map(|part| part.to(ty)).collect::<Result<Vec<_>>>()?;
            Bound::new(value.to(ty)?.in_list(exprs, false), SqlType::Boolean)
        };
        bound.pushed = pushed;
        Ok(if negated { negation(bound) } else { bound })
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        else_result: Option<&ast::Expr>,
        scope: &mut Scope,
        place: Place,
    ) -> Result<Bound> {
        let operand = operand.map(|operand| self.expr(operand, scope, place)).transpose()?;
        if let Some(operand) = &operand {
            self.repeat(&operand.expr, conditions.len())?;
        }
        let mut branches = Vec::with_capacity(conditions.len());
        let mut ty = SqlType::Undefined;
        let join = |ty: &mut SqlType, result: &Bound| {
            *ty = ty.common(result.ty).ok_or_else(|| {
                SqlError::Semantic(format!(
                    "All result clauses should be of same type, but found {} and {}",
                    ty.general_name(),
                    result.ty.general_name()
                ))
            })?;
            Ok::<_, SqlError>(())
        };
        for branch in conditions {
            let condition = self.expr(&branch.condition, scope, place)?;
            let condition = match &operand {
                None => boolean(condition)?,
                Some(operand) => compare(operand, Operator::Eq, &condition, scope)?,
            };
            let result = self.expr(&branch.result, scope, place)?;
            join(&mut ty, &result)?;
            branches.push((condition, result));
        }
        let last = else_result.map(|last| self.expr(last, scope, place)).transpose()?;
        if let Some(last) = &last {
            join(&mut ty, last)?;
        }
        let mut when_then = Vec::with_capacity(branches.len());
        for (condition, result) in branches {
            when_then.push((Box::new(condition.expr), Box::new(result.to(ty)?)));
        }
        let else_expr = last.map(|last| last.to(ty)).transpose()?.map(Box::new);
        Ok(Bound::new(Expr::Case(Case::new(None, when_then, else_expr)), ty))
    }
}

/// Negates an integer that is spelt out.
fn negative(number: i128) -> Literal {
    match (i64::try_from(-number), u64::try_from(-number)) {
        (Ok(number), _) => Literal::Int(number),
        (_, Ok(number)) => Literal::UInt(number),
        _ => Literal::Float(-number as f64),
    }
}

/// Makes an operation of two expressions.
pub(super) fn operation(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Takes an expression as a condition.
pub(super) fn boolean(bound: Bound) -> Result<Bound> {
    match bound.ty {
        SqlType::Boolean => Ok(if bound.list { bound.single() } else { bound }),
        SqlType::Undefined => Ok(Bound::new(bound.to(SqlType::Boolean)?, SqlType::Boolean)),
        SqlType::Integer | SqlType::Long => {
            let zero = Expr::Literal(ScalarValue::try_from(&bound.ty.arrow())?, None);
            let zero = match bound.ty {
                SqlType::Integer => lit(0i32),
                SqlType::Long => lit(0i64),
                _ => zero,
            };
            Ok(Bound::new(operation(bound.expr, Operator::NotEq, zero), SqlType::Boolean))
        }
        other => {
            Err(SqlError::Semantic(format!("a condition has to be BOOLEAN, but is {}", other.general_name())))
        }
    }
}

/// Joins conditions.
pub(super) fn and_or(parts: &[Bound], and: bool) -> Bound {
    let pushed: Option<Vec<Pushed>> = parts.iter().map(|part| part.pushed.clone()).collect();
    let mut level: Vec<Expr> = parts.iter().map(|part| part.expr.clone()).collect();
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) if and => left.and(right),
                Some(right) => left.or(right),
                None => left,
            });
        }
        level = next;
    }
    let expr = level.pop().unwrap_or_else(|| lit(and));
    Bound {
        pushed: pushed.and_then(|pushed| Pushed::all(&pushed, and)),
        ..Bound::new(expr, SqlType::Boolean)
    }
}

/// Negates a condition.
pub(super) fn negation(bound: Bound) -> Bound {
    let pushed = bound.pushed.map(Pushed::not);
    Bound { pushed, ..Bound::new(not(bound.expr), SqlType::Boolean) }
}

/// Binds IS NULL and IS NOT NULL.
pub(super) fn null_test(value: &Bound, scope: &Scope, null: bool) -> Bound {
    let pushed = value.field.as_ref().and_then(|(source, path)| match &scope.sources.get(*source)?.kind {
        SourceKind::Index(index) if has_exists(&index.snapshot, path) => Some(is_null(*source, path)),
        _ => None,
    });
    let test = match null {
        true => Bound { pushed, ..Bound::new(value.expr.clone().is_null(), SqlType::Boolean) },
        false => Bound {
            pushed: pushed.map(Pushed::not),
            ..Bound::new(value.expr.clone().is_not_null(), SqlType::Boolean)
        },
    };
    match value.literal {
        Some(Literal::Null) => Bound::new(lit(null), SqlType::Boolean),
        Some(_) => Bound::new(lit(!null), SqlType::Boolean),
        None => test,
    }
}

/// Finds how the index compares a field.
pub(super) fn comparable(value: &Bound, scope: &Scope) -> Option<Comparable> {
    let (source, path) = value.field.as_ref()?;
    match &scope.sources.get(*source)?.kind {
        SourceKind::Index(index) => Comparable::new(&index.snapshot, *source, path),
        _ => None,
    }
}

/// Returns a literal that is no number as it is compared with a field.
fn as_compared(literal: &Bound, field: &Bound) -> Option<Literal> {
    let own = literal.literal.clone()?;
    Some(match (field.ty, own) {
        (ty, _) if ty.is_number() => return None,
        (SqlType::Timestamp(_), Literal::Str(text)) => Literal::Timestamp(time::timestamp(&text)?),
        (SqlType::Boolean, Literal::Int(number @ (0 | 1))) => Literal::Bool(number == 1),
        (SqlType::Boolean, Literal::Str(text)) => match text.to_ascii_lowercase().as_str() {
            "true" => Literal::Bool(true),
            "false" => Literal::Bool(false),
            _ => return None,
        },
        (_, other) => other,
    })
}

/// Binds IN over literals that single numbers, addresses or flags meet; `None` where one of them does not.
fn any_of_literals(value: &Bound, parts: &[Bound], scope: &Scope) -> Option<Bound> {
    if value.list {
        return None;
    }
    if value.ty == SqlType::Ip {
        let bits: Vec<u128> = parts.iter().map(operand::address).collect::<Option<_>>()?;
        let literals: Option<Vec<_>> = parts.iter().map(|part| part.literal.clone()).collect();
        let pushed = comparable(value, scope).zip(literals).and_then(|(own, literals)| own.any_of(&literals));
        let any = bits.into_iter().map(address::order_of).collect();
        let expr = address::order(value.expr.clone()).in_list(any, false);
        return Some(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) });
    }
    if value.ty == SqlType::Boolean {
        let flag = |part| match as_compared(part, value) {
            Some(own @ Literal::Bool(_)) => Some(own),
            _ => None,
        };
        let literals: Vec<Literal> = parts.iter().map(flag).collect::<Option<_>>()?;
        let pushed = comparable(value, scope).and_then(|own| own.any_of(&literals));
        let any = literals.into_iter().map(|own| literal::bound(own).expr).collect();
        return Some(Bound {
            pushed,
            ..Bound::new(value.expr.clone().in_list(any, false), SqlType::Boolean)
        });
    }
    let null = |part: &Bound| part.literal == Some(Literal::Null);
    let mut met = Vec::with_capacity(parts.len());
    for part in parts.iter().filter(|part| !null(part)) {
        met.push(operand::met(value, Operator::Eq, part, scope)?);
    }
    // What cannot be equal is no part of the list.
    met.retain(|met| met.operator == Operator::Eq);
    let nulls = parts.iter().any(null);
    let literals: Vec<Literal> = met.iter().map(|met| met.literal.clone()).collect();
    let pushed = comparable(value, scope).filter(|_| !nulls).and_then(|own| own.any_of(&literals));
    let mut any: Vec<Expr> = Vec::with_capacity(met.len());
    for met in met {
        if met.is_signed_zero() {
            any.extend(met.value.arithmetic_negate().ok().map(|zero| Expr::Literal(zero, None)));
        }
        any.push(met.expr());
    }
    if nulls {
        any.push(Expr::Literal(ScalarValue::try_from(&value.ty.arrow()).ok()?, None));
    }
    let expr = match any.is_empty() {
        true => operation(value.expr.clone(), Operator::NotEq, value.expr.clone()),
        false => value.expr.clone().in_list(any, false),
    };
    Some(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}

fn mismatch(operator: &str, left: &Bound, right: &Bound) -> SqlError {
    SqlError::Semantic(format!(
        "{operator} function expected {{[same types]}}, but get [{},{}]",
        left.ty.general_name(),
        right.ty.general_name()
    ))
}

/// Binds a comparison.
pub(super) fn compare(left: &Bound, operator: Operator, right: &Bound, scope: &Scope) -> Result<Bound> {
    let ty = left.ty.common(right.ty).ok_or_else(|| mismatch(&operator.to_string(), left, right))?;
    if let (Some(_), None) = (&left.literal, &right.literal)
        && let Some(operator) = operator.swap()
    {
        return compare(right, operator, left, scope);
    }
    if let Some(right) = operand::normalized(left, right, scope) {
        return compare(left, operator, &right, scope);
    }
    if operator == Operator::NotEq && operand::met(left, Operator::Eq, right, scope).is_some() {
        return compare(left, Operator::Eq, right, scope).map(negation);
    }
    if let Some(met) = operand::met(left, operator, right, scope) {
        return meeting(left, &met, scope);
    }
    if left.list || right.list {
        return any_compared(left, operator, right, ty, scope);
    }
    if ty == SqlType::Undefined {
        return Ok(Bound::new(Expr::Literal(ScalarValue::Boolean(None), None), SqlType::Boolean));
    }
    let expr = match operand::address(right).filter(|_| left.ty == SqlType::Ip) {
        Some(bits) => operation(address::order(left.expr.clone()), operator, address::order_of(bits)),
        None => operation(left.to(ty)?, operator, right.to(ty)?),
    };
    Ok(Bound {
        pushed: pushed_comparison(left, operator, right, scope),
        ..Bound::new(expr, SqlType::Boolean)
    })
}

/// Binds the comparison of a number with a literal of its type.
fn meeting(own: &Bound, met: &operand::Met, scope: &Scope) -> Result<Bound> {
    let pushed = comparable(own, scope).and_then(|own| own.compared(met.operator, &met.literal));
    let expr = match own.list {
        true => values::any(own, met.operator, met.expr(), own.ty)?,
        false => operation(own.expr.clone(), met.operator, met.expr()),
    };
    Ok(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}

fn pushed_comparison(left: &Bound, operator: Operator, right: &Bound, scope: &Scope) -> Option<Pushed> {
    let value = as_compared(right, left)?;
    if value == Literal::Null {
        return None;
    }
    comparable(left, scope)?.compared(operator, &value)
}

/// Compares lists: any value for most operators, none for `<>`.
fn any_compared(
    left: &Bound,
    operator: Operator,
    right: &Bound,
    ty: SqlType,
    scope: &Scope,
) -> Result<Bound> {
    let pushed = pushed_comparison(left, operator, right, scope);
    let negated = operator == Operator::NotEq;
    let asked = if negated { Operator::Eq } else { operator };
    let expr = match (left.list, right.list) {
        (true, false) => values::any(left, asked, right.to(ty)?, ty)?,
        (false, true) => {
            let swapped = asked.swap().ok_or_else(|| mismatch(&operator.to_string(), left, right))?;
            values::any(right, swapped, left.to(ty)?, ty)?
        }
        _ => return unsupported("the comparison of two fields of several values"),
    };
    let bound = Bound::new(if negated { not(expr) } else { expr }, SqlType::Boolean);
    Ok(Bound { pushed, ..bound })
}

/// Binds LIKE, which does not tell upper from lower case of ASCII letters.
fn like(value: &Bound, pattern: &Bound, scope: &Scope) -> Result<Bound> {
    let comparable = comparable(value, scope);
    if let Some(text) = comparable.as_ref().filter(|own| own.is_of_terms()) {
        let Some(Literal::Str(pattern)) = &pattern.literal else {
            return unsupported(
                "LIKE on a text field without a keyword field, but for a pattern that is spelt out",
            );
        };
        let pushed = text.like(pattern);
        let pushed = pushed.ok_or_else(|| SqlError::Semantic("LIKE needs a pattern".to_owned()))?;
        // A filter that is left with this is refused: only the index knows the terms.
        return Ok(Bound {
            expr: pushed.truth.expr(false)?,
            pushed: Some(pushed),
            ..Bound::new(lit(true), SqlType::Boolean)
        });
    }
    let pushed = match &pattern.literal {
        Some(Literal::Str(pattern)) => comparable.and_then(|own| own.like(pattern)),
        _ => None,
    };
    let shown = pattern.to(SqlType::Keyword)?;
    let expr = match value.list {
        true if value.ty.is_string() => values::any_like(value, shown)?,
        _ => functions::like(value.single().to(SqlType::Keyword)?, shown),
    };
    Ok(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}

/// Binds `+`, `-`, `*`, `/` and `%`.
pub(super) fn arithmetic(left: &Bound, operator: Operator, right: &Bound, now_ms: i64) -> Result<Bound> {
    let temporal = |bound: &Bound| bound.ty.is_temporal() || bound.ty == SqlType::Interval;
    if temporal(left) || temporal(right) {
        return match operator {
            Operator::Plus if right.ty == SqlType::Interval => {
                functions::call("date_add", &[left.clone(), right.clone()], now_ms)
            }
            Operator::Plus if left.ty == SqlType::Interval => {
                functions::call("date_add", &[right.clone(), left.clone()], now_ms)
            }
            Operator::Minus if right.ty == SqlType::Interval => {
                functions::call("date_sub", &[left.clone(), right.clone()], now_ms)
            }
            _ => Err(mismatch(&operator.to_string(), left, right)),
        };
    }
    if operator == Operator::Plus && left.ty.is_string() && right.ty.is_string() {
        return functions::call("concat", &[left.clone(), right.clone()], now_ms);
    }
    let number = |bound: &Bound| bound.ty.is_number() || bound.ty == SqlType::Undefined;
    if !number(left) || !number(right) {
        return Err(SqlError::Semantic(format!(
            "{operator} function expected {{[BYTE,BYTE],[SHORT,SHORT],[INTEGER,INTEGER],[LONG,LONG],[FLOAT,FLOAT],[DOUBLE,DOUBLE]}}, but get [{},{}]",
            left.ty.general_name(),
            right.ty.general_name()
        )));
    }
    let ty = match (left.ty, right.ty) {
        // Integers are narrower than floats here, though they hold more digits.
        (SqlType::Float, other) | (other, SqlType::Float) if other.is_integer() => SqlType::Float,
        (one, other) => one.common(other).ok_or_else(|| mismatch(&operator.to_string(), left, right))?,
    };
    if ty == SqlType::Undefined {
        return Ok(literal::bound(Literal::Null));
    }
    let (one, other) = (left.to(ty)?, right.to(ty)?);
    let nonzero = match right.literal {
        Some(Literal::Int(number)) => number != 0,
        Some(Literal::Float(number)) => number != 0.0,
        _ => false,
    };
    let other = match operator {
        Operator::Divide | Operator::Modulo if !nonzero => nullif(other, zero(ty)?),
        _ => other,
    };
    let expr = match ty.is_integer() {
        true => functions::checked(operator, ty, one, other),
        false => operation(one, operator, other),
    };
    Ok(Bound::new(expr, ty))
}

fn zero(ty: SqlType) -> Result<Expr> {
    Ok(Expr::Literal(ScalarValue::new_zero(&ty.arrow())?, None))
}

/// Finds the type that CAST names.
fn cast_type(data_type: &ast::DataType) -> Result<SqlType> {
    let name = data_type.to_string().to_ascii_uppercase();
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    Ok(match name {
        "BYTE" | "TINYINT" => SqlType::Byte,
        "SHORT" | "SMALLINT" => SqlType::Short,
        "INT" | "INTEGER" | "SIGNED" => SqlType::Integer,
        "LONG" | "BIGINT" => SqlType::Long,
        "FLOAT" | "REAL" => SqlType::Float,
        "DOUBLE" | "DECIMAL" | "NUMERIC" => SqlType::Double,
        "STRING" | "VARCHAR" | "CHAR" | "TEXT" | "KEYWORD" => SqlType::Keyword,
        "BOOLEAN" | "BOOL" => SqlType::Boolean,
        "DATE" => SqlType::Date,
        "TIME" => SqlType::Time,
        "TIMESTAMP" | "DATETIME" => TIMESTAMP,
        "IP" => SqlType::Ip,
        other => return Err(SqlError::Semantic(format!("cannot cast to {other}"))),
    })
}
