//! Bodies that end where their clients say so, and nowhere else.
//!
//! A client may reset the stream of its request before it has said that there is no more. Where it gives `NO_ERROR` for a reason, `hyper`
//! takes that for the end, as it is where a *server* does not want to know more: what has come would pass for all there is, and be
//! made durable as that. The stream tells the two apart: by itself it has ended only where the client has said so
//! ([`is_end_stream`](Body::is_end_stream), of HTTP/2 what RFC 9113 calls `END_STREAM`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::{Code, Status};

/// The body of a request over HTTP/2, as `hyper` hands it on. One that is broken off ends with `ABORTED`.
#[derive(Debug)]
pub(crate) struct UntruncatedBody<B>(B);

impl<B> UntruncatedBody<B> {
    /// Wraps a body that says by itself when it has ended.
    pub(crate) fn new(body: B) -> Self {
        Self(body)
    }
}

fn broken_off() -> Status {
    Status::aborted("the request was broken off")
}

impl<B> Body for UntruncatedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => {
                let status = Status::from_error(Box::new(error));
                // Who reads the messages takes that one for the end of them.
                Some(Err(if status.code() == Code::Cancelled { broken_off() } else { status }))
            }
            None => (!self.0.is_end_stream()).then(|| Err(broken_off())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use h2::{Reason, SendStream};
    use http::{HeaderMap, Request, Response};
    use http_body_util::{BodyExt, Empty};
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::sync::mpsc;

    use super::*;

    /// Sends a part of a request to a server, waits until that has it, and does the rest. Returns what the server gets of the rest.
    async fn rest(send: impl FnOnce(&mut SendStream<Bytes>)) -> Result<Bytes, Status> {
        let (client, server) = tokio::io::duplex(64 << 10);
        let (begin, mut begun) = mpsc::unbounded_channel();
        let (end, mut ended) = mpsc::unbounded_channel();
        let serve = service_fn(move |request: Request<Incoming>| {
            let (begin, end) = (begin.clone(), end.clone());
            // By itself: what answers a request is dropped where the client resets it.
            tokio::spawn(async move {
                let mut body = UntruncatedBody::new(request.into_body());
                begin.send(body.frame().await.unwrap().unwrap()).unwrap();
                end.send(body.collect().await.map(|rest| rest.to_bytes())).unwrap();
            });
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
        });
        let builder = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(server), serve));
        let (client, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = Request::post("http://localhost/").body(()).unwrap();
        let (_response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        begun.recv().await.unwrap();
        send(&mut stream);
        ended.recv().await.unwrap()
    }

    #[tokio::test]
    async fn a_body_ends_where_its_client_says_so() {
        let said = rest(|stream| stream.send_data(Bytes::from_static(b"last"), true).unwrap()).await;
        assert_eq!(said.unwrap(), "last");
        let trailers = HeaderMap::from_iter([(http::header::EXPIRES, "0".parse().unwrap())]);
        let said = rest(|stream| stream.send_trailers(trailers).unwrap()).await;
        assert_eq!(said.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_that_is_reset_for_whatever_reason_has_not_ended() {
        for reason in [Reason::NO_ERROR, Reason::CANCEL] {
            let broken = rest(|stream| stream.send_reset(reason)).await;
            assert_eq!(broken.unwrap_err().code(), Code::Aborted, "{reason:?}");
        }
    }
}
