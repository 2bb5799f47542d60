//! `foreach`: an `eval` for each field that a pattern names, or for each element of a collection. It keeps the order.
//!
//! Over elements, each column that is set is a fold of the collection: its value before is the first one of the accumulator.

use sqlparser::ast;

use super::columns::captures;
use super::pipe::Pipe;
use super::{Planner, refused, syntax};
use crate::command::{ForeachCommand, ForeachMode, ForeachPlaceholder, ForeachTarget};
use millrace_sql::error::{Result, SqlError};

/// Longest name of a column that the command makes, in bytes.
const MAX_NAME: usize = 1_024;
/// Parameters of a fold: the element and its number.
const ITEM: &str = "\u{1}item";
const NUMBER: &str = "\u{1}number";
/// Longest assignments of all rounds of a statement, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Plans the command.
pub(super) fn plan(
    command: &ForeachCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.mode != ForeachMode::Multifield {
        return elements(command, pipe, planner);
    }
    for target in &command.targets {
        let ForeachTarget::Fields(pattern) = target else {
            pipe = fold(command, target, pipe, planner)?;
            continue;
        };
        let names = match pattern.is_wildcard() {
            true => pipe.visible(planner.sql)?,
            false => vec![pattern.pattern.clone()],
        };
        for name in names {
            let Some(texts) = captures(&pattern.pattern, &name) else { continue };
            let mut placeholders = vec![
                placeholder(command.fieldstr.as_deref().unwrap_or("<<FIELD>>"), &name),
                placeholder(command.matchstr.as_deref().unwrap_or("<<MATCHSTR>>"), &texts.concat()),
            ];
            for (at, text) in texts.iter().enumerate() {
                let word = command.matchsegs.get(at).cloned().flatten();
                let word = word.unwrap_or_else(|| format!("<<MATCHSEG{}>>", at + 1));
                placeholders.push(placeholder(&word, text));
            }
            for assignment in &command.assignments {
                if !assignment.value.subsearches.is_empty() {
                    return refused("a subsearch in foreach");
                }
                let left = &mut planner.substitution_bytes;
                let assignment = assignment.substitute(&placeholders, left).ok_or_else(too_long)?;
                let column = &assignment.target;
                if column.len() > MAX_NAME {
                    return Err(SqlError::TooLarge(format!(
                        "foreach makes a name of more than {MAX_NAME} bytes"
                    )));
                }
                super::rename::check_name(column)?;
                pipe.extend(column, assignment.value.expr, planner.sql)?;
            }
        }
    }
    Ok(pipe)
}

/// Plans the command over elements, one collection after the other.
fn elements(command: &ForeachCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    if command.targets.is_empty() {
        return Err(SqlError::Unsupported(
            "foreach without the names of its collections is not supported".to_owned(),
        ));
    }
    for target in &command.targets {
        pipe = fold(command, target, pipe, planner)?;
    }
    Ok(pipe)
}

/// Sets the columns by one collection.
fn fold(
    command: &ForeachCommand,
    target: &ForeachTarget,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let collection = match target {
        ForeachTarget::Collection(expression) => planner.expression(expression, &mut pipe)?,
        ForeachTarget::Fields(pattern) if !pattern.is_wildcard() => syntax::column(&pattern.pattern),
        ForeachTarget::Fields(_) => return refused("foreach over the elements of a pattern of fields"),
    };
    let mode = match command.mode {
        ForeachMode::Multivalue => 0,
        ForeachMode::JsonArray => 1,
        ForeachMode::Multifield | ForeachMode::AutoCollections => 2,
    };
    // The texts stay, since an element is no text before the query runs.
    let words = [
        (command.itemstr.as_deref().unwrap_or("<<ITEM>>"), ITEM),
        (command.iterstr.as_deref().unwrap_or("<<ITER>>"), NUMBER),
    ];
    let placeholders = words.map(|(word, column)| ForeachPlaceholder {
        word: word.to_owned(),
        expr: syntax::column(column),
        text: format!("<<{}>>", word.trim_start_matches("<<").trim_end_matches(">>")),
    });
    let mut names: Vec<String> = Vec::new();
    let mut assignments = Vec::with_capacity(command.assignments.len());
    for assignment in &command.assignments {
        if !assignment.value.subsearches.is_empty() {
            return refused("a subsearch in foreach");
        }
        let left = &mut planner.substitution_bytes;
        let assignment = assignment.substitute(&placeholders, left).ok_or_else(too_long)?;
        super::rename::check_name(&assignment.target)?;
        let at = names.iter().position(|name| *name == assignment.target).unwrap_or(names.len());
        if at == names.len() {
            names.push(assignment.target);
        }
        assignments.push((at, assignment.value.expr));
    }
    let accumulator = |at: usize| format!("\u{1}accumulator{at}");
    let mut bodies = Vec::with_capacity(2 * assignments.len());
    for (at, mut value) in assignments {
        let _ = ast::visit_expressions_mut(&mut value, |expr| {
            let set = syntax::path(expr).and_then(|path| names.iter().position(|name| *name == path));
            if let Some(at) = set {
                *expr = syntax::column(&accumulator(at));
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
        bodies.extend([syntax::number(at), value]);
    }
    let mut starts = Vec::with_capacity(names.len());
    for name in &names {
        starts.push(match pipe.find(name, planner.sql)? {
            Some(_) => syntax::column(name),
            None => syntax::null(),
        });
    }
    let parameters: Vec<String> =
        (0..names.len()).map(accumulator).chain([ITEM.to_owned(), NUMBER.to_owned()]).collect();
    let step = syntax::lambda(&parameters, ast::Expr::Tuple(bodies));
    let folds = names.into_iter().enumerate().map(|(at, name)| {
        let starts = ast::Expr::Tuple(starts.clone());
        let args = vec![collection.clone(), syntax::number(mode), syntax::number(at), starts, step.clone()];
        (name, syntax::call("foreach_fold", args))
    });
    let folds = folds.collect();
    pipe.extend_together(folds, planner.sql)?;
    Ok(pipe)
}

fn placeholder(word: &str, text: &str) -> ForeachPlaceholder {
    ForeachPlaceholder { word: word.to_owned(), expr: syntax::column(text), text: text.to_owned() }
}

fn too_long() -> SqlError {
    SqlError::TooLarge(format!("the assignments of all rounds of foreach are longer than {MAX_BYTES} bytes"))
}
