//! Answers: records of agents, and the envelope of Wazuh's API around them.

use axum::body::Body;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::{Agent, AgentStatus};

/// Makes an answer of JSON. No cache keeps it: some answers have tokens.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    response(status, "application/json; charset=utf-8", body.to_string())
}

/// Makes an answer of JSON that is written already.
pub(crate) fn raw_json(body: String) -> Response {
    response(StatusCode::OK, "application/json; charset=utf-8", body)
}

/// Makes an answer of plain text.
pub(crate) fn text(body: String) -> Response {
    text_of_status(StatusCode::OK, body)
}

fn text_of_status(status: StatusCode, body: String) -> Response {
    response(status, "text/plain; charset=utf-8", body)
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes an answer of data in the envelope of Wazuh's API, without a tree of values between.
pub(crate) fn enveloped(message: &str, data: &impl Serialize) -> Response {
    #[derive(Serialize)]
    struct Envelope<'a, T> {
        data: &'a T,
        message: &'a str,
        error: u8,
    }
    match serde_json::to_string(&Envelope { data, message, error: 0 }) {
        Ok(body) => raw_json(body),
        Err(error) => text_of_status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Puts data into the envelope of Wazuh's API.
pub(crate) fn envelope(message: &str, data: Value) -> Value {
    json!({ "data": data, "message": message, "error": 0 })
}

/// Writes the record of an agent.
pub(crate) fn record(agent: &Agent, status: AgentStatus) -> Value {
    let facts = &agent.facts;
    json!({
        "agent_id": agent.agent_id,
        "host": facts.host,
        "name": facts.name,
        "ip": facts.ip,
        "os": facts.os,
        "version": facts.version,
        "status": status.name(),
        "registered": iso(agent.registered),
        "last_keepalive": agent.last_keepalive.map(iso),
    })
}

/// Writes an agent as an item of a list: its record, and the members of Wazuh's items under their names.
pub(crate) fn item(agent: &Agent, status: AgentStatus) -> Value {
    let mut item = record(agent, status);
    item["id"] = json!(agent.agent_id);
    item["os"] = agent.facts.os.as_ref().map_or_else(|| json!({}), |os| json!({ "name": os }));
    item["dateAdd"] = json!(iso(agent.registered));
    item["lastKeepAlive"] = json!(agent.last_keepalive.map(iso));
    item["registerIP"] = json!(agent.registered_from);
    item
}

fn iso(time_ms: i64) -> String {
    DateTime::from_timestamp_millis(time_ms)
        .map_or_else(|| time_ms.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}
