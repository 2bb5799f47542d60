//! `collapse`: one hit for each value of a field.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::inner_hits::InnerHits;
use super::json::{self, token};

/// Most definitions of inner hits of one `collapse`.
const MAX_INNER_HITS: usize = 64;

/// Groups of hits.
#[derive(Clone, Debug, Default)]
pub struct Collapse {
    /// The field by whose values hits are grouped.
    pub field: String,
    /// Hits of each group that are shown beside its best one.
    pub inner_hits: Vec<InnerHits>,
}

impl Collapse {
    /// Parses the value of `collapse`.
    pub fn parse(value: &Value) -> Result<Self> {
        let members = value
            .as_object()
            .ok_or_else(|| Error::Parsing(format!("Unknown key for a {} in [collapse].", token(value))))?;
        let mut collapse = Self::default();
        for (key, value) in members {
            match key.as_str() {
                "field" => collapse.field = json::text(value).ok_or_else(|| wrong_type(key, value))?,
                "inner_hits" => {
                    let definitions = match value {
                        Value::Object(_) => std::slice::from_ref(value),
                        Value::Array(items) => items.as_slice(),
                        other => return Err(wrong_type(key, other)),
                    };
                    if definitions.len() > MAX_INNER_HITS {
                        return Err(Error::IllegalArgument(format!(
                            "too many [inner_hits] in [collapse]: {} given, at most {MAX_INNER_HITS} allowed",
                            definitions.len()
                        )));
                    }
                    for definition in definitions {
                        let inner = InnerHits::parse(definition)?;
                        if inner.name.is_none() {
                            return Err(Error::IllegalArgument("Field name cannot be null".to_owned()));
                        }
                        // Of several with one name, the last is shown.
                        collapse.inner_hits.retain(|other| other.name != inner.name);
                        collapse.inner_hits.push(inner);
                    }
                }
                // Says how many groups are asked for at a time on other nodes.
                "max_concurrent_group_searches" => {
                    if json::integer(value)? < 1 {
                        return Err(json::content(
                            "[collapse] failed to parse field [max_concurrent_group_searches]: maxConcurrentGroupRequests` must be positive".to_owned(),
                        ));
                    }
                }
                other => {
                    return Err(json::content(format!(
                        "[collapse] unknown field [{other}]{}",
                        json::did_you_mean(other, &["field", "inner_hits", "max_concurrent_group_searches"])
                    )));
                }
            }
        }
        if collapse.field.is_empty() {
            return Err(Error::IllegalArgument("[collapse] must name a [field]".to_owned()));
        }
        Ok(collapse)
    }
}

fn wrong_type(key: &str, value: &Value) -> Error {
    json::content(format!("[collapse] {key} doesn't support values of type: {}", token(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_are_parsed_and_checked() {
        let collapse = Collapse::parse(&json!({
            "field": "k",
            "inner_hits": [{"name": "a", "from": 1, "sort": "n"}, {"name": "b", "collapse": {"field": "n"}}]
        }))
        .unwrap();
        assert_eq!((collapse.inner_hits[0].body.from, collapse.inner_hits[0].body.size), (Some(1), Some(3)));
        assert_eq!(collapse.inner_hits[1].collapse.as_ref().unwrap().field, "n");
        let refused = |value| Collapse::parse(&value).unwrap_err().to_string();
        let nested = json!({"field": "n", "inner_hits": {"name": "z"}});
        let texts = [
            refused(json!("k")),
            refused(json!({"field": "k", "foo": 1})),
            refused(json!({"field": "k", "inner_hits": {}})),
            refused(json!({"field": "k", "inner_hits": {"name": "i", "foo": 1}})),
            refused(json!({"field": "k", "inner_hits": {"name": "i", "size": -1}})),
            refused(json!({"field": "k", "inner_hits": {"name": "i", "collapse": nested}})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        Unknown key for a VALUE_STRING in [collapse].
        [collapse] unknown field [foo]
        Field name cannot be null
        [inner_hits] unknown field [foo]
        illegal size value, at least 0 or higher
        Invalid token in the inner collapse
        ");
    }
}
