//! The answer of a bulk, written as text item by item.

use millrace_storage::WriteOutcome;

use super::action;
use super::parse::{Item, Outcome};
use crate::documents::answer::{self, Dress, push_address};
use crate::documents::update;
use crate::error::Error;
use crate::http::json::push_u64;

/// Bytes of a usual item.
const ITEM_BYTES: usize = 220;

/// Writes the answer. `results` are those of the items that were sent, in order.
pub(super) fn render(
    body: &[u8],
    items: &[Item],
    results: Vec<Result<WriteOutcome, millrace_storage::Error>>,
    took_ms: u64,
    forced_refresh: bool,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(items.len() * ITEM_BYTES + 64);
    out.extend_from_slice(b"{\"took\":");
    push_u64(&mut out, took_ms);
    // Whether any item failed is known at the end: both words have the same length with a space.
    out.extend_from_slice(b",\"errors\":");
    let errors_at = out.len();
    out.extend_from_slice(b"false,\"items\":[");
    let mut failed = false;
    let mut results = results.into_iter();
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(item.kind.name().as_bytes());
        out.extend_from_slice(b"\":{");
        let result = match &item.outcome {
            Outcome::Refused(error) => Err(Failure::Refused(error)),
            Outcome::Sent => match results.next() {
                Some(result) => result.map_err(|error| Failure::Failed(Error::from(error))),
                None => Err(Failure::Failed(Error::concealed(
                    500,
                    "illegal_state_exception",
                    &"a result is missing",
                ))),
            },
        };
        match result {
            Ok(outcome) => {
                let dress = Dress {
                    doc_type: item.doc_type.as_deref(),
                    forced_refresh,
                    created: item.answers_created(),
                };
                answer::push_members(&mut out, &outcome, dress);
                update::push_get(&mut out, &outcome, item.source.as_deref())?;
                out.extend_from_slice(b",\"status\":");
                push_u64(&mut out, u64::from(answer::status(outcome.result)));
            }
            Err(failure) => {
                failed = true;
                let error = match &failure {
                    Failure::Refused(error) => error,
                    Failure::Failed(error) => error,
                };
                let line = action::parse(&body[item.line.clone()], number + 1).ok();
                let id = line.as_ref().and_then(|action| action.meta.id.as_deref());
                push_address(&mut out, &item.index, item.doc_type.as_deref(), id);
                out.extend_from_slice(b",\"status\":");
                push_u64(&mut out, u64::from(error.status()));
                out.extend_from_slice(b",\"error\":");
                error.write_item(&mut out);
            }
        }
        out.extend_from_slice(b"}}");
    }
    out.extend_from_slice(b"]}");
    if failed {
        out[errors_at..errors_at + 5].copy_from_slice(b"true ");
    }
    Ok(out)
}

enum Failure<'a> {
    Refused(&'a Error),
    Failed(Error),
}
