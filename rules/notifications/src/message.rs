//! Text of a notification: of one alert, of several that were gathered, of the end of a condition, of an alert that nobody looked
//! at.

use millrace_rules::{Time, cut};
use serde_json::{Map, Value, json};

use crate::hash;

/// Bytes of the text.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of a subject.
const MAX_SUBJECT: usize = 2_048;
/// Bytes of the documents of several alerts; of those beyond only the heads are told.
const MAX_DOCUMENTS: usize = 512 << 10;
/// Members that remain of an alert beyond that bound.
const HEAD: [&str; 7] = ["@timestamp", "alert_id", "alert_subject", "rule_id", "rule_name", "key", "status"];

/// Content of a message about one alert.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Key of the notification of this alert.
    pub(crate) key: String,
    /// The alert: its document, or what is left of it.
    pub(crate) alert: Value,
}

/// Why it is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Alert,
    /// The condition has ended at a time.
    Recovery(String),
    /// Nobody looked at it for so many milliseconds.
    Escalation(i64),
    /// The rule does not watch what it is to watch.
    Problem,
    /// Sent because somebody asked for a sample.
    Test,
}

/// A notification.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The same in each attempt.
    pub(crate) key: String,
    pub(crate) kind: Kind,
    pub(crate) subject: String,
    pub(crate) text: String,
    /// Time of the alert, or of the first of them.
    pub(crate) time: String,
    pub(crate) rule_id: String,
    pub(crate) rule_name: String,
    pub(crate) severity: &'static str,
    /// The same for alerts of a rule and key, and the end of their condition.
    pub(crate) incident: String,
    /// At least one.
    pub(crate) items: Vec<Item>,
    /// Recipients who have it from attempts before, as their channel knows them.
    pub(crate) served: Vec<String>,
}

fn text_of<'a>(alert: &'a Value, field: &str) -> &'a str {
    alert[field].as_str().unwrap_or_default()
}

/// A span in words.
fn span(ms: i64) -> String {
    match ms / 1000 {
        seconds if seconds % 86_400 == 0 && seconds > 0 => format!("{} d", seconds / 86_400),
        seconds if seconds % 3_600 == 0 && seconds > 0 => format!("{} h", seconds / 3_600),
        seconds if seconds % 60 == 0 && seconds > 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

impl Message {
    /// Makes one of at least one alert; `importance` is the rule's.
    pub(crate) fn new(key: String, kind: Kind, importance: i64, mut items: Vec<Item>) -> Self {
        bound(&mut items);
        let first = items.first().map(|item| item.alert.clone()).unwrap_or_default();
        let (rule_id, rule_name) =
            (text_of(&first, "rule_id").to_owned(), text_of(&first, "rule_name").to_owned());
        let said = match text_of(&first, "alert_subject") {
            "" => rule_name.clone(),
            subject => subject.to_owned(),
        };
        let one_rule = items.iter().all(|item| text_of(&item.alert, "rule_id") == rule_id);
        let subject = match &kind {
            Kind::Recovery(_) => format!("Ended: {said}"),
            Kind::Escalation(ms) => format!("New for {}: {said}", span(*ms)),
            Kind::Test => format!("Test: {said}"),
            Kind::Problem => said,
            Kind::Alert if items.len() == 1 => said,
            Kind::Alert if one_rule => format!("{} alerts: {rule_name}", items.len()),
            Kind::Alert => format!("{} alerts of several rules", items.len()),
        };
        let subject: String = subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // Where several are told of together, the end of one is not the end of all.
        let is_one = items
            .iter()
            .all(|item| ["rule_id", "key"].iter().all(|member| item.alert[*member] == first[*member]));
        let incident = match is_one {
            true => hash(&[&rule_id, text_of(&first, "key")]),
            false => hash(&["digest", &key]),
        };
        let incident = format!("millrace-{incident}");
        let text = text(&kind, &items);
        let time = match &kind {
            Kind::Recovery(time) => time.clone(),
            _ => text_of(&first, "@timestamp").to_owned(),
        };
        Self {
            incident,
            subject: cut(&subject, MAX_SUBJECT).to_owned(),
            severity: match importance {
                80.. => "critical",
                40..80 => "warning",
                _ => "info",
            },
            key,
            kind,
            text,
            time,
            rule_id,
            rule_name,
            items,
            served: Vec::new(),
        }
    }

    /// Makes a sample, where there is no alert to be told of.
    pub(crate) fn sample(rule: &str, now: Time) -> Value {
        json!({
            "@timestamp": now.iso(),
            "alert_id": "sample",
            "rule_id": "sample",
            "rule_name": rule,
            "alert_subject": rule,
            "alert_text": "This is a sample: no alert was raised.",
            "alert_time": now.iso(),
            "status": "New",
            "key": "",
            "match_body": {"message": "a sample"},
        })
    }

    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Alert if self.items.len() > 1 => "digest",
            Kind::Alert => "alert",
            Kind::Recovery(_) => "recovery",
            Kind::Escalation(_) => "escalation",
            Kind::Test => "test",
            Kind::Problem => "problem",
        }
    }

    /// Returns the values that templates see; `options` are those of the channel.
    pub(crate) fn context(&self, options: &Map<String, Value>) -> Value {
        let alerts: Vec<Value> = self.items.iter().map(keyed).collect();
        json!({
            "key": self.key,
            "kind": self.kind_name(),
            "subject": self.subject,
            "text": self.text,
            "time": self.time,
            "severity": self.severity,
            "incident": self.incident,
            "rule": {"id": self.rule_id, "name": self.rule_name},
            "count": alerts.len(),
            "alert": alerts.first().cloned().unwrap_or_default(),
            "alerts": alerts,
            "option": options,
        })
    }

    /// Returns the default body of a webhook.
    pub(crate) fn document(&self) -> Value {
        let mut document = self.context(&Map::new());
        if let Value::Object(members) = &mut document {
            members.shift_remove("option");
            members.shift_remove("alert");
        }
        document
    }
}

/// The alert with the key of its notification.
fn keyed(item: &Item) -> Value {
    let mut alert = item.alert.clone();
    if let Value::Object(members) = &mut alert {
        members.insert("notification_key".to_owned(), json!(item.key));
    }
    alert
}

/// Takes the bodies out of alerts that are beyond the bound.
fn bound(items: &mut [Item]) {
    let mut left = MAX_DOCUMENTS;
    let several = items.len() > 1;
    for item in items.iter_mut().filter(|_| several) {
        match left.checked_sub(item.alert.to_string().len()) {
            Some(rest) => left = rest,
            None => {
                if let Value::Object(members) = &mut item.alert {
                    members.retain(|name, _| HEAD.contains(&name.as_str()));
                }
            }
        }
    }
}

fn text(kind: &Kind, items: &[Item]) -> String {
    let mut out = String::new();
    match kind {
        Kind::Recovery(time) => out.push_str(&format!("The condition ended at {time}.\n\n")),
        Kind::Escalation(ms) => out.push_str(&format!("Nobody has looked at it for {}.\n\n", span(*ms))),
        Kind::Test => out.push_str("This is a test of the channel.\n\n"),
        Kind::Alert | Kind::Problem => {}
    }
    if let [one] = items {
        out.push_str(text_of(&one.alert, "alert_text"));
    } else {
        let mut told = 0;
        for item in items {
            let (alert, at) = (&item.alert, text_of(&item.alert, "@timestamp"));
            let line = format!("{at} {}: {}\n", text_of(alert, "rule_name"), text_of(alert, "alert_subject"));
            if out.len() + line.len() > MAX_TEXT / 2 {
                break;
            }
            out.push_str(&line);
            told += 1;
        }
        if told < items.len() {
            out.push_str(&format!("… and {} more\n", items.len() - told));
        }
        for item in items.iter().take(told) {
            let text = text_of(&item.alert, "alert_text");
            if text.is_empty() || out.len() + text.len() + 64 > MAX_TEXT {
                continue;
            }
            out.push_str("\n----------------------------------------\n");
            out.push_str(text);
            out.push('\n');
        }
    }
    if out.len() > MAX_TEXT {
        let shown = cut(&out, MAX_TEXT - 4).len();
        out.truncate(shown);
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: usize, text: &str) -> Item {
        let alert = json!({"@timestamp": format!("t{n}"), "rule_id": "r", "rule_name": "rule", "alert_subject": format!("s{n}"),
            "alert_text": text, "key": "k", "match_body": {"a": "x".repeat(1_000)}});
        Item { key: format!("k{n}"), alert }
    }

    #[test]
    fn a_message_says_why_it_is_sent_and_is_bounded() {
        let one = Message::new("k".to_owned(), Kind::Alert, 90, vec![item(1, "text")]);
        assert_eq!((one.subject.as_str(), one.text.as_str(), one.severity), ("s1", "text", "critical"));
        let ended = Message::new("k".to_owned(), Kind::Recovery("t9".to_owned()), 10, vec![item(1, "text")]);
        assert_eq!(
            (ended.subject.as_str(), ended.time.as_str(), &ended.incident),
            ("Ended: s1", "t9", &one.incident)
        );
        let late = Message::new("k".to_owned(), Kind::Escalation(5_400_000), 50, vec![item(1, "")]);
        assert_eq!(late.subject, "New for 90 min: s1");
        let many = (0..2_000).map(|n| item(n, &"y".repeat(500))).collect();
        let digest = Message::new("k".to_owned(), Kind::Alert, 50, many);
        assert_eq!((digest.subject.as_str(), digest.kind_name()), ("2000 alerts: rule", "digest"));
        // It is of one rule and key; where there are several the end of one is not that of all.
        assert_eq!(digest.incident, one.incident);
        let mut other = item(2, "text");
        other.alert["key"] = json!("another");
        let several = Message::new("k".to_owned(), Kind::Alert, 50, vec![item(1, "text"), other]);
        assert_ne!(several.incident, one.incident);
        assert!(digest.text.len() <= MAX_TEXT && digest.text.contains("more"));
        let context = digest.context(&Map::new());
        assert!(context.to_string().len() < 2 << 20);
        assert_eq!(context["alerts"][1_999]["notification_key"], json!("k1999"));
    }
}
