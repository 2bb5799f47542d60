//! Search over the store: the query language of the data API, planned by DataFusion.
//!
//! [`SearchService`] is the way in. It is handed principals, index expressions, parameters and
//! bodies by `millrace-api`, takes snapshots from `millrace-engine`, and hands back rendered
//! answers, or batches of Arrow for statements. On the way: `millrace-dsl` parses, `millrace-matching` finds and scores rows, `millrace-search` makes hits of
//! them, `millrace-aggregate` aggregates, and `millrace-sql` answers statements; what all of them know of a request at
//! work, and of errors, is in `millrace-work`.
//!
//! Rules ask many queries of documents as they arrive: [`filters`] is the way in for these.

mod contexts;
mod delete_by_query;
#[doc(hidden)]
pub mod fuzzing;
mod request;
mod service;
mod skip;
mod throttled;
mod timings;
mod visibility;

pub use self::delete_by_query::DeletionRequest;
pub use self::service::{
    Config, MAX_SEARCHES, Outcome, OutcomeBody, PIPELINE_MARK, SearchService, TextPage, TextParts,
};
pub use self::timings::SearchTimings;
pub use millrace_matching::filters;
pub use millrace_matching::pinned::PinnedFigures;
pub use millrace_matching::rules::{check as check_rule, check_kept as check_kept_filter};
/// PPL as text: completions for shells and editors.
pub mod ppl {
    pub use millrace_ppl::{
        CandidateKind, CompletionCandidate, CompletionNames, compared_field, completions, source_of,
    };
}
pub use millrace_sql::batches::{Batches, MemoryHold, Messages};
pub use millrace_sql::describe::StatementDescription;
pub use millrace_sql::error::SqlError;
pub use millrace_sql::messages::{Encoder, MESSAGE_BYTES};
pub use millrace_sql::run::PATIENCE;
pub use millrace_work::QueryContext;
pub use millrace_work::error::Error;
