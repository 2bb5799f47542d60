//! `elasticsearch` and `opensearch`: documents that another server finds, page by page ([`paging`]), or its aggregations.
//!
//! Nothing is stored about what was read: each start, and each run of a schedule, reads all that the query finds.

mod paging;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::watch;

use self::paging::{Cursor, PageEnd, SearchApi};
use super::chunks::{BodySource, ChunkedDecoding};
use super::fetch::read_body;
use super::stream::delivery::send;
use super::timer::Timer;
use super::{Context, Input, InputError, mark_version, reserve_piece, stopped};
use crate::codec::{self, Codec, Events};
use crate::http_client::{authorization_header, custom_headers};
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
/// Slices that are read at a time. They share the bound of a page.
const MAX_PARALLEL: u32 = 4;
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
    headers: HeaderMap,
    tls: tls::Client,
    proxy: Option<Secret>,
    timeout: Duration,
    index: String,
    query: Map<String, Value>,
    scroll: String,
    timer: Timer,
    api: SearchApi,
    /// Slices of the search, which are read beside each other.
    slices: u32,
    /// `true` if the aggregations of an answer are the event, not its documents.
    reads_aggregations: bool,
    /// Field for what the documents are, and its members.
    docinfo: Option<(FieldReference, Vec<String>)>,
    target: Option<FieldReference>,
    json: Arc<dyn Codec>,
}

/// Outcome of a page that was read.
enum PageOutcome {
    Next,
    Last,
    PipelineGone,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, rename = "_scroll_id", default)]
    scroll: Option<&'a RawValue>,
    #[serde(borrow, rename = "pit_id", default)]
    point_in_time: Option<&'a RawValue>,
    #[serde(borrow)]
    hits: Hits<'a>,
    #[serde(borrow, default)]
    aggregations: Option<&'a RawValue>,
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
        let headers = custom_headers(o);
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
        let ecs = o.ecs_compatibility();
        let docinfo = docinfo(o, ecs.select("[@metadata]".to_owned(), format!("[@metadata][input][{name}]")));
        let target = o.field("target");
        let api = SearchApi::take(o);
        let slices =
            o.integer("slices", 1..=1_024).and_then(|slices| u32::try_from(slices).ok()).unwrap_or(1);
        let reads_aggregations = o.one_of("response_type", &["hits", "aggregations"]) == Some("aggregations");
        if slices > 1 && query.contains_key("slice") {
            o.fault_here("the query has a [slice]: give it, or the option [slices]");
        }
        if slices > 1 && reads_aggregations {
            o.fault_here(
                "aggregations are of one answer: give no [slices] with [response_type => aggregations]",
            );
        }
        let _ = codec::take(o, "json");
        let json = codec::build(Options::new("json", o.at(), []));
        options.finish()?;
        let timeout = Duration::from_secs(timeout.unsigned_abs());
        let settings = Settings {
            hosts,
            authorization,
            headers,
            tls,
            proxy,
            timeout,
            index,
            query,
            scroll,
            timer,
            api,
            slices,
            reads_aggregations,
            docinfo,
            target,
            json: json?,
        };
        Ok(Self { name, settings: Arc::new(settings) })
    }

    /// Reads all pages; returns `false` where the pipeline is gone.
    async fn read_all(&self, client: &Client, context: &Context) -> Result<bool, InputError> {
        if self.settings.reads_aggregations {
            return self.read_aggregations(client, context).await;
        }
        let opened = self.open(client).await?;
        let ends = AtomicBool::new(false);
        let read = |slice| self.read_slice(client, context, (opened.clone(), slice), &ends);
        let slices =
            stream::iter((0..self.settings.slices).map(read)).buffer_unordered(MAX_PARALLEL as usize);
        let ended: Vec<(Option<Cursor>, Result<bool, InputError>)> = slices.collect().await;
        let mut goes_on = Ok(true);
        let mut shared = None;
        for (cursor, outcome) in ended {
            // All slices are of one point in time.
            shared = shared.or(cursor);
            goes_on = goes_on.and_then(|goes_on| outcome.map(|outcome| goes_on && outcome));
        }
        if let Some(cursor) = shared {
            self.close(client, cursor).await;
        }
        goes_on
    }

    /// Reads the pages of a slice, until one of the slices `ends` the search; returns `false` where the pipeline is gone, and the cursor
    /// where others read by it, too.
    async fn read_slice(
        &self,
        client: &Client,
        context: &Context,
        (mut cursor, slice): (Cursor, u32),
        ends: &AtomicBool,
    ) -> (Option<Cursor>, Result<bool, InputError>) {
        let outcome = loop {
            if ends.load(Ordering::Relaxed) {
                break Ok(true);
            }
            match self.read_page(client, context, (&mut cursor, slice)).await {
                Ok(PageOutcome::Next) => {}
                Ok(PageOutcome::Last) => break Ok(true),
                Ok(PageOutcome::PipelineGone) => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        if !matches!(outcome, Ok(true)) {
            ends.store(true, Ordering::Relaxed);
        }
        if matches!(cursor, Cursor::PointInTime { .. }) {
            return (Some(cursor), outcome);
        }
        self.close(client, cursor).await;
        (None, outcome)
    }

    /// Reads the next page of a slice.
    async fn read_page(
        &self,
        client: &Client,
        context: &Context,
        (cursor, slice): (&mut Cursor, u32),
    ) -> Result<PageOutcome, InputError> {
        let page = self.next_page(client, cursor, slice).await?;
        let settings = Arc::clone(&self.settings);
        let decode = move |events: &mut Events| settings.events(&page, events);
        let decoding = ChunkedDecoding::start(context, BodySource::Repeatable, |_| {}, decode).await;
        let Some(decoding) = decoding else { return Ok(PageOutcome::PipelineGone) };
        let Some(read) = decoding.send().await else { return Ok(PageOutcome::PipelineGone) };
        let end = read.map_err(InputError)?;
        let is_last = end.hits == 0;
        cursor.advance(end, is_last).map_err(InputError)?;
        Ok(if is_last || !cursor.has_next() { PageOutcome::Last } else { PageOutcome::Next })
    }

    /// Reads the aggregations of one answer.
    async fn read_aggregations(&self, client: &Client, context: &Context) -> Result<bool, InputError> {
        let settings = Arc::clone(&self.settings);
        let mut query = settings.query.clone();
        query.insert("size".to_owned(), Value::from(0));
        let path = format!("/{}/_search", settings.index);
        let answer = self.ask(client, Method::POST, &path, &[], Some(&Value::Object(query))).await?;
        let Some(held) = reserve_piece(context).await else { return Ok(false) };
        let events = offload(move || settings.aggregations(&answer)).await.map_err(InputError)?;
        Ok(send(events, held, context).await)
    }

    /// Sends a request to a host that answers, a few times. A request for the next page that may have arrived is not sent again:
    /// the server would skip a page.
    async fn ask(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        parameters: &[(&str, &str)],
        body: Option<&Value>,
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
                let request = client.request(method.clone(), url);
                let request = match body {
                    Some(body) => request.body(body.to_string()),
                    None => request,
                };
                let sent = request.send().await;
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
                match read_body(response, MAX_PAGE / u64::from(self.settings.slices.min(MAX_PARALLEL))).await
                {
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
    /// Appends the events of a page; returns the end of the page.
    ///
    /// # Errors
    /// The page cannot be read, or documents are missing in it.
    fn events(&self, page: &[u8], events: &mut Events) -> Result<PageEnd, String> {
        let page = read_page(page)?;
        let id = |id: Option<&RawValue>| {
            id.map(|id| serde_json::from_str(id.get())).transpose().map_err(unreadable)
        };
        let (scroll, point_in_time) = (id(page.scroll)?, id(page.point_in_time)?);
        let (mut sort, mut hits) = (None, 0);
        for Hit { source, mut rest } in page.hits.hits {
            self.decode(source.map_or("{}", RawValue::get), &rest, events);
            sort = rest.remove("sort");
            hits += 1;
        }
        Ok(PageEnd { hits, scroll, point_in_time, sort })
    }

    /// Makes the event of the aggregations of an answer.
    ///
    /// # Errors
    /// The answer cannot be read, or has none.
    fn aggregations(&self, answer: &[u8]) -> Result<Events, String> {
        let none =
            "the answer has no aggregations: [response_type => aggregations] needs a [query] with some";
        let aggregations = read_page(answer)?.aggregations.ok_or(none)?;
        let mut events = Events::default();
        self.decode(aggregations.get(), &Map::new(), &mut events);
        Ok(events)
    }

    /// Appends the event of an object of JSON.
    fn decode(&self, json: &str, hit: &Map<String, Value>, events: &mut Events) {
        let mut own = Events::default();
        let mut decoder = self.json.line_decoder();
        decoder.decode(json.as_bytes(), &mut own);
        decoder.finish(&mut own);
        for mut event in own.into_vec() {
            self.complete(&mut event, hit);
            events.push(event);
        }
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
        let mut headers = self.headers.clone();
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

fn unreadable(error: serde_json::Error) -> String {
    format!("the answer cannot be read: {error}")
}

/// Reads an answer.
///
/// # Errors
/// It cannot be read, or documents are missing in it.
fn read_page(answer: &[u8]) -> Result<Page<'_>, String> {
    let page: Page<'_> = serde_json::from_slice(answer).map_err(unreadable)?;
    if page.timed_out || page.shards.failed > 0 {
        let failed = page.shards.failed;
        return Err(format!("documents are missing: [{failed}] shards failed, or the search timed out"));
    }
    Ok(page)
}

fn docinfo(options: &mut Options, own_target: String) -> Option<(FieldReference, Vec<String>)> {
    let wanted = options.boolean("docinfo").unwrap_or(false);
    let target = options.field("docinfo_target").or_else(|| FieldReference::parse(&own_target).ok());
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
