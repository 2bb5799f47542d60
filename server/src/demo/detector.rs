//! The demo's AI rule: a detector learns how many packets the firewall denies in a minute, and finds the port scan.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::feed::Target;

/// Name of the detector.
const RULE: &str = "demo: denied packets";
/// Minutes that are shown.
const SHOWN: usize = 3;

/// Saves the detector, runs it over the last day, and renders what it has found.
pub(super) async fn play(target: &Target, console: SocketAddr) -> Result<String> {
    let console = target.at(&format!("http://{console}"));
    let detector = json!({
        "name": RULE,
        "model_type": "univariate",
        "index": "demo-firewall",
        "query": {"term": {"event.action": "deny"}},
        "time_field": "@timestamp",
        "time_frame": "1 day",
        "value_type": "count",
        "field": "destination.port",
        "contamination": 0.03,
        "automatic_cron": "@daily",
        "automatic_enable": false,
        "automatic": false,
        "multiply_by_field": "none",
        "multiply_by_values": [],
    });
    let mut shown = format!(
        "# the port scan, found by an AI rule that learns how many packets are denied in a minute\n\
         curl -s {}-H 'console-xsrf: true' -H 'content-type: application/json' '{}/api/ai/change' -d '{detector}'\n",
        console.curl_credentials(),
        console.url(),
    );
    // A data directory that is used again has the rule of its earlier demos.
    let id = match earlier(&console).await? {
        Some(id) => id,
        None => {
            let saved = console.ask("/api/ai/change", &detector).await.context("cannot save the AI rule")?;
            saved["id"].as_str().unwrap_or_default().to_owned()
        }
    };
    let run = console.get(&format!("/api/ai/run/{id}")).await?;
    if run["status"] != true {
        // A short span has too few minutes.
        let _ = writeln!(shown, "    not trained: {}", run["message"].as_str().unwrap_or("no reason"));
        return Ok(shown);
    }
    target.refresh("demo-firewall-univariate-anomaly-*").await?;
    let query = json!({
        "size": SHOWN,
        "query": {"bool": {"filter": [{"term": {"ai.rule_uid": id}}, {"term": {"ai.anomaly_flag": true}}]}},
        "sort": [{"ai.raw_score": "desc"}],
    });
    let answer = target.ask("/demo-firewall-univariate-anomaly-*/_search", &query).await?;
    shown.push_str(&table(&answer));
    let _ = writeln!(
        shown,
        "    its picture: curl -s {}'{}/api/ai/plot/{id}' > scan.svg",
        console.curl_credentials(),
        console.url()
    );
    Ok(shown)
}

/// Finds the detector of an earlier demo.
async fn earlier(console: &Target) -> Result<Option<String>> {
    let rules = console.get("/api/ai/list").await?;
    let rule = rules.as_array().into_iter().flatten().find(|rule| rule["_source"]["name"] == RULE);
    Ok(rule.and_then(|rule| rule["id"].as_str()).map(str::to_owned))
}

/// Renders the oddest minutes.
fn table(answer: &Value) -> String {
    let mut out = String::new();
    let total = &answer["hits"]["total"]["value"];
    let _ = writeln!(out, "    {total} odd minutes; the oddest:");
    for hit in answer["hits"]["hits"].as_array().into_iter().flatten() {
        let (source, ai) = (&hit["_source"], &hit["_source"]["ai"]);
        let number = |name: &str| ai[name].as_f64().unwrap_or_default();
        let _ = writeln!(
            out,
            "    {:<24}  {} denied, {:.0} expected, at most {:.0}",
            source["@timestamp"].as_str().unwrap_or("-"),
            ai["destination"]["port"],
            number("expected"),
            number("upper"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_minute_shows_what_was_expected() {
        let ai = json!({"destination": {"port": 250.0}, "expected": 12.4, "upper": 31.0});
        let answer =
            json!({"hits": {"total": {"value": 40}, "hits": [{"_source": {"@timestamp": "t", "ai": ai}}]}});
        let expected = "    40 odd minutes; the oddest:\n    t                         250.0 denied, 12 expected, at most 31\n";
        assert_eq!(table(&answer), expected);
    }
}
