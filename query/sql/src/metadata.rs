//! `SHOW TABLES` and `DESCRIBE TABLES`: a database's metadata for JDBC.

mod elasticsearch;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{Field, Schema};
use millrace_catalog::metadata::IndicesOptions;
use millrace_session::{SearchIndex, SearchSession};
use millrace_target::target;
use millrace_work::error::Error;
use serde_json::{Map, Value, json};

pub(crate) use self::elasticsearch::show;
use super::bind::OutColumn;
use super::error::Result;
use super::types::SqlType;

/// Columns of the list of tables.
const TABLES: &[&str] = &[
    "TABLE_CAT",
    "TABLE_SCHEM",
    "TABLE_NAME",
    "TABLE_TYPE",
    "REMARKS",
    "TYPE_CAT",
    "TYPE_SCHEM",
    "TYPE_NAME",
    "SELF_REFERENCING_COL_NAME",
    "REF_GENERATION",
];

/// Columns of the list of columns, with those that are integers.
const COLUMNS: &[(&str, bool)] = &[
    ("TABLE_CAT", false),
    ("TABLE_SCHEM", false),
    ("TABLE_NAME", false),
    ("COLUMN_NAME", false),
    ("DATA_TYPE", false),
    ("TYPE_NAME", false),
    ("COLUMN_SIZE", false),
    ("BUFFER_LENGTH", false),
    ("DECIMAL_DIGITS", false),
    ("NUM_PREC_RADIX", true),
    ("NULLABLE", true),
    ("REMARKS", false),
    ("COLUMN_DEF", false),
    ("SQL_DATA_TYPE", false),
    ("SQL_DATETIME_SUB", false),
    ("CHAR_OCTET_LENGTH", false),
    ("ORDINAL_POSITION", true),
    ("IS_NULLABLE", false),
    ("SCOPE_CATALOG", false),
    ("SCOPE_SCHEMA", false),
    ("SCOPE_TABLE", false),
    ("SOURCE_DATA_TYPE", false),
    ("IS_AUTOINCREMENT", false),
    ("IS_GENERATEDCOLUMN", false),
];

/// The answer to a statement about metadata.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Columns.
    pub columns: Vec<OutColumn>,
    /// Rows.
    pub batch: RecordBatch,
}

/// One cell.
#[derive(Clone)]
enum Cell {
    Null,
    Text(String),
    Number(i32),
}

/// Lists the indices of a pattern by their names, those of a data stream by its name. An alias that the pattern spells out stands for
/// its indices.
fn named_indices(session: &dyn SearchSession, pattern: &str) -> Result<Vec<(String, Arc<dyn SearchIndex>)>> {
    let mut named = Vec::new();
    for index in target::resolve(session, "*", &IndicesOptions::open_only())? {
        let meta = index.meta();
        let name = meta.data_stream().unwrap_or(&meta.name).to_owned();
        if !name.starts_with('.') && like(pattern, &name) {
            named.push((name, index));
        }
    }
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    if named.is_empty() && !pattern.contains(['%', '*', '?', ',']) {
        let indices = match target::resolve(session, pattern, &IndicesOptions::open_only()) {
            Err(Error::Storage(millrace_runtime::Error::IndexNotFound { .. })) => Vec::new(),
            other => other?,
        };
        named.extend(indices.into_iter().map(|index| (pattern.to_owned(), index)));
    }
    Ok(named)
}

/// Lists the indices of a pattern.
pub(crate) fn tables(session: &dyn SearchSession, cluster: &str, pattern: &str) -> Result<Listing> {
    let mut names: Vec<String> = named_indices(session, pattern)?.into_iter().map(|(name, _)| name).collect();
    names.dedup();
    let row = |name: String| {
        let mut row = vec![Cell::Null; TABLES.len()];
        row[0] = Cell::Text(cluster.to_owned());
        row[2] = Cell::Text(name);
        row[3] = Cell::Text("BASE TABLE".to_owned());
        row
    };
    let rows: Vec<_> = names.into_iter().map(row).collect();
    listing(table_columns(), &rows)
}

/// Describes the indices of a pattern for the format `json`: an object of their mappings, by name, as `GET <index>` shows them.
pub(crate) fn index_descriptions(session: &dyn SearchSession, pattern: &str) -> Result<Value> {
    let mut described = Map::new();
    for (name, index) in named_indices(session, pattern)? {
        match session.mapping_body(&*index) {
            Ok(mapping) => {
                drop(described.insert(index.meta().name.to_string(), json!({"mappings": mapping})))
            }
            Err(error) if name == pattern => return Err(Error::from(error).into()),
            // Of a pattern, the other indices are described.
            Err(_) => {}
        }
    }
    Ok(Value::Object(described))
}

/// Returns the columns of the list of tables.
pub(crate) fn table_columns() -> Vec<OutColumn> {
    TABLES.iter().map(|name| column(name, false)).collect()
}

/// Returns the columns of the list of fields.
pub(crate) fn field_columns() -> Vec<OutColumn> {
    COLUMNS.iter().map(|(name, number)| column(name, *number)).collect()
}

fn column(name: &str, number: bool) -> OutColumn {
    let ty = if number { SqlType::Integer } else { SqlType::Keyword };
    OutColumn { name: name.to_owned(), alias: None, ty, list: false, shown: ty.name(), element: None }
}

/// Lists the fields of the indices of a pattern.
pub(crate) fn columns(
    session: &dyn SearchSession,
    cluster: &str,
    pattern: &str,
    of: Option<&str>,
) -> Result<Listing> {
    let mut rows = Vec::new();
    for (name, index) in named_indices(session, pattern)? {
        if let Err(error) = index.check_supported() {
            // Of a pattern, the other indices are described.
            if name == pattern {
                return Err(Error::from(error).into());
            }
            continue;
        }
        let mapping = session.mapping(&*index);
        for (place, field) in mapping.fields().enumerate() {
            if !of.is_none_or(|of| like(of, &field.path)) {
                continue;
            }
            // Multi-fields are not columns.
            let parent = field.path.rsplit_once('.').map(|(parent, _)| parent);
            if parent.is_some_and(|parent| mapping.field(parent).is_some()) {
                continue;
            }
            let mut row = vec![Cell::Null; COLUMNS.len()];
            row[0] = Cell::Text(cluster.to_owned());
            row[2] = Cell::Text(name.clone());
            row[3] = Cell::Text(field.path.to_string());
            row[5] = Cell::Text(SqlType::of_field(field).name().to_owned());
            row[9] = Cell::Number(10);
            row[10] = Cell::Number(2);
            row[16] = Cell::Number(i32::try_from(place).unwrap_or(i32::MAX));
            row[17] = Cell::Text(String::new());
            row[22] = Cell::Text("NO".to_owned());
            row[23] = Cell::Text(String::new());
            rows.push(row);
        }
    }
    listing(field_columns(), &rows)
}

fn listing(columns: Vec<OutColumn>, rows: &[Vec<Cell>]) -> Result<Listing> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    let mut fields = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter().enumerate() {
        fields.push(Field::new(&column.name, column.ty.arrow(), true));
        let cells = rows.iter().filter_map(|row| row.get(at));
        arrays.push(match column.ty.is_integer() {
            true => Arc::new(Int32Array::from_iter(cells.map(|cell| match cell {
                Cell::Number(number) => Some(*number),
                _ => None,
            }))),
            false => Arc::new(StringViewArray::from_iter(cells.map(|cell| match cell {
                Cell::Text(text) => Some(text.as_str()),
                _ => None,
            }))),
        });
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(millrace_work::error::Error::from)?;
    Ok(Listing { columns, batch })
}

/// Returns whether a name is of a pattern, in which `%` and `*` stand for anything and `_` and `?` for a letter.
fn like(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut place) = (0, 0);
    // Where to go on after the last `%`: behind it in the pattern, one letter further in the name.
    let mut retry: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some('%' | '*') => {
                retry = Some((at + 1, place));
                at += 1;
                continue;
            }
            Some(letter) if *letter == name[place] || matches!(letter, '_' | '?') => {
                at += 1;
                place += 1;
                continue;
            }
            _ => {}
        }
        match &mut retry {
            Some((behind, next)) => {
                *next += 1;
                (at, place) = (*behind, *next);
            }
            None => return false,
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|letter| matches!(letter, '%' | '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("acc%", "accounts", true),
            ("%name", "firstname", true),
            ("%a%b%", "xaxbx", true),
            ("acc", "accounts", false),
            ("a_c", "abc", true),
            ("%", "", true),
            ("%x", "xy", false),
        ] {
            assert_eq!(like(pattern, name), expected, "{pattern} {name}");
        }
    }
}
