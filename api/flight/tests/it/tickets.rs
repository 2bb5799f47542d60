//! Tickets that were changed, made up, or are somebody else's.

use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use arrow_flight::{Action, Criteria, FlightEndpoint, FlightInfo, RenewFlightEndpointRequest, Ticket};
use bytes::Bytes;
use futures::TryStreamExt;
use prost::Message;
use rand::RngExt;
use serde_json::json;
use tonic::{Code, Request};

use crate::support::{Client, Node, code, fetch, lines, ticket};

#[tokio::test(flavor = "multi_thread")]
async fn no_ticket_that_was_changed_is_taken() {
    let node = Node::start().await;
    node.index("logs", json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    let mut client = node.admin().await;
    let info = client.execute("SELECT n FROM logs".to_owned(), None).await.unwrap();
    let sealed = ticket(&info).ticket;
    // Many more are tried where they are opened.
    for _ in 0..500 {
        let mut changed = sealed.to_vec();
        match rand::rng().random_range(0..4) {
            0 => {
                let place = rand::rng().random_range(0..changed.len());
                changed[place] ^= rand::rng().random_range(1..=255_u8);
            }
            1 => changed.truncate(rand::rng().random_range(0..changed.len())),
            2 => changed.extend(rand::random::<[u8; 4]>()),
            _ => changed.insert(rand::rng().random_range(0..changed.len()), rand::random()),
        }
        if changed == sealed {
            continue;
        }
        let error = client.do_get(Ticket::new(changed.clone())).await.map(drop);
        assert_eq!(code(error), Code::InvalidArgument, "{changed:?}");
    }
    for made_up in ["", "SELECT 1", "\u{0}"] {
        let error = client.do_get(Ticket::new(made_up)).await.map(drop);
        assert_eq!(code(error), Code::InvalidArgument);
    }
    let statement_handle = Bytes::from_static(b"SELECT n FROM logs");
    let made_up = TicketStatementQuery { statement_handle }.as_any().encode_to_vec();
    assert_eq!(code(client.do_get(Ticket::new(made_up)).await.map(drop)), Code::InvalidArgument);
    assert_eq!(lines(&fetch(&mut client, &info).await.unwrap()), ["|1|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_their_owners_and_can_be_renewed_by_them() {
    let node = Node::start().await;
    node.index("logs", json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    for name in ["ann", "bob"] {
        node.user(name, json!([{ "names": ["logs"], "privileges": ["read"] }])).await;
    }
    let (mut ann, mut bob) = (node.client("ann", "password").await, node.client("bob", "password").await);
    let mut info = ann.execute("SELECT n FROM logs".to_owned(), None).await.unwrap();
    assert_eq!(code(fetch(&mut bob, &info).await), Code::InvalidArgument);
    let renew = || {
        let request = RenewFlightEndpointRequest { endpoint: Some(info.endpoint[0].clone()) };
        Action::new("RenewFlightEndpoint", request.encode_to_vec())
    };
    assert_eq!(code(bob.do_action(renew()).await), Code::InvalidArgument);
    let renewed = ann.do_action(renew()).await.unwrap().message().await.unwrap().unwrap();
    let renewed = FlightEndpoint::decode(renewed.body).unwrap();
    let seconds = |endpoint: &FlightEndpoint| endpoint.expiration_time.as_ref().unwrap().seconds;
    assert!(seconds(&renewed) >= seconds(&info.endpoint[0]));
    let old = info.clone();
    info.endpoint[0] = renewed;
    assert_eq!(lines(&fetch(&mut ann, &info).await.unwrap()), ["|1|"]);
    assert_eq!(lines(&fetch(&mut ann, &old).await.unwrap()), ["|1|"]);
    // Listings have tickets of the same kind.
    let catalogs = ann.get_catalogs().await.unwrap();
    assert!(Any::decode(ticket(&catalogs).ticket).unwrap().is::<TicketStatementQuery>());
    assert_eq!(code(fetch(&mut bob, &catalogs).await), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_is_listed_and_fetched_no_more() {
    let node = Node::start().await;
    for name in ["gone", "logs"] {
        node.index(name, json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    }
    let mut client = node.admin().await;
    let listed = async |client: &Client| {
        let mut request = Request::new(Criteria::default());
        let token = format!("Bearer {}", client.token().unwrap());
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        let listed = client.inner().clone().list_flights(request).await.unwrap().into_inner();
        listed.try_collect::<Vec<FlightInfo>>().await.unwrap()
    };
    let names = |infos: &[FlightInfo]| -> Vec<String> {
        infos.iter().flat_map(|info| info.flight_descriptor.clone().unwrap().path).collect()
    };
    let before = listed(&client).await;
    assert_eq!(names(&before), ["gone", "logs"]);
    let mut prepared = client.prepare("SELECT n FROM gone".to_owned(), None).await.unwrap();
    let fetched = prepared.execute().await.unwrap();
    assert_eq!(lines(&fetch(&mut client, &fetched).await.unwrap()), ["|1|"]);

    node.delete("gone").await;
    let after = listed(&client).await;
    assert_eq!(names(&after), ["logs"]);
    // Tickets and handles of before are no way around that.
    for info in [&before[0], &fetched] {
        assert_eq!(code(fetch(&mut client, info).await), Code::NotFound);
    }
    assert_eq!(code(prepared.execute().await), Code::NotFound);
    assert_eq!(lines(&fetch(&mut client, &before[1]).await.unwrap()), ["|1|"]);
    // One of the same name with other columns is another index.
    node.index("gone", json!({ "n": { "type": "keyword" } }), &[json!({ "n": "x" })]).await;
    for info in [&before[0], &fetched] {
        assert_eq!(code(fetch(&mut client, info).await), Code::FailedPrecondition);
    }
    let again = prepared.execute().await.unwrap();
    assert_eq!(lines(&fetch(&mut client, &again).await.unwrap()), ["|x|"]);
    prepared.close().await.unwrap();
}
