//! `_plugins/_sql`: statements, the pages of their answers, and what they are planned to.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::json;
use millrace_dsl::params::Params;
use millrace_engine::Session;
use millrace_runtime::Instant;
use millrace_sql::cursor::{Cursor, Token};
use millrace_sql::error::SqlError;
use millrace_sql::format::{Format, LineEnd, PageFormat};
use millrace_sql::page::Page;
use millrace_sql::renderer::RenderedSearch;
use millrace_sql::request::{LineOptions, SqlRequest};
use millrace_sql::run::{Bounds, LineParts, Runner};
use millrace_work::error::Error;
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::{Outcome, OutcomeBody, SearchService};
use crate::contexts::{Contexts, Kind};

/// Rows that a statement without LIMIT answers, where no setting says.
const DEFAULT_ROWS: usize = 200;
/// Hits that a search answers at once, as `index.max_result_window` has it by default.
const MAX_HITS: usize = 10_000;
/// Time that a statement may take, where no setting says.
const STATEMENT_TIMEOUT_MS: u64 = 3_600_000;
/// Time that a cursor lives between its pages, where no setting says.
const CURSOR_LIFE_MS: u64 = 60_000;

impl SearchService {
    /// Answers a statement of SQL. Errors of statements have a form of their own, so they are answers too.
    pub fn sql<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let began = Instant::now();
            let running = self.run_sql(session, params, body);
            let answer = running.instrument(tracing::debug_span!("statement")).await;
            self.timings.statement.record(began.elapsed());
            answer.unwrap_or_else(|error| refused(session, &error))
        })
    }

    /// Explains a statement of SQL; see [`SearchService::sql`].
    pub fn explain_sql<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.run_explain(session, params, body).await.unwrap_or_else(|error| refused(session, &error))
        })
    }

    /// Closes a cursor; see [`SearchService::sql`].
    pub fn close_sql(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<&Value>,
    ) -> Outcome {
        self.run_close(session, params, body).unwrap_or_else(|error| refused(session, &error))
    }

    async fn run_sql(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        let format = params.iter().rev().find(|(name, _)| name == "format").map(|(_, value)| value.clone());
        let pretty = is_pretty(&params);
        let mut params = Params::new("/_plugins/_sql".to_owned(), params);
        let sanitize = params.boolean("sanitize")?.unwrap_or(true);
        let lines = LineOptions {
            end: params.take("newLine").map(|text| LineEnd::new(&text)).transpose()?.unwrap_or_default(),
            pretty,
            flat: params.boolean("flat")?.unwrap_or(false),
            id: params.boolean("_id")?.unwrap_or(false),
            score: params.boolean("_score")?.unwrap_or(false),
        };
        params.finish()?;
        self.enabled()?;
        let request = SqlRequest { lines, ..SqlRequest::parse(body.as_ref())? };
        if format.as_deref().is_some_and(|name| name.eq_ignore_ascii_case("json")) {
            return self.native(session, request).await;
        }
        let format = match Format::new(format.as_deref().unwrap_or_default(), sanitize)? {
            Format::Jdbc => return self.paged(session, request).await,
            Format::Lines(format) => format,
        };
        if request.cursor.is_some() {
            return Err(SqlError::Request("a cursor is read on in the format [jdbc] only".to_owned()));
        }
        let bounds = self.bounds(&request, false);
        let (first, rest) = self.runner()?.lines(session, request, bounds, format).await?;
        let body = match rest {
            None => OutcomeBody::Text(first),
            Some(rest) => OutcomeBody::TextParts(TextParts::new(first, rest)),
        };
        Ok(Outcome { status: 200, body })
    }

    /// Answers a statement, or the first page of its answer, or the page of a cursor.
    async fn paged(&self, session: &Session, request: SqlRequest) -> Result<Outcome, SqlError> {
        if let Some(token) = &request.cursor {
            let page = self.next_page(session, token, NextPageBounds::default(), check_own_cursor);
            return Ok(Outcome::raw(page.await?.text));
        }
        let rows = match request.fetch_size {
            Some(size) => size,
            None => self.number("plugins.sql.cursor.fetch_size").unwrap_or(0),
        };
        let bounds = self.bounds(&request, true);
        let life = self.cursor_life();
        let page = self.first_page(session, request, bounds, PageFormat::Jdbc, rows, life).await?;
        Ok(Outcome::raw(page.text))
    }

    /// Answers a statement with its first page, and opens a cursor for the rest. The cursor lives for `life_ms` between its pages.
    pub(super) async fn first_page(
        &self,
        session: &Session,
        request: SqlRequest,
        bounds: Bounds,
        format: PageFormat,
        rows: usize,
        life_ms: u64,
    ) -> Result<CursorPage, SqlError> {
        let runner = self.runner()?;
        let Page { writer, total, left } = runner.page(session, request, bounds, format, rows).await?;
        let opened = match left {
            None => None,
            Some(cursor) => {
                let most = self.most_open(Kind::Cursor);
                let shards: Vec<(Arc<IndexMeta>, Vec<u32>)> = cursor
                    .indices
                    .iter()
                    .map(|(meta, _)| (Arc::clone(meta), (0..meta.shards).collect()))
                    .collect();
                let counted = self
                    .counted(Kind::Cursor, shards.iter().map(|(meta, shards)| (&**meta, shards.as_slice())));
                let id = self.cursors.open(session.principal(), cursor, counted, life_ms, most)?;
                Some(CursorGuard { cursors: &self.cursors, session, id: Some(id) })
            }
        };
        let cursor = opened.as_ref().and_then(|opened| Some(Token::text(opened.id.as_ref()?, 2)));
        let text = runner.finish_page(writer, total, cursor.clone()).await?;
        if let Some(opened) = opened {
            opened.disarm();
        }
        Ok(CursorPage { text, cursor, format })
    }

    /// Returns how a statement is answered, in pages or not.
    fn bounds(&self, request: &SqlRequest, pages: bool) -> Bounds {
        Bounds { rows: self.default_rows(request, pages), ..self.all_rows() }
    }

    /// Returns how a statement is answered with all of its rows.
    pub(super) fn all_rows(&self) -> Bounds {
        Bounds {
            now_ms: self.now_ms(),
            rows: None,
            timeout_ms: self.statement_timeout(),
            deletes: self.flag("plugins.sql.delete.enabled"),
        }
    }

    /// Answers a statement as the search that it is.
    async fn native(&self, session: &Session, request: SqlRequest) -> Result<Outcome, SqlError> {
        if request.cursor.is_some() {
            return Err(SqlError::Request("a cursor is read on in the format [jdbc] only".to_owned()));
        }
        let rows = match request.fetch_size {
            // A search answers no more at once.
            Some(0) => Some(MAX_HITS),
            _ => Some(self.number("plugins.query.size_limit").unwrap_or(DEFAULT_ROWS)),
        };
        let runner = self.runner()?;
        let bounds = Bounds { rows, ..self.bounds(&request, false) };
        if request.is_about_metadata()
            && let Some(indices) = runner.index_descriptions(session, request.clone(), bounds).await?
        {
            return Ok(Outcome::json(200, indices));
        }
        let rendered = runner.search(session, request.clone(), bounds).await?;
        if let Some(RenderedSearch { index, mut body, .. }) = rendered {
            body["track_total_hits"] = json!(true);
            return Ok(self.search(session, &index, Vec::new(), Some(body)).await?);
        }
        let Page { writer, total, .. } = runner.hits(session, request, bounds).await?;
        Ok(Outcome::raw(runner.finish_page(writer, total, None).await?))
    }

    /// Answers the page that a token stands for, in the format of its cursor, which `agrees` may refuse.
    pub(super) async fn next_page(
        &self,
        session: &Session,
        token: &str,
        bounds: NextPageBounds,
        agrees: impl Fn(PageFormat) -> Result<(), SqlError>,
    ) -> Result<CursorPage, SqlError> {
        let token = Token::parse(token)?;
        let cursor = self.cursors.get(&token.id, session.principal(), None)?;
        let format = cursor.format;
        agrees(format)?;
        if bounds.life_ms.is_some() {
            self.cursors.get(&token.id, session.principal(), bounds.life_ms)?;
        }
        cursor.check_seen(session)?;
        if !cursor.alive(&session.metadata()) {
            self.cursors.close(&token.id, session.principal());
            return Err(Error::ContextNotFound(token.id).into());
        }
        let owner = session.principal().caller();
        let timeout_ms = [self.statement_timeout(), bounds.timeout_ms].into_iter().flatten().min();
        let page = self.runner()?.next_page(owner, Arc::clone(&cursor), token.clone(), timeout_ms);
        match page.await {
            Ok((text, more)) => {
                if !more {
                    self.cursors.close(&token.id, session.principal());
                }
                let cursor = more.then(|| Token::text(&token.id, token.page + 1));
                Ok(CursorPage { text, cursor, format })
            }
            Err(error) => {
                // What failed halfway cannot be read on. A page whose time was over, or that had to wait for too long, is asked for
                // again: its rows were not lost.
                let again = match &error {
                    SqlError::Cursor(_) => true,
                    SqlError::Query(error) => matches!(error, Error::TimedOut | Error::Rejected(_)),
                    _ => false,
                };
                if !again {
                    self.cursors.close(&token.id, session.principal());
                }
                Err(error)
            }
        }
    }

    fn run_close(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<&Value>,
    ) -> Result<Outcome, SqlError> {
        Params::new("/_plugins/_sql/close".to_owned(), params).finish()?;
        self.enabled()?;
        let Some(token) = SqlRequest::parse(body)?.cursor else {
            return Err(SqlError::Request("the member [cursor] of the request is missing".to_owned()));
        };
        // One that is closed already is closed.
        self.close_cursor(session, &token, check_own_cursor)?;
        Ok(Outcome::json(200, json!({"succeeded": true})))
    }

    /// Closes the cursor of a token unless `agrees` refuses its format; returns `true` if it was open.
    pub(super) fn close_cursor(
        &self,
        session: &Session,
        token: &str,
        agrees: impl Fn(PageFormat) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        let id = Token::parse(token)?.id;
        match self.cursors.get(&id, session.principal(), None) {
            Ok(cursor) => agrees(cursor.format)?,
            Err(Error::ContextNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.cursors.close(&id, session.principal()))
    }

    async fn run_explain(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        Params::new("/_plugins/_sql/_explain".to_owned(), params).finish()?;
        self.enabled()?;
        let request = SqlRequest::parse(body.as_ref())?;
        if request.cursor.is_some() {
            return Err(SqlError::Request("Invalid request. Cannot explain cursor".to_owned()));
        }
        let bounds = self.bounds(&request, true);
        let explained = self.runner()?.explain(session, request, bounds).await?;
        Ok(Outcome::json(200, explained))
    }

    /// Returns how many rows a statement without LIMIT answers: with pages it is read to its end, and who asks
    /// for no pages wants all.
    fn default_rows(&self, request: &SqlRequest, pages: bool) -> Option<usize> {
        match request.fetch_size {
            Some(0) => None,
            Some(_) if pages => None,
            _ => Some(self.number("plugins.query.size_limit").unwrap_or(DEFAULT_ROWS)),
        }
    }

    /// Refuses statements where a setting does.
    pub(super) fn enabled(&self) -> Result<(), SqlError> {
        match self.flag("plugins.sql.enabled") {
            true => Ok(()),
            false => Err(SqlError::Disabled(
                "Either plugins.sql.enabled or rest.action.multi.allow_explicit_index setting is false"
                    .to_owned(),
            )),
        }
    }

    /// Returns how long a statement, or a page of one, may take: what searches may, or else what `plugins.sql.timeout` says. `None` is without end.
    fn statement_timeout(&self) -> Option<u64> {
        const SETTING: &str = "plugins.sql.timeout";
        let limited = |timeout_ms: &u64| *timeout_ms != u64::MAX;
        let own = || match self.setting(SETTING) {
            None => Some(STATEMENT_TIMEOUT_MS),
            Some(text) => json::parse_time(SETTING, &text).ok().flatten(),
        };
        self.default_timeout().filter(limited).or_else(own).filter(limited)
    }

    /// Returns how long a cursor lives between its pages.
    pub(super) fn cursor_life(&self) -> u64 {
        const SETTING: &str = "plugins.sql.cursor.keep_alive";
        let text = self.setting(SETTING);
        text.and_then(|text| json::parse_time(SETTING, &text).ok().flatten()).unwrap_or(CURSOR_LIFE_MS)
    }

    pub(super) fn setting(&self, name: &str) -> Option<String> {
        json::text(&self.engine.metadata().cluster_setting(name)?)
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.setting(name)?.parse().ok()
    }

    fn flag(&self, name: &str) -> bool {
        self.setting(name).is_some_and(|text| text == "true")
    }

    pub(super) fn runner(&self) -> Result<&Runner, Error> {
        self.runner.as_ref().map_err(|error| Error::Execution(error.clone()))
    }
}

/// Returns whether an answer is for people: a parameter of all requests, which [`Params`] leaves out.
pub(super) fn is_pretty(params: &[(String, String)]) -> bool {
    params.iter().any(|(name, value)| name == "pretty" && value != "false")
}

/// Closes a cursor whose token reaches no client, as after a failure.
struct CursorGuard<'a> {
    cursors: &'a Contexts<Cursor>,
    session: &'a Session,
    id: Option<String>,
}

impl CursorGuard<'_> {
    /// Leaves the cursor to its client.
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CursorGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.cursors.close(&id, self.session.principal());
        }
    }
}

/// Bounds of a page behind the first, as its request has them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextPageBounds {
    /// Longest time that the page takes.
    pub(super) timeout_ms: Option<u64>,
    /// Life of the cursor between two requests from now on.
    pub(super) life_ms: Option<u64>,
}

/// A page, and the cursor of the next one.
pub(super) struct CursorPage {
    pub(super) text: Bytes,
    pub(super) cursor: Option<String>,
    pub(super) format: PageFormat,
}

/// A text that is written while it is taken. Dropping it ends the statement; an error ends it early.
pub struct TextParts(BoxStream<'static, Result<Bytes, SqlError>>);

impl TextParts {
    pub(super) fn new(first: Bytes, rest: LineParts) -> Self {
        Self(stream::once(async { Ok(first) }).chain(rest).boxed())
    }
}

impl fmt::Debug for TextParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextParts").finish_non_exhaustive()
    }
}

impl Stream for TextParts {
    type Item = Result<Bytes, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// Refuses a cursor of `_sql`.
fn check_own_cursor(format: PageFormat) -> Result<(), SqlError> {
    match format {
        PageFormat::Table(_) => Err(SqlError::Cursor("the cursor is one of [_sql]".to_owned())),
        _ => Ok(()),
    }
}

/// Makes the answer of an error.
fn refused(session: &Session, error: &SqlError) -> Outcome {
    note(session, error);
    Outcome::json(error.status(), error.to_body())
}

/// Takes note of an error of the store: the reader of the answer does not know it any more.
pub(super) fn note(session: &Session, error: &SqlError) {
    match error {
        SqlError::Query(Error::Storage(error)) => session.refusals().note(error),
        SqlError::Located(located) => note(session, &located.error),
        _ => {}
    }
}
