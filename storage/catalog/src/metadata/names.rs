//! Valid names of indices, aliases and templates.
//!
//! The refusals are in OpenSearch's own words, because clients match on them.

use millrace_runtime::{Error, Result};

use crate::access::NameClass;

/// Longest name in bytes, as file systems have it.
const MAX_NAME_BYTES: usize = 255;

const FORBIDDEN: [char; 10] = ['\\', '/', '*', '?', '"', '<', '>', '|', ' ', ','];

fn first_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("must not be empty".into());
    }
    if name.contains(FORBIDDEN) {
        return Some(r#"must not contain the following characters [ , ", *, \, <, |, ,, >, /, ?]"#.into());
    }
    if name.contains('#') {
        return Some("must not contain '#'".into());
    }
    if name.contains(':') {
        return Some("must not contain ':'".into());
    }
    if name.chars().any(char::is_control) {
        return Some("must not contain control characters".into());
    }
    if name.starts_with(['_', '-', '+']) {
        return Some("must not start with '_', '-', or '+'".into());
    }
    if name.len() > MAX_NAME_BYTES {
        return Some(format!("index name is too long, ({} > {MAX_NAME_BYTES})", name.len()));
    }
    if name == "." || name == ".." {
        return Some("must not be '.' or '..'".into());
    }
    None
}

/// Checks the name of an index to be created.
///
/// # Errors
/// [`Error::InvalidIndexName`].
pub fn check_index_name(name: &str) -> Result<()> {
    let fault =
        first_fault(name).or_else(|| (name.to_lowercase() != name).then(|| "must be lowercase".to_owned()));
    match fault {
        None => Ok(()),
        Some(reason) => Err(Error::InvalidIndexName { index: shorten(name), reason }),
    }
}

/// Checks the name of an alias to be added.
///
/// # Errors
/// [`Error::InvalidAliasName`].
pub fn check_alias_name(name: &str) -> Result<()> {
    let is_reserved = NameClass::new(name) != NameClass::Ordinary;
    let reserved = || is_reserved.then(|| "is the name of an index of the server".to_owned());
    match first_fault(name).or_else(reserved) {
        None => Ok(()),
        Some(reason) => Err(Error::InvalidAliasName { alias: shorten(name), reason }),
    }
}

/// Checks the name and the patterns of a template of any kind.
///
/// # Errors
/// [`Error::IllegalArgument`] that lists every fault.
pub(super) fn check_template(name: &str, patterns: &[String]) -> Result<()> {
    let mut faults: Vec<String> = Vec::new();
    for (forbidden, told) in [(' ', "a space"), (',', "a ','"), ('#', "a '#'"), ('*', "a '*'")] {
        if name.contains(forbidden) {
            faults.push(format!("name must not contain {told}"));
        }
    }
    if name.is_empty() {
        faults.push("name must not be empty".into());
    }
    if name.starts_with('_') {
        faults.push("name must not start with '_'".into());
    }
    if name.len() > MAX_NAME_BYTES {
        faults.push(format!("name is too long, ({} > {MAX_NAME_BYTES})", name.len()));
    }
    if name.to_lowercase() != name {
        faults.push("name must be lower cased".into());
    }
    for pattern in patterns {
        for (forbidden, told) in [(' ', "a space"), (',', "a ','"), ('#', "a '#'"), (':', "a ':'")] {
            if pattern.contains(forbidden) {
                faults.push(format!("index_patterns [{pattern}] must not contain {told}"));
            }
        }
        if pattern.starts_with('_') {
            faults.push(format!("index_patterns [{pattern}] must not start with '_'"));
        }
        if pattern.is_empty() || pattern.contains(['\\', '/', '?', '"', '<', '>', '|']) {
            faults.push(format!(
                r#"index_patterns [{pattern}] must not contain the following characters [ , ", *, \, <, |, ,, >, /, ?]"#
            ));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(Error::IllegalArgument(format!(
        "index_template [{}] invalid, cause [Validation Failed: {}]",
        shorten(name),
        numbered(&faults)
    )))
}

/// Numbers faults as OpenSearch's validation errors do: `1: a;2: b;`.
pub(super) fn numbered<S: AsRef<str>>(faults: &[S]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for (i, fault) in faults.iter().enumerate() {
        let _ = write!(text, "{}: {};", i + 1, fault.as_ref());
    }
    text
}

/// Keeps an offending name from filling the answer.
fn shorten(name: &str) -> String {
    const SHOWN: usize = 512;
    if name.len() <= SHOWN {
        return name.to_owned();
    }
    let end = (0..=SHOWN).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    format!("{}...", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_names_are_refused_in_opensearch_words() {
        let long = "a".repeat(256);
        for (name, reason) in [
            ("Abc", "must be lowercase"),
            ("_abc", "must not start with '_', '-', or '+'"),
            ("-abc", "must not start with '_', '-', or '+'"),
            ("+abc", "must not start with '_', '-', or '+'"),
            (".", "must not be '.' or '..'"),
            ("..", "must not be '.' or '..'"),
            ("a b", r#"must not contain the following characters [ , ", *, \, <, |, ,, >, /, ?]"#),
            ("a/b", r#"must not contain the following characters [ , ", *, \, <, |, ,, >, /, ?]"#),
            ("a#b", "must not contain '#'"),
            ("a:b", "must not contain ':'"),
            ("a\u{0}b", "must not contain control characters"),
            (long.as_str(), "index name is too long, (256 > 255)"),
        ] {
            let error = check_index_name(name).unwrap_err();
            assert_eq!(error.to_string(), format!("Invalid index name [{name}], {reason}"));
        }
        for name in ["abc", ".hidden", "logs-2026.11.21", "ünïcödé", "a_b", &"a".repeat(255)] {
            check_index_name(name).unwrap();
        }
    }

    #[test]
    fn aliases_may_have_capitals() {
        check_alias_name("MyAlias").unwrap();
        assert_eq!(
            check_alias_name("_x").unwrap_err().to_string(),
            "Invalid alias name [_x]: must not start with '_', '-', or '+'"
        );
    }

    #[test]
    fn template_faults_are_listed_together() {
        let error = check_template("_A b", &["x y".into()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "index_template [_A b] invalid, cause [Validation Failed: 1: name must not contain a space;\
             2: name must not start with '_';3: name must be lower cased;\
             4: index_patterns [x y] must not contain a space;]"
        );
        check_template("logs", &["logs-*".into(), "*".into()]).unwrap();
    }
}
