//! Queries of the documents that roles show: the part of the search language that they may use.

use millrace_accounts::QueryCheck;
use serde_json::Value;

/// Takes the queries that searches take.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchQueryParser;

impl QueryCheck for SearchQueryParser {
    fn check(&self, query: &Value) -> Result<(), String> {
        millrace_query::check_rule(query).map_err(|error| error.reason())
    }
}
