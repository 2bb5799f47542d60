//! Times are compared to the nanosecond, in any resolution of either side, and keep theirs in answers.

use serde_json::{Value, json};

use crate::fixture::Store;
use crate::sql::rows;

const SECOND: i128 = 1_000_000_000;

/// 2024-01-01T00:00:00 in nanoseconds since 1970.
const NEW_YEAR: i128 = 1_704_067_200 * SECOND;

/// Times of a field of the type date_nanos, with their nanoseconds since 1970.
const NANOS: &[(&str, i128)] = &[
    ("1970-01-01T00:00:00Z", 0),
    ("1970-01-01T00:00:00.000000001Z", 1),
    ("2024-01-01T00:00:00Z", NEW_YEAR),
    ("2024-01-01T00:00:00.395Z", NEW_YEAR + 395_000_000),
    ("2024-01-01T00:00:00.395000001Z", NEW_YEAR + 395_000_001),
    ("2024-01-01T00:00:00.3950005Z", NEW_YEAR + 395_000_500),
    ("2024-01-01T00:00:00.395001Z", NEW_YEAR + 395_001_000),
    ("2262-04-11T23:47:16.854775807Z", i64::MAX as i128),
];

/// Times of a field of the type date beside them.
const MILLIS: &[(&str, i128)] = &[
    ("1969-12-31T23:59:59.999Z", -1_000_000),
    ("1970-01-01T00:00:00Z", 0),
    ("1500-01-01T00:00:00Z", -14_831_769_600 * SECOND),
    ("2024-01-01T00:00:00.395Z", NEW_YEAR + 395_000_000),
    ("2024-01-01T00:00:00.395Z", NEW_YEAR + 395_000_000),
    ("2024-01-01T00:00:00.396Z", NEW_YEAR + 396_000_000),
    ("2024-01-01T00:00:00.395Z", NEW_YEAR + 395_000_000),
    ("9999-12-31T23:59:59.999Z", 253_402_300_799 * SECOND + 999_000_000),
];

/// Texts that fields are compared with.
const LITERALS: &[(&str, i128)] = &[
    ("1500-01-01 00:00:00", -14_831_769_600 * SECOND),
    ("1969-12-31 23:59:59.999999999", -1),
    ("1970-01-01", 0),
    ("1970-01-01 00:00:00.000000001", 1),
    ("2024-01-01", NEW_YEAR),
    ("2024-01-01 00:00:00.395", NEW_YEAR + 395_000_000),
    ("2024-01-01 00:00:00.395000001", NEW_YEAR + 395_000_001),
    ("2024-01-01 00:00:00.395000499", NEW_YEAR + 395_000_499),
    ("2024-01-01T00:00:00.3950005Z", NEW_YEAR + 395_000_500),
    ("2024-01-01 00:00:00.395001", NEW_YEAR + 395_001_000),
    ("2262-04-11 23:47:16.854775807", i64::MAX as i128),
    ("2262-04-11 23:47:16.854775808", i64::MAX as i128 + 1),
    ("9999-12-31 23:59:59.999999999", 253_402_300_799 * SECOND + 999_999_999),
];

/// An operator, itself with its sides exchanged, and its meaning.
type Operator = (&'static str, &'static str, fn(i128, i128) -> bool);

const OPERATORS: &[Operator] = &[
    ("=", "=", |one, other| one == other),
    ("<>", "<>", |one, other| one != other),
    ("<", ">", |one, other| one < other),
    ("<=", ">=", |one, other| one <= other),
    (">", "<", |one, other| one > other),
    (">=", "<=", |one, other| one >= other),
];

/// Rows 0, 1, … of the times, and one without any.
async fn times() -> Store {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "i": {"type": "integer"}, "tn": {"type": "date_nanos"}, "ts": {"type": "date"}, "k": {"type": "keyword"},
        "hidden": {"type": "date_nanos", "index": false}, "many": {"type": "date_nanos"}, "msg": {"type": "text"}
    }}});
    store.create("n", &body).await;
    let mut documents: Vec<Value> = (0..NANOS.len())
        .map(|at| {
            let (nanos, millis) = (NANOS[at].0, MILLIS[at].0);
            let many = json!([NANOS[at].0, NANOS[(at + 1) % NANOS.len()].0]);
            json!({"i": at, "tn": nanos, "hidden": nanos, "ts": millis, "k": nanos, "many": many, "msg": "a"})
        })
        .collect();
    documents.push(json!({"i": documents.len()}));
    store.index("n", &documents).await;
    store
}

async fn matching(store: &Store, condition: &str) -> Vec<usize> {
    let answer = rows(store, &format!("SELECT i FROM n WHERE {condition} ORDER BY i")).await;
    answer.iter().map(|row| row[0].as_u64().unwrap() as usize).collect()
}

fn expected(times: &[(&str, i128)], fits: impl Fn(i128) -> bool) -> Vec<usize> {
    (0..times.len()).filter(|at| fits(times[*at].1)).collect()
}

#[tokio::test]
async fn fields_meet_literals_to_the_nanosecond() {
    let store = times().await;
    for (text, other) in LITERALS {
        for (operator, swapped, compares) in OPERATORS {
            for (field, of) in [("tn", NANOS), ("hidden", NANOS), ("ts", MILLIS)] {
                let wanted = expected(of, |own| compares(own, *other));
                let mut conditions = vec![format!("{field} {operator} '{text}'")];
                if *other == NEW_YEAR + 395_000_001 {
                    conditions.extend([
                        format!("TIMESTAMP('{text}') {swapped} {field}"),
                        format!("{field} {operator} CAST('{text}' AS TIMESTAMP)"),
                        format!("TIMESTAMP '{text}' {swapped} {field}"),
                        format!("DATE_ADD({field}, INTERVAL 0 DAY) {operator} '{text}'"),
                    ]);
                }
                for condition in conditions {
                    assert_eq!(matching(&store, &condition).await, wanted, "{condition}");
                }
            }
            let negated = *operator == "<>";
            let any = |at: usize| {
                let pair = [NANOS[at].1, NANOS[(at + 1) % NANOS.len()].1];
                match negated {
                    true => pair.iter().all(|own| own != other),
                    false => pair.iter().any(|own| compares(*own, *other)),
                }
            };
            let wanted: Vec<usize> = (0..NANOS.len()).filter(|at| any(*at)).collect();
            assert_eq!(
                matching(&store, &format!("many {operator} '{text}'")).await,
                wanted,
                "{operator} {text}"
            );
        }
        for (field, of) in [("tn", NANOS), ("ts", MILLIS)] {
            let listed = format!("{field} IN ('{text}', '1970-01-01 00:00:00.000000001')");
            assert_eq!(
                matching(&store, &listed).await,
                expected(of, |own| own == *other || own == 1),
                "{listed}"
            );
            let between = format!("{field} BETWEEN '1970-01-01' AND '{text}'");
            assert_eq!(
                matching(&store, &between).await,
                expected(of, |own| 0 <= own && own <= *other),
                "{between}"
            );
        }
    }
}

#[tokio::test]
async fn fields_meet_one_another_to_the_nanosecond() {
    let store = times().await;
    for (operator, swapped, compares) in OPERATORS {
        let pairs = |fits: &dyn Fn(i128, i128) -> bool| -> Vec<usize> {
            (0..NANOS.len()).filter(|at| fits(NANOS[*at].1, MILLIS[*at].1)).collect()
        };
        let wanted = pairs(&|nanos, millis| compares(nanos, millis));
        for condition in [
            format!("tn {operator} ts"),
            format!("ts {swapped} tn"),
            format!("CASE WHEN tn {operator} ts THEN 1 ELSE 0 END = 1"),
            format!("tn {operator} DATE_ADD(ts, INTERVAL 0 DAY)"),
        ] {
            assert_eq!(matching(&store, &condition).await, wanted, "{condition}");
        }
        let same: Vec<usize> = if compares(1, 1) { (0..NANOS.len()).collect() } else { Vec::new() };
        assert_eq!(matching(&store, &format!("tn {operator} k")).await, same, "{operator}");
        assert_eq!(matching(&store, &format!("tn {operator} hidden")).await, same, "{operator}");
        let days = pairs(&|nanos, _| compares(nanos, NEW_YEAR));
        let day = "DATE_ADD(DATE('2023-12-31'), INTERVAL 1 DAY)";
        assert_eq!(matching(&store, &format!("tn {operator} {day}")).await, days, "{operator}");
    }
    assert_eq!(matching(&store, "tn IN (ts, '2024-01-01 00:00:00.3950005')").await, [3, 5]);
    assert_eq!(matching(&store, "NOT tn = ts").await, [0, 1, 2, 4, 5, 6, 7]);
    let joined = "SELECT a.i, b.i FROM n a JOIN n b ON a.tn = b.ts ORDER BY a.i, b.i";
    assert_eq!(json!(rows(&store, joined).await), json!([[0, 1], [3, 3], [3, 4], [3, 6]]));
}

#[tokio::test]
async fn one_of_the_rows_within_a_microsecond_is_deleted() {
    let store = times().await;
    crate::cursors::set(&store, json!({"plugins.sql.delete.enabled": "true"})).await;
    let statement = "DELETE FROM n WHERE tn = '2024-01-01 00:00:00.395'";
    let deleted = store.service.update_statement(&store.session, statement, None).await;
    assert_eq!(deleted.unwrap(), 1);
    assert_eq!(matching(&store, "tn IS NOT NULL").await, [0, 1, 2, 4, 5, 6, 7]);
}

#[tokio::test]
async fn functions_keep_nanoseconds() {
    let store = times().await;
    for (expression, shown) in [
        ("tn", "2024-01-01 00:00:00.395000001"),
        ("MAX(tn)", "2024-01-01 00:00:00.395000001"),
        ("TIMESTAMP(tn)", "2024-01-01 00:00:00.395000001"),
        ("TIMESTAMP('2024-01-01 00:00:00.395000001')", "2024-01-01 00:00:00.395000001"),
        ("TIMESTAMP '2024-01-01 00:00:00.395000001'", "2024-01-01 00:00:00.395000001"),
        ("CAST('2024-01-01 00:00:00.395000001' AS TIMESTAMP)", "2024-01-01 00:00:00.395000001"),
        ("CAST(tn AS TIMESTAMP)", "2024-01-01 00:00:00.395000001"),
        ("CAST(tn AS STRING)", "2024-01-01 00:00:00.395000001"),
        ("CONCAT(tn, '!')", "2024-01-01 00:00:00.395000001!"),
        ("DATETIME(tn)", "2024-01-01 00:00:00.395000001"),
        ("tn + INTERVAL 1 DAY", "2024-01-02 00:00:00.395000001"),
        ("DATE_SUB(tn, INTERVAL 60 YEAR)", "1964-01-01 00:00:00.395000001"),
        ("ADDDATE(tn, 1)", "2024-01-02 00:00:00.395000001"),
        ("ADDTIME(tn, '00:00:01')", "2024-01-01 00:00:01.395000001"),
        ("SUBTIME(tn, '00:00:00.395')", "2024-01-01 00:00:00.000000001"),
        ("TIMESTAMP(tn, '01:00:00')", "2024-01-01 01:00:00.395000001"),
        ("TIMESTAMPADD(MONTH, 1, tn)", "2024-02-01 00:00:00.395000001"),
        ("CONVERT_TZ(tn, '+00:00', 'Asia/Kolkata')", "2024-01-01 05:30:00.395000001"),
        ("COALESCE(tn, ts)", "2024-01-01 00:00:00.395000001"),
        ("IFNULL(tn, TIMESTAMP('9999-12-31 00:00:00'))", "2024-01-01 00:00:00.395"),
        ("IF(i > 0, tn, '2024-01-01')", "2024-01-01 00:00:00.395000001"),
        ("DATE(tn)", "2024-01-01"),
        ("TIME(tn)", "00:00:00.395"),
        ("DATE_FORMAT(tn, '%f')", "395000"),
    ] {
        let answer = rows(&store, &format!("SELECT {expression} AS v FROM n WHERE i = 4")).await;
        assert_eq!(answer[0][0], shown, "{expression}");
    }
    for (expression, number) in [
        ("MICROSECOND(tn)", 395_000),
        ("TIMESTAMPDIFF(MICROSECOND, tn, '2024-01-01 00:00:00.395001')", 0),
        ("TIMESTAMPDIFF(SECOND, tn, '2024-01-01 00:00:01.395')", 0),
        ("TIMESTAMPDIFF(MONTH, tn, '2024-02-01 00:00:00.395')", 0),
        ("COUNT(DISTINCT tn)", 1),
    ] {
        let answer = rows(&store, &format!("SELECT {expression} AS v FROM n WHERE i = 4")).await;
        assert_eq!(answer[0][0], number, "{expression}");
    }
    assert_eq!(rows(&store, "SELECT tn, COUNT(*) FROM n GROUP BY tn").await.len(), NANOS.len() + 1);
}

#[tokio::test]
async fn times_beyond_nanoseconds_are_refused_or_shown_by_less() {
    let store = times().await;
    let query = json!({"query": "SELECT DATE_ADD(tn, INTERVAL 300 YEAR) FROM n WHERE i = 4"});
    let outcome = store.service.sql(&store.session, Vec::new(), Some(query)).await;
    let (status, answer) = (outcome.status, crate::fixture::value(outcome).to_string());
    assert!(status == 400 && answer.contains("CAST both values to STRING"), "{status} {answer}");
    // One field of two types has the finer one.
    let mapping = json!({"mappings": {"properties": {"tn": {"type": "date"}, "i": {"type": "integer"}}}});
    store.create("m", &mapping).await;
    store.index("m", &[json!({"i": 100, "tn": "2020-01-01"})]).await;
    let both = "FROM n,m WHERE i = 4 OR i = 100";
    let shown = json!([["2024-01-01 00:00:00.395000001"], ["2020-01-01 00:00:00"]]);
    assert_eq!(json!(rows(&store, &format!("SELECT tn {both} ORDER BY i")).await), shown);
    store.index("m", &[json!({"i": 100, "tn": "9999-01-01"})]).await;
    let query = json!({"query": format!("SELECT tn {both}")});
    let outcome = store.service.sql(&store.session, Vec::new(), Some(query)).await;
    let (status, answer) = (outcome.status, crate::fixture::value(outcome).to_string());
    assert!(status == 400 && answer.contains("statements of their own"), "{status} {answer}");
}

/// Dates without a time of day, and times of day, have types of their own.
#[tokio::test]
async fn formats_of_dates_tell_their_types() {
    let store = Store::open().await;
    let date = |format: &str| json!({"type": "date", "format": format});
    let properties = json!({
        "day": date("yyyy-MM-dd"), "clock": date("HH:mm:ss"), "both": date("yyyy-MM-dd||HH:mm:ss"),
        "fine": {"type": "date_nanos", "format": "hour_minute_second||t_time"},
    });
    store.create("dates", &json!({"mappings": {"properties": properties}})).await;
    let document = json!({"day": "2024-02-29", "clock": "10:20:30", "both": "2024-02-29", "fine": "T07:08:09.000000001Z"});
    store.index("dates", &[document, json!({"day": "2024-03-01", "clock": "00:00:01"})]).await;
    let query = "SELECT day, clock, both, fine, MAX(day) OVER () AS last FROM dates WHERE day < '2024-03-01'";
    let body = json!({"query": query});
    let answer = crate::fixture::value(store.service.sql(&store.session, Vec::new(), Some(body)).await);
    let types = answer["schema"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let types: Vec<&serde_json::Value> = types.iter().map(|column| &column["type"]).collect();
    assert_eq!(types, ["date", "time", "timestamp", "time", "date"]);
    let row = json!(["2024-02-29", "10:20:30", "2024-02-29 00:00:00", "07:08:09.000000001", "2024-02-29"]);
    assert_eq!(answer["datarows"], json!([row]));
    for (condition, rows) in [
        ("day = '2024-02-29'", 1),
        ("day BETWEEN '2024-02-01' AND '2024-02-29'", 1),
        ("day IN ('2024-03-01', '2023-01-01')", 1),
        ("clock > '05:00:00'", 1),
        ("clock = TIME '00:00:01'", 1),
        ("YEAR(day) = 2024", 2),
        ("HOUR(clock) = 10", 1),
        ("fine > '07:08:09'", 1),
        ("fine < TIME '07:08:09.000001'", 1),
        ("HOUR(fine) = 7", 1),
        ("day = TIMESTAMP '2024-02-29 00:00:00'", 1),
    ] {
        let query = format!("SELECT day FROM dates WHERE {condition}");
        assert_eq!(crate::sql::rows(&store, &query).await.len(), rows, "{condition}");
    }
    let plan =
        crate::fixture::physical_plan(&store, "SELECT clock FROM dates WHERE day > '2024-02-29'").await;
    assert!(plan.contains("predicate=range") && !plan.contains("FilterExec"), "{plan}");
    let groups =
        crate::sql::rows(&store, "SELECT day, COUNT(*) FROM dates GROUP BY day ORDER BY day DESC").await;
    assert_eq!(groups, [json!(["2024-03-01", 1]), json!(["2024-02-29", 1])]);
}
