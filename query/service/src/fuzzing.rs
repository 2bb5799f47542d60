//! Entry points of fuzzers: bytes go through a parser of this crate, as `millrace_mapping::fuzzing` does it for storage.

use millrace_dsl::body::SearchBody;
use millrace_dsl::query::Query;
use millrace_dsl::query_string::{self, simple};
use millrace_matching::lower::lower;
use serde_json::Value;

/// The text of a query of PPL.
pub fn ppl(data: &[u8]) {
    millrace_ppl::fuzzing::query(data);
}

/// The text of a query of PPL, which is planned.
pub fn ppl_plan(data: &[u8]) {
    millrace_ppl::fuzzing::plan(data);
}

/// The text of a statement of SQL.
pub fn sql(data: &[u8]) {
    millrace_sql::fuzzing::statement(data);
}

/// The text of a `query_string` query.
pub fn query_string(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        query_string::parse(text, None);
        query_string::parse(&query_string::escape(text), Some("field"));
    }
}

/// The text of a `simple_query_string` query, behind two bytes that say which signs mean something.
pub fn simple_query_string(data: &[u8]) {
    let Some((flags, data)) = data.split_first_chunk() else { return };
    if let Ok(text) = std::str::from_utf8(data) {
        // A refusal is an answer.
        let _ = simple::parse(text, simple::Flags(u16::from_be_bytes(*flags).into()));
    }
}

/// The body of a search.
pub fn dsl(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    if let Ok(mut body) = SearchBody::parse(&value) {
        for query in body.queries_mut() {
            let query: &Query = query;
            lower(query).whole_expr();
        }
    }
}
