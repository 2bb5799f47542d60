//! `_sql`: statements in the dialect of Elasticsearch, the pages of their answers, and the searches that they are.
//!
//! Statements run as those of `_plugins/_sql` do. Dialect, members of the request, layouts and errors are Elasticsearch's.

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_dsl::params::Params;
use millrace_engine::Session;
use millrace_runtime::Instant;
use millrace_sql::elasticsearch_request::ElasticsearchRequest;
use millrace_sql::error::SqlError;
use millrace_sql::format::{PageFormat, PageLayout, PageOptions};
use millrace_sql::run::Bounds;
use millrace_work::error::Result;
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::sql::{CursorPage, NextPageBounds, note};
use super::{Outcome, OutcomeBody, SearchService};
use crate::contexts::Kind;
use crate::request::keep_alive;

/// A page that is no JSON.
#[derive(Debug)]
pub struct TextPage {
    /// Its text.
    pub text: Bytes,
    /// Its media type.
    pub content_type: &'static str,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}

impl SearchService {
    /// Answers `_sql`. Errors of statements have a form of their own, so they are answers too.
    ///
    /// # Errors
    /// Those of the store and of searches.
    pub fn elasticsearch_sql<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let began = Instant::now();
            let running = self.table_page(session, params, body);
            let page = running.instrument(tracing::debug_span!("statement")).await;
            self.timings.statement.record(began.elapsed());
            answered(session, page)
        })
    }

    /// Answers `_sql/close`; see [`SearchService::elasticsearch_sql`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn close_elasticsearch_sql(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<&Value>,
    ) -> Result<Outcome> {
        let close = || {
            Params::new("/_sql/close".to_owned(), params).finish()?;
            self.enabled()?;
            let Some(token) = ElasticsearchRequest::parse(body)?.sql.cursor else {
                return Err(SqlError::Request("the member [cursor] of the request is missing".to_owned()));
            };
            let closed = self.close_cursor(session, &token, |format| table_options(format).map(drop))?;
            Ok(Outcome::json(200, json!({"succeeded": closed})))
        };
        answered(session, close())
    }

    /// Answers `_sql/translate` with the search that a statement is; see [`SearchService::elasticsearch_sql`].
    ///
    /// # Errors
    /// Those of the store and of searches.
    pub fn translate_sql<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move { answered(session, self.translated(session, params, body).await) })
    }

    async fn table_page(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        let format = params.iter().rev().find(|(name, _)| name == "format").map(|(_, value)| value.clone());
        let mut params = Params::new("/_sql".to_owned(), params);
        let layout = layout(format.as_deref(), &mut params)?;
        params.finish()?;
        self.enabled()?;
        let request = ElasticsearchRequest::parse(body.as_ref())?;
        if let Some(token) = &request.sql.cursor {
            let agrees = |format| agrees(table_options(format)?.layout, layout, request.is_columnar);
            let life_ms = request.page_timeout.as_deref().map(|text| self.page_life(text)).transpose()?;
            let bounds = NextPageBounds { timeout_ms: request.request_timeout_ms, life_ms };
            return Ok(outcome(self.next_page(session, token, bounds, agrees).await?));
        }
        let layout = match (layout.unwrap_or(PageLayout::Rows), request.is_columnar) {
            (layout, Some(true)) if layout.is_json() => PageLayout::Columns,
            (_, Some(true)) => return Err(SqlError::Request("[columnar] is for JSON only".to_owned())),
            (layout, _) => layout,
        };
        let life = match &request.page_timeout {
            Some(text) => self.page_life(text)?,
            None => self.cursor_life(),
        };
        let format = PageFormat::Table(PageOptions { layout, takes_first: request.takes_first });
        let bounds = self.bounded_by(request.request_timeout_ms);
        Ok(outcome(self.first_page(session, request.sql, bounds, format, request.rows, life).await?))
    }

    async fn translated(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        Params::new("/_sql/translate".to_owned(), params).finish()?;
        self.enabled()?;
        let request = ElasticsearchRequest::parse(body.as_ref())?;
        if request.sql.cursor.is_some() {
            return Err(SqlError::Request("a cursor cannot be translated".to_owned()));
        }
        let bounds = Bounds { rows: Some(request.rows), ..self.bounded_by(request.request_timeout_ms) };
        match self.runner()?.search(session, request.sql, bounds).await? {
            Some(search) => Ok(Outcome::json(200, search.body)),
            None => Err(SqlError::Unsupported(
                "no search has these rows: the statement cannot be translated".to_owned(),
            )),
        }
    }

    /// Reads the life of a cursor between two requests.
    fn page_life(&self, text: &str) -> Result<u64> {
        keep_alive("page_timeout", text, &self.longest_life(Kind::Cursor))
    }

    /// Returns how a statement is answered with all of its rows, within the time that its request has.
    fn bounded_by(&self, request_timeout_ms: Option<u64>) -> Bounds {
        let bounds = self.all_rows();
        let timeout_ms = [bounds.timeout_ms, request_timeout_ms].into_iter().flatten().min();
        Bounds { timeout_ms, deletes: false, ..bounds }
    }
}

/// Reads the layout of pages of a format, and takes its parameters; `None` where they do not name one.
fn layout(format: Option<&str>, params: &mut Params) -> Result<Option<PageLayout>, SqlError> {
    let (delimiter, header) = (params.take("delimiter"), params.take("header"));
    let header = match header.as_deref() {
        None | Some("present") => true,
        Some("absent") => false,
        Some(other) => {
            return Err(SqlError::Request(format!("[header] is [present] or [absent], and not [{other}]")));
        }
    };
    let delimiter = match delimiter {
        None => None,
        Some(text) => {
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) if !matches!(letter, '"' | '\n' | '\r' | '\t') => Some(letter),
                _ => {
                    return Err(SqlError::Request(format!("[{text}] is no delimiter of one letter")));
                }
            }
        }
    };
    let layout = match format {
        None => None,
        Some("json" | "yaml" | "application/json" | "application/yaml") => Some(PageLayout::Rows),
        Some("csv" | "text/csv") => Some(PageLayout::Csv { delimiter: delimiter.unwrap_or(','), header }),
        Some("tsv" | "text/tab-separated-values") => Some(PageLayout::Tsv { header }),
        Some("txt" | "text" | "text/plain") => Some(PageLayout::Text),
        Some(other) => {
            return Err(SqlError::Request(format!(
                "format [{other}] is not supported, use one of [json, yaml, csv, tsv, txt]"
            )));
        }
    };
    match (layout, delimiter) {
        (Some(PageLayout::Csv { .. }), _) | (_, None) => Ok(layout),
        _ => Err(SqlError::Request("[delimiter] is for the format [csv] only".to_owned())),
    }
}

/// Returns the options of a cursor's pages, and refuses a cursor of the other door.
fn table_options(format: PageFormat) -> Result<PageOptions, SqlError> {
    match format {
        PageFormat::Table(options) => Ok(options),
        _ => Err(SqlError::Cursor("the cursor is one of [_plugins/_sql]".to_owned())),
    }
}

/// Refuses a page in another layout than the first.
fn agrees(first: PageLayout, layout: Option<PageLayout>, is_columnar: Option<bool>) -> Result<(), SqlError> {
    let is_same = match layout {
        None => true,
        Some(layout) if layout.is_json() => first.is_json(),
        Some(layout) => std::mem::discriminant(&first) == std::mem::discriminant(&layout),
    };
    let is_same = is_same && is_columnar.is_none_or(|is| is == (first == PageLayout::Columns));
    match is_same {
        true => Ok(()),
        false => Err(SqlError::Request(
            "a cursor reads on in the layout of the first page; send the same [format] and [columnar]"
                .to_owned(),
        )),
    }
}

/// Makes the answer of a page.
fn outcome(page: CursorPage) -> Outcome {
    let CursorPage { text, cursor, format } = page;
    match format {
        PageFormat::Table(options) if !options.layout.is_json() => {
            let content_type = options.layout.content_type();
            Outcome { status: 200, body: OutcomeBody::TextPage(TextPage { text, content_type, cursor }) }
        }
        _ => Outcome::raw(text),
    }
}

/// Makes the answer of an error of a statement. The audit learns of refusals before their indices are lost.
fn answered(session: &Session, result: Result<Outcome, SqlError>) -> Result<Outcome> {
    result.inspect_err(|error| note(session, error)).or_else(|error| match error {
        SqlError::Query(error) => Err(error),
        error => Ok(Outcome::json(error.status(), error.to_elasticsearch_body())),
    })
}
