//! Routes and their header; rights of different users.

use std::sync::Arc;

use ::http::Method;
use bytes::Bytes;
use millrace_accounts::{self as accounts, Accounts};
use millrace_catalog::access::{Action, ActionSet, Caller, Principal, Privileges};
use millrace_engine::{Config, Engine};
use millrace_listen::Budget;
use millrace_query::SearchService;
use millrace_runtime::SystemClock;

use super::*;
use crate::http::{MemoryAllowance, Params, Request};
use crate::route;
use millrace_gateway::route::{Call, RouteMatch};
use millrace_gateway::{Identity, Node, Requester};

#[test]
fn whatever_changes_something_needs_the_header() {
    let refused = |guarded: bool, value: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(XSRF, ::http::HeaderValue::from_static(value));
        }
        check_headers(guarded, &headers).is_err()
    };
    assert!(refused(true, None) && refused(true, Some("false")));
    assert!(!refused(true, Some("true")) && !refused(false, None));
    for spec in route::console().specs() {
        let reads = spec.methods.iter().all(|method| matches!(*method, Method::GET | Method::HEAD));
        assert!(spec.guarded || reads, "{spec:?}");
        assert!(!spec.path.ends_with("/export") || spec.guarded, "{spec:?}");
    }
}

/// Roles of these tests show all documents.
#[derive(Debug)]
struct NoQueries;

impl accounts::QueryCheck for NoQueries {
    fn check(&self, _: &serde_json::Value) -> Result<(), String> {
        Err("no queries here".to_owned())
    }
}

async fn node(data: &std::path::Path) -> Node {
    let config = Config { data_dir: data.to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let search = Arc::new(SearchService::new(Arc::clone(&engine), millrace_query::Config::default()));
    let identity = Identity::open(&*engine, "n", "c", data.to_owned(), String::new()).await.unwrap();
    let accounts = accounts::Config { insecure: true, ..accounts::Config::default() };
    let opened =
        Accounts::open(Arc::clone(&engine) as _, accounts, Arc::new(SystemClock), Arc::new(NoQueries));
    Node::new(engine, search, opened.await.unwrap().0, identity)
}

/// Asks as a user who may do some actions and nothing else; returns the status.
async fn ask(node: &Node, budget: &Budget, actions: &[Action], line: &str, body: &str) -> u16 {
    let privileges = Arc::new(Privileges::new(ActionSet::new(actions), Vec::new()));
    let principal = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
    let (method, uri) = line.split_once(' ').unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let (method, path): (Method, _) = (method.parse().unwrap(), crate::http::path::segments(path).unwrap());
    let params = Params::parse(query).unwrap();
    let Ok(RouteMatch { spec, position, captured }) = route::console().find(&method, &path, &params) else {
        panic!("no route for {line}");
    };
    let body = Bytes::from(body.to_owned());
    let (allowance, filter) = (MemoryAllowance::new(budget), Arc::default());
    let answer = allowance.sibling();
    let (accept, media_type, held) = (None, None, None);
    let request = Request { method, path, params, body, allowance, answer, filter, accept, media_type, held };
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let asker = Requester { principal, scheme: None, token: None, address };
    let api = match node.api(asker, spec.action, Arc::default()) {
        Ok(api) => api,
        Err(error) => return error.status(),
    };
    let console = Console::new(&node.engine, &node.search);
    match route::console().handle(position, &console, &mut Call { api, request, captured }).await {
        Ok(response) => response.status,
        Err(error) => error.status(),
    }
}

#[tokio::test]
async fn readers_read_and_writers_write_without_rights_on_the_index() {
    let data = tempfile::tempdir().unwrap();
    let node = node(data.path()).await;
    let budget = Budget::new(1 << 20);
    let object = r#"{"attributes":{"title":"t"}}"#;
    let file = r#"{"objects":[{"type":"search","id":"s","attributes":{"title":"t"}}]}"#;
    let reads = [
        ("GET /api/saved_objects/_find?type=dashboard", ""),
        ("POST /api/saved_objects/_bulk_get", "[]"),
        ("GET /api/saved_objects/dashboard/d", ""),
        ("GET /api/console-app/dashboards/export?dashboard=d", ""),
    ];
    let writes = [
        ("POST /api/saved_objects/dashboard/d", object),
        ("PUT /api/saved_objects/dashboard/d", object),
        ("POST /api/saved_objects/_bulk_create", "[]"),
        ("POST /api/saved_objects/search", object),
        ("POST /api/console-app/dashboards/import", file),
        ("DELETE /api/saved_objects/search/s", ""),
    ];
    for (line, body) in writes {
        assert_eq!(ask(&node, &budget, &[Action::PutSavedObjects], line, body).await, 200, "{line}");
        assert_eq!(ask(&node, &budget, &[Action::GetSavedObjects], line, body).await, 403, "{line}");
    }
    for (line, body) in reads {
        assert_eq!(ask(&node, &budget, &[Action::GetSavedObjects], line, body).await, 200, "{line}");
        assert_eq!(ask(&node, &budget, &[Action::PutSavedObjects], line, body).await, 403, "{line}");
    }
    node.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_import_that_finds_no_room_stores_nothing() {
    let data = tempfile::tempdir().unwrap();
    let node = node(data.path()).await;
    let object = |n: usize| {
        format!(
            r#"{{"type":"search","id":"{n}","attributes":{{"title":"t","a":[{}1]}}}}"#,
            "1,".repeat(50_000)
        )
    };
    let file = format!(r#"{{"objects":[{}]}}"#, (0..20).map(object).collect::<Vec<_>>().join(","));
    let line = "POST /api/console-app/dashboards/import";
    let all = [Action::PutSavedObjects, Action::GetSavedObjects];
    // Room for the texts, not for the values of one.
    let budget = Budget::new(5 << 20);
    assert_eq!(ask(&node, &budget, &all, line, &file).await, 413);
    assert_eq!(ask(&node, &budget, &all, "GET /api/saved_objects/search/0", "").await, 404);
    // For the values of one object, not for those of two.
    let budget = Budget::new(10 << 20);
    assert_eq!(ask(&node, &budget, &all, line, &file).await, 200);
    assert_eq!(budget.used(), 0);
    node.engine.shutdown().await.unwrap();
}
