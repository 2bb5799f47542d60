//! `describe`: a row for each field of indices, as JDBC lists columns. It sets the order: that of the fields by path. `show`: no data
//! sources.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::names::NameSet;
use super::pipe::{Pipe, SortKey};
use super::{Planner, index_expression, syntax, type_name};
use crate::command::DescribeCommand;

/// Name of the cluster in metadata.
const CLUSTER: &str = "millrace";

/// Columns of the answer.
const COLUMNS: &[&str] = &[
    "TABLE_CAT",
    "TABLE_SCHEM",
    "TABLE_NAME",
    "COLUMN_NAME",
    "DATA_TYPE",
    "TYPE_NAME",
    "COLUMN_SIZE",
    "BUFFER_LENGTH",
    "DECIMAL_DIGITS",
    "NUM_PREC_RADIX",
    "NULLABLE",
    "REMARKS",
    "COLUMN_DEF",
    "SQL_DATA_TYPE",
    "SQL_DATETIME_SUB",
    "CHAR_OCTET_LENGTH",
    "ORDINAL_POSITION",
    "IS_NULLABLE",
    "SCOPE_CATALOG",
    "SCOPE_SCHEMA",
    "SCOPE_TABLE",
    "SOURCE_DATA_TYPE",
    "IS_AUTOINCREMENT",
    "IS_GENERATEDCOLUMN",
];

/// Plans the source.
pub(super) fn plan(
    command: &DescribeCommand,
    names: NameSet,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let expression = index_expression(&command.indices);
    let mut body: Option<ast::SetExpr> = None;
    for (at, path) in planner.sql.field_paths(&expression).iter().enumerate() {
        let Some(field) = planner.sql.field(&expression, path)? else { continue };
        let text = || ast::DataType::String(None);
        let items = COLUMNS.iter().map(|name| {
            let value = match *name {
                "TABLE_CAT" => syntax::string(CLUSTER),
                "TABLE_NAME" => syntax::string(&expression),
                "COLUMN_NAME" => syntax::string(path),
                "TYPE_NAME" => syntax::string(type_name(field.ty)),
                "NUM_PREC_RADIX" => syntax::number(10),
                "NULLABLE" => syntax::number(2),
                "ORDINAL_POSITION" => syntax::number(at),
                "IS_NULLABLE" | "IS_GENERATEDCOLUMN" => syntax::string(""),
                "IS_AUTOINCREMENT" => syntax::string("NO"),
                _ => syntax::cast(syntax::null(), text()),
            };
            (*name, value)
        });
        let select = ast::SetExpr::Select(Box::new(syntax::select(items, None)));
        body = Some(match body {
            None => select,
            Some(body) => syntax::union_all(body, select),
        });
    }
    let Some(body) = body else { return no_rows(COLUMNS, names, planner) };
    let relation = planner.sql.relation(&syntax::query_of(body))?;
    let mut pipe = Pipe::from_relation(relation, names);
    let key = SortKey { expr: syntax::column("ORDINAL_POSITION"), ascending: true, nulls_first: true };
    pipe.sort(vec![key], planner.sql)?;
    Ok(pipe)
}

/// Plans `show datasources`: there are none.
pub(super) fn no_sources(names: NameSet, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    no_rows(&["DATASOURCE_NAME", "CONNECTOR_TYPE"], names, planner)
}

/// Makes the rows of nothing: columns of texts.
fn no_rows(columns: &[&str], names: NameSet, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let items = columns.iter().map(|name| {
        let text = syntax::cast(syntax::null(), ast::DataType::String(None));
        (*name, text)
    });
    let mut select = syntax::select(items, None);
    select.selection = Some(syntax::boolean(false));
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    Ok(Pipe::from_relation(relation, names))
}
