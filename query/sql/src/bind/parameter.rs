//! Parameters: their values where they have some, their types where a statement is described without them.
//!
//! A parameter without a value is bound as a null that knows its number. What it is compared or computed with, and what takes it as an
//! argument, tells its type ([`Binder::infer`]). Where a literal has to be spelt out, one that does no harm stands in its place:
//! such a plan is described, and never runs.

use datafusion::logical_expr::{Expr, Operator};
use datafusion::scalar::ScalarValue;
use sqlparser::ast::{self, BinaryOperator};

use super::{Binder, Bound, Literal, literal};
use crate::error::{Result, SqlError};
use crate::functions;
use crate::parameters::Parameters;
use crate::types::SqlType;

/// Types that a parameter without a value may have where a function does not take nulls.
const GUESSES: [SqlType; 4] = [SqlType::Undefined, SqlType::Keyword, SqlType::Double, SqlType::Integer];

impl Binder<'_> {
    /// Binds a literal, or the parameter that stands in its place.
    pub(super) fn value(&mut self, value: &ast::Value) -> Result<Bound> {
        let Some(at) = number_of(value) else { return literal::of_value(value).map(literal::bound) };
        match self.parameters {
            Parameters::Given(values) => {
                let value =
                    values.get(at).cloned().ok_or_else(|| Parameters::wrong_count(at + 1, values.len()))?;
                Ok(literal::bound(value))
            }
            Parameters::Unbound => Ok(Bound { parameter: Some(at), ..literal::bound(Literal::Null) }),
        }
    }

    /// Notes the type that the place of an expression tells, if that is a parameter without a value. What is told first counts.
    pub(super) fn infer(&mut self, bound: &Bound, ty: SqlType) {
        let Some(at) = bound.parameter.filter(|_| ty != SqlType::Undefined) else { return };
        if self.inferred.len() <= at {
            self.inferred.resize(at + 1, None);
        }
        if let Some(place @ None) = self.inferred.get_mut(at) {
            *place = Some(ty);
        }
    }

    /// Notes that expressions have one type: parameters have that of the others.
    pub(super) fn infer_alike<'b>(&mut self, alike: impl IntoIterator<Item = &'b Bound> + Clone) {
        let others = alike.clone().into_iter().map(|bound| bound.ty);
        let ty = others.fold(SqlType::Undefined, |ty, other| ty.common(other).unwrap_or(ty));
        for bound in alike {
            self.infer(bound, ty);
        }
    }

    /// Notes what both sides of an operator tell of one another.
    pub(super) fn infer_operands(&mut self, left: &Bound, operator: Operator, right: &Bound) {
        let moment = |bound: &Bound| bound.ty.is_temporal() || bound.ty == SqlType::Interval;
        // What is added to a moment is no moment.
        if !operator.is_numerical_operators() || !(moment(left) || moment(right)) {
            self.infer_alike([left, right]);
        }
    }

    /// Puts a literal in the place of a parameter without a value, where one has to be spelt out.
    pub(super) fn spelt_out(&mut self, bound: Bound, sample: Literal) -> Bound {
        let sample = literal::bound(sample);
        self.infer(&bound, sample.ty);
        if bound.parameter.is_some() { sample } else { bound }
    }

    /// Binds a call of a function of the registry.
    pub(super) fn call(&mut self, name: &str, args: &[Bound]) -> Result<Bound> {
        if args.iter().all(|arg| arg.parameter.is_none()) {
            return functions::call(name, args, self.now_ms);
        }
        for guess in GUESSES {
            let types: Vec<SqlType> =
                args.iter().map(|arg| if arg.parameter.is_some() { guess } else { arg.ty }).collect();
            let Some(wanted) = functions::taken(name, &types) else { continue };
            let mut typed = Vec::with_capacity(args.len());
            for (arg, wanted) in args.iter().zip(wanted) {
                self.infer(arg, wanted);
                typed.push(match arg.parameter {
                    None => arg.clone(),
                    Some(_) => {
                        Bound::new(Expr::Literal(ScalarValue::try_from(&wanted.arrow())?, None), wanted)
                    }
                });
            }
            return functions::call(name, &typed, self.now_ms);
        }
        functions::call(name, args, self.now_ms)
    }

    /// Reads a whole number that a clause of the statement needs; `None` of a parameter without a value.
    pub(super) fn whole(&mut self, expr: &ast::Expr) -> Result<Option<usize>> {
        let bound = match expr {
            ast::Expr::Value(value) => self.value(&value.value)?,
            _ => return Err(no_number(expr)),
        };
        self.infer(&bound, SqlType::Long);
        match bound.literal {
            Some(Literal::Int(number)) => usize::try_from(number).map(Some).map_err(|_| no_number(expr)),
            _ if bound.parameter.is_some() => Ok(None),
            _ => Err(no_number(expr)),
        }
    }

    /// Spells parameters out among the arguments of a function that the index answers, also where they are values of options.
    pub(super) fn spelt(&mut self, args: &[&ast::Expr]) -> Result<Vec<ast::Expr>> {
        args.iter().map(|arg| self.spelt_argument(arg)).collect()
    }

    fn spelt_argument(&mut self, arg: &ast::Expr) -> Result<ast::Expr> {
        match arg {
            ast::Expr::Value(value) if number_of(&value.value).is_some() => {
                let bound = self.value(&value.value)?;
                self.infer(&bound, SqlType::Keyword);
                let text = match bound.literal {
                    Some(Literal::Str(text)) => text,
                    Some(Literal::Bool(flag)) => flag.to_string(),
                    Some(Literal::Int(number)) => number.to_string(),
                    Some(Literal::UInt(number)) => number.to_string(),
                    Some(Literal::Float(number)) => number.to_string(),
                    // A number is a text, too.
                    _ if bound.parameter.is_some() => "1".to_owned(),
                    _ => {
                        return Err(SqlError::Semantic(
                            "a parameter of a function that the index answers has to be a text, a number or a boolean"
                                .to_owned(),
                        ));
                    }
                };
                let value = ast::Value::SingleQuotedString(text).with_span(value.span);
                Ok(ast::Expr::Value(value))
            }
            ast::Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => Ok(ast::Expr::BinaryOp {
                left: left.clone(),
                op: BinaryOperator::Eq,
                right: Box::new(self.spelt_argument(right)?),
            }),
            other => Ok(other.clone()),
        }
    }
}

/// The number of the parameter that a literal stands for: placeholders were numbered by their place.
fn number_of(value: &ast::Value) -> Option<usize> {
    match value {
        ast::Value::Placeholder(text) => text.trim_start_matches('?').parse().ok(),
        _ => None,
    }
}

fn no_number(expr: &ast::Expr) -> SqlError {
    SqlError::Syntax(format!("[{expr}] is no number of rows"))
}
