//! The answer of a bulk, written as text item by item, without the items of which `filter_path` keeps nothing.

use millrace_engine::{ActionKind, WriteOutcome};

use super::action;
use super::parse::{Item, Outcome};
use crate::documents::answer::{self, AcknowledgementFormat, push_address};
use crate::documents::update;
use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::http::filter_path::FilterPath;
use crate::http::json::push_u64;

/// Text before the items.
const ITEMS: &[u8] = b",\"items\":[";
/// Bytes of a usual item.
pub(super) const ITEM_BYTES: usize = 220;
/// Bytes of an answer behind which the reasons of errors are cut short: items may have one of the request's in common.
const LONG_ANSWER_BYTES: usize = 32 << 20;

/// Members of an item that was done, as far as the request and the outcome give it them.
const DONE: [&str; 12] = [
    "_id",
    "_index",
    "_primary_term",
    "_seq_no",
    "_shards",
    "_type",
    "_version",
    "created",
    "forced_refresh",
    "get",
    "result",
    "status",
];
/// Members of an item that failed.
const FAILED: [&str; 5] = ["_id", "_index", "_type", "error", "status"];

/// Rendering options of a bulk's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkRenderOptions<'a> {
    pub(super) took_ms: u64,
    /// Time of ingest pipelines, where there are some.
    pub(super) ingest_took_ms: Option<u64>,
    pub(super) forced_refresh: bool,
    /// Final filter of the answer.
    pub(super) filter: &'a FilterPath,
}

/// Selection of the items to write, by kind of action.
struct ItemFilter([(bool, bool); 4]);

impl ItemFilter {
    fn new(filter: &FilterPath) -> Self {
        let kinds = [ActionKind::Index, ActionKind::Create, ActionKind::Update, ActionKind::Delete];
        let mut wanted = Self([(true, true); 4]);
        for kind in kinds {
            let keeps = |members: &[&str]| filter.keeps_some(&["items", kind.name()], members);
            wanted.0[kind as usize] = (keeps(&DONE), keeps(&FAILED));
        }
        wanted
    }
}

/// Writes the answer, still to be filtered. `results` are those of the items that were sent, in order.
pub(super) fn render(
    body: &[u8],
    items: &[Item],
    results: Vec<Result<WriteOutcome, millrace_runtime::Error>>,
    how: &BulkRenderOptions<'_>,
) -> Result<Vec<u8>, Error> {
    let wanted = ItemFilter::new(how.filter);
    let all = wanted.0.iter().any(|(done, _)| *done);
    let mut out = Vec::with_capacity(if all { items.len() * ITEM_BYTES } else { 0 } + 64);
    out.extend_from_slice(b"{\"took\":");
    push_u64(&mut out, how.took_ms);
    if let Some(took_ms) = how.ingest_took_ms {
        out.extend_from_slice(b",\"ingest_took\":");
        push_u64(&mut out, took_ms);
    }
    // Whether any item failed is known at the end: both words have the same length with a space.
    out.extend_from_slice(b",\"errors\":");
    let errors_at = out.len();
    out.extend_from_slice(b"false");
    out.extend_from_slice(ITEMS);
    let items_at = out.len();
    let mut failed = false;
    let mut results = results.into_iter();
    for (number, item) in items.iter().enumerate() {
        let result = match &item.outcome {
            Outcome::Refused(error) => Err(Failure::Refused(error)),
            Outcome::Dropped => Ok(None),
            Outcome::Sent => match results.next() {
                Some(result) => result.map(Some).map_err(|error| Failure::Failed(Error::from(error))),
                None => Err(Failure::Failed(Error::concealed(
                    500,
                    "illegal_state_exception",
                    &"a result is missing",
                ))),
            },
        };
        failed |= result.is_err();
        let (done, refused) = wanted.0[item.kind as usize];
        if !(if result.is_ok() { done } else { refused }) {
            continue;
        }
        if out.len() > items_at {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(item.kind.name().as_bytes());
        out.extend_from_slice(b"\":{");
        match result {
            Ok(None) => {
                let line =
                    action::parse(&body[item.line.clone()], number + 1, &MemoryAllowance::unbounded()).ok();
                let id = line.as_ref().and_then(|action| action.meta.id.as_deref());
                answer::push_dropped(&mut out, &item.index, item.doc_type.as_deref(), id);
                out.extend_from_slice(b",\"status\":200");
            }
            Ok(Some(outcome)) => {
                let dress = AcknowledgementFormat {
                    doc_type: item.doc_type.as_deref(),
                    forced_refresh: how.forced_refresh,
                    created: item.answers_created(),
                };
                answer::push_members(&mut out, &outcome, dress);
                update::push_get(&mut out, &outcome, item.source.as_deref())?;
                out.extend_from_slice(b",\"status\":");
                push_u64(&mut out, u64::from(answer::status(outcome.result)));
            }
            Err(failure) => {
                let error = match &failure {
                    Failure::Refused(error) => error,
                    Failure::Failed(error) => error,
                };
                // What the line takes was charged when it was read first.
                let line =
                    action::parse(&body[item.line.clone()], number + 1, &MemoryAllowance::unbounded()).ok();
                let id = line.as_ref().and_then(|action| action.meta.id.as_deref());
                push_address(&mut out, &item.index, item.doc_type.as_deref(), id);
                out.extend_from_slice(b",\"status\":");
                push_u64(&mut out, u64::from(error.status()));
                out.extend_from_slice(b",\"error\":");
                match out.len() > LONG_ANSWER_BYTES {
                    true => error.cut_short().write_item(&mut out),
                    false => error.write_item(&mut out),
                }
            }
        }
        out.extend_from_slice(b"}}");
    }
    if out.len() > items_at {
        out.extend_from_slice(b"]}");
    } else {
        // A list of which nothing is kept is dropped, not empty.
        out.truncate(items_at - ITEMS.len());
        out.push(b'}');
    }
    if failed {
        out[errors_at..errors_at + 5].copy_from_slice(b"true ");
    }
    Ok(out)
}

enum Failure<'a> {
    Refused(&'a Error),
    Failed(Error),
}
