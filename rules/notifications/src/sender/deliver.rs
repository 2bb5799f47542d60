//! Sending one notification: its alerts are read, it is put into words, and handed to its channel.

use std::sync::Arc;

use millrace_rules::Time;
use millrace_rules::definition::Definition;
use millrace_rules::definition::notification::{Channel, Method};
use millrace_runtime::Error as StorageError;
use serde_json::{Map, Value, json};

use super::row::{Row, RowKind, Unit};
use super::store::{ALERT, DeliveryOutcome};
use crate::NotifierState;
use crate::channel::{Failure, compute};
use crate::message::{Item, Kind, Message};
use crate::outbox::{self, OUTBOX};

/// Report of the test of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTestReport {
    /// Name of the method.
    pub method: String,
    /// Why it was not sent; `None` where it was.
    pub error: Option<String>,
    /// Remark about a delivery that succeeded.
    pub note: Option<String>,
    /// Milliseconds that it took.
    pub took_ms: i64,
}

/// Message that belongs to no alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandaloneMessage {
    /// Identity of the message, the same in each attempt.
    pub key: String,
    /// Name of its sender, such as a policy.
    pub sender: String,
    /// Subject.
    pub subject: String,
    /// Text.
    pub text: String,
}

/// Posts a message that belongs to no alert.
pub(crate) async fn post(
    shared: &Arc<NotifierState>,
    message: &StandaloneMessage,
    webhook: &Map<String, Value>,
) -> Result<(), String> {
    let now = Time::from_ms(shared.engine.clock().now_ms());
    let key = crate::hash(&["message", &message.sender, &message.key]);
    let alert = json!({
        "@timestamp": now.iso(),
        "rule_name": message.sender,
        "alert_subject": message.subject,
        "alert_text": message.text,
        "key": message.key,
    });
    let items = vec![Item { key: key.clone(), alert }];
    let message = move || Ok(Message::new(key, Kind::Problem, 0, items));
    let message = compute(shared, message).await.map_err(|failure| failure.reason)?;
    let channel = Channel { name: "webhook".to_owned(), method: Method::Webhook, options: webhook.clone() };
    let sent = shared.channels.send(shared, &channel, message).await;
    sent.map(drop).map_err(|failure| failure.reason)
}

/// Sends what rows ask for.
pub(crate) async fn deliver(shared: &Arc<NotifierState>, unit: &Unit) -> DeliveryOutcome {
    let now_ms = shared.engine.clock().now_ms();
    let expires = unit.rows.iter().map(|row| row.expires).max().unwrap_or(now_ms);
    match attempt(shared, unit).await {
        Ok(fate) => fate,
        Err(failure) => {
            let is_over = failure.permanent || shared.engine.clock().now_ms() >= expires;
            match is_over {
                false => DeliveryOutcome::Again(failure),
                true if failure.served.is_empty() => DeliveryOutcome::Lost(failure.reason),
                // Some have it.
                true => DeliveryOutcome::Sent(Some(failure.reason)),
            }
        }
    }
}

async fn attempt(shared: &Arc<NotifierState>, unit: &Unit) -> Result<DeliveryOutcome, Failure> {
    let Some(first) = unit.rows.first() else { return Ok(DeliveryOutcome::Dropped) };
    let channel = first.channel().ok_or_else(|| Failure::permanent("this server has no such channel"))?;
    if first.kind == RowKind::Recovery && waits(shared, first).await? {
        return Err(Failure { of_recipients: true, ..Failure::passing("its alert is not sent yet") });
    }
    let mut items = Vec::with_capacity(unit.rows.len());
    for row in &unit.rows {
        let alert = match row.kind {
            RowKind::Problem => None,
            RowKind::Alert | RowKind::Recovery | RowKind::Escalation => alert(shared, row).await?,
        };
        // Once somebody has looked at it, nobody else need hear of it.
        if row.kind == RowKind::Escalation && alert.as_ref().is_none_or(|alert| alert["status"] != "New") {
            return Ok(DeliveryOutcome::Dropped);
        }
        let alert = alert.unwrap_or_else(|| row.about["alert"].clone());
        items.push(Item { key: row.id.clone(), alert });
    }
    let kind = match first.kind {
        RowKind::Alert => Kind::Alert,
        RowKind::Problem => Kind::Problem,
        RowKind::Recovery => Kind::Recovery(first.about["recovered"].as_str().unwrap_or_default().to_owned()),
        RowKind::Escalation => Kind::Escalation(first.about["waited_ms"].as_i64().unwrap_or(0)),
    };
    let (key, importance) = (unit.key().to_owned(), first.importance());
    let served = unit.served();
    let message = move || Ok(Message { served, ..Message::new(key, kind, importance, items) });
    let message = compute(shared, message).await?;
    shared.channels.send(shared, &channel, message).await.map(DeliveryOutcome::Sent)
}

/// Returns whether the alert whose end a row tells of is still to be sent through the same channel.
async fn waits(shared: &NotifierState, recovery: &Row) -> Result<bool, Failure> {
    let of_alert = outbox::key(&recovery.alert, "alert", &recovery.channel);
    match shared.session.get(OUTBOX, &of_alert, None, true).await {
        Ok(None) | Err(StorageError::IndexNotFound { .. }) => Ok(false),
        Ok(Some(found)) => Ok(Row::is_waiting(&found.source)),
        Err(error) => Err(Failure::passing(format!("it cannot be looked for its alert: {error}"))),
    }
}

/// Reads an alert; `None` where it is gone.
async fn alert(shared: &NotifierState, row: &Row) -> Result<Option<Value>, Failure> {
    match shared.session.get(ALERT, &row.alert, None, true).await {
        Ok(None) | Err(StorageError::IndexNotFound { .. }) => Ok(None),
        Ok(Some(found)) => {
            let read = serde_json::from_slice(&found.source);
            read.map(Some).map_err(|error| Failure::permanent(format!("the alert cannot be read: {error}")))
        }
        Err(error) => Err(Failure::passing(format!("the alert cannot be read: {error}"))),
    }
}

/// Sends a sample through each channel of a rule.
pub(crate) async fn test(
    shared: &Arc<NotifierState>,
    definition: &Definition,
    alert: Option<Value>,
    asker: &str,
) -> Vec<ChannelTestReport> {
    let began_ms = shared.engine.clock().now_ms();
    let now = Time::from_ms(began_ms);
    let mut alert = alert.unwrap_or_else(|| Message::sample(&definition.name, now));
    if let Value::Object(members) = &mut alert {
        members.entry("rule_name").or_insert_with(|| json!(definition.name));
        members.entry("alert_subject").or_insert_with(|| json!(definition.name));
    }
    let mut tested = Vec::new();
    for channel in &definition.notification.channels {
        let began = shared.engine.clock().now_ms();
        let key = crate::hash(&["test", asker, &began.to_string(), &crate::identity(channel)]);
        let item = Item { key: key.clone(), alert: alert.clone() };
        let message = Message::new(key, Kind::Test, i64::from(definition.importance), vec![item]);
        let sent = shared.channels.send(shared, channel, message).await;
        let took_ms = shared.engine.clock().now_ms().saturating_sub(began);
        let (error, note) = match sent {
            Ok(note) => (None, note),
            Err(failure) => (Some(failure.reason), None),
        };
        tested.push(ChannelTestReport { method: channel.name.clone(), error, note, took_ms });
    }
    tested
}
