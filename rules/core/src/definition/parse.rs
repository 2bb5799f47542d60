//! Reading a definition, whichever of its names and places the options have.

use serde_json::{Map, Value, json};

use super::notification::Notification;
use super::options::{self, MAX_NAME, MAX_PATH, MAX_TEXT, Options, kind, short};
use super::rule_type::{MAX_FIELDS, RuleType};
use super::text::Text;
use super::{Definition, Realert, kept, schedule, search};
use crate::error::{Error, Result};
use crate::operator::Timing;
use crate::time::Span;

/// Bytes of a rule as it is written.
pub(super) const MAX_RULE: usize = 8 << 20;
/// Index patterns of a rule.
const MAX_PATTERNS: usize = 100;
/// Roles, playbooks, recipients, included fields.
const MAX_LIST: usize = 100;

/// Names that mean the same, the second one in use here.
const ALIASES: [(&str, &str); 13] = [
    ("calendar", "schedule"),
    ("alertrulename", "name"),
    ("alertruleindexpattern", "index"),
    ("alertruletype", "type"),
    ("alertrulemethod", "alert_method"),
    ("alertrulemethoddata", "alert_method_data"),
    ("alertruleimportance", "importance"),
    ("alertruleriskkey", "risk_key"),
    ("alertruleplaybooks", "playbooks"),
    ("enable", "enabled"),
    ("is_enabled", "enabled"),
    ("roles", "selectedroles"),
    ("alertruledescription", "description"),
];

impl Definition {
    /// Reads a rule: the body of `alert/change`, or a document of `.alertrules`.
    ///
    /// # Errors
    ///
    /// Names the field that is missing, unknown, of the wrong type, out of range or too large, and what is allowed.
    pub fn parse(rule: &Value) -> Result<Self> {
        Self::read(rule, false)
    }

    /// Reads a document of `.alertrules`: a channel that cannot be used any more is left out, with a notice.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn parse_stored(rule: &Value) -> Result<Self> {
        Self::read(rule, true)
    }

    fn read(rule: &Value, stored: bool) -> Result<Self> {
        let Value::Object(members) = rule else {
            return Err(Error::invalid("rule", format!("is {}, an object is expected", kind(rule))));
        };
        let size = rule.to_string().len();
        if size > MAX_RULE {
            return Err(Error::TooLarge { field: "rule".to_owned(), size, unit: "bytes", bound: MAX_RULE });
        }
        let mut options = Options::default();
        let mut members = members.clone();
        let any = members.shift_remove("alertrule_any").filter(|any| !any.is_null());
        merge(&mut options, members)?;
        if let Some(any) = any {
            merge(&mut options, any_options(any)?)?;
        }
        Self::of_options(options, stored)
    }

    /// Reads a rule that is written in YAML; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// Those of [`Self::parse`], and text that is no YAML.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self> {
        Self::parse(&yaml(file, text)?)
    }

    fn of_options(mut options: Options, stored: bool) -> Result<Self> {
        let Some(name) = options.text("name", MAX_NAME)?.filter(|name| !name.trim().is_empty()) else {
            return Err(Error::invalid("name", "is missing: each rule has a name"));
        };
        let (search_type, search_index, body) = search::take(&mut options)?;
        let index = patterns(options.texts("index", MAX_PATTERNS, MAX_TEXT)?, &search_index)?;
        let body = match (body, options.take("filter")) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "filter",
                    "is there beside search.request.body: give one of them",
                ));
            }
            (None, Some(filters)) => Some(search::of_filters(filters)?),
            (body, None) => body,
        };
        let described = ["type", "num_events", "timeframe"].iter().any(|option| options.has(option));
        if body.is_none() && !described {
            let reason = "is missing: a rule has a search body, or a type with its options";
            return Err(Error::invalid("search.request.body", reason));
        }
        let query_key = options.paths("query_key", MAX_FIELDS)?.unwrap_or_default();
        let ignore_null = options.flag("ignore_null")?.unwrap_or(false);
        let rule_type = RuleType::take(&mut options, &query_key, ignore_null)?;
        let is_waiting = rule_type.is_waiting();
        let allow_alerts = options.flag("allow_alerts")?.unwrap_or(false);
        if !allow_alerts && index.iter().any(|pattern| pattern == "alert") {
            return Err(Error::invalid("index", "[alert] is watched with allow_alerts: true only"));
        }
        let method_data = method_data(&mut options)?;
        let email = options.texts("email", MAX_LIST, MAX_NAME)?.unwrap_or_default();
        let notification = Notification::take(&mut options, &method_data, &email, stored)?;
        let definition = Self {
            id: options.text("id", MAX_PATH)?.filter(|id| !id.is_empty()),
            name,
            description: options.text("description", MAX_TEXT)?.unwrap_or_default(),
            index,
            search_type,
            search_index,
            body: body.unwrap_or_else(|| json!({"query": {"match_all": {}}})),
            rule_type,
            query_key,
            ignore_null,
            timestamp_field: options.path("timestamp_field")?.unwrap_or_else(|| "@timestamp".to_owned()),
            include_updates: options.flag("include_updates")?.unwrap_or(false),
            allow_alerts,
            realert: realert(&mut options)?,
            schedule: schedule::take(&mut options)?,
            recovery: options.flag("recovery")?.unwrap_or(false),
            delay: if is_waiting { delay(&mut options)? } else { None },
            text: Text::take(&mut options)?,
            include: include(&mut options)?,
            importance: options.integer("importance", 1, 100)?.unwrap_or(50) as u8,
            risk_key: options.path("risk_key")?,
            playbooks: options.texts("playbooks", MAX_LIST, MAX_NAME)?.unwrap_or_default(),
            roles: options.texts("selectedroles", MAX_LIST, MAX_NAME)?.unwrap_or_default(),
            notification,
            method_data,
            email,
            enabled: options.flag("enabled")?.unwrap_or(true),
            kept: kept::keep_known_options(std::mem::take(&mut options.0))?,
        };
        Ok(definition)
    }
}

/// The options of `alertrule_any`.
fn any_options(any: Value) -> Result<Map<String, Value>> {
    let any = match any {
        Value::String(text) => yaml("alertrule_any", &text)?,
        other => other,
    };
    match any {
        Value::Object(members) => Ok(members),
        Value::Null => Ok(Map::new()),
        other => Err(Error::invalid("alertrule_any", format!("is {}, options are expected", kind(&other)))),
    }
}

/// Reads a text of YAML.
pub(super) fn yaml(field: &str, text: &str) -> Result<Value> {
    if text.len() > MAX_RULE {
        let size = text.len();
        return Err(Error::TooLarge { field: field.to_owned(), size, unit: "bytes", bound: MAX_RULE });
    }
    super::yaml::read(text, MAX_RULE)
        .map_err(|error| Error::invalid(field, format!("is no YAML: {}", short(&error.to_string()))))
}

/// Takes `query_delay`: windows are kept for as long, pane by pane.
fn delay(options: &mut Options) -> Result<Option<Span>> {
    let delay = options.span("query_delay", Span::ZERO)?;
    let most = Timing::default().lateness;
    match delay {
        Some(delay) if delay > most => {
            Err(Error::invalid("query_delay", format!("is longer than {}", most.text())))
        }
        delay => Ok(delay),
    }
}

fn merge(options: &mut Options, members: Map<String, Value>) -> Result<()> {
    for (written, value) in members {
        if value.is_null() {
            continue;
        }
        let alias = ALIASES.iter().find(|(alias, _)| *alias == written);
        let name = alias.map_or(written.clone(), |(_, name)| (*name).to_owned());
        if options.0.get(&name).is_some_and(|there| *there != value) {
            return Err(Error::invalid(short(&written), "is there twice, with two values"));
        }
        options.0.insert(name, value);
    }
    Ok(())
}

fn patterns(written: Option<Vec<String>>, search_index: &[String]) -> Result<Vec<String>> {
    let written = written.unwrap_or_else(|| search_index.to_vec());
    let patterns: Vec<String> = written
        .iter()
        .flat_map(|patterns| patterns.split(','))
        .map(|pattern| pattern.trim().to_owned())
        .filter(|pattern| !pattern.is_empty())
        .collect();
    if patterns.is_empty() {
        return Err(Error::invalid("index", "is missing: it names the indices that the rule watches"));
    }
    if patterns.len() > MAX_PATTERNS {
        let (field, size) = ("index".to_owned(), patterns.len());
        return Err(Error::TooLarge { field, size, unit: "patterns", bound: MAX_PATTERNS });
    }
    for pattern in &patterns {
        let allowed =
            |c: char| !c.is_whitespace() && !c.is_control() && !c.is_uppercase() && !"\\/?\"<>|#".contains(c);
        if pattern.len() > MAX_NAME || !pattern.chars().all(allowed) {
            let reason = format!("[{}] can be no index or pattern of indices", short(pattern));
            return Err(Error::invalid("index", reason));
        }
    }
    Ok(patterns)
}

fn realert(options: &mut Options) -> Result<Realert> {
    let wait = options.span("realert", Span::ZERO)?.unwrap_or_default();
    let at_most = options.span("exponential_realert", Span::ZERO)?.filter(|most| *most > Span::ZERO);
    match at_most {
        Some(_) if wait == Span::ZERO => {
            Err(Error::invalid("exponential_realert", "needs realert: the while that is doubled"))
        }
        Some(most) if most < wait => Err(Error::invalid("exponential_realert", "is shorter than realert")),
        _ => Ok(Realert { wait, at_most }),
    }
}

fn include(options: &mut Options) -> Result<Vec<String>> {
    let fields = options.texts("include", MAX_LIST, MAX_PATH)?.unwrap_or_default();
    Ok(if fields.iter().any(|field| field == "*") { Vec::new() } else { fields })
}

fn method_data(options: &mut Options) -> Result<Map<String, Value>> {
    const NAME: &str = "alert_method_data";
    let members = match options.take(NAME) {
        None => return Ok(Map::new()),
        Some(Value::Object(members)) => members,
        // The product stores it as the text of an object.
        Some(Value::String(text)) if text.is_empty() => return Ok(Map::new()),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(members)) => members,
            _ => return Err(Error::invalid(NAME, "is a text that is no object of JSON")),
        },
        Some(other) => {
            return Err(Error::invalid(NAME, format!("is {}, an object is expected", kind(&other))));
        }
    };
    let size = Value::Object(members.clone()).to_string().len();
    if size > options::MAX_TEXT {
        return Err(Error::TooLarge {
            field: NAME.to_owned(),
            size,
            unit: "bytes",
            bound: options::MAX_TEXT,
        });
    }
    Ok(members)
}
