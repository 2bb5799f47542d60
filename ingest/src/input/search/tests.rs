//! The inputs against servers that answer by a list.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::input::testing::{OptionValue, Pipeline, options};

/// A server that gives its answers in turn; returns the requests.
async fn serve(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let answering = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = Vec::new();
            while !is_whole(&request) {
                stream.read_buf(&mut request).await.unwrap();
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (address, answering)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn answer(body: &str) -> String {
    cut_answer(body.len(), body)
}

fn cut_answer(length: usize, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Runs an input to its end.
async fn run(name: &'static str, given: &[(&str, OptionValue)]) -> (Result<(), InputError>, Pipeline) {
    let search = Search::new(options(name, given), name).unwrap();
    let mut pipeline = Pipeline::new(4);
    let run = search.run(pipeline.context());
    let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
    (ended, pipeline)
}

#[tokio::test]
async fn pages_are_read_to_the_end() {
    let answers = [
        r#"{"_scroll_id":"s1","hits":{"hits":[{"_index":"a","_id":"1","_score":1,"_source":{"n":1}}]}}"#,
        r#"{"_scroll_id":"s2","hits":{"hits":[{"_index":"a","_id":"2","_source":{"n":2}},{"_id":"3"}]}}"#,
        r#"{"_scroll_id":"s2","hits":{"hits":[]}}"#,
        "{}",
    ];
    let (address, answering) = serve(answers.map(answer).to_vec()).await;
    let given = [
        ("hosts", address.into()),
        ("index", "a-*".into()),
        ("docinfo", "true".into()),
        ("docinfo_target", "[@metadata][doc]".into()),
        ("size", "2".into()),
        ("search_api", "scroll".into()),
        ("custom_headers", [("X-Custom", "yes")].into()),
    ];
    let (ended, pipeline) = run("elasticsearch", &given).await;
    ended.unwrap();
    let asked = answering.await.unwrap();
    assert!(
        asked[0].starts_with("POST /a-*/_search?scroll=1m") && asked[0].contains(r#""size":2"#),
        "{}",
        asked[0]
    );
    assert!(asked[1].contains(r#""scroll_id":"s1""#) && asked[2].contains(r#""scroll_id":"s2""#));
    assert!(asked[3].starts_with("DELETE /_search/scroll"));
    assert!(asked.iter().all(|request| request.contains("x-custom: yes")), "{asked:?}");
    assert_eq!(pipeline.events.len(), 3);
    assert_eq!(pipeline.events[1].fields()["n"], 2);
    assert_eq!(pipeline.events[0].metadata()["doc"], json!({"_index": "a", "_id": "1"}));
}

#[tokio::test]
async fn pages_follow_sort_values_at_a_point_in_time() {
    for (version, opened, open, sort, close) in [
        (
            r#"{"version":{"number":"8.17.1"}}"#,
            r#"{"id":"p1"}"#,
            "POST /a/_pit?keep_alive=5m",
            json!(["_doc"]),
            ("DELETE /_pit", json!({"id": "p2"})),
        ),
        (
            r#"{"version":{"number":"3.1.0","distribution":"opensearch"}}"#,
            r#"{"pit_id":"p1","creation_time":1}"#,
            "POST /a/_search/point_in_time?keep_alive=5m",
            json!([{"_id": "asc"}, {"_index": "asc"}]),
            ("DELETE /_search/point_in_time", json!({"pit_id": ["p2"]})),
        ),
    ] {
        let answers = [
            version,
            opened,
            r#"{"pit_id":"p2","hits":{"hits":[{"_source":{"n":1},"sort":[7]},{"_source":{"n":2},"sort":[9007199254740993]}]}}"#,
            r#"{"hits":{"hits":[{"_source":{"n":3},"sort":[9]}]}}"#,
            r#"{"hits":{"hits":[]}}"#,
            "{}",
        ];
        let (address, answering) = serve(answers.map(answer).to_vec()).await;
        let given = [
            ("hosts", address.into()),
            ("index", "a".into()),
            ("scroll", "5m".into()),
            ("search_api", "search_after".into()),
        ];
        let (ended, pipeline) = run("elasticsearch", &given).await;
        ended.unwrap();
        let numbers: Vec<&Value> = pipeline.events.iter().map(|event| &event.fields()["n"]).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let asked = answering.await.unwrap();
        let body = |at: usize| -> Value {
            serde_json::from_str(asked[at].split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
        };
        assert!(asked[0].starts_with("GET / ") && asked[1].starts_with(open), "{asked:?}");
        assert_eq!(body(1), Value::Null, "opening has no body");
        assert!(asked[2].starts_with("POST /_search "), "{asked:?}");
        assert_eq!(body(2), json!({"pit": {"id": "p1", "keep_alive": "5m"}, "size": 1000, "sort": sort}));
        assert_eq!(body(3)["search_after"], json!([9_007_199_254_740_993_i64]));
        assert_eq!((&body(3)["pit"]["id"], &body(4)["search_after"]), (&json!("p2"), &json!([9])));
        assert!(asked[5].starts_with(close.0), "{asked:?}");
        assert_eq!(body(5), close.1);
    }
}

#[tokio::test]
async fn slices_are_read_beside_each_other() {
    for api in ["scroll", "search_after"] {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        // Two pages a slice: a document, and none.
        let answering = tokio::spawn(async move {
            let mut closed = Vec::new();
            while closed.len() < if api == "scroll" { 3 } else { 1 } {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut request = Vec::new();
                while !is_whole(&request) {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let request = String::from_utf8(request).unwrap();
                let body: Value =
                    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap_or_default();
                let body = match (&body["slice"], &body["search_after"], &body["scroll_id"]) {
                    _ if request.starts_with("GET / ") => json!({"version": {"number": "8.1.0"}}),
                    _ if request.starts_with("POST /a/_pit") => json!({"id": "p1"}),
                    _ if request.starts_with("DELETE") => {
                        closed.push(body);
                        json!({})
                    }
                    (Value::Object(slice), Value::Null, _) => {
                        assert_eq!(slice["max"], 3);
                        let hit = json!({"_source": {"slice": slice["id"]}, "sort": [slice["id"]]});
                        json!({"_scroll_id": format!("s{}", slice["id"]), "hits": {"hits": [hit]}})
                    }
                    (Value::Object(slice), after, _) => {
                        assert_eq!(after[0], slice["id"]);
                        json!({"hits": {"hits": []}})
                    }
                    _ => json!({"hits": {"hits": []}}),
                };
                stream.write_all(answer(&body.to_string()).as_bytes()).await.unwrap();
            }
            closed.iter().map(Value::to_string).collect::<Vec<_>>()
        });
        let given = [
            ("hosts", address.into()),
            ("index", "a".into()),
            ("slices", "3".into()),
            ("search_api", api.into()),
        ];
        let (ended, pipeline) = run("elasticsearch", &given).await;
        ended.unwrap();
        let mut slices: Vec<_> =
            pipeline.events.iter().map(|event| event.fields()["slice"].as_u64()).collect();
        slices.sort_unstable();
        assert_eq!(slices, [Some(0), Some(1), Some(2)]);
        let mut closed = answering.await.unwrap();
        closed.sort_unstable();
        match api {
            "scroll" => assert_eq!(closed, [0, 1, 2].map(|n| format!(r#"{{"scroll_id":["s{n}"]}}"#))),
            _ => assert_eq!(closed, [r#"{"id":"p1"}"#]),
        }
    }
}

#[tokio::test]
async fn a_slice_that_fails_ends_the_search() {
    let failed = r#"{"_shards":{"failed":1},"hits":{"hits":[]}}"#;
    let (address, answering) = serve([failed, failed].map(answer).to_vec()).await;
    let given = [("hosts", address.into()), ("slices", "2".into()), ("search_api", "scroll".into())];
    let (ended, pipeline) = run("opensearch", &given).await;
    assert!(ended.unwrap_err().to_string().contains("documents are missing"));
    assert!(pipeline.events.is_empty());
    answering.abort();
    for (name, value) in [("query", r#"{"slice": {"id": 0, "max": 2}}"#), ("response_type", "aggregations")] {
        let given = [("slices", "2".into()), (name, value.into())];
        let faults = Search::new(options("opensearch", &given), "opensearch").unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains("[slices]")), "{faults:?}");
    }
}

#[tokio::test]
async fn the_version_of_the_server_chooses_the_pages() {
    let page = r#"{"hits":{"hits":[]}}"#;
    for (version, expected) in [
        (r#"{"version":{"number":"7.17.0"}}"#, "POST /a/_search?scroll=1m"),
        (r#"{"version":{"number":"2.19.0","distribution":"opensearch"}}"#, "POST /a/_search?scroll=1m"),
        (r#"{"tagline":"none"}"#, "POST /a/_search?scroll=1m"),
        (r#"{"version":{"number":"9.0.0"}}"#, "POST /a/_pit?keep_alive=1m"),
    ] {
        let mut answers = vec![answer(version)];
        if expected.contains("_pit") {
            answers.push(answer(r#"{"id":"p"}"#));
            answers.extend([answer(page), answer("{}")]);
        } else {
            answers.push(answer(page));
        }
        let (address, answering) = serve(answers).await;
        let (ended, _) = run("elasticsearch", &[("hosts", address.into()), ("index", "a".into())]).await;
        ended.unwrap();
        let asked = answering.await.unwrap();
        assert!(asked[1].starts_with(expected), "{version}: {asked:?}");
    }
}

#[tokio::test]
async fn aggregations_are_an_event() {
    let found = r#"{"hits":{"hits":[]},"aggregations":{"by":{"buckets":[{"key":"a","doc_count":2}]}}}"#;
    let given = |address: String| {
        [
            ("hosts", address.into()),
            ("response_type", "aggregations".into()),
            ("query", r#"{"aggs":{"by":{"terms":{"field":"a"}}}}"#.into()),
        ]
    };
    let (address, answering) = serve(vec![answer(found)]).await;
    let (ended, pipeline) = run("opensearch", &given(address)).await;
    ended.unwrap();
    assert!(answering.await.unwrap()[0].contains(r#""size":0"#));
    assert_eq!(pipeline.events.len(), 1);
    assert_eq!(pipeline.events[0].fields()["by"]["buckets"][0]["doc_count"], 2);
    let (address, _answering) = serve(vec![answer(r#"{"hits":{"hits":[]}}"#)]).await;
    let (ended, _) = run("opensearch", &given(address)).await;
    assert!(ended.unwrap_err().to_string().contains("no aggregations"));
}

#[tokio::test]
async fn a_request_for_the_next_page_is_sent_once() {
    let first = r#"{"_scroll_id":"s1","hits":{"hits":[{"_source":{"n":1}}]}}"#;
    let partial = r#"{"_scroll_id":"s1","_shards":{"failed":1},"hits":{"hits":[{"_source":{"n":1}}]}}"#;
    // The second page breaks off; in the other case, a shard did not answer for the first.
    for (answers, expected, read) in [
        (vec![answer(first), cut_answer(100, "{"), answer("{}")], "the search failed", 1),
        (vec![answer(partial)], "documents are missing", 0),
    ] {
        let (address, answering) = serve(answers).await;
        let given = [("hosts", address.into()), ("search_api", "scroll".into())];
        let (ended, pipeline) = run("opensearch", &given).await;
        assert!(ended.as_ref().unwrap_err().to_string().contains(expected), "{ended:?}");
        let asked = answering.await.unwrap();
        assert!(asked.get(2).is_none_or(|last| last.starts_with("DELETE")), "{asked:?}");
        assert_eq!(pipeline.events.len(), read);
    }
}

#[test]
fn options_are_checked() {
    let faults = Search::new(
        options(
            "opensearch",
            &[("query", "[1]".into()), ("cloud_id", "x".into()), ("hosts", "ftp://x".into())],
        ),
        "opensearch",
    )
    .unwrap_err();
    let all = faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n");
    for part in ["[query] must be an object", "[cloud_id] cannot be read", "host [ftp://x]"] {
        assert!(all.contains(part), "{part}: {all}");
    }
}
