//! Statements with a limit of their own, and more rows of one value than can be told apart.

use super::*;

#[tokio::test]
async fn a_limit_of_the_statement_bounds_a_run_and_loses_nothing() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (at TIMESTAMP NOT NULL, name VARCHAR(20))").await;
        let row = |at: usize| format!("('2024-05-01 10:00:{:02}', 'r{at:05}')", at / 7);
        let rows: Vec<String> = (0..20).map(row).collect();
        database.execute(&format!("INSERT INTO T# VALUES {}", rows.join(", "))).await;
        for (limit, most) in [("LIMIT 1", 1), ("LIMIT 3", 3), ("LIMIT 100", 100)] {
            for order in ["", "ORDER BY at", "ORDER BY at ASC, name DESC"] {
                let ledger = Ledger::new();
                let statement = format!("SELECT * FROM T# WHERE at > :sql_last_value {order} {limit}");
                for before in 0..22 {
                    let input = database.input(&statement, &tracked("at", "timestamp", 5));
                    assert_eq!(run(&ledger, input, 2).await, None);
                    assert_eq!(ledger.len(), (most * (before + 1)).min(20), "{} {statement}", database.kind);
                }
                assert_eq!(ledger.sorted("name"), names(20), "{} {statement}", database.kind);
            }
        }
    }
}

#[tokio::test]
async fn a_limit_that_keeps_a_statement_from_going_on_is_told() {
    let _up = UP.read().await;
    for database in Database::all() {
        database.execute("CREATE TABLE T# (id INTEGER, name VARCHAR(20))").await;
        database.execute(&format!("INSERT INTO T# VALUES {}", values(0, 25))).await;
        let ledger = Ledger::new();
        let statement =
            "SELECT * FROM (SELECT * FROM T# WHERE id > :sql_last_value ORDER BY id LIMIT 5) AS picked";
        let input = || database.input(statement, &tracked("id", "numeric", 100));
        let running = RunningInput::start(&ledger, input(), 100, Duration::ZERO);
        running.wait(5).await;
        let error = running.stop().await;
        // A run that reads is one that ends; the next has nothing but what was read.
        let error = match error {
            Some(error) => error,
            None => {
                let (_stop, context) = alone(&ledger);
                Arc::<dyn Input>::from(input()).run(context).await.expect_err("it cannot go on")
            }
        };
        assert!(error.0.contains("a limit within it") && error.0.contains("[2]"), "{error}");
        // Where there is nothing behind, nothing is wrong.
        database.execute("DELETE FROM T# WHERE id > 1").await;
        assert_eq!(run(&ledger, input(), 100).await, None);
    }
}

#[tokio::test]
async fn more_rows_of_one_value_than_can_be_told_apart_are_read() {
    let database = Database::all().remove(0);
    database.execute("CREATE TABLE T# (id INTEGER, name INTEGER)").await;
    let alike = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 100299) \
                 INSERT INTO T# SELECT 5, i / 2 FROM n";
    database.execute("INSERT INTO T# VALUES (1, -1), (9, -9)").await;
    database.execute(alike).await;
    let ledger = Ledger::new();
    let input = || database.input("SELECT * FROM T#", &tracked("id", "numeric", 60_000));
    assert_eq!(run(&ledger, input(), 50_000).await, None);
    assert_eq!(ledger.len(), 100_302);
    let mut places: Vec<_> = ledger.events().iter().map(|event| event.provenance()).collect();
    places.sort_by_key(|place| place.map(|place| (place.record, place.ordinal)));
    places.dedup();
    assert_eq!(places.len(), 100_302, "events have places of their own");
    database.execute("INSERT INTO T# VALUES (9, -10), (10, -11)").await;
    for _ in 0..2 {
        assert_eq!(run(&ledger, input(), 50_000).await, None);
        assert_eq!(ledger.len(), 100_304);
    }
}
