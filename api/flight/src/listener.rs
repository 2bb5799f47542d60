//! Serves a listener: request heads are checked here, [`Service`](crate::service::Service) answers methods.
//!
//! Nobody gets further without credentials but for a handshake, which is for showing them: it logs in here, too, because all that it
//! needs is in the head; and but for what [`health`](crate::health) tells.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use millrace_gateway::ListenerContext;
use millrace_gateway::otlp::OtlpConfig;
use millrace_listen::head_bytes;
use millrace_query::PATIENCE;
use tonic::Status;
use tonic::body::Body;
use tower::Service as _;

use crate::call::LoggedIn;
use crate::call_record::answer_recorded;
use crate::health::{self, Health};
use crate::limits::{MAX_SENT, MAX_TAKEN};
use crate::logs::{self, LogsService};
use crate::service::Service;
use crate::status;
use crate::tickets::User;
use crate::truncation::UntruncatedBody;
use crate::upload::{Length, Shares, Upload};

/// Path of the methods.
const METHODS: &str = "/arrow.flight.protocol.FlightService/";
/// The one that is for showing credentials.
const HANDSHAKE: &str = "Handshake";
/// Those whose requests are as long as their clients want.
const UPLOADS: [&str; 2] = ["DoPut", "DoExchange"];
/// Name of the listener in the audit.
const LISTENER: &str = "flight";
/// Token that a login answers where nobody has to log in: clients insist on one.
const NO_TOKEN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Arrow Flight SQL over the store of a node, for its users.
#[derive(Clone, Debug)]
pub struct Flight {
    listener: ListenerContext,
    service: FlightServiceServer<Service>,
    health: Health,
    logs: LogsService,
    shares: Arc<Shares>,
}

impl Flight {
    /// Serves what is shared with the data API. Documents of OpenTelemetry's logs are made by the default settings.
    pub fn new(listener: ListenerContext) -> Self {
        Self::with_otlp(listener, OtlpConfig::default())
    }

    /// Serves what is shared with the data API, and makes documents of OpenTelemetry's logs by these settings.
    pub fn with_otlp(listener: ListenerContext, otlp: OtlpConfig) -> Self {
        let service = FlightServiceServer::new(Service::new(listener.clone()))
            .max_decoding_message_size(MAX_TAKEN)
            .max_encoding_message_size(MAX_SENT);
        let shares = Arc::new(Shares::new(&listener.budget));
        let health = Health::new(&listener);
        let logs = LogsService::new(listener.clone(), otlp);
        Self { listener, service, health, logs, shares }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        if request.uri().path() == logs::EXPORT {
            return self.logs.answer(request).await;
        }
        let (mut head, body) = request.into_parts();
        let head_bytes = head_bytes(&head.uri, &head.headers);
        let _head = self.shares.begin(None).try_reserve(head_bytes)?;
        if let Some(method) = head.uri.path().strip_prefix(health::METHODS) {
            let method = method.to_owned();
            let body = Upload::new(UntruncatedBody::new(body), Length::Open, self.shares.begin(None));
            return Ok(self.health.answer(&method, Request::from_parts(head, body)).await);
        }
        let method = head.uri.path().strip_prefix(METHODS).unwrap_or_default().to_owned();
        let received = if method == HANDSHAKE {
            let token = self.listener.log_in(&head, LISTENER).await.map_err(status::from_error)?;
            let token =
                token.or_else(|| self.listener.node.accounts.is_insecure().then(|| NO_TOKEN.to_owned()));
            head.extensions.insert(LoggedIn(token));
            self.shares.begin(None)
        } else {
            let entry = self.listener.enter(head.clone(), LISTENER).await.map_err(status::from_error)?;
            let received = self.shares.begin(Some(User::new(entry.principal())));
            head.extensions.insert(Arc::new(entry));
            received
        };
        let length = match method.as_str() {
            HANDSHAKE => Length::Open,
            method if UPLOADS.contains(&method) => Length::Batches,
            _ => Length::Message,
        };
        head.extensions.insert(received.clone());
        let body = Upload::new(UntruncatedBody::new(body), length, received);
        let Ok(response) = self.service.clone().call(Request::from_parts(head, body)).await;
        Ok(response)
    }
}

impl millrace_listen::Service for Flight {
    type Body = Body;

    async fn call(&self, request: Request<Incoming>) -> Response<Body> {
        answer_recorded(&self.listener, LISTENER, request, move |request| async move {
            if request.version() == Version::HTTP_2 && is_grpc(request.headers()) {
                return self.answer(request).await;
            }
            let mut response =
                Response::new(Body::new("this listener speaks gRPC: Arrow Flight SQL\n".to_owned()));
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Ok(response)
        })
        .await
    }

    /// All calls of a client share a connection: one answer that waits for its reader is not to end the others.
    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// Returns whether a request is one of gRPC. Browsers do not send this for a page of elsewhere unless they are told that they
/// may.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    matches!(kind.strip_prefix("application/grpc"), Some(rest) if rest.is_empty() || rest.starts_with(['+', ';']))
}
