//! Logs of OpenTelemetry by OTLP over gRPC: `LogsService/Export`.
//!
//! The call is answered once its records are durable. Where they cannot be stored for now, the status is `UNAVAILABLE`, on which
//! clients send them again. Messages may be compressed; gRPC names the compression in a header of its own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_gateway::http::MemoryAllowance;
use millrace_gateway::otlp::{OtlpConfig, RETRYABLE, export_logs};
use millrace_gateway::{Entry, Error, ListenerContext};
use millrace_listen::{BodyError, BodyReader, Coding, Reservation, head_bytes, inflate};
use millrace_otlp::Encoding;
use millrace_runtime::Priority;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call_record::answer_recorded;
use crate::status;
use crate::truncation::UntruncatedBody;
use crate::wire::computed;

/// Path of the method.
pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
/// Name of the listener in the audit.
const LISTENER: &str = "otlp";
/// Longest message, compressed and not.
const MAX_MESSAGE: u64 = 64 << 20;
/// Longest silence within a message.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Compressions that messages may have.
const CODINGS: &str = "identity,gzip,deflate,zstd";

/// Takes the logs of OpenTelemetry over gRPC, for the users of the data API.
#[derive(Clone, Debug)]
pub struct LogsService {
    listener: ListenerContext,
    config: OtlpConfig,
    bodies: BodyReader,
}

impl LogsService {
    /// Makes documents by these settings.
    pub fn new(listener: ListenerContext, config: OtlpConfig) -> Self {
        Self { listener, config, bodies: BodyReader::new(MAX_MESSAGE, SILENCE) }
    }

    /// Answers a call.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let bytes = head_bytes(&head.uri, &head.headers);
        let _head =
            self.listener.budget.reserve(bytes).map_err(|full| Status::unavailable(full.to_string()))?;
        let coding = coding(&head.headers)?;
        let entry = self.listener.enter(head, LISTENER).await.map_err(status_of)?;
        let mut body = UntruncatedBody::new(body);
        let budget = self.listener.budget.empty();
        let message = self.bodies.read(&HeaderMap::new(), &mut body, budget).await.map_err(status_of_body)?;
        let (message, _held) = self.message(message.bytes, message.reservation, coding).await?;
        let session = entry.begin(Action::Bulk).map_err(status_of);
        let stored = async {
            let session: Session = session?;
            let allowance = MemoryAllowance::new(&self.listener.budget);
            let pipelines = self.listener.node.write_pipelines();
            let (config, encoding) = (&self.config, Encoding::Protobuf);
            let stored = export_logs(&session, config, pipelines, encoding, message, &allowance);
            stored.await.map_err(status_of)
        };
        // A client that goes away does not undo what was begun.
        let answer = noted(&entry, stored.await)?;
        Ok(unary(&answer.encode(Encoding::Protobuf)))
    }

    /// Takes the message out of a body, inflated.
    async fn message(
        &self,
        body: Bytes,
        held: Reservation,
        coding: Coding,
    ) -> Result<(Bytes, Reservation), Status> {
        let Some((&[compressed, a, b, c, d], content)) = body.split_first_chunk::<PREFIX>() else {
            return Err(Status::invalid_argument("the call has no message"));
        };
        if u32::from_be_bytes([a, b, c, d]) as usize != content.len() {
            return Err(Status::invalid_argument("the call has not one message"));
        }
        let content = body.slice(PREFIX..);
        match compressed {
            0 => Ok((content, held)),
            1 => {
                let mut inflated = self.listener.budget.empty();
                let compute = self.listener.node.engine.compute();
                let work = move || {
                    let bytes = inflate(coding, &content, MAX_MESSAGE, &mut inflated);
                    let bytes = bytes.map_err(|error| match error {
                        millrace_listen::InflateError::Exceeded(_) => Status::unavailable(error.to_string()),
                        _ => Status::invalid_argument(format!("cannot decompress the message: {error}")),
                    })?;
                    drop(held);
                    Ok((bytes, inflated))
                };
                computed(compute, Priority::Ingest, work).await
            }
            _ => Err(Status::invalid_argument("the first byte of a message is 0 or 1")),
        }
    }
}

impl millrace_listen::Service for LogsService {
    type Body = Body;

    async fn call(&self, request: Request<Incoming>) -> Response<Body> {
        answer_recorded(&self.listener, LISTENER, request, move |request| async move {
            if request.version() != Version::HTTP_2 {
                let mut response =
                    Response::new(Body::new("this listener speaks gRPC: OTLP for logs\n".to_owned()));
                *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                return Ok(response);
            }
            if request.uri().path() != EXPORT {
                return Err(Status::unimplemented(format!("this listener has the method {EXPORT}")));
            }
            self.answer(request).await
        })
        .await
    }
}

/// Tells the audit of a refusal.
fn noted<T>(entry: &Entry, result: Result<T, Status>) -> Result<T, Status> {
    result.inspect_err(|error| {
        if error.code() == Code::PermissionDenied {
            entry.refused(Some(Action::Bulk));
        }
    })
}

/// Turns an error into the status on which clients do as with that of HTTP.
fn status_of(error: Error) -> Status {
    match RETRYABLE.contains(&error.status()) {
        true => status::new(Code::Unavailable, error.reason()),
        false => status::from_error(error),
    }
}

fn status_of_body(error: BodyError) -> Status {
    match error {
        BodyError::Exceeded(full) => Status::unavailable(full.to_string()),
        BodyError::TooLong { .. } => Status::invalid_argument(error.to_string()),
        other => Status::aborted(other.to_string()),
    }
}

/// Reads how compressed messages of a call are compressed.
fn coding(headers: &HeaderMap) -> Result<Coding, Status> {
    let name = headers.get("grpc-encoding").map_or(Ok("identity"), HeaderValue::to_str).unwrap_or_default();
    Coding::parse(name).ok_or_else(|| {
        let mut status = Status::unimplemented(format!("grpc-encoding [{name}] is not one of [{CODINGS}]"));
        status
            .metadata_mut()
            .insert("grpc-accept-encoding", CODINGS.parse().expect("a list of names is ASCII"));
        status
    })
}

/// Makes the answer of a call with one message.
fn unary(message: &[u8]) -> Response<Body> {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    let trailers =
        HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let frames: [Result<Frame<Bytes>, Status>; 2] =
        [Ok(Frame::data(bytes.freeze())), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(CODINGS));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn compressions_are_named_by_a_header_of_their_own() {
        let named = |name: Option<&str>| {
            let headers = name.map(|name| (HeaderName::from_static("grpc-encoding"), name.parse().unwrap()));
            coding(&headers.into_iter().collect())
        };
        assert_eq!(named(None).unwrap(), Coding::Identity);
        assert_eq!(named(Some("gzip")).unwrap(), Coding::Gzip);
        let refused = named(Some("snappy")).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        assert_eq!(refused.metadata().get("grpc-accept-encoding").unwrap(), CODINGS);
    }

    #[tokio::test]
    async fn an_answer_has_one_message_and_a_status_behind_it() {
        let answer = unary(b"abc").into_body().collect().await.unwrap();
        assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(&answer.to_bytes()[..], b"\0\0\0\0\x03abc");
    }

    #[test]
    fn refusals_for_now_are_sent_again() {
        let status = |status: u16| status_of(Error::new(status, "x", "reason")).code();
        assert_eq!((status(429), status(503)), (Code::Unavailable, Code::Unavailable));
        assert_eq!((status(400), status(403)), (Code::InvalidArgument, Code::PermissionDenied));
    }
}
