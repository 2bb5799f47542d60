//! Records of gRPC calls: their durations by method and status, and their lines of the access log.
//!
//! The status of a call is in the trailers of its answer, so [`RecordedBody`] has the record until these are sent. A client that goes
//! away before drops the body, and with it the record. Statuses are those that HTTP has for the same reasons.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use millrace_gateway::{ListenerContext, RequestRecord};
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::Instrument as _;

use crate::status;

/// Trailer with the status of a call.
const GRPC_STATUS: &str = "grpc-status";
/// Paths of the methods of all gRPC listeners. Other paths have no route of their own: clients choose them.
const METHODS: [&str; 13] = [
    "/arrow.flight.protocol.FlightService/Handshake",
    "/arrow.flight.protocol.FlightService/ListFlights",
    "/arrow.flight.protocol.FlightService/GetFlightInfo",
    "/arrow.flight.protocol.FlightService/PollFlightInfo",
    "/arrow.flight.protocol.FlightService/GetSchema",
    "/arrow.flight.protocol.FlightService/DoGet",
    "/arrow.flight.protocol.FlightService/DoPut",
    "/arrow.flight.protocol.FlightService/DoExchange",
    "/arrow.flight.protocol.FlightService/DoAction",
    "/arrow.flight.protocol.FlightService/ListActions",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    crate::logs::EXPORT,
];

/// Answers a call within its span, and records it once its answer has ended.
pub(crate) async fn answer_recorded<B, F>(
    listener: &ListenerContext,
    name: &'static str,
    request: Request<B>,
    answer: impl FnOnce(Request<B>) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<Response<Body>, Status>>,
{
    let (head, body) = request.into_parts();
    let mut record = listener.begin_record(&head, name);
    let span = listener.request_span(&head, name);
    if let Some(method) = METHODS.into_iter().find(|method| *method == head.uri.path()) {
        record.set_route(method);
        span.record("otel.name", method).record("route", method);
    }
    let answer = answer(Request::from_parts(head, body)).instrument(span);
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    let answered = answered.unwrap_or_else(|_| Err(status::internal(&"a gRPC method panicked")));
    let response = answered.unwrap_or_else(Status::into_http);
    match status_of(response.headers()) {
        // An answer without messages has its status here.
        Some(status) => {
            record.set_status(status);
            response
        }
        None if !response.status().is_success() => {
            record.set_status(response.status().as_u16());
            response
        }
        None => response.map(|body| Body::new(RecordedBody { body, record: Some(record) })),
    }
}

/// Reads the status of a call, as HTTP has it.
fn status_of(headers: &HeaderMap) -> Option<u16> {
    let code = headers.get(GRPC_STATUS)?;
    Some(status::http_status(Code::from_bytes(code.as_bytes())))
}

/// The body of an answer with the record of its call.
#[derive(Debug)]
struct RecordedBody<B> {
    body: B,
    /// `None` once the call has ended.
    record: Option<RequestRecord>,
}

impl<B> RecordedBody<B> {
    fn end(&mut self, status: u16) {
        if let Some(mut record) = self.record.take() {
            record.set_status(status);
        }
    }
}

impl<B: HttpBody<Data = Bytes, Error = Status> + Unpin> HttpBody for RecordedBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(status_of) {
                    self.end(status);
                }
            }
            Some(Err(error)) => self.end(status::http_status(error.code())),
            // An answer without a status is one that its client cannot read.
            None => self.end(status::http_status(Code::Unknown)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
