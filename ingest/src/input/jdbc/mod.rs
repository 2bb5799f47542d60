//! The input `jdbc`: rows of a statement in PostgreSQL, MySQL, MariaDB or SQLite, by a schedule.
//!
//! With a tracking column, a run reads what is new: the user's statement is wrapped so that its rows come
//! in the order of that column, a page at a time from where the last one ended, and each batch moves the
//! stored position ([`tracking::Window`]) in the frame that stores its rows, so that each row is stored once.
//! Without one, a run reads all that the statement has, and the position is when the last run began.
//!
//! [`address`] and [`connection`] know the databases, [`statement`] their language, and `postgres`, `mysql`,
//! `sqlite` their types. Drivers are native; a type without a mapping arrives as text.

mod address;
mod connection;
mod delivery;
mod limit;
pub(crate) mod lookup;
mod mysql;
mod postgres;
mod row;
mod settings;
mod sqlite;
mod statement;
#[cfg(test)]
mod tests;
mod tracked;
mod tracking;
mod value;
mod zone;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use millrace_schedule::Schedule;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use self::address::Kind;
use self::connection::Connection;
use self::delivery::{Delivery, Names, Rows};
use self::row::Row;
use self::settings::{LogLevel, OFFSET, SIZE, Settings};
use self::statement::{LAST_VALUE, Literal};
use self::tracking::{Window, restore_run, store_run};
use crate::input::pending::RunEnd;
use crate::input::{Context, Input, InputError, mark_version, stopped};
use crate::{Event, Fault, Options};

/// Time that a database may take to close a connection.
const CLOSE: Duration = Duration::from_secs(5);
/// Interval between two looks at the clock while waiting: it may be set.
const CLOCK: Duration = Duration::from_secs(30);

/// Makes the input.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(options: Options) -> Result<Box<dyn Input>, Vec<Fault>> {
    let settings = Settings::take(options)?;
    let clean = AtomicBool::new(settings.clean);
    Ok(Box::new(Jdbc { settings, clean, due: AtomicBool::new(false), unrecorded: Mutex::new(None) }))
}

#[derive(Debug)]
struct Jdbc {
    settings: Settings,
    /// Set where the next start begins anew.
    clean: AtomicBool,
    /// Set where a run is owed: the last one failed.
    due: AtomicBool,
    /// Progress, where positions are not stored.
    unrecorded: Mutex<Option<Progress>>,
}

/// Progress of reading the statement.
#[derive(Clone, Debug)]
struct Progress {
    /// Begin of the last run.
    ran: Option<DateTime<Utc>>,
    /// Window of a statement with a tracking column.
    window: Option<Window>,
}

#[async_trait]
impl Input for Jdbc {
    fn identity(&self) -> String {
        format!("{} of {}", self.source(), self.settings.user.as_deref().unwrap_or_default())
    }

    fn needs_name(&self) -> bool {
        true
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let mut stopping = context.stopping.clone();
        let names =
            Names { source: self.source(), former: self.former_source(), record: self.settings.record };
        let (mut delivery, stored) = match Delivery::claim(context, names).await {
            Ok(claimed) => claimed,
            Err(RunEnd::Stopped) => return Ok(()),
            Err(RunEnd::Failed(error)) => return Err(error),
        };
        let mut progress = self.progress(stored.as_deref())?;
        let schedule = self.settings.schedule.as_ref();
        if let (Some(schedule), Some(ran)) = (schedule, progress.ran)
            && missed(schedule, ran)
        {
            self.due.store(true, Ordering::Relaxed);
        }
        loop {
            if let Some(schedule) = schedule.filter(|_| !self.due.load(Ordering::Relaxed)) {
                let Some(next) = next(schedule, Utc::now()) else {
                    stopped(&mut stopping).await;
                    return Ok(());
                };
                tokio::select! {
                    () = stopped(&mut stopping) => return Ok(()),
                    () = until(next) => {}
                }
            }
            self.due.store(true, Ordering::Relaxed);
            let began = Utc::now();
            let run = async {
                self.once(began, &mut progress, &mut delivery).await?;
                delivery.drain().await
            };
            let outcome = tokio::select! {
                outcome = run => outcome,
                () = stopped(&mut stopping) => Err(RunEnd::Stopped),
            };
            match outcome {
                Ok(()) => {}
                Err(RunEnd::Stopped) => return Ok(()),
                Err(RunEnd::Failed(error)) => return Err(error),
            }
            self.due.store(false, Ordering::Relaxed);
            progress.ran = Some(began);
            if !self.settings.record {
                *self.unrecorded.lock() = Some(progress.clone());
            }
            match schedule {
                None => return Ok(()),
                // Times that passed during the run are made up by one run, at once.
                Some(schedule) if missed(schedule, began) => self.due.store(true, Ordering::Relaxed),
                Some(_) => {}
            }
        }
    }
}

/// Returns true where a value of a `?` stands for `:sql_last_value`.
fn names_last_value(value: &Literal) -> bool {
    matches!(value, Literal::Text(text) if text.strip_prefix(':') == Some(LAST_VALUE))
}

fn next(schedule: &Schedule, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(schedule.after(after.timestamp_millis())?)
}

/// Returns whether a time of the schedule lies between the last run and now.
fn missed(schedule: &Schedule, ran: DateTime<Utc>) -> bool {
    next(schedule, ran).is_some_and(|next| next <= Utc::now())
}

async fn until(time: DateTime<Utc>) {
    while let Ok(left) = (time - Utc::now()).to_std() {
        sleep(left.min(CLOCK)).await;
    }
}

impl Jdbc {
    /// The source of its positions: which rows it reads, in which order. Two inputs that differ in any of it have nothing in
    /// common.
    fn source(&self) -> String {
        let Settings { address, text, parameters, positions, tracking, .. } = &self.settings;
        let mut parts = vec![text.clone()];
        let mut named: Vec<_> = parameters.iter().collect();
        named.sort_by_key(|(name, _)| *name);
        let shown = |value: &Literal| {
            let mut shown = String::new();
            value.write(address.kind, &mut shown);
            shown
        };
        parts.extend(named.into_iter().flat_map(|(name, value)| [name.clone(), shown(value)]));
        parts.push(parameters.len().to_string());
        parts.extend(positions.iter().map(shown));
        parts.push(positions.len().to_string());
        parts.extend(
            tracking.iter().flat_map(|tracking| [tracking.column.clone(), tracking.of.name().to_owned()]),
        );
        let mut hashed = Vec::new();
        for part in parts {
            hashed.extend_from_slice(&(part.len() as u64).to_be_bytes());
            hashed.extend_from_slice(part.as_bytes());
        }
        format!("jdbc {} rows {:032x}", address.identity(), xxh3_128(&hashed))
    }

    /// The source in an earlier version, where all inputs of a statement had one.
    fn former_source(&self) -> String {
        let hash = xxh3_64(self.settings.text.as_bytes());
        format!("jdbc {} statement {hash:016x}", self.settings.address.identity())
    }

    /// Returns the progress of the statement, from the stored position.
    fn progress(&self, stored: Option<&[u8]>) -> Result<Progress, InputError> {
        let settings = &self.settings;
        if !settings.record
            && let Some(progress) = self.unrecorded.lock().clone()
        {
            return Ok(progress);
        }
        let window =
            settings.tracking.as_ref().map(|tracking| Window::new(tracking.of, tracking.lag.clone()));
        let mut progress = Progress { ran: None, window };
        let clean = self.clean.swap(false, Ordering::Relaxed);
        if let Some(stored) = stored.filter(|_| !clean && settings.record) {
            let ran = match &mut progress.window {
                Some(window) => window.restore(stored),
                None => restore_run(stored),
            };
            progress.ran = Some(ran.map_err(InputError)?);
        }
        Ok(progress)
    }

    /// Runs the statement once.
    async fn once(
        &self,
        began: DateTime<Utc>,
        progress: &mut Progress,
        delivery: &mut Delivery,
    ) -> Result<(), RunEnd> {
        let mut connection = self.connect().await?;
        let read = match (&mut progress.window, &self.settings.tracking) {
            (Some(window), Some(tracking)) => {
                self.tracked(&mut connection, tracking, window, began, delivery).await
            }
            _ => self.whole(&mut connection, progress.ran, began, delivery).await,
        };
        if read.is_ok() {
            // A database that does not answer is left behind.
            let _ = timeout(CLOSE, connection.close()).await;
        }
        read
    }

    async fn connect(&self) -> Result<Connection, RunEnd> {
        let settings = &self.settings;
        let place = settings.address.identity();
        let mut attempt = 1;
        loop {
            let password = self.password().await?;
            let opened = Connection::open(&settings.address, settings.user.as_deref(), password.as_deref());
            let error = match timeout(settings.connect_timeout, opened).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", settings.connect_timeout),
            };
            if attempt >= settings.connect_attempts {
                return Err(RunEnd::failed(format!("cannot connect to [{place}]: {error}")));
            }
            tracing::warn!(%error, attempt, database = place, "cannot connect to the database, trying again");
            attempt += 1;
            sleep(settings.connect_wait).await;
        }
    }

    async fn password(&self) -> Result<Option<String>, RunEnd> {
        match &self.settings.password {
            None => Ok(None),
            Some(password) => password.read().await.map(Some).map_err(RunEnd::failed),
        }
    }

    /// The statement with its parameters filled in.
    fn fill(&self, last: &Literal, page: Option<(usize, usize)>) -> String {
        let named = |name: &str| match (name, page) {
            (LAST_VALUE, _) => Some(last.clone()),
            (SIZE, Some((size, _))) => Some(Literal::Number(size.to_string())),
            (OFFSET, Some((_, offset))) => Some(Literal::Number(offset.to_string())),
            _ => self.settings.parameters.get(name).cloned(),
        };
        let positions: Vec<Literal> = self
            .settings
            .positions
            .iter()
            .map(|value| match value {
                value if names_last_value(value) => last.clone(),
                value => value.clone(),
            })
            .collect();
        // What the user gives may be secret, what the input sets is not.
        let shown = |name: &str| named(name).filter(|_| [LAST_VALUE, SIZE, OFFSET].contains(&name));
        let sql = self.settings.statement.fill(&shown, &[]);
        match self.settings.log {
            LogLevel::Error => tracing::error!(target: "millrace::jdbc", sql, "statement"),
            LogLevel::Warn => tracing::warn!(target: "millrace::jdbc", sql, "statement"),
            LogLevel::Info => tracing::info!(target: "millrace::jdbc", sql, "statement"),
            LogLevel::Debug => tracing::debug!(target: "millrace::jdbc", sql, "statement"),
        }
        self.settings.statement.fill(&named, &positions)
    }

    /// `:sql_last_value` as a time.
    fn last_time(&self, time: DateTime<Utc>) -> Literal {
        let offset = self.settings.address.kind == Kind::Postgres;
        Literal::Text(self.settings.reading.zone.show(time, offset))
    }

    /// Lets the session have the clocks by which `:sql_last_value` is written, where the statement names it.
    async fn set_zone(&self, connection: &mut Connection, at: DateTime<Utc>) -> Result<(), RunEnd> {
        let settings = &self.settings;
        let compared =
            settings.statement.names(LAST_VALUE) || settings.positions.iter().any(names_last_value);
        if !compared {
            return Ok(());
        }
        match timeout(settings.statement_timeout, connection.set_zone(&settings.reading.zone, at)).await {
            Ok(set) => set.map_err(RunEnd::failed),
            Err(_) => Err(RunEnd::failed(format!(
                "no answer within {:?} (statement_timeout)",
                settings.statement_timeout
            ))),
        }
    }

    /// Reads all that the statement has.
    async fn whole(
        &self,
        connection: &mut Connection,
        last: Option<DateTime<Utc>>,
        began: DateTime<Utc>,
        delivery: &mut Delivery,
    ) -> Result<(), RunEnd> {
        let settings = &self.settings;
        // The first run has the offset of now: that of 1970 would shift NOW() of the database.
        let clocks = last.unwrap_or(began);
        let last = self.last_time(last.unwrap_or(DateTime::UNIX_EPOCH));
        self.set_zone(connection, clocks).await?;
        // The last batch waits until all before it are stored: it moves the position.
        let mut held = Rows::default();
        let mut offset = 0;
        let (mut attempt, mut sent) = (1, false);
        loop {
            let page = settings.explicit.then_some((settings.page, offset));
            let sql = self.fill(&last, page);
            if settings.address.kind == Kind::Postgres {
                // For the types that the database defines; what cannot be prepared runs all the same.
                let _ = timeout(settings.statement_timeout, connection.columns(&sql)).await;
            }
            let mut rows = connection.rows(sql, &settings.reading, None);
            let mut count = 0;
            let failed = loop {
                let row = match timeout(settings.statement_timeout, rows.next()).await {
                    Ok(None) => break None,
                    Ok(Some(Ok(row))) => row,
                    Ok(Some(Err(error))) => break Some(error.to_string()),
                    Err(_) => {
                        break Some(format!(
                            "no row within {:?} (statement_timeout)",
                            settings.statement_timeout
                        ));
                    }
                };
                count += 1;
                if !held.is_empty() && held.is_full(delivery.batch_size()) {
                    delivery.send(std::mem::take(&mut held), None).await?;
                    sent = true;
                }
                if held.is_empty() {
                    held = Rows::within(delivery.reserve_piece().await?);
                }
                held.push(self.event(row));
            };
            drop(rows);
            match failed {
                // What was handed on would be read twice.
                Some(error) if sent || !held.is_empty() || attempt >= settings.statement_attempts => {
                    return Err(RunEnd::failed(format!("the statement failed: {error}")));
                }
                Some(error) => {
                    tracing::warn!(error, attempt, "the statement failed, trying again");
                    attempt += 1;
                    sleep(settings.statement_wait).await;
                    *connection = self.connect().await?;
                    self.set_zone(connection, clocks).await?;
                }
                None if settings.explicit && count >= settings.page => offset += settings.page,
                None => break,
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        delivery.drain().await?;
        delivery.send(held, settings.record.then(|| store_run(began))).await
    }

    fn event(&self, row: Row) -> Event {
        let now = Utc::now();
        let mut event = match &self.settings.target {
            None => Event::from_fields(row.fields, now),
            Some(target) => {
                let mut event = Event::new(now);
                // Nothing is in the way in an empty event but its own time, which a row is not.
                if let Err(why) = event.set(target, Value::Object(row.fields)) {
                    tracing::warn!(why, "a row has no place in its event");
                    event.tag("_jdbctargetfailure");
                }
                event
            }
        };
        mark_version(&mut event);
        event
    }
}
