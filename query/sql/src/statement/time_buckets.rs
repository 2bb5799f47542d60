//! `DATE_TRUNC`, and `HISTOGRAM` of Elasticsearch's dialect, written with functions that the binder knows.
//!
//! They group times for charts. One unit of time is a bucket, from seconds to years. Buckets of numbers are the function `histogram`.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Interval, Statement, Value,
};
use sqlparser::parser::Parser;

use crate::ast_walk::visit_expressions_mut;
use crate::dialect::OpenSearchDialect;
use crate::error::{Result, SqlError};
use crate::request::SqlDialect;

/// Stands for the value of a call in the text that it becomes.
const ARGUMENT: &str = "bucketed_value";

/// Replaces calls of the two functions; returns whether there are any. OpenSearch's dialect has a `HISTOGRAM` of its own, which stays.
pub(super) fn replace_time_buckets(statement: &mut Statement, dialect: SqlDialect) -> Result<bool> {
    let mut is_any = false;
    let mut failure = None;
    let _ = visit_expressions_mut(statement, |expr| match replacement(expr, dialect) {
        Ok(None) => ControlFlow::Continue(()),
        Ok(Some(other)) => {
            *expr = other;
            is_any = true;
            ControlFlow::Continue(())
        }
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    });
    failure.map_or(Ok(is_any), Err)
}

/// Returns the expression that replaces a call; `None` for another expression.
fn replacement(expr: &Expr, dialect: SqlDialect) -> Result<Option<Expr>> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return Ok(None);
    };
    let name = name.to_string();
    let (is_histogram, is_date_trunc) =
        (name.eq_ignore_ascii_case("histogram"), name.eq_ignore_ascii_case("date_trunc"));
    let is_histogram = is_histogram && dialect == SqlDialect::Elasticsearch;
    if !is_histogram && !is_date_trunc {
        return Ok(None);
    }
    let args: Vec<&Expr> = list
        .args
        .iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let usage = || {
        SqlError::Semantic("expected HISTOGRAM(value, INTERVAL 1 unit), HISTOGRAM(value, number) or DATE_TRUNC('unit', value)".to_owned())
    };
    let [first, second] = args[..] else { return Err(usage()) };
    match (is_date_trunc, first, second) {
        (true, Expr::Value(unit), value) => match &unit.value {
            Value::SingleQuotedString(unit) => start_of(unit, value).map(Some),
            _ => Err(usage()),
        },
        (false, value, Expr::Interval(Interval { value: count, leading_field: Some(unit), .. })) => {
            match count.to_string().trim_matches('\'') {
                "1" => start_of(&unit.to_string(), value).map(Some),
                other => Err(SqlError::Unsupported(format!(
                    "a bucket of [{other} {unit}] is not supported, one of 1 {unit} is"
                ))),
            }
        }
        (false, _, Expr::Value(width)) => match &width.value {
            Value::Number(text, _) if text.parse().is_ok_and(|width: f64| width > 0.0) => Ok(None),
            Value::Number(text, _) => {
                Err(SqlError::Semantic(format!("the width [{text}] of a bucket is not greater than 0")))
            }
            _ => Err(usage()),
        },
        _ => Err(usage()),
    }
}

/// Writes the start of the unit that a time is in.
fn start_of(unit: &str, value: &Expr) -> Result<Expr> {
    let lower = unit.to_ascii_lowercase();
    let unit = match lower.trim_end_matches('s') {
        "second" => "s",
        "minute" => "m",
        "hour" => "h",
        "day" => "d",
        "week" => "w",
        "month" => "M",
        "quarter" => "q",
        "year" => "y",
        other => {
            return Err(SqlError::Unsupported(format!("the unit [{other}] of a bucket is not supported")));
        }
    };
    filled(&format!("time_bucket({ARGUMENT}, 1, '{unit}')"), value)
}

/// Parses an expression and puts the value of a call into it.
fn filled(text: &str, value: &Expr) -> Result<Expr> {
    let dialect = OpenSearchDialect::default();
    let parsed = Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    let mut expr = parsed.map_err(|error| SqlError::Syntax(error.to_string()))?;
    let _ = visit_expressions_mut(&mut expr, |inner| {
        if matches!(inner, Expr::Identifier(ident) if ident.value == ARGUMENT) {
            *inner = value.clone();
        }
        ControlFlow::Continue(())
    });
    Ok(expr)
}

#[cfg(test)]
mod tests {
    use super::super::{Statement, counted_in};
    use crate::request::SqlDialect;

    #[test]
    fn buckets_are_written_with_known_functions() {
        let parse = |text: &str| counted_in(text, SqlDialect::Elasticsearch).map(|(statement, _)| statement);
        let day = "time_bucket(`at`, 1, 'd')";
        for (text, expected) in [
            ("SELECT HISTOGRAM(\"at\", INTERVAL 1 DAY) AS d FROM t", format!("SELECT {day} AS d FROM `t`")),
            ("SELECT DATE_TRUNC('days', \"at\") FROM t", format!("SELECT {day} FROM `t`")),
            ("SELECT HISTOGRAM(n, 5) FROM t", "SELECT HISTOGRAM(n, 5) FROM `t`".to_owned()),
            (
                "SELECT DATE_TRUNC('week', \"at\" + INTERVAL 1 HOUR) FROM t",
                "SELECT time_bucket(`at` + INTERVAL 1 HOUR, 1, 'w') FROM `t`".to_owned(),
            ),
        ] {
            let Statement::Query(query, _) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(query.to_string(), expected);
        }
        let Ok((Statement::Query(query, _), _)) =
            counted_in("SELECT histogram(n, 0) FROM t", SqlDialect::OpenSearch)
        else {
            panic!("a histogram of OpenSearch")
        };
        assert_eq!(query.to_string(), "SELECT histogram(n, 0) FROM `t`");
        for (text, words) in [
            ("SELECT HISTOGRAM(a, INTERVAL 2 DAY)", "2"),
            ("SELECT DATE_TRUNC('decade', a)", "decade"),
            ("SELECT HISTOGRAM(a)", "HISTOGRAM"),
            ("SELECT HISTOGRAM(a, 0)", "[0]"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
