//! `stats`, `extended_stats` and `percentiles`: calls of SELECT that answer several columns, `stats(age).count`, `stats(age).sum` and so
//! on, each of which is an aggregate of its own. A search has them as one aggregation; see
//! [`search_aggregation`](super::search_aggregation).

use sqlparser::ast::{self, BinaryOperator};

use super::call::called;

/// Percentages of `percentiles` that names none.
const DEFAULT_PERCENTS: [&str; 7] = ["1.0", "5.0", "25.0", "50.0", "75.0", "95.0", "99.0"];

/// Columns of `stats`, by their aggregates.
const STATS: [(&str, &str); 5] =
    [("count", "count"), ("sum", "sum"), ("avg", "avg"), ("min", "min"), ("max", "max")];

/// Returns the columns of a call, by the names behind its own; `None` for another expression.
pub(super) fn statistics(expr: &ast::Expr) -> Option<Vec<(String, ast::Expr)>> {
    let ast::Expr::Function(call) = expr else { return None };
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    let (value, rest) = list.args.split_first()?;
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(of)) = value else { return None };
    let aggregate = |name: &str, args: Vec<ast::FunctionArg>| {
        let mut call = call.clone();
        call.name = ast::ObjectName::from(vec![ast::Ident::new(name)]);
        call.args = ast::FunctionArguments::List(ast::FunctionArgumentList { args, ..list.clone() });
        ast::Expr::Function(call)
    };
    let single = |(column, name): &(&str, &str)| ((*column).to_owned(), aggregate(name, vec![value.clone()]));
    match (called(call).as_str(), rest) {
        ("stats", []) => Some(STATS.iter().map(single).collect()),
        ("extended_stats", []) => {
            // Squares of integers may be none.
            let one = ast::Expr::Value(ast::Value::Number("1.0".to_owned(), false).into());
            let square = product(product(of.clone(), one), of.clone());
            let square = ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(square));
            let squares = ("sumOfSquares".to_owned(), aggregate("sum", vec![square]));
            let spread = [("variance", "var_pop"), ("stdDeviation", "stddev_pop")];
            Some(STATS.iter().map(single).chain([squares]).chain(spread.iter().map(single)).collect())
        }
        ("percentiles", percents) => {
            let percents: Vec<String> = match percents.is_empty() {
                true => DEFAULT_PERCENTS.map(str::to_owned).to_vec(),
                false => percents.iter().map(ToString::to_string).collect(),
            };
            let column = |percent: &String| {
                let number: f64 = percent.parse().ok()?;
                let given = ast::Value::Number(percent.clone(), false);
                let given = ast::FunctionArgExpr::Expr(ast::Expr::Value(given.into()));
                let args = vec![value.clone(), ast::FunctionArg::Unnamed(given)];
                Some((format!("{number:?}"), aggregate("percentile", args)))
            };
            percents.iter().map(column).collect()
        }
        _ => None,
    }
}

fn product(left: ast::Expr, right: ast::Expr) -> ast::Expr {
    let (left, right) = (Box::new(left), Box::new(right));
    ast::Expr::BinaryOp { left, op: BinaryOperator::Multiply, right }
}
