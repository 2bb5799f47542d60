//! `graphlookup`: the documents that a walk along the edges of an index reaches. It keeps the order.
//!
//! The documents of the index are one value, which a subquery makes; the walk of each row is a function of it. With `batchmode` all rows
//! are one row before the walk.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::aggregates::ordered;
use super::names::NameSet;
use super::pipe::Pipe;
use super::{Planner, index_expression, syntax};
use crate::command::{GraphLookupCommand, GraphStart};

/// Documents of a graph, and one more: the function refuses these.
const READ_DOCUMENTS: u64 = 10_001;
/// Column with the documents.
const DOCUMENTS: &str = "\u{1}documents";
/// Column with the starts of all rows.
const STARTS: &str = "\u{1}starts";

/// Plans the command behind a pipe.
pub(super) fn plan(
    command: &GraphLookupCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let start = match &command.start {
        GraphStart::Field(field) => {
            pipe.check(&field.path, planner.sql)?;
            let own = syntax::column(&field.path);
            let own = if command.support_array { syntax::call("json_list", vec![own]) } else { own };
            match command.batch_mode {
                true => batch(&field.path, own, &mut pipe, planner)?,
                false => own,
            }
        }
        GraphStart::Values(_) if command.batch_mode && !pipe.visible(planner.sql)?.is_empty() => {
            return Err(SqlError::Unsupported("batchMode of graphlookup starts at a field".to_owned()));
        }
        GraphStart::Values(values) => {
            let mut all = Vec::with_capacity(values.len());
            for value in values {
                all.push(planner.expression(value, &mut pipe)?);
            }
            syntax::call("array", all)
        }
    };
    super::rename::check_name(&command.output.path)?;
    let documents = documents(command, planner)?;
    let depth_field = command.depth_field.as_ref().map_or("", |field| field.path.as_str());
    let args = vec![
        start,
        ast::Expr::Subquery(Box::new(documents)),
        syntax::string(&command.from_field.path),
        syntax::string(&command.to_field.path),
        syntax::number(command.max_depth),
        syntax::boolean(command.is_bidirectional),
        syntax::boolean(command.support_array),
        syntax::string(depth_field),
    ];
    pipe.extend(&command.output.path, syntax::call("graph_walk", args), planner.sql)?;
    if let (GraphStart::Field(field), true) = (&command.start, command.batch_mode) {
        pipe.keep(&[field.path.clone(), command.output.path.clone()], planner.sql)?;
    }
    Ok(pipe)
}

/// Makes one row of all rows: an array of these, in place of the field, and one of the starts, which it returns.
fn batch(
    field: &str,
    start: ast::Expr,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<ast::Expr> {
    let rows = row_object(&pipe.visible(planner.sql)?);
    let all = |value| syntax::call("take", vec![value, syntax::number(READ_DOCUMENTS)]);
    let rows = ordered(all(rows), pipe, planner)?;
    let starts = ordered(all(start), pipe, planner)?;
    pipe.aggregate(vec![(field.to_owned(), rows), (STARTS.to_owned(), starts)], Vec::new(), planner.sql)?;
    Ok(syntax::column(STARTS))
}

/// Makes an object of columns.
fn row_object(names: &[String]) -> ast::Expr {
    let members = names.iter().flat_map(|name| [syntax::string(name), syntax::column(name)]);
    syntax::call("row_object", members.collect())
}

/// Plans the command at the start of a query: one row.
pub(super) fn source(
    command: &GraphLookupCommand,
    names: NameSet,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if matches!(command.start, GraphStart::Field(_)) {
        return Err(SqlError::Semantic("graphlookup at the start of a query starts at values".to_owned()));
    }
    plan(command, Pipe::nothing(names), planner)
}

/// Makes the query of the documents of the index, as one array of objects.
fn documents(command: &GraphLookupCommand, planner: &mut Planner<'_, '_, '_>) -> Result<ast::Query> {
    let mut graph = Pipe::from_index(index_expression(&command.indices), planner.names.unrestricted());
    for field in [&command.from_field, &command.to_field] {
        graph.check(&field.path, planner.sql)?;
    }
    if let Some(filter) = &command.filter {
        let condition = planner.expression(filter, &mut graph)?;
        graph.filter(condition, planner.sql)?;
    }
    let object = row_object(&graph.visible(planner.sql)?);
    let documents = syntax::call("take", vec![object, syntax::number(READ_DOCUMENTS)]);
    graph.cut(0, READ_DOCUMENTS);
    graph.aggregate(vec![(DOCUMENTS.to_owned(), documents)], Vec::new(), planner.sql)?;
    graph.into_query(planner.sql)
}
