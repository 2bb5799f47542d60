//! Credentials that are accepted, and those that are not.

use std::sync::Arc;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{TableExistsOption, TableNotExistOption};
use arrow_flight::{Action, Criteria, Empty, FlightData, FlightDescriptor, HandshakeRequest, Ticket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, TryStreamExt, stream};
use millrace_api::ListenerContext;
use millrace_engine::Session;
use millrace_query::OutcomeBody;
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::support::{Node, Setup, batch, code, ingest, into_table, lines, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_login_gives_a_token_that_counts_until_the_session_is_closed() {
    let node = Node::start().await;
    let mut client = node.connect().await;
    assert_eq!(code(run(&mut client, "SHOW TABLES LIKE '%'").await), Code::Unauthenticated);
    let wrong = client.handshake("admin", "wrong").await.unwrap_err();
    assert!(wrong.to_string().contains("unable to authenticate"), "{wrong}");
    client.handshake("admin", "secret").await.unwrap();
    let token = client.token().unwrap().clone();
    assert_eq!(token.len(), 64);
    assert_eq!(run(&mut client, "SHOW TABLES LIKE '%'").await.unwrap().len(), 0);

    let close = || Action { r#type: "CloseSession".to_owned(), body: Default::default() };
    let closed = client.do_action(close()).await.unwrap().message().await.unwrap().unwrap();
    // `CLOSED`.
    assert_eq!(&closed.body[..], [8, 1]);
    assert_eq!(code(run(&mut client, "SHOW TABLES LIKE '%'").await), Code::Unauthenticated);
    let authenticated = node.listener.node.accounts.logout(&token).await.unwrap();
    assert!(!authenticated, "the token is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_credentials_is_taken_with_every_call() {
    let node = Node::start().await;
    node.user("ann", json!([{ "names": ["*"], "privileges": ["read"] }])).await;
    let accounts = &node.listener.node.accounts;
    // A password with a colon.
    accounts
        .put_user(
            "bob",
            millrace_accounts::User { enabled: true, roles: vec!["ann".into()], ..Default::default() },
            Some("pass:word".into()),
        )
        .await
        .unwrap();
    let key = node.api_key("ann").await;
    let token = accounts.login("ann", "password", "127.0.0.1".parse().unwrap()).await.unwrap().token;
    let basic = format!("Basic {}", STANDARD_NO_PAD.encode("bob:pass:word"));
    for (header, value) in [
        ("authorization", basic),
        ("authorization", format!("ApiKey {key}")),
        ("authorization", format!("Bearer {token}")),
        ("token", token),
    ] {
        let mut client = node.connect().await;
        client.set_header(header, &value);
        assert!(run(&mut client, "SHOW TABLES LIKE '%'").await.is_ok(), "{value}");
    }
    for value in ["Basic", "Basic YW5uOm5v", "Bearer 00", "ApiKey YTpi", "Digest x"] {
        let mut client = node.connect().await;
        client.set_header("authorization", value);
        assert_eq!(code(run(&mut client, "SHOW TABLES LIKE '%'").await), Code::Unauthenticated, "{value}");
    }
    // Base64 without padding, in the handshake.
    let mut client = node.connect().await.into_inner();
    let mut request = Request::new(stream::iter([HandshakeRequest::default()]));
    let value = format!("Basic {}", STANDARD_NO_PAD.encode("bob:pass:word"));
    request.metadata_mut().insert("authorization", value.parse().unwrap());
    let response = client.handshake(request).await.unwrap();
    let bearer = response.metadata().get("authorization").unwrap().to_str().unwrap();
    assert!(bearer.starts_with("Bearer "), "{bearer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_answers_without_credentials() {
    let node = Node::start().await;
    let mut client: FlightServiceClient<_> = node.connect().await.into_inner();
    let descriptor = || FlightDescriptor::new_cmd("SHOW TABLES LIKE '%'");
    let codes = [
        client.handshake(stream::iter([HandshakeRequest::default()])).await.map(drop).unwrap_err().code(),
        client.list_flights(Criteria::default()).await.map(drop).unwrap_err().code(),
        client.get_flight_info(descriptor()).await.map(drop).unwrap_err().code(),
        client.poll_flight_info(descriptor()).await.map(drop).unwrap_err().code(),
        client.get_schema(descriptor()).await.map(drop).unwrap_err().code(),
        client.do_get(Ticket::new("x")).await.map(drop).unwrap_err().code(),
        client.do_put(stream::iter([FlightData::default()])).await.map(drop).unwrap_err().code(),
        client.do_exchange(stream::iter([FlightData::default()])).await.map(drop).unwrap_err().code(),
        client.do_action(Action::new("CloseSession", "")).await.map(drop).unwrap_err().code(),
        client.list_actions(Empty {}).await.map(drop).unwrap_err().code(),
    ];
    assert_eq!(codes, [Code::Unauthenticated; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insecure_server_takes_everybody_but_pages_of_elsewhere() {
    let node = Node::with(Setup { insecure: true, ..Setup::default() }).await;
    let mut client: FlightSqlServiceClient<_> = node.connect().await;
    assert!(run(&mut client, "SHOW TABLES LIKE '%'").await.is_ok());
    // Clients that log in are let in, too, and insist on something to show from then on.
    client.handshake("anybody", "x").await.unwrap();
    assert!(client.token().is_some());
    assert!(run(&mut client, "SHOW TABLES LIKE '%'").await.is_ok());
    client.set_header("origin", "https://evil.example");
    assert_eq!(code(run(&mut client, "SHOW TABLES LIKE '%'").await), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_roles_apply() {
    let node = Node::start().await;
    let documents = [json!({ "team": "a", "secret": 1 }), json!({ "team": "b", "secret": 2 })];
    let properties = json!({ "team": { "type": "keyword" }, "secret": { "type": "long" } });
    node.index("logs", properties.clone(), &documents).await;
    node.index("other", properties, &documents).await;
    node.user(
        "ann",
        json!([{ "names": ["logs"], "privileges": ["read"], "query": r#"{"term":{"team":"a"}}"#, "field_security": { "grant": ["team"] } }]),
    )
    .await;
    node.user("eve", json!([])).await;
    node.allow_deletion().await;
    let mut ann = node.client("ann", "password").await;
    assert_eq!(lines(&run(&mut ann, "SELECT * FROM logs").await.unwrap()), ["|a|"]);
    assert_eq!(code(run(&mut ann, "SELECT * FROM other").await), Code::PermissionDenied);
    assert_eq!(code(ann.execute_update("DELETE FROM logs".to_owned(), None).await), Code::PermissionDenied);
    let mut eve = node.client("eve", "password").await;
    assert_eq!(code(run(&mut eve, "SELECT * FROM logs").await), Code::PermissionDenied);
    // What was prepared with a right is not answered without it.
    let info = ann.execute("SELECT * FROM logs".to_owned(), None).await.unwrap();
    node.role("ann", json!([])).await;
    assert_eq!(code(crate::support::fetch(&mut ann, &info).await), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_tells_of_logins_and_refusals() {
    let node = Node::start().await;
    node.user("ann", json!([])).await;
    let mut client = node.connect().await;
    assert!(client.handshake("ann", "wrong").await.is_err());
    client.handshake("ann", "password").await.unwrap();
    assert_eq!(code(run(&mut client, "SELECT * FROM logs").await), Code::PermissionDenied);
    let refused = "|access_denied|ann|indices:data/read/sql|flight|";
    assert_eq!(
        told(&node).await,
        [refused, "|authenticated|ann||flight|", "|authentication_failed|ann||flight|"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_tells_what_was_refused() {
    let node = Node::start().await;
    node.allow_deletion().await;
    let documents = [json!({ "n": 1 }), json!({ "n": 2 })];
    node.index("logs", json!({ "n": { "type": "long" } }), &documents).await;
    let grants = json!([
        { "names": ["logs"], "privileges": ["read", "indices:data/write/delete/byquery", "indices:data/write/update"] },
        { "names": ["own"], "privileges": ["write"] },
    ]);
    node.user("ann", grants).await;
    let mut ann = node.client("ann", "password").await;
    assert_eq!(code(run(&mut ann, "SELECT * FROM other").await), Code::PermissionDenied);
    // Each of the documents is refused.
    assert_eq!(code(ann.execute_update("DELETE FROM logs".to_owned(), None).await), Code::PermissionDenied);
    let rows = vec![batch([("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)])];
    let command = into_table("logs", TableNotExistOption::Fail, TableExistsOption::Append);
    assert_eq!(code(ingest(&mut ann, command, rows).await), Code::PermissionDenied);
    let refused =
        |action: &str, index: &str, count: u64| json!([{ "action": action, "index": index, "count": count }]);
    assert_eq!(
        refused_of(&node).await,
        [
            refused("indices:data/read/sql", "other", 1),
            refused("indices:data/write/bulk", "logs", 1),
            refused("indices:data/write/delete", "logs", 2),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_end_while_rows_are_sent_are_told() {
    let node = Node::start().await;
    node.user("ann", json!([{ "names": ["t"], "privileges": ["all"] }])).await;
    let mut ann = node.client("ann", "password").await;
    let rows = || batch([("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
    let shared = Arc::clone(&node.listener.node);
    let sent = stream::iter([rows()]).chain(stream::once(async move {
        // The first rows are there, and with them the table.
        while shared.engine.metadata().index("t").is_none() {
            tokio::task::yield_now().await;
        }
        shared.accounts.delete_user("ann").await.unwrap();
        rows()
    }));
    let command = into_table("t", TableNotExistOption::Create, TableExistsOption::Fail);
    let ended = ann.execute_ingest(command, sent.map(Ok)).await;
    assert_eq!(code(ended), Code::Unauthenticated);
    let told = told(&node).await;
    assert!(
        told.contains(&"|authentication_failed|ann|indices:data/write/bulk|flight|".to_owned()),
        "{told:?}"
    );
}

/// Has the audit written, and returns who reads it and the name of its index.
async fn audit(node: &Node) -> (Session, Arc<str>) {
    let ListenerContext { node: shared, .. } = &node.listener;
    shared.audit().flush().await.unwrap();
    let session = Session::system(&shared.engine);
    let name =
        session.metadata().indices().find(|meta| meta.name.starts_with(".audit-")).unwrap().name.clone();
    session.refresh(&[session.index(&name).unwrap()]).await.unwrap();
    (session, name)
}

/// Reads the audit: the recorded refusals of requests, sorted by action.
async fn refused_of(node: &Node) -> Vec<Value> {
    let (session, name) = audit(node).await;
    let body = json!({ "query": { "exists": { "field": "refused.action" } }, "sort": ["refused.action"] });
    let search = &node.listener.node.search;
    let outcome = search.search(&session, &name, Vec::new(), Some(body)).await.unwrap();
    let answer: Value = match outcome.body {
        OutcomeBody::Json(answer) => answer,
        OutcomeBody::Raw(text) => serde_json::from_slice(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    let hits = answer["hits"]["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["_source"]["refused"].clone()).collect()
}

/// Reads the audit: outcome, user, action and listener of what it tells, sorted.
async fn told(node: &Node) -> Vec<String> {
    let ListenerContext { node: shared, .. } = &node.listener;
    let (session, name) = audit(node).await;
    let query = format!("SELECT outcome, user, action, listener FROM `{name}`");
    let batches = shared.search.statement_batches(&session, &query, None).await.unwrap();
    let schema = SchemaRef::clone(batches.schema());
    let messages: Vec<_> = batches.try_collect().await.unwrap();
    let read: Vec<_> = messages.iter().flat_map(|messages| messages.read(&schema).unwrap()).collect();
    let mut told = lines(&read);
    told.sort();
    told
}
