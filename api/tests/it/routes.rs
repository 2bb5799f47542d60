//! Tests that hold for every route: the requests are made from the tables.

use std::fmt::{Debug, Write as _};
use std::path::Path;
use std::sync::Arc;

use http::Method;
use http_body_util::{BodyExt, Full};
use millrace_accounts::{self as accounts, Accounts};
use millrace_api::{Console, DataApi, HttpConfig, Identity, Management, Node, SearchQueryParser, Service};
use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges, Scope};
use millrace_console::console_routes;
use millrace_data_api::routes as data_routes;
use millrace_engine::{Config, Engine};
use millrace_gateway::http::{Params, path};
use millrace_gateway::route::{METHODS, Spec, Table, parameter_name, segments};
use millrace_management::management_routes;
use millrace_pipelines::Manager;
use millrace_pipelines::manager;
use millrace_query::SearchService;
use millrace_runtime::SystemClock;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A store with all listeners.
struct TestNode {
    data: Service,
    management: Service,
    console: Service,
    _directory: TempDir,
}

/// An answer: its status, its body and whether it asks for credentials.
struct Answer {
    status: u16,
    text: String,
    challenges: bool,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }
}

impl TestNode {
    async fn start(insecure: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let config = Config { data_dir: data_dir.clone(), ..Config::default() };
        let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
        let search = Arc::new(SearchService::new(engine.clone(), millrace_query::Config::default()));
        let admin_password = (!insecure).then(|| "secret".to_owned());
        let config = accounts::Config { admin_password, insecure, ..accounts::Config::default() };
        let clock = Arc::new(SystemClock);
        let opened = Accounts::open(Arc::clone(&engine) as _, config, clock, Arc::new(SearchQueryParser));
        let (accounts, _) = opened.await.unwrap();
        let identity =
            Identity::open(&*engine, "node", "cluster", data_dir, "127.0.0.1:9200".into()).await.unwrap();
        let config = manager::Config {
            directory: directory.path().join("pipelines"),
            reload_interval: std::time::Duration::ZERO,
            settings_file: None,
            queues: None,
            outputs: None,
            memory_bytes: 1 << 20,
            environment: std::iter::empty::<(String, String)>().collect(),
        };
        let store = Arc::new(millrace_pipeline_store::EngineStore::new(Arc::clone(&engine)));
        let pipelines = Manager::new(config, store, engine.compute().clone());
        let management = Management::new(pipelines, "127.0.0.1:9600".into());
        let console = Console::new(&engine, &search);
        let node = Node::new(engine, search, accounts, identity).with_principals_of_requests();
        let data = Service::new(Arc::new(node), &HttpConfig::default(), Arc::new(DataApi::default()));
        let management = data.clone().with_router(Arc::new(management));
        let console = data.clone().with_router(Arc::new(console));
        Self { data, management, console, _directory: directory }
    }

    /// Lists the served routes: the listener's name, its service and its routes.
    fn listeners(&self) -> Vec<(&'static str, &Service, Vec<&'static Spec>)> {
        let data = ("data", &self.data, data_routes().specs().collect());
        let management = ("management", &self.management, management_routes().specs().collect());
        vec![data, management, ("console", &self.console, console_routes().specs().collect())]
    }
}

async fn ask(service: &Service, who: Option<&Principal>, method: &str, uri: &str, body: &str) -> Answer {
    let mut request = http::Request::builder().method(method).uri(uri).header("console-xsrf", "true");
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    if let Some(who) = who {
        request = request.extension(who.clone());
    }
    let response = service.call(request.body(Full::new(body.to_owned().into())).unwrap()).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status.as_u16(),
        text: String::from_utf8(bytes.to_vec()).unwrap(),
        challenges: parts.headers.contains_key("www-authenticate"),
    }
}

/// Makes a user with cluster actions, and with actions on the indices of a pattern.
fn user<'a>(cluster: ActionSet, on: impl IntoIterator<Item = (&'a str, ActionSet)>) -> Principal {
    let grants = on.into_iter().map(|(names, actions)| Grant {
        names: vec![NamePattern::parse(names).unwrap()],
        actions,
        system: false,
        documents: None,
        fields: None,
    });
    let privileges = Privileges::new(cluster, grants.collect());
    Principal::new(Caller::User("ann".into()), Vec::new(), Arc::new(privileges))
}

/// Makes a path that has a route, with an index of a name.
fn uri(spec: &Spec, index: &str) -> String {
    let mut uri = String::new();
    for segment in segments(spec.path) {
        let is_metrics = spec.path == "/_nodes/{metrics}";
        let filled = match parameter_name(segment) {
            None => segment.split('|').next().unwrap_or_default(),
            Some("index" | "expression") => index,
            Some("metrics") if is_metrics => "os",
            Some("kind") => "roles",
            Some("metrics") => "docs",
            Some(_) => "x",
        };
        let _ = write!(uri, "/{filled}");
    }
    if uri.is_empty() {
        uri.push('/');
    }
    match spec.when.map_or("", |when| when.words) {
        "" => uri,
        "?index" => format!("{uri}?index={index}"),
        condition if condition.contains('=') => format!("{uri}{condition}"),
        condition => format!("{uri}{condition}=true"),
    }
}

/// Adds what a request of a route cannot be without.
fn complete(spec: &Spec, uri: &str) -> (String, String) {
    let body = match spec.action {
        Action::Bulk => "{\"index\":{\"_id\":\"1\"}}\n{}\n{\"delete\":{\"_id\":\"1\"}}\n".to_owned(),
        Action::MultiSearch => "{}\n{}\n".to_owned(),
        Action::MultiGet => json!({ "ids": ["1"] }).to_string(),
        Action::UpdateDocument => json!({ "doc": {} }).to_string(),
        Action::Analyze => json!({ "text": "a" }).to_string(),
        Action::PutSettings => json!({ "index.number_of_replicas": 0 }).to_string(),
        Action::PutMapping => json!({ "x": { "properties": {} } }).to_string(),
        Action::PutAliases => json!({ "alias": "logs-alias" }).to_string(),
        Action::IndexDocument | Action::CreateDocument => "{}".to_owned(),
        Action::Search | Action::Explain | Action::DeleteByQuery if !spec.path.starts_with("/_cat") => {
            json!({ "query": { "match_all": {} } }).to_string()
        }
        _ => String::new(),
    };
    let typed = spec.path.contains("_mapping") && spec.path.matches('{').count() > 1;
    let parameters = match spec.action {
        Action::FieldCaps => "fields=*",
        Action::OpenPointInTime => "keep_alive=1m",
        Action::DeleteByQuery if spec.path.ends_with('*') => return (uri.to_owned(), String::new()),
        Action::PutAliases if spec.path.contains("{name}") => return (uri.to_owned(), String::new()),
        Action::GetMappings | Action::GetFieldMappings
            if spec.methods.contains(&Method::HEAD) && spec.when.is_none() =>
        {
            ""
        }
        Action::PutMapping | Action::GetMappings | Action::GetFieldMappings if typed => {
            "include_type_name=true"
        }
        _ => "",
    };
    let body = match (spec.action, typed) {
        (Action::PutMapping, false) => json!({ "properties": {} }).to_string(),
        _ => body,
    };
    let mark = if uri.contains('?') { '&' } else { '?' };
    let uri = match parameters {
        "" => uri.to_owned(),
        given if uri.contains(given) => uri.to_owned(),
        given => format!("{uri}{mark}{given}"),
    };
    (uri, body)
}

#[test]
fn every_route_is_reached() {
    fn check<S: Debug>(table: &'static Table<S>) {
        let mut known = std::collections::HashSet::new();
        for spec in table.specs() {
            let words = spec.when.map(|when| when.words);
            for method in spec.methods {
                assert!(METHODS.contains(method), "{method} is not listed");
                let new = known.insert((method.clone(), spec.path, words));
                assert!(new, "{method} {} is there twice", spec.path);
                let uri = uri(spec, "logs-1");
                let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
                let path = path::segments(path).unwrap();
                let found = table.find(method, &path, &Params::parse(query).unwrap());
                let found = found.unwrap_or_else(|allowed| panic!("{method} {uri}: only {allowed:?}"));
                assert!(std::ptr::eq(found.spec, spec), "{method} {uri} means {}", found.spec.path);
                for taken in spec.takes {
                    let there = segments(spec.path).any(|segment| parameter_name(segment) == Some(*taken));
                    assert!(there, "{} has no {taken}", spec.path);
                }
            }
        }
    }
    check(data_routes());
    check(management_routes());
    check(console_routes());
}

#[test]
fn paths_mean_routes() {
    let of = |line: &str| {
        let (method, uri) = line.split_once(' ').unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let segments = path::segments(path).unwrap();
        let found = data_routes().find(&method.parse().unwrap(), &segments, &Params::parse(query).unwrap());
        found.map(|found| {
            let captured: Vec<String> = found.captured.iter().map(|(_, given)| given.to_owned()).collect();
            (found.spec.path, captured.join(" "))
        })
    };
    for (line, path, captured) in [
        ("GET /", "/", ""),
        ("POST /_bulk", "/_bulk", ""),
        ("POST /a/_bulk", "/{index}/_bulk", "a"),
        ("POST /a/t/_bulk/", "/{index}/{any_type}/_bulk", "a t"),
        ("POST /a/_doc/_bulk", "/{index}/{any_type}/_bulk", "a _doc"),
        ("POST /a/_doc", "/{index}/_doc", "a"),
        ("POST /a/t", "/{index}/{doc_type}", "a t"),
        ("PUT /a/_doc/1", "/{index}/_doc/{id}", "a 1"),
        ("GET /a/_doc/_1", "/{index}/_doc/{id}", "a _1"),
        ("GET /a/_doc/_mapping", "/{index}/_doc/{id}", "a _mapping"),
        ("GET /a/_doc/_mapping?include_type_name=true", "/{index}/_doc/_mapping|_mappings", "a"),
        ("GET /a/t/_mapping", "/{index}/{any_type}/_mapping|_mappings", "a t"),
        ("GET /a/t/1", "/{index}/{doc_type}/{id}", "a t 1"),
        ("GET /a/t/_refresh", "/{index}/{doc_type}/{id}", "a t _refresh"),
        ("GET /a/_all/1", "/{index}/_all/{id}", "a 1"),
        ("GET /a/_all/_search", "/{index}/{any_type}/_search", "a _all"),
        ("PUT /a/_create/1", "/{index}/_create/{id}", "a 1"),
        ("PUT /a/t/1/_create", "/{index}/{any_type}/{id}/_create", "a t 1"),
        ("POST /a/_doc/1/_update", "/{index}/{any_type}/{id}/_update", "a _doc 1"),
        ("GET /a/_source/1", "/{index}/_source/{id}", "a 1"),
        ("GET /a/t/_msearch", "/{index}/{any_type}/_msearch", "a t"),
        ("GET /a/t/_validate/query", "/{index}/{any_type}/_validate/query", "a t"),
        ("POST /a/_search/point_in_time", "/{index}/_search/point_in_time", "a"),
        ("GET /a/_explain/1", "/{index}/_explain/{id}", "a 1"),
        ("GET /a,b*/_search", "/{index}/_search", "a,b*"),
        ("GET /_all,-a/_settings", "/{index}/_settings|_setting", "_all,-a"),
        ("GET /_search/scroll/abc", "/_search/scroll/{scroll_id}", "abc"),
        ("POST /_opendistro/_sql/_explain", "/_plugins|_opendistro/_sql/_explain", ""),
        ("DELETE /a/_doc/*", "/{index}/_doc/*", "a"),
        ("GET /a/_doc/*", "/{index}/_doc/{id}", "a *"),
        ("GET /_nodes/os,jvm", "/_nodes/{metrics}", "os,jvm"),
        ("GET /_nodes/node-1", "/_nodes/{nodes}", "node-1"),
        ("GET /_nodes/stats/os", "/_nodes/stats/{metrics}", "os"),
        ("GET /_nodes/x/hot_threads", "/_nodes/{nodes}/hot_threads", "x"),
        ("POST /_tasks/_cancel", "/_tasks/_cancel", ""),
        ("POST /_tasks/a:1/_cancel", "/_tasks/{task_id}/_cancel", "a:1"),
        ("HEAD /a", "/{index}", "a"),
    ] {
        assert_eq!(of(line), Ok((path, captured.to_owned())), "{line}");
    }
    for path in [
        "/_foo",
        "/_foo/bar",
        "/_foo/_settings",
        "/a/_foo",
        "/a/_foo/1",
        "/a/t/1/_foo",
        "/a/t/_explain",
        "/a/b/c/d/e",
        "/_nodes/usage",
        "/_nodes/x/usage",
    ] {
        for method in ["GET", "POST"] {
            assert_eq!(of(&format!("{method} {path}")), Err(Vec::new()), "{path}");
        }
    }
    let every = vec![Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE];
    assert_eq!(of("PATCH /a/_doc/1"), Err(every));
    let security = vec![Method::GET, Method::PUT, Method::DELETE, Method::PATCH];
    assert_eq!(of("POST /_plugins/_security/api/roles/a"), Err(security));
    assert_eq!(of("POST /a"), Err(vec![Method::GET, Method::HEAD, Method::PUT, Method::DELETE]));
    assert_eq!(of("PUT /a/_doc/_search"), Err(vec![Method::GET, Method::POST]));
}

#[tokio::test]
async fn every_route_needs_credentials() {
    let served = TestNode::start(false).await;
    for (listener, service, specs) in served.listeners() {
        for spec in specs {
            for method in spec.methods {
                let uri = uri(spec, "logs-1");
                let answer = ask(service, None, method.as_str(), &uri, "").await;
                if spec.open {
                    // The way in, and nothing else.
                    assert_eq!((spec.path, answer.status), ("/_service/login", 400), "{}", answer.text);
                    continue;
                }
                assert_eq!((answer.status, answer.challenges), (401, true), "{listener}: {method} {uri}");
            }
        }
        let answer = ask(service, None, "GET", "/_nope", "").await;
        assert_eq!((answer.status, answer.challenges), (401, true), "{listener}: an unknown path");
    }
}

#[tokio::test]
async fn every_route_names_the_action_that_is_not_allowed() {
    let served = TestNode::start(true).await;
    assert_eq!(ask(&served.data, None, "PUT", "/secret", "").await.status, 200);
    let nobody = user(ActionSet::NONE, []);
    for (listener, service, specs) in served.listeners() {
        for spec in specs {
            for method in spec.methods {
                let uri = uri(spec, "secret");
                let line = format!("{listener}: {method} {uri}");
                let (own, body) = complete(spec, &uri);
                let answer = ask(service, Some(&nobody), method.as_str(), &own, &body).await;
                if spec.action.scope() == Scope::Own {
                    assert!(
                        answer.status < 500 && !answer.text.contains("secret"),
                        "{line}: {}",
                        answer.text
                    );
                    continue;
                }
                assert_eq!(answer.status, 403, "{line}: {}", answer.text);
                let reason = format!("action [{}] is unauthorized for user [ann]", spec.action);
                if listener == "console" && *method != Method::HEAD {
                    assert_eq!(answer.json(), json!({"status": false, "message": reason}), "{line}");
                } else if *method != Method::HEAD {
                    let error = &answer.json()["error"];
                    assert_eq!(error["type"], "security_exception", "{line}");
                    assert_eq!(error["reason"], reason, "{line}");
                }
            }
        }
    }
    // The refusal comes before the body is looked at, and paths that are none tell nobody who is there.
    let answer = ask(&served.data, Some(&nobody), "POST", "/_bulk", "no bulk").await;
    assert_eq!(answer.status, 403);
    assert_eq!(ask(&served.data, Some(&nobody), "GET", "/_nope", "").await.status, 400);
}

#[tokio::test]
async fn what_is_not_granted_is_not_told_to_exist() {
    let served = TestNode::start(true).await;
    for index in ["logs-1", "secret"] {
        let written = ask(&served.data, None, "PUT", &format!("/{index}/_doc/1?refresh=true"), "{}").await;
        assert_eq!(written.status, 201, "{}", written.text);
    }
    let ann = user(ActionSet::NONE, Some(("logs-*", ActionSet::ALL)));
    let mut wrong = Vec::new();
    for spec in data_routes().specs() {
        let names_index = spec.path.contains("{index}") || spec.path.contains("{expression}");
        // The word for all types is refused before anything is looked for.
        let refused = spec.path == "/{index}/_all/{id}" && !spec.reads;
        if spec.action.scope() != Scope::Index
            || !(names_index || uri(spec, "").contains("?index"))
            || refused
        {
            continue;
        }
        for method in spec.methods {
            let (uri_of_secret, body) = complete(spec, &uri(spec, "secret"));
            let (uri_of_missing, _) = complete(spec, &uri(spec, "secret2"));
            let there = ask(&served.data, Some(&ann), method.as_str(), &uri_of_secret, &body).await;
            let missing = ask(&served.data, Some(&ann), method.as_str(), &uri_of_missing, &body).await;
            let line = format!("{method} {uri_of_secret}");
            let itemized = matches!(spec.action, Action::Bulk | Action::MultiGet | Action::MultiSearch);
            let status = if itemized { 200 } else { 403 };
            let plain = |text: &str| {
                let (head, rest) = text.split_once("\"took\":").unwrap_or((text, ""));
                let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
                format!("{head}{rest}").replace("secret2", "secret")
            };
            let action = match spec.action {
                Action::MultiGet => Action::Get,
                Action::MultiSearch => Action::Search,
                Action::IndexDocument
                | Action::CreateDocument
                | Action::UpdateDocument
                | Action::DeleteDocument => Action::Bulk,
                // What is deleted has to be found.
                Action::DeleteByQuery => Action::Search,
                action => action,
            };
            let reason = format!("action [{action}] is unauthorized for user [ann] on indices [secret]");
            let told = *method == Method::HEAD
                || there.text.contains("security_exception") && there.text.contains(&reason);
            let same = there.status == missing.status && plain(&there.text) == plain(&missing.text);
            if there.status != status || !told || !same {
                let (there, missing) = ((there.status, there.text), (missing.status, missing.text));
                wrong.push(format!("{line}: {there:?}, where there is none: {missing:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn items_and_listings_are_what_may_be_seen() {
    let served = TestNode::start(true).await;
    for index in ["logs-1", "secret"] {
        ask(&served.data, None, "PUT", &format!("/{index}/_doc/1?refresh=true"), "{}").await;
        let alias = format!("/{index}/_alias/both");
        assert_eq!(ask(&served.data, None, "PUT", &alias, "").await.status, 200);
    }
    let ann = user(ActionSet::ALL, Some(("logs-*", ActionSet::ALL)));
    let ask = async |line: &str, body: &str| {
        let (method, uri) = line.split_once(' ').unwrap();
        let answer = ask(&served.data, Some(&ann), method, uri, body).await;
        assert!(answer.status == 200 || answer.status == 403, "{line}: {}", answer.text);
        answer
    };
    for listing in [
        "/_cat/indices",
        "/_cat/shards",
        "/_cat/segments",
        "/_cat/recovery",
        "/_cat/aliases",
        "/_cluster/state",
        "/_cluster/state/_all/*",
        "/_cluster/health?level=shards",
        "/_cluster/stats",
        "/_nodes/stats",
        "/_stats",
        "/_segments",
        "/_recovery",
        "/_all",
        "/*/_settings",
        "/_mapping",
        "/_alias",
        "/_resolve/index/*",
        "/_search",
        "/both/_search",
        "/_field_caps?fields=*",
    ] {
        let answer = ask(&format!("GET {listing}"), "").await;
        assert_eq!(answer.status, 200, "{listing}: {}", answer.text);
        assert!(!answer.text.contains("secret"), "{listing}: {}", answer.text);
    }
    assert_eq!(ask("GET /_cat/count?h=count", "").await.text.trim(), "1");
    assert_eq!(ask("GET /_cluster/stats", "").await.json()["indices"]["count"], 1);

    let on = |action: Action| format!("action [{action}] is unauthorized for user [ann] on indices [secret]");
    let searches = "{\"index\":\"logs-1\"}\n{}\n{\"index\":\"secret\"}\n{}\n{\"index\":\"secret2\"}\n{}\n";
    let answer = ask("POST /_msearch", searches).await.json();
    assert_eq!(answer["responses"][0]["hits"]["total"]["value"], 1);
    for item in [&answer["responses"][1], &answer["responses"][2]] {
        assert_eq!((&item["status"], &item["error"]["type"]), (&json!(403), &json!("security_exception")));
    }
    assert_eq!(answer["responses"][1]["error"]["reason"], on(Action::Search));

    let docs = json!({ "docs": [{ "_index": "logs-1", "_id": "1" }, { "_index": "secret", "_id": "1" }] });
    let answer = ask("POST /_mget", &docs.to_string()).await.json();
    assert_eq!(answer["docs"][0]["found"], true);
    assert_eq!(answer["docs"][1]["error"]["type"], "security_exception");
    assert_eq!(answer["docs"][1]["error"]["reason"], on(Action::Get));

    let ops = "{\"index\":{\"_index\":\"secret\",\"_id\":\"1\"}}\n{}\n{\"index\":{\"_index\":\"logs-1\",\"_id\":\"2\"}}\n{}\n";
    let answer = ask("POST /_bulk", ops).await.json();
    let item = &answer["items"][0]["index"];
    assert_eq!((&item["status"], &item["error"]["type"]), (&json!(403), &json!("security_exception")));
    assert_eq!(answer["items"][1]["index"]["status"], 201);

    // All actions or none; who takes a name needs the right to it.
    for action in [
        json!({ "add": { "index": "secret", "alias": "logs-2" } }),
        json!({ "add": { "index": "logs-1", "alias": "secret" } }),
        json!({ "add": { "index": "logs-1", "alias": "secret2" } }),
        json!({ "remove": { "index": "secret", "alias": "both" } }),
        json!({ "remove_index": { "index": "secret" } }),
    ] {
        let first = json!({ "add": { "index": "logs-1", "alias": "logs-alias" } });
        let answer = ask("POST /_aliases", &json!({ "actions": [first, action] }).to_string()).await;
        assert_eq!(answer.status, 403, "{action}: {}", answer.text);
    }
    assert!(!ask("GET /logs-1/_alias", "").await.text.contains("logs-alias"));
}

#[tokio::test]
async fn documents_are_written_by_the_action_of_each() {
    let served = TestNode::start(true).await;
    assert_eq!(ask(&served.data, None, "PUT", "/logs-1", "").await.status, 200);
    let only = |actions: &[Action]| user(ActionSet::NONE, Some(("logs-*", ActionSet::new(actions))));
    let creator = only(&[Action::CreateDocument, Action::AutoPutMapping]);
    let of = async |line: &str| {
        let (method, uri) = line.split_once(' ').unwrap();
        ask(&served.data, Some(&creator), method, uri, "{}").await
    };
    assert_eq!(of("PUT /logs-1/_doc/1?op_type=create").await.status, 201);
    assert_eq!(of("PUT /logs-1/_create/2").await.status, 201);
    for line in ["PUT /logs-1/_doc/1", "PUT /logs-1/_doc/1?op_type=index", "DELETE /logs-1/_doc/1"] {
        assert_eq!(of(line).await.status, 403, "{line}");
    }
    // To find documents is not to delete them.
    let reading = ActionSet::new(&[Action::Search, Action::DeleteDocument]);
    let elsewhere = ActionSet::new(&[Action::DeleteByQuery]);
    let reader = user(ActionSet::NONE, [("logs-*", reading), ("other-*", elsewhere)]);
    for line in ["POST /logs-1/_delete_by_query", "DELETE /logs-1/_doc/*"] {
        let (method, uri) = line.split_once(' ').unwrap();
        let body = if method == "POST" { r#"{"query":{"match_all":{}}}"# } else { "" };
        let answer = ask(&served.data, Some(&reader), method, uri, body).await;
        let action = Action::DeleteByQuery;
        let reason = format!("action [{action}] is unauthorized for user [ann] on indices [logs-1]");
        assert_eq!((answer.status, &answer.json()["error"]["reason"]), (403, &json!(reason)), "{line}");
    }
}

#[test]
fn deletions_by_query_and_statements_may_go_on_for_long() {
    let ends =
        ["/_delete_by_query", "/*", "/_ppl", "/_ppl/_explain", "/_sql", "/_sql/_explain", "/_sql/translate"];
    for spec in data_routes().specs().chain(management_routes().specs()).chain(console_routes().specs()) {
        let lasts = ends.iter().any(|end| spec.path.ends_with(end));
        assert_eq!(spec.action.lasts(), lasts, "{spec:?}");
    }
}

/// Between these is the table of routes.
const MARKERS: (&str, &str) = ("<!-- routes -->\n", "<!-- /routes -->");

#[test]
fn routes_are_documented() {
    let mut table = "| method | path | action | done to | listener |\n|---|---|---|---|---|\n".to_owned();
    let listed = |listener: &'static str, spec: &'static Spec| (spec.path, listener, spec);
    let data = data_routes().specs().map(|spec| listed("data", spec));
    let management = management_routes().specs().map(|spec| listed("management", spec));
    let console = console_routes().specs().map(|spec| listed("console", spec));
    let mut all: Vec<_> = data.chain(management).chain(console).collect();
    all.sort_by_key(|(path, listener, _)| (*listener, *path));
    for (path, listener, spec) in all {
        let methods: Vec<&str> = spec.methods.iter().map(Method::as_str).collect();
        let path = format!("{path}{}", spec.when.map_or("", |when| when.words)).replace('|', "\\|");
        let scope = match spec.action.scope() {
            Scope::Own => "the caller's own",
            Scope::Cluster => "cluster",
            Scope::Index => "indices",
        };
        let _ = writeln!(
            table,
            "| {} | `{path}` | `{}` | {scope} | {listener} |",
            methods.join(", "),
            spec.action
        );
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(MARKERS.0).expect("docs/security.md has a place for routes");
    let (written, after) = rest.split_once(MARKERS.1).expect("the place for routes ends");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let renewed = format!("{before}{}{table}{}{after}", MARKERS.0, MARKERS.1);
        std::fs::write(&file, renewed).unwrap();
        return;
    }
    assert!(
        written == table,
        "docs/security.md is behind the table of routes; renew it with `UPDATE_DOCS=1 cargo test -p millrace-api routes_are_documented`"
    );
}
