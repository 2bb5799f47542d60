//! Scripts of pipeline aggregations, which are expressions.

use std::collections::BTreeMap;

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::super::members::ErrorLabel;
use super::members::unexpected;
use crate::expression::{Expression, Language};
use crate::json;

/// Reads a script: its text, or an object with `source`, `lang` and `params`.
pub(super) fn script(part: ErrorLabel<'_>, value: &Value) -> Result<Expression> {
    let (mut source, mut params, mut language) = (None, BTreeMap::new(), Language::Painless);
    match value {
        Value::String(text) => source = Some(text.as_str()),
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("source" | "inline", Value::String(text)) => source = Some(text),
                    ("lang", Value::String(lang)) if lang == "painless" => language = Language::Painless,
                    ("lang", Value::String(lang)) if lang == "expression" => language = Language::Lucene,
                    ("lang", Value::String(lang)) => {
                        return Err(Error::IllegalArgument(format!("script_lang not supported [{lang}]")));
                    }
                    ("params", Value::Object(given)) => {
                        for (name, value) in given {
                            let (Value::Number(_) | Value::Bool(_)) = value else {
                                return Err(Error::IllegalArgument(format!(
                                    "[script] parameter [{name}] must be a number or a boolean: other scripts are not supported"
                                )));
                            };
                            params.insert(name.clone(), value.clone());
                        }
                    }
                    ("id", _) => {
                        return Err(Error::Exception {
                            kind: "resource_not_found_exception",
                            status: 404,
                            reason: format!(
                                "unable to find script [{}] in cluster state",
                                json::text(value).unwrap_or_default()
                            ),
                        });
                    }
                    _ => return Err(Error::unknown_member("script", key)),
                }
            }
        }
        other => return Err(unexpected(part, other)),
    }
    let source = source.ok_or_else(|| {
        Error::IllegalArgument(
            "must specify either [source] for an inline script or [id] for a stored script".to_owned(),
        )
    })?;
    Expression::parse(source, language, &params)
}
