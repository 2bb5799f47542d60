//! Configuration of agents: proofs that enrolment asks for, thresholds of statuses, and bounds.

use std::fmt;
use std::time::Duration;

use crate::agent::StatusThresholds;
use crate::token::TokenHash;

/// Configuration of agents.
#[derive(Clone)]
pub struct AgentsConfig {
    /// Hash of the secret that enrolment takes.
    pub(crate) secret: Option<TokenHash>,
    /// `true` if enrolment takes a verified client certificate. With a secret beside it, one of both is enough.
    pub takes_certificates: bool,
    /// Ages of keep-alives that decide statuses.
    pub thresholds: StatusThresholds,
    /// Agents that there may be; enrolment beyond is refused with 429.
    pub max_agents: usize,
    /// Requests for enrolment of one address in a minute; further ones are refused with 429.
    pub enrolments_per_minute: u32,
}

impl fmt::Debug for AgentsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentsConfig")
            .field("has_secret", &self.secret.is_some())
            .field("takes_certificates", &self.takes_certificates)
            .field("thresholds", &self.thresholds)
            .field("max_agents", &self.max_agents)
            .field("enrolments_per_minute", &self.enrolments_per_minute)
            .finish()
    }
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            secret: None,
            takes_certificates: false,
            thresholds: StatusThresholds {
                pending_after: Duration::from_secs(60),
                disconnected_after: Duration::from_secs(10 * 60),
            },
            max_agents: 50_000,
            enrolments_per_minute: 120,
        }
    }
}

impl AgentsConfig {
    /// Has enrolment ask for a secret.
    #[must_use]
    pub fn with_secret(self, secret: &str) -> Self {
        Self { secret: Some(TokenHash::new(secret)), ..self }
    }

    /// Returns `true` if enrolment asks for no proof.
    pub fn is_open(&self) -> bool {
        self.secret.is_none() && !self.takes_certificates
    }

    /// Checks a secret; `false` where the configuration has none.
    pub(crate) fn is_secret(&self, shown: &str) -> bool {
        self.secret.is_some_and(|secret| secret.matches(shown))
    }
}
