//! A rule as users write it: the body of `POST /api/alert/change`, and the document of `.alertrules`.
//!
//! [`Definition::parse`] reads both, and [`Definition::document`] writes the stored form, which reads back as the same
//! definition. Options stand at the top or in `alertrule_any`, an object or the text of one in YAML. What is unknown is
//! refused by its name: a misspelt option would silently make another rule. Options of ElastAlert that change nothing about
//! which alerts there are (channels, links, queries) are kept as they are written, and shown with the reason why they are
//! not used ([`Definition::notices`]), so that whole files can be pasted.
//!
//! [`edit()`] tells what a change means to a rule's state, [`import`] makes a definition of a file of ElastAlert's.

mod document;
mod edit;
mod elastalert;
mod format_spec;
mod kept;
pub mod notification;
mod options;
mod parse;
mod rule_type;
mod schedule;
mod search;
mod span;
mod text;
mod waiting;
mod yaml;

#[cfg(test)]
mod tests;

use millrace_schedule::Schedule;
use serde_json::{Map, Value};

pub use self::edit::{Edit, edit};
pub use self::elastalert::{ImportedRule, MissingChannels, import};
use self::notification::{Method, Notification};
pub use self::rule_type::RuleType;
pub use self::text::Text;
pub use self::waiting::{Aggregation, Direction, Metric, Percentage, Spike};
use crate::time::Span;

/// A rule, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its id; without one the store gives it one.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Purpose of the rule.
    pub description: String,
    /// Index patterns that it watches.
    pub index: Vec<String>,
    /// `search.request.search_type`, as it was written.
    pub search_type: Option<String>,
    /// `search.request.index`, as it was written.
    pub search_index: Vec<String>,
    /// The search body; `query` in it is the filter.
    pub body: Value,
    /// Condition that the rule looks for.
    pub rule_type: RuleType,
    /// Fields whose values are the key.
    pub query_key: Vec<String>,
    /// `true` if events without a value of the key are skipped; of types with a `compare_key`, without one of that.
    pub ignore_null: bool,
    /// The field of event time.
    pub timestamp_field: String,
    /// `true` if updates are events, too.
    pub include_updates: bool,
    /// `true` if alerts are events.
    pub allow_alerts: bool,
    /// For how long a key is silent behind an alert.
    pub realert: Realert,
    /// Schedule of alerts; always without one.
    pub schedule: Option<Schedule>,
    /// `true` if it is told that the condition of an alert has ended: of types that wait for windows.
    pub recovery: bool,
    /// `query_delay`: for how long a window waits for events behind its end; ten seconds without it. Of types that wait.
    pub delay: Option<Span>,
    /// Text of its alerts.
    pub text: Text,
    /// Fields that an alert shows, with what is below them; all without one.
    pub include: Vec<String>,
    /// Importance of its alerts, 1 to 100.
    pub importance: u8,
    /// The field whose category makes the risk.
    pub risk_key: Option<String>,
    /// Playbooks that an alert names.
    pub playbooks: Vec<String>,
    /// Roles that may see the rule.
    pub roles: Vec<String>,
    /// Notifications of its alerts, beside the index `alert`.
    pub notification: Notification,
    /// `alert_method_data`, as it was written: options of the method.
    pub method_data: Map<String, Value>,
    /// Recipients of the method `email`.
    pub email: Vec<String>,
    /// `true` if it runs.
    pub enabled: bool,
    /// Options that are kept as they were written, and not used.
    pub kept: Map<String, Value>,
}

/// For how long a key is silent behind an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Realert {
    /// The while; none: each alert is raised.
    pub wait: Span,
    /// `exponential_realert`: up to this it grows while alerts go on.
    pub at_most: Option<Span>,
}

/// Something about a rule that its user has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNotice {
    /// The option.
    pub option: String,
    /// Why it is not used, or what is done in its place.
    pub reason: String,
}

impl Definition {
    /// Returns the reading of `ignore_null` for `query_key`.
    pub(crate) fn skips_missing_key(&self) -> bool {
        // ElastAlert asks for it with a `compare_key`, and means that one: a missing user must not hide an event.
        let compares = matches!(
            self.rule_type,
            RuleType::Blacklist { .. } | RuleType::Whitelist { .. } | RuleType::Change { .. }
        );
        self.ignore_null && !compares
    }

    /// Lists the options of the rule that are not used or not sent, with the reasons.
    pub fn notices(&self) -> Vec<ImportNotice> {
        let mut notices = Vec::new();
        for reason in self.notification.silent.iter().filter_map(|silent| silent.reason.clone()) {
            notices.push(ImportNotice { option: "alert_method".to_owned(), reason });
        }
        if self.recovery && !self.rule_type.is_waiting() {
            let reason =
                format!("type [{}] tells of events: it has no condition that ends", self.rule_type.name());
            notices.push(ImportNotice { option: "recovery".to_owned(), reason });
        }
        let mails = self.notification.channels.iter().any(|channel| channel.method == Method::Email);
        if !mails && !self.email.is_empty() {
            let reason = format!("recipients of [email], and alert_method is {}", self.notification.method());
            notices.push(ImportNotice { option: "email".to_owned(), reason });
        }
        if self.risk_key.is_some() {
            let reason = "there are no risk categories yet: risk_value is the importance".to_owned();
            notices.push(ImportNotice { option: "alertruleriskkey".to_owned(), reason });
        }
        if !self.search_index.is_empty() && self.search_index != self.index {
            let reason = format!("the rule watches [index]: {}", self.index.join(","));
            notices.push(ImportNotice { option: "search.request.index".to_owned(), reason });
        }
        notices.extend(kept::notices(&self.kept, &self.rule_type));
        notices
    }

    /// Returns whether numbers that are times of events count seconds (`timestamp_type: unix`).
    pub fn counts_seconds(&self) -> bool {
        self.kept.get(kept::TIMESTAMP_TYPE).is_some_and(|written| written == "unix")
    }

    /// Returns the time within which its events count together; five minutes where its type has none.
    pub fn timeframe(&self) -> Span {
        match &self.rule_type {
            RuleType::Frequency { timeframe, .. }
            | RuleType::Cardinality { timeframe, .. }
            | RuleType::MinCardinality { timeframe, .. }
            | RuleType::Flatline { timeframe, .. } => *timeframe,
            // The time before belongs to it.
            RuleType::Spike(spike) => spike.timeframe.plus(spike.timeframe),
            RuleType::MetricAggregation(aggregation) => aggregation.window,
            RuleType::PercentageMatch(percentage) => percentage.window,
            RuleType::Change { timeframe: Some(timeframe), .. } => *timeframe,
            _ => rule_type::TIMEFRAME,
        }
    }

    /// Returns the search body of its second filter, where its type has one.
    pub fn second(&self) -> Option<Value> {
        match &self.rule_type {
            RuleType::PercentageMatch(percentage) => Some(percentage.body()),
            _ => None,
        }
    }

    /// Returns the query of the search body, which events have to match; without one, each event does.
    pub fn query(&self) -> Option<&Value> {
        self.body.get("query")
    }
}
