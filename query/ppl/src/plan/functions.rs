//! Functions of PPL, written with those that SQL's binder knows.

use millrace_sql::error::Result;
use sqlparser::ast::{self, BinaryOperator};

use super::expressions::name_of;
use super::syntax::{self, binary, call, is_not_null, is_null, number, string};

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
pub(crate) fn rewrite(expr: &mut ast::Expr) -> Result<()> {
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
        ("max", [_, _, ..]) => call("greatest_value", args),
        ("min", [_, _, ..]) => call("least_value", args),
        _ => return Ok(()),
    };
    *expr = ast::Expr::Nested(Box::new(replaced));
    Ok(())
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
