//! Options of the input.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use millrace_schedule::{Fields, Schedule};
use serde_json::Number;
use sqlx::types::BigDecimal;

use super::address::{Address, Kind};
use super::row::{Charset, RowReadOptions};
use super::statement::{LAST_VALUE, Literal, Statement};
use super::tracking::{Lag, TrackingType};
use super::zone::DatabaseZone;
use crate::{Fault, FieldReference, Options, Secret, Setting};

/// Longest statement.
const MAX_STATEMENT: u64 = 1 << 20;
const DEFAULT_PAGE: usize = 100_000;
/// Names of the parameters of explicit paging.
pub(super) const SIZE: &str = "size";
pub(super) const OFFSET: &str = "offset";

/// Level at which statements are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// A tracking column.
#[derive(Clone, Debug)]
pub(super) struct Tracking {
    pub(super) column: String,
    pub(super) of: TrackingType,
    pub(super) lag: Lag,
}

/// Settings of a database input.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) user: Option<String>,
    pub(super) password: Option<Password>,
    pub(super) schedule: Option<Schedule>,
    pub(super) statement: Statement,
    /// The statement as it was written, white space aside: its identity.
    pub(super) text: String,
    pub(super) parameters: HashMap<String, Literal>,
    /// Values for `?`; the text `:sql_last_value` stands for that parameter.
    pub(super) positions: Vec<Literal>,
    pub(super) tracking: Option<Tracking>,
    pub(super) record: bool,
    pub(super) clean: bool,
    pub(super) reading: RowReadOptions,
    pub(super) target: Option<FieldReference>,
    pub(super) page: usize,
    /// `true` if the statement pages itself, by `:size` and `:offset`.
    pub(super) explicit: bool,
    pub(super) connect_attempts: i64,
    pub(super) connect_wait: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) statement_attempts: i64,
    pub(super) statement_wait: Duration,
    pub(super) statement_timeout: Duration,
    pub(super) log: LogLevel,
}

impl Settings {
    /// Returns whether the statement asks for how far the last run came.
    pub(super) fn uses_last_value(&self) -> bool {
        let is_last = |value: &Literal| matches!(value, Literal::Text(text) if text.strip_prefix(':') == Some(LAST_VALUE));
        self.statement.names(LAST_VALUE) || self.positions.iter().any(is_last)
    }
}

/// A password, or the file that has it.
#[derive(Debug)]
pub(super) enum Password {
    Text(Secret),
    File(PathBuf),
}

impl Password {
    /// Returns the password; a file is read each time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) async fn read(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.expose().to_owned()),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => Err(format!("the password file [{}] cannot be read: {error}", path.display())),
            },
        }
    }
}

impl Settings {
    /// Takes all options.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) fn take(mut options: Options) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        let address = parsed(o, "jdbc_connection_string", Address::parse);
        if address.is_none() {
            o.fault_here("[jdbc] needs the option [jdbc_connection_string]");
        }
        let address = address.flatten();
        let kind = address.as_ref().map_or(Kind::Postgres, |address| address.kind);
        parsed(
            o,
            "jdbc_driver_class",
            |class| if address.is_some() { kind.check_class(class) } else { Ok(()) },
        );
        for without_effect in ["jdbc_driver_library", "last_run_metadata_path"] {
            o.take(without_effect);
        }
        o.boolean("jdbc_validate_connection");
        o.integer("jdbc_validation_timeout", 0..=86_400);
        o.integer("jdbc_fetch_size", 1..=i64::from(i32::MAX));
        if let Some((at, setting)) = o.take("sequel_opts")
            && !matches!(&setting, Setting::Hash(members) if members.is_empty())
        {
            o.fault(at, "option [sequel_opts] is not supported, for the drivers are native: put what the connection needs into [jdbc_connection_string]");
        }
        let user = o.text("jdbc_user").filter(|user| !user.is_empty());
        let password = take_password(o);
        let schedule = parsed(o, "schedule", |text| Schedule::parse(text, Fields::FiveOrSix)).flatten();
        let prepared = o.boolean("use_prepared_statements").unwrap_or(false);
        let (text, statement) = take_statement(o, kind, prepared);
        let positions = take_positions(o, &statement, prepared);
        let parameters = take_parameters(o);
        let tracking = take_tracking(o, &statement);
        let (page, explicit) = take_paging(o, &statement);
        let reading = take_reading(o);
        let record = o.boolean("record_last_run").unwrap_or(true);
        let clean = o.boolean("clean_run").unwrap_or(false);
        let target = o.read("target", "a field reference other than [@timestamp]", |setting| {
            FieldReference::parse(&setting.as_text()?).ok().filter(|target| target.path() != ["@timestamp"])
        });
        let _ = o.ecs_compatibility();
        let connect_attempts = o.integer("connection_retry_attempts", 1..=1_000_000).unwrap_or(1);
        let connect_wait = seconds(o, "connection_retry_attempts_wait_time", 0.5);
        let connect_timeout = seconds(o, "jdbc_pool_timeout", 5.0);
        let statement_attempts = o.integer("statement_retry_attempts", 1..=1_000_000).unwrap_or(1);
        let statement_wait = seconds(o, "statement_retry_attempts_wait_time", 0.5);
        let statement_timeout = seconds(o, "statement_timeout", 3600.0);
        let log = match o.one_of("sql_log_level", &["fatal", "error", "warn", "info", "debug"]) {
            Some("fatal" | "error") => LogLevel::Error,
            Some("warn") => LogLevel::Warn,
            Some("debug") => LogLevel::Debug,
            _ => LogLevel::Info,
        };
        let settings = address.map(|address| Self {
            address,
            user,
            password,
            schedule,
            statement,
            text,
            parameters,
            positions,
            tracking,
            record,
            clean,
            reading,
            target,
            page,
            explicit,
            connect_attempts,
            connect_wait,
            connect_timeout,
            statement_attempts,
            statement_wait,
            statement_timeout,
            log,
        });
        // Where there is no address, that is a fault.
        options.finish().and_then(|()| settings.ok_or_else(Vec::new))
    }
}

/// Takes a text and reads it. `None` where it is not given; what is wrong with it is a fault where it stands.
pub(super) fn parsed<T>(
    options: &mut Options,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<Option<T>> {
    let (at, setting) = options.take(name)?;
    let text = setting.as_text();
    let value = text.as_deref().ok_or_else(|| "it must be a text".to_owned()).and_then(parse);
    Some(value.map_err(|why| options.fault(at, format!("option [{name}]: {why}"))).ok())
}

pub(super) fn seconds(options: &mut Options, name: &'static str, default: f64) -> Duration {
    let given = options.read(name, "a number of seconds", |setting| {
        setting.as_text()?.parse().ok().filter(|seconds: &f64| (0.0..=1e9).contains(seconds))
    });
    Duration::from_secs_f64(given.unwrap_or(default))
}

pub(super) fn take_password(options: &mut Options) -> Option<Password> {
    let text =
        options.secret("jdbc_password").filter(|password| !password.expose().is_empty()).map(Password::Text);
    let file = parsed(options, "jdbc_password_filepath", |path| {
        let path = PathBuf::from(path);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => Ok(Password::File(path)),
            Ok(_) => Err(format!("[{}] is not a file", path.display())),
            Err(error) => Err(format!("[{}] cannot be read: {error}", path.display())),
        }
    });
    if text.is_some() && file.is_some() {
        options.fault_here("only one of [jdbc_password] and [jdbc_password_filepath] may be given");
    }
    text.or(file.flatten())
}

pub(super) fn take_statement(options: &mut Options, kind: Kind, prepared: bool) -> (String, Statement) {
    let given = options.text("statement");
    let file = parsed(options, "statement_filepath", |path| {
        let length =
            std::fs::metadata(path).map_err(|error| format!("[{path}] cannot be read: {error}"))?.len();
        if length > MAX_STATEMENT {
            return Err(format!("[{path}] is longer than {MAX_STATEMENT} bytes"));
        }
        std::fs::read_to_string(path).map_err(|error| format!("[{path}] cannot be read: {error}"))
    });
    if given.is_some() == file.is_some() {
        let plugin = options.plugin().to_owned();
        options
            .fault_here(format!("[{plugin}] needs one of the options [statement] and [statement_filepath]"));
    }
    let sql = given.or(file.flatten()).unwrap_or_default();
    let statement = Statement::parse(kind, &sql, prepared);
    let text: Vec<&str> = sql.split_whitespace().collect();
    (text.join(" "), statement)
}

fn take_positions(options: &mut Options, statement: &Statement, prepared: bool) -> Vec<Literal> {
    options.text("prepared_statement_name");
    let given =
        options.read_hidden("prepared_statement_bind_values", "an array of texts and numbers", |setting| {
            match setting {
                Setting::Array(values) => values.iter().map(literal).collect::<Option<Vec<Literal>>>(),
                single => literal(single).map(|value| vec![value]),
            }
        });
    let positions = given.unwrap_or_default();
    if prepared && positions.len() != statement.positions() {
        options.fault_here(format!(
            "the statement has {} question marks, but [prepared_statement_bind_values] has {} values",
            statement.positions(),
            positions.len()
        ));
    }
    if !prepared && !positions.is_empty() {
        options.fault_here("[prepared_statement_bind_values] needs [use_prepared_statements => true]");
    }
    positions
}

fn take_parameters(options: &mut Options) -> HashMap<String, Literal> {
    let mut parameters = HashMap::new();
    for (name, setting) in options.hash("parameters") {
        match literal(&setting) {
            Some(_) if [LAST_VALUE, SIZE, OFFSET].contains(&name.as_str()) => {
                options.fault_here(format!("the parameter [{name}] is set by the input itself"));
            }
            Some(value) => drop(parameters.insert(name, value)),
            None => options
                .fault_here(format!("the parameter [{name}] must be a text, a number or an array of them")),
        }
    }
    parameters
}

fn literal(setting: &Setting) -> Option<Literal> {
    match setting {
        Setting::Number(number) => Some(Literal::Number(Number::to_string(number))),
        Setting::Text(text) => Some(match text.as_str() {
            "true" => Literal::Boolean(true),
            "false" => Literal::Boolean(false),
            text => Literal::Text(text.to_owned()),
        }),
        Setting::Array(elements) => elements.iter().map(literal).collect::<Option<_>>().map(Literal::List),
        _ => None,
    }
}

fn take_tracking(options: &mut Options, statement: &Statement) -> Option<Tracking> {
    let wanted = options.boolean("use_column_value").unwrap_or(false);
    let column = options.text("tracking_column");
    let of = match options.one_of("tracking_column_type", &["numeric", "timestamp"]) {
        Some("timestamp") => TrackingType::Timestamp,
        _ => TrackingType::Numeric,
    };
    let lag = options.float("tracking_lag");
    if lag.is_some_and(|lag| !(0.0..=1e12).contains(&lag)) {
        options.fault_here(
            "option [tracking_lag] must be a number from 0 on: seconds, or units of a numeric column",
        );
    }
    if !wanted {
        if lag.is_some() {
            options.fault_here("[tracking_lag] needs [use_column_value => true] and a [tracking_column]");
        }
        return None;
    }
    let Some(column) = column else {
        options.fault_here("[use_column_value] needs the option [tracking_column]");
        return None;
    };
    if !statement.is_query() {
        options.fault_here("with [use_column_value], the statement must be a query that begins with SELECT or WITH, for it is read in the order of the tracking column");
    }
    let lag = lag.unwrap_or(0.0);
    let lag = match of {
        TrackingType::Numeric => Lag::Number(lag.to_string().parse().unwrap_or_else(|_| BigDecimal::from(0))),
        TrackingType::Timestamp => Lag::Time(TimeDelta::microseconds((lag * 1e6) as i64)),
    };
    Some(Tracking { column, of, lag })
}

fn take_paging(options: &mut Options, statement: &Statement) -> (usize, bool) {
    let enabled = options.boolean("jdbc_paging_enabled").unwrap_or(false);
    let size = options.integer("jdbc_page_size", 1..=10_000_000);
    let explicit = options.one_of("jdbc_paging_mode", &["auto", "explicit"]) == Some("explicit");
    if enabled && explicit && !(statement.names(SIZE) && statement.names(OFFSET)) {
        options.fault_here("[jdbc_paging_mode => explicit] needs :size and :offset in the statement");
    }
    let size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(DEFAULT_PAGE);
    (size, enabled && explicit)
}

pub(super) fn take_reading(options: &mut Options) -> RowReadOptions {
    let local = options.one_of("plugin_timezone", &["utc", "local"]) == Some("local");
    let zone = parsed(options, "jdbc_default_timezone", DatabaseZone::parse).flatten();
    let charset = parsed(options, "charset", Charset::parse).flatten();
    let mut charsets = HashMap::new();
    for (column, setting) in options.hash("columns_charset") {
        match Charset::parse(&setting.as_text().unwrap_or_default()) {
            Ok(charset) => drop(charsets.insert(column, charset)),
            Err(why) => options.fault_here(format!("option [columns_charset]: {why}")),
        }
    }
    RowReadOptions {
        zone: zone.unwrap_or_else(|| if local { DatabaseZone::local() } else { DatabaseZone::utc() }),
        lowercase: options.boolean("lowercase_column_names").unwrap_or(true),
        charsets,
        charset,
    }
}
