//! `dns`: addresses of names, and names of addresses.
//!
//! [`client`] asks the name servers; this filter never blocks a thread. Answers are kept where the options say so.

mod client;
mod message;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millrace_ingest::budget::AnswerAllowance;
use millrace_ingest::{Event, Fault, FieldReference, Options, Setting};
use millrace_runtime::{GenerationalCache, Instant};
use parking_lot::Mutex;
use serde_json::Value;

use super::settings::texts_or;
use super::{Outcome, RemoteFilter};
use client::{HOSTS_FILE, HostsFile, LookupError, ResolverConfig, address_of, name_of, parse_server};

/// Lookups of one delivery at the same time.
const CONCURRENCY: usize = 64;
/// Answers that a cache may have.
const MAX_CACHE_SIZE: i64 = 10_000_000;
/// Longest time that an answer may be kept, in seconds.
const MAX_CACHE_SECONDS: f64 = 31_536_000.0;
/// Name servers of a filter.
const MAX_SERVERS: usize = 8;
/// Longest name or address that is looked up, in bytes.
const MAX_QUESTION_BYTES: usize = 255;
/// Domains that names are tried in.
const MAX_SEARCH: usize = 6;

#[derive(Debug)]
struct Dns {
    resolve: Vec<FieldReference>,
    reverse: Vec<FieldReference>,
    replaces: bool,
    config: ResolverConfig,
    hosts: HostsFile,
    hits: Option<AnswerCache>,
    failures: Option<AnswerCache>,
    tags_on_timeout: Vec<String>,
}

/// Answers by [`Direction::cache_key`], each for a time.
#[derive(Debug)]
struct AnswerCache {
    lifetime: Duration,
    answers: Mutex<GenerationalCache<String, (String, Instant)>>,
}

/// Direction of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Resolve,
    Reverse,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let resolve = fields(&mut options, "resolve");
    let reverse = fields(&mut options, "reverse");
    if resolve.is_empty() && reverse.is_empty() {
        options.fault_here("[dns] needs the option [resolve] or [reverse], an array of fields");
    }
    let replaces = options.one_of("action", &["append", "replace"]) == Some("replace");
    let mut config = ResolverConfig::of_machine();
    take_servers(&mut options, &mut config);
    let seconds = |options: &mut Options, name, default: f64| {
        let given = options.float(name).unwrap_or(default);
        if !(0.0..=MAX_CACHE_SECONDS).contains(&given) {
            options.fault_here(format!("option [{name}] of [dns] must be 0 to {MAX_CACHE_SECONDS} seconds"));
        }
        Duration::from_secs_f64(given.clamp(0.0, MAX_CACHE_SECONDS))
    };
    config.timeout = seconds(&mut options, "timeout", 0.5);
    let retries = options.integer("max_retries", 0..=100).unwrap_or(2);
    config.retries = u32::try_from(retries).unwrap_or(2);
    let mut cache = |size, ttl, default| {
        let entries = options.integer(size, 0..=MAX_CACHE_SIZE).unwrap_or(0);
        let lifetime = seconds(&mut options, ttl, default);
        let entries = usize::try_from(entries).ok().filter(|entries| *entries > 0)?;
        Some(AnswerCache { lifetime, answers: Mutex::new(GenerationalCache::new(entries.max(2))) })
    };
    let hits = cache("hit_cache_size", "hit_cache_ttl", 60.0);
    let failures = cache("failed_cache_size", "failed_cache_ttl", 5.0);
    let mut hosts = HostsFile::default();
    for path in options.texts("hostsfile") {
        if let Err(problem) = hosts.load(Path::new(&path)) {
            options.fault_here(format!("option [hostsfile] of [dns]: {problem}"));
        }
    }
    // A machine may have no such file.
    let _ = hosts.load(Path::new(HOSTS_FILE));
    let tags_on_timeout = texts_or(&mut options, "tag_on_timeout", &["_dnstimeout"]);
    options.finish()?;
    Ok(Arc::new(Dns { resolve, reverse, replaces, config, hosts, hits, failures, tags_on_timeout }))
}

fn fields(options: &mut Options, name: &'static str) -> Vec<FieldReference> {
    let mut fields = Vec::new();
    for field in options.texts(name) {
        match FieldReference::parse(&field) {
            Ok(field) => fields.push(field),
            Err(fault) => options.fault_here(fault),
        }
    }
    fields
}

/// Takes `nameserver`: an address, several, or a hash with `address`, `search` and `ndots`.
fn take_servers(options: &mut Options, config: &mut ResolverConfig) {
    let Some((at, setting)) = options.take("nameserver") else { return };
    let texts = |setting: &Setting| match setting {
        Setting::Array(elements) => elements.iter().filter_map(Setting::as_text).collect(),
        single => single.as_text().into_iter().collect::<Vec<String>>(),
    };
    // Domains to search are those of the machine's own servers.
    config.search.clear();
    config.ndots = 1;
    let mut addresses = Vec::new();
    match &setting {
        Setting::Hash(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "address" => addresses = texts(value),
                    "search" => config.search = texts(value),
                    "ndots" => {
                        match value.as_text().and_then(|text| text.parse().ok()).filter(|dots| *dots > 0) {
                            Some(dots) => config.ndots = dots,
                            None => options.fault(at, "[ndots] of [nameserver] must be a number above 0"),
                        }
                    }
                    other => options.fault(
                        at,
                        format!("[nameserver] of [dns] has [{other}], not one of [address, search, ndots]"),
                    ),
                }
            }
        }
        other => addresses = texts(other),
    }
    config.servers = addresses.iter().filter_map(|address| parse_server(address)).collect();
    let are_addresses = config.servers.len() == addresses.len() && !addresses.is_empty();
    if !are_addresses || config.servers.len() > MAX_SERVERS || config.search.len() > MAX_SEARCH {
        options.fault(
            at,
            format!("[nameserver] of [dns] needs 1 to {MAX_SERVERS} addresses, and at most {MAX_SEARCH} domains to search"),
        );
    }
}

impl Direction {
    /// Returns the key of an answer: an address may be a question in both directions.
    fn cache_key(self, question: &str) -> String {
        let mark = match self {
            Self::Resolve => '>',
            Self::Reverse => '<',
        };
        format!("{mark}{question}")
    }
}

impl AnswerCache {
    fn get(&self, key: &str) -> Option<String> {
        let (answer, expires) = self.answers.lock().get(key)?;
        (Instant::now() < expires).then_some(answer)
    }

    fn insert(&self, key: String, answer: String) {
        self.answers.lock().insert(key, (answer, Instant::now() + self.lifetime), 1);
    }
}

impl Dns {
    async fn lookup(&self, direction: Direction, question: &str) -> Result<String, LookupError> {
        if question.len() > MAX_QUESTION_BYTES {
            return Err(LookupError::NotFound);
        }
        let key = direction.cache_key(question);
        if self.failures.as_ref().is_some_and(|failures| failures.get(&key).is_some()) {
            return Err(LookupError::NotFound);
        }
        if let Some(answer) = self.hits.as_ref().and_then(|hits| hits.get(&key)) {
            return Ok(answer);
        }
        let answer = match direction {
            Direction::Resolve => match self.hosts.address(question) {
                Some(address) => Ok(address.to_owned()),
                None if question.parse::<IpAddr>().is_ok() => Ok(question.to_owned()),
                None => address_of(&self.config, question).await,
            },
            Direction::Reverse => match question.parse::<IpAddr>() {
                Err(_) => return Err(LookupError::NotFound),
                Ok(address) => match self.hosts.name(address) {
                    Some(name) => Ok(name.to_owned()),
                    None => name_of(&self.config, address).await,
                },
            },
        };
        match (&answer, &self.hits, &self.failures) {
            (Ok(answer), Some(hits), _) => hits.insert(key, answer.clone()),
            (Err(_), _, Some(failures)) => failures.insert(key, String::new()),
            _ => {}
        }
        answer
    }

    /// Looks the values of fields up; returns `false` where one of them has no answer.
    async fn apply_to(&self, event: &mut Event, fields: &[FieldReference], direction: Direction) -> bool {
        for field in fields {
            let (question, is_array) = match event.get(field).as_deref() {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => (text.clone(), false),
                Some(Value::Array(elements)) => match elements.as_slice() {
                    [Value::String(text)] => (text.clone(), true),
                    _ => return false,
                },
                Some(_) => return false,
            };
            let answer = match self.lookup(direction, &question).await {
                Ok(answer) => answer,
                Err(error) => {
                    if error == LookupError::TimedOut {
                        self.tags_on_timeout.iter().for_each(|tag| event.tag(tag));
                    }
                    return false;
                }
            };
            let value = match (self.replaces, is_array) {
                (true, false) => Value::from(answer),
                (true, true) => Value::from(vec![answer]),
                (false, _) => Value::from(vec![question, answer]),
            };
            if event.set(field, value).is_err() {
                return false;
            }
        }
        true
    }
}

#[async_trait]
impl RemoteFilter for Dns {
    async fn apply(&self, event: &mut Event, _allowance: &AnswerAllowance) -> Outcome {
        let is_matched = self.apply_to(event, &self.resolve, Direction::Resolve).await
            && self.apply_to(event, &self.reverse, Direction::Reverse).await;
        if is_matched { Outcome::Matched } else { Outcome::Unmatched }
    }

    fn concurrency(&self) -> usize {
        CONCURRENCY
    }
}

#[cfg(test)]
mod tests;
