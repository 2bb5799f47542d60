//! `http`: asks a server about each event, and puts its answer into the event.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use millrace_ingest::budget::{AnswerAllowance, AnswerReservation};
use millrace_ingest::http_client::{HttpAnswer, HttpClient, HttpRequest, JsonAnswerError};
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::body_template::BodyTemplate;
use super::settings::texts_or;
use super::{Outcome, RemoteFilter};

/// Requests of one delivery at the same time.
const CONCURRENCY: usize = 16;

struct Http {
    client: HttpClient,
    url: Template,
    method: &'static str,
    headers: Vec<(Template, Template)>,
    query: Vec<(Template, Template)>,
    body: Option<BodyTemplate>,
    is_json: bool,
    target_body: FieldReference,
    target_headers: FieldReference,
    tags_on_failure: Vec<String>,
    tags_on_json_failure: Vec<String>,
}

/// Without address, headers and body, which may have credentials.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("method", &self.method).finish_non_exhaustive()
    }
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let is_ecs = options.ecs_compatibility().is_enabled();
    let url = options.required_text("url");
    let methods = ["GET", "HEAD", "PATCH", "DELETE", "POST", "PUT"];
    let method = options.one_of("verb", &methods).unwrap_or("GET");
    let headers = pairs(&mut options, "headers");
    let query = pairs(&mut options, "query");
    let body = options.take("body").map(|(_, setting)| BodyTemplate::from_setting(setting));
    let is_json = options.one_of("body_format", &["text", "json"]) == Some("json");
    let target_body = options.field("target_body");
    if is_ecs && target_body.is_none() {
        options.fault_here("[http] with ecs_compatibility needs the option [target_body]");
    }
    let target_headers = options.field("target_headers");
    let tags_on_failure = texts_or(&mut options, "tag_on_request_failure", &["_httprequestfailure"]);
    let tags_on_json_failure = texts_or(&mut options, "tag_on_json_failure", &["_jsonparsefailure"]);
    let client = HttpClient::take(&mut options);
    options.finish()?;
    let default_headers = if is_ecs { "[@metadata][filter][http][response][headers]" } else { "headers" };
    let parse = |field| FieldReference::parse(field).map_err(|_| Vec::new());
    Ok(Arc::new(Http {
        client,
        url: Template::parse(&url),
        method,
        headers,
        query,
        body,
        is_json,
        target_body: target_body.map_or_else(|| parse("body"), Ok)?,
        target_headers: target_headers.map_or_else(|| parse(default_headers), Ok)?,
        tags_on_failure,
        tags_on_json_failure,
    }))
}

fn pairs(options: &mut Options, name: &'static str) -> Vec<(Template, Template)> {
    let mut pairs = Vec::new();
    for (key, value) in options.hash(name) {
        match value.as_text() {
            Some(value) => pairs.push((Template::parse(&key), Template::parse(&value))),
            None => options.fault_here(format!("option [{name}] of [http] must give texts, [{key}] is none")),
        }
    }
    pairs
}

/// Adds parameters to an address.
fn with_query(mut url: String, parameters: &[(String, String)]) -> String {
    for (name, value) in parameters {
        url.push(if url.contains('?') { '&' } else { '?' });
        for (text, end) in [(name, "="), (value, "")] {
            url.extend(utf8_percent_encode(text, NON_ALPHANUMERIC));
            url.push_str(end);
        }
    }
    url
}

impl Http {
    fn request(&self, event: &Event) -> HttpRequest {
        let render = |pairs: &[(Template, Template)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| (name.render(event), value.render(event))).collect()
        };
        let mut headers = render(&self.headers);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            let media_type = if self.is_json { "application/json" } else { "text/plain" };
            headers.push(("content-type".to_owned(), media_type.to_owned()));
        }
        let body = self.body.as_ref().map(|body| match body.render(event) {
            Value::String(text) => text.into_bytes(),
            other => other.to_string().into_bytes(),
        });
        let url = with_query(self.url.render(event), &render(&self.query));
        HttpRequest { method: self.method.to_owned(), url, headers, body }
    }

    fn set(
        &self,
        event: &mut Event,
        answer: HttpAnswer,
        reservation: &mut AnswerReservation<'_>,
    ) -> Result<(), String> {
        let mut headers = Map::new();
        for (name, value) in &answer.headers {
            let value = Value::from(value.as_str());
            match headers.get_mut(name) {
                None => drop(headers.insert(name.clone(), value)),
                Some(Value::Array(values)) => values.push(value),
                Some(single) => *single = Value::Array(vec![single.take(), value]),
            }
        }
        let is_json = headers.get("content-type").and_then(Value::as_str).is_some_and(|media_type| {
            media_type.split(';').any(|part| part.trim().eq_ignore_ascii_case("application/json"))
        });
        event.set(&self.target_headers, Value::Object(headers))?;
        if self.method == "HEAD" || answer.body.is_empty() {
            return Ok(());
        }
        if !is_json {
            reservation.grow(answer.body.len() as u64).map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&answer.body);
            return event.set(&self.target_body, Value::from(text.trim()));
        }
        match answer.json(reservation) {
            Ok(value) => event.set(&self.target_body, value),
            Err(JsonAnswerError::Exceeded(error)) => Err(error.to_string()),
            Err(JsonAnswerError::Invalid(_)) => {
                self.tags_on_json_failure.iter().for_each(|tag| event.tag(tag));
                Ok(())
            }
        }
    }
}

#[async_trait]
impl RemoteFilter for Http {
    async fn apply(&self, event: &mut Event, allowance: &AnswerAllowance) -> Outcome {
        let mut reservation = allowance.answer();
        let reason = match self.client.send_reserved(self.request(event), &mut reservation).await {
            Ok(answer) if (200..300).contains(&answer.status) => {
                match self.set(event, answer, &mut reservation) {
                    Ok(()) => return Outcome::Matched,
                    Err(reason) => reason,
                }
            }
            Ok(answer) => format!("the server answers {}", answer.status),
            Err(reason) => reason,
        };
        tracing::debug!(reason, "a request of the filter http failed");
        self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
        Outcome::Unmatched
    }

    fn concurrency(&self) -> usize {
        CONCURRENCY
    }

    fn has_large_answers(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::budget::Budget;
    use millrace_ingest::{Location, Setting};
    use serde_json::json;

    use super::*;
    use crate::filter::testing::{answering_server, apply_remote};

    fn filter(url: &str, given: Vec<(&str, Setting)>) -> Arc<dyn RemoteFilter> {
        let url = ("url", Setting::Text(url.to_owned()));
        let given = std::iter::once(url).chain(given);
        let given = given.map(|(name, value)| (name.to_owned(), Location::default(), value));
        build(Options::new("http", Location::default(), given)).unwrap()
    }

    fn text(text: &str) -> Setting {
        Setting::Text(text.to_owned())
    }

    fn hash(name: &str, value: &str) -> Setting {
        Setting::Hash(vec![(name.to_owned(), text(value))])
    }

    #[tokio::test]
    async fn answers_become_fields() {
        let (address, requests) =
            answering_server("200 OK", "application/json; charset=utf-8", "{\"a\":[1]}").await;
        let filter = filter(
            &format!("http://{address}/%{{id}}"),
            vec![
                ("verb", text("POST")),
                ("query", hash("q", "%{id} &")),
                ("headers", hash("x-id", "%{id}")),
                ("body", hash("id", "%{id}")),
                ("body_format", text("json")),
                ("user", text("me")),
                ("password", text("secret")),
            ],
        );
        let (outcome, fields) = apply_remote(&filter, json!({"id": "7"})).await;
        assert_eq!(outcome, Outcome::Matched);
        assert_eq!(
            (&fields["body"], &fields["headers"]["content-type"]),
            (&json!({"a": [1]}), &json!("application/json; charset=utf-8"))
        );
        let request = requests.lock()[0].to_ascii_lowercase();
        assert!(request.starts_with("post /7?q=7%20%26 http/1.1"), "{request}");
        assert!(
            request.contains("x-id: 7\r\n") && request.contains("authorization: basic bwu6c2vjcmv0"),
            "{request}"
        );
        assert!(request.ends_with("{\"id\":\"7\"}"), "{request}");
    }

    #[tokio::test]
    async fn answers_to_a_delivery_take_bounded_memory() {
        // Values take many times the bytes of the answer.
        let answer = format!("[{}[]]", "[],".repeat(1_000));
        let (address, _) = answering_server("200 OK", "application/json", &answer).await;
        let filter = filter(&format!("http://{address}/"), vec![]);
        let budget = Budget::new(400_000);
        let allowance = AnswerAllowance::new(&budget.share());
        for (added, outcome) in [(0, Outcome::Matched), (150_000, Outcome::Unmatched)] {
            allowance.add(added);
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            assert_eq!(filter.apply(&mut event, &allowance).await, outcome);
            assert_eq!(event.fields().contains_key("tags"), outcome == Outcome::Unmatched);
            assert_eq!(budget.used(), added, "the answer itself is gone");
        }
    }

    #[tokio::test]
    async fn failures_tag_the_event() {
        let (address, _) = answering_server("404 Not Found", "text/plain", "no").await;
        let missing = filter(&format!("http://{address}/"), vec![]);
        assert_eq!(
            apply_remote(&missing, json!({})).await,
            (Outcome::Unmatched, json!({"tags": ["_httprequestfailure"]}))
        );
        let (address, _) = answering_server("200 OK", "application/json", "{").await;
        let malformed =
            filter(&format!("http://{address}/"), vec![("target_headers", text("[@metadata][h]"))]);
        assert_eq!(
            apply_remote(&malformed, json!({})).await,
            (Outcome::Matched, json!({"tags": ["_jsonparsefailure"]}))
        );
        let unreachable = filter("http://127.0.0.1:1/", vec![("tag_on_request_failure", text("x"))]);
        assert_eq!(apply_remote(&unreachable, json!({})).await, (Outcome::Unmatched, json!({"tags": ["x"]})));
    }
}
