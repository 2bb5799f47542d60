//! `lookup`: columns of another index by key. It keeps the order.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::{Pipe, SortKey};
use super::{Planner, syntax};
use crate::command::{LookupCommand, LookupMode, LookupPair};

/// Names of the sides in the query that joins them.
const LEFT: &str = "\u{1}l";
const RIGHT: &str = "\u{1}r";

/// Plans the command.
pub(super) fn plan(
    command: &LookupCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let index = command.index.expression.clone();
    let mut other = Pipe::from_index(index, planner.names.unrestricted());
    let lookup_names = other.visible(planner.sql)?;
    let keys: Vec<&str> = command.keys.iter().map(|key| key.lookup_field.path.as_str()).collect();
    // Column of the other index, name of the answer.
    let outputs: Vec<(String, String)> = match &command.output {
        Some(output) => {
            let pair = |pair: &LookupPair| (pair.lookup_field.path.clone(), pair.input_field.path.clone());
            output.fields.iter().map(pair).collect()
        }
        None => lookup_names
            .iter()
            .filter(|name| !keys.contains(&name.as_str()))
            .map(|name| (name.clone(), name.clone()))
            .collect(),
    };
    let mode = command.output.as_ref().map_or(LookupMode::Replace, |output| output.mode);
    let needed: Vec<String> = keys
        .iter()
        .map(|key| (*key).to_owned())
        .chain(outputs.iter().map(|(from, _)| from.clone()))
        .collect();
    other.keep(&needed, planner.sql)?;
    pipe.level(planner.sql)?;
    let mut equal = Vec::with_capacity(command.keys.len());
    for key in &command.keys {
        let input = &key.input_field.path;
        let own = pipe.find(input, planner.sql)?.ok_or_else(|| SqlError::unknown_field(input))?;
        let own = syntax::path(&own).ok_or_else(|| SqlError::unknown_field(input))?;
        let (own, other) = (syntax::column_of(LEFT, &own), syntax::column_of(RIGHT, &key.lookup_field.path));
        equal.push(syntax::binary(own, ast::BinaryOperator::Eq, other));
    }
    pipe.close(planner.sql)?;
    let order: Vec<SortKey> = pipe.order().to_vec();
    let (names, own, visible) =
        (pipe.names().clone(), pipe.all_names(planner.sql)?, pipe.visible(planner.sql)?);
    let relation = pipe.into_whole_relation(planner.sql)?;
    let left = planner.sql.define(relation);
    let relation = other.into_relation(planner.sql)?;
    let right = planner.sql.define(relation);
    let mut columns: Vec<(String, ast::Expr)> = Vec::new();
    for name in own.iter().filter(|name| !outputs.iter().any(|(_, output)| output == *name)) {
        columns.push((name.clone(), syntax::column_of(LEFT, name)));
    }
    for (from, output) in &outputs {
        let found = syntax::column_of(RIGHT, from);
        let value = match (mode, own.contains(output)) {
            (LookupMode::Append, true) => {
                syntax::call("coalesce", vec![syntax::column_of(LEFT, output), found])
            }
            _ => found,
        };
        columns.push((output.clone(), value));
    }
    let items = columns.iter().map(|(name, expr)| (name.as_str(), expr.clone()));
    let mut select = syntax::select(items, Some(syntax::table(&left, Some(LEFT))));
    let constraint = syntax::all_of(equal).map_or(ast::JoinConstraint::None, ast::JoinConstraint::On);
    if let Some(from) = select.from.first_mut() {
        from.joins.push(ast::Join {
            relation: syntax::table(&right, Some(RIGHT)),
            global: false,
            join_operator: ast::JoinOperator::LeftOuter(constraint),
        });
    }
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    let mut pipe = Pipe::from_relation(relation, names);
    for name in
        own.iter().filter(|name| !visible.contains(name) && !outputs.iter().any(|(_, own)| own == *name))
    {
        pipe.hide(name);
    }
    let is_left = |key: &SortKey| {
        let path = syntax::path(&key.expr);
        path.is_some_and(|path| !outputs.iter().any(|(_, output)| *output == path))
    };
    let order: Vec<SortKey> = order.into_iter().take_while(is_left).collect();
    pipe.sort(order, planner.sql)?;
    Ok(pipe)
}
