//! A connection to a database of any kind, and the rows that a statement has there.

use std::time::Duration;

use chrono::{DateTime, FixedOffset, Offset, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection as _, Executor, SqlSafeStr, Statement as _};

use super::address::{Address, Kind, Tls};
use super::row::{Row, RowReadOptions};
use super::statement::Literal;
use super::zone::DatabaseZone;
use super::{mysql, postgres, sqlite};
use crate::Secret;

/// Time that SQLite waits for another writer.
const BUSY: Duration = Duration::from_secs(30);
/// Rows that SQLite's thread reads ahead.
const SQLITE_AHEAD: usize = 64;

/// Offset of the times of day of a session; `None` where they are those of the zone of the input.
type Session = Option<FixedOffset>;

/// A connection.
#[derive(Debug)]
pub(super) enum Connection {
    Postgres(Box<PgConnection>),
    MySql(Box<MySqlConnection>, Session),
    Sqlite(Box<SqliteConnection>),
}

impl Connection {
    /// Connects. Times of day are UTC in the session of MySQL, so that what has a zone arrives in UTC.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn open(
        address: &Address,
        user: Option<&str>,
        password: Option<&str>,
    ) -> sqlx::Result<Self> {
        let user = user.or(address.user.as_deref());
        let password = password.or(address.password.as_ref().map(Secret::expose));
        match address.kind {
            Kind::Postgres => {
                let options = postgres_options(address, user, password);
                let mut connection = options.disable_statement_logging().connect().await?;
                // Not with the connection's options, which poolers refuse.
                let mut session =
                    "SET DateStyle = ISO; SET IntervalStyle = iso_8601; SET bytea_output = hex".to_owned();
                if let Some(schema) = &address.schema {
                    session.push_str("; SELECT set_config('search_path', ");
                    Literal::Text(schema.clone()).write(Kind::Postgres, &mut session);
                    session.push_str(", false)");
                }
                connection.execute(sqlx::raw_sql(AssertSqlSafe(session))).await?;
                Ok(Self::Postgres(Box::new(connection)))
            }
            Kind::MySql => {
                let options = mysql_options(address, user, password);
                let connection = options.disable_statement_logging().connect().await?;
                Ok(Self::MySql(Box::new(connection), Some(Utc.fix())))
            }
            Kind::Sqlite => {
                let options = SqliteConnectOptions::new()
                    .filename(&address.database)
                    .create_if_missing(false)
                    .busy_timeout(BUSY)
                    .row_buffer_size(SQLITE_AHEAD)
                    .disable_statement_logging();
                Ok(Self::Sqlite(Box::new(options.connect().await?)))
            }
        }
    }

    /// Lets a session of MySQL have the times of day that a zone has at an instant. There a text is compared with a TIMESTAMP as a time of
    /// the session, and with a DATETIME as it is: so both find what the zone's clocks show.
    ///
    /// # Errors
    /// The server takes neither the offset nor the name of the zone.
    pub(super) async fn set_zone(&mut self, zone: &DatabaseZone, at: DateTime<Utc>) -> Result<(), String> {
        let Self::MySql(connection, session) = self else { return Ok(()) };
        if zone.is_utc() {
            return Ok(());
        }
        let offset = zone.offset(at);
        let set = async |connection: &mut MySqlConnection, name: &str| {
            let mut sql = "SET time_zone = ".to_owned();
            Literal::Text(name.to_owned()).write(Kind::MySql, &mut sql);
            connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await
        };
        let Err(error) = set(connection, &offset.to_string()).await else {
            *session = Some(offset);
            return Ok(());
        };
        // Offsets beyond +13:00 are none to some servers.
        if let Some(name) = zone.name()
            && set(connection, name).await.is_ok()
        {
            *session = None;
            return Ok(());
        }
        Err(format!(
            "the server does not take [{offset}], the offset of jdbc_default_timezone, as the time zone of a session: {error}; load its tables of \
             time zones (mariadb-tzinfo-to-sql, mysql_tzinfo_to_sql), so that it knows the zone by name"
        ))
    }

    /// Names of the columns of a statement, which is not run. For PostgreSQL, this also learns the types
    /// that the database defines itself.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn columns(&mut self, sql: &str) -> sqlx::Result<Vec<String>> {
        let sql = AssertSqlSafe(sql.to_owned()).into_sql_str();
        fn names<C: Column>(columns: &[C]) -> Vec<String> {
            columns.iter().map(|column| column.name().to_owned()).collect()
        }
        Ok(match self {
            Self::Postgres(connection) => names(connection.prepare(sql).await?.columns()),
            Self::MySql(connection, _) => names(connection.prepare(sql).await?.columns()),
            Self::Sqlite(connection) => names(connection.prepare(sql).await?.columns()),
        })
    }

    /// Rows of a statement as they arrive. The statements are the user's own, with literals that were
    /// quoted; the text protocol gives every type a text.
    pub(super) fn rows<'c>(
        &'c mut self,
        sql: String,
        reading: &'c RowReadOptions,
        track: Option<&'c str>,
    ) -> BoxStream<'c, sqlx::Result<Row>> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Postgres(connection) => {
                sql.fetch(&mut **connection).map(move |row| postgres::row(&row?, reading, track)).boxed()
            }
            Self::MySql(connection, session) => {
                let session = *session;
                sql.fetch(&mut **connection)
                    .map(move |row| mysql::row(&row?, reading, session, track))
                    .boxed()
            }
            Self::Sqlite(connection) => {
                sql.fetch(&mut **connection).map(move |row| sqlite::row(&row?, reading, track)).boxed()
            }
        }
    }

    /// Says goodbye.
    pub(super) async fn close(self) {
        let closed = match self {
            Self::Postgres(connection) => connection.close().await,
            Self::MySql(connection, _) => connection.close().await,
            Self::Sqlite(connection) => connection.close().await,
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "the database did not end the connection in order");
        }
    }
}

fn postgres_options(address: &Address, user: Option<&str>, password: Option<&str>) -> PgConnectOptions {
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&address.host)
        .port(address.port)
        .database(&address.database)
        .application_name("millrace")
        .ssl_mode(match address.tls {
            Tls::Off => PgSslMode::Disable,
            Tls::Preferred => PgSslMode::Prefer,
            Tls::Required => PgSslMode::Require,
            Tls::VerifyIssuer => PgSslMode::VerifyCa,
            Tls::VerifyFull => PgSslMode::VerifyFull,
        });
    if let Some(user) = user {
        options = options.username(user);
    }
    if let Some(password) = password {
        options = options.password(password);
    }
    if let Some(authorities) = &address.authorities {
        options = options.ssl_root_cert(authorities);
    }
    if let (Some(certificate), Some(key)) = (&address.certificate, &address.key) {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    options
}

fn mysql_options(address: &Address, user: Option<&str>, password: Option<&str>) -> MySqlConnectOptions {
    let mut options = MySqlConnectOptions::new()
        .host(&address.host)
        .port(address.port)
        // The session's SQL is the user's: nothing of its modes is changed.
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(Some("+00:00".to_owned()))
        .ssl_mode(match address.tls {
            Tls::Off => MySqlSslMode::Disabled,
            Tls::Preferred => MySqlSslMode::Preferred,
            Tls::Required => MySqlSslMode::Required,
            Tls::VerifyIssuer => MySqlSslMode::VerifyCa,
            Tls::VerifyFull => MySqlSslMode::VerifyIdentity,
        });
    if !address.database.is_empty() {
        options = options.database(&address.database);
    }
    if let Some(user) = user {
        options = options.username(user);
    }
    if let Some(password) = password {
        options = options.password(password);
    }
    if let Some(authorities) = &address.authorities {
        options = options.ssl_ca(authorities);
    }
    if let (Some(certificate), Some(key)) = (&address.certificate, &address.key) {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    options
}
