//! Health, as probes ask it.

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::support::Node;

#[derive(Clone, PartialEq, Eq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

async fn client(node: &Node) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.address)).unwrap();
    Grpc::new(endpoint.connect().await.unwrap())
}

async fn check(client: &mut Grpc<Channel>, method: &'static str, service: &str) -> Result<i32, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let told =
        client.unary(request, path, ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default()).await?;
    Ok(told.into_inner().status)
}

async fn watch(client: &mut Grpc<Channel>, service: &str) -> Result<Streaming<HealthCheckResponse>, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Watch");
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let told = client
        .server_streaming(request, path, ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default())
        .await?;
    Ok(told.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_ask_without_credentials() {
    let node = Node::start().await;
    let mut client = client(&node).await;
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    for service in ["", "arrow.flight.protocol.FlightService"] {
        assert_eq!(check(&mut client, CHECK, service).await.unwrap(), SERVING, "{service}");
    }
    let unknown = check(&mut client, CHECK, "secret").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let long = check(&mut client, CHECK, &"x".repeat(1 << 20)).await.unwrap_err();
    assert!(matches!(long.code(), Code::OutOfRange | Code::ResourceExhausted), "{long}");
    let none = check(&mut client, "/grpc.health.v1.Health/List", "").await.unwrap_err();
    assert_eq!(none.code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_is_told_the_end_and_does_not_hold_it_up() {
    let node = Node::start().await;
    let mut client = client(&node).await;
    let mut known = watch(&mut client, "").await.unwrap();
    let mut unknown = watch(&mut client, "other").await.unwrap();
    assert_eq!(known.message().await.unwrap().unwrap().status, SERVING);
    assert_eq!(unknown.message().await.unwrap().unwrap().status, SERVICE_UNKNOWN);
    let (stopped, told) = tokio::join!(node.stop(), known.message());
    let () = stopped;
    assert_eq!(told.unwrap().unwrap().status, NOT_SERVING);
    assert!(known.message().await.unwrap().is_none());
    assert!(unknown.message().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_bounded_and_make_room_when_they_go() {
    let node = Node::start().await;
    let mut watching = Vec::new();
    let refused = 'full: loop {
        // As many as a connection has room for.
        let mut client = client(&node).await;
        for _ in 0..16 {
            match watch(&mut client, "").await {
                Ok(mut told) => {
                    assert_eq!(told.message().await.unwrap().unwrap().status, SERVING);
                    watching.push(told);
                }
                Err(refused) => break 'full refused,
            }
        }
    };
    assert_eq!((refused.code(), watching.len()), (Code::ResourceExhausted, 64));
    let mut client = client(&node).await;
    assert_eq!(check(&mut client, "/grpc.health.v1.Health/Check", "").await.unwrap(), SERVING);
    watching.truncate(48);
    while watch(&mut client, "").await.is_err() {
        tokio::task::yield_now().await;
    }
}
