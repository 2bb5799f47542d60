//! The console: its headers and errors, saved objects, dashboards as files.

use serde_json::{Value, json};

use crate::support::{Answer, Node};

const XSRF: (&str, &str) = ("console-xsrf", "true");
pub(crate) const IMPORT: &str = "POST /api/console-app/dashboards/import";
pub(crate) const EXPORT: &str = "GET /api/console-app/dashboards/export";

pub(crate) async fn console() -> Node {
    Node::insecure().await.into_console()
}

async fn send(node: &Node, line: &str, body: &str) -> Answer {
    node.send(line, &[XSRF], body.to_owned()).await
}

pub(crate) async fn ask(node: &Node, line: &str, body: Value, status: u16) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = send(node, line, &body).await;
    assert_eq!(answer.status, status, "{line} {body}: {}", answer.text());
    answer.json()
}

/// The message of a refusal, which has the console's form.
async fn refused(node: &Node, line: &str, body: &str, status: u16) -> String {
    let answer = send(node, line, body).await;
    assert_eq!(answer.status, status, "{line}: {}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["status"], false, "{line}: {answer}");
    assert_eq!(answer.as_object().unwrap().len(), 2, "{line}: {answer}");
    answer["message"].as_str().unwrap().to_owned()
}

fn titled(title: &str) -> Value {
    json!({ "attributes": { "title": title } })
}

pub(crate) fn object(kind: &str, id: &str, attributes: Value, references: Value) -> Value {
    json!({ "id": id, "type": kind, "attributes": attributes, "references": references })
}

/// A dashboard with two panels, a saved search and an index pattern.
pub(crate) fn objects() -> Vec<Value> {
    let source = json!({ "indexRefName": "kibanaSavedObjectMeta.searchSourceJSON.index", "filter": [] });
    let meta = json!({ "searchSourceJSON": source.to_string() });
    let index = json!({
        "name": "kibanaSavedObjectMeta.searchSourceJSON.index", "type": "index-pattern", "id": "logs"
    });
    vec![
        object(
            "dashboard",
            "overview",
            json!({ "title": "Overview", "panelsJSON": "[{\"panelRefName\":\"panel_0\"}]", "version": 1 }),
            json!([
                { "name": "panel_0", "type": "visualization", "id": "errors" },
                { "name": "panel_1", "type": "search", "id": "latest" },
            ]),
        ),
        object(
            "visualization",
            "errors",
            json!({ "title": "Errors", "visState": "{}", "kibanaSavedObjectMeta": meta }),
            json!([index]),
        ),
        object(
            "search",
            "latest",
            json!({ "title": "Latest", "columns": ["_source"], "kibanaSavedObjectMeta": meta }),
            json!([index]),
        ),
        object(
            "index-pattern",
            "logs",
            json!({ "title": "logs-*", "timeFieldName": "@timestamp" }),
            json!([]),
        ),
    ]
}

fn file() -> Value {
    json!({ "version": "7.10.2", "objects": objects() })
}

pub(crate) fn keys(objects: &Value) -> Vec<String> {
    let key =
        |object: &Value| format!("{}:{}", object["type"].as_str().unwrap(), object["id"].as_str().unwrap());
    objects.as_array().unwrap().iter().map(key).collect()
}

/// Objects without what an import sets anew.
fn comparable(mut objects: Value) -> Value {
    for object in objects.as_array_mut().unwrap() {
        let members = object.as_object_mut().unwrap();
        assert!(members.shift_remove("updated_at").is_some() && members.shift_remove("version").is_some());
    }
    objects
}

#[tokio::test]
async fn changes_and_exports_need_the_header() {
    let node = console().await;
    let body = titled("t").to_string();
    for line in [
        "POST /api/saved_objects/dashboard/a",
        "PUT /api/saved_objects/dashboard/a",
        "DELETE /api/saved_objects/dashboard/a",
        "POST /api/saved_objects/_bulk_get",
        IMPORT,
        "GET /api/console-app/dashboards/export?dashboard=a",
    ] {
        for headers in [&[][..], &[("console-xsrf", "yes")], &[("osd-xsrf", "true")], &[("kbn-xsrf", "true")]]
        {
            let answer = node.send(line, headers, body.clone()).await;
            assert_eq!(answer.status, 400, "{line} {headers:?}: {}", answer.text());
            let answer = answer.json();
            assert_eq!(answer["status"], false);
            assert!(answer["message"].as_str().unwrap().contains("[console-xsrf: true]"), "{answer}");
        }
    }
    let answer = node.send("GET /api/saved_objects/_find?type=dashboard", &[], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["total"], 0, "nothing was changed");
    let versioned = [XSRF, ("console-version", "7.10.2")];
    let answer = node.send("POST /api/saved_objects/dashboard/a", &versioned, body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let long = "7".repeat(1_000);
    let answer = node.send("GET /api/saved_objects/dashboard/a", &[("console-version", &long)], "").await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let foreign = [XSRF, ("origin", "https://elsewhere.example")];
    let answer = node.send("POST /api/saved_objects/dashboard/b", &foreign, body).await;
    assert_eq!((answer.status, &answer.json()["status"]), (403, &json!(false)));
}

#[tokio::test]
async fn errors_have_the_form_of_the_console() {
    let node = console().await;
    for (line, body, status, expected) in [
        ("GET /", "", 404, "there is no [GET] of [/]"),
        ("GET /_search", "", 404, "there is no"),
        ("GET /logs/_doc/1", "", 404, "there is no"),
        ("PUT /api/saved_objects/_find", "{}", 405, "allowed: [GET, POST]"),
        (
            "GET /api/saved_objects/map/x",
            "",
            400,
            "[type] must be one of [dashboard, visualization, search, index-pattern]",
        ),
        ("GET /api/saved_objects/dashboard/x", "", 404, "Saved object [dashboard/x] not found"),
        ("GET /api/saved_objects/dashboard/x?color=1", "", 400, "unrecognized parameter: [color]"),
        ("POST /api/saved_objects/dashboard/x", "", 400, "request body is required"),
        ("POST /api/saved_objects/dashboard/x", "{", 400, "EOF"),
        ("POST /api/saved_objects/dashboard/x", "[]", 400, "[body] must be an object"),
        ("POST /api/saved_objects/dashboard/x", "{\"attributes\":{}}", 400, "[attributes.title] is required"),
        ("PUT /api/saved_objects/dashboard/x", "{}", 400, "[attributes] is required"),
        ("PUT /api/saved_objects/dashboard/x", "{\"attributes\":{}}", 404, "not found"),
        ("DELETE /api/saved_objects/dashboard/x", "", 404, "not found"),
        ("GET /api/saved_objects/_find", "", 400, "[type] is required"),
        ("GET /api/saved_objects/_find?type=dashboard&per_page=10001", "", 400, "[per_page]"),
        ("GET /api/saved_objects/_find?type=dashboard&page=0", "", 400, "[page]"),
        ("GET /api/saved_objects/_find?type=dashboard&page=501", "", 400, "beyond object [10000]"),
        ("GET /api/saved_objects/_find?type=dashboard&sort_field=color", "", 400, "[sort_field]"),
        ("GET /api/saved_objects/_find?type=dashboard&search_fields=color", "", 400, "[search_fields]"),
        ("GET /api/saved_objects/_find?type=dashboard&has_reference=x", "", 400, "[has_reference]"),
        ("POST /api/saved_objects/_bulk_get", "{}", 400, "must be an array"),
        (
            "POST /api/saved_objects/_bulk_create",
            "[{\"type\":\"search\",\"attributes\":1}]",
            400,
            "[0]: [attributes]",
        ),
        (EXPORT, "", 400, "[dashboard] is required"),
        (IMPORT, "", 400, "[file] is empty"),
        (IMPORT, "7", 400, "object 1: [object] must be an object"),
    ] {
        let message = refused(&node, line, body, status).await;
        assert!(message.contains(expected), "{line} {body}: {message}");
    }
}

#[tokio::test]
async fn one_object_lives() {
    let node = console().await;
    let path = "/api/saved_objects/index-pattern/a%2Fb";
    let body = json!({
        "attributes": { "title": "logs-*", "fields": { "a": 1, "b": 2 } },
        "references": [{ "name": "n", "type": "dashboard", "id": "d" }],
        "migrationVersion": { "index-pattern": "7.6.0" },
    });
    let created = ask(&node, &format!("POST {path}"), body.clone(), 200).await;
    assert_eq!((&created["id"], &created["type"]), (&json!("a/b"), &json!("index-pattern")));
    for name in ["attributes", "references", "migrationVersion"] {
        assert_eq!(created[name], body[name], "{name}");
    }
    assert!(created["updated_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(ask(&node, &format!("GET {path}"), Value::Null, 200).await, created);
    // A conflict, unless it is to be overwritten.
    let message = refused(&node, &format!("POST {path}"), &titled("x").to_string(), 409).await;
    assert_eq!(message, "Saved object [index-pattern/a/b] conflict");

    let partial = json!({ "attributes": { "fields": { "b": 3 } }, "version": created["version"] });
    let updated = ask(&node, &format!("PUT {path}"), partial.clone(), 200).await;
    let attributes = json!({ "title": "logs-*", "fields": { "a": 1, "b": 3 } });
    assert_eq!(updated["attributes"], attributes);
    assert_eq!(updated["references"], body["references"]);
    assert_ne!(updated["version"], created["version"]);
    // The version of before is one that somebody else has changed.
    refused(&node, &format!("PUT {path}"), &partial.to_string(), 409).await;
    let message = refused(&node, &format!("PUT {path}"), "{\"attributes\":{},\"version\":\"x\"}", 400).await;
    assert!(message.starts_with("[version]"), "{message}");
    assert_eq!(ask(&node, &format!("GET {path}"), Value::Null, 200).await, updated);

    let replaced = ask(&node, &format!("POST {path}?overwrite=true"), titled("new"), 200).await;
    assert_eq!(replaced["attributes"], json!({ "title": "new" }));
    assert_eq!(ask(&node, &format!("DELETE {path}"), Value::Null, 200).await, json!({}));
    refused(&node, &format!("GET {path}"), "", 404).await;

    let generated = ask(&node, "POST /api/saved_objects/search", titled("s"), 200).await;
    let id = generated["id"].as_str().unwrap();
    assert_eq!(id.len(), 36, "a UUID: {id}");
    assert_eq!(ask(&node, &format!("GET /api/saved_objects/search/{id}"), Value::Null, 200).await, generated);
}

#[tokio::test]
async fn objects_may_be_called_as_what_documents_have_under_them() {
    let node = console().await;
    for id in ["_search", "_count", "_bulk", "_mget", "_msearch", "_delete_by_query", "_find"] {
        let path = format!("/api/saved_objects/search/{id}");
        let created = ask(&node, &format!("POST {path}"), titled("t"), 200).await;
        assert_eq!(ask(&node, &format!("GET {path}"), Value::Null, 200).await, created);
        let updated = ask(&node, &format!("PUT {path}"), titled("u"), 200).await;
        assert_eq!((&updated["id"], &updated["attributes"]["title"]), (&json!(id), &json!("u")));
        ask(&node, &format!("DELETE {path}"), Value::Null, 200).await;
    }
}

#[tokio::test]
async fn many_objects() {
    let node = console().await;
    let created = ask(&node, "POST /api/saved_objects/_bulk_create", json!(objects()), 200).await;
    assert_eq!(comparable(created["saved_objects"].clone()), json!(objects()));
    let again = json!([objects()[0], { "type": "search", "id": "new", "attributes": { "title": "n" } }]);
    let answer = ask(&node, "POST /api/saved_objects/_bulk_create", again.clone(), 200).await;
    let conflict = json!({
        "id": "overview", "type": "dashboard",
        "error": { "statusCode": 409, "error": "Conflict", "message": "Saved object [dashboard/overview] conflict" },
    });
    assert_eq!(answer["saved_objects"][0], conflict);
    assert_eq!(answer["saved_objects"][1]["attributes"]["title"], "n");
    let answer = ask(&node, "POST /api/saved_objects/_bulk_create?overwrite=true", again, 200).await;
    assert!(answer["saved_objects"][0].get("error").is_none(), "{answer}");

    // The version of before is one that somebody else has changed.
    let version = |answer: &Value| answer["saved_objects"][0]["version"].clone();
    for (version, expected) in [(version(&created), json!(409)), (version(&answer), Value::Null)] {
        let mut overview = objects()[0].clone();
        overview["version"] = version;
        let both = json!([overview, { "type": "search", "id": "new", "attributes": { "title": "n" } }]);
        let answer = ask(&node, "POST /api/saved_objects/_bulk_create?overwrite=true", both, 200).await;
        assert_eq!(answer["saved_objects"][0]["error"]["statusCode"], expected, "{answer}");
        assert!(answer["saved_objects"][1].get("error").is_none(), "{answer}");
    }
    let other = json!([{ "type": "search", "id": "x", "version": 1, "attributes": { "title": "n" } }]);
    let message = refused(&node, "POST /api/saved_objects/_bulk_create", &other.to_string(), 400).await;
    assert!(message.contains("[version] must be a string"), "{message}");

    let wanted = json!([
        { "type": "index-pattern", "id": "logs", "fields": ["title"] },
        { "type": "dashboard", "id": "nowhere" },
        { "type": "map", "id": "m" },
        { "type": "search", "id": "latest" },
    ]);
    let answer = ask(&node, "POST /api/saved_objects/_bulk_get", wanted, 200).await;
    let found = &answer["saved_objects"];
    assert_eq!(found[0]["attributes"], json!({ "title": "logs-*" }));
    assert_eq!(found[1]["error"]["statusCode"], 404);
    assert_eq!(found[2]["error"]["message"], "Unsupported saved object type: 'map'");
    assert_eq!(found[3]["attributes"], objects()[2]["attributes"]);
    assert!(found[3]["version"].is_string());
}

#[tokio::test]
async fn objects_are_found() {
    let node = console().await;
    ask(&node, "POST /api/saved_objects/_bulk_create", json!(objects()), 200).await;
    let more = (0..25).map(|n| {
        let description = if n == 7 { "needle in hay" } else { "hay" };
        object(
            "visualization",
            &format!("v{n:02}"),
            json!({ "title": format!("Chart {n:02}"), "description": description }),
            json!([]),
        )
    });
    ask(&node, "POST /api/saved_objects/_bulk_create", json!(more.collect::<Vec<_>>()), 200).await;
    let find = async |query: &str| {
        let line = format!("GET /api/saved_objects/_find?{query}");
        let answer = ask(&node, &line, Value::Null, 200).await;
        (answer["total"].as_u64().unwrap(), keys(&answer["saved_objects"]), answer)
    };
    let (total, found, answer) =
        find("type=visualization&search=chart*&sort_field=title&sort_order=desc&page=2&per_page=10").await;
    assert_eq!((total, found.len()), (25, 10));
    assert_eq!((&answer["page"], &answer["per_page"]), (&json!(2), &json!(10)));
    assert_eq!((found[0].as_str(), found[9].as_str()), ("visualization:v14", "visualization:v05"));
    let first = &answer["saved_objects"][0];
    let stored = ask(&node, "GET /api/saved_objects/visualization/v14", Value::Null, 200).await;
    assert_eq!(first["version"], stored["version"]);
    assert_eq!(first["attributes"], stored["attributes"]);
    assert!(first["score"].is_number(), "{first}");

    let (total, found, _) = find("type=visualization").await;
    assert_eq!((total, found.len()), (26, 20), "a page has 20");
    let (_, found, _) = find("type=visualization&per_page=10000").await;
    assert_eq!(found.len(), 26);
    let (_, found, _) = find("type=visualization&search=needle").await;
    assert_eq!(found, ["visualization:v07"]);
    let (_, found, _) = find("type=visualization&search=needle&search_fields=title^2").await;
    assert_eq!(found, Vec::<String>::new());
    let (total, _, _) = find("type=visualization&search=chart+07").await;
    assert_eq!(total, 25, "any word will do");
    let (total, _, _) = find("type=visualization&search=chart+07&default_search_operator=AND").await;
    assert_eq!(total, 1);
    let reference = "%7B%22type%22:%22index-pattern%22,%22id%22:%22logs%22%7D";
    let (_, found, _) =
        find(&format!("type=visualization&type=search,dashboard&has_reference={reference}&sort_field=id"))
            .await;
    assert_eq!(found, ["visualization:errors", "search:latest"]);
    let (_, _, answer) = find("type=search&fields=title").await;
    assert_eq!(answer["saved_objects"][0]["attributes"], json!({ "title": "Latest" }));
    assert_eq!(answer["saved_objects"][0]["references"], objects()[2]["references"]);
}

#[tokio::test]
async fn what_is_exported_here_is_imported_elsewhere() {
    let (here, there) = (console().await, console().await);
    let line = format!("{EXPORT}?dashboard=overview");
    for (text, kind) in [
        (file().to_string(), "application/json"),
        (serde_json::to_string_pretty(&file()).unwrap(), "application/json"),
        (
            objects().iter().map(|object| format!("{object}\n")).collect::<String>()
                + "{\"exportedCount\":4,\"missingRefCount\":0,\"missingReferences\":[]}\n",
            "application/x-ndjson",
        ),
    ] {
        let headers = [XSRF, ("content-type", kind)];
        let answer = here.send(&format!("{IMPORT}?force=true"), &headers, text).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(comparable(answer["objects"].clone()), json!(objects()));
        assert!(answer.get("missing_references").is_none(), "{answer}");
        let exported = ask(&here, &line, Value::Null, 200).await;
        assert_eq!(exported["version"], "7.10.2");
        assert_eq!(comparable(exported["objects"].clone()), json!(objects()));
    }
    let exported = send(&here, &line, "").await;
    assert!(exported.headers["content-disposition"].to_str().unwrap().contains("dashboards.json"));
    ask(&there, IMPORT, exported.json(), 200).await;
    for id in ["overview", "dashboard:overview", "overview,dashboard:overview"] {
        let again = ask(&there, &format!("{EXPORT}?dashboard={id}"), Value::Null, 200).await;
        assert_eq!(
            comparable(again["objects"].clone()),
            comparable(exported.json()["objects"].clone()),
            "{id}"
        );
    }
    let twice =
        ask(&there, &format!("{EXPORT}?dashboard=nowhere&dashboard=overview"), Value::Null, 200).await;
    assert_eq!(
        keys(&twice["objects"]),
        [
            "dashboard:nowhere",
            "dashboard:overview",
            "visualization:errors",
            "search:latest",
            "index-pattern:logs"
        ]
    );
    assert_eq!(twice["objects"][0]["error"]["statusCode"], 404);
    // What could not be exported is nothing to import.
    let answer = ask(&console().await, IMPORT, twice, 200).await;
    assert_eq!(answer["objects"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn dashboards_with_a_comma_in_their_id_are_exported() {
    let node = console().await;
    let file = json!({ "objects": [object("dashboard", "a,b", json!({ "title": "t" }), json!([]))] });
    ask(&node, IMPORT, file, 200).await;
    ask(&node, "POST /api/saved_objects/dashboard/a", titled("t"), 200).await;
    for (query, expected) in [
        ("dashboard=a%2Cb", &["dashboard:a,b"][..]),
        ("dashboard=dashboard:a%2Cb&dashboard=a", &["dashboard:a,b", "dashboard:a"]),
        ("dashboard=a,dashboard:c", &["dashboard:a", "dashboard:c"]),
    ] {
        let exported = ask(&node, &format!("{EXPORT}?{query}"), Value::Null, 200).await;
        assert_eq!(keys(&exported["objects"]), expected, "{query}");
    }
}

#[tokio::test]
async fn an_export_has_so_many_objects() {
    let node = console().await;
    let put = async |panels: usize| {
        let panels = (0..panels).map(|n| json!({ "type": "search", "id": n.to_string() }));
        // What is exported already is no further object.
        let panels: Vec<Value> = panels.chain([json!({ "type": "dashboard", "id": "d" })]).collect();
        let body = json!({ "attributes": { "title": "t", "panelsJSON": json!(panels).to_string() } });
        ask(&node, "POST /api/saved_objects/dashboard/d?overwrite=true", body, 200).await
    };
    let line = format!("{EXPORT}?dashboard=d");
    put(9_999).await;
    let exported = ask(&node, &line, Value::Null, 200).await;
    assert_eq!(exported["objects"].as_array().unwrap().len(), 10_000);
    put(10_000).await;
    let message = refused(&node, &line, "", 400).await;
    assert!(message.contains("more than [10000] objects"), "{message}");
    let ids: Vec<String> = (0..10_001).map(|n| n.to_string()).collect();
    let message = refused(&node, &format!("{EXPORT}?dashboard={}", ids.join(",")), "", 400).await;
    assert!(message.contains("more than [10000] objects"), "{message}");
}

#[tokio::test]
async fn what_is_there_stays_unless_forced() {
    let node = console().await;
    ask(&node, "POST /api/saved_objects/search/latest", titled("mine"), 200).await;
    let answer = ask(&node, IMPORT, file(), 200).await;
    assert_eq!(answer["objects"][2]["error"]["statusCode"], 409, "{answer}");
    assert!([0, 1, 3].iter().all(|at: &usize| answer["objects"][*at].get("error").is_none()), "{answer}");
    let title = async || {
        let answer = ask(&node, "GET /api/saved_objects/search/latest", Value::Null, 200).await;
        answer["attributes"]["title"].clone()
    };
    assert_eq!(title().await, "mine");
    ask(&node, &format!("{IMPORT}?force=true&exclude=search"), file(), 200).await;
    assert_eq!(title().await, "mine");
    ask(&node, &format!("{IMPORT}?force=true"), file(), 200).await;
    assert_eq!(title().await, "Latest");
}

#[tokio::test]
async fn types_are_excluded_and_lost_references_told() {
    let node = console().await;
    let mut all = objects();
    all.push(object("lens", "l", json!({}), json!([])));
    let file = json!({ "objects": all });
    let line = format!("{IMPORT}?exclude=lens,index-pattern&exclude=search");
    let answer = ask(&node, &line, file, 200).await;
    assert_eq!(keys(&answer["objects"]), ["dashboard:overview", "visualization:errors"]);
    let lost = json!([
        { "type": "dashboard", "id": "overview", "references": [{ "type": "search", "id": "latest" }] },
        { "type": "visualization", "id": "errors", "references": [{ "type": "index-pattern", "id": "logs" }] },
    ]);
    assert_eq!(answer["missing_references"], lost);
    let exported = ask(&node, &format!("{EXPORT}?dashboard=overview"), Value::Null, 200).await;
    let missing =
        exported["objects"].as_array().unwrap().iter().filter(|object| object.get("error").is_some());
    assert_eq!(missing.count(), 2, "{exported}");
}

#[tokio::test]
async fn files_without_references_bring_all() {
    let node = console().await;
    let source = json!({ "index": "logs", "query": { "query": "", "language": "lucene" } }).to_string();
    let panels = json!([{ "panelIndex": "1", "type": "visualization", "id": "v" }]).to_string();
    let object = |kind: &str, id: &str, attributes: Value| json!({ "id": id, "type": kind, "version": 1, "attributes": attributes });
    let file = json!({ "version": "6.2.4", "objects": [
        object("dashboard", "d", json!({ "title": "D", "panelsJSON": panels })),
        object("visualization", "v", json!({ "title": "V", "savedSearchId": "s" })),
        object("search", "s", json!({ "title": "S", "kibanaSavedObjectMeta": { "searchSourceJSON": source } })),
        object("index-pattern", "logs", json!({ "title": "logs-*" })),
        object("index-pattern", "unused", json!({ "title": "unused" })),
    ] });
    let answer = ask(&node, IMPORT, file, 200).await;
    assert!(answer.get("missing_references").is_none(), "{answer}");
    let exported = ask(&node, &format!("{EXPORT}?dashboard=d"), Value::Null, 200).await;
    assert_eq!(
        keys(&exported["objects"]),
        ["dashboard:d", "visualization:v", "search:s", "index-pattern:logs"]
    );
}

#[tokio::test]
async fn hostile_files_change_nothing() {
    let node = console().await;
    let good = objects()[3].to_string();
    let deep = |depth: usize| {
        let value = "[".repeat(depth) + &"]".repeat(depth);
        format!(
            "{{\"objects\":[{good},{{\"id\":\"x\",\"type\":\"search\",\"attributes\":{{\"title\":\"t\",\"a\":{value}}}}}]}}"
        )
    };
    let many = |count: usize| {
        let object =
            |n: usize| format!("{{\"id\":\"{n}\",\"type\":\"search\",\"attributes\":{{\"title\":\"\"}}}}");
        (0..count).map(object).collect::<Vec<_>>()
    };
    let references = format!(
        "{{\"objects\":[{good},{{\"id\":\"x\",\"type\":\"search\",\"attributes\":{{\"title\":\"\"}},\"references\":[{}]}}]}}",
        ["{\"name\":\"\",\"type\":\"search\",\"id\":\"\"}"; 1_001].join(",")
    );
    let with = |object: &str| format!("{{\"objects\":[{good},{object}]}}");
    for (file, expected) in [
        (deep(10_000), "objects[1]: recursion limit exceeded"),
        (deep(130), "objects[1]: recursion limit exceeded"),
        ("[".repeat(100_000), "[file] cannot be read"),
        (format!("{{\"objects\":[{}]}}", "1,".repeat(100_000) + "1"), "more than [10000] objects"),
        (many(10_002).join("\n"), "more than [10000] objects"),
        (references, "objects[1]: [references] has more than [1000] elements"),
        (with("7"), "objects[1]: [object] must be an object"),
        (with("{}"), "objects[1]: [type] is required"),
        (with("{\"type\":\"search\",\"id\":7}"), "objects[1]: [id] must be a string"),
        (with("{\"type\":\"search\",\"id\":\"x\"}"), "objects[1]: [attributes] is required"),
        (with("{\"type\":\"search\",\"type\":\"search\"}"), "objects[1]: Duplicate field"),
        (with(&good), "objects[1]: [index-pattern:logs] is in the file twice, first as objects[0]"),
        (format!("{{\"objects\":[{good}]}} {{}}"), "goes on behind"),
        ("{\"objects\":{}}".to_owned(), "expected an array of objects"),
        (format!("{good}\n{good}}}\n"), "[file] cannot be read"),
        (format!("{good}\nnot json\n"), "[file] cannot be read: expected ident at line 2"),
        (format!("[{good}] {good}"), "goes on behind"),
        (format!("[{good},7]"), "objects[1]: [object] must be an object"),
    ] {
        let message = refused(&node, IMPORT, &file, 400).await;
        assert!(message.contains(expected), "{}: {message}", &file[..file.len().min(80)]);
    }
    let longest =
        json!({ "objects": [object("search", "x", json!({ "title": "x".repeat(1 << 20) }), json!([]))] });
    let message = refused(&node, IMPORT, &longest.to_string(), 413).await;
    assert!(message.contains("http.max_content_length"), "{message}");
    let found =
        ask(&node, "GET /api/saved_objects/_find?type=index-pattern&type=search", Value::Null, 200).await;
    assert_eq!(found["total"], 0, "nothing was imported");
    let file = format!("{{\"objects\":[{}]}}", many(10_000).join(","));
    let answer = send(&node, IMPORT, &file).await;
    assert_eq!(answer.status, 200, "{}", &answer.text()[..200]);
    assert_eq!(answer.json()["objects"].as_array().unwrap().len(), 10_000);
}

#[tokio::test]
async fn attributes_are_opaque() {
    let node = console().await;
    for (number, member) in [
        json!({ "": 1 }),
        json!({ ".": { "": [{}, 1] } }),
        json!({ "a..b": { "": [] } }),
        json!({ "title.x": 1 }),
        json!({ "description.keyword": { "y": "z" } }),
        json!({ "description": "d", "description.": [{}] }),
        json!({ "date": "2020-01-01", "n": [1, "x", { "y": null }] }),
        json!({ "_id": "x", "_source": {}, "type": 5, "x".repeat(10_000): 1 }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut attributes = member;
        attributes["title"] = json!("t");
        let line = format!("POST /api/saved_objects/dashboard/{number}");
        let created = ask(&node, &line, json!({ "attributes": attributes }), 200).await;
        assert_eq!(created["attributes"], attributes);
        let stored =
            ask(&node, &format!("GET /api/saved_objects/dashboard/{number}"), Value::Null, 200).await;
        assert_eq!(stored, created);
    }
    let found = ask(&node, "GET /api/saved_objects/_find?type=dashboard&search=t", Value::Null, 200).await;
    assert_eq!(found["total"], 8);
}

#[tokio::test]
async fn a_restart_keeps_objects() {
    let node = console().await;
    ask(&node, IMPORT, file(), 200).await;
    let line = format!("{EXPORT}?dashboard=overview");
    let before = ask(&node, &line, Value::Null, 200).await;
    let node = node.restarted().await.into_console();
    assert_eq!(ask(&node, &line, Value::Null, 200).await, before);
    let found = ask(&node, "GET /api/saved_objects/_find?type=dashboard", Value::Null, 200).await;
    assert_eq!(found["total"], 1);
}

#[tokio::test]
async fn users_of_the_data_api_are_those_of_the_console() {
    let data = Node::secured().await;
    let authorization = ("authorization", "Basic YWRtaW46c2VjcmV0");
    let data_service = data.service.clone();
    let mut node = data.into_console();
    let line = "POST /api/saved_objects/dashboard/a";
    for headers in [&[XSRF][..], &[XSRF, ("authorization", "Basic YWRtaW46d3Jvbmc=")]] {
        let answer = node.send(line, headers, titled("t").to_string()).await;
        assert_eq!((answer.status, &answer.json()["status"]), (401, &json!(false)));
        assert!(answer.headers.contains_key("www-authenticate"));
    }
    let answer = node.send(line, &[XSRF, authorization], titled("t").to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // A proxy in between may call the host whatever it likes.
    let page = [authorization, ("host", "console:5601"), ("origin", "https://console.example"), XSRF];
    for (headers, status) in [(&page[..], 200), (&page[..3], 403)] {
        let answer = node.send("POST /api/saved_objects/dashboard/b", headers, titled("t").to_string()).await;
        assert_eq!((answer.status, answer.json()["status"] == false), (status, status == 403));
    }
    // Searches do not come across their index.
    node.service = data_service;
    let answer = node.send("GET /_search", &[authorization], "").await;
    assert_eq!(answer.json()["hits"]["total"]["value"], 0, "{}", answer.text());
}
