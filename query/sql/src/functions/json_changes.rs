//! Functions that change JSON: `json_set`, `json_delete`, `json_append` and `json_extend`.

use serde_json::Value;

use super::Definition;
use super::json::{MAX_BYTES, size, too_long, value_of};
use super::row::{Context, Val};
use crate::types::SqlType::{self, Boolean, Keyword, Undefined};

type Answer<'a> = Result<Val<'a>, String>;

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Element(usize),
    EachElement,
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "json_set" => Definition::new(pairs, |args, _| changed(args, |value, new| *value = new.clone())),
        "json_append" => Definition::new(pairs, |args, _| {
            changed(args, |value, new| {
                if let Value::Array(values) = value {
                    values.push(new.clone());
                }
            })
        }),
        "json_extend" => Definition::new(pairs, |args, _| {
            changed(args, |value, new| {
                let Value::Array(values) = value else { return };
                let parsed = new.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
                match parsed {
                    Some(Value::Array(more)) => values.extend(more),
                    _ => values.push(new.clone()),
                }
            })
        }),
        "json_delete" => Definition::new(texts, json_delete),
        _ => return None,
    })
}

fn texts(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let fits = types.len() >= 2 && types.iter().all(|ty| ty.is_string() || *ty == Undefined);
    fits.then(|| (vec![Keyword; types.len()], Keyword))
}

/// Takes JSON, then paths and values in turn.
fn pairs(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let own = |ty: &SqlType| if ty.is_number() || ty.is_json() || *ty == Boolean { *ty } else { Keyword };
    let fits = types.len() >= 3 && types.len() % 2 == 1;
    fits.then(|| (types.iter().map(own).collect(), Keyword))
}

/// Reads a path such as `a.b{0}.c` or `$.a[*].b`.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let path = path.strip_prefix('$').unwrap_or(path);
    for part in path.split(['.', '{', '[']) {
        let (text, is_index) = match part.strip_suffix(['}', ']']) {
            Some(text) => (text, true),
            None => (part, false),
        };
        match (is_index, text) {
            (true, "" | "*") => steps.push(Step::EachElement),
            (true, text) => match text.parse() {
                Ok(at) => steps.push(Step::Element(at)),
                Err(_) => steps.push(Step::Member(text.trim_matches(['\'', '"']).to_owned())),
            },
            (false, "") => {}
            (false, text) => steps.push(Step::Member(text.to_owned())),
        }
    }
    steps
}

/// Visits the values of a path.
fn visit(value: &mut Value, steps: &[Step], change: &mut dyn FnMut(&mut Value)) {
    match (steps, value) {
        ([], value) => change(value),
        ([Step::Member(name), rest @ ..], Value::Object(members)) => {
            if let Some(own) = members.get_mut(name) {
                visit(own, rest, change);
            }
        }
        ([Step::Element(at), rest @ ..], Value::Array(values)) => {
            if let Some(own) = values.get_mut(*at) {
                visit(own, rest, change);
            }
        }
        ([Step::EachElement, rest @ ..], Value::Array(values)) => {
            values.iter_mut().for_each(|own| visit(own, rest, change));
        }
        _ => {}
    }
}

/// Changes the values of paths; each change may add as many bytes as the new value has.
fn changed<'a>(args: &[Val<'a>], change: impl Fn(&mut Value, &Value)) -> Answer<'a> {
    let [text, pairs @ ..] = args else { return Ok(Val::Null) };
    let Ok(mut value) = serde_json::from_str::<Value>(text.text()) else { return Ok(Val::Null) };
    let mut left = MAX_BYTES.checked_sub(text.text().len());
    for pair in pairs.chunks(2) {
        let [path, new] = pair else { continue };
        let bytes = size(new);
        let new = value_of(new);
        visit(&mut value, &steps(path.text()), &mut |own| {
            left = left.and_then(|left| left.checked_sub(bytes));
            if left.is_some() {
                change(own, &new);
            }
        });
        left.ok_or_else(too_long)?;
    }
    Ok(Val::str(value.to_string()))
}

fn json_delete<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, paths @ ..] = args else { return Ok(Val::Null) };
    let Ok(mut value) = serde_json::from_str::<Value>(text.text()) else { return Ok(Val::Null) };
    for path in paths {
        let steps = steps(path.text());
        let Some((last, before)) = steps.split_last() else { continue };
        visit(&mut value, before, &mut |own| match (last, own) {
            (Step::Member(name), Value::Object(members)) => drop(members.remove(name)),
            (Step::Element(at), Value::Array(values)) if *at < values.len() => drop(values.remove(*at)),
            (Step::EachElement, Value::Array(values)) => values.clear(),
            _ => {}
        });
    }
    Ok(Val::str(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn values_of_paths_change() {
        let text = || Val::str(r#"{"a":[{"b":1},{"b":2}],"c":["x"]}"#);
        let path = |path: &'static str| Val::str(path);
        assert_eq!(
            run("json_set", &[text(), path("a{}.b"), Val::Int(3)]),
            Val::str(r#"{"a":[{"b":3},{"b":3}],"c":["x"]}"#)
        );
        assert_eq!(
            run("json_delete", &[text(), path("a{0}.b")]),
            Val::str(r#"{"a":[{},{"b":2}],"c":["x"]}"#)
        );
        assert_eq!(
            run("json_append", &[text(), path("c"), Val::str("y")]),
            Val::str(r#"{"a":[{"b":1},{"b":2}],"c":["x","y"]}"#)
        );
        assert_eq!(
            run("json_extend", &[text(), path("c"), Val::str(r#"["y","z"]"#)]),
            Val::str(r#"{"a":[{"b":1},{"b":2}],"c":["x","y","z"]}"#)
        );
    }

    #[test]
    fn long_results_are_refused() {
        for name in ["json_set", "json_append", "json_extend"] {
            let text = Val::str(r#"{"a":[[1],[2],[3]]}"#);
            let args = [text, Val::str("a{}"), Val::str("x".repeat(MAX_BYTES / 2))];
            let answer = (find(name).unwrap().eval)(&args, Context { now: 0, ty: Keyword });
            assert_eq!(answer, Err(too_long()), "{name}");
        }
    }
}
