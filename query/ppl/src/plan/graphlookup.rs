//! `graphlookup`: the documents that a walk along the edges of an index reaches. It keeps the order.
//!
//! The documents of the index are one value, which a subquery makes; the walk of each row is a function of it.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::names::NameSet;
use super::pipe::Pipe;
use super::{Planner, index_expression, syntax};
use crate::command::{GraphLookupCommand, GraphStart};

/// Documents of a graph, and one more: the function refuses these.
const READ_DOCUMENTS: u64 = 10_001;
/// Column with the documents.
const DOCUMENTS: &str = "\u{1}documents";

/// Plans the command behind a pipe.
pub(super) fn plan(
    command: &GraphLookupCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.batch_mode {
        return Err(SqlError::Unsupported("batchMode of graphlookup is not supported".to_owned()));
    }
    let start = match &command.start {
        GraphStart::Field(field) => {
            pipe.check(&field.path, planner.sql)?;
            let field = syntax::column(&field.path);
            if command.support_array { syntax::call("json_list", vec![field]) } else { field }
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
    Ok(pipe)
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
    let members = graph.visible(planner.sql)?;
    let members = members.iter().flat_map(|name| [syntax::string(name), syntax::column(name)]).collect();
    let object = syntax::call("row_object", members);
    let documents = syntax::call("take", vec![object, syntax::number(READ_DOCUMENTS)]);
    graph.cut(0, READ_DOCUMENTS);
    graph.aggregate(vec![(DOCUMENTS.to_owned(), documents)], Vec::new(), planner.sql)?;
    graph.into_query(planner.sql)
}
