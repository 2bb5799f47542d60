//! Pipelines: cases of a data file, what commands do to the order of rows, rights, and plans that are those of equal statements of SQL.

mod random;

use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_ppl::plan::order::{ORDER_EFFECTS, OrderEffect};
use millrace_ppl::reference::{COMMANDS, Support};
use millrace_query::{Config, OutcomeBody};
use serde_json::{Value, json};

use crate::delete_by_query::{rights, session};
use crate::fixture::{Store, owned, value};
use crate::sql_bounds::numbers_within;

/// Asks a pipeline; returns status and answer.
pub(super) async fn ask(store: &Store, session: &Session, query: &str) -> (u16, Value) {
    let outcome = store.service.ppl(session, Vec::new(), Some(json!({"query": query}))).await;
    (outcome.status, value(outcome))
}

async fn people() -> Store {
    let store = Store::open_with(Config { threads: 1, ..Config::default() }).await;
    let keyword = json!({"type": "keyword"});
    let properties = json!({
        "name": keyword, "age": {"type": "long"}, "city": keyword, "note": {"type": "text"}, "@timestamp": {"type": "date"}
    });
    store.create("people", &json!({"mappings": {"properties": properties}})).await;
    store
        .index(
            "people",
            &[
                json!({"name": "Ann", "age": 34, "city": "Rome", "note": "red hat", "@timestamp": "2024-01-01T01:00:00Z"}),
                json!({"name": "Ben", "age": 28, "city": "Bern", "@timestamp": "2024-01-01T02:00:00Z"}),
                json!({"name": "Cid", "age": 28, "city": "Rome", "note": "blue", "@timestamp": "2024-01-01T23:59:59Z"}),
                json!({"name": "Dan", "@timestamp": "2024-01-02T00:00:00Z"}),
                json!({"name": "Eve", "age": 41, "city": "Bern", "@timestamp": "2024-01-02T05:00:00Z"}),
            ],
        )
        .await;
    let properties = json!({"city": keyword, "country": keyword});
    store.create("cities", &json!({"mappings": {"properties": properties}})).await;
    let cities =
        [json!({"city": "Rome", "country": "Italy"}), json!({"city": "Bern", "country": "Switzerland"})];
    store.index("cities", &cities).await;
    store
}

#[tokio::test]
async fn cases_of_the_data_file() {
    let store = people().await;
    let mut failed = Vec::new();
    for case in include_str!("cases.txt").split("\n> ").skip(1) {
        let mut lines = case.lines().filter(|line| !line.is_empty());
        let query = lines.next().unwrap();
        let (status, answer) = ask(&store, &store.session, query).await;
        let lines: Vec<&str> = lines.collect();
        if lines.iter().any(|line| line.starts_with('!')) {
            let text = answer.to_string();
            let words = lines.iter().all(|line| text.contains(line.trim_start_matches("! ")));
            if status < 400 || !words {
                failed.push(format!("{query}: {status} {answer}"));
            }
            continue;
        }
        let expected: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        if answer["datarows"] != json!(expected) {
            failed.push(format!("{query}: {status} {answer}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn commands_without_a_plan_are_refused_for_their_reasons() {
    let store = people().await;
    for command in COMMANDS {
        let Support::Parsed(reason) = command.support else { continue };
        let page = documentation(command.name);
        for example in page.split("```ppl\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            // Commands in front may name fields that the index lacks.
            let query = match example.rfind(&format!("| {}", command.name)) {
                Some(at) => format!("source=people {}", &example[at..]),
                None => example.to_owned(),
            };
            let (status, answer) = ask(&store, &store.session, &query).await;
            assert_eq!(status, 400, "{query}: {answer}");
            assert!(answer.to_string().contains(reason), "{query}: {answer}");
        }
    }
}

#[tokio::test]
async fn texts_that_grow_are_refused() {
    let store = people().await;
    let deep =
        |open: &str, count: usize, close: &str| format!("{}note{}", open.repeat(count), close.repeat(count));
    let named = (0..200).map(|at| format!("(?<g{at}>a)")).collect::<String>();
    let doubled = "| foreach a* [ eval <<FIELD>>_<<FIELD>> = 1 ] ".repeat(20);
    for (query, status) in [
        (format!("source=people | where {} | fields name", deep("isempty(", 12, ")")), 200),
        (format!("source=people | where {} | fields name", deep("isblank(", 12, ")")), 200),
        (format!("source=people | eval s = sum({}1) | fields s", "1,".repeat(5_000)), 200),
        (format!("source=people | replace {}'a' with 'b' in name", "'a' with 'b', ".repeat(5_000)), 400),
        (format!("source=people | parse note '{named}'"), 400),
        (format!("source=people {doubled}"), 400),
        (format!("source=people | eval age = age + 1{}", ", age = age + 1".repeat(5_000)), 400),
        (format!("source=people | where name = '{}a'", "a.".repeat(100_000)), 200),
        (
            format!(
                "source=people | eval s = '{}' | eval m = transform(array(1, 2, 3, 4, 5, 6), x -> concat(s, name))",
                "a".repeat(200_000)
            ),
            400,
        ),
    ] {
        let (own, answer) = ask(&store, &store.session, &query).await;
        let text: String = answer.to_string().chars().take(300).collect();
        assert_eq!(own, status, "{}: {text}", query.chars().take(60).collect::<String>());
    }
}

#[tokio::test]
async fn filters_are_objects() {
    let store = people().await;
    for (filter, status) in
        [(json!(null), 200), (json!({"match_all": {}}), 200), (json!([]), 400), (json!("a"), 400)]
    {
        let body = json!({"query": "source=people | fields name", "filter": filter});
        let outcome = store.service.ppl(&store.session, Vec::new(), Some(body)).await;
        assert_eq!(outcome.status, status, "{filter}");
    }
}

#[tokio::test]
async fn highlights_are_patterns() {
    let store = people().await;
    for (highlight, status) in
        [(json!(["note"]), 200), (json!([]), 200), (json!(["note", 5]), 400), (json!([null]), 400)]
    {
        let body = json!({"query": "source=people | fields name, note", "highlight": highlight});
        let outcome = store.service.ppl(&store.session, Vec::new(), Some(body)).await;
        assert_eq!(outcome.status, status, "{highlight}");
    }
}

#[tokio::test]
async fn answers_with_parts_have_a_bound_of_rows() {
    let store = people().await;
    let query = format!("source=people{} | fields name", " | join on 1 = 1 people".repeat(6));
    let body = json!({"query": query, "fetch_size": 0, "profile": true});
    let outcome = store.service.ppl(&store.session, Vec::new(), Some(body)).await;
    let answer = value(outcome);
    assert_eq!(answer["size"], json!(10_000), "{}", answer["error"]);
}

#[tokio::test]
async fn integers_of_nested_elements_compare_as_such() {
    let store = people().await;
    let properties = json!({"id": {"type": "keyword"}, "items": {"type": "nested", "properties": {"n": {"type": "long"}}}});
    store.create("orders", &json!({"mappings": {"properties": properties}})).await;
    // Doubles do not tell these apart.
    let orders = [
        json!({"id": "a", "items": [{"n": 9_007_199_254_740_992_i64}, {"n": 1}]}),
        json!({"id": "b", "items": [{"n": 9_007_199_254_740_993_i64}]}),
    ];
    store.index("orders", &orders).await;
    for (condition, expected) in [
        ("items.n = 9007199254740993", json!([["b"]])),
        ("items.n in (9007199254740993, 5)", json!([["b"]])),
        ("items.n < 1.5", json!([["a"]])),
    ] {
        let query = format!("source=orders | where {condition} | fields id");
        let (status, answer) = ask(&store, &store.session, &query).await;
        assert_eq!(answer["datarows"], expected, "{condition}: {status} {answer}");
    }
}

/// Reads the page of a command.
fn documentation(command: &str) -> String {
    let path = format!("{}/../../docs/ppl/{command}.md", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A sample of each command, over numbers in descending order.
const SAMPLES: &[(&str, &str)] = &[
    ("addcoltotals", "addcoltotals n"),
    ("addtotals", "addtotals n"),
    ("append", "append [ source=numbers | where n = 0 ]"),
    ("appendcol", "appendcol [ stats count() ]"),
    ("appendpipe", "appendpipe [ where n = 0 ]"),
    ("bin", "bin n span=1000 as b"),
    ("chart", "chart count() over n"),
    ("convert", "convert num(n) as m"),
    ("dedup", "dedup n"),
    ("eval", "eval m = n + 1"),
    ("eventstats", "eventstats count() by n"),
    ("expand", "eval l = array(1, 2) | expand l"),
    ("fieldformat", "fieldformat m = tostring(n)"),
    ("fields", "fields n"),
    ("fieldsummary", ""),
    ("fillnull", "fillnull with 0 in n"),
    ("flatten", ""),
    ("foreach", "foreach n [ eval <<FIELD>>_m = <<FIELD>> ]"),
    ("graphlookup", "graphlookup numbers start=n edge=n-->n as g"),
    ("grok", "eval t = 'a 1' | grok t '%{WORD:w} %{INT:i}'"),
    ("head", "head 5"),
    ("join", "join on n numbers"),
    ("lookup", "lookup numbers n"),
    ("multisearch", ""),
    ("mvcombine", "mvcombine n"),
    ("mvexpand", "eval l = array(1, 2) | mvexpand l"),
    ("nomv", "eval l = array(1, 2) | nomv l"),
    ("parse", "eval t = 'a1' | parse t '(?<d>[0-9])'"),
    ("patterns", "eval t = 'a-1' | patterns t"),
    ("rare", "rare n"),
    ("regex", "eval t = 'a1' | regex t='a'"),
    ("rename", "rename n as m | rename m as n"),
    ("replace", "eval t = 'a1' | replace 'a1' with 'b' in t"),
    ("reverse", "reverse"),
    ("rex", "eval t = 'a1' | rex field=t '(?<d>[0-9])'"),
    ("sort", "sort n"),
    ("spath", "eval t = '{\"a\":1}' | spath input=t path=a"),
    ("stats", "stats count() by n"),
    ("streamstats", "streamstats count()"),
    ("table", "table n"),
    ("tail", "tail 5"),
    ("timechart", ""),
    ("timewrap", ""),
    ("top", "top n"),
    ("transpose", ""),
    ("trendline", "trendline sma(2, n)"),
    ("union", ""),
    ("where", "where n > 3"),
    ("xyseries", ""),
];

#[tokio::test]
async fn commands_keep_the_order_that_they_say_they_keep() {
    let store = numbers_within(20, Config { threads: 2, ..Config::default() }).await;
    let mut failed = Vec::new();
    for (command, effect) in ORDER_EFFECTS {
        let (_, sample) = SAMPLES.iter().find(|(own, _)| own == command).expect(command);
        if sample.is_empty() {
            continue;
        }
        let query = format!("source=numbers | sort - n | {sample} | fields n");
        let (status, answer) = ask(&store, &store.session, &query).await;
        if status != 200 {
            failed.push(format!("{query}: {answer}"));
            continue;
        }
        let rows = answer["datarows"].as_array().unwrap();
        let numbers: Vec<i64> = rows.iter().filter_map(|row| row[0].as_i64()).collect();
        if *effect == OrderEffect::Keeps
            && !(numbers.len() > 1 && numbers.is_sorted_by(|one, next| one >= next))
        {
            failed.push(format!("{query}: {answer}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Pipelines over numbers below ten, by the position in which a command reads them.
const POSITIONS: &[&str] = &[
    "source=numbers | fields n",
    "source=numbers | stats count() by n | fields n",
    "source=numbers | where n in [ source=numbers | fields n ] | fields n",
    "source=numbers | join left=l right=r on l.n = r.n numbers | fields n",
    "source=numbers | lookup numbers n | fields n",
    "source=[ source=numbers | eval m = n ] | fields n",
    "source=numbers | where n < 0 | append [ source=numbers ] | fields n",
    "source=numbers | where n < 0 | appendpipe [ fields n ] | append [ source=numbers ] | fields n",
    "source=numbers | eventstats max(n) as m | where n <= m | fields n",
    "source=numbers | where (n, n) in [ source=numbers | eval m = n | fields n, m ] | fields n",
    "source=numbers | head 1 | graphlookup numbers start=n edge=n-->n filter=(n >= 0) maxdepth=0 as g | append [ source=numbers | where n > 0 ] | fields n",
    "source=numbers | eval total = n | foreach mode=multivalue n [ eval total = total + <<ITEM>> ] | fields total",
];

#[tokio::test]
async fn every_scan_of_a_pipeline_keeps_the_rules_of_its_reader() {
    let store = crate::sql_bounds::numbers(20).await;
    let few = rights(Some(r#"{"range":{"n":{"lt":10}}}"#), None);
    let blind = rights(None, Some("m"));
    for query in POSITIONS {
        let restricted = session(&store, Action::Sql, [&few, &few], 0);
        let (status, answer) = ask(&store, &restricted, query).await;
        assert_eq!(status, 200, "{query}: {answer}");
        let rows = answer["datarows"].as_array().unwrap().iter();
        let mut numbers: Vec<i64> = rows.map(|row| row[0].as_i64().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<i64>>(), "{query}");
        let blind = session(&store, Action::Sql, [&blind, &blind], 0);
        let (status, answer) = ask(&store, &blind, query).await;
        assert_eq!(status, 400, "{query}: {answer}");
    }
}

#[tokio::test]
async fn equal_statements_have_equal_plans() {
    let store = crate::sql_bounds::numbers(10).await;
    let (mut compared, mut failed) = (0, Vec::new());
    for pair in include_str!("pairs.txt").split("\n\n").skip(1) {
        let (statement, pipeline) = pair.trim().split_once('\n').expect(pair);
        let body = Some(json!({"query": statement}));
        let sql = store.service.explain_sql(&store.session, Vec::new(), body).await;
        let OutcomeBody::Json(sql) = sql.body else { panic!("{statement}") };
        let body = Some(json!({"query": pipeline}));
        let ppl = store.service.explain_ppl(&store.session, Vec::new(), body).await;
        let OutcomeBody::Json(ppl) = ppl.body else { panic!("{pipeline}") };
        let is_equal = match sql["Logical Plan"].as_array() {
            Some(lines) => {
                let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
                ppl["calcite"]["logical"].as_str().map(str::trim_end) == Some(lines.join("\n").trim_end())
            }
            // The statement is a search, and so is the pipeline.
            None => ppl["request"] == sql,
        };
        compared += 1;
        if !is_equal {
            failed.push(format!("{pipeline}: {ppl} for {sql}"));
        }
    }
    assert!(failed.is_empty(), "{} of {compared}: {}", failed.len(), failed.join("\n"));
    assert!(compared >= 200, "{compared}");
}

#[tokio::test]
async fn formats_bounds_and_figures() {
    let store = people().await;
    let asked = |params: &[(&str, &str)], body: Value| {
        let params = owned(params);
        async { store.service.ppl(&store.session, params, Some(body)).await }
    };
    let query = "source=people | sort name | fields name, age";
    let csv = asked(&[("format", "csv")], json!({"query": query})).await;
    let OutcomeBody::Text(text) = csv.body else { panic!("no text") };
    assert!(std::str::from_utf8(&text).unwrap().starts_with("name,age\nAnn,34\n"));
    let viz = value(asked(&[("format", "viz")], json!({"query": query})).await);
    assert_eq!(viz["data"]["age"], json!([34, 28, 28, null, 41]));
    let cut = value(asked(&[], json!({"query": query, "fetch_size": 2})).await);
    assert_eq!((&cut["size"], &cut["schema"][0]["type"]), (&json!(2), &json!("string")));
    assert_eq!(asked(&[], json!({"query": query, "cursor": "x"})).await.status, 400);
    let OutcomeBody::Json(stats) = store.service.ppl_stats().body else { panic!("no figures") };
    assert_eq!(stats["ppl_request_count"], 4);
    // Pipes without end are refused or answered soon.
    let long = format!("source=people{}", " | where age > 1".repeat(1_000));
    let many = format!("source=people{}", " | eval a = age | sort a | head 3".repeat(60));
    for query in [long, many] {
        let status = asked(&[], json!({"query": query})).await.status;
        assert!(matches!(status, 200 | 400), "{status}");
    }
}
