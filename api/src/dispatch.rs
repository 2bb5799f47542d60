//! The life of a request: probes, authentication, parameters, body, handler, answer.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Incoming;
use millrace_accounts::{Authenticated, Credentials, Scheme};
use millrace_listen::{
    Bodies, BodyError, Budget, ClientCertificate, Held, Peer, check_host, check_origin, head_bytes,
};
use millrace_storage::Priority;
use millrace_storage::access::Action;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::http::render::Style;
use crate::http::{AnswerBody, Params, Request, Response, Room, content, json, path};
use crate::pipelines::Management;
use crate::server::HttpConfig;
use crate::{Api, Asker, Node, routes, security};

/// Where a supervisor asks whether the process answers; needs no credentials.
const LIVENESS: &str = "/_health/live";
/// Where a load balancer asks whether requests are taken; needs no credentials. Listeners open when all that was
/// acknowledged before has been replayed, so that whoever is answered is answered by a server that has it.
const READINESS: &str = "/_health/ready";

/// Bytes that inflating takes beyond those of the two forms of a body.
const INFLATE_BYTES: u64 = 1 << 20;

/// Longest body of a request that needs no credentials, in bytes.
const OPEN_BYTES: u64 = 16 << 10;

/// Answers requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    node: Arc<Node>,
    bodies: Bodies,
    /// Those of requests that need no credentials.
    open_bodies: Bodies,
    /// Bytes in flight: bodies, and what handlers make of them.
    in_flight: Budget,
    routes: Routes,
    /// Whether the server ends after the requests under way.
    ending: Arc<AtomicBool>,
}

/// What is served.
#[derive(Clone, Debug)]
enum Routes {
    /// The data API.
    Data,
    /// The management of pipelines.
    Management(Arc<Management>),
}

impl Service {
    /// Makes a service with the bounds of a configuration.
    pub fn new(node: Arc<Node>, config: &HttpConfig) -> Self {
        let longest = config.max_content_length;
        let bodies = Bodies::new(longest, config.body_timeout);
        let open_bodies = Bodies::new(longest.min(OPEN_BYTES), config.body_timeout);
        // There is room for the longest body, compressed and not.
        let least = longest.saturating_mul(2).saturating_add(INFLATE_BYTES);
        let in_flight = Budget::new(config.max_in_flight_bytes.max(least));
        Self { node, bodies, open_bodies, in_flight, routes: Routes::Data, ending: Arc::default() }
    }

    /// What says, once it is set, that the server ends after the requests under way.
    pub(crate) fn ending(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ending)
    }

    /// Serves the management of pipelines in place of the data API, to the same users.
    pub(crate) fn with_management(self, management: Arc<Management>) -> Self {
        Self { routes: Routes::Management(management), ..self }
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
            return style.render(probed, self.node.engine.compute());
        }
        let answer = AssertUnwindSafe(self.answer(parts, body, &mut style)).catch_unwind().await;
        let response =
            answer.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))).unwrap_or_else(Error::into_response);
        self.render(style, response).await
    }

    /// Renders an answer, a large one on a compute thread.
    async fn render(&self, style: Style, response: Response) -> http::Response<AnswerBody> {
        let compute = self.node.engine.compute();
        if !style.works_on(&response.body) {
            return style.render(response, compute);
        }
        let (plain, threads) = (style.clone(), compute.clone());
        let rendered = compute.run(Priority::Foreground, move || Ok(style.render(response, &threads)));
        rendered.await.unwrap_or_else(|error| plain.render(Error::from(error).into_response(), compute))
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
        let _head = match self.in_flight.reserve(head_bytes(&parts.uri, &parts.headers)) {
            Ok(reserved) => reserved,
            Err(exceeded) => {
                self.bodies.discard(body).await;
                return Err(BodyError::Exceeded(exceeded).into());
            }
        };
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str()).to_owned();
        let (asker, path, mut params) = match self.prepare(&parts, &uri, style).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // A client that is still sending would see a reset connection in place of the answer.
                self.bodies.discard(body).await;
                return Err(error);
            }
        };
        let bodies = if asker.scheme.is_some() { &self.bodies } else { &self.open_bodies };
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
        let (room, filter) = (Room::new(&self.in_flight), style.filter());
        let bytes = body_or_source(&parts.headers, &held.bytes, &mut params, &room)?;
        let api = self.node.api(security::everything(asker, &path)?, Action::Own)?;
        let request = Request { method: parts.method, path, params, body: bytes, room, filter };
        let cancels = matches!(request.method, Method::GET | Method::HEAD)
            || request.path.last().is_some_and(|segment| {
                matches!(
                    segment.as_str(),
                    "_count" | "_field_caps" | "_mget" | "_msearch" | "_search" | "_sql" | "query"
                )
            });
        let task = tokio::spawn(handle(api, self.routes.clone(), request, uri, held));
        let joined = if cancels { AbortOnDrop(task).join().await } else { task.await };
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
            READINESS if self.node.engine.is_stopping() || self.ending.load(Ordering::Acquire) => {
                (503, "stopping")
            }
            READINESS => (200, "ready"),
            _ => return None,
        };
        Some(Response::json(status, serde_json::json!({ "status": word })))
    }

    /// Finds out who asks for what, and how the answer is wanted, before the body is read.
    async fn prepare(
        &self,
        parts: &http::request::Parts,
        uri: &str,
        style: &mut Style,
    ) -> Result<(Asker, Vec<String>, Params), Error> {
        if self.node.accounts.is_insecure() {
            // Whoever is on this machine is trusted, the pages that its browsers show are not.
            check_host(&parts.uri, &parts.headers)
                .and_then(|()| check_origin(&parts.headers))
                .map_err(|foreign| Error::foreign(&foreign))?;
        }
        // In-process callers are one client.
        let address = parts.extensions.get().map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(peer)| peer.ip());
        let asker = match self.routes {
            Routes::Data if security::is_open(&parts.method, parts.uri.path()) => security::anybody(address),
            _ => self.authenticate(parts, uri, address).await?,
        };
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

    /// Finds out who asks: by credentials, or where there are none by the certificate of the connection.
    async fn authenticate(
        &self,
        parts: &http::request::Parts,
        uri: &str,
        address: IpAddr,
    ) -> Result<Asker, Error> {
        let accounts = &self.node.accounts;
        let shown = Credentials::read(&parts.headers);
        let certificate = parts.extensions.get::<ClientCertificate>().filter(|_| shown == Ok(None));
        let by_certificate =
            certificate.and_then(|certificate| accounts.by_certificate(&certificate.subject, address));
        let Authenticated { principal, scheme } = match by_certificate {
            Some(authenticated) if !accounts.is_insecure() => authenticated,
            _ => accounts.authenticate(&parts.headers, uri, address).await?,
        };
        let token = shown.ok().flatten().filter(|_| scheme == Scheme::Token);
        Ok(Asker { principal, scheme: Some(scheme), token, address })
    }
}

/// Runs the handler; the body's share of the bytes in flight is held meanwhile.
/// Boxed, so that handlers are compiled with this crate and not with each that serves a body of its own kind.
fn handle(
    api: Api,
    routes: Routes,
    mut request: Request,
    uri: String,
    held: Held,
) -> BoxFuture<'static, Result<Response, Error>> {
    Box::pin(async move {
        let result = match routes {
            Routes::Data => routes::run(&api, &mut request, &uri).await,
            Routes::Management(management) => management.run(&api, &mut request, &uri).await,
        };
        drop(held);
        let response = result?;
        if StatusCode::from_u16(response.status).is_ok_and(|status| status.is_success()) {
            request.finish()?;
        }
        Ok(response)
    })
}

/// Takes the body from the request, or from the parameter `source` where there is none.
fn body_or_source(
    headers: &HeaderMap,
    bytes: &Bytes,
    params: &mut Params,
    room: &Room,
) -> Result<Bytes, Error> {
    if !bytes.is_empty() {
        return json::of_format(bytes.clone(), content::of_request(headers)?.format, room);
    }
    let Some(source) = params.take("source") else { return Ok(Bytes::new()) };
    let kind = params.take("source_content_type").ok_or_else(|| {
        Error::illegal_argument("source and source_content_type parameters are required together")
    })?;
    let media = content::MediaType::parse(&kind)
        .ok_or_else(|| Error::illegal_argument(format!("Unknown value for source_content_type [{kind}]")))?;
    json::of_format(Bytes::from(source), media.format, room)
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic");
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
