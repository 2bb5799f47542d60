//! JSON patches (RFC 6902) of a few operations: `add`, `replace` and `remove`, which is what clients send to change parts of
//! users, roles and mappings.

use serde_json::{Map, Value};

use super::form::BodyMembers;
use crate::error::Error;

/// Most operations of a patch.
const MAX_OPERATIONS: usize = 1_000;
/// Most segments of a path.
const MAX_SEGMENTS: usize = 16;

/// One operation.
#[derive(Debug)]
pub(super) struct Operation {
    kind: Kind,
    /// Decoded segments, at least one.
    pub(super) path: Vec<String>,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Replace,
    Remove,
}

/// Reads the operations of a patch.
pub(super) fn read(body: Value) -> Result<Vec<Operation>, Error> {
    let Value::Array(operations) = body else {
        return Err(super::form::expected("patch", "an array of operations", &body));
    };
    if operations.is_empty() || operations.len() > MAX_OPERATIONS {
        return Err(Error::illegal_argument(format!(
            "a patch has 1 to [{MAX_OPERATIONS}] operations, found [{}]",
            operations.len()
        )));
    }
    operations.into_iter().map(operation).collect()
}

fn operation(body: Value) -> Result<Operation, Error> {
    // Null is a value here, and not that there is none.
    let value = body.get("value").cloned();
    let mut form = BodyMembers::new("operation of a patch", body)?;
    form.ignore(&["value"]);
    let (name, path) = (form.required("op")?, form.required("path")?);
    form.finish()?;
    let kind = match name.as_str() {
        "add" => Kind::Add,
        "replace" => Kind::Replace,
        "remove" => Kind::Remove,
        other => {
            let other: String = other.chars().take(100).collect();
            return Err(Error::illegal_argument(format!(
                "operation [{other}] is not available in patches, use add, replace or remove"
            )));
        }
    };
    let short: String = path.chars().take(100).collect();
    let Some(pointer) = path.strip_prefix('/').filter(|pointer| !pointer.is_empty()) else {
        return Err(Error::illegal_argument(format!(
            "path [{short}] of a patch must begin with / and name something"
        )));
    };
    let path: Vec<String> =
        pointer.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect();
    if path.len() > MAX_SEGMENTS {
        return Err(Error::illegal_argument(format!(
            "path [{short}] of a patch has more than [{MAX_SEGMENTS}] segments"
        )));
    }
    let value = match (kind, value) {
        (Kind::Remove, _) => Value::Null,
        (_, Some(value)) => value,
        (_, None) => return Err(Error::validation(&[format!("[value] of operation [{name}] is missing")])),
    };
    Ok(Operation { kind, path, value })
}

/// Applies an operation to what its path is in.
pub(super) fn apply(operation: Operation, to: &mut Map<String, Value>) -> Result<(), Error> {
    let Operation { kind, path, value } = operation;
    let missing = |segment: &str| {
        let segment: String = segment.chars().take(100).collect();
        Error::illegal_argument(format!("[{segment}] of a patch's path is not there"))
    };
    let Some((last, before)) = path.split_last() else { return Err(missing("")) };
    let Some((first, between)) = before.split_first() else {
        return change(kind, to, last, value).ok_or_else(|| missing(last));
    };
    let mut at = to.get_mut(first).ok_or_else(|| missing(first))?;
    for segment in between {
        at = match at {
            Value::Object(members) => members.get_mut(segment),
            Value::Array(values) => place(segment).and_then(|place| values.get_mut(place)),
            _ => None,
        }
        .ok_or_else(|| missing(segment))?;
    }
    match at {
        Value::Object(members) => change(kind, members, last, value).ok_or_else(|| missing(last)),
        Value::Array(values) => change_array(kind, values, last, value).ok_or_else(|| missing(last)),
        _ => Err(missing(last)),
    }
}

fn change(kind: Kind, members: &mut Map<String, Value>, name: &str, value: Value) -> Option<()> {
    match kind {
        Kind::Add => drop(members.insert(name.to_owned(), value)),
        Kind::Replace => *members.get_mut(name)? = value,
        Kind::Remove => drop(members.remove(name)?),
    }
    Some(())
}

fn change_array(kind: Kind, values: &mut Vec<Value>, at: &str, value: Value) -> Option<()> {
    match (kind, at) {
        (Kind::Add, "-") => values.push(value),
        (Kind::Add, at) => {
            let at = place(at).filter(|at| *at <= values.len())?;
            values.insert(at, value);
        }
        (Kind::Replace, at) => *values.get_mut(place(at)?)? = value,
        (Kind::Remove, at) => {
            let at = place(at).filter(|at| *at < values.len())?;
            values.remove(at);
        }
    }
    Some(())
}

/// A place in an array, without signs and leading zeros.
fn place(segment: &str) -> Option<usize> {
    let is_plain = segment == "0" || (!segment.starts_with(['0', '+']) && !segment.is_empty());
    segment.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(operations: Value) -> Result<Value, String> {
        let Value::Object(mut to) = json!({"a": {"b": [1, 2]}, "c~/d": 1}) else { unreachable!() };
        let run = || -> Result<(), Error> {
            read(operations)?.into_iter().try_for_each(|operation| apply(operation, &mut to))
        };
        run().map_err(|error| error.reason().to_owned())?;
        Ok(Value::Object(to))
    }

    #[test]
    fn operations_change_what_they_name() {
        for (operations, expected) in [
            (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "c~/d": 1})),
            (json!([{"op": "add", "path": "/a/b/0", "value": 0}]), json!({"a": {"b": [0, 1, 2]}, "c~/d": 1})),
            (
                json!([{"op": "replace", "path": "/c~0~1d", "value": null}]),
                json!({"a": {"b": [1, 2]}, "c~/d": null}),
            ),
            (
                json!([{"op": "remove", "path": "/a/b/1"}, {"op": "remove", "path": "/c~0~1d"}]),
                json!({"a": {"b": [1]}}),
            ),
        ] {
            assert_eq!(patched(operations.clone()), Ok(expected), "{operations}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (operations, reason) in [
            (json!({}), "[patch] must be an array of operations, found an object"),
            (json!([]), "a patch has 1 to [1000] operations, found [0]"),
            (json!([{"op": "move", "from": "/a", "path": "/b"}]), "unexpected member [from]"),
            (json!([{"op": "test", "path": "/a", "value": 1}]), "operation [test] is not available"),
            (json!([{"op": "add", "path": "/a"}]), "[value] of operation [add] is missing"),
            (json!([{"op": "remove", "path": "/x"}]), "[x] of a patch's path is not there"),
            (json!([{"op": "replace", "path": "/a/b/2", "value": 1}]), "[2] of a patch's path is not there"),
            (
                json!([{"op": "replace", "path": "/a/b/01", "value": 1}]),
                "[01] of a patch's path is not there",
            ),
            (json!([{"op": "add", "path": "a", "value": 1}]), "path [a] of a patch must begin with /"),
            (json!([{"op": "add", "path": "/c~0~1d/e", "value": 1}]), "[e] of a patch's path is not there"),
        ] {
            let error = patched(operations.clone()).unwrap_err();
            assert!(error.contains(reason), "{operations}: {error}");
        }
    }
}
