//! Choice of indices of a snapshot by expression, and their new names: pure decisions.

use std::collections::{BTreeMap, HashSet};

use millrace_catalog::access::{Action, NameClass, Principal, backed_stream};
use millrace_mapping::pattern;
use regex::{Regex, RegexBuilder};

use crate::error::{Error, Result};

/// Longest expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;
/// Wildcards and exclusions of an expression, at most.
const MAX_PATTERNS: usize = 128;
/// Longest pattern of names, in bytes.
const MAX_PATTERN_BYTES: usize = 1_000;
/// Memory of a compiled pattern of names, at most.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// Returns whether an index is the server's own: it belongs to the global state.
pub(crate) fn is_system(index: &str) -> bool {
    NameClass::new(index) == NameClass::System
}

/// Returns whether a principal may handle the server's own indices: one that can grant itself every right.
pub(crate) fn is_security_administrator(principal: &Principal) -> bool {
    principal.privileges().is_unrestricted() || principal.privileges().allows(Action::PutSecurity)
}

/// Leniency of a choice of indices, by the options of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionOptions {
    /// `true` if names that are missing are left out.
    pub ignore_unavailable: bool,
    /// `true` if a wildcard may match nothing.
    pub allow_no_indices: bool,
}

impl Default for SelectionOptions {
    fn default() -> Self {
        Self { ignore_unavailable: false, allow_no_indices: true }
    }
}

/// Chooses names by a comma-separated expression with wildcards and exclusions (`-x*`).
///
/// # Errors
/// The first name that is missing, unless such names are ignored.
pub(crate) fn select_names(
    available: &[String],
    expression: Option<&str>,
    ignore_unavailable: bool,
) -> Result<Vec<String>, String> {
    let options = SelectionOptions { ignore_unavailable, ..SelectionOptions::default() };
    select_members(available, &BTreeMap::new(), expression, options)
}

/// Chooses as [`select_names`] does, where each name of `streams` stands for its members.
///
/// An exclusion is about members by their own names and by the names of their streams.
fn select_members(
    available: &[String],
    streams: &BTreeMap<&str, Vec<&str>>,
    expression: Option<&str>,
    options: SelectionOptions,
) -> Result<Vec<String>, String> {
    let expression = expression.filter(|expression| !expression.is_empty()).unwrap_or("_all");
    let known: HashSet<&str> = available.iter().map(String::as_str).collect();
    let (mut chosen, mut is_chosen): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    let is_member = |name: &str, excluded: &str| {
        let stream = backed_stream(name).filter(|stream| streams.contains_key(stream));
        stream.is_some_and(|stream| pattern::matches(excluded, stream))
    };
    for part in expression.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let excluded = part.strip_prefix('-').filter(|_| !known.contains(part));
        if let Some(excluded) = excluded {
            chosen.retain(|name| {
                let is_excluded = pattern::matches(excluded, name) || is_member(name, excluded);
                if is_excluded {
                    is_chosen.remove(name);
                }
                !is_excluded
            });
            continue;
        }
        if part == "_all" || pattern::is_wildcard(part) {
            let wanted = if part == "_all" { "*" } else { part };
            let matching = available.iter().map(String::as_str).filter(|name| pattern::matches(wanted, name));
            let members = streams
                .iter()
                .filter(|(stream, _)| pattern::matches(wanted, stream))
                .flat_map(|(_, members)| members);
            let mut matching = matching.chain(members.copied()).peekable();
            if matching.peek().is_none() && !options.allow_no_indices {
                return Err(part.to_owned());
            }
            chosen.extend(matching.filter(|name| is_chosen.insert(name)));
        } else if let Some(name) = known.get(part) {
            chosen.extend(is_chosen.insert(name).then_some(name));
        } else if let Some(members) = streams.get(part) {
            chosen.extend(members.iter().copied().filter(|name| is_chosen.insert(name)));
        } else if !options.ignore_unavailable {
            return Err(part.to_owned());
        }
    }
    Ok(chosen.into_iter().map(str::to_owned).collect())
}

/// Chooses indices as [`select_names`] does; the name of a data stream stands for its backing indices.
///
/// # Errors
/// As [`select_names`].
pub(crate) fn select_indices(
    available: &[String],
    expression: Option<&str>,
    options: SelectionOptions,
) -> Result<Vec<String>, String> {
    let mut streams: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for index in available {
        if let Some(stream) = backed_stream(index) {
            streams.entry(stream).or_default().push(index);
        }
    }
    // An index of this name is meant first.
    let known: HashSet<&str> = available.iter().map(String::as_str).collect();
    streams.retain(|stream, _| !known.contains(stream));
    select_members(available, &streams, expression, options)
}

/// Checks the bounds of an expression: each wildcard and exclusion is compared with every name.
///
/// # Errors
/// [`Error::IllegalArgument`].
pub(crate) fn check_expression(expression: &str) -> Result<()> {
    let refuse = |reason: String| Err(Error::IllegalArgument(reason));
    if expression.len() > MAX_EXPRESSION_BYTES {
        let bytes = expression.len();
        return refuse(format!("an expression of [{bytes}] bytes exceeds [{MAX_EXPRESSION_BYTES}] bytes"));
    }
    let mut patterns = 0;
    for part in expression.split(',').map(str::trim) {
        if part != "_all" && !part.starts_with('-') && !pattern::is_wildcard(part) {
            continue;
        }
        patterns += 1;
        if part.len() > MAX_PATTERN_BYTES {
            return refuse(format!(
                "a wildcard of [{}] bytes exceeds [{MAX_PATTERN_BYTES}] bytes",
                part.len()
            ));
        }
    }
    match patterns > MAX_PATTERNS {
        true => refuse(format!("an expression has [{patterns}] wildcards, more than [{MAX_PATTERNS}]")),
        false => Ok(()),
    }
}

/// New names of restored indices.
#[derive(Debug, Default)]
pub(crate) struct Renaming(Option<(Regex, String)>);

impl Renaming {
    /// Reads `rename_pattern` and `rename_replacement`, in Java's form: `$1` is a group, a backslash takes the next character as
    /// it is.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`].
    pub(crate) fn parse(from: Option<&str>, to: Option<&str>) -> Result<Self> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(Self(None)) };
        if from.len() > MAX_PATTERN_BYTES || to.len() > MAX_PATTERN_BYTES {
            let reason =
                format!("rename_pattern and rename_replacement have at most [{MAX_PATTERN_BYTES}] bytes");
            return Err(Error::IllegalArgument(reason));
        }
        let regex = RegexBuilder::new(from).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
            Error::IllegalArgument(format!("rename_pattern [{from}] cannot be used: {error}"))
        })?;
        Ok(Self(Some((regex, expanded_replacement(to)))))
    }

    /// Returns the new name of an index. The prefix of a backing index stays, so that the index backs the renamed stream.
    pub(crate) fn rename(&self, name: &str) -> String {
        let Some((regex, replacement)) = &self.0 else { return name.to_owned() };
        let prefix = if backed_stream(name).is_some() { ".ds-" } else { "" };
        let renamed = regex.replace_all(&name[prefix.len()..], replacement.as_str());
        format!("{prefix}{renamed}")
    }

    /// Returns the new name of each index.
    ///
    /// # Errors
    /// Two names that become one.
    pub(crate) fn rename_all(&self, names: &[String]) -> Result<BTreeMap<String, String>, String> {
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        for name in names {
            let new = self.rename(name);
            if let Some(other) = renamed.get(&new) {
                return Err(format!(
                    "indices [{name}] and [{other}] are renamed into the same index [{new}]"
                ));
            }
            renamed.insert(new, name.clone());
        }
        Ok(renamed)
    }
}

/// Turns a replacement in Java's form into that of `regex`.
fn expanded_replacement(java: &str) -> String {
    let mut out = String::with_capacity(java.len() + 8);
    let mut characters = java.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('$') | None => out.push_str("$$"),
                Some(other) => out.push(other),
            },
            '$' if characters.peek().is_some_and(char::is_ascii_digit) => {
                out.push_str("${");
                while let Some(digit) = characters.next_if(char::is_ascii_digit) {
                    out.push(digit);
                }
                out.push('}');
            }
            '$' if characters.peek() == Some(&'{') => out.push('$'),
            '$' => out.push_str("$$"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn expressions_choose_names() {
        let available = names(&["a1", "a2", "b1"]);
        let select = |expression: &str, lenient| select_names(&available, Some(expression), lenient);
        assert_eq!(select_names(&available, None, false).unwrap(), available);
        assert_eq!(select("_all", false).unwrap(), available);
        assert_eq!(select("a*", false).unwrap(), names(&["a1", "a2"]));
        assert_eq!(select("*,-a*", false).unwrap(), names(&["b1"]));
        assert_eq!(select("b1, a2,b*", false).unwrap(), names(&["b1", "a2"]));
        assert_eq!(select("a1,c", false).unwrap_err(), "c");
        assert_eq!(select("a1,c", true).unwrap(), names(&["a1"]));
        assert!(select("c*", false).unwrap().is_empty());
    }

    #[test]
    fn a_stream_stands_for_its_indices() {
        let available = names(&[".ds-logs-000001", ".ds-logs-000002", "a"]);
        let select = |expression: &str| {
            select_indices(&available, Some(expression), SelectionOptions::default()).unwrap()
        };
        assert_eq!(select("logs"), available[..2]);
        assert_eq!(select("lo*,a"), available);
        assert_eq!(select("*"), available);
        for excluded in ["*,-logs", "*,-lo*", "*,-.ds-logs-*", "a,logs,-logs"] {
            assert_eq!(select(excluded), names(&["a"]), "{excluded}");
        }
        assert_eq!(select("logs,-.ds-logs-000001"), names(&[".ds-logs-000002"]));
        assert_eq!(select("*,-logs,.ds-logs-000001"), names(&["a", ".ds-logs-000001"]));
        // An index of the name is meant, not the stream.
        let available = names(&[".ds-logs-000001", "logs"]);
        let lenient = SelectionOptions::default();
        assert_eq!(select_indices(&available, Some("*,-logs"), lenient).unwrap(), available[..1]);
        let strict = SelectionOptions { allow_no_indices: false, ..lenient };
        assert_eq!(select_indices(&available, Some("none*"), lenient).unwrap(), names(&[]));
        assert_eq!(select_indices(&available, Some("logs,none*"), strict).unwrap_err(), "none*");
        assert_eq!(select_indices(&available, Some("lo*"), strict).unwrap(), available[1..]);
        let renaming = Renaming::parse(Some("(.+)"), Some("copy-$1")).unwrap();
        assert_eq!(renaming.rename(".ds-logs-000001"), ".ds-copy-logs-000001");
    }

    #[test]
    fn expressions_have_bounds() {
        check_expression("a*,-b,_all").unwrap();
        check_expression(&vec!["some-index"; 10_000].join(",")).unwrap();
        for wrong in ["a*,".repeat(129), "-a,".repeat(129), "x".repeat(2 << 20), "x".repeat(1_000) + "*"] {
            assert!(matches!(check_expression(&wrong), Err(Error::IllegalArgument(_))));
        }
    }

    #[test]
    fn names_are_replaced_as_java_does() {
        let rename =
            |from: &str, to: &str, name: &str| Renaming::parse(Some(from), Some(to)).unwrap().rename(name);
        assert_eq!(rename("(.+)", "restored_$1", "logs"), "restored_logs");
        assert_eq!(rename("index_(.+)", "$1x", "index_a"), "ax");
        assert_eq!(rename("l", "\\$", "logs"), "$ogs");
        assert_eq!(rename("z", "y", "logs"), "logs");
        assert_eq!(Renaming::parse(Some("a"), None).unwrap().rename("a"), "a");
        assert!(Renaming::parse(Some("("), Some("a")).is_err());
        let same = Renaming::parse(Some(".+"), Some("x")).unwrap();
        assert!(same.rename_all(&names(&["a", "b"])).unwrap_err().contains("same index [x]"));
    }
}
