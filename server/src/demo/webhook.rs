//! The demo's webhook: a pipeline that takes posted events, and one event that arrives in a search.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_pipelines::Manager;
use millrace_runtime::Instant;
use reqwest::Client;
use serde_json::json;

use super::feed::Target;

/// Token that callers must show.
const TOKEN: &str = "demo-token";
/// Time for an event to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// The event, as a shell would send it.
const EVENT: &str = r#"{"action": "opened", "repository": "millrace", "sender": "demo"}"#;

/// Id of the pipeline.
const PIPELINE: &str = "webhook";

/// A webhook on a port of this machine that the system chooses.
#[derive(Debug)]
pub(super) struct Webhook {
    address: SocketAddr,
}

impl Webhook {
    /// Puts the pipeline of the webhook into the directory of pipelines.
    pub(super) fn define(directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        let definition = format!(
            r#"input {{ http {{ host => "127.0.0.1" port => 0 }} }}
filter {{
  if [headers][authorization] != "Bearer {TOKEN}" {{ drop {{ id => "wrong_token" }} }}
  mutate {{
    add_field => {{ "[webhook][source]" => "%{{[headers][x_webhook_source]}}" }}
    remove_field => ["headers"]
  }}
}}
output {{ opensearch {{ index => "webhook-events-%{{+yyyy.MM.dd}}" }} }}
"#
        );
        std::fs::write(directory.join(format!("{PIPELINE}.conf")), definition)
            .context("cannot write the webhook's pipeline")
    }

    /// Finds where the pipeline listens.
    pub(super) async fn find(pipelines: &Manager) -> Result<Self> {
        let began = Instant::now();
        loop {
            let status = pipelines.get(PIPELINE);
            if let Some(address) = status.as_ref().and_then(|status| status.addresses.first()) {
                return Ok(Self { address: *address });
            }
            if began.elapsed() > PATIENCE {
                let why =
                    status.and_then(|status| status.warning).unwrap_or_else(|| "it does not run".to_owned());
                bail!("the webhook's pipeline does not listen: {why}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Posts an event and finds it.
    pub(super) async fn play(&self, target: &Target) -> Result<String> {
        let url = format!("http://{}/", self.address);
        let request = || {
            Client::new()
                .post(&url)
                .bearer_auth(TOKEN)
                .header("x-webhook-source", "demo")
                .header("content-type", "application/json")
                .body(EVENT)
        };
        let mut shown = format!(
            "# a webhook\ncurl -s -H 'authorization: Bearer {TOKEN}' -H 'x-webhook-source: demo' -H 'content-type: application/json' -d '{EVENT}' {url}\n"
        );
        let began = Instant::now();
        loop {
            match request().send().await {
                Ok(answer) if answer.status().is_success() => break,
                _ if began.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(answer) => bail!("the webhook answers {}", answer.status()),
                Err(error) => return Err(error).context("the webhook does not answer"),
            }
        }
        let path = "/webhook-events-*/_search";
        let query = json!({ "query": { "term": { "webhook.source.keyword": "demo" } } });
        target.refresh("webhook-events-*").await?;
        let answer = target.ask(path, &query).await?;
        let Some(hit) = answer["hits"]["hits"].as_array().and_then(|hits| hits.first()) else {
            bail!("the posted event is not found: {answer}");
        };
        shown.push_str(&format!("is found a moment later in {}:\n{}\n", hit["_index"], hit["_source"]));
        Ok(shown)
    }
}
