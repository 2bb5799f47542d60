//! `:sql_last_value` beside times of every type, in zones east and west of UTC.

use chrono::{DateTime, TimeDelta, Utc};

use super::super::zone::DatabaseZone;
use super::*;

/// Types of columns that hold a time: the database, the type, and whether its values are instants.
const COLUMNS: &[(Kind, &str, bool)] = &[
    (Kind::MySql, "TIMESTAMP(6) NULL", true),
    (Kind::MySql, "DATETIME(6)", false),
    (Kind::Postgres, "TIMESTAMPTZ", true),
    (Kind::Postgres, "TIMESTAMP", false),
    (Kind::Sqlite, "DATETIME", false),
];

#[tokio::test]
async fn the_last_value_is_an_instant_beside_times_of_any_type() {
    let _up = UP.read().await;
    for database in Database::all() {
        for (kind, column, instants) in COLUMNS.iter().filter(|(kind, ..)| *kind == database.kind) {
            for name in ["Asia/Kolkata", "America/New_York", "Pacific/Auckland", "UTC"] {
                let (zone, now) = (DatabaseZone::parse(name).expect("a zone"), Utc::now());
                let written = |minutes: i64| {
                    let at: DateTime<Utc> = now + TimeDelta::minutes(minutes);
                    let offset = *instants && *kind == Kind::Postgres;
                    if *instants { DatabaseZone::utc().show(at, offset) } else { zone.show(at, offset) }
                };
                database.execute(&format!("CREATE TABLE T# (id INTEGER, at {column})")).await;
                let rows = format!("INSERT INTO T# VALUES (1, '{}'), (2, '{}')", written(-10), written(10));
                database.execute(&rows).await;
                let input = || {
                    let zone = [("jdbc_default_timezone", text(name))];
                    database.input("SELECT * FROM T# WHERE at > :sql_last_value", &zone)
                };
                let ledger = Ledger::new();
                assert_eq!(run(&ledger, input(), 10).await, None);
                assert_eq!(ledger.sorted("id"), ["1", "2"], "{column} {name}");
                let first = now - TimeDelta::minutes(10);
                let shown = super::super::value::iso(
                    first - TimeDelta::nanoseconds(i64::from(first.timestamp_subsec_nanos() % 1_000)),
                );
                assert_eq!(ledger.sorted("at")[0], shown, "{column} {name}");
                // The row that is later than the run comes again.
                assert_eq!(run(&ledger, input(), 10).await, None);
                assert_eq!(ledger.sorted("id"), ["1", "2", "2"], "{column} {name}");
                database.execute("DROP TABLE T#").await;
            }
        }
    }
}
