//! `appendcol`: columns of another pipeline over the same source, row by row.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::{Pipe, SortKey};
use super::{Planner, join, syntax};
use crate::ast::{Pipeline, PipelineSource};
use crate::command::AppendColCommand;

/// Names of the sides in the query that joins them, and of the number of a row.
const LEFT: &str = "\u{1}l";
const RIGHT: &str = "\u{1}r";
const ROW: &str = "\u{1}col_row";

/// Plans the command; `outer` is the pipeline that it is of.
pub(super) fn plan(
    command: &AppendColCommand,
    mut pipe: Pipe,
    outer: &Pipeline,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let own = Pipeline {
        source: match &command.pipeline.source {
            PipelineSource::OuterSource => outer.source.clone(),
            other => other.clone(),
        },
        ..command.pipeline.as_ref().clone()
    };
    let mut other = planner.pipeline(&own, None)?;
    let (left_names, right_names) = (pipe.visible(planner.sql)?, other.visible(planner.sql)?);
    join::numbered(&mut pipe, ROW, planner)?;
    join::numbered(&mut other, ROW, planner)?;
    let names = pipe.names().unrestricted();
    let left = pipe.into_whole_relation(planner.sql)?;
    let left = planner.sql.define(left);
    let right = other.into_whole_relation(planner.sql)?;
    let right = planner.sql.define(right);
    let mut columns: Vec<(String, ast::Expr)> = Vec::new();
    for name in &left_names {
        let own = syntax::column_of(LEFT, name);
        let expr = match command.is_override && right_names.contains(name) {
            // Rows behind those of the subsearch stay as they are.
            true => {
                let is_there = syntax::is_not_null(syntax::column_of(RIGHT, ROW));
                syntax::case(vec![(is_there, syntax::column_of(RIGHT, name))], Some(own))
            }
            false => own,
        };
        columns.push((name.clone(), expr));
    }
    let added = right_names.iter().filter(|name| !left_names.contains(name));
    columns.extend(added.map(|name| (name.clone(), syntax::column_of(RIGHT, name))));
    let rows = [LEFT, RIGHT].map(|side| syntax::column_of(side, ROW));
    columns.push((ROW.to_owned(), syntax::call("coalesce", rows.to_vec())));
    let items = columns.iter().map(|(name, expr)| (name.as_str(), expr.clone()));
    let mut select = syntax::select(items, Some(syntax::table(&left, Some(LEFT))));
    let [one, two] = rows;
    let equal = syntax::binary(one, ast::BinaryOperator::Eq, two);
    if let Some(from) = select.from.first_mut() {
        from.joins.push(ast::Join {
            relation: syntax::table(&right, Some(RIGHT)),
            global: false,
            join_operator: ast::JoinOperator::FullOuter(ast::JoinConstraint::On(equal)),
        });
    }
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    let mut pipe = Pipe::from_relation(relation, names);
    let key = SortKey { expr: syntax::column(ROW), ascending: true, nulls_first: false };
    pipe.sort(vec![key], planner.sql)?;
    pipe.hide(ROW);
    if right_names.is_empty() {
        return Err(SqlError::Semantic("appendcol adds no column".to_owned()));
    }
    Ok(pipe)
}
