//! The driver of the input `http`: several clients post the bodies of a feed as fast as they are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, StatusCode};
use serde::Serialize;
use tokio::time::Instant;

use super::feed::{Feed, Format};
use crate::latency::{Histogram, Summary};

/// Longest time for which one body is sent again while the pipeline is behind.
const BUSY_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time until the input listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Result of posting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PostReport {
    /// Seconds from the first request to the last answer.
    pub(crate) seconds: f64,
    /// Latency of requests that were taken.
    pub(crate) latency: Summary,
    /// Answers of 429 that were retried.
    pub(crate) busy_answers: u64,
}

/// Posts everything with so many clients; each body is answered when its events are durable.
pub(crate) async fn run(port: u16, feed: &Arc<Feed>, format: Format, clients: usize) -> Result<PostReport> {
    until_listening(port).await?;
    let client = Client::builder().pool_max_idle_per_host(64).timeout(Duration::from_secs(600)).build()?;
    let next = Arc::new(AtomicUsize::new(0));
    let media = match format {
        Format::Json => "application/json",
        Format::Combined => "text/plain",
    };
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (client, feed, next) = (client.clone(), Arc::clone(feed), Arc::clone(&next));
        running.spawn(async move {
            let (mut latency, mut busy) = (Histogram::default(), 0);
            while let Some(part) = feed.parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let body = bytes::Bytes::from(tokio::task::block_in_place(|| feed.read(*part))?);
                busy += send(&client, port, media, body, &mut latency).await?;
            }
            Ok::<_, anyhow::Error>((latency, busy))
        });
    }
    let (mut latency, mut busy_answers) = (Histogram::default(), 0);
    while let Some(ended) = running.join_next().await {
        let (of_client, busy) = ended??;
        latency.merge(&of_client);
        busy_answers += busy;
    }
    Ok(PostReport { seconds: start.elapsed().as_secs_f64(), latency: latency.summary(), busy_answers })
}

/// Sends a body until it is taken; returns how often the input was busy.
async fn send(
    client: &Client,
    port: u16,
    media: &'static str,
    body: bytes::Bytes,
    latency: &mut Histogram,
) -> Result<u64> {
    let (first, mut busy, mut pause) = (Instant::now(), 0, Duration::from_millis(5));
    loop {
        let sent = Instant::now();
        let request = client.post(format!("http://127.0.0.1:{port}/")).header("content-type", media);
        let answer = request.body(body.clone()).send().await.context("cannot post to the pipeline")?;
        let status = answer.status();
        let text = answer.text().await?;
        match status {
            StatusCode::OK => {
                latency.record(sent.elapsed());
                return Ok(busy);
            }
            StatusCode::TOO_MANY_REQUESTS if first.elapsed() < BUSY_TIMEOUT => {
                busy += 1;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(200));
            }
            _ => bail!("the pipeline answered {status}: {text:.300}"),
        }
    }
}

/// Waits until the input has its socket.
pub(crate) async fn until_listening(port: u16) -> Result<()> {
    let start = Instant::now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if start.elapsed() > LISTEN_TIMEOUT {
            bail!("the pipeline does not listen on port {port}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
