//! The life of a request: probes, authentication, route, session, body, handler, answer.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use millrace_accounts::{Credentials, Scheme};
use millrace_engine::NodeFault;
use millrace_listen::{
    BodyError, BodyReader, Budget, Reservation, Reserve, check_host, check_origin, check_same_origin,
    head_bytes,
};
use millrace_runtime::tasks::TaskGuard;
use millrace_runtime::{Priority, panic_text};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{Instrument as _, Span};

use crate::access_log::RequestRecord;
use crate::audit::AuditTrail;
use crate::client::ClientConnection;
use crate::config::HttpConfig;
use crate::entry::{self, ListenerContext};
use crate::error::Error;
use crate::http::render::Style;
use crate::http::{AnswerBody, Body, MemoryAllowance, Params, Request, Response, content, json, path};
use crate::node::{Api, Node, Requester};
use crate::request_span::{record_route, request_span};
use crate::route::{Call, RouteMatch, Router, Spec};
use crate::tasks::request_task;

/// Probe that tells supervisors whether the process answers; needs no credentials.
const LIVENESS: &str = "/_health/live";
/// Probe that tells load balancers whether the server takes requests; needs no credentials. Listeners open once all acknowledged
/// writes have been replayed: a server that answers has them.
const READINESS: &str = "/_health/ready";

/// Bytes that inflating takes beyond those of the two forms of a body.
const INFLATE_BYTES: u64 = 1 << 20;

/// Bytes that a request counts at least: its task, its captured state, the answer's head. Many small ones are much, too.
const LEAST_BYTES: u64 = 8 << 10;

/// Longest body of a request that needs no credentials, in bytes.
const OPEN_BYTES: u64 = 16 << 10;

/// Answers requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    node: Arc<Node>,
    bodies: BodyReader,
    /// Those of requests that need no credentials.
    open_bodies: BodyReader,
    /// Bytes in flight: bodies, and what handlers make of them.
    in_flight: Budget,
    /// Bytes of answers that are being made or sent.
    answers: Budget,
    /// Bytes of answers to changes: readers that are slow keep no writer waiting.
    acknowledgements: Budget,
    /// The routes of the listener.
    router: Arc<dyn Router>,
    /// Set once the server ends after the requests in flight.
    ending: watch::Sender<bool>,
}

/// A request before its body is read: it has a route, and its principal may take it.
struct RoutedRequest {
    api: Api,
    found: RouteMatch,
    path: Vec<String>,
    params: Params,
}

impl Service {
    /// Makes a service of the routes of a router, with the bounds of a configuration.
    pub fn new(node: Arc<Node>, config: &HttpConfig, router: Arc<dyn Router>) -> Self {
        let longest = config.max_content_length;
        let bodies = BodyReader::new(longest, config.body_timeout);
        let open_bodies = BodyReader::new(longest.min(OPEN_BYTES), config.body_timeout);
        // There is room for the longest body, compressed and not.
        let least = longest.saturating_mul(2).saturating_add(INFLATE_BYTES);
        let in_flight = Budget::new(config.max_in_flight_bytes.max(least));
        let answers = Budget::new(config.max_answer_bytes);
        let acknowledgements = Budget::new(config.max_answer_bytes);
        let ending = watch::Sender::default();
        Self { node, bodies, open_bodies, in_flight, answers, acknowledgements, router, ending }
    }

    /// Returns the switch that tells probes and listeners that the server ends after the requests under way.
    pub fn ending(&self) -> watch::Sender<bool> {
        self.ending.clone()
    }

    /// Returns the services that listeners of other protocols share with this one.
    pub fn listener_context(&self) -> ListenerContext {
        let ending = self.ending.subscribe();
        ListenerContext { node: Arc::clone(&self.node), budget: self.in_flight.clone(), ending }
    }

    /// Serves the routes of another router, with the same bounds and to the same users.
    #[must_use]
    pub fn with_router(self, router: Arc<dyn Router>) -> Self {
        Self { router, ..self }
    }

    /// Answers one request. Writes run to their end even where this future is dropped; everything else
    /// ends with it.
    pub async fn call<B>(&self, request: http::Request<B>) -> http::Response<AnswerBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let span = request_span(&parts, self.router.listener());
        self.call_in_span(parts, body).instrument(span).await
    }

    async fn call_in_span<B>(&self, parts: http::request::Parts, body: B) -> http::Response<AnswerBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let listener = self.router.listener();
        let mut style = Style::from_headers(&parts.headers, parts.method == Method::HEAD);
        if let Some(probed) = self.probed(parts.uri.path()) {
            return self.render(style, probed).await;
        }
        let mut record = RequestRecord::new(&self.node, listener, &parts);
        let answer = self.answer(parts, body, &mut style, &mut record.route);
        let answer = AssertUnwindSafe(answer).catch_unwind().await;
        let response = answer.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let response = response.unwrap_or_else(|error| self.router.error_response(error));
        record.status = response.status;
        Span::current().record("status", response.status);
        drop(record);
        self.render(style, response).await
    }

    /// Renders an answer, a large one on a compute thread.
    async fn render(&self, style: Style, response: Response) -> http::Response<AnswerBody> {
        let (compute, answers) = (self.node.engine.compute(), &self.answers);
        let rendered = if style.works_on(&response.body) {
            let (style, threads, budget) = (style.clone(), compute.clone(), answers.clone());
            let render = move || Ok(style.render(response, &threads, &budget));
            compute.run(Priority::Foreground, render).await.unwrap_or_else(|error| Err(error.into()))
        } else {
            style.render(response, compute, answers)
        };
        // The refusal of an answer is short enough to be let through.
        let refused = |error: Error| style.render(error.into_response(), compute, answers);
        rendered.or_else(refused).unwrap_or_else(|_| http::Response::new(AnswerBody::Left(Full::default())))
    }

    async fn answer<B>(
        &self,
        parts: http::request::Parts,
        mut body: B,
        style: &mut Style,
        path_of_route: &mut Option<&'static str>,
    ) -> Result<Response, Error>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        // What the head takes counts, too: there may be many.
        let head = match self.in_flight.reserve(head_bytes(&parts.uri, &parts.headers).max(LEAST_BYTES)) {
            Ok(reserved) => reserved,
            Err(exceeded) => {
                self.bodies.discard(body).await;
                return Err(BodyError::Exceeded(exceeded).into());
            }
        };
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str()).to_owned();
        let mut trail = AuditTrail::new(&parts, self.router.listener());
        let RoutedRequest { api, found, path, mut params } =
            match self.prepare(&parts, &uri, style, &mut trail).await {
                Ok(routed) => routed,
                Err(answer) => {
                    self.node.audit.done(&trail, &answer);
                    // A client that is still sending would see a reset connection in place of the answer.
                    self.bodies.discard(body).await;
                    return answer;
                }
            };
        let RouteMatch { spec: route, position, captured } = found;
        *path_of_route = Some(route.path);
        record_route(&Span::current(), route, &captured, api.session.principal().name());
        if !route.reads {
            style.set_tells_change();
        }
        let bodies = if route.open { &self.open_bodies } else { &self.bodies };
        let held = match bodies.read(&parts.headers, &mut body, self.in_flight.empty()).await {
            Ok(held) => held,
            Err(error) => {
                let error = Error::from(error);
                if matches!(error.status(), 413 | 429) {
                    bodies.discard(body).await;
                }
                return Err(error);
            }
        };
        let own = head.bytes() + held.reservation.bytes();
        let (allowance, answer, filter) = (
            MemoryAllowance::beside_own(&self.in_flight, own),
            MemoryAllowance::of_answer(if route.reads { &self.answers } else { &self.acknowledgements }),
            style.filter(),
        );
        // A page of elsewhere can have a browser send a change without a body, but not one with a body of this kind.
        let bytes = match route.reads || !held.bytes.is_empty() {
            _ if route.has_raw_body => held.bytes.clone(),
            true => body_or_source(&parts.headers, &held.bytes, &mut params, &allowance)?,
            false => Bytes::new(),
        };
        // A body may take its time: a change is made by who may make it now.
        let api = match route.reads || route.open || self.node.injected(&parts).is_some() {
            true => api,
            false => {
                let again = self.node.authenticate(&parts, &uri, api.address).await;
                match &again {
                    // A certificate may have become another's, and roles others.
                    Ok(asker) => trail.came_from(&asker.principal),
                    Err(_) => trail.set_anonymous(&parts.headers),
                }
                match again.and_then(|asker| self.node.api(asker, route.action, trail.noted())) {
                    Ok(api) => api,
                    Err(error) => {
                        let answer = Err(error);
                        self.node.audit.done(&trail, &answer);
                        return answer;
                    }
                }
            }
        };
        // While this is there, the client waits.
        let (_waiting, client) = ClientConnection::new();
        let (method, accept) = (parts.method.clone(), parts.headers.get(http::header::ACCEPT).cloned());
        let media_type = parts.headers.get(http::header::CONTENT_TYPE).cloned();
        let task = self.node.engine.tasks().start(request_task(&parts, route, &captured, &bytes));
        let session = entry::sent(api.session, &self.node, || Arc::new(parts)).in_task(task.handle());
        let api = Api { client, session, ..api };
        trail.may_be_refused_in_parts(api.session.refusals());
        let held = Some(held);
        let body = bytes;
        let request =
            Request { method, path, params, body, allowance, answer, filter, accept, media_type, held };
        let (audit, router) = (self.node.audit.clone(), Arc::clone(&self.router));
        let handled = handle(Call { api, request, captured }, router, position, (head, task));
        // Told in the task: a change runs to its end whether its client waits or not.
        let handled = async move {
            let result = handled.await;
            audit.done(&trail, &result);
            result
        };
        let task = tokio::spawn(handled.in_current_span());
        let joined = if route.reads { AbortOnDrop(task).join().await } else { task.await };
        joined.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => Err(panicked(panic.as_ref())),
            Err(_) => Err(Error::new(503, "task_cancelled_exception", "the request was cancelled")),
        })
    }
}

impl millrace_listen::Service for Service {
    type Body = AnswerBody;

    async fn call(&self, request: http::Request<Incoming>) -> http::Response<AnswerBody> {
        Self::call(self, request).await
    }
}

impl Service {
    /// Answers the probes, which tell nothing but a word.
    fn probed(&self, path: &str) -> Option<Response> {
        let (status, word) = match path {
            LIVENESS => (200, "live"),
            READINESS if self.node.engine.is_stopping() || *self.ending.borrow() => (503, "stopping"),
            READINESS => match self.node.engine.troubles().first() {
                None => (200, "ready"),
                Some(NodeFault::LogStopped) => (503, "log stopped"),
                Some(NodeFault::OwnershipLost) => (503, "object store taken over"),
                Some(NodeFault::ReadsFail) => (503, "object store failing"),
                Some(NodeFault::CatalogFails) => (503, "catalog failing"),
            },
            _ => return None,
        };
        Some(Response::json(status, serde_json::json!({ "status": word })))
    }

    /// Finds the route of a request and begins its action, before the body is read; the answer where that is not to be.
    async fn prepare(
        &self,
        parts: &http::request::Parts,
        uri: &str,
        style: &mut Style,
        trail: &mut AuditTrail,
    ) -> Result<RoutedRequest, Result<Response, Error>> {
        let (asker, path, params) = self.ask(parts, uri, style, trail).await.map_err(Err)?;
        match self.router.find(&parts.method, &path, &params) {
            Ok(found) => {
                trail.goes_to(found.spec, &found.captured);
                self.router.check_headers(found.spec.guarded, &parts.headers).map_err(Err)?;
                let api = self.node.api(asker, found.spec.action, trail.noted()).map_err(Err)?;
                Ok(RoutedRequest { api, found, path, params })
            }
            Err(allowed) => Err(self.answer_unmatched(&parts.method, &path, uri, &allowed)),
        }
    }

    /// Answers a request that has no route; `allowed` are the methods of its path.
    fn answer_unmatched(
        &self,
        method: &Method,
        path: &[String],
        uri: &str,
        allowed: &[Method],
    ) -> Result<Response, Error> {
        if allowed.is_empty() {
            return self.router.answer_unmatched(method, path, uri);
        }
        if *method != Method::OPTIONS {
            return Err(Error::method_not_allowed(uri, method, allowed));
        }
        let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(",");
        let mut response = Response::empty(200);
        response.headers.push(("allow", list));
        Ok(response)
    }

    /// Finds the route of a request of which nobody knows yet who sends it.
    fn route_of(&self, parts: &http::request::Parts) -> Option<&'static Spec> {
        let path = path::segments(parts.uri.path()).ok()?;
        self.router.find(&parts.method, &path, &Params::default()).ok().map(|found| found.spec)
    }

    /// Returns whether a request has a route that needs no credentials.
    fn is_open(&self, parts: &http::request::Parts) -> bool {
        self.route_of(parts).is_some_and(|route| route.open)
    }

    /// Returns whether a request changes nothing: some that `GET` do.
    fn is_safe(&self, parts: &http::request::Parts) -> bool {
        parts.method.is_safe() && self.route_of(parts).is_none_or(|route| route.reads)
    }

    /// Refuses what a page of somewhere else has a browser send.
    fn check_page(&self, parts: &http::request::Parts) -> Result<(), Error> {
        let (uri, headers) = (&parts.uri, &parts.headers);
        if self.node.accounts.is_insecure() {
            // Whoever is on this machine is trusted, the pages that its browsers show are not.
            let checked = check_host(uri, headers).and_then(|()| check_origin(headers));
            return checked.map_err(|foreign| Error::foreign(&foreign));
        }
        // A browser adds the credentials that it keeps to what any page has it send, but none of these, nor headers of its own choice.
        let is_meant = || match Credentials::read(headers) {
            Ok(Some(Credentials::ApiKey { .. } | Credentials::Token(_))) => true,
            _ => self.router.is_deliberate(headers),
        };
        match check_same_origin(uri, headers) {
            // Looked at for these alone: most requests are of no page of elsewhere.
            Err(foreign) if !is_meant() && !self.is_safe(parts) => Err(Error::of_other_page(&foreign)),
            _ => Ok(()),
        }
    }

    /// Finds out who asks, and how the answer is wanted.
    async fn ask(
        &self,
        parts: &http::request::Parts,
        uri: &str,
        style: &mut Style,
        trail: &mut AuditTrail,
    ) -> Result<(Requester, Vec<String>, Params), Error> {
        self.check_page(parts).inspect_err(|_| trail.set_anonymous(&parts.headers))?;
        let address = entry::address_of(parts);
        let asker = match self.node.injected(parts) {
            Some(principal) => Requester { principal, scheme: Some(Scheme::Basic), token: None, address },
            None if self.is_open(parts) => {
                self.node.check_certificate(parts)?;
                Requester::anonymous(address)
            }
            None => match self.node.authenticate(parts, uri, address).await {
                Ok(asker) => asker,
                Err(error) => {
                    trail.set_anonymous(&parts.headers);
                    return Err(error);
                }
            },
        };
        trail.came_from(&asker.principal);
        let path = path::segments(parts.uri.path())?;
        let mut params = Params::parse(parts.uri.query().unwrap_or_default())?;
        let cat = path.first().is_some_and(|segment| segment == "_cat");
        if cat
            && params.peek("format").is_none()
            && let Some(preferred) = content::preferred(&parts.headers)
        {
            let format = if preferred.format == content::Format::Yaml { "yaml" } else { "json" };
            params.set("format", format);
        }
        // Statements have formats of their own.
        let is_statement = matches!(path.as_slice(), [only] if only == "_sql");
        let is_plugin = path.get(1).is_some_and(|segment| segment == "_sql");
        // Explanations of pipelines are JSON or YAML, as other answers.
        let is_pipeline = matches!(path.as_slice(), [_, only] if only == "_ppl");
        let mut format = if is_statement || is_plugin || is_pipeline { params.take("format") } else { None };
        if is_statement {
            format = format.or_else(|| content::preferred_text(&parts.headers).map(str::to_owned));
            // A page of YAML is one of JSON, written otherwise.
            if let Some("yaml" | "application/yaml") = format.as_deref() {
                params.set("format", "yaml");
            }
        }
        // Lines of text are aligned where they are written.
        let pretty = params.peek("pretty").filter(|_| format.as_deref() == Some("raw")).map(str::to_owned);
        style.take(&mut params, cat)?;
        if let Some(format) = format {
            params.set("format", format);
        }
        if let Some(pretty) = pretty {
            params.set("pretty", pretty);
        }
        Ok((asker, path, params))
    }
}

/// Runs the handler; the request's share of the bytes in flight is held meanwhile, whether its client waits or not, unless the handler
/// gives its body back.
/// Boxed, so that handlers are compiled with this crate and not with each that serves a body of its own kind.
fn handle(
    mut call: Call,
    router: Arc<dyn Router>,
    position: usize,
    (head, task): (Reservation, TaskGuard),
) -> BoxFuture<'static, Result<Response, Error>> {
    Box::pin(async move {
        let handling = router.handle(position, &mut call);
        // A change runs to its end, unless its handler asks for its cancellation.
        let result = match task.spec().is_cancellable {
            true => task.run_or_wait(handling).await.unwrap_or_else(|cancelled| Err(cancelled.into())),
            false => task.scope(handling).await,
        };
        drop((head, call.request.held.take()));
        let mut response = result?;
        if StatusCode::from_u16(response.status).is_ok_and(|status| status.is_success()) {
            call.request.finish()?;
        }
        // The work goes on while the answer is sent.
        if let Body::Parts(chunks) = response.body {
            response.body = Body::Parts(chunks.in_task(task));
        }
        Ok(response)
    })
}

/// Takes the body from the request, or from the parameter `source` where there is none.
fn body_or_source(
    headers: &HeaderMap,
    bytes: &Bytes,
    params: &mut Params,
    allowance: &MemoryAllowance,
) -> Result<Bytes, Error> {
    if !bytes.is_empty() {
        return json::readable(bytes.clone(), content::of_request(headers)?.format, allowance);
    }
    let Some(source) = params.take("source") else { return Ok(Bytes::new()) };
    let kind = params.take("source_content_type").ok_or_else(|| {
        Error::illegal_argument("source and source_content_type parameters are required together")
    })?;
    let media = content::MediaType::parse(&kind)
        .ok_or_else(|| Error::illegal_argument(format!("Unknown value for source_content_type [{kind}]")))?;
    json::readable(Bytes::from(source), media.format, allowance)
}

pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic_text(panic);
    Error::concealed(500, "illegal_state_exception", &format_args!("handler panicked: {text}"))
}

/// A task that ends with the future that waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
