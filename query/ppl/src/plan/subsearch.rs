//! Subsearches of expressions: values, lists and tests, as queries of the tree of SQL.

use std::ops::ControlFlow;

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::ast::{Expression, Pipeline, subsearch_index};

/// Name of the rows of a list of tuples.
const TUPLES: &str = "\u{1}tuples";

/// A subsearch as its place has it.
enum PlannedSubsearch {
    Query(Box<ast::Query>),
    /// A relation with a column for each member of a tuple, by the name that the planner gave it.
    Tuples(String),
}

/// Plans the subsearches of an expression, which stands in the tree of SQL then.
pub(super) fn plan(
    expression: &Expression,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<ast::Expr> {
    if expression.subsearches.is_empty() {
        return Ok(expression.expr.clone());
    }
    // Names of the rows around a subsearch are ones of a scan or of a relation that is bound.
    pipe.level(planner.sql)?;
    let mut expr = expression.expr.clone();
    let mut planned = Vec::with_capacity(expression.subsearches.len());
    for (number, subsearch) in expression.subsearches.iter().enumerate() {
        planned.push(one(subsearch, use_of(&expr, number), planner)?);
    }
    let _ = ast::visit_expressions_mut(&mut expr, |expr| {
        if let Some(test) = tuple_test(expr, &planned) {
            *expr = test;
            return ControlFlow::<()>::Continue(());
        }
        use ast::Expr as E;
        let query = match expr {
            E::InSubquery { subquery, .. } | E::Exists { subquery, .. } => subquery,
            E::Subquery(subquery) => subquery,
            _ => return ControlFlow::Continue(()),
        };
        let own = subsearch_index(query).and_then(|number| planned.get(number));
        if let Some(PlannedSubsearch::Query(own)) = own {
            **query = own.as_ref().clone();
        }
        ControlFlow::Continue(())
    });
    Ok(expr)
}

/// Use of a subsearch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubsearchUse {
    /// A list that tuples of so many members are looked up in.
    Tuples(usize),
    /// A list of values.
    Values,
    /// One value, or a test for rows.
    Single,
}

/// Finds the use of the subsearch of a number.
fn use_of(expr: &ast::Expr, number: usize) -> SubsearchUse {
    let mut found = SubsearchUse::Single;
    let _ = ast::visit_expressions(expr, |expr| {
        match expr {
            ast::Expr::InSubquery { expr, subquery, .. } if subsearch_index(subquery) == Some(number) => {
                found = match expr.as_ref() {
                    ast::Expr::Tuple(members) => SubsearchUse::Tuples(members.len()),
                    _ => SubsearchUse::Values,
                };
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Plans a subsearch. Values and tests for rows are of one row each, so that only lists are cut.
fn one(
    subsearch: &Pipeline,
    place: SubsearchUse,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<PlannedSubsearch> {
    planner.correlated += 1;
    let inner = planner.pipeline(subsearch, None);
    planner.correlated -= 1;
    let mut inner = inner?;
    if let (Some(rows), true) = (planner.settings.subsearch_rows, place != SubsearchUse::Single) {
        inner.cut(0, rows);
    }
    let SubsearchUse::Tuples(members) = place else {
        return Ok(PlannedSubsearch::Query(Box::new(inner.into_query(planner.sql)?)));
    };
    let names = inner.visible(planner.sql)?;
    if names.len() != members {
        return Err(SqlError::Semantic(format!(
            "The number of columns in the left hand side of an IN subquery does not match the number of columns in the output of subquery: {members} and {}",
            names.len()
        )));
    }
    let relation = inner.into_relation(planner.sql)?;
    let table = planner.sql.define(relation);
    let keys: Vec<String> = (0..members).map(key).collect();
    let items = keys.iter().zip(&names).map(|(key, name)| (key.as_str(), syntax::column(name)));
    let select = syntax::select(items, Some(syntax::table(&table, None)));
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    Ok(PlannedSubsearch::Tuples(planner.sql.define(relation)))
}

fn key(number: usize) -> String {
    format!("\u{1}key{number}")
}

/// Writes the test of a tuple for a list as one for rows with the same members; `None` for another expression.
fn tuple_test(expr: &ast::Expr, planned: &[PlannedSubsearch]) -> Option<ast::Expr> {
    let ast::Expr::InSubquery { expr, subquery, negated } = expr else { return None };
    let ast::Expr::Tuple(members) = expr.as_ref() else { return None };
    let PlannedSubsearch::Tuples(table) = planned.get(subsearch_index(subquery)?)? else { return None };
    let equal = members.iter().enumerate().map(|(at, member)| {
        let own = syntax::column_of(TUPLES, &key(at));
        syntax::binary(own, ast::BinaryOperator::Eq, member.clone())
    });
    let mut select =
        syntax::select([("one", syntax::number(1))].into_iter(), Some(syntax::table(table, Some(TUPLES))));
    select.selection = syntax::all_of(equal.collect());
    let subquery = Box::new(syntax::query(select, Vec::new(), None));
    Some(ast::Expr::Exists { subquery, negated: *negated })
}
