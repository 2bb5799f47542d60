//! `sort`: by fields, by score, or in index order.

mod geo_distance;
mod nested;

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::json;
pub use geo_distance::GeoDistanceSort;
pub use nested::NestedSort;
use nested::OlderNested;

/// Most sort keys of one request.
const MAX_KEYS: usize = 64;

/// One key of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// Compared value.
    pub by: SortBy,
    /// `true` if greater values come first.
    pub descending: bool,
}

/// Value that a sort key compares.
#[derive(Clone, Debug, PartialEq)]
pub enum SortBy {
    /// The score.
    Score,
    /// The order of the index: shard, segment, row.
    Doc,
    /// Values of a field.
    Field(FieldSort),
    /// Distances of a field's points.
    Distance(GeoDistanceSort),
}

/// Comparison of a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSort {
    /// Field path.
    pub field: String,
    /// Position of documents without a value.
    pub missing: Missing,
    /// Mode that picks one of several values; the least when ascending, the greatest when descending.
    pub mode: Option<Mode>,
    /// Type that an index without the field is taken to have.
    pub unmapped_type: Option<String>,
    /// Numeric type that values are converted to before they are compared.
    pub numeric_type: Option<NumericType>,
    /// Date format of the sort values in hits.
    pub format: Option<String>,
    /// Elements of a nested path whose values count.
    pub nested: Option<NestedSort>,
}

/// Position of documents without a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Missing {
    /// Behind all others.
    #[default]
    Last,
    /// Before all others.
    First,
    /// Position of this value.
    Value(Value),
}

/// Mode that picks one of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mode {
    Min,
    Max,
    Sum,
    Avg,
    Median,
}

/// Targets of `numeric_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NumericType {
    Long,
    Double,
    Date,
    DateNanos,
}

impl SortKey {
    /// Makes the key for a bare name: scores descend, all else ascends.
    fn named(name: &str) -> Result<Self> {
        let by = match name {
            "" => return Err(Error::IllegalArgument("field name is null or empty".to_owned())),
            "_score" => SortBy::Score,
            "_doc" => SortBy::Doc,
            field => SortBy::Field(FieldSort { field: field.to_owned(), ..FieldSort::default() }),
        };
        Ok(Self { descending: by == SortBy::Score, by })
    }

    /// Returns whether scores are compared.
    pub fn is_score(&self) -> bool {
        self.by == SortBy::Score
    }
}

/// Parses the value of `sort` in a body.
pub(crate) fn parse(value: &Value) -> Result<Vec<SortKey>> {
    let mut keys = Vec::new();
    match value {
        Value::Array(items) => {
            for item in items {
                element(item, &mut keys)?;
            }
        }
        Value::Object(_) => element(value, &mut keys)?,
        // Alone, any scalar is a field's name.
        scalar => keys.push(SortKey::named(&json::text(scalar).unwrap_or_default())?),
    }
    bounded(keys)
}

/// Parses the `sort` parameter: `field:order` pairs.
pub fn parse_param(text: &str) -> Result<Vec<SortKey>> {
    let mut keys = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, order) = match part.rsplit_once(':') {
            Some((name, order @ ("asc" | "desc"))) => (name, Some(order)),
            Some((_, order)) => {
                return Err(Error::IllegalArgument(format!(
                    "Invalid sort order: [{order}], must be either asc or desc"
                )));
            }
            None => (part, None),
        };
        let mut key = SortKey::named(name)?;
        if let Some(order) = order {
            key.descending = order == "desc";
        }
        keys.push(key);
    }
    bounded(keys)
}

fn bounded(keys: Vec<SortKey>) -> Result<Vec<SortKey>> {
    if keys.len() > MAX_KEYS {
        return Err(Error::IllegalArgument(format!(
            "too many sort keys: {} given, at most {MAX_KEYS} allowed",
            keys.len()
        )));
    }
    Ok(keys)
}

fn element(value: &Value, keys: &mut Vec<SortKey>) -> Result<()> {
    match value {
        Value::String(name) => keys.push(SortKey::named(name)?),
        Value::Object(entries) => {
            for (name, options) in entries {
                keys.push(key(name, options)?);
            }
        }
        _ => {
            return Err(Error::IllegalArgument(
                "malformed sort format, within the sort array, an object, or an actual string are allowed"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}

fn unknown_mode(text: &str) -> Error {
    Error::IllegalArgument(format!("Unknown SortMode [{text}]"))
}

fn key(name: &str, options: &Value) -> Result<SortKey> {
    if name == "_script" {
        return Err(Error::Parsing("[_script] sort is not supported: there are no scripts".to_owned()));
    }
    if let ("_geo_distance" | "_geoDistance", Value::Object(options)) = (name, options) {
        return GeoDistanceSort::parse(options);
    }
    let mut key = SortKey::named(name)?;
    let options = match options {
        Value::String(text) => {
            key.descending = order(text)?;
            return Ok(key);
        }
        Value::Object(options) => options,
        other => {
            return Err(Error::Content {
                reason: format!("[field_sort] Expected START_OBJECT but was: {}", json::token(other)),
                cause: None,
            });
        }
    };
    let mut older = OlderNested::default();
    for (option, value) in options {
        let text = json::text(value).unwrap_or_default();
        let part = if matches!(key.by, SortBy::Field(_)) { "field_sort" } else { name };
        let unread = |error: Error| Error::unread_member(part, option, error);
        if option == "order" {
            key.descending = order(&text).map_err(unread)?;
            continue;
        }
        let SortBy::Field(field) = &mut key.by else {
            return Err(Error::unknown_member(part, option));
        };
        match option.as_str() {
            "missing" => {
                field.missing = match value {
                    Value::String(text) if text == "_last" => Missing::Last,
                    Value::String(text) if text == "_first" => Missing::First,
                    Value::Null | Value::Array(_) | Value::Object(_) => {
                        return Err(Error::Content {
                            reason: format!(
                                "[field_sort] missing doesn't support values of type: {}",
                                json::token(value)
                            ),
                            cause: None,
                        });
                    }
                    scalar => Missing::Value(scalar.clone()),
                };
            }
            "mode" => {
                field.mode = Some(match text.to_ascii_lowercase().as_str() {
                    "min" => Mode::Min,
                    "max" => Mode::Max,
                    "sum" => Mode::Sum,
                    "avg" => Mode::Avg,
                    "median" => Mode::Median,
                    _ => return Err(unread(unknown_mode(&text))),
                });
            }
            "unmapped_type" => field.unmapped_type = Some(text),
            "numeric_type" => {
                field.numeric_type = Some(match text.as_str() {
                    "long" => NumericType::Long,
                    "double" => NumericType::Double,
                    "date" => NumericType::Date,
                    "date_nanos" => NumericType::DateNanos,
                    _ => {
                        return Err(unread(Error::IllegalArgument(format!(
                            "invalid value for [numeric_type], must be [long, double, date, date_nanos], got {text}"
                        ))));
                    }
                });
            }
            "format" => field.format = Some(text),
            "nested" if !value.is_object() => {
                return Err(json::content(format!(
                    "[field_sort] nested doesn't support values of type: {}",
                    json::token(value)
                )));
            }
            "nested" => field.nested = NestedSort::parse(value).map_err(unread)?,
            _ if older.take(option, value).map_err(unread)? => {}
            _ => return Err(Error::unknown_member(part, option)),
        }
    }
    if let SortBy::Field(field) = &mut key.by {
        field.nested = older.or(field.nested.take())?;
    }
    Ok(key)
}

fn order(text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "asc" => Ok(false),
        "desc" => Ok(true),
        _ => Err(Error::IllegalArgument(format!(
            "No enum constant org.opensearch.search.sort.SortOrder.{}",
            text.to_uppercase()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_sort() {
        let keys =
            parse(&json!(["a", {"b": "desc"}, {"c": {"order": "desc", "missing": "_first"}}, "_score"]));
        let keys = keys.unwrap();
        assert!(!keys[0].descending && keys[1].descending && keys[2].descending && keys[3].descending);
        let SortBy::Field(field) = &keys[2].by else { panic!("not a field") };
        assert_eq!(field.missing, Missing::First);
        let keys = parse_param("a:desc,_doc").unwrap();
        assert!(keys[0].descending);
        assert_eq!(keys[1].by, SortBy::Doc);
    }

    #[test]
    fn unknown_options_are_refused() {
        insta::assert_snapshot!(
            parse(&json!({"a": {"nestled": {}}})).unwrap_err(),
            @"[field_sort] unknown field [nestled]"
        );
        insta::assert_snapshot!(
            parse(&json!({"_score": {"missing": "_last"}})).unwrap_err(),
            @"[_score] unknown field [missing]"
        );
    }
}
