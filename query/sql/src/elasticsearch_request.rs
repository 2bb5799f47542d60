//! The body of a request to Elasticsearch's SQL: the statement and its settings.
//!
//! The parser takes members with a meaning, checks those with one possible value, and refuses any other by name.

use millrace_dsl::json::parse_time;
use serde_json::Value;

use super::error::{Result, SqlError, excerpt};
use super::parameters::Parameters;
use super::request::{SqlDialect, SqlRequest, fetch_size};

/// Rows of a page where the request does not say.
const DEFAULT_FETCH: usize = 1_000;
/// Names of the only zone of times.
const UTC: [&str; 6] = ["Z", "UTC", "GMT", "Etc/UTC", "+00:00", "UTC+0"];

/// Members that go with a statement, and not with a cursor.
const OF_STATEMENTS: [&str; 4] = ["filter", "params", "fetch_size", "field_multi_value_leniency"];

/// A request.
#[derive(Clone, Debug)]
pub struct ElasticsearchRequest {
    /// The statement, or the cursor.
    pub sql: SqlRequest,
    /// Rows of a page.
    pub rows: usize,
    /// True for an answer by columns; `None` where the request does not say.
    pub is_columnar: Option<bool>,
    /// True if the first of several values stands for all of them.
    pub takes_first: bool,
    /// Longest time that the statement takes.
    pub request_timeout_ms: Option<u64>,
    /// Life of the cursor between two requests, as the request spells it.
    pub page_timeout: Option<String>,
}

impl ElasticsearchRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// A member is unknown, or has a value that it cannot have.
    pub fn parse(body: Option<&Value>) -> Result<Self> {
        let Some(Value::Object(members)) = body else {
            return Err(SqlError::Request("the body of the request has to be an object".to_owned()));
        };
        let sql = SqlRequest { dialect: SqlDialect::Elasticsearch, ..SqlRequest::default() };
        let mut request = Self {
            sql,
            rows: DEFAULT_FETCH,
            is_columnar: None,
            takes_first: false,
            request_timeout_ms: None,
            page_timeout: None,
        };
        for (name, value) in members {
            request.take(name, value)?;
        }
        if request.sql.cursor.is_some()
            && let Some(name) =
                OF_STATEMENTS.iter().find(|name| members.get(**name).is_some_and(|value| !value.is_null()))
        {
            return Err(SqlError::Request(format!(
                "a cursor has what its statement had: leave [{name}] out"
            )));
        }
        match (&request.sql.cursor, request.sql.query.is_empty()) {
            (None, true) => Err(SqlError::Request("the member [query] of the request is missing".to_owned())),
            (Some(_), false) => {
                Err(SqlError::Request("a request has a query or a cursor, and not both".to_owned()))
            }
            _ => Ok(request),
        }
    }

    fn take(&mut self, name: &str, value: &Value) -> Result<()> {
        let wrong = || {
            SqlError::Request(format!("the member [{name}] of the request cannot be [{}]", excerpt(value)))
        };
        match (name, value) {
            (_, Value::Null) if is_known(name) => {}
            ("query", Value::String(text)) => self.sql.query.clone_from(text),
            ("cursor", Value::String(text)) if !text.is_empty() => self.sql.cursor = Some(text.clone()),
            ("filter", Value::Object(_)) => self.sql.filter = Some(value.clone()),
            ("params", Value::Array(values)) => {
                self.sql.parameters = Parameters::from_values(values)?;
            }
            ("fetch_size", size) => {
                self.rows = fetch_size(size)?;
                if self.rows == 0 {
                    return Err(SqlError::Request("[fetch_size] must be greater than 0".to_owned()));
                }
            }
            ("columnar", Value::Bool(is)) => self.is_columnar = Some(*is),
            ("field_multi_value_leniency", Value::Bool(is)) => self.takes_first = *is,
            ("request_timeout", Value::String(text)) => self.request_timeout_ms = parse_time(name, text)?,
            ("page_timeout", Value::String(text)) => self.page_timeout = Some(text.clone()),
            ("time_zone", Value::String(zone)) => {
                if !UTC.contains(&zone.as_str()) {
                    return Err(SqlError::Unsupported(format!(
                        "times are those of UTC; the member [time_zone] cannot be [{}]",
                        excerpt(zone)
                    )));
                }
            }
            // There are no frozen indices, and answers are whole.
            (
                "index_include_frozen" | "index_using_frozen" | "allow_partial_search_results",
                Value::Bool(_),
            ) => {}
            ("binary_format", Value::Bool(false)) => {}
            ("mode", Value::String(mode)) if mode == "plain" => {}
            ("client_id" | "version", Value::String(_)) => {}
            (name, _) if is_known(name) => return Err(wrong()),
            (name, _) => return Err(SqlError::Request(format!("unknown field [{}]", excerpt(name)))),
        }
        Ok(())
    }
}

fn is_known(name: &str) -> bool {
    matches!(
        name,
        "query"
            | "cursor"
            | "filter"
            | "params"
            | "fetch_size"
            | "columnar"
            | "field_multi_value_leniency"
            | "request_timeout"
            | "page_timeout"
            | "time_zone"
            | "index_include_frozen"
            | "index_using_frozen"
            | "allow_partial_search_results"
            | "binary_format"
            | "mode"
            | "client_id"
            | "version"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bind::Literal;

    #[test]
    fn members_with_a_meaning_are_taken() {
        let body = json!({
            "query": "SELECT ?", "params": [1, "a", null, true, 1.5, {"type": "keyword", "value": "b"}], "fetch_size": 7,
            "filter": {"match_all": {}}, "columnar": true, "field_multi_value_leniency": true, "time_zone": "Z",
            "request_timeout": "5s", "page_timeout": "45s", "index_using_frozen": true, "mode": "plain", "cursor": null,
        });
        let request = ElasticsearchRequest::parse(Some(&body)).unwrap();
        assert_eq!((request.rows, request.is_columnar, request.takes_first), (7, Some(true), true));
        assert_eq!((request.request_timeout_ms, request.page_timeout.as_deref()), (Some(5_000), Some("45s")));
        assert!(request.sql.filter.is_some() && request.sql.dialect == SqlDialect::Elasticsearch);
        let Parameters::Given(values) = &request.sql.parameters else { panic!("no values") };
        let literals = [
            Literal::Int(1),
            Literal::Str("a".to_owned()),
            Literal::Null,
            Literal::Bool(true),
            Literal::Float(1.5),
            Literal::Str("b".to_owned()),
        ];
        assert_eq!(*values, literals);
        assert_eq!(ElasticsearchRequest::parse(Some(&json!({"query": "SELECT 1"}))).unwrap().rows, 1_000);
    }

    #[test]
    fn others_are_refused_by_name() {
        for (body, words) in [
            (json!({"query": "SELECT 1", "time_zone": "Europe/Vienna"}), "time_zone"),
            (json!({"query": "SELECT 1", "fetch_size": 0}), "fetch_size"),
            (json!({"query": "SELECT 1", "fetch_size": 100_000}), "fetch_size"),
            (json!({"query": "SELECT 1", "runtime_mappings": {}}), "runtime_mappings"),
            (json!({"query": "SELECT 1", "keep_alive": "5d"}), "keep_alive"),
            (json!({"query": "SELECT 1", "mode": "jdbc"}), "mode"),
            (json!({"query": "SELECT 1", "binary_format": true}), "binary_format"),
            (json!({"query": "SELECT ?", "params": [[1]]}), "params"),
            (json!({"query": "SELECT 1", "cursor": "n:a:2"}), "cursor"),
            (json!({"cursor": "n:a:2", "fetch_size": 10}), "[fetch_size]"),
            (json!({"cursor": "n:a:2", "params": []}), "[params]"),
            (json!({"query": "SELECT ?", "params": vec![0; 10_001]}), "10000"),
            (json!({"query": 3}), "query"),
            (json!({}), "query"),
            (json!([]), "object"),
        ] {
            let error = ElasticsearchRequest::parse(Some(&body)).unwrap_err();
            assert!(error.status() == 400 && error.to_string().contains(words), "{body}: {error}");
        }
        let long = "é".repeat(10_000);
        for body in [
            json!({"query": "SELECT 1", "mode": long}),
            json!({"query": "SELECT 1", "time_zone": long}),
            json!({"query": "SELECT 1", long.as_str(): 1}),
            json!({"query": "SELECT ?", "params": [[long]]}),
            json!({"query": "SELECT ?", "params": [{"type": "long", "value": long}]}),
        ] {
            let error = ElasticsearchRequest::parse(Some(&body)).unwrap_err().to_string();
            assert!(error.len() < 400, "{error}");
        }
        let body =
            json!({"cursor": "n:a:2", "request_timeout": "5s", "page_timeout": "45s", "columnar": false});
        let request = ElasticsearchRequest::parse(Some(&body)).unwrap();
        assert_eq!((request.request_timeout_ms, request.page_timeout.as_deref()), (Some(5_000), Some("45s")));
    }
}
