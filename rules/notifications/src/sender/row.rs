//! Rows as the sender has them.

use millrace_rules::definition::notification::{Channel, Method};
use serde_json::{Map, Value};

use crate::outbox::BY_EVENT;

/// Member of a row with the recipients that got the notification already.
pub(crate) const SERVED: &str = "served";

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Alert,
    Recovery,
    Escalation,
    Problem,
}

impl RowKind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Alert, Self::Recovery, Self::Escalation, Self::Problem];

    /// Returns the name in rows and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Recovery => "recovery",
            Self::Escalation => "escalation",
            Self::Problem => "problem",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A row of the outbox.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Key of the notification.
    pub(crate) id: String,
    pub(crate) kind: RowKind,
    pub(crate) rule: String,
    pub(crate) alert: String,
    pub(crate) frame: u64,
    pub(crate) expires: i64,
    pub(crate) channel: String,
    pub(crate) group: Option<String>,
    pub(crate) batch: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) per_minute: Option<u32>,
    pub(crate) about: Value,
    pub(crate) bytes: usize,
}

/// Rows that are sent as one notification.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Key of the notification where it is of several rows; it is in each of them.
    pub(crate) batch: Option<String>,
    /// At least one, all of one channel.
    pub(crate) rows: Vec<Row>,
}

impl Row {
    /// Reads the one that a search has found; `None` where it is none.
    pub(crate) fn read(mut hit: Value) -> Option<Self> {
        let id = hit["_id"].as_str()?.to_owned();
        let mut source = hit.get_mut("_source")?.take();
        let about = source.get_mut("about").map(Value::take).unwrap_or_default();
        let text = |name: &str| source.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = RowKind::from_name(source["kind"].as_str()?)?;
        Some(Self {
            id,
            kind,
            rule: text("rule_id")?,
            alert: text("alert_id")?,
            frame: source["frame"].as_u64().unwrap_or(0),
            expires: source["expires"].as_i64()?,
            channel: text("channel")?,
            group: text("group"),
            batch: text("batch"),
            attempts: source["attempts"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0),
            per_minute: about["per_minute"].as_u64().and_then(|number| u32::try_from(number).ok()),
            bytes: about.to_string().len() + 512,
            about,
        })
    }

    /// Returns whether the document of a row says that it is still to be sent.
    pub(crate) fn is_waiting(source: &[u8]) -> bool {
        serde_json::from_slice::<Value>(source).is_ok_and(|row| row["state"] == "waiting")
    }

    /// Returns its channel; `None` where this server has no such method.
    pub(crate) fn channel(&self) -> Option<Channel> {
        let name = self.about["name"].as_str()?.to_owned();
        let method = Method::named(self.about["method"].as_str()?)?;
        let options = self.about["options"].as_object().cloned().unwrap_or_else(Map::new);
        Some(Channel { name, method, options })
    }

    /// Returns whether it may be told together with whatever else its channel has: not where its event says whom it is for.
    pub(crate) fn gathers(&self) -> bool {
        // One that was tried may have reached somebody, under its own key.
        self.kind == RowKind::Alert && self.attempts == 0 && self.about["options"].get(BY_EVENT).is_none()
    }

    /// Returns the importance of its rule.
    pub(crate) fn importance(&self) -> i64 {
        self.about["importance"].as_i64().unwrap_or(50)
    }

    #[cfg(test)]
    pub(crate) fn of_test(id: &str, channel: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind: RowKind::Alert,
            rule: "r".to_owned(),
            alert: "a".to_owned(),
            frame: 1,
            expires: 1,
            channel: channel.to_owned(),
            group: None,
            batch: None,
            attempts: 0,
            per_minute: None,
            about: Value::Null,
            bytes: 100,
        }
    }
}

impl Unit {
    /// Makes one of a row.
    pub(crate) fn one(row: Row) -> Self {
        Self { batch: None, rows: vec![row] }
    }

    /// Returns the key of the notification.
    pub(crate) fn key(&self) -> &str {
        self.batch.as_deref().or_else(|| self.rows.first().map(|row| row.id.as_str())).unwrap_or_default()
    }

    /// Returns the recipients that have it from attempts before.
    pub(crate) fn served(&self) -> Vec<String> {
        let of_row = |row: &Row| row.about[SERVED].as_array().cloned().unwrap_or_default();
        self.rows.iter().flat_map(of_row).filter_map(|mark| mark.as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}
