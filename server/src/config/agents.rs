//! The section `agents`: listeners, proofs of enrolment, thresholds and bounds.

use std::time::Duration;

use anyhow::{Result, bail};
use millrace_agents::{AgentsConfig, StatusThresholds};

use super::{Listen, Settings};

/// Shortest secret of enrolment in bytes.
const MIN_SECRET_BYTES: usize = 8;

/// Configuration of agents and their listeners.
#[derive(Clone, Debug)]
pub(crate) struct AgentsSection {
    /// Listener of enrolment.
    pub(crate) enrolment: Listen,
    /// Listener of management.
    pub(crate) management: Listen,
    /// Proofs, thresholds and bounds.
    pub(crate) config: AgentsConfig,
}

impl AgentsSection {
    /// Returns `true` if a listener is configured.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.enrolment.addresses.is_empty() || !self.management.addresses.is_empty()
    }
}

/// Reads the section.
///
/// # Errors
/// A combination of keys that cannot work, or that lets everybody enrol.
pub(super) fn section(settings: &Settings) -> Result<AgentsSection> {
    let span = |name: &str| Duration::from_millis(settings.number(name));
    let thresholds = StatusThresholds {
        pending_after: span("agents.pending_after"),
        disconnected_after: span("agents.disconnected_after"),
    };
    if thresholds.pending_after >= thresholds.disconnected_after {
        bail!(
            "agents.pending_after is not less than agents.disconnected_after: no agent would ever be pending"
        );
    }
    let takes_certificates = settings.flag("agents.enroll_certificate");
    if takes_certificates && settings.text("tls.client_authorities").is_none() {
        bail!("agents.enroll_certificate needs tls.client_authorities, which verify certificates of clients");
    }
    let mut config = AgentsConfig::default();
    config.takes_certificates = takes_certificates;
    config.thresholds = thresholds;
    config.max_agents = usize::try_from(settings.number("agents.max"))?;
    config.enrolments_per_minute = u32::try_from(settings.number("agents.enroll_per_minute"))?;
    let config = match settings.text("agents.enroll_secret") {
        Some(secret) if secret.len() < MIN_SECRET_BYTES => {
            bail!("agents.enroll_secret has fewer than {MIN_SECRET_BYTES} bytes: everybody could guess it")
        }
        Some(secret) => config.with_secret(&secret),
        None => config,
    };
    let enrolment = settings.listen("agents.enroll_listen");
    let beyond_loopback = enrolment.addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = beyond_loopback.filter(|_| config.is_open()) {
        bail!(
            "agents.enroll_listen {address} is not on loopback, and everybody could enrol: set agents.enroll_secret or \
             agents.enroll_certificate"
        );
    }
    Ok(AgentsSection { enrolment, management: settings.listen("agents.listen"), config })
}
