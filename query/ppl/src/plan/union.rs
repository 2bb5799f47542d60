//! `append`, `appendpipe`, `union` and `multisearch`: rows of several pipelines, whose columns meet by name.

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::SqlType;
use sqlparser::ast;

use super::names::NameSet;
use super::pipe::{Pipe, SortKey};
use super::{Planner, syntax};
use crate::ast::PipelineSource;
use crate::command::{AppendCommand, AppendPipeCommand, MultiSearchCommand, UnionCommand, UnionDataset};

/// Makes a pipeline of the rows of a set expression, in the order of their numbers in a column that is hidden.
pub(super) fn in_order(
    rows: ast::SetExpr,
    place: &str,
    names: NameSet,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let relation = planner.sql.relation(&syntax::query_of(rows))?;
    let mut pipe = Pipe::from_relation(relation, names);
    let key = SortKey { expr: syntax::column(place), ascending: true, nulls_first: true };
    pipe.sort(vec![key], planner.sql)?;
    pipe.hide(place);
    Ok(pipe)
}

/// Plans `append`.
pub(super) fn append(command: &AppendCommand, pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    if matches!(command.pipeline.source, PipelineSource::Empty) {
        return Ok(pipe);
    }
    let mut other = planner.pipeline(&command.pipeline, None)?;
    if other.visible(planner.sql)?.is_empty() {
        return Ok(pipe);
    }
    if let Some(rows) = planner.settings.subsearch_rows {
        other.cut(0, rows);
    }
    united(vec![pipe, other], planner)
}

/// Plans `appendpipe`: the input runs once.
pub(super) fn appendpipe(
    command: &AppendPipeCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    pipe.close(planner.sql)?;
    let (one, other) = pipe.shared(planner.sql)?;
    let other = planner.pipeline(&command.pipeline, Some(other))?;
    united(vec![one, other], planner)
}

/// Plans `union`.
pub(super) fn union(
    command: &UnionCommand,
    pipe: Option<Pipe>,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let mut parts: Vec<Pipe> = pipe.into_iter().collect();
    for dataset in &command.datasets {
        parts.push(match dataset {
            UnionDataset::Pipeline(pipeline) => planner.pipeline(pipeline, None)?,
            UnionDataset::Index(index) => {
                Pipe::from_index(index.expression.clone(), planner.names.unrestricted())
            }
        });
    }
    if parts.len() < 2 {
        return Err(SqlError::Semantic(
            "Union command requires at least two datasets. Provided: 1".to_owned(),
        ));
    }
    let mut pipe = united(parts, planner)?;
    if let Some(rows) = command.maxout.filter(|rows| *rows > 0) {
        pipe.cut(0, rows);
    }
    Ok(pipe)
}

/// Plans `multisearch`: the newest rows come first where they have a time.
pub(super) fn multisearch(command: &MultiSearchCommand, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let mut parts = Vec::with_capacity(command.pipelines.len());
    for pipeline in &command.pipelines {
        parts.push(planner.pipeline(pipeline, None)?);
    }
    let mut pipe = united(parts, planner)?;
    if pipe.visible(planner.sql)?.iter().any(|name| name == "@timestamp") {
        let time = SortKey { expr: syntax::column("@timestamp"), ascending: false, nulls_first: false };
        pipe.sort(vec![time], planner.sql)?;
    }
    Ok(pipe)
}

/// Unites pipes: the rows of each in their order, one part after the other.
pub(super) fn united(mut parts: Vec<Pipe>, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let mut typed: Vec<(String, SqlType)> = Vec::new();
    let mut own_names: Vec<Vec<String>> = Vec::with_capacity(parts.len());
    for part in &mut parts {
        let own = part.typed(planner.sql)?;
        for (name, ty) in &own {
            match typed.iter().find(|(known, _)| known == name) {
                None => typed.push((name.clone(), *ty)),
                Some((_, known)) if fits(*known, *ty) => {}
                Some((_, known)) => {
                    return Err(SqlError::Semantic(format!(
                        "Unable to process column '{name}' due to incompatible types: [{}] and [{}]",
                        super::type_name(*known),
                        super::type_name(*ty)
                    )));
                }
            }
        }
        own_names.push(own.into_iter().map(|(name, _)| name).collect());
    }
    let names = planner.names.unrestricted();
    // The number of the part that a row is of, and that of the row in it.
    let (part_name, row_name) = (planner.fresh_name("part"), planner.fresh_name("row"));
    let mut body: Option<ast::SetExpr> = None;
    for (number, (mut part, own)) in parts.into_iter().zip(own_names).enumerate() {
        super::join::numbered(&mut part, &row_name, planner)?;
        let relation = part.into_whole_relation(planner.sql)?;
        let table = planner.sql.define(relation);
        let items = typed.iter().map(|(name, ty)| {
            let expr = if own.contains(name) { syntax::column(name) } else { missing(*ty, &row_name) };
            (name.as_str(), expr)
        });
        let items = items.chain([
            (part_name.as_str(), syntax::number(number)),
            (row_name.as_str(), syntax::column(&row_name)),
        ]);
        let select = ast::SetExpr::Select(Box::new(syntax::select(items, Some(syntax::table(&table, None)))));
        body = Some(match body {
            None => select,
            Some(body) => syntax::union_all(body, select),
        });
    }
    let Some(body) = body else { return Err(SqlError::Semantic("nothing is united".to_owned())) };
    let relation = planner.sql.relation(&syntax::query_of(body))?;
    let mut pipe = Pipe::from_relation(relation, names);
    let keys = [&part_name, &row_name].map(|name| SortKey {
        expr: syntax::column(name),
        ascending: true,
        nulls_first: true,
    });
    pipe.sort(keys.into(), planner.sql)?;
    pipe.hide(&part_name);
    pipe.hide(&row_name);
    Ok(pipe)
}

/// Makes the null of a column that a part does not have. It reads the number of the row: a condition on a constant would come down
/// below an aggregation without groups, which has a row of nothing, too.
fn missing(ty: SqlType, row_name: &str) -> ast::Expr {
    let name = match ty {
        SqlType::Byte => "TINYINT",
        SqlType::Short => "SMALLINT",
        SqlType::Integer => "INT",
        SqlType::Long => "BIGINT",
        SqlType::Float => "FLOAT",
        SqlType::Double => "DOUBLE",
        SqlType::Boolean => "BOOLEAN",
        SqlType::Date => "DATE",
        SqlType::Time => "TIME",
        SqlType::Ip => "IP",
        ty if ty.is_temporal() => "TIMESTAMP",
        ty if ty.is_string() => "STRING",
        _ => return syntax::null(),
    };
    let name = ast::ObjectName::from(vec![ast::Ident::new(name)]);
    let null = syntax::cast(syntax::null(), ast::DataType::Custom(name, Vec::new()));
    let never = syntax::binary(syntax::column(row_name), ast::BinaryOperator::Lt, syntax::number(0));
    syntax::case(vec![(never, null.clone())], Some(null))
}

/// Returns whether columns of two types become one.
fn fits(one: SqlType, other: SqlType) -> bool {
    one == other
        || one == SqlType::Undefined
        || other == SqlType::Undefined
        || one.is_number() && other.is_number() && one.is_integer() == other.is_integer()
        || one.is_string() && other.is_string()
        || one.is_temporal() && other.is_temporal()
}
