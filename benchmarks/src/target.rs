//! A server under test, spoken to over HTTP: Millrace or a peer with the same API.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process;

/// Time that merges may take to come to rest.
const MERGE_TIMEOUT: Duration = Duration::from_secs(1_800);

/// A server that runs.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name in reports.
    pub(crate) name: String,
    /// Base URL without trailing slash.
    pub(crate) url: String,
    /// Its process, where it is on this machine and was found.
    pub(crate) pid: Option<u32>,
    /// `true` if it is what Millrace is compared with.
    pub(crate) is_peer: bool,
    /// `true` if it is a console, whose changes need a header of their own.
    pub(crate) is_console: bool,
    credentials: Option<(String, String)>,
    client: Client,
}

fn client() -> Result<Client> {
    let builder = Client::builder().danger_accept_invalid_certs(true).pool_max_idle_per_host(64);
    Ok(builder.timeout(Duration::from_secs(600)).build()?)
}

impl Target {
    /// Makes a target. `credentials` are `user:password`.
    pub(crate) fn new(name: &str, url: &str, credentials: Option<&str>) -> Result<Self> {
        let client = client()?;
        let credentials = match credentials {
            None => None,
            Some(text) => {
                let (user, password) =
                    text.split_once(':').ok_or_else(|| anyhow!("credentials are not USER:PASSWORD"))?;
                Some((user.to_owned(), password.to_owned()))
            }
        };
        let url = url.trim_end_matches('/').to_owned();
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
        let pid = port.and_then(process::listening_on);
        Ok(Self { name: name.to_owned(), url, pid, is_peer: false, is_console: false, credentials, client })
    }

    /// Returns the same target with connections of its own, for another runtime.
    pub(crate) fn apart(&self) -> Result<Self> {
        Ok(Self { client: client()?, ..self.clone() })
    }

    /// Sends a request and returns status and body as they come.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &'static str,
        body: impl Into<reqwest::Body>,
    ) -> Result<(StatusCode, Vec<u8>)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password));
        }
        if self.is_console {
            request = request.header("console-xsrf", "true");
        }
        let mut answer = request.header("content-type", media).body(body).send().await?;
        let status = answer.status();
        let length = answer.content_length().and_then(|length| usize::try_from(length).ok());
        let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(16 << 20));
        while let Some(chunk) = answer.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok((status, bytes))
    }

    /// Sends a JSON request and returns status and JSON answer.
    pub(crate) async fn json(&self, method: Method, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, bytes) = self.send(method, path, "application/json", text).await?;
        let value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).with_context(|| {
                format!("{} {path} answered {status}: {:.300}", self.name, String::from_utf8_lossy(&bytes))
            })?
        };
        Ok((status, value))
    }

    /// As [`Self::json`], and any status but success is an error.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let (status, value) = self.json(method.clone(), path, body).await?;
        if !status.is_success() {
            bail!("{} {method} {path} answered {status}: {}", self.name, reason(&value));
        }
        Ok(value)
    }

    /// Returns the version that the server says it has.
    pub(crate) async fn version(&self) -> Result<String> {
        let root = self.ask(Method::GET, "/", &Value::Null).await?;
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        Ok(format!("{} {}", text(&root["version"]["distribution"]), text(&root["version"]["number"])))
    }

    /// Deletes an index, if it is there.
    pub(crate) async fn delete(&self, index: &str) -> Result<()> {
        let (status, answer) = self.json(Method::DELETE, &format!("/{index}"), &Value::Null).await?;
        if !status.is_success() && status != StatusCode::NOT_FOUND {
            bail!("cannot delete {index} of {}: {}", self.name, reason(&answer));
        }
        Ok(())
    }

    /// Makes the index anew, empty.
    pub(crate) async fn recreate(&self, index: &str, body: &Value) -> Result<()> {
        self.delete(index).await?;
        let mut body = body.clone();
        if self.is_peer {
            // Answers out of a cache are not searches.
            body["settings"]["index.requests.cache.enable"] = json!(false);
        }
        self.ask(Method::PUT, &format!("/{index}"), &body).await?;
        Ok(())
    }

    /// Makes everything written searchable and returns the number of documents.
    pub(crate) async fn refresh_and_count(&self, index: &str) -> Result<u64> {
        self.ask(Method::POST, &format!("/{index}/_refresh"), &Value::Null).await?;
        self.count(index).await
    }

    /// Counts documents.
    pub(crate) async fn count(&self, index: &str) -> Result<u64> {
        let answer = self.ask(Method::GET, &format!("/{index}/_count"), &Value::Null).await?;
        answer["count"].as_u64().ok_or_else(|| anyhow!("{} counted nothing: {answer}", self.name))
    }

    /// Returns the bytes of the primaries' files.
    pub(crate) async fn store_bytes(&self, index: &str) -> Result<u64> {
        let stats = self.ask(Method::GET, &format!("/{index}/_stats"), &Value::Null).await?;
        stats["_all"]["primaries"]["store"]["size_in_bytes"]
            .as_u64()
            .ok_or_else(|| anyhow!("{} has no store size in _stats", self.name))
    }

    /// Writes everything out, then waits until no merge runs and the size is at rest.
    ///
    /// Returns how long that took.
    ///
    /// # Errors
    ///
    /// There is no rest within half an hour.
    pub(crate) async fn settle(&self, index: &str) -> Result<Duration> {
        let start = Instant::now();
        self.ask(Method::POST, &format!("/{index}/_flush"), &Value::Null).await?;
        let mut last = (0, 0);
        let mut quiet_since = Instant::now();
        while start.elapsed() < MERGE_TIMEOUT {
            let stats = self.ask(Method::GET, &format!("/{index}/_stats"), &Value::Null).await?;
            let primaries = &stats["_all"]["primaries"];
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let merging = number(&primaries["merges"]["current"]);
            let now = (number(&primaries["store"]["size_in_bytes"]), number(&primaries["merges"]["total"]));
            if merging > 0 || now != last {
                last = now;
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= Duration::from_secs(3) {
                return Ok(quiet_since - start);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        bail!("merges of {index} in {} do not come to rest", self.name)
    }

    /// Merges to one segment and waits for it.
    pub(crate) async fn force_merge(&self, index: &str) -> Result<Duration> {
        let start = Instant::now();
        let path = format!("/{index}/_forcemerge?max_num_segments=1");
        self.ask(Method::POST, &path, &Value::Null).await?;
        self.settle(index).await?;
        Ok(start.elapsed().saturating_sub(Duration::from_secs(3)))
    }
}

/// Extracts the reason of an error answer.
pub(crate) fn reason(answer: &Value) -> String {
    let error = &answer["error"];
    match (error["type"].as_str(), error["reason"].as_str()) {
        (Some(kind), Some(reason)) => format!("{kind}: {reason}"),
        _ => answer.to_string(),
    }
}
