//! Events for pipelines: requests of a web site, as JSON or as lines of an access log in the combined format, with the
//! distributions of the shape `http-logs`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::random::{Random, Zipf};
use crate::shape::{DocumentKind, Generator};
use crate::timestamp::push_iso;

/// Distinct pages that requests come from.
const REFERRERS: usize = 500;
const AGENTS: [&str; 6] = [
    "Mozilla/4.0 (compatible; MSIE 4.01; Windows 98)",
    "Mozilla/4.0 (compatible; MSIE 4.01; Windows 95)",
    "Mozilla/4.04 [en] (X11; I; SunOS 5.6 sun4u)",
    "Mozilla/4.05 [fr] (Win95; I)",
    "Mozilla/3.01Gold (Macintosh; I; PPC)",
    "Lynx/2.8rel.2 libwww-FM/2.14",
];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Format of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// An object each.
    Json,
    /// Apache's combined format.
    Combined,
}

/// A part of a feed that is sent as one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedRequest {
    offset: u64,
    bytes: usize,
    /// Events in it.
    pub(crate) events: u64,
}

/// Events on disk, cut into the bodies of requests.
#[derive(Debug)]
pub(crate) struct Feed {
    file: File,
    /// The bodies in order.
    pub(crate) parts: Vec<FeedRequest>,
    /// Bytes of all bodies.
    pub(crate) bytes: u64,
}

/// A request, as the shape `http-logs` has it.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(rename = "@timestamp")]
    seconds: i64,
    clientip: &'a str,
    request: &'a str,
    status: u16,
    size: u32,
}

/// Makes events in order: the same ones each time.
pub(crate) struct Events {
    requests: Box<dyn Generator>,
    random: Random,
    by_referrer: Zipf,
    by_agent: Zipf,
    left: u64,
}

impl Events {
    /// Starts a stream of so many events.
    pub(crate) fn new(count: u64) -> Self {
        Self {
            requests: DocumentKind::HttpLogs.generator(1, count),
            random: Random::new(0xfeed),
            by_referrer: Zipf::new(REFERRERS, 0.9),
            by_agent: Zipf::new(AGENTS.len(), 0.8),
            left: count,
        }
    }

    /// Appends the next event, without a line break; whether there was one.
    pub(crate) fn next(&mut self, format: Format, out: &mut Vec<u8>) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let mut made = Vec::with_capacity(256);
        self.requests.next(&mut made);
        let request: Request<'_> = serde_json::from_slice(&made).context("a generated document")?;
        let mut time = Vec::with_capacity(24);
        push_iso(&mut time, request.seconds * 1_000);
        let time = String::from_utf8(time)?;
        let referrer = match self.by_referrer.draw(&mut self.random) {
            0 => "-".to_owned(),
            page => format!("http://www.example.com/english/page{page}.html"),
        };
        let agent = AGENTS[self.by_agent.draw(&mut self.random)];
        let Request { clientip, request, status, size, .. } = request;
        match format {
            Format::Json => {
                let mut parts = request.splitn(3, ' ');
                let mut part = || parts.next().unwrap_or_default();
                let (verb, path, version) = (part(), part(), part().trim_start_matches("HTTP/"));
                write!(
                    out,
                    "{{\"@timestamp\":\"{time}\",\"clientip\":\"{clientip}\",\"ident\":\"-\",\"auth\":\"-\",\
                     \"verb\":\"{verb}\",\"request\":\"{path}\",\"httpversion\":\"{version}\",\"response\":{status},\
                     \"bytes\":{size},\"referrer\":\"{referrer}\",\"agent\":\"{agent}\"}}"
                )?;
            }
            Format::Combined => {
                let month = time[5..7].parse::<usize>().unwrap_or(1).saturating_sub(1);
                let (year, month, day, clock) = (&time[..4], MONTHS[month], &time[8..10], &time[11..19]);
                write!(
                    out,
                    "{clientip} - - [{day}/{month}/{year}:{clock} +0000] \"{request}\" {status} {size} \"{referrer}\" \"{agent}\""
                )?;
            }
        }
        Ok(true)
    }
}

impl Feed {
    /// Writes so many events to a file, about `body_bytes` to a request: arrays of JSON, or lines.
    pub(crate) fn make(path: &Path, format: Format, count: u64, body_bytes: usize) -> Result<Self> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut events = Events::new(count);
        let (mut parts, mut offset) = (Vec::new(), 0);
        let (mut body, mut inside) = (Vec::with_capacity(body_bytes + 4_096), 0);
        loop {
            let before = body.len();
            body.push(if inside == 0 { b'[' } else { b',' });
            if format == Format::Combined {
                body.pop();
            }
            let more = events.next(format, &mut body)?;
            if more {
                inside += 1;
                if format == Format::Combined {
                    body.push(b'\n');
                }
            } else {
                body.truncate(before);
            }
            if inside > 0 && (!more || body.len() >= body_bytes) {
                if format == Format::Json {
                    body.push(b']');
                }
                out.write_all(&body)?;
                parts.push(FeedRequest { offset, bytes: body.len(), events: inside });
                offset += body.len() as u64;
                body.clear();
                inside = 0;
            }
            if !more {
                break;
            }
        }
        let file = out.into_inner().context("cannot write the feed")?;
        Ok(Self { file, parts, bytes: offset })
    }

    /// Reads the body of a request.
    pub(crate) fn read(&self, part: FeedRequest) -> Result<Vec<u8>> {
        let mut bytes = vec![0; part.bytes];
        self.file.read_exact_at(&mut bytes, part.offset)?;
        Ok(bytes)
    }
}

/// The index that takes the documents, whichever way they come.
pub(crate) fn index_body() -> Value {
    let text = json!({"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}});
    let keyword = json!({"type": "keyword", "ignore_above": 256});
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": {
            "@timestamp": {"type": "date"},
            "@version": keyword,
            "timestamp": keyword,
            "clientip": {"type": "ip"},
            "ident": keyword,
            "auth": keyword,
            "verb": keyword,
            "request": text,
            "httpversion": keyword,
            "response": {"type": "integer"},
            "bytes": {"type": "integer"},
            "referrer": keyword,
            "agent": text,
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_has_all_events_in_bodies_that_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("feed");
        let feed = Feed::make(&path, Format::Json, 1_000, 20_000).unwrap();
        assert!(feed.parts.len() > 5);
        let mut count = 0;
        for part in &feed.parts {
            let events: Vec<Value> = serde_json::from_slice(&feed.read(*part).unwrap()).unwrap();
            assert_eq!(events.len() as u64, part.events);
            assert!(events.iter().all(|event| event["verb"].is_string() && event["response"].is_u64()));
            count += events.len();
        }
        assert_eq!(count, 1_000);
        assert_eq!(feed.bytes, std::fs::metadata(&path).unwrap().len());

        let feed = Feed::make(&path, Format::Combined, 1_000, 20_000).unwrap();
        let bodies = feed.parts.iter().map(|part| String::from_utf8(feed.read(*part).unwrap()).unwrap());
        let all: String = bodies.collect();
        assert_eq!(all.lines().count(), 1_000);
        let line = all.lines().next().unwrap();
        assert!(line.contains(" - - [30/Apr/1998:12:00:00 +0000] \"") && line.ends_with('"'), "{line}");
    }
}
