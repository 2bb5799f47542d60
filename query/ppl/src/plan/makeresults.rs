//! `makeresults`: rows of the text itself. It sets the order: that of the text.

use millrace_sql::error::{Result, SqlError};
use serde_json::Value;
use sqlparser::ast;

use super::names::NameSet;
use super::pipe::{Pipe, SortKey};
use super::{Planner, syntax};
use crate::command::{DataFormat, MakeResultsCommand};

/// Most rows, each of which is a part of the plan.
const MAX_ROWS: usize = 1_000;
/// Most columns.
const MAX_COLUMNS: usize = 100;
/// Column with the number of a row.
const ROW: &str = "\u{1}made";

/// Plans the source.
pub(super) fn plan(
    command: &MakeResultsCommand,
    names: NameSet,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let (columns, rows) = match (&command.data, command.format) {
        (None, None) => {
            let count = usize::try_from(command.count).unwrap_or(usize::MAX);
            let now = syntax::call("now", Vec::new());
            (vec!["@timestamp".to_owned()], vec![vec![now]; count.min(MAX_ROWS + 1)])
        }
        (Some(data), Some(DataFormat::Csv)) => rows_of_csv(&data.value)?,
        (Some(data), Some(DataFormat::Json)) => rows_of_json(&data.value)?,
        _ => {
            return Err(SqlError::Semantic("makeresults takes format and data together".to_owned()));
        }
    };
    if rows.len() > MAX_ROWS || columns.len() > MAX_COLUMNS {
        return Err(SqlError::TooLarge(format!(
            "makeresults makes at most {MAX_ROWS} rows of {MAX_COLUMNS} columns"
        )));
    }
    if rows.is_empty() || columns.is_empty() {
        return Err(SqlError::Semantic("makeresults makes no row".to_owned()));
    }
    let numbered = rows.into_iter().enumerate().map(|(at, mut row)| {
        row.push(syntax::number(at));
        row
    });
    let relation = planner.sql.relation(&syntax::values(numbered.collect()))?;
    let table = planner.sql.define(relation);
    let shown: Vec<&str> = columns.iter().map(String::as_str).chain([ROW]).collect();
    let items = shown.iter().enumerate().map(|(at, name)| {
        let own = syntax::column(&format!("column{}", at + 1));
        (*name, own)
    });
    let select = syntax::select(items, Some(syntax::table(&table, None)));
    let relation = planner.sql.relation(&syntax::query(select, Vec::new(), None))?;
    let mut pipe = Pipe::from_relation(relation, names);
    let key = SortKey { expr: syntax::column(ROW), ascending: true, nulls_first: true };
    pipe.sort(vec![key], planner.sql)?;
    pipe.hide(ROW);
    Ok(pipe)
}

/// Reads a line with names, and then a line a row.
fn rows_of_csv(text: &str) -> Result<(Vec<String>, Vec<Vec<ast::Expr>>)> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let header = lines.next().map(cells).unwrap_or_default();
    let mut rows = Vec::new();
    for line in lines.take(MAX_ROWS + 1) {
        let own = cells(line);
        if own.len() > header.len() {
            return Err(SqlError::Semantic(format!("the row [{line}] has more values than there are names")));
        }
        let value = |at: usize| match own.get(at).map(String::as_str) {
            None | Some("") => syntax::cast(syntax::null(), ast::DataType::String(None)),
            Some(text) => syntax::string(text),
        };
        rows.push((0..header.len()).map(value).collect());
    }
    Ok((header, rows))
}

/// Splits a line at commas outside of quotes.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            other => cell.push(other),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}

/// Reads an array of objects.
fn rows_of_json(text: &str) -> Result<(Vec<String>, Vec<Vec<ast::Expr>>)> {
    let refused = || SqlError::Semantic("the data of makeresults are no array of objects in JSON".to_owned());
    let Ok(Value::Array(objects)) = serde_json::from_str(text) else { return Err(refused()) };
    let mut columns: Vec<String> = Vec::new();
    for object in objects.iter().take(MAX_ROWS + 1) {
        for name in object.as_object().ok_or_else(refused)?.keys() {
            if columns.len() <= MAX_COLUMNS && !columns.contains(name) {
                columns.push(name.clone());
            }
        }
    }
    let value = |value: Option<&Value>| match value {
        None | Some(Value::Null) => syntax::null(),
        Some(Value::Bool(flag)) => syntax::boolean(*flag),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => syntax::integer(integer),
            (None, Some(number)) if number < 0.0 || number.fract() != 0.0 => syntax::decimal(number),
            _ => syntax::number(number),
        },
        Some(Value::String(text)) => syntax::string(text),
        Some(other) => syntax::string(&other.to_string()),
    };
    let rows = objects
        .iter()
        .take(MAX_ROWS + 1)
        .map(|object| columns.iter().map(|name| value(object.get(name))).collect());
    let rows = rows.collect();
    Ok((columns, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rows() {
        let (names, rows) = rows_of_csv("a, b\n1,\"x, y\"\n\n2,\n").unwrap();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][1], syntax::string("x, y"));
        assert!(rows_of_csv("a\n1,2").is_err());
        assert!(rows_of_json("{}").is_err());
        assert_eq!(rows_of_json(r#"[{"a":1},{"b":"x"}]"#).unwrap().0, ["a", "b"]);
    }
}
