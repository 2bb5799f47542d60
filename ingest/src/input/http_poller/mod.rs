//! `http_poller`: events of the answers of HTTP servers, asked by a schedule.
//!
//! Nothing is stored about what was asked: each run asks for all addresses.

mod settings;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use millrace_runtime::Instant;
use reqwest::Client;
use serde_json::{Map, Value, json};

use self::settings::{PolledUrl, Settings};
use super::chunks::{BodySource, ChunkedDecoding};
use super::fetch::read_body;
use super::{Context, Input, InputError, host_name, mark_version};
use crate::codec::Events;
use crate::{Event, Fault, Options};

/// Longest answer in bytes.
const MAX_BODY: u64 = 64 << 20;
/// Tag of a request that failed.
const FAILURE: &str = "_http_request_failure";

/// The input; see the module.
#[derive(Debug)]
pub(super) struct HttpPoller {
    settings: Arc<Settings>,
    host: String,
}

/// Outcome of a request.
struct FetchOutcome {
    /// Status, its words, headers.
    head: Option<(u16, String, Map<String, Value>)>,
    body: Result<Vec<u8>, String>,
    took: Duration,
}

impl HttpPoller {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(options: Options) -> Result<Self, Vec<Fault>> {
        Ok(Self { settings: Arc::new(Settings::take(options)?), host: host_name() })
    }

    async fn fetch(&self, client: &Client, url: &PolledUrl) -> FetchOutcome {
        let began = Instant::now();
        let sent = url.request(client).send().await;
        let (head, body) = match sent {
            Err(error) => (None, Err(error.without_url().to_string())),
            Ok(response) => {
                let status = response.status();
                let words = status.canonical_reason().unwrap_or_default().to_owned();
                let text = |value: &[u8]| Value::from(String::from_utf8_lossy(value).into_owned());
                let headers = response.headers().iter();
                let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
                let head = (status.as_u16(), words, headers.collect());
                (Some(head), read_body(response, MAX_BODY).await)
            }
        };
        FetchOutcome { head, body, took: began.elapsed() }
    }

    /// Makes the event of a request that failed.
    fn failure(&self, name: &str, url: &PolledUrl, error: &str, took: Duration) -> Event {
        let mut event = Event::new(Utc::now());
        event.tag(FAILURE);
        let request = url.describe();
        let failure = match self.settings.ecs.is_enabled() {
            false => json!({ "http_request_failure": { "name": name, "request": request, "error": error,
                "runtime_seconds": took.as_secs_f64() } }),
            true => json!({ "error": { "message": error }, "host": { "hostname": self.host },
                "url": { "full": request["url"] }, "http": { "request": { "method": request["method"] } },
                "event": { "duration": nanoseconds(took) } }),
        };
        if let Value::Object(failure) = failure {
            event.fields_mut().extend(failure);
        }
        event
    }

    async fn poll(&self, client: &Client, context: &Context) -> bool {
        for (name, url) in &self.settings.urls {
            let fetched = self.fetch(client, url).await;
            if let Err(error) = &fetched.body {
                tracing::warn!(name, error, "a request of http_poller failed");
            }
            let settings = &self.settings;
            let metadata = match settings.ecs.is_enabled() {
                true => schema_metadata(settings, &self.host, name, url, &fetched),
                false => own_metadata(&self.host, name, url, &fetched),
            };
            let (target, mut addition) = (settings.target.clone(), settings.metadata_addition(metadata));
            let complete = move |event: &mut Event| {
                if let Some(target) = &target {
                    let fields = std::mem::take(event.fields_mut());
                    let _ = event.set(target, Value::Object(fields));
                }
                mark_version(event);
                addition.add_to(event);
            };
            let FetchOutcome { body, took, .. } = fetched;
            let body = body.map_err(|error| self.failure(name, url, &error, took));
            let mut decoder = settings.codec.decoder();
            let decode = move |events: &mut Events| match body {
                Ok(body) => {
                    decoder.decode(&body, events);
                    decoder.finish(events);
                }
                Err(failure) => events.push(failure),
            };
            let decoding = ChunkedDecoding::start(context, BodySource::Repeatable, complete, decode).await;
            let Some(decoding) = decoding else { return false };
            if decoding.send().await.is_none() {
                return false;
            }
        }
        true
    }
}

/// Describes a request and its answer by the names of Logstash.
fn own_metadata(host: &str, name: &str, url: &PolledUrl, fetched: &FetchOutcome) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), Value::from(name));
    metadata.insert("host".to_owned(), Value::from(host));
    metadata.insert("request".to_owned(), url.describe());
    metadata.insert("runtime_seconds".to_owned(), Value::from(fetched.took.as_secs_f64()));
    if let Some((status, words, headers)) = &fetched.head {
        metadata.insert("code".to_owned(), Value::from(*status));
        metadata.insert("response_message".to_owned(), Value::from(words.as_str()));
        metadata.insert("response_headers".to_owned(), Value::Object(headers.clone()));
    }
    Value::Object(metadata)
}

/// Describes a request and its answer as plugins of the schema do.
fn schema_metadata(
    settings: &Settings,
    host: &str,
    name: &str,
    url: &PolledUrl,
    fetched: &FetchOutcome,
) -> Value {
    let request = json!({ "host": { "hostname": host }, "name": name, "original": url.describe() });
    let mut response = Map::new();
    response.insert("elapsed_time_ns".to_owned(), Value::from(nanoseconds(fetched.took)));
    if let Some((status, words, headers)) = &fetched.head {
        response.insert("status_code".to_owned(), Value::from(*status));
        response.insert("status_message".to_owned(), Value::from(words.as_str()));
        response.insert("headers".to_owned(), Value::Object(headers.clone()));
    }
    let metadata = json!({ "request": request, "response": response });
    if settings.is_own_target { metadata } else { json!({ "input": { "http_poller": metadata } }) }
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Input for HttpPoller {
    fn identity(&self) -> String {
        let names: Vec<&str> = self.settings.urls.iter().map(|(name, _)| name.as_str()).collect();
        format!("http_poller {}", names.join(" "))
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let client = self.settings.client().map_err(InputError)?;
        let mut stopping = context.stopping.clone();
        let mut run = 0;
        while self.settings.timer.wait(run, &mut stopping).await {
            let polled = tokio::select! {
                biased;
                () = super::stopped(&mut stopping) => false,
                polled = self.poll(&client, &context) => polled,
            };
            if !polled {
                return Ok(());
            }
            run += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::input::testing::{Pipeline, options};

    #[tokio::test]
    async fn answers_and_failures_become_events() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            let body = r#"[{"n":1},{"n":2}]"#;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-a: b\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let (up, down) = (format!("http://{address}/health"), "http://127.0.0.1:1/".to_owned());
        let given = [
            ("urls", [("up", up.as_str()), ("down", down.as_str())].into()),
            ("schedule", [("in", "0s")].into()),
            ("user", "me".into()),
            ("password", "secret".into()),
            ("metadata_target", "meta".into()),
        ];
        let poller = HttpPoller::new(options("http_poller", &given)).unwrap();
        let mut pipeline = Pipeline::new(4);
        let run = poller.run(pipeline.context());
        let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
        ended.unwrap();
        let head = answering.await.unwrap().to_lowercase();
        assert!(head.starts_with("get /health http/1.1") && head.contains("authorization: basic"), "{head}");
        let [one, two, failed] = &pipeline.events[..] else { panic!("{:?}", pipeline.events) };
        assert_eq!((&one.fields()["n"], &two.fields()["n"]), (&1.into(), &2.into()));
        assert_eq!(one.fields()["meta"]["code"], 200);
        assert_eq!(one.fields()["meta"]["name"], "up");
        assert_eq!(one.fields()["meta"]["response_headers"]["x-a"], "b");
        assert!(!one.fields()["meta"].to_string().contains("secret"));
        assert_eq!(failed.fields()["tags"], serde_json::json!([FAILURE]));
        assert_eq!(failed.fields()["http_request_failure"]["name"], "down");
    }

    #[test]
    fn events_of_an_answer_share_its_metadata() {
        let given = |target: &str| {
            let given = [
                ("urls", [("up", "http://localhost/")].into()),
                ("schedule", [("in", "0s")].into()),
                ("metadata_target", target.into()),
            ];
            HttpPoller::new(options("http_poller", &given)).unwrap()
        };
        for target in ["[@metadata][poller]", "[@metadata]", "meta", "[meta][of]"] {
            let settings = given(target).settings;
            let mut addition = settings.metadata_addition(json!({"name": "up"}));
            let mut events = [Event::new(Utc::now()), Event::new(Utc::now())];
            events.iter_mut().for_each(|event| addition.add_to(event));
            for event in &events {
                let name = match target {
                    "[@metadata][poller]" => &event.metadata()["poller"]["name"],
                    "[@metadata]" => &event.metadata()["name"],
                    "meta" => &event.fields()["meta"]["name"],
                    _ => &event.fields()["meta"]["of"]["name"],
                };
                assert_eq!(name, "up", "{target}");
            }
            let is_shared = std::ptr::eq(events[0].metadata(), events[1].metadata());
            assert!(is_shared, "{target}");
        }
    }

    #[test]
    fn options_are_checked() {
        let faults = |given: &[(&str, crate::input::testing::OptionValue)]| {
            let faults = HttpPoller::new(options("http_poller", given)).unwrap_err();
            faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n")
        };
        let missing = faults(&[]);
        assert!(missing.contains("[urls]") && missing.contains("[schedule]"), "{missing}");
        let wrong = faults(&[("urls", [("a", "ftp://x")].into()), ("schedule", [("every", "soon")].into())]);
        assert!(wrong.contains("[ftp://x]") && wrong.contains("[soon] is no duration"), "{wrong}");
    }
}
