//! An agent: its identity, what it says of its host, and its status.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::AgentError;
use crate::token::TokenHash;

/// Longest id of an agent in bytes.
const MAX_ID_BYTES: usize = 128;
/// Longest text of a host fact in bytes.
const MAX_FACT_BYTES: usize = 255;

/// Facts that an agent tells of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// Name of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Name of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// An enrolled agent, as the system index stores it. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Id, which the agent chose.
    pub agent_id: String,
    /// Facts of its host.
    #[serde(flatten)]
    pub facts: HostFactsDocument,
    /// Time of the enrolment.
    pub registered: i64,
    /// Address that the enrolment came from.
    pub registered_from: IpAddr,
    /// Time of the last keep-alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_keepalive: Option<i64>,
    /// The status that the last document in `agent_status` says.
    pub status: AgentStatus,
    /// Hash of the token.
    pub(crate) token_hash: TokenHash,
}

/// Facts of a host that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFactsDocument {
    /// Name of the host.
    pub host: String,
    /// Name of the agent; that of the host where it has none.
    pub name: String,
    /// Address of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The status of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// No keep-alive came since the enrolment.
    NeverConnected,
    /// Keep-alives come in time.
    Active,
    /// A keep-alive is overdue.
    Pending,
    /// Keep-alives have been missing for long.
    Disconnected,
}

impl AgentStatus {
    /// All statuses, in the order in which a summary lists them.
    pub const ALL: [Self; 4] = [Self::Active, Self::Disconnected, Self::NeverConnected, Self::Pending];

    /// Returns the name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverConnected => "never_connected",
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Disconnected => "disconnected",
        }
    }

    /// Finds the status of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Ages of the last keep-alive that decide the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusThresholds {
    /// Age from which on an agent is pending.
    pub pending_after: Duration,
    /// Age from which on it is disconnected.
    pub disconnected_after: Duration,
}

impl StatusThresholds {
    /// Decides the status by the time of the last keep-alive. A keep-alive of the future counts as one of now: clocks are set back.
    pub fn status(self, last_keepalive: Option<i64>, now_ms: i64) -> AgentStatus {
        let Some(last) = last_keepalive else { return AgentStatus::NeverConnected };
        let age = Duration::from_millis(u64::try_from(now_ms.saturating_sub(last)).unwrap_or(0));
        if age < self.pending_after {
            AgentStatus::Active
        } else if age < self.disconnected_after {
            AgentStatus::Pending
        } else {
            AgentStatus::Disconnected
        }
    }
}

/// Checks an id: letters, digits, `-`, `_`, `.` and `:`, beginning with a letter or a digit.
///
/// # Errors
/// [`AgentError::Invalid`] that names the rule, never the id.
pub(crate) fn check_id(id: &str) -> Result<(), AgentError> {
    let is_id = id.len() <= MAX_ID_BYTES
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    match is_id {
        true => Ok(()),
        false => Err(AgentError::Invalid(format!(
            "agent_id has 1 to {MAX_ID_BYTES} letters, digits, -, _, . and :, and begins with a letter or a digit"
        ))),
    }
}

fn check_fact(name: &str, value: Option<&str>) -> Result<(), AgentError> {
    let Some(value) = value else { return Ok(()) };
    let fits =
        !value.trim().is_empty() && value.len() <= MAX_FACT_BYTES && !value.chars().any(char::is_control);
    match fits {
        true => Ok(()),
        false => Err(AgentError::Invalid(format!(
            "{name} has 1 to {MAX_FACT_BYTES} bytes and no control characters"
        ))),
    }
}

impl HostFacts {
    /// Checks all facts.
    ///
    /// # Errors
    /// [`AgentError::Invalid`] that names the fact.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        let Self { host, name, ip, os, version } = self;
        for (member, value) in [("host", host), ("name", name), ("ip", ip), ("os", os), ("version", version)]
        {
            check_fact(member, value.as_deref())?;
        }
        match ip.as_deref().map(str::parse::<IpAddr>) {
            Some(Err(_)) => Err(AgentError::Invalid("ip is no IP address".to_owned())),
            _ => Ok(()),
        }
    }
}

impl HostFactsDocument {
    /// Makes the facts of a new agent. `address` stands for an address that the agent does not tell.
    pub(crate) fn new(host: String, facts: HostFacts, address: IpAddr) -> Self {
        let HostFacts { name, ip, os, version, .. } = facts;
        let name = name.unwrap_or_else(|| host.clone());
        Self { host, name, ip: ip.or_else(|| Some(address.to_string())), os, version }
    }

    /// Replaces the facts that a keep-alive tells. Returns whether some were others before.
    pub(crate) fn update(&mut self, told: HostFacts) -> bool {
        let before = self.clone();
        let HostFacts { host, name, ip, os, version } = told;
        if let Some(host) = host {
            self.host = host;
        }
        if let Some(name) = name {
            self.name = name;
        }
        self.ip = ip.or(self.ip.take());
        self.os = os.or(self.os.take());
        self.version = version.or(self.version.take());
        *self != before
    }
}
