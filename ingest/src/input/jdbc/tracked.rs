//! Runs of a statement with a tracking column: pages in the order of the column, from where the last one ended.
//!
//! [`Jdbc::tracked`] reads pages until there is nothing new; [`Window`] says which rows are. A LIMIT of the statement's own
//! bounds the rows of a run ([`limit`]).

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use tokio::time::{sleep, timeout};
use xxhash_rust::xxh3::xxh3_128;

use super::connection::Connection;
use super::delivery::{Delivery, Rows};
use super::row::Row;
use super::settings::Tracking;
use super::statement::{Literal, OrderedStatement, Values};
use super::tracking::{MAX_ROWS, RowOutcome, TrackingType, Window};
use super::{Jdbc, limit};
use crate::input::pending::RunEnd;
use crate::{Event, Provenance};

impl Jdbc {
    /// Reads what the tracking column says is new.
    pub(super) async fn tracked(
        &self,
        connection: &mut Connection,
        tracking: &Tracking,
        window: &mut Window,
        began: DateTime<Utc>,
        delivery: &mut Delivery,
    ) -> Result<(), RunEnd> {
        let settings = &self.settings;
        let first = match tracking.of {
            TrackingType::Numeric => Literal::Number("0".to_owned()),
            TrackingType::Timestamp => self.last_time(DateTime::UNIX_EPOCH),
        };
        // A statement that pages itself is one page here: the order of the tracking column pages better.
        let all = settings.explicit.then_some((i64::MAX as usize, 0));
        let mut attempt = 1;
        let mut column = None;
        let mut next = AfterPage::More;
        // How many new rows the statement's own LIMIT still allows in this run.
        let mut allowed = None;
        let mut missed = None;
        loop {
            let sql = self.fill(&window.last_value().unwrap_or_else(|| first.clone()), all);
            let lifted = limit::lift(settings.address.kind, &sql);
            let (sql, most) = match &lifted {
                Some(lifted) => (&lifted.sql, Some(*allowed.get_or_insert(lifted.rows))),
                None => (&sql, None),
            };
            let page = async {
                if column.is_none() {
                    column = Some(self.column(connection, sql, &tracking.column).await?);
                }
                let column = column.as_deref().unwrap_or(&tracking.column);
                let read = TrackedRead { sql, column, began };
                match next {
                    AfterPage::Alike => self.alike(connection, read, window, delivery).await,
                    _ => self.page(connection, read, most, window, delivery).await,
                }
            };
            let page = page.await.inspect(|page| {
                allowed = allowed.map(|allowed: usize| allowed.saturating_sub(page.new));
            });
            match page {
                Ok(_) if allowed == Some(0) => return Ok(()),
                Ok(Page { next: AfterPage::Ended, new: 0 }) => {
                    // What was there before the page was read, and is not in it, never comes.
                    if let Some(missed) = missed {
                        return Err(RunEnd::failed(missed));
                    }
                    if !limit::may_limit(settings.address.kind, sql) || lifted.is_some() {
                        return Ok(());
                    }
                    let column = column.as_deref().unwrap_or(&tracking.column);
                    match self.behind(connection, column, window, all).await {
                        Ok(Some(behind)) => missed = Some(behind),
                        Ok(None) | Err(PageError::Database(_)) => return Ok(()),
                        Err(PageError::Ended(ended)) => return Err(ended),
                    }
                }
                Ok(Page { next: AfterPage::Ended, .. }) => return Ok(()),
                Ok(more) => {
                    next = more.next;
                    (attempt, missed) = (1, None);
                }
                Err(PageError::Ended(ended)) => return Err(ended),
                Err(PageError::Database(error)) if attempt >= settings.statement_attempts => {
                    return Err(RunEnd::failed(format!("the statement failed: {error}")));
                }
                Err(PageError::Database(error)) => {
                    tracing::warn!(error, attempt, "the statement failed, trying again");
                    attempt += 1;
                    sleep(settings.statement_wait).await;
                    *connection = self.connect().await?;
                }
            }
        }
    }

    /// Looks behind the last value for rows that the statement leaves out, as by a LIMIT within it that counts rows which were read before.
    /// Answers what is wrong then.
    async fn behind(
        &self,
        connection: &mut Connection,
        column: &str,
        window: &Window,
        all: Option<(usize, usize)>,
    ) -> Result<Option<String>, PageError> {
        let settings = &self.settings;
        let Some(last) = window.last().filter(|_| settings.uses_last_value()) else { return Ok(None) };
        let sql = self.fill(&last, all);
        let values = Values::Above(&last);
        let ordered = OrderedStatement { kind: settings.address.kind, sql: &sql, column, values, limit: 1 };
        let mut rows = connection.rows(ordered.sql(), &settings.reading, Some(column));
        let Some(behind) = self.next_row(&mut rows).await?.and_then(|row| row.tracked) else {
            return Ok(None);
        };
        let mut at = String::new();
        last.write(settings.address.kind, &mut at);
        Ok(Some(format!(
            "the statement gives no row behind {at} in the tracking column, though there is [{behind}]: a limit within it counts rows \
             that were read before; take it out, or write LIMIT and a number at the end of the statement, in ascending order and without OFFSET"
        )))
    }

    /// The tracking column as the database spells it.
    async fn column(
        &self,
        connection: &mut Connection,
        sql: &str,
        wanted: &str,
    ) -> Result<String, PageError> {
        let columns = timeout(self.settings.statement_timeout, connection.columns(sql)).await;
        let columns =
            columns.map_err(|_| self.too_slow())?.map_err(|error| PageError::Database(error.to_string()))?;
        let exact = columns.iter().find(|column| *column == wanted);
        let alike = || columns.iter().find(|column| column.to_lowercase() == wanted.to_lowercase());
        exact.or_else(alike).cloned().ok_or_else(|| {
            PageError::Ended(RunEnd::failed(format!(
                "the statement has no column [{wanted}] to track, it has [{}]",
                columns.join(", ")
            )))
        })
    }

    fn too_slow(&self) -> PageError {
        PageError::Database(format!(
            "no row within {:?} (statement_timeout)",
            self.settings.statement_timeout
        ))
    }

    /// Reads a page, of which at most so many rows are new where the statement says so itself. Answers what is next.
    async fn page(
        &self,
        connection: &mut Connection,
        read: TrackedRead<'_>,
        most: Option<usize>,
        window: &mut Window,
        delivery: &mut Delivery,
    ) -> Result<Page, PageError> {
        let settings = &self.settings;
        window.begin();
        let was_narrowed = window.narrowed();
        let page = most.map_or(settings.page, |most| most.min(settings.page));
        let limit = page.saturating_add(window.rows());
        let from = window.from();
        let values = match &from {
            None => Values::All,
            Some((from, true)) => Values::From(from),
            Some((from, false)) => Values::Above(from),
        };
        let ordered = OrderedStatement {
            kind: settings.address.kind,
            sql: read.sql,
            column: read.column,
            values,
            limit,
        };
        let mut rows = connection.rows(ordered.sql(), &settings.reading, Some(read.column));
        let (mut count, mut new, mut events) = (0usize, 0usize, Rows::default());
        let mut alike = false;
        let failed = loop {
            let row = match self.next_row(&mut rows).await {
                Ok(None) => break None,
                Ok(Some(row)) => row,
                Err(error) => break Some(error),
            };
            count += 1;
            // The wrapped statement has no rows without a value.
            let Some(tracked) = &row.tracked else { continue };
            let hash = hash(&row);
            let seen = window.take(tracked, hash);
            let occurrence =
                match seen.map_err(|error| PageError::Ended(RunEnd::failed(error.to_string())))? {
                    RowOutcome::New { occurrence } => occurrence,
                    RowOutcome::Before => continue,
                    RowOutcome::TooManyAlike => {
                        alike = true;
                        break None;
                    }
                };
            new += 1;
            if events.is_empty() {
                events = Rows::within(delivery.reserve_piece().await?);
            }
            events.push(self.tracked_event(row, hash, occurrence));
            if events.is_full(delivery.batch_size()) {
                let position = settings.record.then(|| window.store(read.began));
                delivery.send(std::mem::take(&mut events), position).await?;
            }
            // Of rows at one value, databases give any: new ones may come in place of those that were read.
            if most.is_some_and(|most| new >= most) {
                break None;
            }
        };
        drop(rows);
        if !events.is_empty() {
            delivery.send(events, settings.record.then(|| window.store(read.began))).await?;
        }
        if window.narrowed() && !was_narrowed {
            tracing::warn!(
                rows = window.rows(),
                "tracking_lag covers too many rows: it is shortened to the last ones"
            );
        }
        let next = match failed {
            Some(error) => return Err(error),
            None if alike => AfterPage::Alike,
            None if count < limit || page == 0 => AfterPage::Ended,
            None if new > 0 => AfterPage::More,
            None => {
                return Err(PageError::Ended(RunEnd::failed(
                    "the database gives rows below the value in the tracking column that was read last, as with numbers that are not \
                     exact: choose another column",
                )));
            }
        };
        Ok(Page { next, new })
    }

    /// Reads all rows of the greatest value, which are more than a window can tell apart, but for those that it knows. The position moves behind
    /// them at their end only: where reading ends before, they come again.
    async fn alike(
        &self,
        connection: &mut Connection,
        read: TrackedRead<'_>,
        window: &mut Window,
        delivery: &mut Delivery,
    ) -> Result<Page, PageError> {
        let settings = &self.settings;
        let Some(value) = window.last() else { return Ok(Page { next: AfterPage::More, new: 0 }) };
        let mut shown = String::new();
        value.write(settings.address.kind, &mut shown);
        tracing::warn!(
            value = shown,
            rows = MAX_ROWS,
            "more rows than can be told apart have one value in the tracking column: they are read in one go, and rows that get this value later are not"
        );
        window.begin();
        let values = Values::From(&value);
        let (kind, limit) = (settings.address.kind, i64::MAX as usize);
        let ordered = OrderedStatement { kind, sql: read.sql, column: read.column, values, limit };
        let mut rows = connection.rows(ordered.sql(), &settings.reading, Some(read.column));
        let (mut new, mut events, mut whole) = (0, Rows::default(), true);
        while let Some(row) = self.next_row(&mut rows).await? {
            let hash = hash(&row);
            match row.tracked.as_deref().map(|tracked| window.compare(tracked)) {
                Some(Ordering::Greater) => {
                    whole = false;
                    break;
                }
                Some(Ordering::Equal) if !window.expects(hash) => {}
                _ => continue,
            }
            if events.is_full(delivery.batch_size()) && !events.is_empty() {
                delivery.send(std::mem::take(&mut events), None).await?;
            }
            if events.is_empty() {
                events = Rows::within(delivery.reserve_piece().await?);
            }
            // Another one for each row: equal ones are not counted any more.
            let occurrence = u32::try_from(MAX_ROWS + new).unwrap_or(u32::MAX);
            events.push(self.tracked_event(row, hash, occurrence));
            new += 1;
        }
        drop(rows);
        if !whole {
            // What is left of the answer is not waited for.
            *connection = self.connect().await?;
        }
        // The position is moved only once all before it are stored.
        delivery.drain().await?;
        window.pass();
        delivery.send(events, settings.record.then(|| window.store(read.began))).await?;
        Ok(Page { next: AfterPage::More, new })
    }

    /// The next row of a statement.
    async fn next_row(
        &self,
        rows: &mut (impl futures::Stream<Item = Result<Row, impl std::fmt::Display>> + Unpin),
    ) -> Result<Option<Row>, PageError> {
        match timeout(self.settings.statement_timeout, rows.next()).await {
            Ok(row) => row.transpose().map_err(|error| PageError::Database(error.to_string())),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// The event of a row, with where it is from: its hash, and how many equal rows were there before it.
    fn tracked_event(&self, row: Row, hash: u128, occurrence: u32) -> Event {
        let mut event = self.event(row);
        event.set_provenance(Some(Provenance { record: hash, incarnation: 0, ordinal: occurrence }));
        event
    }
}

/// Read of a statement with a tracking column.
#[derive(Clone, Copy, Debug)]
struct TrackedRead<'a> {
    /// The statement, filled in.
    sql: &'a str,
    /// The tracking column as the database spells it.
    column: &'a str,
    /// Begin of the run.
    began: DateTime<Utc>,
}

/// Rows that were read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    next: AfterPage,
    /// Number of new rows.
    new: usize,
}

/// Step that follows a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterPage {
    More,
    /// More rows of the greatest value than can be told apart.
    Alike,
    /// Nothing for now.
    Ended,
}

fn hash(row: &Row) -> u128 {
    // A map of texts and values can always be written.
    xxh3_128(&serde_json::to_vec(&row.fields).unwrap_or_default())
}

/// Why a page was not read to its end.
#[derive(Debug)]
enum PageError {
    Ended(RunEnd),
    Database(String),
}

impl From<RunEnd> for PageError {
    fn from(ended: RunEnd) -> Self {
        Self::Ended(ended)
    }
}
