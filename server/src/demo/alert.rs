//! The demo's alert: a rule that watches the logins while they arrive, and what it has raised.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{SecondsFormat, Utc};
use millrace_runtime::Instant;
use serde_json::{Value, json};

use super::feed::Target;

/// Name of the rule.
const RULE: &str = "demo: a login from outside";
/// Time for the alert to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// A rule that is at work.
#[derive(Debug)]
pub(super) struct Watch {
    id: Value,
    since: String,
    shown: String,
}

impl Watch {
    /// Saves the rule at the console's listener, before there is anything for it to see.
    pub(super) async fn begin(target: &Target, console: SocketAddr) -> Result<Self> {
        let console = target.at(&format!("http://{console}"));
        let rule = json!({
            "name": RULE,
            "index": "demo-auth",
            "type": "any",
            "filter": [{"bool": {
                "filter": [{"term": {"event.action": "login"}}, {"term": {"event.outcome": "success"}}],
                "must_not": [{"term": {"source.ip": "10.0.0.0/8"}}],
            }}],
            "importance": 90,
            "alert_subject": "{0} logged in on {1} from {2}",
            "alert_subject_args": ["user.name", "host.name", "source.ip"],
        });
        // A data directory that is used again has the alerts of its earlier demos.
        let since = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let saved = console.ask("/api/alert/change", &rule).await.context("cannot save the rule")?;
        let shown = format!(
            "# the alert that was raised meanwhile, by a rule that was saved before the first event\n\
             curl -s {}-H 'console-xsrf: true' -H 'content-type: application/json' '{}/api/alert/change' -d '{rule}'\n",
            console.curl_credentials(),
            console.url(),
        );
        Ok(Self { id: saved["id"].clone(), since, shown })
    }

    /// Finds the alert, and renders the rule and it.
    pub(super) async fn alert(self, target: &Target) -> Result<String> {
        let query = json!({
            "size": 1,
            "query": {"bool": {"filter": [
                {"term": {"rule_id": self.id}},
                {"range": {"alert_time": {"gte": self.since}}},
            ]}},
        });
        let began = Instant::now();
        let alert = loop {
            let answer = target.ask("/alert/_search?ignore_unavailable=true", &query).await?;
            if let Some(hit) = answer["hits"]["hits"].as_array().and_then(|hits| hits.first()) {
                break hit["_source"].clone();
            }
            if began.elapsed() > PATIENCE {
                bail!("the rule [{RULE}] raised no alert: {answer}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(self.shown + &table(&alert))
    }
}

/// Renders an alert and the event that raised it.
fn table(alert: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "    importance {}    {}",
        alert["alert_info"]["risk_value"],
        text(&alert["alert_subject"])
    );
    for event in alert["events"].as_array().into_iter().flatten() {
        let (index, id) = (text(&event["_index"]), text(&event["_id"]));
        let message = text(&alert["match_body"]["message"]);
        let _ = writeln!(out, "    {:<24}  {index}/{id}  {message}", text(&alert["@timestamp"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_shows_its_event() {
        let alert = json!({
            "@timestamp": "t", "alert_info": {"risk_value": 90}, "alert_subject": "s", "match_body": {"message": "m"},
            "events": [{"_index": "demo-auth", "_id": "1", "_seq_no": 0}],
        });
        assert_eq!(table(&alert), "    importance 90    s\n    t                         demo-auth/1  m\n");
    }
}
