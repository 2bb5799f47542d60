//! Documents of agents: `.agents` has the agents, `agent_status` their changes of status.

use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{SystemDocument, hidden_index};
use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::{Agent, AgentStatus};

impl SystemDocument for Agent {
    const INDEX: &'static str = ".agents";

    fn index_body() -> Value {
        let (keyword, date) = (json!({"type": "keyword"}), json!({"type": "date"}));
        hidden_index(json!({
            "agent_id": keyword,
            "host": keyword,
            "name": keyword,
            "ip": {"type": "ip"},
            "os": keyword,
            "version": keyword,
            "registered": date,
            "registered_from": {"type": "ip"},
            "last_keepalive": date,
            "status": keyword,
        }))
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("texts, numbers and addresses are JSON"))
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let agent: Self = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        match agent.agent_id == id {
            true => Ok(agent),
            false => Err(format!("agent_id is [{}]", agent.agent_id)),
        }
    }
}

/// A change of an agent's status, which rules read.
#[derive(Debug, Serialize)]
pub(crate) struct StatusChange {
    #[serde(rename = "@timestamp")]
    pub(crate) time: i64,
    pub(crate) agent_id: String,
    pub(crate) host: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<String>,
    pub(crate) status: AgentStatus,
    pub(crate) previous_status: AgentStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_keepalive: Option<i64>,
}

impl StatusChange {
    /// Returns the id: the same for every attempt to note the change.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}:{}", self.agent_id, self.status.name(), self.last_keepalive.unwrap_or_default())
    }

    /// Makes the change of an agent at a time.
    pub(crate) fn new(agent: &Agent, status: AgentStatus, time: i64) -> Self {
        let facts = &agent.facts;
        Self {
            time,
            agent_id: agent.agent_id.clone(),
            host: facts.host.clone(),
            name: facts.name.clone(),
            ip: facts.ip.clone(),
            status,
            previous_status: agent.status,
            last_keepalive: agent.last_keepalive,
        }
    }
}

/// Makes the principal that notes changes of status: rules evaluate its writes, as those of a pipeline.
pub(crate) fn changes_principal() -> Principal {
    Principal::new(Caller::Pipeline("agents".into()), Vec::new(), Arc::new(Privileges::unrestricted()))
}

impl SystemDocument for StatusChange {
    const INDEX: &'static str = "agent_status";

    fn index_body() -> Value {
        let (keyword, date) = (json!({"type": "keyword"}), json!({"type": "date"}));
        json!({
            "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0},
            "mappings": {"dynamic": false, "properties": {
                "@timestamp": date,
                "agent_id": keyword,
                "host": keyword,
                "name": keyword,
                "ip": {"type": "ip"},
                "status": keyword,
                "previous_status": keyword,
                "last_keepalive": date,
            }},
        })
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("texts and numbers are JSON"))
    }

    fn decode(_: &str, _: &Bytes) -> Result<Self, String> {
        Err("changes of status are written only".to_owned())
    }
}
