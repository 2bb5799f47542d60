//! Tickets that were changed, made up, or are somebody else's.

use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use arrow_flight::{Action, FlightEndpoint, RenewFlightEndpointRequest, Ticket};
use bytes::Bytes;
use prost::Message;
use rand::RngExt;
use serde_json::json;
use tonic::Code;

use crate::support::{Node, code, fetch, lines, ticket};

#[tokio::test(flavor = "multi_thread")]
async fn no_ticket_that_was_changed_is_taken() {
    let node = Node::start().await;
    node.index("logs", json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    let mut client = node.admin().await;
    let info = client.execute("SELECT n FROM logs".to_owned(), None).await.unwrap();
    let sealed = ticket(&info).ticket;
    for _ in 0..3_000 {
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
