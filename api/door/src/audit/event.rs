//! Audit events of requests: the caller, the action, the address, and the result. Events never hold a body, a query string or a
//! credential.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use chrono::{DateTime, SecondsFormat};
use http::{HeaderMap, HeaderValue, Method, Uri};
use millrace_accounts::Credentials;
use millrace_catalog::access::{Action, Caller, Principal, Refusals, RepeatedRefusal};
use millrace_listen::Peer;
use serde_json::{Map, Value, json};

use crate::identity::Identity;
use crate::route::{PathParams, Spec};

/// Longest text of a document, in bytes.
const MAX_TEXT: usize = 512;
/// Most roles that are told of a caller.
const MAX_ROLES: usize = 32;
/// Bytes that a document takes beside its texts.
const DOCUMENT_BYTES: usize = 512;
/// Bytes that a part which was refused takes beside its index.
const REFUSED_BYTES: usize = 128;

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// It is known who asks: a login, or something that was read.
    Authenticated,
    /// Nobody that is known, or too many attempts to be.
    AuthenticationFailed,
    /// The caller may not.
    AccessDenied,
    /// The stored rule that the caller ran may not do that, by the rights of the user that saved it.
    RuleDenied,
    /// Users, roles, mappings, keys, tokens, passwords or cluster settings were changed.
    Changed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Authenticated => "authenticated",
            Self::AuthenticationFailed => "authentication_failed",
            Self::AccessDenied => "access_denied",
            Self::RuleDenied => "rule_denied",
            Self::Changed => "changed",
        }
    }
}

/// Notes that only the handler of a request can make.
#[derive(Debug, Default)]
pub struct HandlerNotes {
    /// The user of a login, which is read from the body.
    pub login: OnceLock<String>,
    /// Set where there was nothing to change.
    pub unchanged: AtomicBool,
    /// Set where too many passwords are set, or tried, at once.
    pub too_many: AtomicBool,
    /// The rule that was refused what it needs, where it is not the caller who was.
    pub denied: OnceLock<DeniedRule>,
}

/// A rule that has run and was refused something.
#[derive(Debug)]
pub struct DeniedRule {
    /// Its id.
    pub id: String,
    /// The user with whose rights it runs.
    pub owner: String,
}

/// Facts about a request in flight; an audit event records them once it has ended.
#[derive(Debug)]
pub(crate) struct AuditTrail {
    method: Method,
    uri: Uri,
    address: IpAddr,
    listener: &'static str,
    opaque_id: Option<HeaderValue>,
    principal: Option<Principal>,
    /// Claimed identity that is not known: kind and name.
    claimed: Option<(&'static str, String)>,
    /// Path of the route.
    route: Option<&'static str>,
    action: Option<Action>,
    /// `true` if it reads, and whether it changes users, roles, mappings, keys, tokens, passwords or cluster settings.
    reads: bool,
    changes_security: bool,
    indices: Option<String>,
    /// Notes of its handler.
    noted: Arc<HandlerNotes>,
    /// Refusals of parts, while the rest is done.
    refusals: Refusals,
}

impl AuditTrail {
    /// Begins with a request.
    pub(crate) fn new(parts: &http::request::Parts, listener: &'static str) -> Self {
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            address: parts.extensions.get().map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(peer)| peer.ip()),
            listener,
            opaque_id: parts.headers.get("x-opaque-id").cloned(),
            principal: None,
            claimed: None,
            route: None,
            action: None,
            reads: false,
            changes_security: false,
            indices: None,
            noted: Arc::default(),
            refusals: Refusals::default(),
        }
    }

    /// Takes note of who asks.
    pub(crate) fn came_from(&mut self, principal: &Principal) {
        self.principal = Some(principal.clone());
    }

    /// Takes note of who somebody says to be that could not be authenticated.
    pub(crate) fn set_anonymous(&mut self, headers: &HeaderMap) {
        self.claimed = match Credentials::read(headers) {
            Ok(Some(Credentials::Basic { name, .. })) => Some(("user", cut(&name))),
            Ok(Some(Credentials::ApiKey { id, .. })) => Some(("api_key", cut(&id))),
            Ok(Some(Credentials::Token(_))) => Some(("token", String::new())),
            Ok(None) | Err(_) => None,
        };
    }

    /// Takes note of what is asked for.
    pub(crate) fn goes_to(&mut self, route: &'static Spec, captured: &PathParams) {
        (self.route, self.reads) = (Some(route.path), route.reads);
        self.changes_security = changes_security(route);
        self.does(Some(route.action));
        self.indices = captured.find("index").or_else(|| captured.find("expression")).map(cut);
    }

    /// Attaches the notes of parts that are refused while the rest is done.
    pub(crate) fn may_be_refused_in_parts(&mut self, refusals: &Refusals) {
        self.refusals = refusals.clone();
    }

    /// Returns whether nothing of it was refused but by blocks of indices.
    pub(super) fn is_blocked(&self) -> bool {
        self.refusals.are_blocks()
    }

    /// Takes note of the action that is asked for.
    pub(crate) fn does(&mut self, action: Option<Action>) {
        self.action = action;
    }

    /// Takes note that something is read.
    pub(crate) fn reads(&mut self) {
        self.reads = true;
    }

    /// Takes note that tokens or the like are changed.
    pub(crate) fn changes_security(&mut self) {
        self.changes_security = true;
    }

    /// Returns the notes for its handler.
    pub(crate) fn noted(&self) -> Arc<HandlerNotes> {
        Arc::clone(&self.noted)
    }

    /// Decides whether an end with a status is told, and as what; `blocked` where everybody is refused.
    pub(super) fn outcome(&self, status: u16, blocked: bool, reads: bool) -> Option<Outcome> {
        let is_login = self.noted.login.get().is_some();
        let is_change = self.changes_security && !self.noted.unchanged.load(Ordering::Relaxed);
        Some(match status {
            401 => Outcome::AuthenticationFailed,
            // Too many attempts.
            429 if is_login || self.claimed.is_some() => Outcome::AuthenticationFailed,
            403 if !blocked && self.noted.denied.get().is_some() => Outcome::RuleDenied,
            403 if !blocked => Outcome::AccessDenied,
            // A disk that is full is no matter of who asks.
            429 if self.noted.too_many.load(Ordering::Relaxed) => Outcome::AccessDenied,
            _ if !self.refusals.noted().0.is_empty() => Outcome::AccessDenied,
            200..300 if is_login => Outcome::Authenticated,
            200..300 if is_change => Outcome::Changed,
            200..300 if reads && self.reads => Outcome::Authenticated,
            _ => return None,
        })
    }

    /// Makes what is told; `reads` is whether all that is read is.
    pub(super) fn event(&self, outcome: Outcome, status: u16, reads: bool, time_ms: i64) -> Event {
        let mut who = Map::new();
        let mut tell = |name: &str, value: &str| who.insert(name.to_owned(), Value::from(cut(value)));
        // Who was known is told, also where its credentials have ended since.
        let claimed = self.claimed.as_ref().filter(|_| self.principal.is_none());
        let claimed = claimed.map(|(kind, name)| (*kind, name.as_str()));
        let login = self.noted.login.get().map(|name| ("user", name.as_str()));
        match (login.or(claimed), &self.principal) {
            (Some((kind, name)), _) => {
                tell("caller", kind);
                match kind {
                    "user" => drop(tell("user", name)),
                    "api_key" => drop(tell("api_key_id", name)),
                    _ => {}
                }
            }
            (None, Some(principal)) => {
                let kind = match principal.caller() {
                    Caller::User(_) => "user",
                    Caller::ApiKey { id, name, .. } => {
                        tell("api_key_id", id);
                        tell("api_key_name", name);
                        "api_key"
                    }
                    Caller::Pipeline(_) => "pipeline",
                    Caller::Rule(_) => "rule",
                    Caller::System => "system",
                };
                tell("caller", kind);
                tell("user", principal.name());
                let roles = principal.roles().iter().take(MAX_ROLES).map(|role| Value::from(cut(role)));
                who.insert("roles".to_owned(), roles.collect());
            }
            (None, None) => drop(tell("caller", "nobody")),
        }
        if let Some(DeniedRule { id, owner }) = self.noted.denied.get() {
            for (name, value) in [("rule", id), ("owner", owner)] {
                who.insert(name.to_owned(), Value::from(cut(value)));
            }
        }
        let (refused, more_refused) = self.refusals.noted();
        // The ids of scrolls are what one continues them with.
        let scroll = self.route.filter(|path| path.contains("{scroll_id}"));
        let opaque_id = self.opaque_id.as_ref().and_then(|id| id.to_str().ok());
        Event {
            time_ms,
            outcome,
            status,
            who,
            method: cut(self.method.as_str()),
            path: cut(scroll.unwrap_or_else(|| self.uri.path())),
            route: self.route,
            action: self.action,
            indices: self.indices.clone(),
            address: self.address,
            listener: self.listener,
            opaque_id: opaque_id.map(cut),
            id: request_id(),
            is_read: status < 400 && reads && self.reads,
            refused,
            more_refused,
            count: 1,
            others: 0,
        }
    }
}

/// Returns whether a route changes users, roles, mappings, keys, tokens, passwords, cluster settings or ingest pipelines.
fn changes_security(route: &Spec) -> bool {
    use Action::{
        CreateApiKey, DeleteIngestPipelines, InvalidateOwnApiKeys, ManageApiKeys, Own, PutClusterSettings,
        PutIngestPipelines, PutSecurity,
    };
    let concerns = match route.action {
        PutSecurity | CreateApiKey | InvalidateOwnApiKeys | ManageApiKeys | PutClusterSettings => true,
        // A pipeline changes what others write.
        PutIngestPipelines | DeleteIngestPipelines => true,
        // Of what is one's own there are scrolls and cursors, too.
        Own => ["/_security/", "/_service/", "/_plugins|_opendistro/_security/"]
            .iter()
            .any(|beginning| route.path.starts_with(beginning)),
        _ => false,
    };
    concerns && !route.reads
}

/// Something to be written.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) time_ms: i64,
    pub(super) outcome: Outcome,
    status: u16,
    who: Map<String, Value>,
    method: String,
    path: String,
    route: Option<&'static str>,
    action: Option<Action>,
    indices: Option<String>,
    pub(super) address: IpAddr,
    listener: &'static str,
    opaque_id: Option<String>,
    /// Names the document, too, so that one that is written again is there once.
    pub(super) id: String,
    /// `true` if something was read, which is told of each request.
    is_read: bool,
    /// Parts of the request that were refused, by action and index.
    refused: Vec<RepeatedRefusal>,
    /// Number of refusals of further kinds.
    more_refused: u64,
    /// Requests that it stands for.
    pub(super) count: u64,
    /// Further refusals of its address in the same second, which are not told; those of anybody where it is the last one that there
    /// was room for.
    pub(super) others: u64,
}

impl Event {
    /// Returns whether it is one of those that anybody can cause as often as there is time for. What was read while parts were
    /// refused is told like all that is read.
    pub(super) fn is_refusal(&self) -> bool {
        use Outcome::{AccessDenied, AuthenticationFailed, RuleDenied};
        matches!(self.outcome, AuthenticationFailed | AccessDenied | RuleDenied) && !self.is_read
    }

    /// Returns its user, where the caller is known.
    pub(super) fn user(&self) -> &str {
        let told = |name: &str| self.who.get(name).and_then(Value::as_str);
        told("user").or_else(|| told("caller")).unwrap_or_default()
    }

    pub(super) fn second(&self) -> i64 {
        self.time_ms.div_euclid(1_000)
    }

    /// Returns whether it says the same of the same caller. Of what is read and of what is done, each thing is told.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = (&self.method, &self.path, self.action, self.address)
            == (&other.method, &other.path, other.action, other.address);
        !self.is_read
            && !other.is_read
            && (is_same || self.is_refusal())
            && self.outcome == other.outcome
            && self.status == other.status
            && self.who == other.who
            && self.route == other.route
            && self.indices == other.indices
            && self.listener == other.listener
            && self.refused == other.refused
            && self.more_refused == other.more_refused
    }

    /// Bytes that it takes, nearly.
    pub(super) fn bytes(&self) -> usize {
        let text = |value: &Value| match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).map(str::len).sum(),
            value => value.as_str().map_or(0, str::len),
        };
        let who: usize = self.who.values().map(text).sum();
        let more = [&self.indices, &self.opaque_id];
        let more: usize = more.into_iter().flatten().map(String::len).sum();
        let parts: usize =
            self.refused.iter().map(|part| REFUSED_BYTES + part.index.as_ref().map_or(0, String::len)).sum();
        DOCUMENT_BYTES + who + self.path.len() + more + parts
    }

    /// Makes its document. `lost` are events that could not be told before it.
    pub(super) fn document(&self, identity: &Identity, lost: u64) -> Value {
        let time = DateTime::from_timestamp_millis(self.time_ms).unwrap_or_default();
        let mut document = self.who.clone();
        let told = json!({
            "@timestamp": time.to_rfc3339_opts(SecondsFormat::Millis, true),
            "outcome": self.outcome.name(),
            "status": self.status,
            "method": self.method,
            "path": self.path,
            "route": self.route,
            "action": self.action.map(Action::name),
            "indices": self.indices,
            "address": self.address.to_string(),
            "listener": self.listener,
            "request_id": self.id,
            "opaque_id": self.opaque_id,
            "cluster": identity.cluster,
            "node": identity.node,
            "refused": (!self.refused.is_empty()).then(|| self.refused.iter().map(refused).collect::<Vec<_>>()),
            "more_refused": (self.more_refused > 0).then_some(self.more_refused),
            "count": self.count,
            "others": (self.others > 0).then_some(self.others),
            "lost": (lost > 0).then_some(lost),
        });
        if let Value::Object(told) = told {
            document.extend(told.into_iter().filter(|(_, value)| !value.is_null()));
        }
        Value::Object(document)
    }
}

fn refused(part: &RepeatedRefusal) -> Value {
    let RepeatedRefusal { action, index, count } = part;
    match index {
        Some(index) => json!({ "action": action, "index": index, "count": count }),
        None => json!({ "action": action, "count": count }),
    }
}

/// Makes an id that no other request has.
fn request_id() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>())
}

/// Cuts a text that somebody has chosen.
fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
