//! Reports by `grpc.health.v1.Health` whether the server takes calls: load balancers and probes have no credentials.
//!
//! It is told of the server as a whole, whose name is empty, and of the one service that there is, which are the same. Of any other name
//! nothing is known.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream};
use futures::{StreamExt, future};
use http::Response;
use http_body::Body as HttpBody;
use millrace_gateway::ListenerContext;
use prost::{Enumeration, Message};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Path of the methods.
pub(crate) const METHODS: &str = "/grpc.health.v1.Health/";
/// The service that there is.
const SERVICE: &str = "arrow.flight.protocol.FlightService";
/// Longest request.
const MAX_REQUEST: usize = 1 << 10;
/// Those who may watch at a time: each keeps a connection from being idle, without credentials.
const WATCHERS: usize = 64;

/// Time between two looks for who watches.
const LOOK: Duration = Duration::from_secs(1);

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Yes = 1,
    No = 2,
    ServiceUnknown = 3,
}

impl From<ServingStatus> for HealthCheckResponse {
    fn from(serving: ServingStatus) -> Self {
        Self { status: serving.into() }
    }
}

/// Tells it; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    listener: ListenerContext,
    watchers: Arc<Semaphore>,
}

impl Health {
    pub(crate) fn new(listener: &ListenerContext) -> Self {
        Self { listener: listener.clone(), watchers: Arc::new(Semaphore::new(WATCHERS)) }
    }

    /// Answers a method.
    pub(crate) async fn answer<B>(&self, method: &str, request: http::Request<B>) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let mut grpc = Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default())
            .max_decoding_message_size(MAX_REQUEST);
        let this = self.clone();
        match method {
            "Check" => {
                let check = tower::service_fn(move |request: Request<HealthCheckRequest>| {
                    future::ready(this.check(request.get_ref()).map(tonic::Response::new))
                });
                grpc.unary(check, request).await
            }
            "Watch" => {
                let watch = tower::service_fn(move |request: Request<HealthCheckRequest>| {
                    future::ready(this.watch(request.get_ref()).map(tonic::Response::new))
                });
                grpc.server_streaming(watch, request).await
            }
            _ => Status::unimplemented("the service has the methods Check and Watch").into_http(),
        }
    }

    fn check(&self, asked: &HealthCheckRequest) -> Result<HealthCheckResponse, Status> {
        match self.now(asked) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("there is no service of this name")),
            known => Ok(known.into()),
        }
    }

    /// Streams the present status, each change of it, and the end of it.
    fn watch(
        &self,
        asked: &HealthCheckRequest,
    ) -> Result<BoxStream<'static, Result<HealthCheckResponse, Status>>, Status> {
        let place = Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("there are [{WATCHERS}] watchers already: ask by Check"))
        })?;
        let (this, asked) = (self.clone(), asked.clone());
        Ok(changes(move || this.now(&asked), self.listener.ending.clone(), place, LOOK).boxed())
    }

    fn now(&self, asked: &HealthCheckRequest) -> ServingStatus {
        let engine = &self.listener.node.engine;
        let ready = !*self.listener.ending.borrow() && !engine.is_stopping() && engine.troubles().is_empty();
        match asked.service.as_str() {
            "" | SERVICE if !ready => ServingStatus::No,
            "" | SERVICE => ServingStatus::Yes,
            _ => ServingStatus::ServiceUnknown,
        }
    }
}

/// Streams the present status, each change of it with the next look, and the end, behind which there is nothing. `held` is
/// dropped with it.
fn changes(
    now: impl Fn() -> ServingStatus + Send + 'static,
    ending: watch::Receiver<bool>,
    held: impl Send + 'static,
    look: Duration,
) -> impl Stream<Item = Result<HealthCheckResponse, Status>> + Send {
    let first = now();
    let later = stream::unfold(Some((first, now, ending, held)), move |watched| async move {
        let (mut reported, now, mut ending, held) = watched?;
        loop {
            // Where nobody is there to tell it, it is over, too.
            let ends = timeout(look, ending.wait_for(|ending| *ending)).await.is_ok();
            match if ends && reported != ServingStatus::ServiceUnknown { ServingStatus::No } else { now() } {
                same if same == reported && !ends => {}
                same if same == reported => return None,
                changed => {
                    reported = changed;
                    return Some((Ok(reported.into()), (!ends).then_some((reported, now, ending, held))));
                }
            }
        }
    });
    stream::once(future::ready(Ok(first.into()))).chain(later)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn who_watches_is_told_of_each_change_and_of_the_end() {
        let (end, ending) = watch::channel(false);
        let ready = Arc::new(AtomicBool::new(false));
        let now = {
            let ready = Arc::clone(&ready);
            move || if ready.load(Ordering::Relaxed) { ServingStatus::Yes } else { ServingStatus::No }
        };
        let mut reported = std::pin::pin!(changes(now, ending, (), Duration::from_millis(1)));
        for serving in [ServingStatus::No, ServingStatus::Yes, ServingStatus::No, ServingStatus::Yes] {
            ready.store(serving == ServingStatus::Yes, Ordering::Relaxed);
            assert_eq!(reported.next().await.unwrap().unwrap(), serving.into());
        }
        end.send(true).unwrap();
        assert_eq!(reported.next().await.unwrap().unwrap(), ServingStatus::No.into());
        assert!(reported.next().await.is_none());
    }
}
