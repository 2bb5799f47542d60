//! The routes of both listeners and their handlers.
//!
//! Each route has the action that a user needs. An agent needs none: it shows its own token, for itself alone. `POST /register` needs no
//! user either, but the proof that the configuration asks for.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{RequestExt as _, Router};
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, StatusCode};
use millrace_accounts::Credentials;
use millrace_catalog::access::Action;
use millrace_gateway::Entry;
use millrace_listen::{ClientCertificate, Peer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::{AgentStatus, HostFacts, check_id};
use crate::answer;
use crate::error::AgentError;
use crate::listener::{HandlerContext, bearer};
use crate::listing::AgentQuery;
use crate::registry::{EnrolledAgent, Enrolment, ReplacementProof};

/// Longest text of a parser's error in an answer, in characters.
const MAX_ERROR_CHARS: usize = 200;
/// Token that a login answers where nobody has to log in: scripts insist on one.
const NO_TOKEN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Purpose of a listener of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// Agents enrol.
    Enrolment,
    /// Agents send keep-alives; users list and delete agents.
    Management,
}

impl ListenerKind {
    /// Returns the name in audit, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enrolment => "enrolment",
            Self::Management => "agents",
        }
    }
}

type HandlerFuture = BoxFuture<'static, Result<Response, AgentError>>;

/// A route of a listener of agents.
#[derive(Clone, Debug)]
pub struct AgentRoute {
    /// Listener.
    pub listener: ListenerKind,
    /// Method.
    pub method: Method,
    /// Path, with its parameters in braces.
    pub path: &'static str,
    /// Action that a user needs.
    pub action: Action,
    handler: fn(Arc<HandlerContext>, Request) -> HandlerFuture,
}

/// The path of a request's route, an extension of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutePath(pub(crate) &'static str);

/// The routes of both listeners.
pub const ROUTES: [AgentRoute; 7] = [
    AgentRoute {
        listener: ListenerKind::Enrolment,
        method: Method::POST,
        path: "/register",
        action: Action::PutAgents,
        handler: |context, request| Box::pin(register(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::GET,
        path: "/agents",
        action: Action::GetAgents,
        handler: |context, request| Box::pin(list(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::GET,
        path: "/agents/summary/status",
        action: Action::GetAgents,
        handler: |context, request| Box::pin(summarize(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::GET,
        path: "/agents/{agent_id}",
        action: Action::GetAgents,
        handler: |context, request| Box::pin(show(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::DELETE,
        path: "/agents/{agent_id}",
        action: Action::PutAgents,
        handler: |context, request| Box::pin(delete(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::POST,
        path: "/agents/{agent_id}/keepalive",
        action: Action::PutAgents,
        handler: |context, request| Box::pin(note_keepalive(context, request)),
    },
    AgentRoute {
        listener: ListenerKind::Management,
        method: Method::POST,
        path: "/security/user/authenticate",
        action: Action::Own,
        handler: |context, request| Box::pin(authenticate(context, request)),
    },
];

/// Makes the router of a listener.
pub(crate) fn router(kind: ListenerKind, context: Arc<HandlerContext>) -> Router {
    let mut router = Router::new();
    for route in ROUTES.into_iter().filter(|route| route.listener == kind) {
        let AgentRoute { method, path, handler, .. } = route;
        let filter = match method {
            Method::POST => MethodFilter::POST,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let answer = move |State(context): State<Arc<HandlerContext>>, request: Request| async move {
            let mut response = handler(context, request).await.unwrap_or_else(IntoResponse::into_response);
            response.extensions_mut().insert(RoutePath(path));
            response
        };
        router = router.route(path, on(filter, answer));
    }
    let refuse_method = |method: Method| async move { AgentError::Method(method).into_response() };
    router
        .method_not_allowed_fallback(refuse_method)
        .fallback(|| async { AgentError::UnknownPath.into_response() })
        .with_state(context)
}

/// Body of an enrolment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterBody {
    agent_id: String,
    host: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    ip: Option<String>,
    #[serde(default)]
    os: Option<String>,
    #[serde(default)]
    version: Option<String>,
    /// The secret of the configuration.
    #[serde(default)]
    secret: Option<String>,
}

/// `POST /register`
async fn register(context: Arc<HandlerContext>, request: Request) -> Result<Response, AgentError> {
    let (head, body) = request.into_parts();
    let address = peer_address(&head);
    context.limiter.admit(address).map_err(AgentError::TooMany)?;
    context.check_page(&head)?;
    let RegisterBody { agent_id, host, name, ip, os, version, secret } = parse(&context, &head, body).await?;
    check_id(&agent_id)?;
    let facts = HostFacts { host: Some(host.clone()), name, ip, os, version };
    facts.check()?;
    let (proof, user) = replacement_proof(&context, &head, &agent_id).await?;
    if user.is_none() {
        check_enrolment_proof(&context, &head, secret.as_deref())?;
    }
    let id = agent_id.clone();
    let enrolled = context.registry.enrol(Enrolment { agent_id, host, facts, address, proof }).await?;
    let EnrolledAgent { token, is_replacement } = enrolled;
    if let Some(user) = user {
        user.changed(Action::PutAgents);
    }
    tracing::info!(target: "agents", agent = id, %address, is_replacement, "agent enrolled");
    let status = if is_replacement { StatusCode::OK } else { StatusCode::CREATED };
    let message = if is_replacement { "Agent was enrolled again" } else { "Agent was enrolled" };
    Ok(answer::json(
        status,
        &json!({ "agent_id": id, "token": token.text(), "status": "never_connected", "message": message, "error": 0 }),
    ))
}

/// Finds out what the caller shows to replace an agent, and who it is where it is a user. A bearer token is that of the agent, or the
/// login of a user. Where nobody has to log in, it is that of the agent alone: everybody would be an administrator.
async fn replacement_proof(
    context: &HandlerContext,
    head: &Parts,
    id: &str,
) -> Result<(ReplacementProof, Option<Entry>), AgentError> {
    let shown =
        Credentials::read(&head.headers).map_err(|reason| AgentError::Unauthorized(reason.to_owned()))?;
    let token = match shown {
        None => return Ok((ReplacementProof::Absent, None)),
        Some(Credentials::Token(token)) => Some(token),
        Some(_) => None,
    };
    if let Some(token) = &token {
        let registry = &context.registry;
        let is_insecure = context.listener.node.accounts.is_insecure();
        if is_insecure || registry.get(id).is_none() || registry.is_token_of(id, token) {
            return Ok((ReplacementProof::Token(token.clone()), None));
        }
    }
    match (context.enter(head, Action::PutAgents).await, token) {
        (Ok(user), _) => Ok((ReplacementProof::Administrator, Some(user))),
        // It may be an older token of the agent: the conflict says what to show.
        (Err(error), Some(token)) if matches!(error.status().as_u16(), 401 | 403) => {
            Ok((ReplacementProof::Token(token), None))
        }
        (Err(error), _) => Err(error),
    }
}

/// Checks the secret or the certificate that the configuration asks for.
fn check_enrolment_proof(
    context: &HandlerContext,
    head: &Parts,
    secret: Option<&str>,
) -> Result<(), AgentError> {
    let config = context.registry.config();
    let now_ms = context.registry.now_ms();
    let is_certified = || {
        let certificate = head.extensions.get::<ClientCertificate>();
        config.takes_certificates && certificate.is_some_and(|certificate| certificate.not_after_ms >= now_ms)
    };
    if config.is_open() || secret.is_some_and(|secret| config.is_secret(secret)) || is_certified() {
        return Ok(());
    }
    let wanted = if config.takes_certificates {
        "a client certificate or the member [secret]"
    } else {
        "the member [secret]"
    };
    Err(AgentError::Unauthorized(format!("enrolment asks for {wanted}, which is missing or wrong")))
}

/// `GET /agents`
async fn list(context: Arc<HandlerContext>, request: Request) -> Result<Response, AgentError> {
    let (head, _) = request.into_parts();
    let entry = context.enter(&head, Action::GetAgents).await?;
    let query = AgentQuery::parse(head.uri.query().unwrap_or_default())?;
    let _permit = context.lists.acquire().await;
    let page = context.registry.compute(move |registry| query.answer(registry).to_string()).await?;
    entry.read(Action::GetAgents);
    Ok(answer::raw_json(page))
}

/// `GET /agents/summary/status`
async fn summarize(context: Arc<HandlerContext>, request: Request) -> Result<Response, AgentError> {
    let (head, _) = request.into_parts();
    context.enter(&head, Action::GetAgents).await?.read(Action::GetAgents);
    let counts = context.registry.compute(|registry| registry.count_by_status()).await?;
    let mut connection = json!({ "total": counts.values().sum::<usize>() });
    for status in AgentStatus::ALL {
        connection[status.name()] = json!(counts.get(&status).copied().unwrap_or_default());
    }
    let data = json!({ "connection": connection });
    Ok(answer::json(StatusCode::OK, &answer::envelope("Statistics information was returned", data)))
}

/// `GET /agents/{agent_id}`
async fn show(context: Arc<HandlerContext>, mut request: Request) -> Result<Response, AgentError> {
    let id = agent_id(&mut request).await?;
    let (head, _) = request.into_parts();
    let is_itself = bearer(&head).is_some_and(|token| context.registry.is_token_of(&id, &token));
    if !is_itself {
        context.enter(&head, Action::GetAgents).await?.read(Action::GetAgents);
    }
    let agent = context.registry.get(&id).ok_or(AgentError::UnknownAgent(id))?;
    let status = context.registry.status(&agent, context.registry.now_ms());
    Ok(answer::json(StatusCode::OK, &answer::record(&agent, status)))
}

/// Answer to a keep-alive.
#[derive(Serialize)]
struct NotedKeepalive<'a> {
    agent_id: &'a str,
    status: &'static str,
}

/// `POST /agents/{agent_id}/keepalive`
async fn note_keepalive(context: Arc<HandlerContext>, mut request: Request) -> Result<Response, AgentError> {
    let id = agent_id(&mut request).await?;
    let (head, body) = request.into_parts();
    let is_itself = bearer(&head).is_some_and(|token| context.registry.is_token_of(&id, &token));
    if !is_itself {
        return Err(AgentError::Unauthorized(
            "a keep-alive shows the token of its agent as a bearer".to_owned(),
        ));
    }
    let facts: HostFacts = parse(&context, &head, body).await?;
    facts.check()?;
    let status = context.registry.note_keepalive(&id, facts)?;
    let data = NotedKeepalive { agent_id: &id, status: status.name() };
    Ok(answer::enveloped("Keep-alive was noted", &data))
}

/// `DELETE /agents/{agent_id}`
async fn delete(context: Arc<HandlerContext>, mut request: Request) -> Result<Response, AgentError> {
    let id = agent_id(&mut request).await?;
    let (head, _) = request.into_parts();
    context.check_page(&head)?;
    let entry = context.enter(&head, Action::PutAgents).await?;
    context.registry.delete(id.clone()).await?;
    entry.changed(Action::PutAgents);
    tracing::info!(target: "agents", agent = id, "agent deleted");
    let data = json!({
        "affected_items": [id], "total_affected_items": 1, "total_failed_items": 0, "failed_items": [],
    });
    Ok(answer::json(StatusCode::OK, &answer::envelope("All selected agents were deleted", data)))
}

/// `POST /security/user/authenticate`
async fn authenticate(context: Arc<HandlerContext>, request: Request) -> Result<Response, AgentError> {
    let (head, _) = request.into_parts();
    context.check_page(&head)?;
    let is_raw = head.uri.query().is_some_and(|query| query.split('&').any(|param| param == "raw=true"));
    let token = match context.listener.log_in(&head, ListenerKind::Management.name()).await? {
        Some(token) => token,
        None if context.listener.node.accounts.is_insecure() => NO_TOKEN.to_owned(),
        None => return Err(AgentError::Invalid("send a name and a password (Basic)".to_owned())),
    };
    Ok(match is_raw {
        true => answer::text(token),
        false => answer::json(StatusCode::OK, &json!({ "data": { "token": token }, "error": 0 })),
    })
}

/// Reads the id in the path.
async fn agent_id(request: &mut Request) -> Result<String, AgentError> {
    let Path(id) = request
        .extract_parts::<Path<String>>()
        .await
        .map_err(|_| AgentError::Invalid("the id in the path is no UTF-8".to_owned()))?;
    check_id(&id)?;
    Ok(id)
}

/// Reads a body of JSON; an empty one is an empty object.
async fn parse<T: DeserializeOwned>(
    context: &HandlerContext,
    head: &Parts,
    body: Body,
) -> Result<T, AgentError> {
    let read = context.read_body(head, body).await?;
    let bytes: &[u8] = if read.bytes.is_empty() { b"{}" } else { &read.bytes };
    // A parser would take an array for the members of an object in their order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(AgentError::Invalid("the body is no JSON object".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
        AgentError::Invalid(format!("the body is not valid: {text}"))
    })
}

/// Returns the address of the client. In-process callers are one client.
fn peer_address(head: &Parts) -> IpAddr {
    head.extensions.get().map_or(IpAddr::from([0, 0, 0, 0]), |Peer(peer)| peer.ip())
}
