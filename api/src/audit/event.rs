//! What is worth a document.

use std::net::IpAddr;

use millrace_storage::Principal;
use millrace_storage::access::{Action, Caller};
use serde_json::{Value, json};

/// Longest text of a member, in bytes: names, paths and reasons are callers' to choose.
const MAX_TEXT: usize = 512;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It showed no credentials that count.
    LoginFailed,
    /// It was not allowed.
    Refused,
    /// It changed what is about security.
    Changed,
    /// It was to change that, and did not.
    Failed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::LoginFailed => "login_failed",
            Self::Refused => "refused",
            Self::Changed => "changed",
            Self::Failed => "failed",
        }
    }
}

/// Who does it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    kind: &'static str,
    name: String,
    key: Option<String>,
    roles: Vec<String>,
}

impl Subject {
    /// Names a principal.
    pub(crate) fn of(principal: &Principal) -> Self {
        let (kind, key) = match principal.caller() {
            Caller::User(_) => ("user", None),
            Caller::ApiKey { id, .. } => ("api_key", Some(id.to_string())),
            Caller::Pipeline(_) => ("pipeline", None),
            Caller::Rule(_) => ("rule", None),
            Caller::System => ("system", None),
        };
        let roles = principal.roles().iter().take(32).map(|role| cut(role)).collect();
        Self { kind, name: cut(principal.name()), key, roles }
    }
}

/// Something that happened. Equal ones of one second are one document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) outcome: Outcome,
    /// Who; nobody where that is not known.
    pub(crate) subject: Option<Subject>,
    pub(crate) action: Option<Action>,
    pub(crate) method: String,
    /// Without parameters.
    pub(crate) path: String,
    pub(crate) address: IpAddr,
    pub(crate) status: u16,
    pub(crate) reason: Option<String>,
}

impl Event {
    /// Cuts its texts to what is kept of them.
    pub(super) fn cut(self) -> Self {
        let (method, path) = (cut(&self.method), cut(&self.path));
        Self { method, path, reason: self.reason.as_deref().map(cut), ..self }
    }

    /// Renders it, as often as it happened.
    pub(super) fn document(&self, at_ms: i64, count: u64, lost: u64) -> Value {
        let subject = self.subject.as_ref();
        let mut document = json!({
            "@timestamp": at_ms,
            "outcome": self.outcome.name(),
            "method": self.method,
            "path": self.path,
            "address": self.address.to_string(),
            "status": self.status,
            "count": count,
        });
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                document[name] = value;
            }
        };
        put("caller", subject.map(|subject| json!({"kind": subject.kind, "name": subject.name})));
        put("key_id", subject.and_then(|subject| subject.key.as_deref()).map(Value::from));
        put("roles", subject.map(|subject| json!(subject.roles)));
        put("action", self.action.map(|action| action.name().into()));
        put("reason", self.reason.as_deref().map(Value::from));
        put("lost", (lost > 0).then(|| lost.into()));
        document
    }
}

/// Whether a request of an action is a change of what is about security.
pub(crate) fn is_audited(action: Action, path: &str) -> bool {
    match action {
        Action::PutSecurity | Action::CreateApiKey | Action::InvalidateOwnApiKeys | Action::ManageApiKeys => {
            true
        }
        // Logins, and changes of one's own password.
        Action::Own => {
            path.starts_with("/_service") || path.ends_with("/_password") || path.ends_with("/account")
        }
        _ => false,
    }
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}
