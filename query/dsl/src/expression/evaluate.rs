//! Evaluation of a tree, with the arithmetic of Java: whole numbers stay whole, and divided by zero fail.

use millrace_work::error::Result;

use super::{Binary, Expression, Function, Node, Val, runtime_error};

/// Scope of an expression's evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Values by name, found by `params.name`.
    pub params: &'a [(&'a str, f64)],
    /// The window.
    pub values: &'a [f64],
}

impl Node {
    pub(super) fn evaluate(&self, expression: &Expression, scope: &Scope<'_>) -> Result<Val> {
        let of = |node: &Node| node.evaluate(expression, scope);
        match self {
            Self::Val(value) => Ok(*value),
            Self::Param(name) => {
                let found = scope.params.iter().find(|(known, _)| known == name);
                let given = || expression.params.get(name).copied().unwrap_or(Val::Null);
                Ok(found.map_or_else(given, |(_, value)| Val::Double(*value)))
            }
            Self::Values => Ok(Val::Values),
            Self::Length => Ok(Val::Int(scope.values.len() as i64)),
            Self::Not(node) => boolean(of(node)?).map(|flag| Val::Bool(!flag)),
            Self::Minus(node) => match of(node)? {
                Val::Int(number) => Ok(Val::Int(number.wrapping_neg())),
                other => double(other).map(|number| Val::Double(-number)),
            },
            Self::Binary(Binary::Or, left, right) => {
                Ok(Val::Bool(boolean(of(left)?)? || boolean(of(right)?)?))
            }
            Self::Binary(Binary::And, left, right) => {
                Ok(Val::Bool(boolean(of(left)?)? && boolean(of(right)?)?))
            }
            Self::Binary(operator, left, right) => binary(*operator, of(left)?, of(right)?),
            Self::Conditional(condition, then, otherwise) => {
                if boolean(of(condition)?)? {
                    of(then)
                } else {
                    of(otherwise)
                }
            }
            Self::Call(function, arguments) => {
                let arguments: Vec<Val> = arguments.iter().map(of).collect::<Result<_>>()?;
                call(*function, &arguments, scope)
            }
        }
    }
}

fn boolean(value: Val) -> Result<bool> {
    match value {
        Val::Bool(flag) => Ok(flag),
        Val::Null => Err(runtime_error("cannot cast def [null] to boolean")),
        _ => Err(runtime_error("cannot cast def [double] to boolean")),
    }
}

fn double(value: Val) -> Result<f64> {
    match value {
        Val::Int(number) => Ok(number as f64),
        Val::Double(number) => Ok(number),
        Val::Null => Err(runtime_error("Cannot invoke \"Object.getClass()\" because a value is null")),
        Val::Bool(_) => Err(runtime_error("Cannot apply an arithmetic operation to the type [boolean]")),
        Val::Values => Err(runtime_error("Cannot apply an arithmetic operation to the type [double[]]")),
    }
}

fn binary(operator: Binary, left: Val, right: Val) -> Result<Val> {
    if let Binary::Equal | Binary::NotEqual = operator {
        let equal = match (left, right) {
            (Val::Null | Val::Bool(_) | Val::Values, _) | (_, Val::Null | Val::Bool(_) | Val::Values) => {
                left == right
            }
            (Val::Int(left), Val::Int(right)) => left == right,
            _ => double(left)? == double(right)?,
        };
        return Ok(Val::Bool(equal == (operator == Binary::Equal)));
    }
    if let (Val::Int(left), Val::Int(right)) = (left, right) {
        let by_zero = || runtime_error("/ by zero");
        return Ok(match operator {
            Binary::Add => Val::Int(left.wrapping_add(right)),
            Binary::Subtract => Val::Int(left.wrapping_sub(right)),
            Binary::Multiply => Val::Int(left.wrapping_mul(right)),
            Binary::Divide if right == 0 => return Err(by_zero()),
            Binary::Divide => Val::Int(left.wrapping_div(right)),
            Binary::Remainder if right == 0 => return Err(by_zero()),
            Binary::Remainder => Val::Int(left.wrapping_rem(right)),
            Binary::Less => Val::Bool(left < right),
            Binary::LessOrEqual => Val::Bool(left <= right),
            Binary::Greater => Val::Bool(left > right),
            _ => Val::Bool(left >= right),
        });
    }
    let (left, right) = (double(left)?, double(right)?);
    Ok(match operator {
        Binary::Add => Val::Double(left + right),
        Binary::Subtract => Val::Double(left - right),
        Binary::Multiply => Val::Double(left * right),
        Binary::Divide => Val::Double(left / right),
        Binary::Remainder => Val::Double(left % right),
        Binary::Less => Val::Bool(left < right),
        Binary::LessOrEqual => Val::Bool(left <= right),
        Binary::Greater => Val::Bool(left > right),
        _ => Val::Bool(left >= right),
    })
}

fn call(function: Function, arguments: &[Val], scope: &Scope<'_>) -> Result<Val> {
    match (function, arguments) {
        (Function::One(function), [x]) => Ok(Val::Double(function(double(*x)?))),
        (Function::Two(function), [x, y]) => Ok(Val::Double(function(double(*x)?, double(*y)?))),
        (Function::Abs, [Val::Int(x)]) => Ok(Val::Int(x.wrapping_abs())),
        (Function::Abs, [x]) => Ok(Val::Double(double(*x)?.abs())),
        (Function::Round, [Val::Int(x)]) => Ok(Val::Int(*x)),
        (Function::Round, [x]) => Ok(Val::Int((double(*x)? + 0.5).floor() as i64)),
        (Function::Max, [Val::Int(x), Val::Int(y)]) => Ok(Val::Int(*x.max(y))),
        (Function::Min, [Val::Int(x), Val::Int(y)]) => Ok(Val::Int(*x.min(y))),
        // Java's are not numbers as soon as one is not.
        (Function::Max | Function::Min, [x, y]) => {
            let (x, y) = (double(*x)?, double(*y)?);
            Ok(Val::Double(match function {
                _ if x.is_nan() || y.is_nan() => f64::NAN,
                Function::Max => x.max(y),
                _ => x.min(y),
            }))
        }
        (Function::Moving(function), [Val::Values, rest @ ..]) => {
            let mut numbers = Vec::with_capacity(rest.len());
            for value in rest {
                numbers.push(match value {
                    Val::Bool(flag) => f64::from(u8::from(*flag)),
                    other => double(*other)?,
                });
            }
            function.apply(scope.values, &numbers).map(Val::Double)
        }
        (Function::Moving(_), _) => {
            Err(runtime_error("the first argument of a function of MovingFunctions must be [values]"))
        }
        _ => Err(runtime_error("wrong number of arguments")),
    }
}
