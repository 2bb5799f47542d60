//! Settings as flat maps: from nested bodies to dotted keys with string values, and back.
//!
//! [`flatten`] is what every body with settings goes through, [`nest`] what `GET` shows. Values are
//! strings as in OpenSearch (`5` becomes `"5"`), arrays stay arrays of strings, and `null` is kept:
//! in an update it resets a key.

use std::time::Duration;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

/// Most keys one body may set.
const MAX_KEYS: usize = 10_000;

/// Longest key in bytes; it bounds how deep [`nest`] goes.
const MAX_KEY_BYTES: usize = 512;

/// Flattens a settings object to dotted keys.
///
/// # Errors
/// [`Error::IllegalArgument`] where the body is no object, an array holds objects, or a key is empty.
pub fn flatten(body: &Value) -> Result<Map<String, Value>> {
    let mut flat = Map::new();
    match body {
        Value::Null => {}
        Value::Object(members) => flatten_into(&mut flat, "", members)?,
        other => {
            return Err(Error::IllegalArgument(format!("settings must be an object, but found [{other}]")));
        }
    }
    Ok(flat)
}

fn flatten_into(flat: &mut Map<String, Value>, prefix: &str, members: &Map<String, Value>) -> Result<()> {
    for (name, value) in members {
        if name.is_empty() {
            return Err(Error::IllegalArgument(format!("empty key under [{prefix}] in settings")));
        }
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::IllegalArgument(format!(
                "setting key [{}...] is longer than [{MAX_KEY_BYTES}] bytes",
                key.chars().take(64).collect::<String>()
            )));
        }
        let plain = match value {
            Value::Object(inner) => {
                flatten_into(flat, &key, inner)?;
                continue;
            }
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| {
                        as_text(item).map(Value::String).ok_or_else(|| {
                            Error::IllegalArgument(format!("setting [{key}] must be a list of plain values"))
                        })
                    })
                    .collect::<Result<_>>()?,
            ),
            Value::Null => Value::Null,
            scalar => Value::String(as_text(scalar).unwrap_or_default()),
        };
        if flat.len() >= MAX_KEYS {
            return Err(Error::IllegalArgument(format!("more than [{MAX_KEYS}] settings in one request")));
        }
        flat.insert(key, plain);
    }
    Ok(())
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Gives every key the `index.` prefix.
pub fn with_index_prefix(flat: Map<String, Value>) -> Map<String, Value> {
    flat.into_iter()
        .map(
            |(key, value)| {
                if key.starts_with("index.") { (key, value) } else { (format!("index.{key}"), value) }
            },
        )
        .collect()
}

/// Nests dotted keys into objects. Where one key is a prefix of another, the longer one stays dotted
/// beside it, as OpenSearch shows it.
pub fn nest(flat: &Map<String, Value>) -> Value {
    let mut root = Map::new();
    let mut keys: Vec<(&String, &Value)> = flat.iter().collect();
    keys.sort_by(|a, b| a.0.cmp(b.0));
    for (key, value) in keys {
        insert_nested(&mut root, key, value);
    }
    Value::Object(root)
}

fn insert_nested(into: &mut Map<String, Value>, key: &str, value: &Value) {
    if let Some((head, tail)) = key.split_once('.') {
        let child = into.entry(head).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(members) = child {
            insert_nested(members, tail, value);
            return;
        }
    }
    into.insert(key.to_owned(), value.clone());
}

/// Renders settings nested, or flat where asked.
pub fn render(flat: &Map<String, Value>, flat_settings: bool) -> Value {
    if !flat_settings {
        return nest(flat);
    }
    let mut keys: Vec<_> = flat.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(keys.into_iter().collect())
}

/// Reads `true` or `false`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Reads a time value such as `30s` or `500ms`. `None` within the result is `-1`, which means never.
///
/// # Errors
/// The reason, without the name of the setting.
pub fn parse_time(text: &str) -> Result<Option<Duration>, &'static str> {
    const UNITS: [(&str, u64); 7] = [
        ("nanos", 1),
        ("micros", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ];
    let text = text.trim();
    match text {
        "-1" => return Ok(None),
        "0" => return Ok(Some(Duration::ZERO)),
        _ => {}
    }
    let digits = text.bytes().take_while(|b| b.is_ascii_digit()).count();
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim();
    let Some((_, nanos)) = UNITS.iter().find(|(name, _)| unit == *name || unit.to_ascii_lowercase() == *name)
    else {
        return Err("unit is missing or unrecognized");
    };
    let count: u64 = count.parse().map_err(|_| "no number before the unit")?;
    count.checked_mul(*nanos).map(|nanos| Some(Duration::from_nanos(nanos))).ok_or("too large")
}

/// Reads a size such as `512mb`. `None` within the result is `-1`, which means without a bound.
///
/// # Errors
/// The reason, without the name of the setting.
pub fn parse_bytes(text: &str) -> Result<Option<u64>, &'static str> {
    const UNITS: [(&str, u32); 11] = [
        ("b", 0),
        ("k", 10),
        ("kb", 10),
        ("m", 20),
        ("mb", 20),
        ("g", 30),
        ("gb", 30),
        ("t", 40),
        ("tb", 40),
        ("p", 50),
        ("pb", 50),
    ];
    let text = text.trim().to_ascii_lowercase();
    match text.as_str() {
        "-1" | "-1b" => return Ok(None),
        "0" => return Ok(Some(0)),
        _ => {}
    }
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (count, unit) = text.split_at(digits);
    let Some((_, shift)) = UNITS.iter().find(|(name, _)| unit.trim() == *name) else {
        return Err("unit is missing or unrecognized");
    };
    let unit_bytes = 1u64 << shift;
    if let Ok(whole) = count.parse::<u64>() {
        return whole.checked_mul(unit_bytes).map(Some).ok_or("too large");
    }
    let fraction: f64 = count.parse().map_err(|_| "no number before the unit")?;
    let bytes = fraction * unit_bytes as f64;
    if bytes.is_finite() && bytes < 9e18 { Ok(Some(bytes as u64)) } else { Err("too large") }
}

/// Kind of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// An integer within bounds.
    Int(i64, i64),
    /// A floating point number of at least so much.
    Float(f64),
    /// `true` or `false`.
    Bool,
    /// A duration, or `-1`.
    Time,
    /// A size in bytes, or `-1`.
    Bytes,
    /// A size in bytes or a percentage.
    BytesOrPercent,
    /// One of some words, in any case.
    OneOf(&'static [&'static str]),
    /// Any string.
    Text,
    /// A list of strings, given as an array or comma-separated.
    List,
    /// Any plain value, as in groups of settings.
    Any,
}

impl Kind {
    /// Checks a value of a setting of this kind.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] in OpenSearch's words.
    pub(super) fn check(self, key: &str, value: &Value) -> Result<()> {
        let refuse = |text: String| Err(Error::IllegalArgument(text));
        let text = match (self, value) {
            (Self::Any | Self::List, Value::Array(_) | Value::String(_)) => return Ok(()),
            (_, Value::String(text)) => text.as_str(),
            (_, other) => return refuse(format!("Failed to parse value [{other}] for setting [{key}]")),
        };
        match self {
            Self::Int(least, most) => {
                let Ok(number) = text.parse::<i64>() else {
                    return refuse(format!("Failed to parse value [{text}] for setting [{key}]"));
                };
                if number < least {
                    return refuse(format!(
                        "Failed to parse value [{text}] for setting [{key}] must be >= {least}"
                    ));
                }
                if number > most {
                    return refuse(format!(
                        "Failed to parse value [{text}] for setting [{key}] must be <= {most}"
                    ));
                }
            }
            Self::Float(least) => match text.parse::<f64>() {
                Ok(number) if number >= least => {}
                Ok(_) => {
                    return refuse(format!(
                        "Failed to parse value [{text}] for setting [{key}] must be >= {least}"
                    ));
                }
                Err(_) => return refuse(format!("Failed to parse value [{text}] for setting [{key}]")),
            },
            Self::Bool => {
                if parse_bool(text).is_none() {
                    return refuse(format!(
                        "Failed to parse value [{text}] as only [true] or [false] are allowed."
                    ));
                }
            }
            Self::Time => {
                if let Err(reason) = parse_time(text) {
                    return refuse(format!(
                        "failed to parse setting [{key}] with value [{text}] as a time value: {reason}"
                    ));
                }
            }
            Self::Bytes => {
                if let Err(reason) = parse_bytes(text) {
                    return refuse(format!(
                        "failed to parse setting [{key}] with value [{text}] as a size in bytes: {reason}"
                    ));
                }
            }
            Self::BytesOrPercent => {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|n| n.parse::<f64>().ok())
                    .is_some_and(|n| (0.0..=100.0).contains(&n));
                let ratio = text.parse::<f64>().is_ok_and(|n| (0.0..=1.0).contains(&n));
                if let (false, false, Err(reason)) = (percent, ratio, parse_bytes(text)) {
                    return refuse(format!(
                        "failed to parse setting [{key}] with value [{text}] as a size in bytes or a percentage: {reason}"
                    ));
                }
            }
            Self::OneOf(words) => {
                if !words.iter().any(|word| word.eq_ignore_ascii_case(text)) {
                    return refuse(format!(
                        "unknown value for [{key}] must be one of [{}] but was: {text}",
                        words.join(", ")
                    ));
                }
            }
            Self::Text | Self::List | Self::Any => {}
        }
        Ok(())
    }
}

/// Finds the names that a misspelt one was probably meant to be, best first.
pub fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const LONGEST: usize = 128;
    if name.len() > LONGEST {
        return Vec::new();
    }
    let mut scored: Vec<(f64, &str)> = known
        .filter_map(|candidate| {
            let shorter = name.len().min(candidate.len());
            if shorter == 0 {
                return None;
            }
            let score = 1.0 - edit_distance(name.as_bytes(), candidate.as_bytes()) as f64 / shorter as f64;
            (score > 0.7).then_some((score, candidate))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().map(|(_, name)| name).collect()
}

/// Says what was probably meant, as OpenSearch does: ` did you mean [x]?`.
pub fn did_you_mean(candidates: &[&str]) -> Option<String> {
    match candidates {
        [] => None,
        [one] => Some(format!(" did you mean [{one}]?")),
        several => Some(format!(" did you mean any of [{}]?", several.join(", "))),
    }
}

/// Counts the insertions, deletions and replacements that make one list of another, in time of the product of their lengths.
pub fn edit_distance<T: PartialEq>(left: &[T], right: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_flatten_to_strings_and_nest_again() {
        let flat = flatten(&json!({
            "index": {"number_of_shards": 2, "blocks": {"write": true}},
            "refresh_interval": null,
            "index.sort.field": ["a", "b"],
        }))
        .unwrap();
        let flat = with_index_prefix(flat);
        assert_eq!(
            Value::Object(flat.clone()),
            json!({
                "index.number_of_shards": "2",
                "index.blocks.write": "true",
                "index.refresh_interval": null,
                "index.sort.field": ["a", "b"],
            })
        );
        assert_eq!(
            nest(&flat),
            json!({"index": {
                "blocks": {"write": "true"},
                "number_of_shards": "2",
                "refresh_interval": null,
                "sort": {"field": ["a", "b"]},
            }})
        );
    }

    #[test]
    fn a_key_below_a_value_stays_dotted() {
        let flat = json!({"a.b": "1", "a.b.c": "2"});
        assert_eq!(nest(flat.as_object().unwrap()), json!({"a": {"b": "1", "b.c": "2"}}));
    }

    #[test]
    fn bodies_that_are_no_settings_are_refused() {
        for body in [json!([1]), json!("x"), json!({"a": [{"b": 1}]}), json!({"": 1})] {
            assert!(flatten(&body).is_err(), "{body}");
        }
    }

    #[test]
    fn times_and_sizes() {
        for (text, expected) in [
            ("1s", Ok(Some(Duration::from_secs(1)))),
            ("500ms", Ok(Some(Duration::from_millis(500)))),
            ("2h", Ok(Some(Duration::from_secs(7200)))),
            ("-1", Ok(None)),
            ("0", Ok(Some(Duration::ZERO))),
            ("5", Err("unit is missing or unrecognized")),
            ("s", Err("no number before the unit")),
            ("99999999999999d", Err("too large")),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
        for (text, expected) in [
            ("512mb", Ok(Some(512 << 20))),
            ("1.5kb", Ok(Some(1536))),
            ("10b", Ok(Some(10))),
            ("-1", Ok(None)),
            ("12", Err("unit is missing or unrecognized")),
            ("99999999pb", Err("too large")),
        ] {
            assert_eq!(parse_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn misspelt_names_find_the_right_ones() {
        let known = ["index.number_of_shards", "index.number_of_replicas", "index.refresh_interval"];
        assert_eq!(similar("index.number_of_shard", known.into_iter())[0], "index.number_of_shards");
        assert!(similar("index.foo", known.into_iter()).is_empty());
    }
}
