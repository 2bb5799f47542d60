//! Endpoints of searches as clients send them: lines, typed paths, methods.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

async fn documents() -> Node {
    let node = Node::insecure().await;
    for (id, tag) in [("1", "a"), ("2", "b"), ("3", "a")] {
        let body = json!({"tag": tag, "n": id.parse::<u32>().unwrap()}).to_string();
        node.ask(&format!("PUT /docs/_doc/{id}?refresh=true"), &body, 201).await;
    }
    node
}

#[tokio::test]
async fn several_searches_come_line_by_line() {
    let node = documents().await;
    let lines = "{\"index\":\"docs\"}\n{\"query\":{\"term\":{\"tag.keyword\":\"a\"}}}\n\n{\"size\":1}\n{\"index\":\"gone\"}\n{}\n";
    let headers = [("content-type", "application/x-ndjson")];
    let answer = node.send("POST /docs/_msearch?rest_total_hits_as_int=true", &headers, lines).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["responses"][0]["hits"]["total"], 2);
    assert_eq!(answer["responses"][1]["hits"]["hits"].as_array().unwrap().len(), 1);
    assert_eq!(answer["responses"][2]["status"], 404);
    for (lines, reason) in [
        ("{}\n{}", "The msearch request must be terminated by a newline [\n]"),
        ("", "request body or source parameter is required"),
        ("{}\n", "Validation Failed: 1: no requests added;"),
        ("{\"foo\":1}\n{}\n", "key [foo] is not supported in the metadata section"),
    ] {
        let answer = node.send("POST /_msearch", &headers, lines).await;
        assert_eq!((answer.status, &answer.json()["error"]["reason"]), (400, &json!(reason)));
    }
}

#[tokio::test]
async fn paths_lead_to_every_endpoint_of_searches() {
    let node = documents().await;
    let opened = node.ask("POST /docs/_search/point_in_time?keep_alive=1m", "", 200).await;
    let pit = json!({"pit": {"id": opened["pit_id"]}, "size": 0});
    let everything = json!({"query": {"match_all": {}}});
    play(
        &node,
        vec![
            Step::new("POST /_search", pit.clone(), 200, &[("/hits/total/value", json!(3))]),
            Step::new("POST /docs/_search", pit.clone(), 400, &[]),
            Step::new(
                "GET /_search/point_in_time/_all",
                Value::Null,
                200,
                &[("/pits/0/keep_alive", json!(60_000))],
            ),
            Step::new("GET /_search/point_in_time", Value::Null, 405, &[]),
            Step::new(
                "DELETE /_search/point_in_time/_all",
                Value::Null,
                200,
                &[("/pits/0/successful", json!(true))],
            ),
            Step::new("POST /_search", pit, 404, &[]),
            Step::new("GET /docs/_explain/1", everything.clone(), 200, &[("/explanation/value", json!(1.0))]),
            Step::new(
                "POST /docs/t/9/_explain",
                everything.clone(),
                404,
                &[("/matched", json!(false)), ("/_type", json!("t"))],
            ),
            Step::new(
                "GET /docs/_explain/1",
                Value::Null,
                400,
                &[("/error/type", json!("action_request_validation_exception"))],
            ),
            Step::new("GET /docs*/_explain/1", everything.clone(), 404, &[]),
            Step::new(
                "GET /docs/_validate/query?explain=true",
                everything,
                200,
                &[("/explanations/0/explanation", json!("*:*"))],
            ),
            Step::new(
                "GET /_validate/query",
                json!({"query": {"boool": {}}}),
                200,
                &[("/valid", json!(false))],
            ),
            Step::new("GET /nope*/_validate/query", Value::Null, 404, &[]),
            Step::new(
                "GET /docs/_field_caps?fields=n",
                Value::Null,
                200,
                &[("/fields/n/long/aggregatable", json!(true))],
            ),
            Step::new("GET /docs/_count?min_score=2", Value::Null, 200, &[("/count", json!(0))]),
            Step::new(
                "GET /docs/_search?preference=_nope",
                Value::Null,
                400,
                &[("/error/reason", json!("no Preference for [_nope]"))],
            ),
            Step::new(
                "GET /docs/_search?from=-1",
                Value::Null,
                400,
                &[("/error/reason", json!("[from] parameter cannot be negative, found [-1]"))],
            ),
        ],
    )
    .await;
    let unreadable = node.ask("GET /docs/_validate/query?explain=true", "{\"query", 200).await;
    assert_eq!(unreadable["valid"], false);
    assert!(unreadable["error"].as_str().unwrap().starts_with("ParsingException[Failed to parse]"));
}

#[tokio::test]
async fn pipelines_are_answered_in_their_formats() {
    let node = documents().await;
    let pipeline =
        json!({"query": "source=docs | stats count() as n by tag | sort tag | fields tag, n"}).to_string();
    let headers = [("content-type", "application/json")];
    for (line, text) in [
        ("POST /_plugins/_ppl?format=csv", "tag,n\na,2\nb,1\n"),
        ("POST /_opendistro/_ppl?format=raw", "tag|n\na|2\nb|1\n"),
    ] {
        let answer = node.send(line, &headers, pipeline.clone()).await;
        assert_eq!((answer.status, answer.text()), (200, text));
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    let rows = node.ask("POST /_plugins/_ppl?format=jdbc", &pipeline, 200).await;
    assert_eq!(rows["datarows"], json!([["a", 2], ["b", 1]]));
    let drawn = node.ask("POST /_plugins/_ppl?format=viz", &pipeline, 200).await;
    assert_eq!(drawn["data"], json!({"tag": ["a", "b"], "n": [2, 1]}));
    let plans = node.send("POST /_plugins/_ppl/_explain?format=yaml", &headers, pipeline).await;
    assert_eq!(plans.status, 200);
    assert!(plans.text().starts_with("---\ncalcite:"), "{}", plans.text());
    let grammar = node.ask("GET /_plugins/_ppl/_grammar", "", 400).await;
    assert_eq!(grammar["error"]["type"], "unsupported_operation_exception", "{grammar}");
}

#[tokio::test]
async fn statements_of_sql_are_answered_in_their_formats() {
    let node = documents().await;
    let statement = |query: &str| json!({ "query": query }).to_string();
    let grouped = statement("SELECT tag, count(*) AS n FROM docs GROUP BY tag ORDER BY tag");
    let answer = node.ask("POST /_plugins/_sql", &grouped, 200).await;
    assert_eq!(answer["datarows"], json!([["a", 2], ["b", 1]]));
    assert_eq!(answer["schema"][1], json!({"name": "count(*)", "alias": "n", "type": "integer"}));
    assert_eq!((&answer["total"], &answer["size"], &answer["status"]), (&json!(2), &json!(2), &json!(200)));
    let headers = [("content-type", "application/json")];
    for (line, text) in [
        ("POST /_plugins/_sql?format=csv", "tag,n\na,2\nb,1\n"),
        ("POST /_opendistro/_sql?format=raw", "tag|n\na|2\nb|1\n"),
    ] {
        let answer = node.send(line, &headers, grouped.clone()).await;
        assert_eq!((answer.status, answer.text()), (200, text));
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    let formula = statement("SELECT '=1+1' AS f, 'a,b' AS g");
    let answer = node.send("POST /_plugins/_sql?format=csv&sanitize=false", &headers, formula.clone()).await;
    assert_eq!(answer.text(), "f,g\n=1+1,a,b\n");
    let answer = node.send("POST /_plugins/_sql?format=csv", &headers, formula).await;
    assert_eq!(answer.text(), "f,g\n'=1+1,\"a,b\"\n");
    let explained = node.ask("POST /_plugins/_sql/_explain", &grouped, 200).await;
    assert_eq!(explained["aggregations"]["tag.keyword"]["terms"]["field"], "tag.keyword");
    for (query, status, kind, details) in [
        ("SELECT gone FROM docs", 400, "SemanticCheckException", "name=gone"),
        ("SELECT tag FROM gone", 404, "IndexNotFoundException", "no such index [gone]"),
        ("SELECT tag FROM", 400, "SyntaxCheckException", "Expected"),
    ] {
        let answer = node.ask("POST /_plugins/_sql", &statement(query), status).await;
        assert_eq!((&answer["error"]["type"], &answer["status"]), (&json!(kind), &json!(status)));
        assert!(answer["error"]["details"].as_str().unwrap().contains(details), "{answer}");
    }
    let answer = node.ask("POST /_plugins/_sql?format=xml", &grouped, 400).await;
    assert_eq!(answer["error"]["details"], "response in xml format is not supported.");
    node.ask("GET /_plugins/_sql", "", 405).await;
}

#[tokio::test]
async fn statements_of_sql_are_read_on_with_cursors_and_may_delete() {
    let node = documents().await;
    let paged = json!({"query": "SELECT tag FROM docs", "fetch_size": 2}).to_string();
    let first = node.ask("POST /_plugins/_sql", &paged, 200).await;
    assert_eq!((&first["total"], &first["size"]), (&json!(3), &json!(2)));
    let cursor = json!({"cursor": first["cursor"]}).to_string();
    let last = node.ask("POST /_opendistro/_sql", &cursor, 200).await;
    assert_eq!((last["datarows"].as_array().unwrap().len(), last.get("cursor")), (1, None));
    assert_eq!(node.ask("POST /_plugins/_sql", &cursor, 404).await["status"], 404);
    assert_eq!(node.ask("POST /_plugins/_sql/close", &cursor, 200).await, json!({"succeeded": true}));
    node.ask("POST /_plugins/_sql/close", r#"{"cursor": "what"}"#, 400).await;

    let deletion = json!({"query": "DELETE FROM docs WHERE tag = 'b'"}).to_string();
    let refused = node.ask("POST /_plugins/_sql", &deletion, 400).await;
    assert_eq!(refused["error"]["type"], "SQLFeatureDisabledException");
    let set = |name: &str| json!({"transient": {name: "true"}}).to_string();
    let answer = node.ask("PUT /_plugins/_query/settings", &set("plugins.sql.delete.enabled"), 200).await;
    let shown = json!({"plugins": {"sql": {"delete": {"enabled": "true"}}}});
    assert_eq!(answer, json!({"acknowledged": true, "persistent": {}, "transient": shown}));
    node.ask("PUT /_plugins/_query/settings", &set("action.destructive_requires_name"), 400).await;
    assert_eq!(node.ask("POST /_plugins/_sql", &deletion, 200).await["datarows"], json!([[1]]));
}
