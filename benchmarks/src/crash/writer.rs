//! One of the writers that a crash interrupts.
//!
//! A writer sends one request after another over ids that are its own, and now and then increments
//! a counter that all writers share. Every answer goes to its [`Model`]; when the server dies, so does
//! the request in flight, and the writer ends.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::oracle::{Answer, Change, Counter, Model, Operation};
use crate::random::Random;
use crate::target::Target;
use crate::words::WORDS;

/// Index of the documents.
pub(super) const INDEX: &str = "crash";
/// Index of the counters.
pub(super) const COUNTERS: &str = "crash-counters";
/// Ids that a writer chooses from.
const KEYS: u64 = 300;
/// Documents with generated ids beyond which a writer deletes some.
const MAX_GENERATED: usize = 400;
/// Most operations of one bulk request.
const MAX_OPERATIONS: u64 = 40;

/// The shared counters.
pub(super) type Counters = Arc<Vec<Mutex<Counter>>>;

/// A writer between two crashes.
#[derive(Debug)]
pub(super) struct Writer {
    number: usize,
    /// Model of the writer's documents.
    pub(super) model: Model,
    random: Random,
    sent: u64,
    /// Operations that were acknowledged.
    pub(super) acknowledged: u64,
}

/// Why a writer ended.
#[derive(Debug, PartialEq)]
pub(super) enum WriterEnd {
    /// The server went away.
    Gone,
    /// The server did what it must not.
    Violation(String),
}

impl From<String> for WriterEnd {
    fn from(violation: String) -> Self {
        Self::Violation(violation)
    }
}

/// Returns whether the writer chose the id itself.
pub(super) fn is_generated(id: &str) -> bool {
    !id.starts_with("w-")
}

impl Writer {
    /// Makes a writer; the seed decides what it sends.
    pub(super) fn new(number: usize, seed: u64) -> Self {
        let random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        Self { number, model: Model::default(), random, sent: 0, acknowledged: 0 }
    }

    /// Writes until the server is gone or wrong.
    pub(super) async fn run(&mut self, target: &Target, counters: &Counters) -> WriterEnd {
        loop {
            let step = match self.random.below(100) {
                0..70 => self.bulk(target).await,
                70..84 => self.single(target).await,
                84..97 => self.increment(target, counters).await,
                97..99 => maintain(target, &format!("/{INDEX}/_flush")).await,
                _ => maintain(target, &format!("/{INDEX}/_forcemerge?max_num_segments=2")).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    fn source(&mut self) -> Value {
        self.sent += 1;
        let words: Vec<&str> = (0..6).map(|_| *self.random.pick(WORDS)).collect();
        let mut source = json!({
            "token": format!("{}-{}-{:08x}", self.number, self.sent, self.random.next() as u32),
            "writer": self.number,
            "n": self.random.below(1_000),
            "text": words.join(" "),
        });
        if self.random.chance(0.2) {
            source["tags"] = json!([words[0], words[1]]);
        }
        source
    }

    fn key(&mut self) -> String {
        format!("w-{}-{}", self.number, self.random.below(KEYS))
    }

    /// Picks a document with a generated id once there are many.
    fn surplus(&mut self) -> Option<String> {
        let generated: Vec<&str> = self.model.present().into_iter().filter(|id| is_generated(id)).collect();
        if generated.len() <= MAX_GENERATED {
            return None;
        }
        let pick = self.random.index(generated.len());
        Some(generated[pick].to_owned())
    }

    fn operations(&mut self, count: u64) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut swapped = BTreeSet::new();
        let surplus = self.surplus();
        if let Some(id) = &surplus {
            operations.push(Operation { id: Some(id.clone()), change: Change::Delete });
        }
        while (operations.len() as u64) < count {
            let roll = self.random.below(100);
            let id = self.key();
            if swapped.contains(&id) {
                continue;
            }
            let source = self.source();
            let touched = operations.iter().any(|operation: &Operation| operation.id.as_ref() == Some(&id));
            let (id, change) = match (roll, self.model.sequence(&id)) {
                (0..30, _) => (None, Change::Index(source)),
                (30..55, _) => (Some(id), Change::Index(source)),
                (55..65, _) => (Some(id), Change::Create(source)),
                (65..80, _) => {
                    (Some(id), Change::Update(json!({"n": source["n"], "token": source["token"]})))
                }
                // A swap must be the only operation on its document, for only then is the number known.
                (80..88, Some((seq_no, _))) if !touched => {
                    swapped.insert(id.clone());
                    let stale = u64::from(self.random.chance(0.3) && seq_no > 0);
                    (Some(id), Change::Swap { seq_no: seq_no - stale, source })
                }
                _ => (Some(id), Change::Delete),
            };
            operations.push(Operation { id, change });
        }
        operations
    }

    async fn bulk(&mut self, target: &Target) -> Result<(), WriterEnd> {
        let count = 1 + self.random.below(MAX_OPERATIONS);
        let operations = self.operations(count);
        let body = self.body(&operations);
        let path = match self.random.below(20) {
            0 => format!("/{INDEX}/_bulk?refresh=true"),
            1 => format!("/{INDEX}/_bulk?refresh=wait_for"),
            _ => format!("/{INDEX}/_bulk"),
        };
        let Ok((status, bytes)) = target.send(Method::POST, &path, "application/x-ndjson", body).await else {
            self.model.lose(&operations);
            return Err(WriterEnd::Gone);
        };
        if busy(status).await {
            return Ok(());
        }
        let answer = parse(status, &bytes)?;
        let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.len() != operations.len() {
            return Err(WriterEnd::Violation(format!(
                "{} operations were answered by {}",
                operations.len(),
                answer
            )));
        }
        for (operation, item) in operations.iter().zip(items) {
            let item = item.as_object().and_then(|item| item.values().next()).unwrap_or(&Value::Null);
            self.learn(operation, item)?;
        }
        Ok(())
    }

    fn learn(&mut self, operation: &Operation, item: &Value) -> Result<(), WriterEnd> {
        let number = |name: &str| item[name].as_u64().unwrap_or(0);
        let answer = Answer {
            status: u16::try_from(number("status")).unwrap_or(0),
            id: item["_id"].as_str().unwrap_or_default().to_owned(),
            version: number("_version"),
            seq_no: number("_seq_no"),
            primary_term: number("_primary_term"),
        };
        if answer.status == 429 {
            return Ok(());
        }
        self.model
            .acknowledge(operation, &answer)
            .map_err(|problem| format!("{problem}; the answer: {item}"))?;
        self.acknowledged += 1;
        Ok(())
    }

    fn body(&self, operations: &[Operation]) -> String {
        let mut body = String::new();
        for Operation { id, change } in operations {
            let mut action = json!({});
            if let Some(id) = id {
                action["_id"] = json!(id);
            }
            // Writing to a string cannot fail.
            let _ = match change {
                Change::Index(source) => writeln!(body, "{}\n{source}", json!({"index": action})),
                Change::Create(source) => writeln!(body, "{}\n{source}", json!({"create": action})),
                Change::Update(part) => {
                    writeln!(
                        body,
                        "{}\n{}",
                        json!({"update": action}),
                        json!({"doc": part, "detect_noop": false})
                    )
                }
                Change::Delete => writeln!(body, "{}", json!({"delete": action})),
                Change::Swap { seq_no, source } => {
                    let term =
                        id.as_deref().and_then(|id| self.model.sequence(id)).map_or(1, |(_, term)| term);
                    action["if_seq_no"] = json!(seq_no);
                    action["if_primary_term"] = json!(term);
                    writeln!(body, "{}\n{source}", json!({"index": action}))
                }
            };
        }
        body
    }

    /// Sends one operation by a request of its own.
    async fn single(&mut self, target: &Target) -> Result<(), WriterEnd> {
        let source = self.source();
        let (method, path, operation) = match self.random.below(3) {
            0 => (
                Method::POST,
                format!("/{INDEX}/_doc"),
                Operation { id: None, change: Change::Index(source.clone()) },
            ),
            1 => {
                let id = self.key();
                let change = Change::Index(source.clone());
                (Method::PUT, format!("/{INDEX}/_doc/{id}"), Operation { id: Some(id), change })
            }
            _ => {
                let id = self.key();
                (
                    Method::DELETE,
                    format!("/{INDEX}/_doc/{id}"),
                    Operation { id: Some(id), change: Change::Delete },
                )
            }
        };
        let body = if method == Method::DELETE { String::new() } else { source.to_string() };
        let Ok((status, bytes)) = target.send(method, &path, "application/json", body).await else {
            self.model.lose(std::slice::from_ref(&operation));
            return Err(WriterEnd::Gone);
        };
        if busy(status).await {
            return Ok(());
        }
        let mut item: Value = serde_json::from_slice(&bytes).map_err(|_| unreadable(status, &bytes))?;
        item["status"] = json!(status.as_u16());
        self.learn(&operation, &item)
    }

    /// Reads a counter and writes it back, greater by one, if nobody was faster.
    async fn increment(&mut self, target: &Target, counters: &Counters) -> Result<(), WriterEnd> {
        let number = self.random.index(counters.len());
        let counter = &counters[number];
        let path = format!("/{COUNTERS}/_doc/{number}");
        let Ok((status, bytes)) = target.send(Method::GET, &path, "application/json", "").await else {
            return Err(WriterEnd::Gone);
        };
        let (value, query) = if status == StatusCode::NOT_FOUND {
            (1, "?op_type=create".to_owned())
        } else {
            let found = parse(status, &bytes)?;
            let value = found["_source"]["n"].as_u64().ok_or_else(|| unreadable(status, &bytes))?;
            (value + 1, format!("?if_seq_no={}&if_primary_term={}", found["_seq_no"], found["_primary_term"]))
        };
        let body = json!({"n": value, "by": self.number}).to_string();
        let sent = target.send(Method::PUT, &format!("{path}{query}"), "application/json", body).await;
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        match sent {
            Err(_) => {
                counter.lose();
                Err(WriterEnd::Gone)
            }
            Ok((status, _)) if status.is_success() => {
                self.acknowledged += 1;
                Ok(counter.acknowledge(value).map_err(|problem| format!("counter {number}: {problem}"))?)
            }
            Ok((StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS, _)) => Ok(()),
            Ok((status, bytes)) => Err(unreadable(status, &bytes)),
        }
    }
}

async fn maintain(target: &Target, path: &str) -> Result<(), WriterEnd> {
    match target.send(Method::POST, path, "application/json", "").await {
        Err(_) => Err(WriterEnd::Gone),
        Ok((status, _)) if status.is_success() || status == StatusCode::TOO_MANY_REQUESTS => Ok(()),
        Ok((status, bytes)) => Err(unreadable(status, &bytes)),
    }
}

/// Waits a little after an answer of 429, to which nothing was applied.
async fn busy(status: StatusCode) -> bool {
    let busy = status == StatusCode::TOO_MANY_REQUESTS;
    if busy {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    busy
}

fn parse(status: StatusCode, bytes: &[u8]) -> Result<Value, WriterEnd> {
    if !status.is_success() {
        return Err(unreadable(status, bytes));
    }
    serde_json::from_slice(bytes).map_err(|_| unreadable(status, bytes))
}

fn unreadable(status: StatusCode, bytes: &[u8]) -> WriterEnd {
    WriterEnd::Violation(format!("unexpected answer {status}: {:.500}", String::from_utf8_lossy(bytes)))
}
