//! Tasks: listed, waited for, cancelled, and their results once nobody waits.

use std::time::Duration;

use millrace_runtime::Instant;
use serde_json::{Value, json};

use crate::support::{Node, Step, play};

/// Longest time from a cancellation to the end of the work.
const CANCEL_TIME: Duration = Duration::from_millis(100);

async fn index_documents(node: &Node, count: usize) {
    let lines: String = (0..count).map(|n| format!("{{\"index\":{{}}}}\n{{\"n\":{n}}}\n")).collect();
    let headers = [("content-type", "application/x-ndjson")];
    assert_eq!(node.send("POST /a/_bulk?refresh=true", &headers, lines).await.status, 200);
}

/// Returns the first task of an action, once there is one.
async fn running_task(node: &Node, actions: &str) -> Value {
    loop {
        let listed =
            node.ask(&format!("GET /_tasks?actions={actions}&detailed&group_by=none"), "", 200).await;
        if let Some(task) = listed["tasks"].as_array().and_then(|tasks| tasks.first()) {
            return task.clone();
        }
        tokio::task::yield_now().await;
    }
}

fn id_of(task: &Value) -> String {
    format!("{}:{}", task["node"].as_str().unwrap(), task["id"])
}

#[tokio::test]
async fn a_deletion_is_listed_and_cancelled_and_says_how_far_it_came() {
    let node = Node::insecure().await;
    index_documents(&node, 100).await;
    let headers = [("x-opaque-id", "mine")];
    // The refresh that it asks for is left out once it is cancelled.
    let line = "POST /a/_delete_by_query?requests_per_second=1&scroll_size=10&refresh=true";
    let deletion = node.send(line, &headers, json!({"query": {"match_all": {}}}).to_string());
    let observation = async {
        let mut task = running_task(&node, "*byquery").await;
        while task["status"]["deleted"] != json!(10) {
            task = running_task(&node, "*byquery").await;
        }
        assert_eq!(task["action"], "indices:data/write/delete/byquery");
        assert_eq!(task["headers"], json!({"X-Opaque-Id": "mine"}));
        assert_eq!((&task["cancellable"], &task["cancelled"]), (&json!(true), &json!(false)));
        let description = "indices[a], source[{\"query\":{\"match_all\":{}}}]";
        assert_eq!(task["description"], description);
        let id = id_of(&task);
        let shown = node.ask(&format!("GET /_tasks/{id}"), "", 200).await;
        assert_eq!((&shown["completed"], &shown["task"]["id"]), (&json!(false), &task["id"]));
        let table = node.send("GET /_cat/tasks?actions=*byquery&h=task_id,x_opaque_id", &[], "").await;
        assert_eq!(table.text().trim(), format!("{id} mine"));
        let began = Instant::now();
        let cancelled = node.ask(&format!("POST /_tasks/{id}/_cancel"), "", 200).await;
        let node_id = task["node"].as_str().unwrap();
        assert_eq!(cancelled["nodes"][node_id]["tasks"][&id]["cancelled"], true, "{cancelled}");
        began
    };
    let (answer, began) = tokio::join!(deletion, observation);
    assert!(began.elapsed() < CANCEL_TIME, "{:?}", began.elapsed());
    let answer = answer.json();
    assert_eq!(
        (&answer["canceled"], &answer["deleted"]),
        (&json!("by user request"), &json!(10)),
        "{answer}"
    );
    assert_eq!(node.ask("GET /a/_count", "", 200).await["count"], 100);
    assert_eq!(node.ask("GET /_tasks?actions=*byquery", "", 200).await, json!({"nodes": {}}));
}

#[tokio::test]
async fn a_request_that_reads_ends_at_once_when_it_is_cancelled() {
    let node = Node::insecure().await;
    index_documents(&node, 20).await;
    let body = json!({"query": {"match_all": {}}}).to_string();
    let line = "POST /a/_delete_by_query?requests_per_second=1&scroll_size=10&wait_for_completion=false";
    let deletion = node.ask(line, &body, 200).await["task"].as_str().unwrap().to_owned();
    let waiting = format!("GET /_tasks/{deletion}?wait_for_completion=true&timeout=1h");
    let waiting = node.send(&waiting, &[], "");
    let cancellation = async {
        let task = running_task(&node, "cluster:monitor/task/get").await;
        let began = Instant::now();
        node.ask(&format!("POST /_tasks/{}/_cancel?wait_for_completion=true", id_of(&task)), "", 200).await;
        began
    };
    let (answer, began) = tokio::join!(waiting, cancellation);
    assert!(began.elapsed() < CANCEL_TIME, "{:?}", began.elapsed());
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["type"], "task_cancelled_exception");
    assert_eq!(answer.json()["error"]["reason"], "task cancelled [by user request]");
    // The deletion goes on, and is cancelled with all others of its action.
    let cancelled = node.ask("POST /_tasks/_cancel?actions=*byquery&group_by=none", "", 200).await;
    assert_eq!(cancelled["tasks"].as_array().map(Vec::len), Some(1), "{cancelled}");
    let ended = node.ask(&format!("GET /_tasks/{deletion}?wait_for_completion=true"), "", 200).await;
    assert_eq!(
        (&ended["completed"], &ended["response"]["canceled"]),
        (&json!(true), &json!("by user request"))
    );
}

#[tokio::test]
async fn a_cancelled_deletion_of_sql_says_how_much_it_has_deleted() {
    const DOCUMENTS: u64 = 5_000;
    let node = Node::insecure().await;
    index_documents(&node, DOCUMENTS as usize).await;
    let enabled = json!({"transient": {"plugins.sql.delete.enabled": "true"}}).to_string();
    node.ask("PUT /_plugins/_query/settings", &enabled, 200).await;
    let deletion = json!({"query": "DELETE FROM a"}).to_string();
    let deletion = node.send("POST /_plugins/_sql", &[], deletion);
    let cancellation = async {
        running_task(&node, "*sql").await;
        // The first batch is at work or done.
        while node.ask("GET /a/_stats/indexing", "", 200).await["_all"]["total"]["indexing"]["delete_total"]
            == json!(0)
        {
            tokio::task::yield_now().await;
        }
        node.ask("POST /_tasks/_cancel?actions=*sql", "", 200).await;
    };
    let (answer, ()) = tokio::join!(deletion, cancellation);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "TaskCancelledException", "{error}");
    let details = error["details"].as_str().unwrap();
    let count = details.strip_prefix("task cancelled [by user request]; [").unwrap();
    let count: u64 = count.split(']').next().unwrap().parse().unwrap();
    assert!(count > 0 && count < DOCUMENTS, "{details}");
    assert_eq!(node.ask("GET /a/_count", "", 200).await["count"], DOCUMENTS - count);
}

#[tokio::test]
async fn results_of_tasks_without_a_waiting_caller_are_stored() {
    let node = Node::insecure().await;
    index_documents(&node, 30).await;
    let ends = async |line: &str, body: &str| {
        let id = node.ask(line, body, 200).await["task"].as_str().unwrap().to_owned();
        (node.ask(&format!("GET /_tasks/{id}?wait_for_completion=true"), "", 200).await, id)
    };
    let all = json!({"query": {"range": {"n": {"lt": 20}}}}).to_string();
    let (deleted, id) = ends("POST /a/_delete_by_query?wait_for_completion=false&refresh=true", &all).await;
    assert_eq!((&deleted["completed"], &deleted["response"]["deleted"]), (&json!(true), &json!(20)));
    assert_eq!(deleted["task"]["action"], "indices:data/write/delete/byquery");
    assert_eq!(node.ask("GET /a/_count", "", 200).await["count"], 10);
    let (merged, _) = ends("POST /a/_forcemerge?max_num_segments=1&wait_for_completion=false", "").await;
    assert_eq!(merged["response"]["_shards"]["successful"], 1, "{merged}");
    // What is wrong with a request is told before there is a task.
    let wrong = "POST /a/_delete_by_query?wait_for_completion=false";
    node.ask(wrong, "{}", 400).await;
    node.ask("POST /b/_delete_by_query?wait_for_completion=false", &all, 404).await;
    let node = node.restarted().await;
    assert_eq!(node.ask(&format!("GET /_tasks/{id}"), "", 200).await, deleted);
    // The results are the server's own.
    node.ask("PUT /.tasks/_doc/1", "{}", 403).await;
}

#[tokio::test]
async fn requests_about_tasks_are_checked() {
    let node = Node::insecure().await;
    let own = node.ask("GET /_tasks?group_by=none", "", 200).await["tasks"][0].clone();
    let node_id = own["node"].as_str().unwrap();
    assert_eq!((&own["action"], &own["type"]), (&json!("cluster:monitor/tasks/lists"), &json!("transport")));
    let ended = format!("{node_id}:1");
    let no_record = format!("task [{ended}] isn't running and hasn't stored its results");
    let none = Value::Null;
    play(
        &node,
        vec![
            Step::new(
                "GET /_tasks/nonsense",
                none.clone(),
                400,
                &[("/error/reason", json!("malformed task id nonsense"))],
            ),
            Step::new("GET /_tasks/a:b", none.clone(), 400, &[]),
            Step::new("GET /_tasks/:1", none.clone(), 400, &[]),
            Step::new("GET /_tasks/a:-1", none.clone(), 400, &[]),
            Step::new("GET /_tasks/a:99999999999999999999", none.clone(), 400, &[]),
            Step::new(
                &format!("GET /_tasks/{ended}"),
                none.clone(),
                404,
                &[("/error/reason", json!(no_record))],
            ),
            Step::new("GET /_tasks/other:1", none.clone(), 404, &[]),
            Step::new("GET /_tasks?group_by=stars", none.clone(), 400, &[]),
            Step::new("GET /_tasks?parent_task_id=x", none.clone(), 400, &[]),
            Step::new("GET /_tasks?nodes=other", none.clone(), 200, &[("", json!({"nodes": {}}))]),
            Step::new(
                "GET /_tasks?nodes=_local&actions=*none*",
                none.clone(),
                200,
                &[("", json!({"nodes": {}}))],
            ),
            Step::new("GET /_tasks?wrong=1", none.clone(), 400, &[]),
            Step::new("DELETE /_tasks", none.clone(), 405, &[]),
            Step::new("POST /_tasks/other:1/_cancel", none.clone(), 404, &[]),
            Step::new(
                &format!("POST /_tasks/{ended}/_cancel"),
                none.clone(),
                200,
                &[
                    ("/node_failures/0/caused_by/type", json!("resource_not_found_exception")),
                    ("/nodes", json!({})),
                ],
            ),
            Step::new("POST /_tasks/_cancel?actions=none", none.clone(), 200, &[("", json!({"nodes": {}}))]),
        ],
    )
    .await;
    let long = format!("GET /_tasks/{}:1", "x".repeat(10_000));
    assert_eq!(node.send(&long, &[], "").await.status, 404);
}

#[tokio::test]
async fn hot_threads_name_the_pools() {
    let node = Node::insecure().await;
    let answer = node.send("GET /_nodes/hot_threads?ignore_idle_threads=false&threads=5", &[], "").await;
    assert_eq!(answer.status, 200);
    for pool in ["read", "ingest", "flush", "follow", "maintain", "snapshot", "spare"] {
        assert!(answer.text().contains(&format!("pool [{pool}]: ")), "{}", answer.text());
    }
    assert_eq!(node.send("GET /_nodes/other/hot_threads", &[], "").await.text(), "");
    node.ask("GET /_nodes/hot_threads?threads=0", "", 400).await;
    node.ask("GET /_nodes/hot_threads?type=gpu", "", 400).await;
}
