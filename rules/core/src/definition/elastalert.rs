//! Rule files of ElastAlert's, as definitions.

use serde_json::{Value, json};

use super::options::short;
use super::{Definition, ImportNotice, notification, parse};
use crate::error::{Error, Result};
use crate::fields;

/// A rule that was read from a file of ElastAlert's.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedRule {
    /// The rule.
    pub definition: Definition,
    /// Notices for its user: options that are not used, and their replacements.
    pub warnings: Vec<ImportNotice>,
}

/// Treatment of channels of a file that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingChannels {
    /// The file is refused: nobody would hear of its alerts.
    Refuse,
    /// The rule is imported without them, which is told.
    Skip,
}

/// Makes a definition of a file of ElastAlert's; `file` names it, and the rule where it has no name.
///
/// # Errors
///
/// Those of [`Definition::parse`], text that is no YAML, and channels that are not there, where they are to be refused.
pub fn import(file: &str, text: &str, missing: MissingChannels) -> Result<ImportedRule> {
    let Value::Object(mut rule) = parse::yaml(file, text)? else {
        return Err(Error::invalid(short(file), "is no rule: options are expected"));
    };
    let mut warnings = Vec::new();
    let mut warn = |option: &str, reason: String| {
        warnings.push(ImportNotice { option: option.to_owned(), reason });
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
    secrets(&mut rule, &mut warn);
    let definition = Definition::parse(&Value::Object(rule))?;
    let unsent = definition.notification.silent.iter().find(|silent| silent.reason.is_some());
    if let Some(silent) = unsent.filter(|_| missing == MissingChannels::Refuse) {
        let reason = format!(
            "there is no channel [{}], so nobody would hear of alerts: name another one, such as webhook or command, or import \
             with --skip-channels",
            silent.name
        );
        return Err(Error::invalid("alert", reason));
    }
    warnings.extend(definition.notices());
    Ok(ImportedRule { definition, warnings })
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

/// Puts references in the place of secrets: a file has them, a rule does not.
fn secrets(rule: &mut serde_json::Map<String, Value>, warn: &mut impl FnMut(&str, String)) {
    let name = fields::text(&rule["name"]).into_owned();
    let mut slug: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    slug.truncate(64);
    let methods: Vec<String> = match rule.get("alert") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_lowercase).collect(),
        Some(Value::String(one)) => vec![one.to_lowercase()],
        _ => Vec::new(),
    };
    for option in methods.iter().flat_map(|method| notification::secret_options(method)) {
        let mut refer = |secret: String| {
            warn(
                option,
                format!("is a secret, and rules keep none: store it with PUT /api/alert/secret/{secret}"),
            );
            json!({"secret": secret})
        };
        match rule.get_mut(option) {
            Some(value @ Value::String(_)) => *value = refer(format!("{slug}.{option}")),
            // Several channels: a secret each.
            Some(Value::Array(list)) => {
                for (at, value) in list.iter_mut().enumerate().filter(|(_, value)| value.is_string()) {
                    *value = refer(format!("{slug}.{option}.{}", at + 1));
                }
            }
            _ => {}
        }
    }
}
