//! Agents of hosts: their enrolment, their keep-alives, and their status by the age of the last one.
//!
//! - [`Agents`]: the service that a server starts and stops; it stores keep-alives and notes changes of status
//! - [`AgentListener`]: one listener, for enrolment or for management, whose routes axum serves
//! - [`AgentsConfig`]: secrets, thresholds and bounds
//! - [`ROUTES`]: the routes of both listeners with their actions
//!
//! `millrace-server` binds the listeners. Users are authenticated by a [`ListenerContext`](millrace_gateway::ListenerContext), agents by
//! the token that their enrolment returned. `registry` holds the agents in memory and stores them as documents of `.agents`.
//! `agent_status` has a document for each change of an agent to active or disconnected, which rules read.

mod agent;
mod answer;
mod config;
mod document;
mod enrolment_limiter;
mod error;
mod listener;
mod listing;
mod registry;
mod routes;
mod service;
#[cfg(test)]
mod tests;
mod token;

pub use agent::{Agent, AgentStatus, HostFacts, StatusThresholds};
pub use config::AgentsConfig;
pub use error::AgentError;
pub use listener::AgentListener;
pub use routes::{AgentRoute, ListenerKind, ROUTES};
pub use service::Agents;
