//! Notifications of a rule: `alert_method` with the options of its methods, `aggregation`, `limit_execution`, `escalate_users`
//! and `recovery`.
//!
//! A [`Channel`] is a method with its options, as they were written and checked: what they mean is the business of whoever
//! sends. A rule has several; each is a name in `alert_method`, or an entry of ElastAlert's `alert`, which may have options of
//! its own. Options at the top of the rule are those of every channel whose method has them. Secrets are not in a rule:
//! where an option is one, `{"secret": "name"}` stands for what is stored under that name.

mod method;
mod template;

use millrace_schedule::Schedule;
use serde_json::{Map, Value, json};

use super::options::{MAX_NAME, Options, kind, short, text, texts};
use super::rule_type::MAX_FIELDS;
use super::schedule;
use crate::error::{Error, Result};
use crate::time::Span;

pub(super) use self::method::secret_options;
pub use self::method::{Method, Secret};
pub use self::template::Template;

/// Channels of a rule.
const MAX_CHANNELS: usize = 16;
/// Users of an escalation.
const MAX_USERS: usize = 100;
/// Notifications a minute that a rule may ask for.
const MAX_PER_MINUTE: u64 = 100_000;

/// Notifications of a rule's alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notification {
    /// Channels of alerts.
    pub channels: Vec<Channel>,
    /// Methods of `alert_method` that send nothing.
    pub silent: Vec<SilentMethod>,
    /// Aggregation of alerts before one notification reports them.
    pub aggregation: Option<Aggregation>,
    /// Fields of the event for each value of which alerts are gathered apart.
    pub aggregation_key: Vec<String>,
    /// Times at which notifications may be sent.
    pub limit: Option<Limit>,
    /// Notifications a minute of each channel beyond which a digest tells of the rest; the server's bound without it.
    pub per_minute: Option<u32>,
    /// Escalation of alerts that nobody looked at.
    pub escalation: Option<Escalation>,
}

/// A method with its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name, as it was written.
    pub name: String,
    /// The method.
    pub method: Method,
    /// Its options, by their names. Texts that are secrets are `{"secret": "name"}`.
    pub options: Map<String, Value>,
}

/// A name in `alert_method` by which nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentMethod {
    /// The name.
    pub name: String,
    /// Why nothing is; `None` where that is what it means.
    pub reason: Option<String>,
}

/// Aggregation of alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// For so long from the first one on.
    Within(Span),
    /// Until it comes next.
    Schedule(Box<Schedule>),
}

/// Times at which notifications may be sent: in the minutes of a schedule, those of other times when the next of them begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The minutes.
    pub minutes: Schedule,
    /// `limit_execution_coverage`: those of other times are not sent at all.
    pub drops: bool,
}

/// Recipients of alerts that are still new, and the delay until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// Names of accounts, to whose addresses it is mailed.
    pub users: Vec<String>,
    /// Delay after the alert.
    pub after: Span,
}

impl Notification {
    /// Takes the options. `data` are those of `alert_method_data`, `email` the rule's recipients. Where `stored` is set, a
    /// channel that cannot be read is among those that are lacking: a rule that was stored runs on.
    pub(super) fn take(
        options: &mut Options,
        data: &Map<String, Value>,
        email: &[String],
        stored: bool,
    ) -> Result<Self> {
        let named = match options.take("alert_method") {
            None => None,
            Some(Value::String(names)) => {
                Some(names.split(',').map(|name| Value::from(name.trim())).collect())
            }
            Some(Value::Array(names)) => Some(names),
            Some(other) => {
                let reason = format!("is {}, a name of a method or a list of them is expected", kind(&other));
                return Err(Error::invalid("alert_method", reason));
            }
        };
        let listed = match options.take("alert") {
            None => None,
            Some(Value::Array(list)) => Some(list),
            Some(one) => Some(vec![one]),
        };
        let field = if listed.is_some() { "alert" } else { "alert_method" };
        let entries = entries(field, listed.clone().or_else(|| named.clone()).unwrap_or_default())?;
        if let (Some(_), Some(named)) = (&listed, named) {
            let sorted = |entries: &[(String, Map<String, Value>)]| {
                let mut names: Vec<String> = entries.iter().map(|(name, _)| name.clone()).collect();
                names.sort();
                names
            };
            if sorted(&self::entries("alert_method", named)?) != sorted(&entries) {
                return Err(Error::invalid(
                    "alert",
                    "names other methods than [alert_method]: give one of them",
                ));
            }
        }
        let mut notification = Self::timing(options)?;
        notification.channels(options, &entries, data, email, stored)?;
        Ok(notification)
    }

    /// Reads the channels, and takes away what they use.
    fn channels(
        &mut self,
        options: &mut Options,
        entries: &[(String, Map<String, Value>)],
        data: &Map<String, Value>,
        email: &[String],
        stored: bool,
    ) -> Result<()> {
        let senders = entries.iter().filter(|(name, _)| !is_silent(name)).count();
        if senders > 1 && !data.is_empty() {
            let reason = format!(
                "is for one method, and the rule has {senders}: give each its options in [alert], or at the top of the rule"
            );
            return Err(Error::invalid("alert_method_data", reason));
        }
        let mut used = Vec::new();
        for (name, own) in entries {
            let mut silent = |reason| self.silent.push(SilentMethod { name: name.clone(), reason });
            let Some(method) = Method::named(name) else {
                match name.as_str() {
                    "none" => {}
                    name if is_silent(name) => silent(None),
                    name if method::is_known(name) => {
                        silent(Some(format!("nothing is sent by [{name}]: there is no such channel")));
                    }
                    name => {
                        let names = Method::names().join(", ");
                        let reason = format!("[{}] is no method; there are {names}", short(name));
                        return Err(Error::invalid("alert_method", reason));
                    }
                }
                continue;
            };
            let mut given = Map::new();
            if method == Method::Email && !email.is_empty() {
                given.insert("email".to_owned(), json!(email));
            }
            let names = method.option_names();
            for option in &names {
                if let Some(value) = options.0.get(*option) {
                    given.insert((*option).to_owned(), value.clone());
                }
            }
            let read = method.canonical(given).and_then(|mut given| {
                given.extend(method.canonical(data.clone())?);
                given.extend(method.canonical(own.clone())?);
                let each = method.of_lists(given, MAX_CHANNELS)?;
                each.into_iter().map(|given| method.read(given)).collect::<Result<Vec<_>>>()
            });
            match read {
                Ok(each) => {
                    used.extend(names);
                    let channel = |options| Channel { name: name.clone(), method, options };
                    self.channels.extend(each.into_iter().map(channel));
                    if self.channels.len() > MAX_CHANNELS {
                        let (field, size) = (name.clone(), self.channels.len());
                        return Err(Error::TooLarge { field, size, unit: "channels", bound: MAX_CHANNELS });
                    }
                }
                Err(error) if stored => silent(Some(format!("nothing is sent by [{name}]: {error}"))),
                Err(error) => return Err(error),
            }
        }
        for name in used {
            options.take(name);
        }
        Ok(())
    }

    /// Reads the options of timing, without the recipients.
    fn timing(options: &mut Options) -> Result<Self> {
        let aggregation = aggregation(options)?;
        let aggregation_key = options.paths("aggregation_key", MAX_FIELDS)?.unwrap_or_default();
        if aggregation.is_none() && !aggregation_key.is_empty() {
            return Err(Error::invalid("aggregation_key", "needs aggregation: how alerts are gathered"));
        }
        let drops = options.flag("limit_execution_coverage")?.unwrap_or(false);
        let limit = match options.text("limit_execution", MAX_NAME)? {
            Some(line) => Some(Limit { minutes: schedule::parse("limit_execution", &line)?, drops }),
            None => None,
        };
        if drops && limit.is_none() {
            return Err(Error::invalid("limit_execution_coverage", "needs limit_execution"));
        }
        let users = options.texts("escalate_users", MAX_USERS, MAX_NAME)?;
        let after = options.span("escalate_after", Span::from_secs(1))?;
        let escalation = match (users, after) {
            (Some(users), Some(after)) => Some(Escalation { users, after }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Error::invalid(
                    "escalate_after",
                    "is missing: after how long escalate_users hear of it",
                ));
            }
            (None, Some(_)) => {
                return Err(Error::invalid(
                    "escalate_users",
                    "is missing: who hears of it after escalate_after",
                ));
            }
        };
        let per_minute = options.integer("notifications_per_minute", 1, MAX_PER_MINUTE)?;
        Ok(Self {
            aggregation,
            aggregation_key,
            limit,
            per_minute: per_minute.and_then(|number| u32::try_from(number).ok()),
            escalation,
            ..Self::default()
        })
    }

    /// Writes the options that [`Self::take`] reads, but for `alert_method`.
    pub(super) fn write(&self, options: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Value| options.insert(name.to_owned(), value);
        if self.channels.iter().any(|channel| !channel.options.is_empty()) {
            let silent = self.silent.iter().map(|silent| json!(silent.name));
            let channels =
                self.channels.iter().map(|channel| json!({channel.name.as_str(): channel.options}));
            set("alert", silent.chain(channels).collect());
        }
        match &self.aggregation {
            None => {}
            Some(Aggregation::Within(span)) => drop(set("aggregation", json!(span.text()))),
            Some(Aggregation::Schedule(schedule)) => {
                drop(set("aggregation", json!({"schedule": schedule.to_string()})));
            }
        }
        if !self.aggregation_key.is_empty() {
            set("aggregation_key", json!(self.aggregation_key));
        }
        if let Some(Limit { minutes, drops }) = &self.limit {
            set("limit_execution", json!(minutes.to_string()));
            if *drops {
                set("limit_execution_coverage", json!(true));
            }
        }
        if let Some(number) = self.per_minute {
            set("notifications_per_minute", json!(number));
        }
        if let Some(Escalation { users, after }) = &self.escalation {
            set("escalate_users", json!(users));
            set("escalate_after", json!(after.text()));
        }
    }

    /// Returns `alert_method` as the stored form has it: a name, or a list of several.
    pub fn method(&self) -> Value {
        let silent = self.silent.iter().map(|silent| &silent.name);
        let names: Vec<_> = silent.chain(self.channels.iter().map(|channel| &channel.name)).collect();
        match names.as_slice() {
            [] => json!("none"),
            [one] => json!(one),
            several => json!(several),
        }
    }

    /// Returns whom its alerts are sent to, as far as that are addresses and names of accounts.
    pub fn recipients(&self) -> Vec<&str> {
        let lists = self
            .channels
            .iter()
            .flat_map(|channel| [channel.options.get("email"), channel.options.get("users")]);
        lists.flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the command that its alerts start; empty without one.
    pub fn command(&self) -> String {
        let found = self.channels.iter().find_map(|channel| channel.options.get("command"));
        let words = found.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Returns whether a method sends nothing: the alert is in its index.
fn is_silent(name: &str) -> bool {
    matches!(name, "none" | "index" | "debug")
}

/// Names of methods, with options of their own.
fn entries(field: &str, list: Vec<Value>) -> Result<Vec<(String, Map<String, Value>)>> {
    if list.len() > MAX_CHANNELS {
        let (field, size) = (field.to_owned(), list.len());
        return Err(Error::TooLarge { field, size, unit: "entries", bound: MAX_CHANNELS });
    }
    let entry = |entry: Value| match entry {
        Value::String(name) if !name.is_empty() => Ok((name.to_lowercase(), Map::new())),
        // `- email: {…}` has the channel's own options in it.
        Value::Object(members) if members.len() == 1 => {
            let (name, own) = members.into_iter().next().unwrap_or_default();
            match own {
                Value::Object(own) => Ok((name.to_lowercase(), own)),
                Value::Null => Ok((name.to_lowercase(), Map::new())),
                other => Err(Error::invalid(
                    field,
                    format!("[{}] is {}, options are expected", short(&name), kind(&other)),
                )),
            }
        }
        other => {
            Err(Error::invalid(field, format!("has {} in it, names of methods are expected", kind(&other))))
        }
    };
    let mut entries = list.into_iter().map(entry).collect::<Result<Vec<_>>>()?;
    for (name, _) in &mut entries {
        if name == "debug" {
            "none".clone_into(name);
        }
    }
    Ok(entries)
}

fn aggregation(options: &mut Options) -> Result<Option<Aggregation>> {
    const NAME: &str = "aggregation";
    let line = match options.0.get(NAME) {
        Some(Value::Object(members)) => members.get("schedule").cloned().filter(|_| members.len() == 1),
        _ => None,
    };
    if let Some(line) = line {
        options.take(NAME);
        return Ok(Some(Aggregation::Schedule(Box::new(schedule::parse(
            NAME,
            &text(NAME, line, MAX_NAME)?,
        )?))));
    }
    Ok(options.span(NAME, Span::ZERO)?.filter(|span| *span > Span::ZERO).map(Aggregation::Within))
}

/// Reads a text or a list of texts of a channel.
fn list(name: &str, value: Value, most: usize, bound: usize) -> Result<Value> {
    texts(name, value, most, bound).map(|texts| json!(texts))
}
