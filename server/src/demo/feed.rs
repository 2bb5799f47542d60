//! Sends events over `_bulk` at a chosen rate, with a progress bar.
//!
//! Answers of 429 are waited out; refused documents are counted, and the first is kept.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use millrace_runtime::Instant;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;

use super::events::{Event, Events};

/// Most events of one bulk request.
const MAX_BATCH: usize = 1_000;
/// Bulk requests under way at once, where events are sent as fast as the server takes them.
const IN_FLIGHT: usize = 4;
/// Attempts at one bulk request while the server says that it is busy.
const ATTEMPTS: u32 = 8;

/// The server that is fed and asked.
#[derive(Clone, Debug)]
pub(super) struct Target {
    client: Client,
    url: String,
    credentials: Option<(String, String)>,
    /// Token in place of the credentials.
    token: Option<String>,
    any_certificate: bool,
}

/// Report of the feed.
#[derive(Debug)]
pub(super) struct FeedReport {
    /// Events sent.
    pub(super) sent: u64,
    /// Events refused.
    pub(super) errors: u64,
    /// Why the first was refused.
    pub(super) first_error: Option<String>,
    /// Time taken.
    pub(super) elapsed: Duration,
}

impl Target {
    /// Makes a target; nothing is sent yet.
    pub(super) fn new(
        url: &str,
        credentials: Option<(String, String)>,
        any_certificate: bool,
    ) -> Result<Self> {
        millrace_runtime::install_crypto_provider();
        let client = Client::builder()
            .danger_accept_invalid_certs(any_certificate)
            .timeout(Duration::from_secs(120))
            .build()
            .context("cannot set up the HTTP client")?;
        let url = url.trim_end_matches('/').to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            bail!("`{url}` is not an http:// or https:// URL");
        }
        Ok(Self { client, url, credentials, token: None, any_certificate })
    }

    /// Returns the same server, for the same user, at another of its listeners.
    pub(super) fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// Returns the same server for the owner of a token.
    pub(super) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Returns the base URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Renders the credentials as options of `curl`.
    pub(super) fn curl_credentials(&self) -> String {
        let mut out = String::new();
        if self.any_certificate {
            out.push_str("-k ");
        }
        if let Some((user, password)) = &self.credentials {
            let _ = write!(out, "-u '{user}:{}' ", password.replace('\'', r"'\''"));
        }
        out
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: String,
    ) -> Result<(StatusCode, Value)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        } else if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password));
        }
        let answer = request
            .header("content-type", media)
            // The console's listener asks for it.
            .header("console-xsrf", "true")
            .body(body)
            .send()
            .await
            .map_err(|error| anyhow!("{} does not answer: {:#}", self.url, anyhow::Error::new(error)))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("answer to {path}"))?;
        if status == StatusCode::UNAUTHORIZED {
            bail!("{} refuses the credentials: give --user and --password", self.url);
        }
        let value =
            serde_json::from_str(&text).with_context(|| format!("{path} answered {status}: {text:.200}"))?;
        Ok((status, value))
    }

    /// Creates an index; one that is there already is kept.
    pub(super) async fn create_index(&self, name: &str, body: &Value) -> Result<()> {
        let (status, answer) =
            self.send(Method::PUT, &format!("/{name}"), "application/json", body.to_string()).await?;
        let exists = answer["error"]["type"] == "resource_already_exists_exception";
        if !status.is_success() && !exists {
            bail!("cannot create {name}: {}", reason(&answer));
        }
        Ok(())
    }

    /// Makes everything searchable.
    pub(super) async fn refresh(&self, pattern: &str) -> Result<()> {
        let path = format!("/{pattern}/_refresh");
        let (status, answer) = self.send(Method::POST, &path, "application/json", String::new()).await?;
        if !status.is_success() {
            bail!("refresh failed: {}", reason(&answer));
        }
        Ok(())
    }

    /// Asks a question.
    pub(super) async fn ask(&self, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.send(Method::POST, path, "application/json", body.to_string()).await?;
        if !status.is_success() {
            bail!("{path} answered {status}: {}", reason(&answer));
        }
        Ok(answer)
    }

    /// Reads what a path has.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let (status, answer) = self.send(Method::GET, path, "application/json", String::new()).await?;
        if !status.is_success() {
            bail!("{path} answered {status}: {}", reason(&answer));
        }
        Ok(answer)
    }

    async fn bulk(&self, body: String) -> Result<Value> {
        for attempt in 0..ATTEMPTS {
            let (status, answer) =
                self.send(Method::POST, "/_bulk", "application/x-ndjson", body.clone()).await?;
            if status.is_success() {
                return Ok(answer);
            }
            if status != StatusCode::TOO_MANY_REQUESTS {
                bail!("bulk answered {status}: {}", reason(&answer));
            }
            tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
        }
        bail!("the server is still busy after {ATTEMPTS} attempts")
    }
}

fn reason(answer: &Value) -> String {
    answer["error"]["reason"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// Sends the events, at most `rate` a second (0: as fast as the server takes them).
pub(super) async fn run(target: &Target, mut events: Events, total: u64, rate: u32) -> Result<FeedReport> {
    let bar = ProgressBar::new(total);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} events, {per_sec}, {eta} left, {msg}")
    {
        bar.set_style(style);
    }
    bar.set_message("0 errors");
    let batch = if rate == 0 { MAX_BATCH } else { (rate as usize / 10).clamp(1, MAX_BATCH) };
    let in_flight = if rate == 0 { IN_FLIGHT } else { 1 };
    let start = Instant::now();
    let mut fed = FeedReport { sent: 0, errors: 0, first_error: None, elapsed: Duration::ZERO };
    let mut requests: JoinSet<Result<(Value, u64)>> = JoinSet::new();
    let mut offered = 0;
    loop {
        let is_full = requests.len() >= in_flight;
        if is_full && let Some(answered) = requests.join_next().await {
            note_answer(&mut fed, &bar, answered??);
        }
        let mut body = String::with_capacity(batch * 400);
        let mut count = 0_u64;
        for Event { index, document } in events.by_ref().take(batch) {
            let _ = writeln!(body, "{{\"index\":{{\"_index\":\"{index}\"}}}}\n{document}");
            count += 1;
        }
        if count == 0 {
            break;
        }
        if rate > 0 {
            let due = start + Duration::from_secs_f64(offered as f64 / f64::from(rate));
            tokio::time::sleep_until(due).await;
        }
        offered += count;
        let target = target.clone();
        requests.spawn(async move { Ok((target.bulk(body).await?, count)) });
    }
    while let Some(answered) = requests.join_next().await {
        note_answer(&mut fed, &bar, answered??);
    }
    bar.finish_and_clear();
    fed.elapsed = start.elapsed();
    Ok(fed)
}

fn note_answer(fed: &mut FeedReport, bar: &ProgressBar, (answer, count): (Value, u64)) {
    if answer["errors"] != false {
        note_errors(fed, &answer, count);
        bar.set_message(format!("{} errors", fed.errors));
    }
    fed.sent += count;
    bar.inc(count);
}

fn note_errors(fed: &mut FeedReport, answer: &Value, count: u64) {
    let Some(items) = answer["items"].as_array() else {
        fed.errors += count;
        return;
    };
    for item in items {
        let error = &item["index"]["error"];
        if !error.is_null() {
            fed.errors += 1;
            fed.first_error.get_or_insert_with(|| error["reason"].as_str().unwrap_or("unknown").to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refused_documents_are_counted() {
        let mut fed = FeedReport { sent: 0, errors: 0, first_error: None, elapsed: Duration::ZERO };
        let answer = json!({"errors": true, "items": [
            {"index": {"status": 201}},
            {"index": {"status": 400, "error": {"type": "t", "reason": "first"}}},
            {"index": {"status": 400, "error": {"type": "t", "reason": "second"}}},
        ]});
        note_errors(&mut fed, &answer, 3);
        assert_eq!((fed.errors, fed.first_error.as_deref()), (2, Some("first")));
    }

    #[test]
    fn passwords_are_quoted_for_the_shell() {
        let target = Target::new("http://h/", Some(("u".into(), "a'b".into())), false).unwrap();
        assert_eq!(target.curl_credentials(), r"-u 'u:a'\''b' ");
        assert!(Target::new("ftp://h", None, false).is_err());
    }
}
