//! `${NAME}` and `${NAME:default}` in values.

use std::collections::BTreeMap;
use std::fmt;

/// Variables that definitions may refer to. Their values are secrets as often as not, and not shown.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Environment {
    /// Replaces references to variables. What looks like one and has no name stays.
    ///
    /// # Errors
    /// Names of variables that are not set and have no default.
    pub(super) fn replace(&self, text: &str) -> Result<String, Vec<String>> {
        let mut out = String::with_capacity(text.len());
        let mut missing = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            out.push_str(before);
            let reference = behind.split_once('}').and_then(|(inner, after)| {
                let (name, default) = match inner.split_once(':') {
                    Some((name, default)) => (name, Some(default)),
                    None => (inner, None),
                };
                is_variable(name).then_some((name, default, after))
            });
            let Some((name, default, after)) = reference else {
                out.push_str("${");
                rest = behind;
                continue;
            };
            match self.0.get(name).map(String::as_str).or(default) {
                Some(value) => out.push_str(value),
                None => missing.push(name.to_owned()),
            }
            rest = after;
        }
        out.push_str(rest);
        if missing.is_empty() { Ok(out) } else { Err(missing) }
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}
