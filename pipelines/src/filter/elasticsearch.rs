//! `elasticsearch`: finds documents on a server by a query, and copies fields of them into the event.
//!
//! The search has the rights of the user or the key that the filter is given, also where the server is this one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use millrace_ingest::budget::{AnswerAllowance, AnswerReservation};
use millrace_ingest::http_client::{HttpClient, HttpRequest, authorization_header, custom_headers};
use millrace_ingest::{Event, Fault, FieldReference, Options, Setting, Template, resolve_cloud_options};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::body_template::BodyTemplate;
use super::refresh::read_text;
use super::settings::texts_or;
use super::{Outcome, RemoteFilter};

/// Port where none is given.
const PORT: u16 = 9200;
/// Searches of one delivery at the same time.
const CONCURRENCY: usize = 16;
/// Largest template of a query, in bytes.
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;
/// Field for the number of documents that a query finds.
const TOTAL: &str = "[@metadata][total_hits]";

struct Lookup {
    client: HttpClient,
    hosts: Vec<String>,
    /// Place of the host that answered last: the next search begins there.
    first_host: AtomicUsize,
    index: Template,
    query: Query,
    headers: Vec<(String, String)>,
    fields: Vec<FieldCopy>,
    docinfo_fields: Vec<FieldCopy>,
    aggregation_fields: Vec<FieldCopy>,
    retries: usize,
    retryable: Vec<u16>,
    total: FieldReference,
    tags_on_failure: Vec<String>,
}

/// Without hosts and headers, which may have credentials.
impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("index", &self.index).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Query {
    /// In the syntax of Lucene, with the rest of the parameters.
    Text(Template, String),
    /// A body in the query DSL.
    Body(BodyTemplate),
    /// A body that is JSON only when its formats are filled.
    Written(Template),
}

/// A member of a document, and the field that it is copied to.
#[derive(Debug)]
struct FieldCopy {
    path: Vec<String>,
    field: FieldReference,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let plugin = options.plugin().to_owned();
    if let Some((at, _)) = options.take("query_params") {
        let message = format!(
            "option [query_params] of [{plugin}] is not supported: queries of ES|QL are not there, give [query]"
        );
        options.fault(at, message);
    }
    resolve_cloud_options(&mut options);
    if options.one_of("query_type", &["dsl", "esql"]) == Some("esql") {
        options.fault_here(format!(
            "[query_type => esql] of [{plugin}] is not supported: give a query of the DSL"
        ));
    }
    options.rename("ca_file", "ssl_certificate_authorities");
    let is_tls = options.boolean("ssl_enabled").or_else(|| options.boolean("ssl"));
    let hosts = options.texts("hosts");
    let hosts = if hosts.is_empty() { vec!["localhost".to_owned()] } else { hosts };
    let mut addresses = Vec::new();
    for host in hosts {
        match address(&host, is_tls.unwrap_or(false)) {
            Some(address) => addresses.push(address),
            None => {
                // Without a user and a password.
                let shown = host.rsplit('@').next().unwrap_or_default();
                options
                    .fault_here(format!("option [hosts] of [{plugin}]: [{shown}] is no address of a server"));
            }
        }
    }
    let index = options.template("index").unwrap_or_else(|| Template::parse(""));
    let query = take_query(&mut options);
    let given = custom_headers(&mut options);
    let mut headers: Vec<_> = given
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    let target = options.text("target");
    let fields = copies(&mut options, "fields", target.as_deref());
    let docinfo_fields = copies(&mut options, "docinfo_fields", target.as_deref());
    let aggregation_fields = copies(&mut options, "aggregation_fields", target.as_deref());
    let retries = options.integer("retry_on_failure", 0..=100).unwrap_or(0);
    let retryable = options.read("retry_on_status", "an array of statuses", |setting| match setting {
        Setting::Array(elements) => elements.iter().map(|status| status.as_text()?.parse().ok()).collect(),
        single => single.as_text()?.parse().ok().map(|status| vec![status]),
    });
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_elasticsearch_lookup_failure"]);
    let key = options.secret("api_key");
    let mut client = HttpClient::take(&mut options);
    let authorization = key.and_then(|key| authorization_header(&mut options, "ApiKey", key.expose()));
    if let Some(authorization) = authorization {
        client.set_authorization(authorization);
    }
    options.finish()?;
    let (Some(query), Ok(total)) = (query, FieldReference::parse(TOTAL)) else { return Err(Vec::new()) };
    Ok(Arc::new(Lookup {
        client,
        hosts: addresses,
        first_host: AtomicUsize::new(0),
        index,
        query,
        headers,
        fields,
        docinfo_fields,
        aggregation_fields,
        retries: usize::try_from(retries).unwrap_or(0),
        retryable: retryable.unwrap_or_else(|| vec![500, 502, 503, 504]),
        total,
        tags_on_failure,
    }))
}

/// Completes the address of a host.
fn address(host: &str, is_tls: bool) -> Option<String> {
    let (scheme, rest) = match host.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return None,
        None => (if is_tls { "https" } else { "http" }, host),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let name = authority.rsplit('@').next().unwrap_or(authority);
    if name.is_empty() || name.contains([' ', '?', '#']) {
        return None;
    }
    let has_port = name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{PORT}") };
    let path = path.trim_end_matches('/');
    Some(if path.is_empty() {
        format!("{scheme}://{authority}")
    } else {
        format!("{scheme}://{authority}/{path}")
    })
}

fn take_query(options: &mut Options) -> Option<Query> {
    let text = options.template("query");
    let path = options.text("query_template");
    let size = options.integer("result_size", 1..=10_000).unwrap_or(1);
    let sort = options.text("sort").unwrap_or_else(|| "@timestamp:desc".to_owned());
    let is_sorted = options.boolean("enable_sort").unwrap_or(true);
    match (text, path) {
        (Some(text), None) => {
            let mut parameters = format!("&size={size}");
            if is_sorted {
                parameters.push_str("&sort=");
                parameters.extend(utf8_percent_encode(&sort, NON_ALPHANUMERIC));
            }
            Some(Query::Text(text, parameters))
        }
        (None, Some(path)) => match read_template(Path::new(&path)) {
            Ok(body) => Some(match serde_json::from_str(&body) {
                Ok(json) => Query::Body(BodyTemplate::from_json(json)),
                Err(_) => Query::Written(Template::parse(&body)),
            }),
            Err(problem) => {
                options.fault_here(format!("option [query_template]: {problem}"));
                None
            }
        },
        _ => {
            options.fault_here(format!("[{}] needs either [query] or [query_template]", options.plugin()));
            None
        }
    }
}

fn read_template(path: &Path) -> Result<String, String> {
    let text = read_text(path, MAX_TEMPLATE_BYTES)?;
    if text.trim().is_empty() { Err(format!("[{}] is empty", path.display())) } else { Ok(text) }
}

/// Takes members and fields: a hash, an array of pairs, or names of members that are fields of the same name.
fn copies(options: &mut Options, name: &'static str, target: Option<&str>) -> Vec<FieldCopy> {
    let Some((at, setting)) = options.take(name) else { return Vec::new() };
    let pair = |setting: &Setting| match setting {
        Setting::Array(pair) => match pair.as_slice() {
            [from, to] => Some((from.as_text()?, to.as_text()?)),
            _ => None,
        },
        single => single.as_text().map(|name| (name.clone(), name)),
    };
    let pairs: Option<Vec<(String, String)>> = match &setting {
        Setting::Hash(members) => {
            members.iter().map(|(from, to)| Some((from.clone(), to.as_text()?))).collect()
        }
        Setting::Array(elements) if elements.iter().any(|element| matches!(element, Setting::Array(_))) => {
            elements.iter().map(pair).collect()
        }
        Setting::Array(elements) if elements.len() % 2 == 0 => elements
            .chunks_exact(2)
            .map(|pair| Some((pair.first()?.as_text()?, pair.get(1)?.as_text()?)))
            .collect(),
        _ => None,
    };
    let Some(pairs) = pairs else {
        options.fault(at, format!("option [{name}] must give fields, such as {{ \"from\" => \"to\" }}"));
        return Vec::new();
    };
    let mut copies = Vec::new();
    for (from, to) in pairs {
        let reference = match target {
            Some(target) => format!("{}{}", bracketed(target), bracketed(&to)),
            None => to,
        };
        let inner = from.strip_prefix('[').and_then(|from| from.strip_suffix(']'));
        let path =
            inner.map_or_else(|| vec![from.clone()], |inner| inner.split("][").map(str::to_owned).collect());
        match FieldReference::parse(&reference) {
            Ok(field) => copies.push(FieldCopy { path, field }),
            Err(fault) => options.fault(at, fault),
        }
    }
    copies
}

fn bracketed(name: &str) -> String {
    if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") }
}

fn member<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, name| value.get(name))
}

impl Lookup {
    fn request(&self, host: &str, event: &Event) -> HttpRequest {
        let index: String = self.index.render(event);
        let index: Vec<String> =
            index.split(',').map(|name| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()).collect();
        let index = index.join(",");
        let mut url = format!("{host}{}{index}/_search", if index.is_empty() { "" } else { "/" });
        let body = match &self.query {
            Query::Text(query, parameters) => {
                url.push_str("?q=");
                url.extend(utf8_percent_encode(&query.render(event), NON_ALPHANUMERIC));
                url.push_str(parameters);
                None
            }
            Query::Body(body) => Some(body.render(event).to_string().into_bytes()),
            Query::Written(body) => Some(body.render(event).into_bytes()),
        };
        HttpRequest { method: "POST".to_owned(), url, headers: self.headers.clone(), body }
    }

    async fn search(&self, event: &Event, reservation: &mut AnswerReservation<'_>) -> Result<Value, String> {
        let mut reason = String::new();
        let first = self.first_host.load(Ordering::Relaxed);
        for (place, host) in
            self.hosts.iter().enumerate().cycle().skip(first).take(self.hosts.len() + self.retries)
        {
            match self.client.send_reserved(self.request(host, event), reservation).await {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    self.first_host.store(place, Ordering::Relaxed);
                    let answer = answer.json(reservation).map_err(|error| error.to_string())?;
                    if answer.pointer("/_shards/failures").is_some() {
                        return Err("a shard of the server failed".to_owned());
                    }
                    return Ok(answer);
                }
                Ok(answer) if self.retryable.contains(&answer.status) => {
                    reason = format!("the server answers {}", answer.status);
                }
                Ok(answer) => return Err(format!("the server answers {}", answer.status)),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// Copies what was found; returns whether anything was.
    fn copy(&self, event: &mut Event, answer: &Value) -> Result<bool, String> {
        let total = answer.pointer("/hits/total");
        let total = total.and_then(|total| total.get("value")).or(total).cloned().unwrap_or(Value::Null);
        event.set(&self.total, total)?;
        let hits =
            answer.pointer("/hits/hits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let nothing = Value::Null;
        if !hits.is_empty() {
            let documents: Vec<&Value> =
                hits.iter().map(|hit| hit.get("_source").unwrap_or(&nothing)).collect();
            let hits: Vec<&Value> = hits.iter().collect();
            for (copies, from) in [(&self.fields, &documents), (&self.docinfo_fields, &hits)] {
                for copy in copies {
                    let mut values: Vec<Value> = from
                        .iter()
                        .map(|document| member(document, &copy.path).cloned().unwrap_or(Value::Null))
                        .collect();
                    let value = if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
                    event.set(&copy.field, value)?;
                }
            }
        }
        let aggregations =
            answer.get("aggregations").and_then(Value::as_object).filter(|found| !found.is_empty());
        if aggregations.is_some() {
            for copy in &self.aggregation_fields {
                let found = answer.get("aggregations").and_then(|found| member(found, &copy.path));
                event.set(&copy.field, found.cloned().unwrap_or(Value::Null))?;
            }
        }
        Ok(!hits.is_empty() || aggregations.is_some())
    }
}

#[async_trait]
impl RemoteFilter for Lookup {
    async fn apply(&self, event: &mut Event, allowance: &AnswerAllowance) -> Outcome {
        let mut reservation = allowance.answer();
        let copied = match self.search(event, &mut reservation).await {
            Ok(answer) => self.copy(event, &answer),
            Err(reason) => Err(reason),
        };
        match copied {
            Ok(true) => Outcome::Matched,
            Ok(false) => Outcome::Unmatched,
            Err(reason) => {
                tracing::debug!(reason, "a search of the filter elasticsearch failed");
                self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
                Outcome::Unmatched
            }
        }
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
    use millrace_ingest::Location;
    use serde_json::json;

    use super::*;
    use crate::filter::testing::{answering_server, apply_remote};

    fn text(text: &str) -> Setting {
        Setting::Text(text.to_owned())
    }

    fn hash(members: &[(&str, &str)]) -> Setting {
        Setting::Hash(members.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect())
    }

    fn filter(given: Vec<(&str, Setting)>) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), Location::default(), value));
        build(Options::new("elasticsearch", Location::default(), given))
    }

    #[tokio::test]
    async fn fields_of_documents_are_copied() {
        let answer = json!({
            "_shards": {"total": 1},
            "hits": {"total": {"value": 2}, "hits": [
                {"_id": "1", "_source": {"a": {"b": 5}, "c": [1]}},
                {"_id": "2", "_source": {"a": {"b": 6}}},
            ]},
            "aggregations": {"n": {"value": 9}},
        });
        let (address, requests) = answering_server("200 OK", "application/json", &answer.to_string()).await;
        let lookup = filter(vec![
            ("hosts", text(&address)),
            ("index", text("logs-%{type}")),
            ("query", text("id:%{id} AND x")),
            ("result_size", text("2")),
            ("fields", hash(&[("[a][b]", "[found][b]"), ("c", "c")])),
            ("docinfo_fields", hash(&[("_id", "ids")])),
            ("aggregation_fields", hash(&[("n", "n")])),
            ("api_key", text("id:key")),
        ])
        .unwrap();
        let (outcome, fields) = apply_remote(&lookup, json!({"id": "7", "type": "web"})).await;
        let expected = json!({
            "id": "7", "type": "web", "found": {"b": [5, 6]}, "c": [[1], null], "ids": ["1", "2"], "n": {"value": 9},
        });
        assert_eq!((outcome, fields), (Outcome::Matched, expected));
        let request = requests.lock()[0].clone();
        assert!(
            request.starts_with(
                "POST /logs%2Dweb/_search?q=id%3A7%20AND%20x&size=2&sort=%40timestamp%3Adesc HTTP/1.1"
            ),
            "{request}"
        );
        assert!(request.to_ascii_lowercase().contains("authorization: apikey awq6a2v5\r\n"), "{request}");
    }

    #[tokio::test]
    async fn queries_may_be_templates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"query": {"term": {"id": "%{id}"}}}"#).unwrap();
        let quoted = json!({"id": "7\"}}"});
        let (address, requests) =
            answering_server("200 OK", "application/json", r#"{"hits":{"total":0,"hits":[]}}"#).await;
        let lookup = filter(vec![
            ("hosts", text(&format!("http://{address}/"))),
            ("query_template", text(file.path().to_str().unwrap())),
            ("fields", Setting::Array(vec![text("a"), text("b")])),
        ])
        .unwrap();
        assert_eq!(apply_remote(&lookup, quoted.clone()).await, (Outcome::Unmatched, quoted));
        assert!(requests.lock()[0].ends_with(r#"{"query":{"term":{"id":"7\"}}"}}}"#));
        let (address, _) = answering_server("400 Bad Request", "application/json", "{}").await;
        let failing = filter(vec![("hosts", text(&address)), ("query", text("x"))]).unwrap();
        let tagged = json!({"tags": ["_elasticsearch_lookup_failure"]});
        assert_eq!(apply_remote(&failing, json!({})).await, (Outcome::Unmatched, tagged));
    }

    #[test]
    fn options_are_checked() {
        for (given, expected) in [
            (vec![], "needs either [query] or [query_template]"),
            (vec![("query", text("x")), ("cloud_id", text("y"))], "option [cloud_id]"),
            (vec![("query", text("x")), ("query_type", text("esql"))], "esql"),
            (vec![("query", text("x")), ("hosts", text("ftp://x"))], "no address"),
            (vec![("query", text("x")), ("fields", text("a"))], "must give fields"),
            (
                vec![("query", text("x")), ("custom_headers", hash(&[("X Y", "1")]))],
                "[X Y] of [custom_headers] is not a header",
            ),
        ] {
            let faults = filter(given).unwrap_err();
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{faults:?}");
        }
    }
}
