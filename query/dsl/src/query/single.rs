//! The shape that clauses about the terms of one field share: `{field: value}` or
//! `{field: {value: …, options}}`.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Common, Rewrite, single_field, unsupported};
use crate::json;

/// Normalization of a clause's value for the terms of its field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// As the field's type does: keywords by their normalizer.
    #[default]
    Field,
    /// By the character and case filters of the named analyzer, or of the field's search analyzer,
    /// as `query_string` does.
    Analyzer(Option<String>),
}

/// Field of a clause, as the clause's own parser reads it.
pub(super) struct Single {
    pub field: String,
    pub value: String,
    pub common: Common,
}

/// Members of a clause about the terms that a pattern describes.
pub(super) struct Pattern {
    pub field: String,
    pub value: String,
    pub case_insensitive: bool,
    pub rewrite: Option<Rewrite>,
    pub common: Common,
}

/// Reads a clause whose value may stand under the clause's own name, too.
pub(super) fn pattern(clause: &str, fields: &Map<String, Value>) -> Result<Pattern> {
    let (mut case_insensitive, mut rewrite) = (false, None);
    let Single { field, value, common } = parse(clause, &["value", clause], fields, &mut |key, option| {
        match key {
            "case_insensitive" => case_insensitive = json::boolean(option)?,
            "rewrite" => rewrite = Rewrite::option(option),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Pattern { field, value, case_insensitive, rewrite, common })
}

/// Reads a clause. `names` are the options that hold the value; other options go to `option`, which
/// tells whether it knows them.
pub(super) fn parse(
    clause: &str,
    names: &[&str],
    fields: &Map<String, Value>,
    option: &mut dyn FnMut(&str, &Value) -> Result<bool>,
) -> Result<Single> {
    let mut common = Common::default();
    let mut rest = Map::new();
    for (key, value) in fields {
        if !(key == "_name" && !value.is_object() && common.take(clause, key, value)?) {
            rest.insert(key.clone(), value.clone());
        }
    }
    let (field, body) = single_field(clause, &rest)?;
    let mut value = None;
    match body {
        Value::Object(options) => {
            for (key, given) in options {
                match given {
                    Value::Array(_) | Value::Object(_) => {
                        return Err(Error::Parsing(format!(
                            "[{clause}] unexpected token [{}] after [{key}]",
                            json::token(given)
                        )));
                    }
                    _ if names.contains(&key.as_str()) => value = json::text(given),
                    _ if option(key, given)? || common.take(clause, key, given)? => {}
                    _ => return Err(unsupported(clause, key)),
                }
            }
        }
        Value::Array(_) => {
            return Err(Error::Parsing(format!(
                "[{clause}] query malformed, no start_object after query name"
            )));
        }
        scalar => value = json::text(scalar),
    }
    let value = value.ok_or_else(|| {
        let what = if clause == "fuzzy" { "query value" } else { "value" };
        Error::IllegalArgument(format!("{what} cannot be null"))
    })?;
    Ok(Single { field: field.to_owned(), value, common })
}
