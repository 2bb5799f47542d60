//! Functions of JSON: values in it, and arrays, which are held as its text.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::row::{Context, Val};
use super::{Definition, shown, time};
use crate::types::SqlType::{self, Array, Boolean, Integer, Keyword, Long, Object, Undefined};

type Answer<'a> = Result<Val<'a>, String>;

/// Longest text that a function makes, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Deepest JSON whose members become names.
const MAX_DEPTH: usize = 32;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "json_member" | "json_path" => Definition::new(two_texts, |args, _| {
            let [text, path] = args else { return Ok(Val::Null) };
            Ok(read(text.text()).and_then(|value| at_path(&value, path.text())).map_or(Val::Null, into_text))
        }),
        "json_extract_all" => Definition::new(
            |types| json_types(types, 1, Object),
            |args, _| {
                let Some(value) = args.first().and_then(|text| read(text.text())) else {
                    return Ok(Val::Null);
                };
                let (mut members, mut left) = (Map::new(), MAX_BYTES);
                flatten(&value, "", 0, &mut members, &mut left)?;
                // Several values of a path are one text.
                for value in members.values_mut() {
                    if let Value::Array(values) = value {
                        let texts: Vec<String> = values.iter().map(plain).collect();
                        *value = json!(format!("[{}]", texts.join(", ")));
                    }
                }
                Ok(Val::str(Value::Object(members).to_string()))
            },
        ),
        "json_extract" => Definition::new(json_extract_types, json_extract),
        "json_valid" => Definition::new(
            |types| json_types(types, 1, Boolean),
            |args, _| Ok(Val::Bool(args.first().is_some_and(|text| read(text.text()).is_some()))),
        ),
        "json" => Definition::new(
            |types| json_types(types, 1, Keyword),
            |args, _| {
                let valid = args.first().filter(|text| read(text.text()).is_some());
                Ok(valid.cloned().unwrap_or(Val::Null))
            },
        ),
        "json_array_length" => Definition::new(
            |types| json_types(types, 1, Integer),
            |args, _| {
                let value = args.first().and_then(|text| read(text.text()));
                Ok(match value {
                    Some(Value::Array(values)) => Val::Int(values.len() as i64),
                    _ => Val::Null,
                })
            },
        ),
        "json_keys" => Definition::new(
            |types| json_types(types, 1, Keyword),
            |args, _| {
                let value = args.first().and_then(|text| read(text.text()));
                Ok(match value {
                    Some(Value::Object(members)) => {
                        Val::str(json!(members.keys().collect::<Vec<_>>()).to_string())
                    }
                    _ => Val::Null,
                })
            },
        ),
        "json_array" => Definition::with_nulls(any_types_to_text, array),
        "json_object" => Definition::with_nulls(any_types_to_text, |args, _| {
            check_size(args.iter().map(size))?;
            let mut members = Map::new();
            for pair in args.chunks(2) {
                let [name, value] = pair else {
                    return Err("json_object takes names and values in pairs".to_owned());
                };
                members.insert(shown(name), value_of(value));
            }
            Ok(Val::str(Value::Object(members).to_string()))
        }),
        "row_object" => Definition::with_nulls(
            |types| Some((any(types), Object)),
            |args, _| {
                check_size(args.iter().map(size))?;
                let mut members = Map::new();
                for pair in args.chunks(2) {
                    let [name, value] = pair else { return Ok(Val::Null) };
                    // What is JSON is a value of its own.
                    let value = match value {
                        Val::Str(text) if text.starts_with(['[', '{']) => {
                            read(text).unwrap_or_else(|| value_of(value))
                        }
                        other => value_of(other),
                    };
                    members.insert(shown(name), value);
                }
                Ok(Val::str(Value::Object(members).to_string()))
            },
        ),
        "array" => Definition::with_nulls(any_types_to_array, array),
        "array_length" => Definition::new(
            |types| json_types(types, 1, Integer),
            |args, _| Ok(args.first().map_or(Val::Null, |value| Val::Int(elements(value).len() as i64))),
        ),
        "mvappend" => Definition::with_nulls(any_types_to_array, |args, _| {
            check_size(args.iter().map(size))?;
            let values: Vec<Value> =
                args.iter().filter(|value| **value != Val::Null).flat_map(elements_of_any).collect();
            Ok(if values.is_empty() { Val::Null } else { array_of(values)? })
        }),
        "mvjoin" => Definition::new(two_texts, |args, _| {
            let [values, separator] = args else { return Ok(Val::Null) };
            let texts: Vec<String> =
                elements(values).iter().filter(|value| !value.is_null()).map(plain).collect();
            check_size(texts.iter().map(|text| text.len().saturating_add(separator.text().len())))?;
            Ok(Val::str(texts.join(separator.text())))
        }),
        "mvdedup" => Definition::new(
            |types| json_types(types, 1, Array),
            |args, _| {
                let mut known = HashSet::new();
                let mut values = args.first().map(elements).unwrap_or_default();
                values.retain(|value| !value.is_null() && known.insert(value.to_string()));
                array_of(values)
            },
        ),
        "mvindex" => Definition::new(mvindex_types, mvindex),
        "mvfind" => Definition::new(
            |types| json_types(types, 2, Integer),
            |args, _| {
                let [values, pattern] = args else { return Ok(Val::Null) };
                let regex = regex::RegexBuilder::new(pattern.text()).size_limit(1 << 20).build();
                let regex = regex
                    .map_err(|error| format!("[{}] is no regular expression: {error}", pattern.text()))?;
                let at = elements(values).iter().position(|value| regex.is_match(&plain(value)));
                Ok(at.map_or(Val::Null, |at| Val::Int(at as i64)))
            },
        ),
        "mvzip" => Definition::new(mvzip_types, mvzip),
        "split" => Definition::new(
            |types| json_types(types, 2, Array),
            |args, _| {
                let [text, separator] = args else { return Ok(Val::Null) };
                let parts: Vec<String> = match separator.text() {
                    "" => text.text().chars().map(String::from).collect(),
                    separator => text.text().split(separator).map(str::to_owned).collect(),
                };
                array_of(parts.into_iter().map(Value::String).collect())
            },
        ),
        "mvcontains" => Definition::new(
            |types| json_types(types, 2, Boolean),
            |args, _| {
                let [values, value] = args else { return Ok(Val::Null) };
                let text = shown(value);
                Ok(Val::Bool(elements(values).iter().any(|own| plain(own) == text)))
            },
        ),
        _ => return None,
    })
}

/// Takes texts and JSON, so many of them.
fn json_types(types: &[SqlType], count: usize, ty: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    let own = |ty: &SqlType| match ty {
        ty if ty.is_json() => Some(*ty),
        ty if ty.is_string() || *ty == Undefined => Some(Keyword),
        _ => None,
    };
    let wanted: Vec<SqlType> = types.iter().map(own).collect::<Option<_>>()?;
    (wanted.len() == count).then_some((wanted, ty))
}

fn two_texts(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    json_types(types, 2, Keyword)
}

fn json_extract_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    if types.len() < 2 { None } else { json_types(types, types.len(), Keyword) }
}

fn any(types: &[SqlType]) -> Vec<SqlType> {
    let own = |ty: &SqlType| match ty {
        ty if ty.is_json() || ty.is_number() || *ty == Boolean => *ty,
        _ => Keyword,
    };
    types.iter().map(own).collect()
}

fn any_types_to_text(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    Some((any(types), Keyword))
}

fn any_types_to_array(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    Some((any(types), Array))
}

fn mvindex_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [values, first, rest @ ..] = types else { return None };
    let fits =
        values.is_json() && first.is_integer() && rest.iter().all(|ty| ty.is_integer()) && rest.len() < 2;
    let ty = if rest.is_empty() { Keyword } else { Array };
    let mut wanted = vec![Long; types.len()];
    if let Some(own) = wanted.first_mut() {
        *own = *values;
    }
    fits.then_some((wanted, ty))
}

fn mvzip_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types.len() {
        2 | 3 => json_types(types, types.len(), Array),
        _ => None,
    }
}

fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Makes JSON of a value: a text stays one.
pub(super) fn value_of(value: &Val<'_>) -> Value {
    match value {
        Val::Null => Value::Null,
        Val::Bool(flag) => json!(flag),
        Val::Int(number) => json!(number),
        Val::Float(number) => json!(number),
        Val::Str(text) => json!(text.as_ref()),
        other => json!(shown(other)),
    }
}

/// Reads the elements of an array; another value is one element.
fn elements(value: &Val<'_>) -> Vec<Value> {
    match read(value.text()) {
        Some(Value::Array(values)) => values,
        Some(other) => vec![other],
        None => vec![value_of(value)],
    }
}

/// Reads an element as a value of a type; null where it is none.
pub(super) fn element(value: &Value, ty: SqlType) -> Val<'static> {
    match (value, ty) {
        (Value::Null, _) => Val::Null,
        (Value::Bool(flag), SqlType::Boolean) => Val::Bool(*flag),
        (Value::Number(number), ty) if ty.is_integer() => {
            let whole = number.as_i64().or_else(|| number.as_f64().map(|number| number as i64));
            whole.map_or(Val::Null, Val::Int)
        }
        (Value::Number(number), ty) if ty.is_number() => number.as_f64().map_or(Val::Null, Val::Float),
        (Value::String(text), ty) if ty.is_number() => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() && ty.is_integer() => Val::Int(number as i64),
            Ok(number) if number.is_finite() => Val::Float(number),
            _ => Val::Null,
        },
        (Value::String(text), SqlType::Timestamp(_)) => time::instant(text).map_or(Val::Null, Val::Timestamp),
        (Value::String(text), SqlType::Date) => time::date(text).map_or(Val::Null, Val::Date),
        (Value::String(text), SqlType::Time) => time::time(text).map_or(Val::Null, Val::Time),
        (Value::String(text), ty) if !ty.is_json() && ty.arrow() == Keyword.arrow() => {
            Val::str(text.as_str())
        }
        (other, ty) if ty.arrow() == Keyword.arrow() => Val::str(other.to_string()),
        _ => Val::Null,
    }
}

/// Returns the bytes of a value in JSON, without escapes.
pub(super) fn size(value: &Val<'_>) -> usize {
    match value {
        Val::Str(text) => text.len().saturating_add(3),
        _ => 8,
    }
}

/// Refuses a result that would be too long, by the sizes of its parts.
fn check_size(sizes: impl Iterator<Item = usize>) -> Result<(), String> {
    match sizes.fold(0, usize::saturating_add) > MAX_BYTES {
        true => Err(too_long()),
        false => Ok(()),
    }
}

pub(super) fn too_long() -> String {
    format!("JSON would be longer than {MAX_BYTES} bytes")
}

fn array<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    check_size(args.iter().map(size))?;
    Ok(Val::str(Value::Array(args.iter().map(value_of).collect()).to_string()))
}

fn elements_of_any(value: &Val<'_>) -> Vec<Value> {
    match value {
        Val::Str(text) if text.starts_with('[') => elements(value),
        other => vec![value_of(other)],
    }
}

fn array_of<'a>(values: Vec<Value>) -> Answer<'a> {
    let text = Value::Array(values).to_string();
    match text.len() > MAX_BYTES {
        true => Err(format!("an array would be longer than {MAX_BYTES} bytes")),
        false => Ok(Val::str(text)),
    }
}

/// Writes a value of JSON without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn into_text<'a>(value: Value) -> Val<'a> {
    match value {
        Value::Null => Val::Null,
        other => Val::Str(Cow::Owned(plain(&other))),
    }
}

/// Finds the value of a path such as `a.b{0}.c`, `$.a[0]` or `a{}.b`, which is of all elements.
fn at_path(value: &Value, path: &str) -> Option<Value> {
    let path = path.strip_prefix('$').unwrap_or(path).trim_start_matches('.');
    if let Some(found) = value.get(path) {
        return Some(found.clone());
    }
    if path.is_empty() {
        return Some(value.clone());
    }
    let end = path.find(['.', '{', '[']).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    if !name.is_empty() {
        let name = name.trim_matches(['\'', '"']);
        return at_path(value.get(name)?, rest);
    }
    let close = if path.starts_with('{') { '}' } else { ']' };
    let (index, rest) = path.get(1..)?.split_once(close)?;
    match index.trim() {
        "" | "*" => {
            let Value::Array(values) = value else { return None };
            let found: Vec<Value> = values.iter().filter_map(|value| at_path(value, rest)).collect();
            Some(Value::Array(found))
        }
        index => match index.parse::<usize>() {
            Ok(index) => at_path(value.get(index)?, rest),
            Err(_) => at_path(value.get(index.trim_matches(['\'', '"']))?, rest),
        },
    }
}

fn json_extract<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, paths @ ..] = args else { return Ok(Val::Null) };
    let Some(value) = read(text.text()) else { return Ok(Val::Null) };
    let found = |path: &Val<'_>| at_path(&value, path.text());
    Ok(match paths {
        [path] => found(path).map_or(Val::Null, into_text),
        paths => {
            // Many paths may find the same long value.
            let mut texts = Vec::with_capacity(paths.len());
            let mut left = MAX_BYTES;
            for path in paths {
                let text = found(path).unwrap_or(Value::Null).to_string();
                left = left.checked_sub(text.len()).ok_or_else(too_long)?;
                texts.push(text);
            }
            Val::str(format!("[{}]", texts.join(",")))
        }
    })
}

/// Lists the leaves of JSON by their paths; arrays are `{}`. Leaves and paths take the bytes that are left.
fn flatten(
    value: &Value,
    path: &str,
    depth: usize,
    members: &mut Map<String, Value>,
    left: &mut usize,
) -> Result<(), String> {
    match value {
        Value::Object(own) if depth < MAX_DEPTH => {
            for (name, value) in own {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(value, &path, depth + 1, members, left)?;
            }
        }
        Value::Array(values) if depth < MAX_DEPTH => {
            for value in values {
                flatten(value, &format!("{path}{{}}"), depth + 1, members, left)?;
            }
        }
        leaf => {
            let text = plain(leaf);
            *left = left.checked_sub(path.len() + text.len()).ok_or_else(too_long)?;
            let text = json!(text);
            match members.get_mut(path) {
                None => {
                    members.insert(path.to_owned(), if leaf.is_null() { json!("null") } else { text });
                }
                Some(Value::Array(values)) => values.push(text),
                Some(own) => *own = json!([own.take(), text]),
            }
        }
    }
    Ok(())
}

fn position(index: i64, length: usize) -> Option<usize> {
    let at = if index < 0 { index.checked_add(i64::try_from(length).ok()?)? } else { index };
    usize::try_from(at).ok()
}

fn mvindex<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [values, first, rest @ ..] = args else { return Ok(Val::Null) };
    let values = elements(values);
    let start = position(first.int(), values.len());
    match rest {
        [] => Ok(start.and_then(|at| values.get(at)).cloned().map_or(Val::Null, into_text)),
        [last, ..] => {
            let end = position(last.int(), values.len()).map(|at| at.min(values.len().saturating_sub(1)));
            match (start, end) {
                (Some(start), Some(end)) => array_of(values.get(start..=end).unwrap_or_default().to_vec()),
                _ => Ok(Val::Null),
            }
        }
    }
}

fn mvzip<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [one, other, rest @ ..] = args else { return Ok(Val::Null) };
    let separator = rest.first().map_or(",", Val::text);
    let (ones, others) = (elements(one), elements(other));
    let count = ones.len().min(others.len());
    check_size([size(one), size(other), count.saturating_mul(separator.len())].into_iter())?;
    let pairs = ones.iter().zip(&others);
    array_of(pairs.map(|(one, other)| json!(format!("{}{separator}{}", plain(one), plain(other)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn paths_find_values() {
        let text = || Val::str(r#"{"a":{"b":[{"c":1},{"c":"x"}]},"d.e":true}"#);
        for (path, expected) in [
            ("a.b{0}.c", Some("1")),
            ("$.a.b[1].c", Some("x")),
            ("a.b{}.c", Some(r#"[1,"x"]"#)),
            ("d.e", Some("true")),
            ("a.x", None),
        ] {
            assert_eq!(
                run("json_path", &[text(), Val::str(path)]),
                expected.map_or(Val::Null, Val::str),
                "{path}"
            );
        }
        let all = r#"{"a.b{}.c":"[1, x]","d.e":"true"}"#;
        assert_eq!(run("json_extract_all", &[text()]), Val::str(all));
    }

    #[test]
    fn arrays_are_texts_of_json() {
        let array = run("array", &[Val::Int(1), Val::Int(2), Val::Int(2)]);
        assert_eq!(run("mvdedup", std::slice::from_ref(&array)), Val::str("[1,2]"));
        assert_eq!(run("mvindex", &[array.clone(), Val::Int(-1)]), Val::str("2"));
        assert_eq!(run("mvindex", &[array.clone(), Val::Int(0), Val::Int(1)]), Val::str("[1,2]"));
        assert_eq!(run("mvjoin", &[array, Val::str("-")]), Val::str("1-2-2"));
        assert_eq!(run("mvappend", &[Val::str("a"), Val::str("b")]), Val::str(r#"["a","b"]"#));
    }

    #[test]
    fn long_results_are_refused() {
        let long = || Val::str("x".repeat(MAX_BYTES / 2));
        let names = format!(r#"{{"{}":{{"a":1,"b":2,"c":3}}}}"#, "x".repeat(MAX_BYTES / 2));
        for (name, args) in [
            ("mvjoin", vec![Val::str("[1,2,3]"), long()]),
            ("mvzip", vec![Val::str("[1,2,3]"), Val::str("[1,2,3]"), long()]),
            ("mvappend", vec![long(), long()]),
            ("json_array", vec![long(), long()]),
            ("array", vec![long(), long()]),
            ("json_object", vec![Val::str("a"), long(), Val::str("b"), long()]),
            ("json_extract", vec![Val::str(names.as_str()), Val::str("$"), Val::str("$"), Val::str("$")]),
            ("json_extract_all", vec![Val::str(names.as_str())]),
        ] {
            let answer = (find(name).unwrap().eval)(&args, Context { now: 0, ty: Keyword });
            assert_eq!(answer, Err(too_long()), "{name}");
        }
    }
}
