//! The action `shrink`: an index with fewer shards and the documents of the managed one.

use millrace_catalog::metadata::fewest_shards;
use serde_json::{Map, Value, json};

use super::parse::{invalid, list, members, number, size, text};
use super::text_template::check_template;
use crate::error::Result;

/// Name of the target without a template.
const DEFAULT_TARGET: &str = "{{ctx.index}}_shrunken";

/// Parameters of the action.
#[derive(Clone, Debug, PartialEq)]
pub struct ShrinkTarget {
    /// Shards of the target.
    pub shards: ShrinkShards,
    /// Template of its name.
    pub name: String,
    /// Aliases of it, by name.
    pub aliases: Map<String, Value>,
    /// `true` if it takes the aliases of its source.
    pub switch_aliases: bool,
    /// `true` if it takes the place of its source: its aliases, its name as an alias, its age. The source is deleted then.
    pub replace_source: bool,
}

/// Number of shards of the target. It divides the number of the source's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShrinkShards {
    /// So many at most.
    Count(u64),
    /// This share of the source's at most.
    Share(f64),
    /// As few as keep each below so many bytes.
    Bytes(u64),
}

impl ShrinkShards {
    /// Returns the number of shards of the target for a source with so many shards and bytes.
    pub(crate) fn resolve(self, shards: u64, bytes: u64) -> u64 {
        let divisors = (1..=shards.max(1)).filter(|count| shards.max(1).is_multiple_of(*count));
        let at_most = |most: u64| divisors.clone().filter(|count| *count <= most.max(1)).max();
        let found = match self {
            Self::Count(count) => at_most(count),
            // A share of a small number: no digit is lost.
            Self::Share(share) => at_most((share * shards as f64).floor() as u64),
            Self::Bytes(most) => Some(fewest_shards(shards, bytes, most)),
        };
        found.unwrap_or(shards.max(1))
    }
}

/// Reads the parameters.
///
/// # Errors
/// [`crate::Error::Invalid`] with the member.
pub(super) fn parse_shrink(params: &Map<String, Value>) -> Result<ShrinkTarget> {
    let (mut shards, mut switch_aliases, mut replace_source) = (Vec::new(), false, false);
    let (mut name, mut aliases) = (DEFAULT_TARGET.to_owned(), Map::new());
    for (key, value) in params {
        match key.as_str() {
            "num_new_shards" => match number(key, value)? {
                0 => return invalid("[num_new_shards] must be at least 1"),
                count => shards.push(ShrinkShards::Count(count)),
            },
            "percentage_of_source_shards" => match value.as_f64() {
                Some(share) if share > 0.0 && share < 1.0 => shards.push(ShrinkShards::Share(share)),
                _ => return invalid(format!("[{key}] must be between 0 and 1, but is [{value}]")),
            },
            "max_shard_size" => match size(key, value)? {
                0 => return invalid("[max_shard_size] must be more than 0"),
                bytes => shards.push(ShrinkShards::Bytes(bytes)),
            },
            "target_index_name_template" => name = parse_template(key, value)?,
            "aliases" if value.is_null() => {}
            "aliases" => {
                for entry in list(key, value)? {
                    aliases.extend(members(key, entry)?.clone());
                }
            }
            "switch_aliases" if value.is_boolean() => switch_aliases = value == true,
            "replace_source" if value.is_boolean() => replace_source = value == true,
            // It is about the copies of a shard on other nodes.
            "force_unsafe" => {}
            other => return invalid(format!("Invalid field: [{other}] found in action [shrink].")),
        }
    }
    match shards[..] {
        [shards] => Ok(ShrinkTarget { shards, name, aliases, switch_aliases, replace_source }),
        _ => invalid(
            "action [shrink] has exactly one of [num_new_shards, max_shard_size, percentage_of_source_shards]",
        ),
    }
}

/// Reads a template: a text, or an object with `source` and `lang`.
pub(super) fn parse_template(field: &str, value: &Value) -> Result<String> {
    let mut source = value.as_str();
    for (key, value) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "source" => source = Some(text(key, value)?),
            "lang" if *value == json!("mustache") => {}
            "options" | "params" if value.as_object().is_some_and(Map::is_empty) => {}
            other => return invalid(format!("Invalid field: [{other}] found in [{field}].")),
        }
    }
    let Some(source) = source.filter(|source| !source.is_empty()) else {
        return invalid(format!("[{field}] must have a [source]"));
    };
    check_template(field, source)?;
    Ok(source.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_shards_divides_that_of_the_source() {
        let cases = [
            (ShrinkShards::Count(5), 12, 0, 4),
            (ShrinkShards::Count(50), 12, 0, 12),
            (ShrinkShards::Share(0.5), 12, 0, 6),
            (ShrinkShards::Share(0.01), 12, 0, 1),
            (ShrinkShards::Bytes(100), 12, 450, 6),
            (ShrinkShards::Bytes(100), 12, 0, 1),
            (ShrinkShards::Bytes(1), 12, u64::MAX, 12),
            (ShrinkShards::Count(1), 0, 0, 1),
        ];
        for (wanted, shards, bytes, expected) in cases {
            assert_eq!(wanted.resolve(shards, bytes), expected, "{wanted:?} of {shards}, {bytes} bytes");
        }
    }

    #[test]
    fn parameters_are_known_by_name() {
        let parse = |body: Value| parse_shrink(body.as_object().unwrap());
        let body = json!({
            "num_new_shards": 2,
            "target_index_name_template": {"source": "{{ctx.index}}-small", "lang": "mustache"},
            "aliases": [{"small": {}}],
            "switch_aliases": true,
            "force_unsafe": false,
        });
        let target = parse(body).unwrap();
        assert_eq!((target.shards, target.name.as_str()), (ShrinkShards::Count(2), "{{ctx.index}}-small"));
        assert!(target.switch_aliases && target.aliases.contains_key("small"));
        for (body, needle) in [
            (json!({}), "exactly one"),
            (json!({"num_new_shards": 1, "max_shard_size": "1gb"}), "exactly one"),
            (json!({"num_new_shards": 0}), "at least 1"),
            (json!({"percentage_of_source_shards": 1}), "between 0 and 1"),
            (json!({"num_new_shards": 1, "nodes": 3}), "[nodes]"),
            (json!({"num_new_shards": 1, "target_index_name_template": "{{ctx.node}}"}), "[ctx.node]"),
        ] {
            let error = parse(body).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
