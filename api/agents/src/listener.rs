//! One listener of agents: bounds, panics, the router of axum, and the record of each request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use http::Request;
use hyper::body::Incoming;
use millrace_accounts::Credentials;
use millrace_catalog::access::Action;
use millrace_gateway::{Entry, Error as GatewayError, ListenerContext, RequestRecord};
use millrace_listen::{BodyReader, Budget, ReservedBody, check_same_origin, head_bytes};
use millrace_runtime::panic_text;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span};

use crate::enrolment_limiter::EnrolmentLimiter;
use crate::error::AgentError;
use crate::registry::AgentRegistry;
use crate::routes::{ListenerKind, RoutePath, router};
use crate::service::Agents;

/// Longest body of a request in bytes.
const MAX_BODY_BYTES: u64 = 16 << 10;
/// Longest silence within a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a request counts beside its head and its body.
const REQUEST_BYTES: u64 = 4 << 10;

/// Lists of agents that are made at a time: each copies the agents that it finds.
const MAX_LISTS: usize = 4;

/// A listener of agents.
#[derive(Clone, Debug)]
pub struct AgentListener {
    kind: ListenerKind,
    context: ListenerContext,
    router: Router,
}

/// State of handlers.
#[derive(Debug)]
pub(crate) struct HandlerContext {
    pub(crate) registry: AgentRegistry,
    pub(crate) listener: ListenerContext,
    pub(crate) limiter: Arc<EnrolmentLimiter>,
    /// Lists that are made at a time; further ones wait.
    pub(crate) lists: Arc<Semaphore>,
    kind: ListenerKind,
    bodies: BodyReader,
    budget: Budget,
}

impl AgentListener {
    /// Makes a listener of the routes of a kind.
    pub fn new(kind: ListenerKind, context: ListenerContext, agents: &Agents) -> Self {
        let registry = agents.registry.clone();
        let limiter = EnrolmentLimiter::new(registry.config().enrolments_per_minute);
        let handlers = HandlerContext {
            registry,
            listener: context.clone(),
            limiter: Arc::new(limiter),
            lists: Arc::new(Semaphore::new(MAX_LISTS)),
            kind,
            bodies: BodyReader::new(MAX_BODY_BYTES, BODY_TIMEOUT),
            budget: context.budget.clone(),
        };
        Self { kind, context, router: router(kind, Arc::new(handlers)) }
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<Body>) -> Response {
        let (head, body) = request.into_parts();
        let record = self.context.begin_record(&head, self.kind.name());
        let span = self.context.request_span(&head, self.kind.name());
        self.answer_in_span(Request::from_parts(head, body), record).instrument(span).await
    }

    async fn answer_in_span(&self, request: Request<Body>, mut record: RequestRecord) -> Response {
        let bytes = head_bytes(request.uri(), request.headers()).saturating_add(REQUEST_BYTES);
        let (response, route) = match self.context.budget.reserve(bytes) {
            Err(exceeded) => {
                let error = millrace_listen::BodyError::Exceeded(exceeded);
                (AgentError::from(error).into_response(), None)
            }
            Ok(_head) => {
                let answered = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind().await;
                let mut response = match answered {
                    Ok(Ok(response)) => response,
                    Ok(Err(never)) => match never {},
                    Err(panic) => {
                        let text = panic_text(panic.as_ref());
                        let cause = format_args!("handler panicked: {text}").to_string();
                        let error = GatewayError::concealed(500, "illegal_state_exception", &cause);
                        AgentError::from(error).into_response()
                    }
                };
                let route = response.extensions_mut().remove::<RoutePath>();
                (response, route.map(|RoutePath(path)| path))
            }
        };
        let status = response.status().as_u16();
        let span = Span::current();
        if let Some(route) = route {
            record.set_route(route);
            span.record("otel.name", route).record("route", route);
        }
        span.record("status", status);
        record.set_status(status);
        response
    }
}

impl millrace_listen::Service for AgentListener {
    type Body = Body;

    async fn call(&self, request: Request<Incoming>) -> Response {
        self.answer(request.map(Body::new)).await
    }
}

impl HandlerContext {
    /// Reads the body of a request within the bounds of this listener.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub(crate) async fn read_body(
        &self,
        head: &http::request::Parts,
        mut body: Body,
    ) -> Result<ReservedBody, AgentError> {
        match self.bodies.read(&head.headers, &mut body, self.budget.empty()).await {
            Ok(read) => Ok(read),
            Err(error) => {
                // A client that is still sending would see a reset connection in place of the answer.
                self.bodies.discard(body).await;
                Err(error.into())
            }
        }
    }

    /// Begins an action of a user.
    ///
    /// # Errors
    /// 401, 403 and 429, as the data API answers them.
    pub(crate) async fn enter(
        &self,
        head: &http::request::Parts,
        action: Action,
    ) -> Result<Entry, AgentError> {
        let entry = self.listener.enter(head.clone(), self.kind.name()).await?;
        match entry.begin(action) {
            Ok(_) => Ok(entry),
            Err(error) => {
                entry.refused(Some(action));
                Err(error.into())
            }
        }
    }

    /// Refuses a change that a page of another host had a browser send.
    ///
    /// # Errors
    /// [`AgentError::Foreign`].
    pub(crate) fn check_page(&self, head: &http::request::Parts) -> Result<(), AgentError> {
        check_same_origin(&head.uri, &head.headers).map_err(|foreign| {
            AgentError::Foreign(format!(
                "header [{}] with [{}] is of a page of another host",
                foreign.header, foreign.value
            ))
        })
    }
}

/// Reads the bearer token of a request; `None` for other credentials or none.
pub(crate) fn bearer(head: &http::request::Parts) -> Option<String> {
    match Credentials::read(&head.headers) {
        Ok(Some(Credentials::Token(token))) => Some(token),
        _ => None,
    }
}
