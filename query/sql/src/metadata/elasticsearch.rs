//! `SHOW` and `DESCRIBE` in the dialect of Elasticsearch: tables with aliases, columns with multi-fields, functions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millrace_catalog::metadata::IndicesOptions;
use millrace_mapping::FieldType;
use millrace_mapping::pattern::is_wildcard;
use millrace_session::SearchSession;
use millrace_target::target;
use millrace_work::error::Error;

use super::{Cell, Listing, column, like, listing};
use crate::bind::OutColumn;
use crate::error::Result;
use crate::statement::ShowStatement;

/// Type of a field of which indices have different types.
const CONFLICTING: (&str, &str) = ("OTHER", "unsupported");

/// Functions by their kinds.
const FUNCTIONS: [(&str, &[&str]); 4] = [
    ("AGGREGATE", &["avg", "count", "max", "min", "stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp"]),
    ("CONDITIONAL", &["coalesce", "ifnull", "nullif"]),
    ("SCALAR", SCALARS),
    ("SCORE", &["score"]),
];

/// Functions of one value or several, of one row.
const SCALARS: &[&str] = &[
    "abs",
    "acos",
    "adddate",
    "addtime",
    "ascii",
    "asin",
    "atan",
    "atan2",
    "cbrt",
    "ceil",
    "ceiling",
    "char_length",
    "concat",
    "concat_ws",
    "conv",
    "convert_tz",
    "cos",
    "cot",
    "crc32",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "curtime",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "datetime",
    "day",
    "dayname",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "degrees",
    "e",
    "exp",
    "expm1",
    "floor",
    "from_days",
    "from_unixtime",
    "hour",
    "last_day",
    "lcase",
    "left",
    "length",
    "ln",
    "locate",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "makedate",
    "maketime",
    "microsecond",
    "minute",
    "mod",
    "month",
    "monthname",
    "now",
    "period_add",
    "period_diff",
    "pi",
    "pow",
    "power",
    "quarter",
    "radians",
    "rand",
    "replace",
    "reverse",
    "right",
    "round",
    "rtrim",
    "sec_to_time",
    "second",
    "sign",
    "sin",
    "sqrt",
    "str_to_date",
    "strcmp",
    "subdate",
    "substr",
    "substring",
    "subtime",
    "tan",
    "time",
    "time_format",
    "time_to_sec",
    "timediff",
    "timestamp",
    "to_days",
    "trim",
    "truncate",
    "ucase",
    "unix_timestamp",
    "upper",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "week",
    "weekday",
    "year",
    "yearweek",
];

impl ShowStatement {
    /// Returns the columns of the answer.
    pub(crate) fn columns(&self) -> Vec<OutColumn> {
        let names: &[&str] = match self {
            Self::Tables(_) => &["catalog", "name", "type", "kind"],
            Self::Columns(_) => &["column", "type", "mapping"],
            Self::Functions(_) | Self::Catalogs => &["name", "type"],
            Self::Schemas => &["name"],
        };
        names.iter().map(|name| column(name, false)).collect()
    }
}

/// Answers a statement about metadata.
///
/// # Errors
/// An index that is named does not exist.
pub(crate) fn show(session: &dyn SearchSession, cluster: &str, statement: &ShowStatement) -> Result<Listing> {
    let rows = match statement {
        ShowStatement::Tables(pattern) => tables(session, cluster, pattern.as_deref())?,
        ShowStatement::Columns(expression) => fields(session, expression)?,
        ShowStatement::Functions(pattern) => functions(pattern.as_deref()),
        ShowStatement::Catalogs => vec![texts([cluster, "local"])],
        ShowStatement::Schemas => Vec::new(),
    };
    listing(statement.columns(), &rows)
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<Cell> {
    texts.map(|text| Cell::Text(text.to_owned())).to_vec()
}

/// Lists the indices and aliases of a pattern, by name. Hidden ones have to be asked for.
fn tables(session: &dyn SearchSession, cluster: &str, pattern: Option<&str>) -> Result<Vec<Vec<Cell>>> {
    let mut names: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for index in target::resolve(session, "*", &IndicesOptions::open_only())? {
        let meta = index.meta();
        for alias in meta.aliases.keys() {
            names.insert(alias.clone(), ("VIEW", "ALIAS"));
        }
        names.insert(meta.data_stream().unwrap_or(&meta.name).to_owned(), ("TABLE", "INDEX"));
    }
    let is_listed = |name: &str| match pattern {
        Some(pattern) => {
            (!name.starts_with('.') || pattern.starts_with('.'))
                && pattern.split(',').any(|pattern| like(pattern.trim(), name))
        }
        None => !name.starts_with('.'),
    };
    let listed = names.into_iter().filter(|(name, _)| is_listed(name));
    Ok(listed.map(|(name, (kind, of))| texts([cluster, &name, kind, of])).collect())
}

/// Lists the fields of an index expression, by path, with the objects above them.
fn fields(session: &dyn SearchSession, expression: &str) -> Result<Vec<Vec<Cell>>> {
    let mut types: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut add = |path: &str, shown: (&'static str, &'static str)| match types.entry(path.to_owned()) {
        Entry::Vacant(entry) => {
            entry.insert(shown);
        }
        Entry::Occupied(mut entry) if *entry.get() != shown => {
            entry.insert(CONFLICTING);
        }
        Entry::Occupied(_) => {}
    };
    let is_pattern = is_wildcard(expression) || matches!(expression, "" | "_all");
    for index in target::resolve(session, expression, &IndicesOptions::open_only())? {
        if let Err(error) = index.check_supported() {
            // Of a pattern, the other indices are described.
            if is_pattern {
                continue;
            }
            return Err(Error::from(error).into());
        }
        let mapping = session.mapping(&*index);
        let mut objects: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for field in mapping.fields() {
            add(&field.path, shown(&field.field_type));
            for (at, _) in field.path.match_indices('.') {
                let above = &field.path[..at];
                if mapping.field(above).is_none() {
                    let is_nested = mapping.nested_path(above) == Some(above);
                    objects.insert(above, ("STRUCT", if is_nested { "nested" } else { "object" }));
                }
            }
        }
        objects.into_iter().for_each(|(path, shown)| add(path, shown));
    }
    Ok(types.into_iter().map(|(path, (kind, mapping))| texts([&path, kind, mapping])).collect())
}

/// Returns the types of a field in SQL and in mappings, as Elasticsearch names them.
fn shown(field: &FieldType) -> (&'static str, &'static str) {
    match field {
        FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => ("VARCHAR", "text"),
        FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword => ("VARCHAR", "keyword"),
        FieldType::FlatObject | FieldType::RankFeatures | FieldType::Completion => ("STRUCT", "object"),
        FieldType::Range(_) => ("STRUCT", field.name()),
        FieldType::Byte => ("TINYINT", "byte"),
        FieldType::Short => ("SMALLINT", "short"),
        FieldType::Integer | FieldType::TokenCount => ("INTEGER", "integer"),
        FieldType::Long => ("BIGINT", "long"),
        FieldType::UnsignedLong => ("NUMERIC", "unsigned_long"),
        FieldType::HalfFloat => ("FLOAT", "half_float"),
        FieldType::Float | FieldType::RankFeature => ("REAL", "float"),
        FieldType::Double => ("DOUBLE", "double"),
        FieldType::ScaledFloat { .. } => ("FLOAT", "scaled_float"),
        FieldType::Boolean => ("BOOLEAN", "boolean"),
        FieldType::Date | FieldType::DateNanos => ("TIMESTAMP", "datetime"),
        FieldType::Ip => ("VARCHAR", "ip"),
        FieldType::GeoPoint => ("GEOMETRY", "geo_point"),
        FieldType::Binary => ("VARBINARY", "binary"),
    }
}

/// Lists the functions of a pattern.
fn functions(pattern: Option<&str>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (kind, names) in FUNCTIONS {
        let names = names.iter().map(|name| name.to_ascii_uppercase());
        let named =
            names.filter(|name| pattern.is_none_or(|pattern| like(&pattern.to_ascii_uppercase(), name)));
        rows.extend(named.map(|name| texts([&name, kind])));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions;

    #[test]
    fn functions_that_are_listed_exist() {
        let unknown: Vec<&&str> = SCALARS.iter().filter(|name| !functions::exists(name)).collect();
        // It is bound as an operator.
        assert_eq!(unknown, [&"mod"]);
        // `_` is any character: DATE_ADD, DATE_FORMAT, DATE_SUB, DATEDIFF, DATETIME.
        assert_eq!(super::functions(Some("date_%")).len(), 5);
        assert!(super::functions(None).len() > 100);
    }
}
