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
use millrace_catalog::access::Principal;
use millrace_engine::NodeFault;
use millrace_listen::{
    BodyError, BodyReader, Budget, Reservation, Reserve, check_host, check_origin, check_same_origin,
    head_bytes,
};
use millrace_runtime::{Priority, panic_text};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::audit::AuditTrail;
use crate::client::Client;
use crate::console::saved_objects::Store;
use crate::error::Error;
use crate::http::render::Style;
use crate::http::{AnswerBody, MemoryAllowance, Params, Request, Response, content, json, path};
use crate::pipelines::{self, Management};
use crate::route::{self, Call, Handler, PathParams, RouteMatch, Spec};
use crate::server::HttpConfig;
use crate::{Api, ListenerContext, Node, Requester, console, entry, security};

/// Where a supervisor asks whether the process answers; needs no credentials.
const LIVENESS: &str = "/_health/live";
/// Where a load balancer asks whether requests are taken; needs no credentials. Listeners open when all that was
/// acknowledged before has been replayed, so that whoever is answered is answered by a server that has it.
const READINESS: &str = "/_health/ready";

/// Bytes that inflating takes beyond those of the two forms of a body.
const INFLATE_BYTES: u64 = 1 << 20;

/// Bytes that a request counts at least: its task, what it captured, the answer's head. Many small ones are much, too.
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
    routes: Routes,
    /// Whether the server ends after the requests under way.
    ending: watch::Sender<bool>,
}

/// What is served.
#[derive(Clone, Debug)]
enum Routes {
    /// The data API.
    Data,
    /// The management of pipelines.
    Management(Arc<Management>),
    /// The console.
    Console(Store),
}

/// What answers a request, with what it serves.
#[derive(Debug)]
enum Responder {
    Data(Handler<()>),
    Management(Handler<Management>, Arc<Management>),
    Console(Handler<Store>, Store),
}

/// A request before its body is read: it has a route, and its principal may take it.
struct RoutedRequest {
    api: Api,
    route: &'static Spec,
    answering: Responder,
    captured: PathParams,
    path: Vec<String>,
    params: Params,
}

impl Routes {
    /// Finds the route of a request and what answers it.
    ///
    /// # Errors
    /// The methods of the path.
    fn find(
        &self,
        method: &Method,
        path: &[String],
        params: &Params,
    ) -> Result<(&'static Spec, Responder, PathParams), Vec<Method>> {
        Ok(match self {
            Self::Data => {
                let RouteMatch { spec, handler, captured } = route::data().find(method, path, params)?;
                (spec, Responder::Data(handler), captured)
            }
            Self::Management(management) => {
                let RouteMatch { spec, handler, captured } =
                    route::management().find(method, path, params)?;
                (spec, Responder::Management(handler, Arc::clone(management)), captured)
            }
            Self::Console(objects) => {
                let RouteMatch { spec, handler, captured } = route::console().find(method, path, params)?;
                (spec, Responder::Console(handler, objects.clone()), captured)
            }
        })
    }

    /// Names the listener for the audit.
    fn listener(&self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Management(_) => "management",
            Self::Console(_) => "console",
        }
    }

    /// Answers a request that has no route. `uri` is the request's own spelling.
    fn missed(
        &self,
        method: &Method,
        path: &[String],
        uri: &str,
        allowed: &[Method],
    ) -> Result<Response, Error> {
        match (self, path) {
            (_, _) if !allowed.is_empty() && *method == Method::OPTIONS => {
                let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(",");
                let mut response = Response::empty(200);
                response.headers.push(("allow", list));
                Ok(response)
            }
            (_, _) if !allowed.is_empty() => Err(Error::method_not_allowed(uri, method, allowed)),
            (Self::Management(_), _) => Ok(pipelines::not_found(uri, "Not Found")),
            // Who creates or deletes what one segment names means an index.
            (Self::Data, [name]) if matches!(*method, Method::PUT | Method::DELETE) => {
                let reason = format!("Invalid index name [{name}], must not start with '_', '-', or '+'");
                Err(Error::invalid_index_name(name, reason))
            }
            (Self::Data, _) => Err(Error::no_handler(uri, method)),
            (Self::Console(_), _) => {
                Err(Error::resource_not_found(format!("there is no [{method}] of [{uri}] here")))
            }
        }
    }
}

impl Service {
    /// Makes a service with the bounds of a configuration.
    pub fn new(node: Arc<Node>, config: &HttpConfig) -> Self {
        let longest = config.max_content_length;
        let bodies = BodyReader::new(longest, config.body_timeout);
        let open_bodies = BodyReader::new(longest.min(OPEN_BYTES), config.body_timeout);
        // There is room for the longest body, compressed and not.
        let least = longest.saturating_mul(2).saturating_add(INFLATE_BYTES);
        let in_flight = Budget::new(config.max_in_flight_bytes.max(least));
        let answers = Budget::new(config.max_answer_bytes);
        let acknowledgements = Budget::new(config.max_answer_bytes);
        let (routes, ending) = (Routes::Data, watch::Sender::default());
        Self { node, bodies, open_bodies, in_flight, answers, acknowledgements, routes, ending }
    }

    /// What says, once it is set, that the server ends after the requests under way.
    pub(crate) fn ending(&self) -> watch::Sender<bool> {
        self.ending.clone()
    }

    /// Returns what listeners of other protocols share with this one.
    pub(crate) fn beside(&self) -> ListenerContext {
        let ending = self.ending.subscribe();
        ListenerContext { node: Arc::clone(&self.node), room: self.in_flight.clone(), ending }
    }

    /// Serves the management of pipelines in place of the data API, to the same users.
    pub(crate) fn with_management(self, management: Arc<Management>) -> Self {
        Self { routes: Routes::Management(management), ..self }
    }

    /// Serves the console in place of the data API, to the same users.
    #[must_use]
    pub fn with_console(self) -> Self {
        let routes = Routes::Console(self.node.objects());
        Self { routes, ..self }
    }

    /// Answers one request. Writes run to their end even where this future is dropped; everything else
    /// ends with it.
    pub async fn call<B>(&self, request: http::Request<B>) -> http::Response<AnswerBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let mut style = Style::from_headers(&parts.headers, parts.method == Method::HEAD);
        if let Some(probed) = self.probed(parts.uri.path()) {
            return self.render(style, probed).await;
        }
        let answer = AssertUnwindSafe(self.answer(parts, body, &mut style)).catch_unwind().await;
        let response = answer.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let response = response.unwrap_or_else(|error| match self.routes {
            Routes::Console(_) => console::into_response(error),
            Routes::Data | Routes::Management(_) => error.into_response(),
        });
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
        let mut trail = AuditTrail::new(&parts, self.routes.listener());
        let RoutedRequest { api, route, answering, captured, path, mut params } =
            match self.prepare(&parts, &uri, style, &mut trail).await {
                Ok(routed) => routed,
                Err(answer) => {
                    self.node.audit.done(&trail, &answer);
                    // A client that is still sending would see a reset connection in place of the answer.
                    self.bodies.discard(body).await;
                    return answer;
                }
            };
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
        let (room, answer, filter) = (
            MemoryAllowance::beside_own(&self.in_flight, own),
            MemoryAllowance::of_answer(if route.reads { &self.answers } else { &self.acknowledgements }),
            style.filter(),
        );
        // A page of elsewhere can have a browser send a change without a body, but not one with a body of this kind.
        let bytes = match route.reads || !held.bytes.is_empty() {
            true => body_or_source(&parts.headers, &held.bytes, &mut params, &room)?,
            false => Bytes::new(),
        };
        // A body may take its time: a change is made by who may make it now.
        let api = match route.reads || route.open || injected(&parts).is_some() {
            true => api,
            false => {
                let again = self.node.authenticate(&parts, &uri, api.address).await;
                match &again {
                    // A certificate may have become another's, and roles others.
                    Ok(asker) => trail.came_from(&asker.principal),
                    Err(_) => trail.came_from_nobody(&parts.headers),
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
        let (_waiting, client) = Client::new();
        let method = parts.method.clone();
        let session = entry::sent(api.session, &self.node, || Arc::new(parts));
        let api = Api { client, session, ..api };
        trail.may_be_refused_in_parts(api.session.refusals());
        let request = Request { method, path, params, body: bytes, room, answer, filter, held: Some(held) };
        let (audit, handled) =
            (self.node.audit.clone(), handle(Call { api, request, captured }, answering, head));
        // Told in the task: a change runs to its end whether its client waits or not.
        let task = tokio::spawn(async move {
            let result = handled.await;
            audit.done(&trail, &result);
            result
        });
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
        match self.routes.find(&parts.method, &path, &params) {
            Ok((route, answering, captured)) => {
                trail.goes_to(route, &captured);
                if matches!(self.routes, Routes::Console(_)) {
                    console::check_headers(route.guarded, &parts.headers).map_err(Err)?;
                }
                let api = self.node.api(asker, route.action, trail.noted()).map_err(Err)?;
                Ok(RoutedRequest { api, route, answering, captured, path, params })
            }
            Err(allowed) => Err(self.routes.missed(&parts.method, &path, uri, &allowed)),
        }
    }

    /// Finds the route of a request of which nobody knows yet who sends it.
    fn route_of(&self, parts: &http::request::Parts) -> Option<&'static Spec> {
        let path = path::segments(parts.uri.path()).ok()?;
        self.routes.find(&parts.method, &path, &Params::default()).ok().map(|(route, ..)| route)
    }

    /// Whether a request has a route that needs no credentials.
    fn is_open(&self, parts: &http::request::Parts) -> bool {
        self.route_of(parts).is_some_and(|route| route.open)
    }

    /// Whether a request changes nothing: some that `GET` do.
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
            _ => matches!(self.routes, Routes::Console(_)) && console::check_headers(true, headers).is_ok(),
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
        self.check_page(parts).inspect_err(|_| trail.came_from_nobody(&parts.headers))?;
        let address = entry::address_of(parts);
        let asker = match injected(parts) {
            Some(principal) => Requester { principal, scheme: Some(Scheme::Basic), token: None, address },
            None if self.is_open(parts) => {
                self.node.check_certificate(parts)?;
                security::anybody(address)
            }
            None => match self.node.authenticate(parts, uri, address).await {
                Ok(asker) => asker,
                Err(error) => {
                    trail.came_from_nobody(&parts.headers);
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
        let sql = path.get(1).is_some_and(|segment| segment == "_sql");
        let format = if sql { params.take("format") } else { None };
        style.take(&mut params, cat)?;
        if let Some(format) = format {
            params.set("format", format);
        }
        Ok((asker, path, params))
    }
}

/// Runs the handler; the request's share of the bytes in flight is held meanwhile, whether its client waits or not, unless the handler
/// gives its body back.
/// Boxed, so that handlers are compiled with this crate and not with each that serves a body of its own kind.
fn handle(
    mut call: Call,
    answering: Responder,
    head: Reservation,
) -> BoxFuture<'static, Result<Response, Error>> {
    Box::pin(async move {
        let result = match answering {
            Responder::Data(handler) => handler(&(), &mut call).await,
            Responder::Management(handler, management) => handler(&management, &mut call).await,
            Responder::Console(handler, objects) => handler(&objects, &mut call).await,
        };
        drop((head, call.request.held.take()));
        let response = result?;
        if StatusCode::from_u16(response.status).is_ok_and(|status| status.is_success()) {
            call.request.finish()?;
        }
        Ok(response)
    })
}

/// Returns whom a test has a request come from.
#[cfg(test)]
pub(crate) fn injected(parts: &http::request::Parts) -> Option<Principal> {
    parts.extensions.get().cloned()
}

/// Requests come from whom their credentials name.
#[cfg(not(test))]
pub(crate) fn injected(_: &http::request::Parts) -> Option<Principal> {
    None
}

/// Takes the body from the request, or from the parameter `source` where there is none.
fn body_or_source(
    headers: &HeaderMap,
    bytes: &Bytes,
    params: &mut Params,
    room: &MemoryAllowance,
) -> Result<Bytes, Error> {
    if !bytes.is_empty() {
        return json::readable(bytes.clone(), content::of_request(headers)?.format, room);
    }
    let Some(source) = params.take("source") else { return Ok(Bytes::new()) };
    let kind = params.take("source_content_type").ok_or_else(|| {
        Error::illegal_argument("source and source_content_type parameters are required together")
    })?;
    let media = content::MediaType::parse(&kind)
        .ok_or_else(|| Error::illegal_argument(format!("Unknown value for source_content_type [{kind}]")))?;
    json::readable(Bytes::from(source), media.format, room)
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
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
