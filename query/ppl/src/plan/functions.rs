//! Functions of PPL, written with those that SQL's binder knows.

use millrace_sql::error::Result;
use sqlparser::ast::{self, BinaryOperator};

use super::expressions::name_of;
use super::syntax::{self, binary, call, is_not_null, is_null, number, string};
use super::times;
use crate::parser::time_of_text;

/// Returns the arguments of a call that are expressions.
pub(crate) fn arguments(call: &ast::Function) -> Vec<ast::Expr> {
    let ast::FunctionArguments::List(list) = &call.args else { return Vec::new() };
    let args = list.args.iter().filter_map(|arg| match arg {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    args.collect()
}

/// Replaces a call of a function that SQL has under another name or form.
pub(crate) fn rewrite(expr: &mut ast::Expr, now_ms: i64) -> Result<()> {
    if let ast::Expr::RLike { negated, expr: value, pattern, .. } = expr {
        let matches = call("regexp_match", vec![value.as_ref().clone(), pattern.as_ref().clone()]);
        *expr = if *negated { syntax::not(matches) } else { matches };
        return Ok(());
    }
    let ast::Expr::Function(function) = expr else { return Ok(()) };
    if function.over.is_some() {
        return Ok(());
    }
    let name = name_of(function);
    let args = arguments(function);
    let replaced = match (name.as_str(), args.as_slice()) {
        ("ispresent" | "isnotnull", [value]) => is_not_null(value.clone()),
        ("isnull", [value]) => is_null(value.clone()),
        // The index answers this form. Other arguments stay single, since nested calls would double them.
        ("isempty", [value]) if syntax::path(value).is_some() => {
            either(is_null(value.clone()), binary(value.clone(), BinaryOperator::Eq, string("")))
        }
        ("like" | "ilike", [value, pattern]) => like(value, pattern),
        ("like", [value, pattern, case]) => match is_true(case) {
            true => call("like_exactly", vec![value.clone(), pattern.clone()]),
            false => like(value, pattern),
        },
        ("contains", [value, part]) => {
            let (value, part) = (call("lower", vec![value.clone()]), call("lower", vec![part.clone()]));
            binary(call("locate", vec![part, value]), BinaryOperator::Gt, number(0))
        }
        ("replace" | "regexp_replace", [_, _, _]) => call("regexp_replace", args),
        ("regexp", [_, _]) => binary(call("regexp", args), BinaryOperator::Eq, number(1)),
        ("sum", [_, _, ..]) => sum_of(args),
        ("avg", [_, _, ..]) => {
            let count = syntax::decimal(args.len() as f64);
            binary(ast::Expr::Nested(Box::new(sum_of(args))), BinaryOperator::Divide, count)
        }
        ("rand", _) => syntax::cast(call("rand", args), ast::DataType::Double(ast::ExactNumberInfo::None)),
        ("earliest" | "latest", [ast::Expr::Value(literal), value]) => match &literal.value {
            ast::Value::SingleQuotedString(text) => {
                let op = if name == "earliest" { BinaryOperator::GtEq } else { BinaryOperator::LtEq };
                let at = times::instant(&time_of_text(text), now_ms)?;
                binary(value.clone(), op, call("timestamp", vec![string(&times::shown(at))]))
            }
            _ => return Ok(()),
        },
        ("max", [_, _, ..]) => call("greatest_value", args),
        ("min", [_, _, ..]) => call("least_value", args),
        _ => return Ok(()),
    };
    *expr = ast::Expr::Nested(Box::new(replaced));
    Ok(())
}

/// Writes `mvmap(array, value)`, whose value names the array for its element, as `transform` with a lambda.
pub(super) fn write_lambda(function: &mut ast::Function) {
    let args = arguments(function);
    let [array, body] = args.as_slice() else { return };
    let lambda = match body {
        ast::Expr::Lambda(_) => body.clone(),
        body => {
            let Some(name) = syntax::paths(array).into_iter().next() else { return };
            syntax::lambda(&[name], body.clone())
        }
    };
    if let ast::Expr::Function(own) = call("transform", vec![array.clone(), lambda]) {
        *function = own;
    }
}

/// Writes aggregates of one value, which stand for it where there are no groups.
pub(super) fn write_values(expr: &mut ast::Expr) {
    let _ = ast::visit_expressions_mut(expr, |expr| {
        if let ast::Expr::Function(function) = expr
            && function.over.is_none()
            && let [value] = arguments(function).as_slice()
        {
            match name_of(function).as_str() {
                "sum" | "max" | "min" => *expr = ast::Expr::Nested(Box::new(value.clone())),
                "avg" => {
                    *expr = syntax::cast(value.clone(), ast::DataType::Double(ast::ExactNumberInfo::None))
                }
                _ => {}
            }
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

fn either(one: ast::Expr, other: ast::Expr) -> ast::Expr {
    ast::Expr::BinaryOp { left: Box::new(one), op: BinaryOperator::Or, right: Box::new(other) }
}

fn sum_of(args: Vec<ast::Expr>) -> ast::Expr {
    syntax::sum(args).unwrap_or_else(syntax::null)
}

fn is_true(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(true)))
}

fn like(value: &ast::Expr, pattern: &ast::Expr) -> ast::Expr {
    ast::Expr::Like {
        negated: false,
        any: false,
        expr: Box::new(value.clone()),
        pattern: Box::new(pattern.clone()),
        escape_char: None,
    }
}
