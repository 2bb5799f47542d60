//! `elasticsearch` and `opensearch`: documents that another server finds, page by page.
//!
//! Nothing is stored about what was read: each start, and each run of a schedule, reads all that the query finds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::fetch::read_body;
use super::stream::delivery::send;
use super::timer::Timer;
use super::{Context, Input, InputError, mark_version, reserve_piece, stopped};
use crate::codec::{self, Codec, Events};
use crate::http_client::authorization_header;
use crate::offload::offload;
use crate::{Event, Fault, FieldReference, Options, Secret, resolve_cloud_options, tls};

/// Port where an address has none.
const PORT: u16 = 9200;
/// Longest page in bytes.
const MAX_PAGE: u64 = 256 << 20;
/// Documents of a page where nothing is said.
const SIZE: i64 = 1_000;
/// Query where none is given.
const QUERY: &str = r#"{"sort":["_doc"]}"#;
/// Attempts at a page.
const ATTEMPTS: u32 = 3;
/// Path of the requests for further pages.
const SCROLL_PATH: &str = "/_search/scroll";
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Search {
    name: &'static str,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Settings {
    hosts: Vec<Url>,
    authorization: Option<HeaderValue>,
    tls: tls::Client,
    proxy: Option<Secret>,
    timeout: Duration,
    index: String,
    query: Map<String, Value>,
    scroll: String,
    timer: Timer,
    /// Field for what the documents are, and its members.
    docinfo: Option<(FieldReference, Vec<String>)>,
    target: Option<FieldReference>,
    json: Arc<dyn Codec>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, rename = "_scroll_id", default)]
    scroll: Option<&'a RawValue>,
    #[serde(borrow)]
    hits: Hits<'a>,
    #[serde(default)]
    timed_out: bool,
    #[serde(rename = "_shards", default)]
    shards: Shards,
}

#[derive(Deserialize, Default)]
struct Shards {
    #[serde(default)]
    failed: u64,
}

#[derive(Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Vec<Hit<'a>>,
}

#[derive(Deserialize)]
struct Hit<'a> {
    #[serde(borrow, rename = "_source", default)]
    source: Option<&'a RawValue>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Search {
    /// Makes the input, under the name `elasticsearch` or `opensearch`.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options, name: &'static str) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        for (old, new) in [("ca_file", "ssl_certificate_authorities"), ("ssl", "ssl_enabled")] {
            o.rename(old, new);
        }
        resolve_cloud_options(o);
        let enabled = o.boolean("ssl_enabled");
        let hosts = hosts(o, enabled);
        let authorization = authorization(o);
        let tls = tls::Client::take(o);
        let proxy = o.secret("proxy").filter(|proxy| !proxy.expose().is_empty());
        let timeout = o.integer("request_timeout_seconds", 1..=86_400).unwrap_or(60);
        for name in ["connect_timeout_seconds", "socket_timeout_seconds", "retries"] {
            let _ = o.integer(name, 0..=86_400);
        }
        let index = o.text("index").unwrap_or_else(|| "logstash-*".to_owned());
        let size = o.integer("size", 1..=10_000).unwrap_or(SIZE);
        let query = query(o, size);
        let scroll = o.text("scroll").unwrap_or_else(|| "1m".to_owned());
        let timer = Timer::take(o).unwrap_or(Timer::Once(Duration::ZERO));
        let docinfo = docinfo(o);
        let target = o.field("target");
        // Pages are read one after the other, whatever they are called.
        let _ = o.one_of("search_api", &["auto", "scroll", "search_after"]);
        let _ = o.integer("slices", 1..=1_024);
        let _ = o.one_of("response_type", &["hits"]);
        let _ = codec::take(o, "json");
        let _ = o.one_of("ecs_compatibility", &["disabled"]);
        let json = codec::build(Options::new("json", o.at(), []));
        options.finish()?;
        let timeout = Duration::from_secs(timeout.unsigned_abs());
        let settings = Settings {
            hosts,
            authorization,
            tls,
            proxy,
            timeout,
            index,
            query,
            scroll,
            timer,
            docinfo,
            target,
            json: json?,
        };
        Ok(Self { name, settings: Arc::new(settings) })
    }

    /// Reads all pages; returns `false` where the pipeline is gone.
    async fn read_all(&self, client: &Client, context: &Context) -> Result<bool, InputError> {
        let settings = &self.settings;
        let path = format!("/{}/_search", settings.index);
        let first = Value::Object(settings.query.clone());
        let mut page =
            self.ask(client, Method::POST, &path, &[("scroll", settings.scroll.as_str())], &first).await?;
        let mut scroll: Option<String> = None;
        let ended = loop {
            let Some(held) = reserve_piece(context).await else { break Ok(false) };
            let of_page = Arc::clone(settings);
            let read = offload(move || of_page.events(&page)).await;
            let (events, next) = match read {
                Ok(read) => read,
                Err(problem) => break Err(InputError(problem)),
            };
            scroll = next.or(scroll);
            let is_last = events.is_empty();
            if !send(events, held, context).await {
                break Ok(false);
            }
            let (false, Some(id)) = (is_last, &scroll) else { break Ok(true) };
            let body = serde_json::json!({ "scroll": settings.scroll, "scroll_id": id });
            page = match self.ask(client, Method::POST, SCROLL_PATH, &[], &body).await {
                Ok(page) => page,
                Err(error) => break Err(error),
            };
        };
        if let Some(id) = scroll {
            // One that cannot be ended ends by itself.
            let body = serde_json::json!({ "scroll_id": [id] });
            let _ = self.ask(client, Method::DELETE, SCROLL_PATH, &[], &body).await;
        }
        ended
    }

    /// Sends a request to a host that answers, a few times. A request for the next page that may have arrived is not sent again:
    /// the server would skip a page.
    async fn ask(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        parameters: &[(&str, &str)],
        body: &Value,
    ) -> Result<Vec<u8>, InputError> {
        let mut problem = String::new();
        let is_next_page = path == SCROLL_PATH;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            for host in &self.settings.hosts {
                let mut url = host.clone();
                url.set_path(&format!("{}{path}", host.path().trim_end_matches('/')));
                if !parameters.is_empty() {
                    url.query_pairs_mut().extend_pairs(parameters);
                }
                let sent = client.request(method.clone(), url).body(body.to_string()).send().await;
                let response = match sent {
                    Ok(response) => response,
                    Err(error) => {
                        let has_arrived = !error.is_connect();
                        problem = error.without_url().to_string();
                        if is_next_page && has_arrived {
                            return Err(InputError(format!("the search failed: {problem}")));
                        }
                        continue;
                    }
                };
                let status = response.status();
                match read_body(response, MAX_PAGE).await {
                    Ok(body) if status.is_success() => return Ok(body),
                    Ok(body) => {
                        let text = String::from_utf8_lossy(&body);
                        let text: String = text.chars().take(500).collect();
                        problem = format!("status {status}: {text}");
                        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
                            return Err(InputError(format!("the search failed: {problem}")));
                        }
                    }
                    Err(error) => problem = error,
                }
                if is_next_page && status != StatusCode::TOO_MANY_REQUESTS {
                    return Err(InputError(format!("the search failed: {problem}")));
                }
            }
        }
        Err(InputError(format!("the search failed: {problem}")))
    }
}

impl Settings {
    /// Makes the events of a page; returns them with the id of the scroll.
    ///
    /// # Errors
    /// The page cannot be read, or documents are missing in it.
    fn events(&self, page: &[u8]) -> Result<(Events, Option<String>), String> {
        let unreadable = |error: serde_json::Error| format!("the answer cannot be read: {error}");
        let page: Page<'_> = serde_json::from_slice(page).map_err(unreadable)?;
        if page.timed_out || page.shards.failed > 0 {
            let failed = page.shards.failed;
            return Err(format!("documents are missing: [{failed}] shards failed, or the search timed out"));
        }
        let scroll = page.scroll.map(|id| serde_json::from_str(id.get())).transpose().map_err(unreadable)?;
        let mut events = Events::default();
        let mut decoder = self.json.line_decoder();
        for Hit { source, rest } in page.hits.hits {
            let before = events.len();
            decoder.decode(source.map_or("{}", RawValue::get).as_bytes(), &mut events);
            decoder.finish(&mut events);
            for event in events.iter_mut().skip(before) {
                self.complete(event, &rest);
            }
        }
        Ok((events, scroll))
    }

    fn complete(&self, event: &mut Event, hit: &Map<String, Value>) {
        if let Some(target) = &self.target {
            let fields = std::mem::take(event.fields_mut());
            let _ = event.set(target, Value::Object(fields));
        }
        mark_version(event);
        let Some((target, members)) = &self.docinfo else { return };
        let members = members.iter().filter_map(|name| Some((name.clone(), hit.get(name)?.clone())));
        let info: Map<String, Value> = members.collect();
        let merged = match event.get(target).map(std::borrow::Cow::into_owned) {
            Some(Value::Object(mut have)) => {
                have.extend(info);
                have
            }
            _ => info,
        };
        // A field that is something else stays.
        let _ = event.set(target, Value::Object(merged));
    }

    fn client(&self) -> Result<Client, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let builder = Client::builder()
            .default_headers(headers)
            .timeout(self.timeout)
            .connect_timeout(self.timeout)
            .redirect(reqwest::redirect::Policy::none());
        self.tls.http_client(builder, self.proxy.as_ref())
    }
}

fn hosts(options: &mut Options, tls: Option<bool>) -> Vec<Url> {
    let mut given = options.texts("hosts");
    if given.is_empty() {
        given.push("localhost".to_owned());
    }
    let scheme = if tls == Some(true) { "https" } else { "http" };
    let mut hosts = Vec::new();
    for host in given.iter().flat_map(|hosts| hosts.split([' ', ','])).filter(|host| !host.is_empty()) {
        let text = if host.contains("://") { host.to_owned() } else { format!("{scheme}://{host}") };
        let shown = host.rsplit_once('@').map_or(host, |(_, shown)| shown);
        match Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https")) {
            Some(mut url) => {
                let authority =
                    text.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
                let behind = authority.rsplit_once(['@', ']']).map_or(authority, |(_, behind)| behind);
                if !behind.contains(':') {
                    // The port of the data API rather than the scheme's.
                    let _ = url.set_port(Some(PORT));
                }
                hosts.push(url);
            }
            None => options.fault_here(format!("host [{shown}] is not an address of http or https")),
        }
    }
    hosts
}

fn authorization(options: &mut Options) -> Option<HeaderValue> {
    let (user, password, key) = (options.text("user"), options.secret("password"), options.secret("api_key"));
    match (user, password, key) {
        (None, None, None) => None,
        (Some(user), Some(password), None) => {
            authorization_header(options, "Basic", &format!("{user}:{}", password.expose()))
        }
        (None, None, Some(key)) => authorization_header(options, "ApiKey", key.expose()),
        _ => {
            options.fault_here("give [user] and [password], or [api_key]");
            None
        }
    }
}

fn query(options: &mut Options, size: i64) -> Map<String, Value> {
    let given = options.text("query").unwrap_or_else(|| QUERY.to_owned());
    let mut query = match serde_json::from_str(&given) {
        Ok(Value::Object(query)) => query,
        _ => {
            options.fault_here(
                "option [query] must be an object of JSON, such as { \"query\": { \"match_all\": {} } }",
            );
            Map::new()
        }
    };
    query.insert("size".to_owned(), Value::from(size));
    query
}

fn docinfo(options: &mut Options) -> Option<(FieldReference, Vec<String>)> {
    let wanted = options.boolean("docinfo").unwrap_or(false);
    let target = options.field("docinfo_target").or_else(|| FieldReference::parse("[@metadata]").ok());
    let mut members = options.texts("docinfo_fields");
    if members.is_empty() {
        members = ["_index", "_type", "_id"].map(str::to_owned).to_vec();
    }
    if !wanted {
        return None;
    }
    target.map(|target| (target, members))
}

#[async_trait]
impl Input for Search {
    fn identity(&self) -> String {
        let hosts: Vec<&str> = self.settings.hosts.iter().filter_map(Url::host_str).collect();
        format!("{} {} {}", self.name, hosts.join(" "), self.settings.index)
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let client = self.settings.client().map_err(InputError)?;
        let mut stopping: watch::Receiver<bool> = context.stopping.clone();
        let mut run = 0;
        while self.settings.timer.wait(run, &mut stopping).await {
            let read = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                read = self.read_all(&client, &context) => read,
            };
            if !read? {
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
    async fn pages_are_read_to_the_end() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let mut asked = Vec::new();
            for body in [
                r#"{"_scroll_id":"s1","hits":{"hits":[{"_index":"a","_id":"1","_score":1,"_source":{"n":1}}]}}"#,
                r#"{"_scroll_id":"s2","hits":{"hits":[{"_index":"a","_id":"2","_source":{"n":2}},{"_id":"3"}]}}"#,
                r#"{"_scroll_id":"s2","hits":{"hits":[]}}"#,
                "{}",
            ] {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                asked.push(String::from_utf8(request).unwrap());
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        let given = [
            ("hosts", address.to_string().into()),
            ("index", "a-*".into()),
            ("docinfo", "true".into()),
            ("docinfo_target", "[@metadata][doc]".into()),
            ("size", "2".into()),
        ];
        let search = Search::new(options("elasticsearch", &given), "elasticsearch").unwrap();
        let mut pipeline = Pipeline::new(4);
        let run = search.run(pipeline.context());
        let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
        ended.unwrap();
        let asked = answering.await.unwrap();
        assert!(
            asked[0].starts_with("POST /a-*/_search?scroll=1m") && asked[0].contains(r#""size":2"#),
            "{}",
            asked[0]
        );
        assert!(asked[1].contains(r#""scroll_id":"s1""#) && asked[2].contains(r#""scroll_id":"s2""#));
        assert!(asked[3].starts_with("DELETE /_search/scroll"));
        assert_eq!(pipeline.events.len(), 3);
        assert_eq!(pipeline.events[1].fields()["n"], 2);
        assert_eq!(pipeline.events[0].metadata()["doc"], serde_json::json!({"_index": "a", "_id": "1"}));
    }

    #[tokio::test]
    async fn a_request_for_the_next_page_is_sent_once() {
        let first = r#"{"_scroll_id":"s1","hits":{"hits":[{"_source":{"n":1}}]}}"#;
        let partial = r#"{"_scroll_id":"s1","_shards":{"failed":1},"hits":{"hits":[{"_source":{"n":1}}]}}"#;
        let answer = |length: usize, body: &str| {
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        };
        // The second page breaks off; in the other case, a shard did not answer for the first.
        for (answers, expected, read) in [
            (
                [answer(first.len(), first), answer(100, "{"), answer(2, "{}")].to_vec(),
                "the search failed",
                1,
            ),
            ([answer(partial.len(), partial)].to_vec(), "documents are missing", 0),
        ] {
            let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = server.local_addr().unwrap();
            let answering = tokio::spawn(async move {
                let mut asked = Vec::new();
                for answer in answers {
                    let (mut stream, _) = server.accept().await.unwrap();
                    let mut request = Vec::new();
                    while !request.ends_with(b"}") {
                        stream.read_buf(&mut request).await.unwrap();
                    }
                    asked.push(String::from_utf8(request).unwrap());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                asked
            });
            let given = [("hosts", address.to_string().into())];
            let search = Search::new(options("opensearch", &given), "opensearch").unwrap();
            let mut pipeline = Pipeline::new(4);
            let run = search.run(pipeline.context());
            let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
            assert!(ended.as_ref().unwrap_err().to_string().contains(expected), "{ended:?}");
            let asked = answering.await.unwrap();
            assert!(asked.get(2).is_none_or(|last| last.starts_with("DELETE")), "{asked:?}");
            assert_eq!(pipeline.events.len(), read);
        }
    }

    #[test]
    fn options_are_checked() {
        let faults = Search::new(
            options(
                "opensearch",
                &[("query", "[1]".into()), ("cloud_id", "x".into()), ("hosts", "ftp://x".into())],
            ),
            "opensearch",
        )
        .unwrap_err();
        let all = faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n");
        for part in ["[query] must be an object", "[cloud_id] cannot be read", "host [ftp://x]"] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
