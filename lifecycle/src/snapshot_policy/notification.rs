//! The member `notification` of a policy of snapshots: the outcomes that are sent, and their destination.

use serde_json::{Map, Value};

use super::ExecutionRecord;
use crate::error::Result;
use crate::policy::{invalid, members, parse_destination, refuse_channel};

/// Outcomes of runs that are sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutcomeNotification {
    /// Options of the webhook, by their names in rules.
    pub webhook: Map<String, Value>,
    creation: bool,
    deletion: bool,
    failure: bool,
    time_limit_exceeded: bool,
}

impl OutcomeNotification {
    /// Reads the member; `None` where it is null. Without `conditions` creations are sent.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] with the member.
    pub(super) fn parse(value: &Value) -> Result<Option<Self>> {
        if value.is_null() {
            return Ok(None);
        }
        let mut webhook = None;
        let (mut creation, mut deletion, mut failure, mut time_limit_exceeded) = (true, false, false, false);
        for (key, value) in members("notification", value)? {
            match key.as_str() {
                "destination" => webhook = Some(parse_destination(value)?),
                "channel" => return refuse_channel(),
                "conditions" => {
                    for (key, value) in members(key, value)? {
                        let Some(flag) = value.as_bool() else {
                            return invalid(format!("[{key}] must be true or false, but is [{value}]"));
                        };
                        match key.as_str() {
                            "creation" => creation = flag,
                            "deletion" => deletion = flag,
                            "failure" => failure = flag,
                            "time_limit_exceeded" => time_limit_exceeded = flag,
                            other => {
                                return invalid(format!("Invalid field: [{other}] found in conditions."));
                            }
                        }
                    }
                }
                other => return invalid(format!("Invalid field: [{other}] found in notification.")),
            }
        }
        match webhook {
            Some(webhook) => Ok(Some(Self { webhook, creation, deletion, failure, time_limit_exceeded })),
            None => invalid("a notification has a [destination]"),
        }
    }

    /// Returns whether an outcome of a creation or a deletion is sent. A run that is tried again has none yet.
    pub(super) fn includes(&self, is_creation: bool, outcome: &ExecutionRecord) -> bool {
        match outcome.status.as_str() {
            "SUCCESS" if is_creation => self.creation,
            "SUCCESS" => self.deletion,
            "FAILED" => self.failure,
            "TIME_LIMIT_EXCEEDED" => self.time_limit_exceeded,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_choose_the_outcomes() {
        let destination = json!({"slack": {"url": {"secret": "ops"}}});
        let parse = |value: Value| OutcomeNotification::parse(&value);
        let outcome = |status: &str| ExecutionRecord {
            status: status.to_owned(),
            start_ms: 0,
            end_ms: 0,
            message: String::new(),
            cause: None,
        };
        let default = parse(json!({"destination": destination})).unwrap().unwrap();
        assert!(default.includes(true, &outcome("SUCCESS")) && !default.includes(false, &outcome("SUCCESS")));
        let conditions =
            json!({"creation": false, "deletion": true, "failure": true, "time_limit_exceeded": true});
        let chosen = json!({"destination": destination, "conditions": conditions});
        let chosen = parse(chosen).unwrap().unwrap();
        for (is_creation, status, included) in [
            (true, "SUCCESS", false),
            (false, "SUCCESS", true),
            (true, "FAILED", true),
            (true, "RETRYING", false),
            (true, "TIME_LIMIT_EXCEEDED", true),
        ] {
            assert_eq!(chosen.includes(is_creation, &outcome(status)), included, "{status}");
        }
        assert_eq!(parse(Value::Null).unwrap(), None);
        for (wrong, needle) in [
            (json!({"channel": {"id": "c"}}), "stores no channels"),
            (json!({}), "[destination]"),
            (json!({"destination": destination, "conditions": {"creation": "yes"}}), "[creation]"),
            (json!({"destination": destination, "conditions": {"other": true}}), "[other]"),
        ] {
            let refused = parse(wrong).unwrap_err().to_string();
            assert!(refused.contains(needle), "{refused}");
        }
    }
}
