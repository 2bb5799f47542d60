//! Status that people set on alerts, and tests of the channels of rules.
//!
//! Who says something of an alert changes its document, and no other: alerts of the same rule and key have documents of their own, so none
//! is hidden. Revisions by late events have none of these fields.

use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_engine::{Action, RefreshPolicy, Session, Update, WriteOp};
use millrace_rules::Time;
use millrace_runtime::Error as StorageError;
use serde_json::{Value, json};

use crate::NotifyTested;
use crate::changes::{may_see, sees_all};
use crate::error::{Error, Result};
use crate::indices::{self, ALERT};
use crate::replay::ReplaySubject;
use crate::runner::RunnerState;
use crate::store::StoredRule;

/// Time that a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a note.
const MAX_NOTE: usize = 8 << 10;
/// Bytes of an alert that is given for a test.
const MAX_ALERT: usize = 256 << 10;

/// Status of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertStatus {
    /// Nobody has looked at it.
    New,
    /// Somebody does.
    Ongoing,
    /// It was none.
    False,
    /// It is over.
    Solved,
}

impl AlertStatus {
    /// Reads its name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        [Self::New, Self::Ongoing, Self::False, Self::Solved]
            .into_iter()
            .find(|status| status.name().eq_ignore_ascii_case(name))
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Ongoing => "Ongoing",
            Self::False => "False",
            Self::Solved => "Solved",
        }
    }
}

impl RunnerState {
    /// Sets the status of an alert.
    ///
    /// # Errors
    /// As [`crate::Alerting::set_status`].
    pub(crate) async fn set_status(
        &self,
        asker: &Principal,
        alert: &str,
        status: AlertStatus,
        note: Option<String>,
    ) -> Result<()> {
        if note.as_ref().is_some_and(|note| note.len() > MAX_NOTE) {
            return Err(Error::Invalid(format!("[note] has more than {MAX_NOTE} bytes")));
        }
        let missing = || Error::NoAlert(alert.to_owned());
        let found = match Session::system(&self.engine).get(ALERT, alert, None, true).await {
            Err(StorageError::IndexNotFound { .. }) => None,
            found => found?,
        };
        let document: Value = serde_json::from_slice(&found.ok_or_else(missing)?.source).unwrap_or_default();
        if !self.may_see_alert(asker, &document) {
            return Err(missing());
        }
        indices::make(&self.engine, ALERT).await?;
        let doc = json!({
            "status": status.name(),
            "status_by": asker.name(),
            "status_time": Time::from_ms(self.engine.clock().now_ms()).iso(),
            "status_note": note,
        });
        let update = Update { doc: Some(doc.into()), retry_on_conflict: 16, ..Update::default() };
        let op = WriteOp::new(ALERT, Some(alert.to_owned()), Action::Update(Box::new(update)));
        // Not as the user's own write: who may say this need have no right to change the index.
        let principal = Principal::of_rules("alert status");
        let written = self.engine.write(&principal, vec![op], RefreshPolicy::WaitFor, TIMEOUT).await?;
        for outcome in written {
            match outcome {
                Err(StorageError::DocumentMissing { .. }) => return Err(missing()),
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// Returns whether somebody may see an alert: those who may see its rule, or whom it names where that is gone.
    fn may_see_alert(&self, asker: &Principal, document: &Value) -> bool {
        let rule = document["rule_id"].as_str().and_then(|id| self.store.get(id));
        if let Some(kept) = rule {
            return may_see(asker, &kept.rule);
        }
        let named: Vec<&str> = match &document["roles"] {
            Value::String(one) => vec![one],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        named.is_empty() || sees_all(asker) || asker.roles().iter().any(|role| named.contains(&role.as_str()))
    }

    /// Sends a sample through the channels of a rule.
    ///
    /// # Errors
    /// As [`crate::Alerting::notify_test`].
    pub(crate) async fn notify_test(
        &self,
        asker: &Principal,
        tested: ReplaySubject,
        alert: Option<Value>,
    ) -> Result<Vec<NotifyTested>> {
        let Some(notifications) = &self.notifications else {
            return Err(Error::Invalid("this server sends no notifications".to_owned()));
        };
        if alert.as_ref().is_some_and(|alert| !alert.is_object() || alert.to_string().len() > MAX_ALERT) {
            return Err(Error::Invalid(format!("[alert] is no object of at most {MAX_ALERT} bytes")));
        }
        let definition = match tested {
            ReplaySubject::Stored(id) => self.seen(asker, &id)?.rule.definition.clone(),
            ReplaySubject::Written(body) => self.read(asker, body).await?,
        };
        Ok(notifications.test(&definition, alert, asker.name()).await?)
    }

    /// Writes the record of a rule, with why its channels cannot send.
    pub(crate) fn record(&self, kept: &StoredRule, lag_ms: i64, now_ms: i64) -> Value {
        let mut record = self.status_reporter.record(kept, lag_ms, now_ms);
        let definition = &kept.rule.definition;
        let warnings = match &self.notifications {
            Some(notifications) => notifications.warnings(definition),
            None => {
                let channels = definition.notification.channels.iter();
                let none = "nothing is sent: this server sends no notifications".to_owned();
                channels.map(|channel| (channel.name.clone(), none.clone())).collect()
            }
        };
        if let Some(notices) = record["notices"].as_array_mut() {
            notices.extend(warnings.into_iter().map(|(channel, reason)| {
                json!({"option": "alert_method", "reason": format!("[{channel}] {reason}")})
            }));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_one_name_in_any_case() {
        assert_eq!(AlertStatus::named("ongoing"), Some(AlertStatus::Ongoing));
        assert_eq!(AlertStatus::named("False").map(AlertStatus::name), Some("False"));
        assert_eq!(AlertStatus::named("closed"), None);
    }
}
