//! The demo's agent: it enrols, sends a keep-alive, and is in the list of agents.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::events::TARGET;
use super::feed::Target;

/// Addresses of the listeners of agents.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentListeners {
    /// Listener of enrolment.
    pub(super) enrolment: SocketAddr,
    /// Listener of management.
    pub(super) management: SocketAddr,
}

impl AgentListeners {
    /// Plays an agent, and renders the requests and the list of agents.
    pub(super) async fn play(self, target: &Target) -> Result<String> {
        let enrolment = target.at(&format!("http://{}", self.enrolment));
        let management = target.at(&format!("http://{}", self.management));
        let body = json!({ "agent_id": "demo-1", "host": TARGET });
        // The administrator's credentials let a data directory that is used again enrol its agent anew.
        let enrolled = enrolment.ask("/register", &body).await.context("cannot enrol an agent")?;
        let token = enrolled["token"].as_str().unwrap_or_default();
        let facts = json!({ "os": "Debian GNU/Linux 13", "version": env!("CARGO_PKG_VERSION") });
        let agent = management.with_token(token);
        agent.ask("/agents/demo-1/keepalive", &facts).await.context("a keep-alive is refused")?;
        let listed = management.get("/agents?status=active").await.context("cannot list agents")?;
        Ok(format!(
            "# an agent that enrolled, sent a keep-alive, and is active\n\
             curl -s {}'{}/agents?status=active'\n{}",
            management.curl_credentials(),
            management.url(),
            table(&listed),
        ))
    }
}

/// Renders the items of a list of agents.
fn table(listed: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut out = String::new();
    for agent in listed["data"]["affected_items"].as_array().into_iter().flatten() {
        let [id, status, host] = ["agent_id", "status", "host"].map(|member| text(&agent[member]));
        let (os, since) = (text(&agent["os"]["name"]), text(&agent["last_keepalive"]));
        let _ = writeln!(out, "    {id:<24}  {status:<8}  {host}  {os}  {since}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_each_agent() {
        let item = json!({ "agent_id": "a", "status": "active", "host": "h", "os": { "name": "o" }, "last_keepalive": "t" });
        let listed = json!({ "data": { "affected_items": [item] } });
        assert_eq!(table(&listed), "    a                         active    h  o  t\n");
    }
}
