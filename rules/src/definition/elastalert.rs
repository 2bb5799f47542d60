//! Rule files of ElastAlert's, as definitions.

use serde_json::{Value, json};

use super::options::{kind, short};
use super::{Definition, Notice, parse};
use crate::error::{Error, Result};

/// A rule that was read from a file of ElastAlert's.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The rule.
    pub definition: Definition,
    /// What its user has to know: options that are not used, and what was put in their place.
    pub warnings: Vec<Notice>,
}

/// Makes a definition of a file of ElastAlert's; `file` names it, and the rule where it has no name.
///
/// # Errors
///
/// Those of [`Definition::parse`], and text that is no YAML.
pub fn import(file: &str, text: &str) -> Result<Imported> {
    let Value::Object(mut rule) = parse::yaml(file, text)? else {
        return Err(Error::invalid(short(file), "is no rule: options are expected"));
    };
    let mut warnings = Vec::new();
    let mut warn = |option: &str, reason: String| {
        warnings.push(Notice { option: option.to_owned(), reason });
    };
    if rule.get("name").is_none_or(Value::is_null) {
        let stem = file.rsplit('/').next().unwrap_or(file);
        let stem = stem.strip_suffix(".yaml").or_else(|| stem.strip_suffix(".yml")).unwrap_or(stem);
        rule.insert("name".to_owned(), json!(stem));
    }
    if rule.get("type").is_none_or(Value::is_null) {
        return Err(Error::invalid("type", "is missing: a rule of ElastAlert has a type"));
    }
    if let Some(name) = rule.get("type").and_then(Value::as_str).filter(|name| name.contains('.')) {
        return Err(Error::invalid("type", format!("[{}]: code of modules is not run", short(name))));
    }
    if let Some(Value::String(index)) = rule.get("index").cloned() {
        let pattern = without_dates(&index);
        if pattern != index {
            warn("index", format!("[{index}] is watched as [{pattern}]"));
            rule.insert("index".to_owned(), json!(pattern));
        }
    }
    // Without the option ElastAlert waits, and a rule of `alert/change` does not.
    if rule.get("realert").is_none_or(Value::is_null) && !rule.contains_key("aggregation") {
        rule.insert("realert".to_owned(), json!("1m"));
        warn("realert", "is missing: ElastAlert's one minute is written into the rule".to_owned());
    }
    if !rule.contains_key("filter") {
        rule.insert("filter".to_owned(), json!([]));
    }
    channels(&mut rule)?;
    let definition = Definition::parse(&Value::Object(rule))?;
    warnings.extend(definition.notices());
    Ok(Imported { definition, warnings })
}

/// The pattern of an index whose name has parts of the date.
fn without_dates(index: &str) -> String {
    if !index.contains('%') {
        return index.to_owned();
    }
    let mut pattern = String::new();
    let mut rest = index.chars();
    // What stands between two parts of a date belongs to the date.
    let (mut dated, mut between) = (false, String::new());
    while let Some(c) = rest.next() {
        if c == '%' && rest.next().is_some() {
            if !dated {
                pattern.push_str(&between);
                pattern.push('*');
            }
            between.clear();
            dated = true;
        } else if dated && ".-_".contains(c) {
            between.push(c);
        } else {
            pattern.push_str(&between);
            between.clear();
            pattern.push(c);
            dated = false;
        }
    }
    pattern + &between
}

/// The method is the first channel; the list stays beside it.
fn channels(rule: &mut serde_json::Map<String, Value>) -> Result<()> {
    let first = match rule.get("alert") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(list)) => list.first().cloned(),
        Some(one) => Some(one.clone()),
    };
    let name = match first {
        None => return Ok(()),
        Some(Value::String(name)) => name,
        // `- jira: {…}` has the channel's own options in it.
        Some(Value::Object(members)) => members.keys().next().cloned().unwrap_or_default(),
        Some(other) => {
            return Err(Error::invalid("alert", format!("has {} in it, names are expected", kind(&other))));
        }
    };
    let method = if name == "debug" { "none" } else { name.as_str() };
    rule.entry("alert_method").or_insert_with(|| json!(method));
    Ok(())
}
