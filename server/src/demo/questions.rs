//! The questions that the demo asks, as `curl` lines, and a small table of the answers.

use std::fmt::Write;

use serde_json::{Value, json};

use super::events::{ATTACKER, TARGET, VICTIM};

/// Something to ask.
#[derive(Debug)]
pub(super) struct Question {
    /// In words.
    pub(super) title: &'static str,
    /// Path with leading slash.
    pub(super) path: &'static str,
    /// Body.
    pub(super) body: Value,
}

/// Returns the questions in the order of the story.
pub(super) fn all() -> Vec<Question> {
    let newest = json!([{"@timestamp": "desc"}]);
    vec![
        Question {
            title: "how many requests failed on the server's side",
            path: "/demo-web/_count",
            body: json!({"query": {"range": {"http.status": {"gte": 500}}}}),
        },
        Question {
            title: "the latest failed checkouts",
            path: "/demo-web/_search",
            body: json!({
                "size": 2,
                "sort": newest,
                "track_total_hits": true,
                "query": {"bool": {
                    "must": [{"match": {"url.path": "checkout"}}],
                    "filter": [{"range": {"http.status": {"gte": 500}}}],
                }},
            }),
        },
        Question {
            title: "failed logins from one address",
            path: "/demo-auth/_search",
            body: json!({
                "size": 2,
                "sort": newest,
                "track_total_hits": true,
                "query": {"bool": {"filter": [
                    {"term": {"source.ip": ATTACKER}},
                    {"term": {"event.outcome": "failure"}},
                ]}},
            }),
        },
        Question {
            title: "did that address get in",
            path: "/demo-auth/_search",
            body: json!({
                "size": 2,
                "track_total_hits": true,
                "query": {"bool": {"filter": [
                    {"term": {"source.ip": ATTACKER}},
                    {"term": {"event.outcome": "success"}},
                ]}},
            }),
        },
        Question {
            title: "what the stolen account ran as root on that host",
            path: "/demo-auth/_search",
            body: json!({
                "size": 2,
                "sort": newest,
                "track_total_hits": true,
                "query": {"bool": {
                    "must": [{"match": {"message": "shadow"}}],
                    "filter": [
                        {"term": {"user.name": VICTIM}},
                        {"term": {"host.name": TARGET}},
                        {"term": {"process.name": "sudo"}},
                    ],
                }},
            }),
        },
        Question {
            title: "everything by that address, in all three indices, oldest first",
            path: "/demo-*/_search",
            body: json!({
                "size": 3,
                "sort": [{"@timestamp": "asc"}],
                "track_total_hits": true,
                "query": {"term": {"source.ip": ATTACKER}},
            }),
        },
    ]
}

impl Question {
    /// Renders the question as a line for a shell. `credentials` is what goes before the URL.
    pub(super) fn curl(&self, url: &str, credentials: &str) -> String {
        let url = url.trim_end_matches('/');
        // Our bodies hold no single quote, so quoting them needs no escapes.
        format!(
            "curl -s {credentials}'{url}{}?pretty' -H 'content-type: application/json' -d '{}'",
            self.path, self.body
        )
    }

    /// Renders the answer: the count, the time and the first hits.
    pub(super) fn table(&self, answer: &Value) -> String {
        let mut out = String::new();
        if let Some(count) = answer["count"].as_u64() {
            let _ = writeln!(out, "    count {count}");
            return out;
        }
        let total = &answer["hits"]["total"];
        let total = total["value"].as_u64().or_else(|| total.as_u64());
        let (Some(total), Some(hits)) = (total, answer["hits"]["hits"].as_array()) else {
            let _ = writeln!(out, "    unexpected answer: {answer}");
            return out;
        };
        let _ = writeln!(out, "    hits {total}    took {} ms", answer["took"]);
        for hit in hits {
            let source = &hit["_source"];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let mut message = text(&source["message"]);
            if let Some((cut, _)) = message.char_indices().nth(90) {
                message.truncate(cut);
                message.push('…');
            }
            let _ = writeln!(
                out,
                "    {:<24}  {:<13}  {:<9}  {message}",
                text(&source["@timestamp"]),
                text(&hit["_index"]),
                text(&source["host"]["name"]),
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_shell_lines() {
        let questions = all();
        assert!((4..=6).contains(&questions.len()));
        for question in questions {
            let line = question.curl("http://127.0.0.1:9200/", "-u 'admin:x' ");
            assert_eq!(line.matches('\'').count(), 8, "{line}");
            assert!(line.starts_with("curl -s -u 'admin:x' 'http://127.0.0.1:9200/demo-"), "{line}");
        }
    }

    #[test]
    fn answers_become_a_table() {
        let question = &all()[1];
        let answer = json!({"took": 3, "hits": {"total": {"value": 12, "relation": "eq"}, "hits": [
            {"_index": "demo-web", "_source": {"@timestamp": "t", "message": "m".repeat(200), "host": {"name": "h"}}},
        ]}});
        let table = question.table(&answer);
        assert!(table.starts_with("    hits 12    took 3 ms\n"), "{table}");
        assert!(table.contains("…"), "{table}");
        assert!(question.table(&json!({"error": "no"})).contains("unexpected answer"));
        assert_eq!(question.table(&json!({"count": 4})), "    count 4\n");
    }
}
