//! Visible fields of documents.

use std::sync::Arc;

use serde_json::Value;

use crate::source::{PathProjection, leave_out, leave_out_of_text};

/// Rules for fields: what is granted, but for exceptions. Several may stand beside each other, each granting its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRules {
    /// Shown is what one of these shows.
    any: Vec<VisibleFields>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct VisibleFields {
    grant: Vec<Box<str>>,
    except: Vec<Box<str>>,
}

/// Fields of the store that a rule never hides.
const ALWAYS: [&str; 6] = ["_id", "_index", "_routing", "_seq_no", "_primary_term", "_version"];

impl FieldRules {
    /// Shows the fields that `grant` names but for those of `except`; `*` in either stands for any run of characters. A
    /// field below a granted object is granted, one below an excepted object is not.
    pub fn new<S: AsRef<str>>(grant: &[S], except: &[S]) -> Self {
        let boxed = |names: &[S]| names.iter().map(|name| name.as_ref().into()).collect();
        Self { any: vec![VisibleFields { grant: boxed(grant), except: boxed(except) }] }
    }

    /// Shows what any of several shows.
    pub fn any(rules: &[Arc<Self>]) -> Arc<Self> {
        if let [only] = rules {
            return Arc::clone(only);
        }
        let mut any: Vec<VisibleFields> = rules.iter().flat_map(|rules| &rules.any).cloned().collect();
        // Those who compare rules ask not in which order, and how often, roles say so.
        any.sort_unstable();
        any.dedup();
        Arc::new(Self { any })
    }

    /// Returns whether the field of a path (dotted) is shown.
    pub fn shows(&self, path: &str) -> bool {
        ALWAYS.contains(&path) || self.any.iter().any(|shown| shown.shows(path))
    }
}

impl FieldRules {
    /// Returns whether a field is shown with all that may be below it.
    pub fn shows_whole(&self, path: &str) -> bool {
        let below = format!("{path}.*");
        let reaches = |name: &str| covers(name, path) || crate::pattern::overlap(name, &below);
        let named = |shown: &VisibleFields| shown.grant.iter().any(|name| covers(name, path));
        self.any.iter().any(|shown| named(shown) && !shown.except.iter().any(|name| reaches(name)))
    }
}

impl VisibleFields {
    fn shows(&self, path: &str) -> bool {
        let named = |names: &[Box<str>]| names.iter().any(|name| covers(name, path));
        named(&self.grant) && !named(&self.except)
    }
}

/// Returns whether a pattern names a field or an object that it is in.
fn covers(pattern: &str, path: &str) -> bool {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    ends.into_iter().any(|end| crate::pattern::matches(pattern, &path[..end]))
}

/// Leaves of a source what all rules show. An object stays where something in it does.
pub fn shown(source: Value, rules: &[Arc<FieldRules>]) -> Value {
    match source {
        Value::Object(members) if !rules.is_empty() => {
            Value::Object(leave_out(members, true, |path, _| stays(path, rules)))
        }
        source => source,
    }
}

/// Leaves of the text of a source what all rules show, as [`shown`] does; `None` where it is no JSON.
pub fn shown_of_text(source: &[u8], rules: &[Arc<FieldRules>]) -> Option<Vec<u8>> {
    match rules.is_empty() {
        true => Some(source.to_vec()),
        false => leave_out_of_text(source, true, |path, _| stays(path, rules)),
    }
}

fn stays(path: &str, rules: &[Arc<FieldRules>]) -> PathProjection {
    PathProjection::Inside { itself: rules.iter().all(|rules| rules.shows(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_shown_by_grant_and_exception() {
        let rules = FieldRules::new(&["user", "http.*", "*.ip"], &["user.password", "http.cookie*"]);
        for (path, shown) in [
            ("user", true),
            ("user.name", true),
            ("user.name.keyword", true),
            ("user.password", false),
            ("user.password.hash", false),
            ("username", false),
            ("http", false),
            ("http.method", true),
            ("http.cookies.a", false),
            ("client.ip", true),
            ("client", false),
            ("_id", true),
            ("_source", false),
        ] {
            assert_eq!(rules.shows(path), shown, "{path}");
        }
        let source = serde_json::json!({"user": {"name": "a", "password": "b"}, "x": 1, "http.method": "GET",
            "list": [{"ip": 1, "b": 2}, {"b": 3}], "http": {"cookie": "c"}});
        let rules = Arc::new(rules);
        assert_eq!(
            shown(source.clone(), &[Arc::clone(&rules)]),
            serde_json::json!({"user": {"name": "a"}, "http.method": "GET", "list": [{"ip": 1}]})
        );
        let narrow = Arc::new(FieldRules::new(&["user"], &[]));
        assert_eq!(shown(source, &[Arc::clone(&rules), narrow]), serde_json::json!({"user": {"name": "a"}}));
        let other = Arc::new(FieldRules::new(&["username"], &[]));
        let both = FieldRules::any(&[rules, other]);
        assert!(both.shows("username") && both.shows("user") && !both.shows("user.password"));
    }
}
