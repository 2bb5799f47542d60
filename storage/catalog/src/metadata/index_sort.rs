//! `index.sort.*`: the order in which the segments of an index keep their rows.
//!
//! The settings are fixed when an index is created. [`parse`] reads them, [`check_fields`] says whether a
//! mapping has fields to sort by; both refuse what OpenSearch refuses. `millrace_segment` puts rows in the order.

use millrace_mapping::{FieldType, Mapping};
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

/// The only metadata field that rows can be sorted by.
pub const SEQ_NO: &str = "_seq_no";

/// A field of the order, the most significant one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortField {
    /// Path of the field, possibly an alias.
    pub path: String,
    /// `true` if great values come first.
    pub descending: bool,
    /// `true` if the greatest of several values counts, not the least.
    pub greatest: bool,
    /// `true` if rows without a value come first.
    pub missing_first: bool,
}

/// Reads the order that settings ask for; empty where they ask for none.
///
/// # Errors
/// [`Error::IllegalArgument`] for words that are none of the settings', and for lists of different lengths.
pub fn parse(settings: &Map<String, Value>) -> Result<Vec<SortField>> {
    let fields = list(settings, "index.sort.field").unwrap_or_default();
    let orders = parsed(settings, "index.sort.order", order)?;
    let modes = parsed(settings, "index.sort.mode", mode)?;
    let missing = parsed(settings, "index.sort.missing", missing)?;
    let shown = [
        (
            "order",
            orders.as_ref().map(|list| words(list, |descending| if *descending { "desc" } else { "asc" })),
        ),
        ("mode", modes.as_ref().map(|list| words(list, |greatest| if *greatest { "MAX" } else { "MIN" }))),
        (
            "missing",
            missing.as_ref().map(|list| words(list, |first| if *first { "_first" } else { "_last" })),
        ),
    ];
    for (name, words) in shown {
        if let Some(words) = words.filter(|words| words.len() != fields.len()) {
            return Err(Error::IllegalArgument(format!(
                "index.sort.field:[{}] index.sort.{name}:[{}], size mismatch",
                fields.join(", "),
                words.join(", ")
            )));
        }
    }
    let at = |list: &Option<Vec<bool>>, at: usize| list.as_ref().and_then(|list| list.get(at)).copied();
    let sort = fields.into_iter().enumerate().map(|(i, path)| {
        let descending = at(&orders, i).unwrap_or(false);
        SortField {
            path,
            descending,
            greatest: at(&modes, i).unwrap_or(descending),
            missing_first: at(&missing, i).unwrap_or(false),
        }
    });
    Ok(sort.collect())
}

/// Checks the words of the settings, each list by itself.
///
/// # Errors
/// [`Error::IllegalArgument`].
pub(super) fn check_words(settings: &Map<String, Value>) -> Result<()> {
    parsed(settings, "index.sort.order", order)?;
    parsed(settings, "index.sort.mode", mode)?;
    parsed(settings, "index.sort.missing", missing)?;
    Ok(())
}

/// Checks that a mapping has the fields of an order, and that rows can be sorted by them.
///
/// # Errors
/// [`Error::IllegalArgument`].
pub(super) fn check_fields(sort: &[SortField], mapping: &Mapping) -> Result<()> {
    for SortField { path, .. } in sort {
        if path == SEQ_NO {
            continue;
        }
        let refused = match mapping.field(path) {
            _ if path == "_id" => format!("invalid index sort field:[{path}]"),
            None => format!("unknown index sort field:[{path}]"),
            Some(field) => match &field.field_type {
                FieldType::Text if field.params.get("fielddata") == Some(&Value::Bool(true)) => {
                    format!("invalid index sort field:[{path}]")
                }
                FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
                    format!("docvalues not found for index sort field:[{path}]")
                }
                _ if !field.doc_values => format!("docvalues not found for index sort field:[{path}]"),
                FieldType::GeoPoint => {
                    "can't sort on geo_point field without using specific sorting feature, like geo_distance"
                        .to_owned()
                }
                FieldType::Binary => "can't sort on binary field".to_owned(),
                FieldType::UnsignedLong
                | FieldType::HalfFloat
                | FieldType::ScaledFloat { .. }
                | FieldType::Range(_)
                | FieldType::ConstantKeyword => format!("invalid index sort field:[{path}]"),
                _ => continue,
            },
        };
        return Err(Error::IllegalArgument(refused));
    }
    Ok(())
}

/// Reads a list, given as such or as text with commas.
pub fn list(settings: &Map<String, Value>, key: &str) -> Option<Vec<String>> {
    match settings.get(key)? {
        Value::Array(items) => Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        Value::String(text) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(items.map(str::to_owned).collect())
        }
        _ => None,
    }
}

fn parsed(
    settings: &Map<String, Value>,
    key: &str,
    parse: impl Fn(&str) -> Result<bool, String>,
) -> Result<Option<Vec<bool>>> {
    let Some(words) = list(settings, key) else { return Ok(None) };
    let parsed = words.iter().map(|word| parse(word).map_err(Error::IllegalArgument));
    parsed.collect::<Result<_>>().map(Some)
}

fn words(list: &[bool], word: impl Fn(&bool) -> &'static str) -> Vec<&'static str> {
    list.iter().map(word).collect()
}

/// Returns whether an order descends.
fn order(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "asc" => Ok(false),
        "desc" => Ok(true),
        _ => Err(format!("Illegal sort order:{word}")),
    }
}

/// Returns whether a mode is that of the greatest value.
fn mode(word: &str) -> Result<bool, String> {
    match word.to_ascii_uppercase().as_str() {
        "MIN" => Ok(false),
        "MAX" => Ok(true),
        known @ ("SUM" | "AVG" | "MEDIAN") => {
            Err(format!("Illegal index sort mode:[{known}], must be one of [MAX, MIN]"))
        }
        _ => Err(format!("Illegal sort mode: {word}")),
    }
}

/// Returns whether rows without a value come first.
fn missing(word: &str) -> Result<bool, String> {
    match word {
        "_last" => Ok(false),
        "_first" => Ok(true),
        _ => Err(format!("Illegal missing value:[{word}], must be one of [_last, _first]")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(settings: Value) -> Result<Vec<SortField>> {
        parse(settings.as_object().unwrap())
    }

    #[test]
    fn the_mode_follows_the_order_and_missing_rows_are_last() {
        let sort = parsed(json!({"index.sort.field": "a, k", "index.sort.order": ["DESC", "asc"]})).unwrap();
        let field = |path: &str, descending| SortField {
            path: path.to_owned(),
            descending,
            greatest: descending,
            missing_first: false,
        };
        assert_eq!(sort, [field("a", true), field("k", false)]);
        assert_eq!(parsed(json!({"index.sort.field": []})).unwrap(), []);
        let given =
            json!({"index.sort.field": "a", "index.sort.mode": "max", "index.sort.missing": "_first"});
        let expected = SortField { greatest: true, missing_first: true, ..field("a", false) };
        assert_eq!(parsed(given).unwrap(), [expected]);
    }

    #[test]
    fn settings_are_refused_in_opensearch_words() {
        for (settings, expected) in [
            (
                json!({"index.sort.field": ["a", "k"], "index.sort.order": "desc"}),
                "index.sort.field:[a, k] index.sort.order:[desc], size mismatch",
            ),
            (
                json!({"index.sort.field": ["a", "k"], "index.sort.mode": ["min"]}),
                "index.sort.field:[a, k] index.sort.mode:[MIN], size mismatch",
            ),
            (
                json!({"index.sort.missing": ["_last"]}),
                "index.sort.field:[] index.sort.missing:[_last], size mismatch",
            ),
            (
                json!({"index.sort.field": "a", "index.sort.order": ""}),
                "index.sort.field:[a] index.sort.order:[], size mismatch",
            ),
            (json!({"index.sort.field": "a", "index.sort.order": "down"}), "Illegal sort order:down"),
            (
                json!({"index.sort.field": "a", "index.sort.mode": "avg"}),
                "Illegal index sort mode:[AVG], must be one of [MAX, MIN]",
            ),
            (json!({"index.sort.field": "a", "index.sort.mode": "foo"}), "Illegal sort mode: foo"),
            (
                json!({"index.sort.field": "a", "index.sort.missing": "7"}),
                "Illegal missing value:[7], must be one of [_last, _first]",
            ),
        ] {
            assert_eq!(parsed(settings).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn fields_must_have_values_to_sort_by() {
        let mapping = Mapping::parse(
            &json!({"properties": {
                "a": {"type": "long"}, "al": {"type": "alias", "path": "a"}, "k": {"type": "keyword"},
                "t": {"type": "text"}, "tf": {"type": "text", "fielddata": true},
                "nd": {"type": "keyword", "doc_values": false}, "g": {"type": "geo_point"},
                "ul": {"type": "unsigned_long"}, "hf": {"type": "half_float"}, "o": {"type": "object"},
                "bin": {"type": "binary", "doc_values": true}, "ip": {"type": "ip"}, "r": {"type": "ip_range"},
            }}),
            &Map::new(),
        )
        .unwrap();
        let check = |field: &str| {
            let sort = parsed(json!({"index.sort.field": [field]})).unwrap();
            check_fields(&sort, &mapping).map_err(|error| error.to_string())
        };
        for field in ["a", "al", "k", "ip", "_seq_no"] {
            assert_eq!(check(field), Ok(()));
        }
        for (field, expected) in [
            ("t", "docvalues not found for index sort field:[t]"),
            ("nd", "docvalues not found for index sort field:[nd]"),
            ("tf", "invalid index sort field:[tf]"),
            ("ul", "invalid index sort field:[ul]"),
            ("hf", "invalid index sort field:[hf]"),
            ("r", "invalid index sort field:[r]"),
            ("_id", "invalid index sort field:[_id]"),
            ("o", "unknown index sort field:[o]"),
            ("zz", "unknown index sort field:[zz]"),
            ("_doc", "unknown index sort field:[_doc]"),
            ("bin", "can't sort on binary field"),
            ("g", "can't sort on geo_point field without using specific sorting feature, like geo_distance"),
        ] {
            assert_eq!(check(field), Err(expected.to_owned()));
        }
    }
}
