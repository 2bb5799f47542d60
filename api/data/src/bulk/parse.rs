//! From a bulk body to operations.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr;
use millrace_engine::{ActionKind, WriteOp};

use super::action::{self, Meta};
use crate::documents::options::{self, Expectation, Operation};
use crate::documents::source::SourceFilter;
use crate::documents::{DEFAULT_TYPE, id_problem, update};
use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::http::json::without_mark;

/// Most problems that one refusal lists.
const MAX_PROBLEMS: usize = 100;
/// Bytes that an item takes: itself, its operation, and then the operation's result and the item's answer.
const ITEM_BYTES: usize = 640;
/// Bytes that the refusal of an item takes, and its text in the answer.
pub(super) const REFUSAL_BYTES: usize = 768;
/// Most attempts after a conflict.
const MAX_RETRIES: i64 = 1_000_000;

/// Defaults of the request for all items.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults<'a> {
    pub(super) index: Option<&'a str>,
    pub(super) doc_type: Option<&'a str>,
    pub(super) routing: Option<&'a str>,
    pub(super) pipeline: Option<&'a str>,
    pub(super) require_alias: bool,
    pub(super) source: Option<&'a SourceFilter>,
}

/// A parsed bulk.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    /// Every item, in order.
    pub(super) items: Vec<Item>,
    /// Operations of the items that are [`Outcome::Sent`], in order.
    pub(super) ops: Vec<WriteOp>,
    /// Pipelines that items or the request name, with the positions of their operations, in order.
    pub(super) requested: Vec<(usize, Arc<str>)>,
}

/// One item of a bulk.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: ActionKind,
    /// Index or alias as named.
    pub(super) index: Arc<str>,
    /// Type segment that was named, other than the default one.
    pub(super) doc_type: Option<Arc<str>>,
    /// Range of the action line: a failed item's id is read from it again.
    pub(super) line: Range<usize>,
    /// Filter of the source that an update returns.
    pub(super) source: Option<Box<SourceFilter>>,
    pub(super) outcome: Outcome,
}

/// Origin of an item's result.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The engine has it.
    Sent,
    /// It was refused before.
    Refused(Box<Error>),
    /// A pipeline dropped its document.
    Dropped,
}

/// Splits a body into lines that end with `\n`.
struct Lines<'b> {
    body: &'b [u8],
    at: usize,
    /// Number of the last line returned, from 1.
    number: usize,
}

impl Lines<'_> {
    /// Returns the next line without its end and a byte order mark.
    fn next(&mut self) -> Result<Option<Range<usize>>, Error> {
        let rest = &self.body[self.at..];
        let Some(length) = memchr(b'\n', rest) else {
            if rest.is_empty() {
                return Ok(None);
            }
            return Err(Error::illegal_argument("The bulk request must be terminated by a newline [\\n]"));
        };
        let end = self.at + length - usize::from(length > 0 && rest[length - 1] == b'\r');
        let start = end - without_mark(&self.body[self.at..end]).len();
        self.at += length + 1;
        self.number += 1;
        Ok(Some(start..end))
    }
}

/// Names that repeat from item to item, each kept once. Bounded by the body that they come from.
#[derive(Default)]
struct Names {
    last: Option<Arc<str>>,
    all: HashMap<Box<str>, Arc<str>>,
}

impl Names {
    fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(last) = &self.last
            && **last == *name
        {
            return last.clone();
        }
        let shared = match self.all.get(name) {
            Some(shared) => shared.clone(),
            None => {
                let shared: Arc<str> = Arc::from(name);
                self.all.insert(Box::from(name), shared.clone());
                shared
            }
        };
        self.last = Some(shared.clone());
        shared
    }
}

/// Parses a body, whose items may take as much as `room` has. An error refuses the whole request; nothing of it
/// was done.
pub(super) fn parse(
    body: &Bytes,
    defaults: &Defaults<'_>,
    allowance: &MemoryAllowance,
) -> Result<Bulk, Error> {
    let mut lines = Lines { body, at: 0, number: 0 };
    let mut parser = Parser {
        body,
        defaults,
        allowance,
        bulk: Bulk::default(),
        problems: Vec::new(),
        names: Names::default(),
        types: Names::default(),
        pipelines: Names::default(),
        plain: Arc::from(DEFAULT_TYPE),
    };
    while let Some(line) = lines.next()? {
        if body[line.clone()].iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let number = lines.number;
        allowance.take(ITEM_BYTES)?;
        let action = action::parse(&body[line.clone()], number, allowance)?;
        let source = if action.kind == ActionKind::Delete {
            None
        } else {
            Some(lines.next()?.ok_or_else(|| {
                Error::illegal_argument(format!(
                    "Malformed action/metadata line [{number}], expected a document in the line after it but the body ends"
                ))
            })?)
        };
        parser.item(action, line, source)?;
        if parser.problems.len() >= MAX_PROBLEMS {
            break;
        }
    }
    if parser.bulk.items.is_empty() {
        parser.problems.push("no requests added".to_owned());
    }
    if parser.problems.is_empty() { Ok(parser.bulk) } else { Err(Error::validation(&parser.problems)) }
}

struct Parser<'a> {
    body: &'a Bytes,
    defaults: &'a Defaults<'a>,
    allowance: &'a MemoryAllowance,
    bulk: Bulk,
    problems: Vec<String>,
    names: Names,
    types: Names,
    pipelines: Names,
    /// The default type, shared.
    plain: Arc<str>,
}

impl Parser<'_> {
    fn item(
        &mut self,
        action: action::Action<'_>,
        line: Range<usize>,
        source: Option<Range<usize>>,
    ) -> Result<(), Error> {
        let action::Action { mut kind, meta } = action;
        match meta.op_type.as_deref() {
            None => {}
            Some("index") if matches!(kind, ActionKind::Index) => {}
            Some("create") if matches!(kind, ActionKind::Index | ActionKind::Create) => {
                kind = ActionKind::Create
            }
            Some(other) => {
                return Err(Error::illegal_argument(format!(
                    "opType must be 'create' or 'index', found: [{other}]"
                )));
            }
        }
        let index = match meta.index.as_deref().or(self.defaults.index) {
            Some(index) if !index.is_empty() => self.names.get(index),
            _ => {
                self.problems.push("index is missing".to_owned());
                self.names.get("")
            }
        };
        let named = meta.doc_type.as_deref().or(self.defaults.doc_type);
        let doc_type = named.filter(|name| *name != DEFAULT_TYPE).map(|name| self.types.get(name));
        let expectation = Expectation {
            version: meta.version,
            version_type: meta.version_type.as_ref().map(|text| options::version_type(text)).transpose()?,
            if_seq_no: meta.if_seq_no,
            if_primary_term: meta.if_primary_term,
        };
        let id = meta.id.as_deref();
        self.problems.extend(id.and_then(id_problem));
        let mut filter = None;
        let document = source.clone().map(|range| self.body.slice(range));
        let stored = match (kind, document) {
            (ActionKind::Delete, _) | (_, None) => {
                self.need_id(id);
                expectation.check(Operation::Delete, true, &mut self.problems);
                millrace_engine::Action::Delete
            }
            (ActionKind::Update, Some(document)) => {
                self.need_id(id);
                let (update, chosen) = self.update(&meta, &document, &expectation)?;
                filter = chosen;
                update
            }
            (ActionKind::Index, Some(document)) => {
                expectation.check(Operation::Index, id.is_some(), &mut self.problems);
                millrace_engine::Action::Index(document)
            }
            (ActionKind::Create, Some(document)) => {
                expectation.check(Operation::Create, id.is_some(), &mut self.problems);
                millrace_engine::Action::Create(document)
            }
        };
        let pipeline = meta.pipeline.as_deref().or(self.defaults.pipeline);
        let writes = matches!(kind, ActionKind::Index | ActionKind::Create);
        let outcome = if writes && id == Some("") {
            Outcome::Refused(Box::new(Error::illegal_argument("if _id is specified it must not be empty")))
        } else {
            Outcome::Sent
        };
        if matches!(outcome, Outcome::Refused(_)) {
            self.allowance.take(REFUSAL_BYTES)?;
        } else {
            let routing = meta.routing.as_deref().or(self.defaults.routing);
            // Of an update, the document that is stored where there is none goes through the pipeline.
            let takes_pipeline = match &stored {
                millrace_engine::Action::Update(update) => !update.doc_as_upsert && update.upsert.is_some(),
                _ => writes,
            };
            if let Some(name) = pipeline.filter(|_| takes_pipeline) {
                self.bulk.requested.push((self.bulk.ops.len(), self.pipelines.get(name)));
            }
            self.bulk.ops.push(WriteOp {
                routing: routing.map(str::to_owned),
                version: expectation.external(),
                if_seq_no: expectation.seq_no(),
                if_primary_term: expectation.primary_term(),
                require_alias: meta.require_alias.unwrap_or(self.defaults.require_alias),
                ..WriteOp::of_type(
                    doc_type.clone().unwrap_or_else(|| self.plain.clone()),
                    index.clone(),
                    meta.id.map(Cow::into_owned),
                    stored,
                )
            });
        }
        let source = filter.map(Box::new);
        self.bulk.items.push(Item { kind, index, doc_type, line, source, outcome });
        Ok(())
    }

    fn need_id(&mut self, id: Option<&str>) {
        if id.is_none_or(str::is_empty) {
            self.problems.push("id is missing".to_owned());
        }
    }

    fn update(
        &mut self,
        meta: &Meta<'_>,
        document: &Bytes,
        expectation: &Expectation,
    ) -> Result<(millrace_engine::Action, Option<SourceFilter>), Error> {
        let external =
            expectation.version_type.is_some_and(|kind| kind != millrace_engine::VersionType::Internal);
        if expectation.version.is_some() || external {
            return Err(Error::illegal_argument(
                "Update requests do not support versioning. Please use `if_seq_no` and `if_primary_term` instead",
            ));
        }
        let mut parsed = update::parse(document, self.allowance)?;
        if parsed.if_seq_no.is_some() || parsed.if_primary_term.is_some() {
            return Err(Error::illegal_argument(
                "[if_seq_no] and [if_primary_term] of a bulk update belong into its action line",
            ));
        }
        let retries = meta.retry_on_conflict.unwrap_or(0);
        if !(0..=MAX_RETRIES).contains(&retries) {
            self.problems
                .push(format!("[retry_on_conflict] must be between 0 and {MAX_RETRIES} but was [{retries}]"));
        }
        update::check(&parsed, expectation, retries, &mut self.problems);
        parsed.update.retry_on_conflict = u32::try_from(retries).unwrap_or(0);
        let own = meta.source.as_ref().map(SourceFilter::parse).transpose()?;
        let filter = parsed.source.take().or(own).or_else(|| self.defaults.source.cloned());
        parsed.update.returns_source = update::returns_source(filter.as_ref());
        Ok((millrace_engine::Action::Update(Box::new(parsed.update)), filter))
    }
}
