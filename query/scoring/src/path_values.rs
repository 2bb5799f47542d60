//! Scalars that a document has at a dotted path.

use serde_json::Value;

/// Deepest place in a document that values are taken from.
pub const MAX_DEPTH: usize = 100;

/// Gives `found` the scalars that a document has at a dotted path.
pub fn each_value_at(source: &Value, path: &str, found: &mut dyn FnMut(&Value)) {
    visit_values_at(source, path, MAX_DEPTH, &mut |value| {
        found(value);
        true
    });
}

/// Returns true if a document has a scalar at a dotted path.
pub fn has_value_at(source: &Value, path: &str) -> bool {
    let mut found = false;
    visit_values_at(source, path, MAX_DEPTH, &mut |_| {
        found = true;
        false
    });
    found
}

/// Gives `found` the scalars at a dotted path until it returns false; names in the document may have dots themselves. Returns
/// whether it goes on.
pub fn visit_values_at(
    value: &Value,
    path: &str,
    depth: usize,
    found: &mut dyn FnMut(&Value) -> bool,
) -> bool {
    if depth == 0 {
        return true;
    }
    match value {
        Value::Array(items) => items.iter().all(|item| visit_values_at(item, path, depth - 1, found)),
        Value::Object(members) if !path.is_empty() => {
            members.iter().all(|(name, member)| match path.strip_prefix(name.as_str()) {
                Some("") => visit_values_at(member, "", depth - 1, found),
                Some(rest) => match rest.strip_prefix('.') {
                    Some(rest) => visit_values_at(member, rest, depth - 1, found),
                    None => true,
                },
                None => true,
            })
        }
        Value::Object(_) | Value::Null => true,
        scalar if path.is_empty() => found(scalar),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_at_a_path() {
        let source = json!({"a": {"b": [1, {"c": "x"}, null], "b.c": "y"}, "a.b": 2, "d": [[3], 4]});
        let at = |path: &str| {
            let mut found = Vec::new();
            visit_values_at(&source, path, MAX_DEPTH, &mut |value| {
                found.push(value.clone());
                found.len() < 3
            });
            json!(found)
        };
        assert_eq!(at("a.b"), json!([1, 2]));
        assert_eq!(at("a.b.c"), json!(["x", "y"]));
        assert_eq!(at("d"), json!([3, 4]));
        assert_eq!(at("a"), json!([]));
        assert_eq!(at("e"), json!([]));
        assert!(has_value_at(&source, "a.b.c") && !has_value_at(&source, "a"));
    }
}
