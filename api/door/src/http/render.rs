//! From a handler's [`Response`] to bytes on the wire: `pretty`, `human`, `filter_path`, `format`,
//! compression, and the headers that every answer carries.
//!
//! That of a large answer is work for the compute threads: [`Style::works_on`] tells. Every answer holds its bytes of a
//! [`Budget`] until it is sent, unless it brings an account of its own ([`Body::HeldJson`]).

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::Full;
use millrace_listen::Budget;
use millrace_mapping::source::Members;
use millrace_runtime::Compute;
use serde_json::Value;

use crate::error::Error;
use crate::http::body_chunks::GZIP_LEVEL;
use crate::http::content::{self, Format, MediaType};
use crate::http::filter_path::FilterPath;
use crate::http::memory_allowance::AccountedText;
use crate::http::rewrite::{Layout, RewriteForm, Rewriter};
use crate::http::{AnswerBody, Body, BodyChunks, LARGE, Params, Response};

/// Bytes of an answer that are not accounted for: the usual one is small.
const FREE: usize = 16 << 10;

/// Answers below this many bytes are not compressed.
const GZIP_FROM: usize = 1024;

/// The content of an answer before it is compressed.
enum Content {
    Whole(Bytes),
    Parts(BodyChunks),
}

/// Style in which one request wants its answer.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    media: MediaType,
    pretty: bool,
    human: bool,
    error_trace: bool,
    filter: Arc<FilterPath>,
    gzip: bool,
    head: bool,
    /// True if the answer tells of a change that was made: it is sent whatever memory there is.
    tells_change: bool,
    opaque_id: Option<HeaderValue>,
}

impl Style {
    /// Reads what headers alone say, for answers to requests whose parameters cannot be read.
    pub(crate) fn from_headers(headers: &HeaderMap, head: bool) -> Self {
        Self {
            media: content::of_response(headers),
            pretty: false,
            human: false,
            error_trace: false,
            filter: Arc::default(),
            gzip: content::takes_gzip(headers),
            head,
            tells_change: false,
            opaque_id: headers.get("x-opaque-id").cloned(),
        }
    }

    /// Takes the parameters that concern the answer's form. `_cat` sees `format` itself too.
    pub(crate) fn take(&mut self, params: &mut Params, keep_format: bool) -> Result<(), Error> {
        let format =
            if keep_format { params.peek("format").map(str::to_owned) } else { params.take("format") };
        match format.as_deref() {
            None => {}
            Some("json" | "application/json") => self.media.format = Format::Json,
            Some("yaml" | "application/yaml") => self.media.format = Format::Yaml,
            Some("text" | "txt" | "text/plain") if keep_format => {}
            Some(other) => {
                return Err(Error::illegal_argument(format!(
                    "format [{other}] is not supported, use one of [json, yaml]"
                )));
            }
        }
        self.pretty = params.take_bool("pretty")?.unwrap_or(false);
        self.human = params.take_bool("human")?.unwrap_or(false);
        params.human = self.human;
        self.error_trace = params.take_bool("error_trace")?.unwrap_or(false);
        if let Some(text) = params.take("filter_path") {
            self.filter = Arc::new(FilterPath::parse(&text)?);
        }
        Ok(())
    }

    /// Returns the filter that answers go through, for handlers that leave out what it would drop.
    pub(crate) fn filter(&self) -> Arc<FilterPath> {
        Arc::clone(&self.filter)
    }

    /// Returns whether rendering an answer takes long enough to keep it from the threads that serve connections.
    pub(crate) fn works_on(&self, body: &Body) -> bool {
        match body {
            Body::Json(value) => is_large(value),
            // Long texts are rewritten and compressed while they are sent, but filtered at once.
            Body::RawJson(bytes) | Body::HeldJson(bytes) => bytes.len() > LARGE && !self.is_plain(),
            Body::Bytes { .. } | Body::Text(_) | Body::Parts(_) | Body::Empty => false,
        }
    }

    /// Says that the answer tells of a change that was made: a refusal of it would have the change made twice.
    pub(crate) fn set_tells_change(&mut self) {
        self.tells_change = true;
    }

    /// Returns whether serialized JSON is answered as it is.
    fn is_plain(&self) -> bool {
        !self.pretty
            && !self.human
            && !self.error_trace
            && self.filter.is_empty()
            && self.media.format != Format::Yaml
    }

    /// Renders an answer, which is accounted for by a budget until it is sent; answers sent part by part are compressed on the
    /// threads of `compute`.
    ///
    /// # Errors
    /// The answer takes more than there is.
    pub(crate) fn render(
        &self,
        response: Response,
        compute: &Compute,
        budget: &Budget,
    ) -> Result<http::Response<AnswerBody>, Error> {
        let Response { status, body, headers } = response;
        let (content_type, content) = self.content(body, status, budget)?;
        let mut out = http::Response::new(AnswerBody::Left(Full::default()));
        *out.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let head = out.headers_mut();
        head.insert(HeaderName::from_static("x-elastic-product"), HeaderValue::from_static("Elasticsearch"));
        if let Some(id) = &self.opaque_id {
            head.insert(HeaderName::from_static("x-opaque-id"), id.clone());
        }
        if let Some(content_type) = content_type {
            head.insert(CONTENT_TYPE, content_type);
        }
        for (name, value) in headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                head.append(name, value);
            }
        }
        let body = self.encoded(content, head, compute);
        if !self.head {
            *out.body_mut() = body;
        }
        Ok(out)
    }

    /// Compresses the content of an answer where that is asked for and worth it, and says so in its head.
    fn encoded(&self, content: Content, head: &mut HeaderMap, compute: &Compute) -> AnswerBody {
        let compresses = self.gzip && !self.head;
        match content {
            Content::Whole(bytes) if compresses && bytes.len() > LARGE => {
                self.encoded(Content::Parts(cut(bytes)), head, compute)
            }
            Content::Whole(mut bytes) => {
                if compresses && bytes.len() > GZIP_FROM {
                    if let Ok(compressed) = gzip(&bytes) {
                        bytes = compressed;
                        head.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                    }
                    head.insert(VARY, HeaderValue::from_static("accept-encoding"));
                }
                head.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                AnswerBody::Left(Full::new(bytes))
            }
            Content::Parts(parts) if compresses => {
                head.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                head.insert(VARY, HeaderValue::from_static("accept-encoding"));
                parts.compressed(compute.clone()).into_body()
            }
            Content::Parts(parts) => parts.into_body(),
        }
    }

    /// Puts a body into the form that was asked for.
    fn content(
        &self,
        body: Body,
        status: u16,
        budget: &Budget,
    ) -> Result<(Option<HeaderValue>, Content), Error> {
        const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
        let media = || HeaderValue::try_from(self.media.content_type()).ok();
        // A head is sent without what it is of.
        let charge = |text: Bytes| if self.head { Ok(text) } else { self.charge(budget, text) };
        Ok(match body {
            Body::Json(value) => (media(), self.write(value, status, budget)?),
            Body::RawJson(text) => (media(), self.rewrite(charge(text)?, status, budget)?),
            Body::HeldJson(text) => (media(), self.rewrite(text, status, budget)?),
            Body::Bytes { content_type, bytes } => {
                (Some(HeaderValue::from_static(content_type)), Content::Whole(charge(bytes)?))
            }
            Body::Text(text) => (Some(PLAIN), Content::Whole(charge(text.into())?)),
            Body::Parts(parts) => (Some(PLAIN), Content::Parts(parts)),
            Body::Empty => (None, Content::Whole(Bytes::new())),
        })
    }

    /// Writes a value in the form that was asked for.
    fn write(&self, mut value: Value, status: u16, budget: &Budget) -> Result<Content, Error> {
        // An error is told whatever of an answer was asked for.
        let is_error = status >= 400 && value.get("error").is_some();
        if self.error_trace && status >= 400 {
            add_trace(&mut value);
        }
        let text = serde_json::to_vec(&value).unwrap_or_default();
        drop(value);
        self.formed(self.charge(budget, text.into())?, is_error, budget)
    }

    /// Puts serialized JSON, which is accounted for, into the requested form; bytes that are no JSON stay as they are.
    fn rewrite(&self, text: Bytes, status: u16, budget: &Budget) -> Result<Content, Error> {
        if self.is_plain() || !Rewriter::takes(&text) {
            return Ok(Content::Whole(text));
        }
        let is_error = status >= 400 && Members::parse(&text).is_some_and(|it| it.get("error").is_some());
        if self.error_trace
            && status >= 400
            && let Ok(value) = serde_json::from_slice(&text)
        {
            return self.write(value, status, budget);
        }
        self.formed(text, is_error, budget)
    }

    /// Filters JSON text, unless it is an error, and lays it out: a long text step by step.
    fn formed(&self, mut text: Bytes, is_error: bool, budget: &Budget) -> Result<Content, Error> {
        let layout = match (self.media.format, self.pretty) {
            (Format::Yaml, _) => Layout::Yaml,
            (_, true) => Layout::Pretty,
            _ => Layout::Compact,
        };
        let mut human = self.human;
        if !self.filter.is_empty() && !is_error {
            let whole = text.clone();
            // What is left out may have a twin that is kept.
            if std::mem::take(&mut human) {
                let form = RewriteForm { layout: Layout::Compact, human: true };
                text = Rewriter::new(text.clone(), form).finish().unwrap_or(text);
            }
            // The whole text goes at once, on one of few threads; what is left of it is to be sent. Where there is no room
            // for both, the account of the whole text serves for what is left.
            let filtered = Bytes::from(self.filter.apply(&text));
            text = match self.charge(budget, filtered.clone()) {
                Ok(charged) => charged,
                Err(_) => Bytes::from_owner(AccountedText { text: filtered, _account: whole }),
            };
        }
        if layout == Layout::Compact && !human {
            return Ok(Content::Whole(text));
        }
        let mut rewriter = Rewriter::new(text.clone(), RewriteForm { layout, human });
        if text.len() > LARGE {
            return Ok(Content::Parts(BodyChunks::new(futures::stream::iter(rewriter))));
        }
        // Deep values grow by their indentation: what gets long is sent step by step, too.
        let mut out = Vec::new();
        while let Some(step) = rewriter.next() {
            let Ok(step) = step else { return Ok(Content::Whole(text)) };
            out.extend_from_slice(&step);
            if out.len() > LARGE {
                let steps = std::iter::once(Ok(Bytes::from(out))).chain(rewriter);
                return Ok(Content::Parts(BodyChunks::new(futures::stream::iter(steps))));
            }
        }
        Ok(Content::Whole(out.into()))
    }

    /// Makes a text hold its share of the bytes of all answers until it and its slices are dropped.
    ///
    /// # Errors
    /// 429 where it does not fit beside other answers, 413 where it never will; none where it tells of a change.
    fn charge(&self, budget: &Budget, text: Bytes) -> Result<Bytes, Error> {
        if text.len() <= FREE {
            return Ok(text);
        }
        match budget.reserve(text.len() as u64) {
            Ok(reservation) => Ok(Bytes::from_owner(AccountedText { text, _account: reservation })),
            Err(_) if self.tells_change => Ok(text),
            Err(exceeded) => Err(Error::answers_full(&exceeded)),
        }
    }
}

/// Cuts a long text into parts, to be compressed one after the other.
fn cut(text: Bytes) -> BodyChunks {
    let cuts = (0..text.len()).step_by(LARGE).map(move |at| text.slice(at..text.len().min(at + LARGE)));
    BodyChunks::new(futures::stream::iter(cuts.map(Ok::<_, Infallible>)))
}

/// Returns whether the text of a value is likely to have more than [`LARGE`] bytes: counts no further than that.
fn is_large(value: &Value) -> bool {
    fn count(value: &Value, left: usize) -> Option<usize> {
        let left = left.checked_sub(8)?;
        match value {
            Value::String(text) => left.checked_sub(text.len()),
            Value::Array(items) => items.iter().try_fold(left, |rest, item| count(item, rest)),
            Value::Object(members) => members
                .iter()
                .try_fold(left, |rest, (name, member)| count(member, rest.checked_sub(name.len())?)),
            _ => Some(left),
        }
    }
    count(value, LARGE).is_none()
}

fn gzip(bytes: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), GZIP_LEVEL);
    encoder.write_all(bytes)?;
    encoder.finish().map(Bytes::from)
}

/// Adds the chain of causes to an error as its trace.
fn add_trace(value: &mut Value) {
    let Some(error) = value.get_mut("error").and_then(Value::as_object_mut) else { return };
    let line = |object: &Value| {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{}: {}", text("type"), text("reason"))
    };
    let mut trace = line(&Value::Object(error.clone()));
    if let Some(cause) = error.get("caused_by") {
        trace.push_str("; caused by ");
        trace.push_str(&line(cause));
    }
    error.insert("stack_trace".into(), trace.into());
}

/// Writes a byte count as OpenSearch does: one decimal, cut, none where it is zero.
pub fn bytes_text(bytes: i64) -> String {
    scaled(bytes, &[(1 << 50, "pb"), (1 << 40, "tb"), (1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")], "b")
}

/// Writes milliseconds in the greatest unit that fits, as [`bytes_text`] does.
pub fn millis_text(millis: i64) -> String {
    scaled(millis, &[(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")], "ms")
}

fn scaled(value: i64, units: &[(i64, &str)], smallest: &str) -> String {
    for (size, unit) in units {
        if value >= *size {
            let tenths = (value % size) * 10 / size;
            let whole = value / size;
            return if tenths == 0 { format!("{whole}{unit}") } else { format!("{whole}.{tenths}{unit}") };
        }
    }
    format!("{value}{smallest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use serde_json::json;

    fn style(query: &str) -> Style {
        let mut style = Style::from_headers(&HeaderMap::new(), false);
        style.take(&mut Params::parse(query).unwrap(), false).unwrap();
        style
    }

    fn compute() -> Compute {
        Compute::start(1).unwrap()
    }

    fn answers() -> Budget {
        Budget::new(1 << 20)
    }

    async fn text(style: &Style, body: Body) -> String {
        let body = style
            .render(Response { status: 200, body, headers: Vec::new() }, &compute(), &answers())
            .unwrap()
            .into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn forms() {
        let value = || Body::Json(json!({ "a": [1, {}], "size_in_bytes": 1536, "t_in_millis": 61000 }));
        assert_eq!(
            text(&style("pretty&filter_path=a"), value()).await,
            "{\n  \"a\" : [\n    1,\n    { }\n  ]\n}\n"
                .replace("{ }", "{}")
                .replace("1,\n    {}", "1")
                .replace("\n    1\n", "\n    1,\n    {}\n")
        );
        assert_eq!(
            text(&style("human&filter_path=-a"), value()).await,
            r#"{"size":"1.5kb","size_in_bytes":1536,"t":"1m","t_in_millis":61000}"#
        );
        assert_eq!(text(&style("format=yaml&filter_path=a"), value()).await, "---\na:\n- 1\n- {}\n");
        let raw = || Body::RawJson(Bytes::from_static(b"{\"a\" : 1}"));
        assert_eq!(text(&style(""), raw()).await, "{\"a\" : 1}");
        assert_eq!(text(&style("filter_path=b"), raw()).await, "{}");
        let large =
            || Body::RawJson(Bytes::from_static(b"{\"a\":123456789012345678901234567890,\"b\":1.50}"));
        let shown = "{\n  \"a\" : 123456789012345678901234567890,\n  \"b\" : 1.50\n}\n";
        assert_eq!(text(&style("pretty"), large()).await, shown);
        let shown = "{\n  \"a\" : 123456789012345678901234567890\n}\n";
        assert_eq!(text(&style("pretty&filter_path=a"), large()).await, shown);
    }

    #[tokio::test]
    async fn errors_are_told_whatever_is_kept_of_answers() {
        let error = json!({ "error": { "type": "t" }, "status": 404 });
        let style = style("filter_path=hits.total");
        for body in [Body::Json(error.clone()), Body::RawJson(error.to_string().into())] {
            let response = Response { status: 404, body, headers: Vec::new() };
            let body = style.render(response, &compute(), &answers()).unwrap().into_body();
            let bytes = body.collect().await.unwrap().to_bytes();
            assert_eq!(bytes, error.to_string());
        }
        let missing =
            Response { status: 404, body: Body::Json(json!({ "found": false })), headers: Vec::new() };
        let body = style.render(missing, &compute(), &answers()).unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{}", "what is no error is filtered");
    }

    #[tokio::test]
    async fn head_and_gzip() {
        let mut headers = HeaderMap::new();
        headers.insert("accept-encoding", "gzip".parse().unwrap());
        headers.insert("x-opaque-id", "me".parse().unwrap());
        let body = Body::Text("x".repeat(5000));
        let response = Style::from_headers(&headers, false)
            .render(Response { status: 200, body, headers: vec![] }, &compute(), &answers())
            .unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        assert_eq!(response.headers()["x-opaque-id"], "me");
        assert_eq!(response.headers()["x-elastic-product"], "Elasticsearch");
        assert!(response.into_body().collect().await.unwrap().to_bytes().len() < 200);
        let body = Body::Text("x".repeat(5000));
        let response = Style::from_headers(&headers, true)
            .render(Response { status: 200, body, headers: vec![] }, &compute(), &answers())
            .unwrap();
        assert_eq!(response.headers()["content-length"], "5000");
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }

    #[test]
    fn unknown_formats_are_refused() {
        let mut style = Style::from_headers(&HeaderMap::new(), false);
        assert!(style.take(&mut Params::parse("format=xml").unwrap(), false).is_err());
    }
}
