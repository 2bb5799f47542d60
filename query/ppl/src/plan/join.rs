//! `join`: rows of two relations side by side. It destroys the order.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::sort::number_rows;
use super::{Planner, syntax};
use crate::ast::SourceRelation;
use crate::command::{JoinCommand, JoinCriteria, JoinKind};

/// Names of the sides in the query that joins them.
const LEFT: &str = "\u{1}l";
const RIGHT: &str = "\u{1}r";
/// Column with the number of a row of the right among those of one key.
const NUMBER: &str = "\u{1}join";

/// Plans the command.
pub(super) fn plan(command: &JoinCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let gated = [(JoinKind::Right, "right"), (JoinKind::Full, "full"), (JoinKind::Cross, "cross")];
    if let Some((_, name)) =
        gated.iter().find(|(kind, _)| *kind == command.kind && !planner.settings.all_joins)
    {
        return Err(SqlError::Unsupported(format!(
            "the {name} join is not allowed by plugins.calcite.all_join_types.allowed"
        )));
    }
    let mut right = planner.relation_source(&command.right)?;
    if let (SourceRelation::Subsearch { .. }, Some(rows)) = (&command.right, planner.settings.join_rows) {
        right.cut(0, rows);
    }
    let source_alias = match &command.right {
        SourceRelation::Indices { alias, .. } | SourceRelation::Subsearch { alias, .. } => alias.as_ref(),
    };
    let right_alias = command.right_alias.as_ref().or(source_alias).map(|alias| alias.path.clone());
    let right_name = right_alias.clone().or_else(|| right.index().map(str::to_owned));
    let left_alias = command.left_alias.as_ref().map(|alias| alias.path.clone());
    let left_names = pipe.visible(planner.sql)?;
    let right_names = right.visible(planner.sql)?;
    let fields: Option<Vec<String>> = match &command.criteria {
        // `on name` means the field of both sides.
        JoinCriteria::On(condition) if syntax::path(&condition.expr).is_some() => {
            Some(syntax::path(&condition.expr).into_iter().collect())
        }
        JoinCriteria::On(_) => None,
        JoinCriteria::Fields(fields) => Some(super::paths_of(fields)),
        JoinCriteria::Common if command.kind == JoinKind::Cross => None,
        JoinCriteria::Common => {
            Some(left_names.iter().filter(|name| right_names.contains(name)).cloned().collect())
        }
    };
    let on = match &command.criteria {
        JoinCriteria::On(condition) if fields.is_none() => {
            if !condition.subsearches.is_empty() {
                return Err(SqlError::Unsupported("a subsearch in ON of a join is not supported".to_owned()));
            }
            Some(condition.expr.clone())
        }
        _ => None,
    };
    if let Some(most) = command.max.filter(|most| *most > 0) {
        let keys = match (&fields, &on) {
            (Some(fields), _) => fields.clone(),
            (None, Some(condition)) => {
                let sides =
                    Sides { left: (&pipe, left_alias.as_deref()), right: (&right, right_name.as_deref()) };
                right_keys(condition, &sides, planner)?
            }
            (None, None) => Vec::new(),
        };
        cut_partners(&mut right, &keys, most, planner)?;
    }
    pipe.level(planner.sql)?;
    right.level(planner.sql)?;
    let sides = Sides { left: (&pipe, left_alias.as_deref()), right: (&right, right_name.as_deref()) };
    let condition = match (&fields, on) {
        (Some(fields), _) => {
            let mut equal = Vec::with_capacity(fields.len());
            for field in fields {
                let (one, other) =
                    (sides.own(&pipe, LEFT, field, planner)?, sides.own(&right, RIGHT, field, planner)?);
                equal.push(syntax::binary(one, ast::BinaryOperator::Eq, other));
            }
            syntax::all_of(equal)
        }
        (None, Some(mut condition)) => {
            super::expressions::resolve(&mut condition, planner.sql.now_ms(), &mut |path| {
                sides.find(path, planner)
            })?;
            Some(condition)
        }
        (None, None) => None,
    };
    joined(command, (pipe, left_names), (right, right_names), fields, condition, right_name, planner)
}

/// Lists the columns of the right that ON compares with columns of the left.
fn right_keys(
    condition: &ast::Expr,
    sides: &Sides<'_>,
    planner: &Planner<'_, '_, '_>,
) -> Result<Vec<String>> {
    let (mut keys, mut open) = (Vec::new(), vec![condition]);
    while let Some(condition) = open.pop() {
        match condition {
            ast::Expr::Nested(inner) => open.push(inner),
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                open.extend([&**left, &**right])
            }
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => {
                let mut columns = Vec::with_capacity(2);
                for side in [left, right] {
                    columns.push(match syntax::path(side) {
                        Some(path) => sides.right_column(&path, planner)?,
                        None => return Err(needs_equalities()),
                    });
                }
                match (columns.pop().flatten(), columns.pop().flatten()) {
                    (Some(key), None) | (None, Some(key)) => keys.push(key),
                    _ => return Err(needs_equalities()),
                }
            }
            _ => return Err(needs_equalities()),
        }
    }
    Ok(keys)
}

fn needs_equalities() -> SqlError {
    SqlError::Unsupported(
        "max of a join is only supported where ON compares columns of both sides by equality".to_owned(),
    )
}

/// Leaves so many rows of the right for each key.
fn cut_partners(
    right: &mut Pipe,
    fields: &[String],
    most: u64,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<()> {
    right.level(planner.sql)?;
    let partition = fields.iter().map(|name| syntax::column(name)).collect();
    let order = right.window_order(planner.sql)?;
    let number = syntax::over(syntax::call("row_number", Vec::new()), syntax::window(partition, order, None));
    right.extend_window(NUMBER, number, planner.sql)?;
    let first = syntax::binary(syntax::column(NUMBER), ast::BinaryOperator::LtEq, syntax::number(most));
    right.filter(first, planner.sql)?;
    right.drop(&[NUMBER.to_owned()], planner.sql)
}

/// The sides of a join, by the names that qualify their columns.
struct Sides<'s> {
    left: (&'s Pipe, Option<&'s str>),
    right: (&'s Pipe, Option<&'s str>),
}

impl Sides<'_> {
    /// Finds a column of a side.
    fn own(&self, side: &Pipe, name: &str, path: &str, planner: &Planner<'_, '_, '_>) -> Result<ast::Expr> {
        let found = side.find_bound(path, planner.sql)?.ok_or_else(|| SqlError::unknown_field(path))?;
        qualified(found, name)
    }

    /// Returns the name of a column that is one of the right; `None` for one of the left.
    fn right_column(&self, path: &str, planner: &Planner<'_, '_, '_>) -> Result<Option<String>> {
        let below = |alias: Option<&str>| {
            alias.and_then(|alias| path.strip_prefix(alias)?.strip_prefix('.')).map(str::to_owned)
        };
        for ((side, alias), is_right) in [(self.left, false), (self.right, true)] {
            if let Some(rest) = below(alias)
                && side.find_bound(&rest, planner.sql)?.is_some()
            {
                return Ok(is_right.then_some(rest));
            }
        }
        for ((side, _), is_right) in [(self.left, false), (self.right, true)] {
            if side.find_bound(path, planner.sql)?.is_some() {
                return Ok(is_right.then(|| path.to_owned()));
            }
        }
        Err(SqlError::unknown_field(path))
    }

    /// Finds a column of either side.
    fn find(&self, path: &str, planner: &Planner<'_, '_, '_>) -> Result<ast::Expr> {
        for ((side, alias), name) in [(self.left, LEFT), (self.right, RIGHT)] {
            let rest = alias.and_then(|alias| path.strip_prefix(alias)?.strip_prefix('.'));
            if let Some(found) = rest.map(|rest| side.find_bound(rest, planner.sql)).transpose()?.flatten() {
                return qualified(found, name);
            }
        }
        for ((side, _), name) in [(self.left, LEFT), (self.right, RIGHT)] {
            if let Some(found) = side.find_bound(path, planner.sql)? {
                return qualified(found, name);
            }
        }
        Err(SqlError::unknown_field(path))
    }
}

/// Has the columns of an expression be those of a source.
fn qualified(mut expr: ast::Expr, name: &str) -> Result<ast::Expr> {
    super::expressions::resolve(&mut expr, 0, &mut |path| Ok(syntax::column_of(name, path)))?;
    Ok(expr)
}

/// Makes the relation of both sides.
fn joined(
    command: &JoinCommand,
    (mut pipe, left_names): (Pipe, Vec<String>),
    (right, right_names): (Pipe, Vec<String>),
    fields: Option<Vec<String>>,
    condition: Option<ast::Expr>,
    right_name: Option<String>,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let is_filter = matches!(command.kind, JoinKind::Semi | JoinKind::Anti);
    let left_alias = command.left_alias.as_ref().map(|alias| alias.path.clone());
    let all_left = pipe.all_names(planner.sql)?;
    let left_hidden: Vec<String> =
        all_left.iter().filter(|name| !left_names.contains(name)).cloned().collect();
    let names = pipe.names().unrestricted();
    let qualifiers = pipe.aliases().to_vec();
    pipe.unorder();
    let relation = pipe.into_whole_relation(planner.sql)?;
    let left = planner.sql.define(relation);
    let all_right = right_names.clone();
    let relation = right.into_whole_relation(planner.sql)?;
    let right = planner.sql.define(relation);
    let right_table = syntax::table(&right, Some(RIGHT));
    let of = |side: &str, name: &str| syntax::column_of(side, name);
    if is_filter {
        let items = all_left.iter().map(|name| (name.as_str(), of(LEFT, name)));
        let mut select = syntax::select(items, Some(syntax::table(&left, Some(LEFT))));
        let mut inner = syntax::select([("one", syntax::number(1))].into_iter(), Some(right_table));
        inner.selection = condition;
        select.selection = Some(ast::Expr::Exists {
            subquery: Box::new(syntax::query(inner, Vec::new(), None)),
            negated: command.kind == JoinKind::Anti,
        });
        let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
        let mut pipe = Pipe::from_relation(relation, names);
        qualifiers.iter().chain(&left_alias).for_each(|name| pipe.add_qualifier(name));
        left_hidden.iter().for_each(|name| pipe.hide(name));
        return Ok(pipe);
    }
    let mut columns: Vec<(String, ast::Expr, bool)> = Vec::new();
    let keys = fields.as_deref().unwrap_or_default();
    let takes_right = |name: &String| {
        fields.is_some() && command.overwrite && right_names.contains(name) && !keys.contains(name)
    };
    for name in &all_left {
        if takes_right(name) {
            continue;
        }
        let expr = match (keys.contains(name), command.kind) {
            (true, JoinKind::Right) => of(RIGHT, name),
            (true, JoinKind::Full) => syntax::call("coalesce", vec![of(LEFT, name), of(RIGHT, name)]),
            _ => of(LEFT, name),
        };
        columns.push((name.clone(), expr, !left_hidden.contains(name)));
    }
    for name in &all_right {
        if keys.contains(name) {
            continue;
        }
        let is_taken = columns.iter().any(|(known, _, _)| known == name);
        match (is_taken, &right_name) {
            (false, _) => columns.push((name.clone(), of(RIGHT, name), true)),
            (true, _) if fields.is_some() => {}
            (true, Some(alias)) => columns.push((format!("{alias}.{name}"), of(RIGHT, name), true)),
            (true, None) => columns.push((format!("r.{name}"), of(RIGHT, name), true)),
        }
    }
    let constraint = match condition {
        Some(condition) => ast::JoinConstraint::On(condition),
        None => ast::JoinConstraint::None,
    };
    let join_operator = match command.kind {
        JoinKind::Left => ast::JoinOperator::LeftOuter(constraint),
        JoinKind::Right => ast::JoinOperator::RightOuter(constraint),
        JoinKind::Full => ast::JoinOperator::FullOuter(constraint),
        _ => ast::JoinOperator::Inner(constraint),
    };
    let items = columns.iter().map(|(name, expr, _)| (name.as_str(), expr.clone()));
    let mut select = syntax::select(items, Some(syntax::table(&left, Some(LEFT))));
    if let Some(from) = select.from.first_mut() {
        from.joins.push(ast::Join { relation: right_table, global: false, join_operator });
    }
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    let mut pipe = Pipe::from_relation(relation, names);
    for (name, _, is_visible) in &columns {
        if !is_visible {
            pipe.hide(name);
        }
    }
    for alias in qualifiers.iter().chain(&left_alias).chain(&right_name) {
        pipe.add_qualifier(alias);
    }
    Ok(pipe)
}

/// Numbers the rows of a pipe under a name, for joins by position.
pub(super) fn numbered(pipe: &mut Pipe, name: &str, planner: &mut Planner<'_, '_, '_>) -> Result<()> {
    number_rows(pipe, name, planner)
}
