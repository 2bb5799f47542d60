//! `fieldsummary`: figures of each field, a row each. It sets the order: that of the columns before.

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::SqlType;
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, paths_of, syntax, type_name, union};
use crate::command::FieldSummaryCommand;

/// Most fields, each of which is a part of the plan.
const MAX_FIELDS: usize = 100;

/// Plans the command.
pub(super) fn plan(
    command: &FieldSummaryCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let named = paths_of(&command.fields);
    for name in &named {
        pipe.check(name, planner.sql)?;
    }
    let typed = pipe.typed(planner.sql)?;
    let is_shown =
        |(name, ty): &(String, SqlType)| !ty.is_json() && (named.is_empty() || named.contains(name));
    let typed: Vec<(String, SqlType)> = typed.into_iter().filter(is_shown).collect();
    if typed.is_empty() || typed.len() > MAX_FIELDS {
        return Err(SqlError::TooLarge(format!("fieldsummary answers from one to {MAX_FIELDS} fields")));
    }
    let place = planner.fresh_name("place");
    let all = pipe.names().unrestricted();
    let shown: Vec<String> = typed.iter().map(|(name, _)| name.clone()).collect();
    pipe.keep(&shown, planner.sql)?;
    pipe.unorder();
    let relation = pipe.into_whole_relation(planner.sql)?;
    let relation = planner.sql.share(relation);
    let text = |expr: ast::Expr| syntax::cast(expr, ast::DataType::String(None));
    let double = || ast::DataType::Double(ast::ExactNumberInfo::None);
    let mut selects = Vec::new();
    for (at, (name, ty)) in typed.iter().enumerate() {
        let table = planner.sql.define(relation.clone());
        let of = |function: &str| syntax::call(function, vec![syntax::column(name)]);
        let number = |function: &str| match ty.is_number() {
            true => syntax::cast(of(function), double()),
            false => syntax::cast(syntax::null(), double()),
        };
        let nulls = syntax::binary(syntax::count_rows(), ast::BinaryOperator::Minus, of("count"));
        let mut items = vec![
            ("Field", syntax::string(name)),
            ("Count", of("count")),
            ("Distinct", syntax::distinct_count(syntax::column(name))),
            ("Min", text(of("min"))),
            ("Max", text(of("max"))),
            ("Avg", number("avg")),
            ("Stddev", number("stddev_samp")),
        ];
        if command.nulls {
            items.push(("Nulls", nulls));
        }
        items.extend([("Type", syntax::string(type_name(*ty))), (place.as_str(), syntax::number(at))]);
        let items = items.into_iter();
        let select = ast::SetExpr::Select(Box::new(syntax::select(items, Some(syntax::table(&table, None)))));
        selects.push(select);
    }
    let Some(rows) = selects.into_iter().reduce(syntax::union_all) else {
        return Err(SqlError::Semantic("there is no field to sum up".to_owned()));
    };
    union::in_order(rows, &place, all, planner)
}
