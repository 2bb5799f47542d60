//! Rows of the outbox: the notification, its channel, and the time of the next attempt.
//!
//! A row is made with its alert and committed in the same frame. Its `_id` is the key of the notification: a hash of the alert, the
//! occasion and the channel, so that what is committed twice is there once. It has all that is needed to send it but the alert itself, which is read by
//! its id: a rule that is changed or deleted changes nothing about what was raised before. A row is deleted when it was sent. Where the frame
//! that raised it may still be evaluated again, it stays for a while, marked as sent.

use millrace_rules::Time;
use millrace_rules::definition::Definition;
use millrace_rules::definition::notification::{Aggregation, Channel, Method};
use millrace_rules::engine::Rule;
use serde_json::{Map, Value, json};

use crate::{hash, identity};

/// The index of the rows.
pub const OUTBOX: &str = ".alert_outbox";
/// The option by which an event says whom it is for.
pub(crate) const BY_EVENT: &str = "email_from_field";
/// Bytes of what a row says of its alert.
const MAX_ABOUT: usize = 1_024;
/// Fields of an alert that a row repeats, for notifications whose alert is gone.
const REPEATED: [&str; 5] = ["@timestamp", "alert_subject", "rule_name", "rule_id", "key"];

/// Reason of a notification.
#[derive(Clone, Copy, Debug)]
pub enum NotificationReason<'a> {
    /// An alert, with its document.
    Alert(&'a Value),
    /// That the condition of an alert of a key has ended, and when.
    Recovery {
        /// The key.
        key: &'a str,
        /// Time at which it ended.
        time: Time,
    },
    /// That a rule does not watch what it is to watch, with a document that says so as an alert does. It is told at once, whatever
    /// gathers or limits alerts.
    Problem(&'a Value),
}

/// Returns the body of the request that makes the index.
pub fn index_body() -> Value {
    let (keyword, date, long) =
        (json!({"type": "keyword"}), json!({"type": "date"}), json!({"type": "long"}));
    json!({
        "settings": {
            "index.number_of_shards": 1,
            "index.number_of_replicas": 0,
            "index.hidden": true,
            // Who sends asks for a refresh when it looks.
            "index.refresh_interval": "5s",
        },
        "mappings": {
            "dynamic": "strict",
            "properties": {
                "@timestamp": date,
                "due": date,
                "expires": date,
                "kind": keyword,
                "rule_id": keyword,
                "alert_id": keyword,
                "frame": long,
                "channel": keyword,
                "group": keyword,
                "batch": keyword,
                "attempts": {"type": "integer"},
                "state": keyword,
                "last_error": {"type": "keyword", "index": false, "doc_values": false},
                "about": {"type": "object", "enabled": false},
            },
        },
    })
}

/// Makes the rows of something that a rule raised at a frame: their ids and documents, one for each channel that is to hear of it.
/// `frame` is 0 for what was not raised by a frame; `give_up_ms` is how long a row is tried again.
pub fn rows(
    rule: &Rule,
    alert: &str,
    occasion: NotificationReason<'_>,
    frame: u64,
    now_ms: i64,
    give_up_ms: i64,
) -> Vec<(String, Value)> {
    let definition = &rule.definition;
    let maker = NotificationBuilder { rule, alert, occasion, frame, now_ms, give_up_ms };
    let mut rows = Vec::new();
    let when = match occasion {
        NotificationReason::Recovery { .. } if !definition.recovery => return rows,
        NotificationReason::Recovery { .. } | NotificationReason::Problem(_) => Some(now_ms),
        NotificationReason::Alert(_) => maker.first_time(),
    };
    for channel in &definition.notification.channels {
        let Some(due) = when else { continue };
        let identity = identity(channel);
        let (due, group) = match occasion {
            NotificationReason::Alert(document) => maker.gathered(channel, &identity, document, due),
            NotificationReason::Recovery { .. } | NotificationReason::Problem(_) => (due, None),
        };
        let kind = match occasion {
            NotificationReason::Alert(_) => "alert",
            NotificationReason::Recovery { .. } => "recovery",
            NotificationReason::Problem(_) => "problem",
        };
        rows.push(maker.row(kind, channel, &identity, due, group));
    }
    if let (NotificationReason::Alert(_), Some(escalation)) = (occasion, &definition.notification.escalation)
    {
        let mut options = Map::new();
        options.insert("users".to_owned(), json!(escalation.users));
        let channel = Channel { name: "user".to_owned(), method: Method::User, options };
        let due = now_ms.saturating_add(escalation.after.ms());
        rows.push(maker.row("escalation", &channel, &identity(&channel), due, None));
    }
    // The same channel twice is one.
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows.dedup_by(|(one, _), (other, _)| one == other);
    rows
}

/// Names the row of an alert and a channel.
pub(crate) fn key(alert: &str, kind: &str, channel: &str) -> String {
    hash(&[alert, kind, channel])
}

struct NotificationBuilder<'a> {
    rule: &'a Rule,
    alert: &'a str,
    occasion: NotificationReason<'a>,
    frame: u64,
    now_ms: i64,
    give_up_ms: i64,
}

impl NotificationBuilder<'_> {
    fn definition(&self) -> &Definition {
        &self.rule.definition
    }

    /// Returns the time at which an alert may be sent, by `limit_execution`; `None` where it is never sent.
    fn first_time(&self) -> Option<i64> {
        let Some(limit) = &self.definition().notification.limit else { return Some(self.now_ms) };
        let at = limit.minutes.allows(self.now_ms).unwrap_or(self.now_ms);
        (at == self.now_ms || !limit.drops).then_some(at)
    }

    /// Returns the time at which it is sent with the others of its group, and the group.
    fn gathered(
        &self,
        channel: &Channel,
        identity: &str,
        document: &Value,
        due: i64,
    ) -> (i64, Option<String>) {
        let notification = &self.definition().notification;
        let due = match &notification.aggregation {
            None => return (due, None),
            Some(Aggregation::Within(span)) => due.saturating_add(span.ms()),
            Some(Aggregation::Schedule(schedule)) => schedule.after(due).unwrap_or(due),
        };
        let mut parts = vec![self.rule.id.clone(), identity.to_owned()];
        for field in &notification.aggregation_key {
            parts.push(value_of(&document["match_body"], field));
        }
        // Each hears of what is his.
        if let Some(field) = channel.options.get(BY_EVENT).and_then(Value::as_str) {
            parts.push(value_of(&document["match_body"], field));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        (due, Some(hash(&parts)))
    }

    fn row(
        &self,
        kind: &str,
        channel: &Channel,
        identity: &str,
        due: i64,
        group: Option<String>,
    ) -> (String, Value) {
        let key = key(self.alert, kind, identity);
        let mut about = json!({
            "name": channel.name,
            "method": channel.method.name(),
            "options": channel.options,
            "rule_name": self.definition().name,
            "roles": self.definition().roles,
            "importance": self.definition().importance,
            "per_minute": self.definition().notification.per_minute,
        });
        match self.occasion {
            NotificationReason::Alert(document) => {
                let mut repeated = Map::new();
                for field in REPEATED {
                    if let Some(value) =
                        document.get(field).filter(|value| value.to_string().len() <= MAX_ABOUT)
                    {
                        repeated.insert(field.to_owned(), value.clone());
                    }
                }
                about["alert"] = Value::Object(repeated);
                if let Some(escalation) =
                    self.definition().notification.escalation.as_ref().filter(|_| kind == "escalation")
                {
                    about["waited_ms"] = json!(escalation.after.ms());
                }
            }
            NotificationReason::Recovery { key, time } => {
                about["recovered"] = json!(time.iso());
                about["alert"] =
                    json!({"key": key, "rule_id": self.rule.id, "rule_name": self.definition().name});
            }
            NotificationReason::Problem(document) => about["alert"] = document.clone(),
        }
        let expires = due.max(self.now_ms).saturating_add(self.give_up_ms);
        let mut row = json!({
            "@timestamp": Time::from_ms(self.now_ms).iso(),
            "due": due,
            "expires": expires,
            "kind": kind,
            "rule_id": self.rule.id,
            "alert_id": self.alert,
            "frame": self.frame,
            "channel": identity,
            "attempts": 0,
            "state": "waiting",
            "about": about,
        });
        if let Some(group) = group {
            row["group"] = json!(group);
        }
        (key, row)
    }
}

/// The value of a field, as a text; empty where there is none.
pub(crate) fn value_of(body: &Value, field: &str) -> String {
    let found = body.get(field).or_else(|| field.split('.').try_fold(body, |value, part| value.get(part)));
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(more: Value) -> Rule {
        let mut rule = json!({"name": "r", "index": "i", "type": "any", "alert_method": "webhook", "http_post_url": "https://a/"});
        for (name, value) in more.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let definition = Definition::parse(&rule).unwrap();
        Rule { id: "r1".to_owned(), revision: 1, since: 0, owner: "ann".to_owned(), definition }
    }

    fn made(more: Value, document: &Value, now_ms: i64) -> Vec<(String, Value)> {
        rows(&rule(more), "a1", NotificationReason::Alert(document), 7, now_ms, 1_000)
    }

    #[test]
    fn each_channel_has_a_row_whose_id_is_the_same_whenever_it_is_made() {
        let document = json!({"@timestamp": "2026-01-01T00:00:00Z", "alert_subject": "s", "match_body": {"user": "ann"}});
        let several = json!({"alert_method": null, "alert": [{"webhook": {"url": "https://a/"}}, {"webhook": {"url": "https://b/"}},
            {"webhook": {"url": "https://a/"}}, "index"]});
        let rows = made(several.clone(), &document, 5);
        assert_eq!(rows.len(), 2);
        let ids = |rows: &[(String, Value)]| rows.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&rows), ids(&made(several, &document, 99)));
        let row = &rows[0].1;
        assert_eq!((&row["due"], &row["expires"], &row["frame"]), (&json!(5), &json!(1_005), &json!(7)));
        assert_eq!(row["about"]["alert"]["alert_subject"], json!("s"));
        assert!(made(json!({"alert_method": "index"}), &document, 5).is_empty());
        let recovery = NotificationReason::Recovery { key: "ann", time: Time::from_ms(9) };
        assert!(super::rows(&rule(json!({})), "a1", recovery, 7, 5, 1_000).is_empty());
        let told = super::rows(&rule(json!({"recovery": true})), "a1", recovery, 7, 5, 1_000);
        assert_eq!((told.len(), &told[0].1["kind"]), (1, &json!("recovery")));
        // That a rule is blind waits for nothing.
        let blind = json!({"alert_subject": "blind", "alert_text": "why"});
        let gathers =
            rule(json!({"aggregation": {"minutes": 5}, "escalate_users": "boss", "escalate_after": "1h"}));
        let told = super::rows(&gathers, "p1", NotificationReason::Problem(&blind), 7, 5, 1_000);
        assert_eq!((told.len(), &told[0].1["kind"], &told[0].1["due"]), (1, &json!("problem"), &json!(5)));
        assert_eq!(told[0].1["about"]["alert"], blind);
    }

    #[test]
    fn gathering_limits_and_escalation_say_when() {
        let ann = json!({"match_body": {"user": {"name": "ann"}}});
        let bob = json!({"match_body": {"user.name": "bob"}});
        let gather = json!({"aggregation": {"minutes": 5}, "aggregation_key": "user.name"});
        let (one, other) = (made(gather.clone(), &ann, 1_000), made(gather, &bob, 2_000));
        assert_eq!(one[0].1["due"], json!(301_000));
        assert_ne!(one[0].1["group"], other[0].1["group"]);
        let own = json!({"aggregation": {"minutes": 5}, "alert_method": "email", "email": "a@b.c", "email_from_field": "user.name", "http_post_url": null});
        assert_ne!(made(own.clone(), &ann, 1_000)[0].1["group"], made(own, &bob, 1_000)[0].1["group"]);
        let hourly = made(json!({"aggregation": {"schedule": "0 * * * *"}}), &ann, 1_000);
        assert_eq!(hourly[0].1["due"], json!(3_600_000));
        let night = json!({"limit_execution": "* 1-2 * * *"});
        assert_eq!(made(night.clone(), &ann, 60_000)[0].1["due"], json!(3_600_000));
        assert_eq!(made(night, &ann, 3_700_000)[0].1["due"], json!(3_700_000));
        let drops = json!({"limit_execution": "* 1-2 * * *", "limit_execution_coverage": true});
        assert!(made(drops, &ann, 60_000).is_empty());
        let escalated = made(json!({"escalate_users": "boss", "escalate_after": "1h"}), &ann, 1_000);
        let late = escalated.iter().find(|(_, row)| row["kind"] == "escalation").unwrap();
        assert_eq!((escalated.len(), &late.1["due"]), (2, &json!(3_601_000)));
    }
}
