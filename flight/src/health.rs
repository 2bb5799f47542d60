//! Whether the server takes calls, as `grpc.health.v1.Health` tells it to load balancers and probes, which have no credentials.
//!
//! It is told of the server as a whole, whose name is empty, and of the one service that there is, which are the same. Of any other name
//! nothing is known.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use http::Response;
use http_body::Body as HttpBody;
use millrace_api::Beside;
use prost::{Enumeration, Message};
use tokio::sync::Semaphore;
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

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Asked {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Told {
    #[prost(enumeration = "Serving", tag = "1")]
    status: i32,
}

/// `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum Serving {
    Unknown = 0,
    Yes = 1,
    No = 2,
    ServiceUnknown = 3,
}

impl From<Serving> for Told {
    fn from(serving: Serving) -> Self {
        Self { status: serving.into() }
    }
}

/// Tells it; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    beside: Beside,
    watchers: Arc<Semaphore>,
}

impl Health {
    pub(crate) fn new(beside: &Beside) -> Self {
        Self { beside: beside.clone(), watchers: Arc::new(Semaphore::new(WATCHERS)) }
    }

    /// Answers a method.
    pub(crate) async fn answer<B>(&self, method: &str, request: http::Request<B>) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let mut grpc = Grpc::new(ProstCodec::<Told, Asked>::default()).max_decoding_message_size(MAX_REQUEST);
        let this = self.clone();
        match method {
            "Check" => {
                let check = tower::service_fn(move |request: Request<Asked>| {
                    future::ready(this.check(request.get_ref()).map(tonic::Response::new))
                });
                grpc.unary(check, request).await
            }
            "Watch" => {
                let watch = tower::service_fn(move |request: Request<Asked>| {
                    future::ready(this.watch(request.get_ref()).map(tonic::Response::new))
                });
                grpc.server_streaming(watch, request).await
            }
            _ => Status::unimplemented("the service has the methods Check and Watch").into_http(),
        }
    }

    fn check(&self, asked: &Asked) -> Result<Told, Status> {
        match self.now(asked) {
            Serving::ServiceUnknown => Err(Status::not_found("there is no service of this name")),
            known => Ok(known.into()),
        }
    }

    /// Tells what is so now, and the end of it.
    fn watch(&self, asked: &Asked) -> Result<BoxStream<'static, Result<Told, Status>>, Status> {
        let place = Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("there are [{WATCHERS}] watchers already: ask by Check"))
        })?;
        let first = self.now(asked);
        let mut ending = self.beside.ending.clone();
        let last = async move {
            // Where nobody is there to tell it, it is over, too.
            let _ = ending.wait_for(|ending| *ending).await;
            drop(place);
            match first {
                Serving::Yes => Some(Ok(Serving::No.into())),
                _ => None,
            }
        };
        let last = stream::once(last).filter_map(future::ready);
        Ok(stream::once(future::ready(Ok(first.into()))).chain(last).boxed())
    }

    fn now(&self, asked: &Asked) -> Serving {
        let ends = *self.beside.ending.borrow() || self.beside.node.engine.is_stopping();
        match asked.service.as_str() {
            "" | SERVICE if ends => Serving::No,
            "" | SERVICE => Serving::Yes,
            _ => Serving::ServiceUnknown,
        }
    }
}
