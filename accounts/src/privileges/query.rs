//! Queries of the documents that a role shows: text of the search language in which `${user.name}` stands for the user and
//! `${user.roles}` for the user's roles, each a string of JSON, with commas between.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::limits::{MAX_QUERY_BYTES, MAX_QUERY_DEPTH, depth, too_long};

const USER: &str = "${user.name}";
const ROLES: &str = "${user.roles}";

/// Says whether a query means something; the search language is known to upper crates only.
pub trait QueryCheck: fmt::Debug + Send + Sync + 'static {
    /// Checks a query that is valid JSON.
    ///
    /// # Errors
    /// The reason why it is refused.
    fn check(&self, query: &Value) -> Result<(), String>;
}

/// Takes every query.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyQuery;

impl QueryCheck for AnyQuery {
    fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// Checks the text of a query.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn check(text: &str, meaning: &dyn QueryCheck) -> Result<()> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(too_long("query of a role", text.len(), MAX_QUERY_BYTES));
    }
    let invalid = |reason: String| Err(Error::Invalid(format!("query of a role: {reason}")));
    if text.contains("{{") {
        return invalid("mustache templates are not available, use ${user.name} or ${user.roles}".to_owned());
    }
    // Any name will do for what has to be JSON with each.
    let substituted = substitute(text, "user", &["role".to_owned()]);
    if let Some(at) = substituted.find("${") {
        let unknown = substituted[at..].split_inclusive('}').next().unwrap_or_default();
        let unknown: String = unknown.chars().take(100).collect();
        return invalid(format!("unknown substitution [{unknown}], known are [{USER}, {ROLES}]"));
    }
    let query: Value = match serde_json::from_str(&substituted) {
        Ok(query) => query,
        Err(error) => return invalid(format!("no valid JSON: {error}")),
    };
    let Some(members) = query.as_object() else { return invalid("must be an object".to_owned()) };
    if members.contains_key("template") {
        return invalid("[template] is not available, use ${user.name} or ${user.roles}".to_owned());
    }
    if depth(&query) > MAX_QUERY_DEPTH {
        return invalid(format!("deeper than [{MAX_QUERY_DEPTH}] levels"));
    }
    meaning.check(&query).or_else(invalid)
}

/// Returns whether what a query says depends on who asks.
pub(super) fn is_personal(text: &str) -> bool {
    text.contains(USER) || text.contains(ROLES)
}

/// Puts a user's name and roles into a query.
pub(super) fn substitute<'a>(text: &'a str, user: &str, roles: &[String]) -> Cow<'a, str> {
    if !is_personal(text) {
        return Cow::Borrowed(text);
    }
    let user = quoted(user);
    let roles = roles.iter().map(|role| quoted(role)).collect::<Vec<_>>().join(",");
    // In one pass: names may look like what is replaced.
    let (mut rest, mut replaced) = (text, String::with_capacity(text.len() + user.len() + roles.len()));
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        replaced.push_str(before);
        rest = if let Some(after) = from.strip_prefix(USER) {
            replaced.push_str(&user[1..user.len() - 1]);
            after
        } else if let Some(after) = from.strip_prefix(ROLES) {
            replaced.push_str(&roles);
            after
        } else {
            replaced.push_str("${");
            &from[2..]
        };
    }
    replaced.push_str(rest);
    Cow::Owned(replaced)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_strings() {
        let text = r#"{"bool":{"must":[{"term":{"a":"${user.name}"}},{"terms":{"b":[${user.roles}]}}]}}"#;
        check(text, &AnyQuery).unwrap();
        let (user, roles) =
            (r#"a"}},{"match_all":{}}${user.roles}"#, ["r\"1".to_owned(), "${user.name}".to_owned()]);
        let query: Value = serde_json::from_str(&substitute(text, user, &roles)).unwrap();
        assert_eq!(query["bool"]["must"][0]["term"]["a"], user);
        assert_eq!(query["bool"]["must"][1]["terms"]["b"], serde_json::json!(roles));
        assert!(matches!(substitute("{}", "u", &[]), Cow::Borrowed(_)));
    }

    #[test]
    fn what_cannot_be_a_query_is_refused() {
        let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_QUERY_BYTES));
        for (text, reason) in [
            ("{", "no valid JSON"),
            ("[]", "must be an object"),
            (r#"{"template":{"source":"x"}}"#, "[template] is not available"),
            (r#"{"term":{"a":"{{_user.username}}"}}"#, "mustache"),
            (r#"{"term":{"a":"${attr.internal.x}"}}"#, "unknown substitution [${attr.internal.x}]"),
            (r#"{"term":{"a":"${user.roles}"}}"#, "no valid JSON"),
            (r#"{"term":{"a":${user.name}}}"#, "no valid JSON"),
            (&deep, "deeper than [50] levels"),
            (&long, "above the limit"),
        ] {
            let error = check(text, &AnyQuery).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
