//! Lookups of single rows, for filters: connections stay open between statements.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::address::{Address, Kind};
use super::connection::Connection;
use super::row::RowReadOptions;
use super::settings::{Password, parsed, seconds, take_password, take_reading, take_statement};
use super::statement::{Literal, Statement};
use crate::Options;
use crate::options::Setting;

/// Connections of a filter at the same time.
pub const MAX_CONNECTIONS: usize = 4;
/// Rows of one answer; further ones are not read.
const MAX_ROWS: usize = 10_000;
/// Bytes of the rows of one answer as JSON; further rows are left out.
const MAX_ROW_BYTES: usize = 16 << 20;
/// Time after which an unused connection is closed: servers and firewalls close it, too.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// Statements against a database, with the parameters of an event.
pub struct DatabaseLookup {
    address: Address,
    user: Option<String>,
    password: Option<Password>,
    statement: Statement,
    positions: usize,
    reading: RowReadOptions,
    connect_timeout: Duration,
    statement_timeout: Duration,
    permits: Semaphore,
    /// Unused connections, each with the time of its last use.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Without credentials and statement.
impl fmt::Debug for DatabaseLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseLookup").field("address", &self.address.identity()).finish_non_exhaustive()
    }
}

impl DatabaseLookup {
    /// Takes the options of the database and of the statement; `None` where one of them is a fault.
    pub fn take(options: &mut Options) -> Option<Self> {
        let address = parsed(options, "jdbc_connection_string", Address::parse);
        if address.is_none() {
            options.fault_here(format!("[{}] needs the option [jdbc_connection_string]", options.plugin()));
        }
        let address = address.flatten();
        let kind = address.as_ref().map_or(Kind::Postgres, |address| address.kind);
        parsed(options, "jdbc_driver_class", |class| {
            if address.is_some() { kind.check_class(class) } else { Ok(()) }
        });
        for without_effect in ["jdbc_driver_library", "jdbc_validate_connection", "jdbc_validation_timeout"] {
            options.take(without_effect);
        }
        if let Some((at, setting)) = options.take("sequel_opts")
            && !matches!(&setting, Setting::Hash(members) if members.is_empty())
        {
            options.fault(at, "option [sequel_opts] is not supported, for the drivers are native");
        }
        let user = options.text("jdbc_user").filter(|user| !user.is_empty());
        let password = take_password(options);
        let is_prepared = options.boolean("use_prepared_statements").unwrap_or(false);
        options.text("prepared_statement_name");
        let (_, statement) = take_statement(options, kind, is_prepared);
        let reading = take_reading(options);
        let connect_timeout = seconds(options, "jdbc_pool_timeout", 5.0);
        let statement_timeout = seconds(options, "statement_timeout", 60.0);
        Some(Self {
            address: address?,
            user,
            password,
            positions: statement.positions(),
            statement,
            reading,
            connect_timeout,
            statement_timeout,
            permits: Semaphore::new(MAX_CONNECTIONS),
            idle: Mutex::default(),
        })
    }

    /// Returns the number of `?` in the statement.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Runs the statement with parameters, and reads its rows.
    ///
    /// # Errors
    /// The database's, or that it does not answer in time. Further statements have another connection then.
    pub async fn rows(
        &self,
        named: &HashMap<String, Value>,
        positions: &[Value],
    ) -> Result<Vec<Map<String, Value>>, String> {
        let positions: Vec<Literal> = positions.iter().map(literal).collect();
        let sql = self.statement.fill(&|name| named.get(name).map(literal), &positions);
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|(_, since)| since.elapsed() < MAX_IDLE);
            idle.pop()
        };
        let mut connection = match idle {
            Some((connection, _)) => connection,
            None => self.connect().await?,
        };
        let read = timeout(self.statement_timeout, self.read(&mut connection, sql)).await;
        let rows = read.map_err(|_| format!("no answer within {:?}", self.statement_timeout))??;
        self.idle.lock().push((connection, Instant::now()));
        Ok(rows)
    }

    async fn connect(&self) -> Result<Connection, String> {
        let password = match &self.password {
            Some(password) => Some(password.read().await?),
            None => None,
        };
        let opened = Connection::open(&self.address, self.user.as_deref(), password.as_deref());
        match timeout(self.connect_timeout, opened).await {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.connect_timeout)),
        }
    }

    async fn read(
        &self,
        connection: &mut Connection,
        sql: String,
    ) -> Result<Vec<Map<String, Value>>, String> {
        let mut rows = connection.rows(sql, &self.reading, None);
        let (mut read, mut bytes, mut left_out) = (Vec::new(), 0_usize, 0_u64);
        while let Some(row) = rows.next().await {
            let fields = row.map_err(|error| error.to_string())?.fields;
            if left_out == 0 && read.len() < MAX_ROWS {
                bytes = bytes.saturating_add(json_bytes(&fields));
            }
            if left_out == 0 && read.len() < MAX_ROWS && bytes <= MAX_ROW_BYTES {
                read.push(fields);
            } else {
                left_out += 1;
            }
        }
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "an answer of a database has more than {MAX_ROWS} rows or {MAX_ROW_BYTES} bytes"
            );
        }
        Ok(read)
    }
}

/// Returns the bytes of a row as JSON, about.
fn json_bytes(row: &Map<String, Value>) -> usize {
    let bytes = |value: &Value| match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        _ => 8,
    };
    row.iter().fold(0, |sum: usize, (name, value)| sum.saturating_add(name.len() + bytes(value) + 6))
}

/// Returns the literal of a value of an event; objects are JSON.
fn literal(value: &Value) -> Literal {
    match value {
        // The word stands as it is, like a number.
        Value::Null => Literal::Number("NULL".to_owned()),
        Value::Bool(value) => Literal::Boolean(*value),
        Value::Number(number) => Literal::Number(number.to_string()),
        Value::String(text) => Literal::Text(text.clone()),
        Value::Array(elements) => Literal::List(elements.iter().map(literal).collect()),
        Value::Object(_) => Literal::Text(value.to_string()),
    }
}
