//! The input on real databases: SQLite always, PostgreSQL and MariaDB where the environment names them.

mod limits;
mod zones;

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use sqlx::Executor as _;
use tempfile::TempDir;
use tokio::sync::RwLock;
use tokio::time::sleep;

use super::address::{Address, Kind};
use super::build;
use super::connection::Connection;
use crate::input::ledger::{Ledger, RunningInput, messages, options, run, text};
use crate::input::{BatchSize, Input, Positions};
use crate::{Options, Setting};

/// Held by the test that restarts servers, and shared by all others.
static UP: RwLock<()> = RwLock::const_new(());

/// A database with a table of our own in it.
struct Database {
    url: String,
    kind: Kind,
    table: String,
    _directory: Option<TempDir>,
}

impl Database {
    /// Databases to test on; missing ones are reported.
    fn all() -> Vec<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("test.db");
        std::fs::File::create(&file).expect("a file");
        let mut all = vec![(format!("jdbc:sqlite:{}", file.display()), Some(directory))];
        for name in ["MILLRACE_TEST_POSTGRES_URL", "MILLRACE_TEST_MARIADB_URL"] {
            match env::var(name) {
                Ok(url) => all.push((url, None)),
                Err(_) => println!("skipped: no {name}"),
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = |(url, directory): (String, _)| {
            let kind = Address::parse(&url).expect("an address").kind;
            let table = format!("rows_{}_{number}", std::process::id());
            Self { url, kind, table, _directory: directory }
        };
        all.into_iter().map(database).collect()
    }

    async fn open(&self) -> Connection {
        let address = Address::parse(&self.url).expect("an address");
        Connection::open(&address, None, None).await.expect("a connection")
    }

    /// Runs statements; `T` stands for the table.
    async fn execute(&self, sql: &str) {
        execute(&mut self.open().await, &sql.replace("T#", &self.table)).await;
    }

    fn input(&self, statement: &str, more: &[(&'static str, Setting)]) -> Box<dyn Input> {
        build(self.options(statement, more)).unwrap_or_else(|faults| panic!("{}", messages(&faults)))
    }

    fn options(&self, statement: &str, more: &[(&'static str, Setting)]) -> Options {
        let statement = statement.replace("T#", &self.table);
        let given = [("jdbc_connection_string", text(self.url.as_str())), ("statement", text(statement))];
        options("jdbc", given.into_iter().chain(more.iter().cloned()))
    }
}

async fn execute(connection: &mut Connection, sql: &str) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    let done = match connection {
        Connection::Postgres(connection) => connection.execute(sql).await.map(|_| ()),
        Connection::MySql(connection, _) => connection.execute(sql).await.map(|_| ()),
        Connection::Sqlite(connection) => connection.execute(sql).await.map(|_| ()),
    };
    done.expect("a statement");
}

fn tracked(column: &str, of: &str, page: usize) -> Vec<(&'static str, Setting)> {
    vec![
        ("use_column_value", text("true")),
        ("tracking_column", text(column)),
        ("tracking_column_type", text(of)),
        ("jdbc_paging_enabled", text("true")),
        ("jdbc_page_size", text(page.to_string())),
    ]
}

/// Rows `from..to` as values; ten of them share a number.
fn values(from: usize, to: usize) -> String {
    let rows: Vec<String> = (from..to).map(|at| format!("({}, 'r{at:05}')", at / 10)).collect();
    rows.join(", ")
}

fn names(to: usize) -> Vec<String> {
    (0..to).map(|at| format!("r{at:05}")).collect()
}

#[tokio::test]
async fn each_row_comes_once_whatever_the_pages_and_batches() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 1005))).await;
        let ledger = Ledger::new();
        let statement = "SELECT * FROM T# WHERE id > :sql_last_value OR id = 0 -- all";
        let input = |page| database.input(statement, &tracked("ID", "numeric", page));
        assert_eq!(run(&ledger, input(7), 3).await, None);
        assert_eq!(ledger.sorted("name"), names(1005), "{}", database.kind);
        assert!(ledger.largest() <= 3);
        // Rows at the value that was the last one, and equal rows.
        database.execute(&format!("INSERT INTO T# VALUES {}", values(1005, 1500))).await;
        assert_eq!(run(&ledger, input(100), 125).await, None);
        assert_eq!(ledger.sorted("name"), names(1500), "{}", database.kind);
        database.execute("INSERT INTO T# VALUES (149, 'r01499'), (149, 'r01499')").await;
        assert_eq!(run(&ledger, input(100), 125).await, None);
        assert_eq!(ledger.len(), 1502, "{}", database.kind);
        assert_eq!(run(&ledger, input(100), 125).await, None);
        assert_eq!(ledger.len(), 1502, "{}", database.kind);
    }
}

/// Runs an input of this name to its end; the names of its siblings stand behind.
async fn run_among(ledger: &Arc<Ledger>, input: Box<dyn Input>, names: &[&str]) {
    let running = RunningInput::start_among(ledger, input, 7, Duration::ZERO, names);
    assert_eq!(running.end().await, None);
}

#[tokio::test]
async fn inputs_of_one_statement_have_positions_of_their_own() {
    let database = Database::all().remove(0);
    database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20), at INTEGER)").await;
    database.execute("INSERT INTO T# VALUES (1, 'a', 9), (2, 'b', 3), (3, 'a', 8), (4, 'b', 7)").await;
    let statement = "SELECT * FROM T# WHERE name = :name";
    let of = |name: &str, column: &str, user: &str| {
        let parameters = Setting::Hash(vec![("name".to_owned(), text(name))]);
        let mut more = tracked(column, "numeric", 10);
        more.extend([("parameters", parameters), ("jdbc_user", text(user))]);
        database.input(statement, &more)
    };
    let identities: std::collections::HashSet<String> =
        [of("a", "id", ""), of("b", "id", ""), of("a", "at", ""), of("a", "id", "me")]
            .map(|input| input.identity())
            .into();
    assert_eq!(identities.len(), 4);
    assert!(of("a", "id", "").needs_name());
    let ledger = Ledger::new();
    run_among(&ledger, of("a", "id", ""), &["one", "two"]).await;
    assert_eq!(ledger.sorted("id"), ["1", "3"]);
    run_among(&ledger, of("b", "id", ""), &["two", "one"]).await;
    assert_eq!(ledger.sorted("id"), ["1", "2", "3", "4"]);
    // The same rows for another input; what an input read that is gone goes on under another name.
    run_among(&ledger, of("b", "id", ""), &["three", "one", "two"]).await;
    assert_eq!(ledger.sorted("id"), ["1", "2", "2", "3", "4", "4"]);
    database.execute("INSERT INTO T# VALUES (5, 'b', 1)").await;
    for _ in 0..2 {
        run_among(&ledger, of("b", "id", "other"), &["four", "one"]).await;
        assert_eq!(ledger.len(), 7);
    }
    assert_eq!(ledger.sorted("id").last().map(String::as_str), Some("5"));
}

#[tokio::test]
async fn the_position_of_an_earlier_version_is_carried_over() {
    let database = Database::all().remove(0);
    database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
    database.execute("INSERT INTO T# VALUES (1, 'a'), (2, 'b')").await;
    let ledger = Ledger::new();
    let statement = "SELECT * FROM T#";
    let input = || database.input(statement, &tracked("id", "numeric", 10));
    let place = Address::parse(&database.url).unwrap().identity();
    let written = statement.replace("T#", &database.table);
    let source = format!("jdbc {place} statement {:016x}", xxhash_rust::xxh3::xxh3_64(written.as_bytes()));
    let mut window =
        super::Window::new(super::tracking::TrackingType::Numeric, super::tracking::Lag::Number(0.into()));
    window.begin();
    window.take("1", 1).unwrap();
    let (previous, owner_epoch) = ledger.claim(&source, "rows").await.unwrap();
    let new = window.store(chrono::Utc::now());
    let moved =
        crate::Move { source: source.clone(), partition: "rows".to_owned(), previous, new, owner_epoch };
    ledger.apply_move(&moved);
    for _ in 0..2 {
        run_among(&ledger, input(), &["one"]).await;
    }
    // The first row has another hash than the one that was stored.
    assert_eq!(ledger.sorted("name"), ["a", "b"]);
    assert_eq!(ledger.list(&source).await.unwrap(), []);
}

#[tokio::test]
async fn rows_are_from_the_same_places_whatever_the_pages_and_batches() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        for _ in 0..2 {
            database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 100))).await;
        }
        let mut all = Vec::new();
        for (page, batch) in [(7, 3), (1000, 1000), (50, 1)] {
            let ledger = Ledger::new();
            let input = database.input("SELECT * FROM T#", &tracked("id", "numeric", page));
            assert_eq!(run(&ledger, input, batch).await, None);
            all.push(ledger.provenances("name"));
        }
        let mut places: Vec<_> = all[0].iter().map(|(_, from)| (from.record, from.ordinal)).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 200, "{}", database.kind);
        assert!(all.iter().all(|one| *one == all[0]), "{}", database.kind);
    }
}

#[tokio::test]
async fn a_refused_batch_is_read_again() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 500))).await;
        let ledger = Ledger::new();
        ledger.refuse(2);
        let input = database.input("SELECT * FROM T#", &tracked("id", "numeric", 60));
        let failure = run(&ledger, input, 20).await.expect("a failure on the way");
        assert!(failure.0.contains("refused by the test"), "{failure}");
        assert_eq!(ledger.sorted("name"), names(500));
    }
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_found_within_the_lag() {
    let _up = UP.read().await;
    for database in Database::all().into_iter().filter(|database| database.kind != Kind::Sqlite) {
        database.execute("CREATE TABLE T# (at TIMESTAMP(6) NOT NULL, name VARCHAR(20))").await;
        let mut late = database.open().await;
        let begin = if database.kind == Kind::MySql { "START TRANSACTION" } else { "BEGIN" };
        execute(&mut late, begin).await;
        let row = format!("INSERT INTO {} VALUES ('2024-05-01 10:00:00.000001', 'late')", database.table);
        execute(&mut late, &row).await;
        database
            .execute("INSERT INTO T# VALUES ('2024-05-01 10:00:00', 'a'), ('2024-05-01 10:00:04.5', 'b')")
            .await;
        let ledger = Ledger::new();
        let mut settings = tracked("at", "timestamp", 10);
        settings.push(("tracking_lag", text("5")));
        let statement = "SELECT * FROM T# WHERE at > :sql_last_value";
        let input = || database.input(statement, &settings);
        assert_eq!(run(&ledger, input(), 2).await, None);
        assert_eq!(ledger.sorted("name"), ["a", "b"]);
        execute(&mut late, "COMMIT").await;
        for _ in 0..2 {
            assert_eq!(run(&ledger, input(), 2).await, None);
            assert_eq!(ledger.sorted("name"), ["a", "b", "late"], "{}", database.kind);
        }
    }
}

#[tokio::test]
async fn a_run_without_a_tracking_column_reads_what_changed_since_the_last() {
    let _up = UP.read().await;
    for database in Database::all() {
        let now = match database.kind {
            Kind::Sqlite => "strftime('%Y-%m-%d %H:%M:%f', 'now')",
            _ => "current_timestamp(6)",
        };
        let kind = if database.kind == Kind::Sqlite { "TEXT" } else { "TIMESTAMP(6)" };
        database.execute(&format!("CREATE TABLE T# (at {kind} NOT NULL, name VARCHAR(20))")).await;
        database.execute(&format!("INSERT INTO T# VALUES ({now}, 'a'), ({now}, 'b'), ({now}, 'c')")).await;
        sleep(Duration::from_millis(20)).await;
        let ledger = Ledger::new();
        let statement = "SELECT * FROM T# WHERE at > :sql_last_value";
        assert_eq!(run(&ledger, database.input(statement, &[]), 2).await, None);
        assert_eq!(ledger.sorted("name"), ["a", "b", "c"], "{}", database.kind);
        // SQLite's clock tells milliseconds, and the last run may have begun within this one.
        sleep(Duration::from_millis(20)).await;
        database.execute(&format!("INSERT INTO T# VALUES ({now}, 'd')")).await;
        assert_eq!(run(&ledger, database.input(statement, &[]), 2).await, None);
        assert_eq!(ledger.sorted("name"), ["a", "b", "c", "d"], "{}", database.kind);
        // All again, where the last run is forgotten.
        assert_eq!(run(&ledger, database.input(statement, &[("clean_run", text("true"))]), 2).await, None);
        assert_eq!(ledger.len(), 8, "{}", database.kind);
    }
}

#[tokio::test]
async fn a_statement_may_page_itself_and_have_parameters() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 95))).await;
        let ledger = Ledger::new();
        let paged = [
            ("jdbc_paging_enabled", text("true")),
            ("jdbc_paging_mode", text("explicit")),
            ("jdbc_page_size", text("10")),
            ("parameters", Setting::Hash(vec![("first".to_owned(), text("r00005"))])),
        ];
        let statement = "SELECT * FROM T# WHERE name >= :first ORDER BY name LIMIT :size OFFSET :offset";
        assert_eq!(run(&ledger, database.input(statement, &paged), 7).await, None);
        assert_eq!(ledger.sorted("name"), names(95).split_off(5), "{}", database.kind);
        let ledger = Ledger::new();
        let prepared = [
            ("use_prepared_statements", text("true")),
            ("prepared_statement_name", text("rows")),
            ("prepared_statement_bind_values", Setting::Array(vec![text("r00090"), text(":sql_last_value")])),
            ("lowercase_column_names", text("false")),
            ("target", text("row")),
        ];
        let statement = "SELECT name AS \"Name\" FROM T# WHERE name >= ? AND '2020-01-01' > ?";
        let statement =
            if database.kind == Kind::MySql { statement.replace('"', "`") } else { statement.to_owned() };
        assert_eq!(run(&ledger, database.input(&statement, &prepared), 7).await, None);
        let rows: Vec<Value> = ledger
            .events()
            .iter()
            .map(|event| event.fields().get("row").cloned().unwrap_or_default())
            .collect();
        assert_eq!(rows.first(), Some(&json!({"Name": "r00090"})), "{}", database.kind);
        assert_eq!(rows.len(), 5);
    }
}

#[tokio::test]
async fn a_schedule_survives_a_restart_of_the_database() {
    let _up = UP.write().await;
    for (database, restart) in Database::all().into_iter().filter_map(|database| {
        let name = match database.kind {
            Kind::Sqlite => return None,
            Kind::Postgres => "MILLRACE_TEST_POSTGRES_RESTART",
            Kind::MySql => "MILLRACE_TEST_MARIADB_RESTART",
        };
        let command = env::var(name).ok();
        if command.is_none() {
            println!("skipped: no {name}");
        }
        Some((database, command?))
    }) {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 2000))).await;
        let ledger = Ledger::new();
        let mut settings = tracked("id", "numeric", 50);
        settings.push(("schedule", text("* * * * * *")));
        let input = database.input("SELECT * FROM T# WHERE id > :sql_last_value - 1", &settings);
        let running = RunningInput::start(&ledger, input, 10, Duration::from_millis(5));
        running.wait(300).await;
        let restarted =
            tokio::task::spawn_blocking(move || Command::new("sh").args(["-c", &restart]).status());
        assert!(restarted.await.expect("a restart").expect("a restart").success());
        database.execute(&format!("INSERT INTO T# VALUES {}", values(2000, 2100))).await;
        running.wait(2100).await;
        running.stop().await;
        assert_eq!(ledger.sorted("name"), names(2100), "{}", database.kind);
    }
}

#[tokio::test]
async fn types_of_postgresql() {
    let _up = UP.read().await;
    let columns = [
        ("b", "BOOLEAN", "true", json!(true)),
        ("i2", "SMALLINT", "-2", json!(-2)),
        ("i8", "BIGINT", "9223372036854775807", json!(i64::MAX)),
        ("f4", "REAL", "0.1", json!(0.1)),
        ("f8", "DOUBLE PRECISION", "'NaN'", json!("NaN")),
        ("n1", "NUMERIC(10,2)", "12.50", json!(12.5)),
        ("n2", "NUMERIC", "12345678901234567890.123456789", json!("12345678901234567890.123456789")),
        ("m", "MONEY", "1.5", json!("$1.50")),
        ("t", "TEXT", "'grüße'", json!("grüße")),
        ("c", "CHAR(4)", "'ab'", json!("ab  ")),
        ("by", "BYTEA", "'\\x00ff10'", json!("AP8Q")),
        ("d", "DATE", "'2024-05-01'", json!("2024-05-01")),
        ("ti", "TIME", "'10:11:12.5'", json!("10:11:12.5")),
        ("ts", "TIMESTAMP", "'2024-05-01 10:11:12.123456'", json!("2024-05-01T10:11:12.123456Z")),
        ("tz", "TIMESTAMPTZ", "'2024-05-01 10:11:12+02'", json!("2024-05-01T08:11:12.000Z")),
        ("inf", "TIMESTAMPTZ", "'infinity'", json!("infinity")),
        ("iv", "INTERVAL", "'1 day 02:00'", json!("P1DT2H")),
        (
            "u",
            "UUID",
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("j", "JSON", "'{\"a\": 1}'", json!("{\"a\": 1}")),
        ("jb", "JSONB", "'{\"a\":1}'", json!("{\"a\": 1}")),
        ("ip", "INET", "'10.0.0.1/8'", json!("10.0.0.1/8")),
        ("bits", "BIT(3)", "B'101'", json!("101")),
        ("ai", "INTEGER[]", "'{{1,2},{3,NULL}}'", json!([[1, 2], [3, null]])),
        ("at", "TEXT[]", "ARRAY['a,b', 'c\"d', NULL, 'NULL']", json!(["a,b", "c\"d", null, "NULL"])),
        (
            "az",
            "TIMESTAMPTZ[]",
            "ARRAY['2024-05-01 10:00:00+00'::timestamptz]",
            json!(["2024-05-01T10:00:00.000Z"]),
        ),
        ("e", "T#_mood", "'ok'", json!("ok")),
        ("ae", "T#_mood[]", "'{ok,sad}'", json!(["ok", "sad"])),
        ("dom", "T#_even", "4", json!(4)),
        ("r", "INT4RANGE", "'[1,5)'", json!("[1,5)")),
        ("p", "POINT", "'(1,2)'", json!("(1,2)")),
        ("v", "TSVECTOR", "'a b'", json!("'a' 'b'")),
        ("x", "XML", "'<a/>'", json!("<a/>")),
        ("nil", "TEXT", "NULL", Value::Null),
    ];
    let setup =
        "CREATE TYPE T#_mood AS ENUM ('sad', 'ok'); CREATE DOMAIN T#_even AS INTEGER CHECK (VALUE % 2 = 0);";
    types(Kind::Postgres, setup, &columns).await;
}

#[tokio::test]
async fn types_of_mariadb() {
    let _up = UP.read().await;
    let columns = [
        ("b", "BOOLEAN", "true", json!(true)),
        ("i1", "TINYINT", "-5", json!(-5)),
        ("u1", "TINYINT UNSIGNED", "250", json!(250)),
        ("i3", "MEDIUMINT", "-70000", json!(-70000)),
        ("u8", "BIGINT UNSIGNED", "18446744073709551615", json!(u64::MAX)),
        ("n1", "DECIMAL(10,2)", "12.50", json!(12.5)),
        ("n2", "DECIMAL(40,10)", "12345678901234567890.1234567890", json!("12345678901234567890.1234567890")),
        ("f8", "DOUBLE", "0.1", json!(0.1)),
        ("vc", "VARCHAR(20) CHARACTER SET latin1", "'grüße'", json!("grüße")),
        ("tb", "TEXT COLLATE utf8mb4_bin", "'é'", json!("é")),
        ("bl", "BLOB", "x'00ff10'", json!("AP8Q")),
        ("vb", "VARBINARY(5)", "x'00'", json!("AA==")),
        ("d", "DATE", "'2024-05-01'", json!("2024-05-01")),
        ("ti", "TIME(3)", "'-100:11:12.5'", json!("-100:11:12.500")),
        ("dt", "DATETIME(6)", "'2024-05-01 10:11:12.123456'", json!("2024-05-01T10:11:12.123456Z")),
        ("ts", "TIMESTAMP NULL", "'2024-05-01 10:11:12'", json!("2024-05-01T10:11:12.000Z")),
        ("y", "YEAR", "2024", json!(2024)),
        ("bits", "BIT(12)", "b'100000000001'", json!(2049)),
        ("e", "ENUM('a', 'b')", "'b'", json!("b")),
        ("s", "SET('a', 'b', 'c')", "'a,c'", json!("a,c")),
        ("j", "JSON", "'{\"a\": 1}'", json!("{\"a\": 1}")),
        ("ip", "INET6", "'::1'", json!("::1")),
        ("nil", "TEXT", "NULL", Value::Null),
    ];
    types(Kind::MySql, "", &columns).await;
}

#[tokio::test]
async fn types_of_sqlite() {
    let _up = UP.read().await;
    let columns = [
        ("i", "INTEGER", "9223372036854775807", json!(i64::MAX)),
        ("b", "BOOLEAN", "1", json!(true)),
        ("r", "REAL", "0.1", json!(0.1)),
        ("n", "NUMERIC", "12.5", json!(12.5)),
        ("t", "TEXT", "'grüße'", json!("grüße")),
        ("bl", "BLOB", "x'00ff10'", json!("AP8Q")),
        ("dt", "DATETIME", "'2024-05-01 10:11:12.5'", json!("2024-05-01T10:11:12.500Z")),
        ("d", "DATE", "'2024-05-01'", json!("2024-05-01")),
        ("odd", "INTEGER", "'text'", json!("text")),
        ("nil", "TEXT", "NULL", Value::Null),
    ];
    types(Kind::Sqlite, "", &columns).await;
}

/// Checks what values of a table's columns become.
async fn types(kind: Kind, setup: &str, columns: &[(&str, &str, &str, Value)]) {
    for database in Database::all().into_iter().filter(|database| database.kind == kind) {
        if !setup.is_empty() {
            database.execute(setup).await;
        }
        let declared: Vec<String> = columns.iter().map(|(name, of, ..)| format!("{name} {of}")).collect();
        let values: Vec<&str> = columns.iter().map(|(_, _, value, _)| *value).collect();
        database.execute(&format!("CREATE TABLE T# ({})", declared.join(", "))).await;
        database.execute(&format!("INSERT INTO T# VALUES ({})", values.join(", "))).await;
        let ledger = Ledger::new();
        assert_eq!(run(&ledger, database.input("SELECT * FROM T#", &[]), 10).await, None);
        let events = ledger.events();
        let event = events.first().expect("a row");
        for (name, of, value, expected) in columns {
            assert_eq!(event.fields().get(*name), Some(expected), "{name} {of} {value}");
        }
    }
}

/// A context of an input that is run once; its batches go nowhere.
fn alone(ledger: &Arc<Ledger>) -> (tokio::sync::watch::Sender<bool>, crate::input::Context) {
    let (batches, _) = tokio::sync::mpsc::channel(1);
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let context = crate::input::Context {
        batches,
        source: Arc::from("test"),
        siblings: Vec::new(),
        former: Vec::new(),
        positions: Arc::clone(ledger) as _,
        stopping,
        batch_size: BatchSize::new(10),
        budget: crate::budget::Budget::default().share(),
    };
    (stop, context)
}

#[tokio::test]
async fn what_the_database_refuses_is_told() {
    let _up = UP.read().await;
    for database in Database::all() {
        let ledger = Ledger::new();
        for (statement, more, part) in [
            ("SELECT * FROM nowhere_at_all", vec![], "nowhere_at_all"),
            ("SELECT 1 AS one", tracked("two", "numeric", 10), "[one]"),
            ("SELECT 'x' AS one", tracked("one", "numeric", 10), "tracking_column_type"),
        ] {
            let input = Arc::<dyn Input>::from(database.input(statement, &more));
            let (_stop, context) = alone(&ledger);
            let error = input.run(context).await.expect_err(statement);
            assert!(error.0.contains(part), "{}: {error}", database.kind);
        }
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let wrong = options(
        "jdbc",
        [
            ("jdbc_connection_string", text("jdbc:oracle:thin:@x")),
            ("schedule", text("every 5m")),
            ("use_column_value", text("true")),
            ("tracking_column_type", text("date")),
            ("jdbc_default_timezone", text("Nowhere")),
            ("sequel_opts", Setting::Hash(vec![("x".to_owned(), text("y"))])),
            ("columns_charset", Setting::Hash(vec![("x".to_owned(), text("KOI8-R"))])),
            ("statment", text("SELECT 1")),
        ],
    );
    let faults = messages(&build(wrong).expect_err("faults"));
    for part in [
        "[oracle]",
        "cron",
        "[tracking_column]",
        "numeric, timestamp",
        "[Nowhere]",
        "sequel_opts",
        "KOI8-R",
        "did you mean [statement]",
        "[statement] and [statement_filepath]",
    ] {
        assert!(faults.contains(part), "{part} is not in\n{faults}");
    }
}
