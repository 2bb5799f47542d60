//! Statements as searches: the format `json`, and `_explain`.

use serde_json::{Map, Value, json};

use crate::fixture::{Store, value};
use crate::sql::{ask, people};

async fn native(store: &Store, query: &str) -> (u16, Value) {
    let (status, text) = ask(store, query, "json").await;
    (status, serde_json::from_str(&text).unwrap())
}

async fn explained(store: &Store, body: Value) -> Value {
    value(store.service.explain_sql(&store.session, Vec::new(), Some(body)).await)
}

#[tokio::test]
async fn the_format_json_is_the_answer_of_a_search() {
    let store = people().await;
    let native = async |query: &str| native(&store, query).await;
    let (_, answer) =
        native("SELECT name, p.age FROM people p WHERE age > 20 ORDER BY age DESC LIMIT 2").await;
    assert_eq!(answer["hits"]["total"], json!({"value": 3, "relation": "eq"}));
    let hits = answer["hits"]["hits"].as_array().unwrap();
    let sources: Vec<&Value> = hits.iter().map(|hit| &hit["_source"]).collect();
    assert_eq!(sources, [&json!({"name": "Cy", "age": 50}), &json!({"name": "Bob Ray", "age": 40})]);
    assert_eq!(hits[0]["sort"], json!([50]));
    let (_, answer) = native("SELECT * FROM people WHERE match(name, 'cy')").await;
    assert_eq!(answer["hits"]["hits"][0]["_source"]["balance"], -7);
    let (_, answer) = native("SELECT n FROM (SELECT name AS n FROM people WHERE age = 50) AS t").await;
    assert_eq!(answer["hits"]["hits"][0]["_source"], json!({"name": "Cy"}));
    let (_, answer) = native("SELECT COUNT(*), SUM(balance) AS s FROM people").await;
    assert_eq!(answer["aggregations"], json!({"COUNT(*)": {"value": 4}, "s": {"value": 343.0}}));
    let (_, answer) =
        native("SELECT city, age, MAX(score) FROM people GROUP BY city, age ORDER BY city DESC").await;
    let cities = answer["aggregations"]["city"]["buckets"].as_array().unwrap();
    assert_eq!((&cities[0]["key"], &cities[1]["key"]), (&json!("Rome"), &json!("Oslo")));
    assert_eq!(cities[0]["age"]["buckets"][0]["MAX(score)"]["value"], 1.5);
    let (_, answer) = native("SELECT COUNT(*) FROM people GROUP BY name").await;
    assert_eq!(answer["aggregations"]["name.keyword"]["buckets"].as_array().unwrap().len(), 3);
    let (_, answer) = native("SELECT DISTINCT city FROM people").await;
    assert_eq!(answer["aggregations"]["city"]["buckets"].as_array().unwrap().len(), 2);
    let (_, answer) = native("SELECT city c, COUNT(*) n FROM people GROUP BY city HAVING n > 1").await;
    let buckets = answer["aggregations"]["c"]["buckets"].as_array().unwrap();
    assert_eq!((buckets.len(), &buckets[0]["n"]["value"]), (1, &json!(2)));
    let (_, answer) = native("SELECT t.n AS many FROM (SELECT COUNT(*) AS n FROM people) t").await;
    assert_eq!(answer["aggregations"]["many"]["value"], 4);
    for refused in [
        "SELECT STDDEV(age) FROM people GROUP BY city",
        "SELECT UPPER(city), COUNT(*) FROM people GROUP BY UPPER(city)",
        "SELECT 1",
        "DESCRIBE TABLES LIKE people COLUMNS LIKE name",
    ] {
        let (status, answer) = native(refused).await;
        assert_eq!(
            (status, &answer["error"]["type"]),
            (400, &json!("SQLFeatureNotSupportedException")),
            "{refused}: {answer}"
        );
    }
    // Of the texts of an index none is too long for its keyword field, so LIKE has an exact search.
    let like =
        |index: &str| format!("SELECT city, COUNT(*) AS n FROM {index} WHERE name LIKE 'e%' GROUP BY city");
    let (status, answer) = native(&like("people")).await;
    assert_eq!(status, 400, "{answer}");
    let (_, answer) = native(&like("`people-2`")).await;
    assert_eq!(answer["aggregations"]["city"]["buckets"][0]["n"]["value"], 1, "{answer}");
    for statement in ["SHOW TABLES LIKE peo%", "DESCRIBE TABLES LIKE %"] {
        let (_, answer) = native(statement).await;
        let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(names, ["people", "people-2"], "{statement}");
        assert_eq!(answer["people"]["mappings"]["properties"]["age"]["type"], "integer");
    }
    assert_eq!(native("SELECT gone FROM people").await.0, 400);
    assert_eq!(native("SELECT a FROM gone").await.0, 404);
}

#[tokio::test]
async fn rows_that_no_search_answers_are_hits() {
    let store = people().await;
    let native = async |query: &str| native(&store, query).await.1;
    let join = "SELECT a.name, b.age AS years FROM people a JOIN people b ON a.age = b.age WHERE a.age > 30 ORDER BY a.age";
    let answer = native(join).await;
    assert_eq!(answer["hits"]["total"]["value"], 2);
    assert_eq!(answer["hits"]["hits"][0]["_source"], json!({"a.name": "Bob Ray", "years": 40}));
    let answer =
        native("WITH c AS (SELECT name FROM people ORDER BY age LIMIT 1) SELECT UPPER(name) AS u FROM c")
            .await;
    assert_eq!(answer["hits"]["hits"][0]["_source"], json!({"u": "ANN LEE"}));
    // A computed column is none of the document.
    let answer = native("SELECT age, age + 1 AS next FROM people WHERE age + 1 = 31").await;
    let hit = &answer["hits"]["hits"][0];
    assert_eq!((&hit["_source"], &hit["fields"]), (&json!({"age": 30}), &json!({"next": [31]})));
    assert_eq!(hit["_index"], "people");
    let answer = native("SELECT UPPER(city) FROM people WHERE age = 40").await;
    let hit = &answer["hits"]["hits"][0];
    assert_eq!(hit["fields"], json!({"UPPER(city)": ["OSLO"]}));
    assert_eq!(hit["_source"]["balance"], 250);
    let answer = native("SELECT * FROM people p WHERE age IN (SELECT age FROM `people-2`)").await;
    assert_eq!(answer["hits"]["hits"], json!([]));
    let answer = native("SELECT p.city FROM people p WHERE balance IN (SELECT 250 FROM `people-2`)").await;
    assert_eq!(answer["hits"]["hits"][0]["_source"], json!({"p.city": "Oslo"}));
    let answer =
        native("SELECT ISNULL(city) AS n, NULLIF(city, 'Oslo') AS c FROM people WHERE age = 40").await;
    assert_eq!(answer["hits"]["hits"][0]["fields"], json!({"n": [0], "c": [null]}));
    // Of `*` a row has what its documents have.
    let all = "SELECT a.age AS years, b.* FROM people a JOIN people b ON a.age = b.age WHERE a.age = 50";
    let answer = native(all).await;
    let source = answer["hits"]["hits"][0]["_source"].as_object().unwrap();
    assert_eq!(source.len(), 6, "{answer}");
    assert!(!source.keys().any(|name| name.contains("born") || name.contains("tags")), "{answer}");
    let operands =
        "SELECT name FROM people WHERE age > 30 LIMIT 1 UNION ALL SELECT name FROM people WHERE age = 30";
    assert_eq!(native(operands).await["hits"]["hits"].as_array().unwrap().len(), 2);
    let limited = "SELECT /*! JOIN_TABLES_LIMIT(2, null) */ a.age FROM people a JOIN people b";
    assert_eq!(native(limited).await["hits"]["total"]["value"], 8);
}

#[tokio::test]
async fn functions_of_searches_are_aggregations() {
    let store = people().await;
    let aggregations = async |query: &str| {
        let (status, answer) = native(&store, query).await;
        assert_eq!(status, 200, "{query}: {answer}");
        answer["aggregations"].clone()
    };
    let answer = aggregations(
        "SELECT COUNT(*) FROM people GROUP BY terms('field'='city','size'=5,'alias'='c','order'='desc')",
    )
    .await;
    assert_eq!(answer["c"]["buckets"][0]["key"], "Rome");
    let answer = aggregations("SELECT COUNT(*) AS n FROM people GROUP BY range(age, 20, 35, 60)").await;
    let buckets = &answer["range(age,20,35,60)"]["buckets"];
    assert_eq!((&buckets[0]["n"]["value"], &buckets[1]["n"]["value"]), (&json!(1), &json!(2)));
    let answer = aggregations(
        "SELECT COUNT(*) FROM people GROUP BY histogram('field'='age','interval'=20,'alias'='h')",
    )
    .await;
    assert_eq!(answer["h"]["buckets"][0]["key"], 20.0);
    let answer = aggregations(
        "SELECT COUNT(*) FROM people GROUP BY date_histogram('field'='born','interval'='1y','alias'='y')",
    )
    .await;
    assert_eq!(answer["y"]["buckets"].as_array().unwrap().len(), 11);
    let answer = aggregations(
        "SELECT COUNT(*) FROM people GROUP BY date_range(field='born','format'='yyyy','1970','1985','2000','alias'='d')",
    )
    .await;
    assert_eq!(answer["d"]["buckets"].as_array().unwrap().len(), 2);
    let answer =
        aggregations("SELECT AVG(balance) FROM people GROUP BY filter('adults', age > 35), missing(score)")
            .await;
    let adults = &answer["adults@FILTER"];
    assert_eq!(
        (&adults["doc_count"], &adults["missing(score)"]["AVG(balance)"]["value"]),
        (&json!(2), &json!(250.0))
    );
    let answer =
        aggregations("SELECT topHits('size'=1, age='desc', 'include'='name') FROM people GROUP BY city")
            .await;
    let hits = &answer["city"]["buckets"][0]["topHits(size=1,age=desc,include=name)"]["hits"]["hits"];
    assert_eq!(hits[0]["_source"], json!({"name": "Cy"}));
    let answer = aggregations("SELECT STATS(age), PERCENTILES(age, 50.0) AS p FROM people").await;
    assert_eq!((&answer["STATS(age)"]["max"], &answer["p"]["values"]["50.0"]), (&json!(50.0), &json!(40.0)));
    let answer = aggregations(
        "SELECT COUNT(*) AS n, SUM(reverse_nested(age)) AS s FROM people GROUP BY nested(pets.kind), filter('f', pets.kind = 'cat')",
    )
    .await;
    let cats = &answer["pets.kind@NESTED"]["f@FILTER"]["pets.kind"]["buckets"];
    assert_eq!((&cats[0]["key"], &cats[0]["n"]["value"]), (&json!("cat"), &json!(1)), "{answer}");
    assert_eq!(cats[0]["age@NESTED"]["s"]["value"], 30.0, "{answer}");
    let answer = aggregations("SELECT COUNT(nested(pets.kind)) AS n FROM people").await;
    assert_eq!(answer["pets.kind@NESTED"]["n"]["value"], 2, "{answer}");
    // Plans of rows have no such functions, but statistics are columns.
    let grouped = "SELECT COUNT(*) FROM people GROUP BY range(age, 20, 35)";
    let (status, text) = ask(&store, grouped, "jdbc").await;
    assert!(status == 400 && text.contains("[json]"), "{text}");
    let statistics =
        "SELECT STATS(age), PERCENTILES(age, 50.0) AS p, EXTENDED_STATS(age) FROM people WHERE age < 45";
    let (_, text) = ask(&store, statistics, "csv").await;
    let names = "STATS(age).count,STATS(age).sum,STATS(age).avg,STATS(age).min,STATS(age).max,p.50.0";
    assert!(text.starts_with(names), "{text}");
    assert!(text.ends_with("\n2,70,35.0,30,40,35,2,70,35.0,30,40,2500.0,25.0,5.0\n"), "{text}");
    let (_, answer) =
        native(&store, "SELECT name FROM people WHERE age = in_terms(30, 50) ORDER BY age").await;
    assert_eq!(answer["hits"]["hits"][1]["_source"]["name"], "Cy");
    let (_, answer) = native(&store, "SELECT /*! DOCS_WITH_AGGREGATION(2) */ COUNT(*) FROM people").await;
    assert_eq!(answer["hits"]["hits"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn groups_over_elements_are_nested_aggregations() {
    let store = people().await;
    let aggregations = async |query: &str| native(&store, query).await.1["aggregations"].clone();
    let all = aggregations(
        "SELECT e.name, COUNT(p) AS c FROM people e, e.pets p GROUP BY e.name HAVING COUNT(*) > 0 ORDER BY e.name",
    )
    .await;
    let buckets = all["name.keyword"]["buckets"].as_array().unwrap();
    let rows =
        ask(&store, "SELECT e.name, COUNT(p) FROM people e, e.pets p GROUP BY e.name ORDER BY e.name", "csv");
    let shown = buckets
        .iter()
        .map(|bucket| format!("{},{}", bucket["key"].as_str().unwrap(), bucket["pets@NESTED"]["c"]["value"]));
    let shown: Vec<String> = shown.collect();
    let (_, rows) = rows.await;
    assert_eq!(shown, rows.lines().skip(1).collect::<Vec<_>>());
    let cats = aggregations(
        "SELECT e.name, MAX(p.kind) AS most FROM people e, e.pets p WHERE p.kind = 'cat' GROUP BY e.name",
    )
    .await;
    assert_eq!(cats, Value::Null, "the greatest text is no aggregation: {cats}");
    let cats = aggregations(
        "SELECT e.name FROM people e, e.pets p WHERE p.kind = 'cat' GROUP BY e.name HAVING COUNT(p) > 0",
    )
    .await;
    let filtered = &cats["name.keyword"]["buckets"][0]["pets@NESTED"]["pets@FILTER"];
    assert_eq!((&filtered["doc_count"], &filtered["count_0"]["value"]), (&json!(1), &json!(1)), "{cats}");
    let kinds = aggregations("SELECT p.kind, COUNT(*) AS n FROM people e, e.pets p GROUP BY p.kind").await;
    let kinds = kinds["pets.kind@NESTED"]["pets.kind"]["buckets"].as_array().unwrap();
    assert!(kinds.iter().all(|bucket| bucket["n"]["value"] == bucket["doc_count"]), "{kinds:?}");
    // An element cannot meet a condition on its document, and sums of documents count those with several elements anew.
    for rows in [
        "SELECT p.kind, COUNT(*) FROM people e, e.pets p WHERE e.age > 40 OR p.kind = 'cat' GROUP BY p.kind",
        "SELECT SUM(e.age) FROM people e, e.pets p",
        "SELECT p.kind, e.name, COUNT(*) FROM people e, e.pets p GROUP BY p.kind, e.name",
        "SELECT e.name, COUNT(p) FROM people e LEFT JOIN e.pets p GROUP BY e.name",
    ] {
        let (status, answer) = native(&store, rows).await;
        assert_eq!((status, &answer["aggregations"]), (200, &Value::Null), "{rows}: {answer}");
    }
}

#[tokio::test]
async fn a_statement_is_explained_as_the_search_that_it_is() {
    let store = people().await;
    let explained = async |query: &str| explained(&store, json!({"query": query})).await;
    assert_eq!(
        explained("SELECT name AS n, age FROM people WHERE age > 30 ORDER BY age LIMIT 5, 10").await,
        json!({
            "from": 5,
            "size": 10,
            "query": {"bool": {"filter": [{"bool": {"must": [
                {"range": {"age": {"from": 30, "to": null, "include_lower": false, "include_upper": true}}},
            ]}}]}},
            "_source": {"includes": ["name", "age"], "excludes": []},
            "sort": [{"age": {"order": "asc"}}],
        })
    );
    let by_id = explained("SELECT age FROM people WHERE _id = 'x' AND _index IN ('people', 'p')").await;
    let ids = json!([{"term": {"_id": {"value": "x"}}}, {"terms": {"_index": ["people", "p"]}}]);
    assert_eq!(by_id["query"], json!({"bool": {"filter": [{"bool": {"must": ids}}]}}));
    assert_eq!(explained("SELECT * FROM people").await, json!({"from": 0, "size": 200}));
    assert_eq!(
        explained("SELECT city FROM people GROUP BY city").await["aggregations"],
        json!({"city": {"terms": {
            "field": "city",
            "size": 200,
            "min_doc_count": 1,
            "shard_min_doc_count": 0,
            "show_term_doc_count_error": false,
            "order": [{"_count": "desc"}, {"_key": "asc"}],
        }}})
    );
    let deletion = explained("DELETE FROM people WHERE age = 3").await;
    assert_eq!((&deletion["size"], &deletion["_source"]), (&json!(1000), &json!(false)));
    let join =
        explained("SELECT a.name FROM people a JOIN people b ON a.age = b.age WHERE b.city = 'Oslo'").await;
    assert!(join["description"].as_str().unwrap().contains("a join"), "{join}");
    assert!(join["Physical Plan"].to_string().contains("HashJoinExec"), "{join}");
    let requests = join["Requests"].as_array().unwrap();
    assert_eq!((requests.len(), &requests[1]["request"]["size"]), (2, &json!(10_000)));
    assert!(requests[1]["request"]["query"].to_string().contains("Oslo"), "{join}");
    for (query, reason) in [
        ("SELECT age + 1 FROM people", "expression in SELECT"),
        ("SELECT age FROM people WHERE age + 1 = 3", "condition"),
        ("SELECT RANK() OVER (ORDER BY age) FROM people", "window"),
        ("SELECT age FROM people UNION SELECT balance FROM people", "set operation"),
        ("SELECT age FROM (SELECT age FROM people LIMIT 2) AS t WHERE age > 3", "LIMIT"),
        ("SELECT city, COUNT(*) FROM people GROUP BY ROLLUP (city)", "ROLLUP"),
        ("SELECT e.kind FROM people p, p.pets e", "each element"),
        ("SELECT SUM(p.age) FROM people p, p.pets e WHERE e.kind = 'cat'", "documents over their elements"),
        ("SELECT e.kind, p.age, COUNT(*) FROM people p, p.pets e GROUP BY e.kind, p.age", "key of documents"),
        ("SELECT COUNT(*) FROM people GROUP BY CAST(score AS LONG)", "expression in GROUP BY"),
        ("SELECT SUM(CAST(score AS LONG)) FROM people", "aggregate of an expression"),
        ("SELECT age FROM people ORDER BY CAST(score AS LONG)", "expression in ORDER BY"),
        (
            "SELECT COUNT(*) FROM people GROUP BY city HAVING CAST(AVG(score) AS LONG) = 0",
            "condition on groups",
        ),
        ("SELECT HIGHLIGHT(name) FROM people WHERE match(name, 'ann')", "highlight"),
        ("SELECT COUNT(home) FROM people", "object [home]"),
        ("SELECT COUNT(pets.kind) FROM people", "nested path"),
        ("SELECT age FROM people LIMIT 20000", "LIMIT beyond 10000"),
        ("SELECT age FROM people LIMIT 9999, 2", "LIMIT beyond 10000"),
        ("SELECT UPPER(nested(pets.kind)) AS k, COUNT(*) FROM people GROUP BY nested(pets.kind)", "DSL"),
    ] {
        let plans = explained(query).await;
        assert!(plans["description"].as_str().unwrap().contains(reason), "{query}: {plans}");
        assert!(plans["Logical Plan"].is_array(), "{plans}");
    }
    let unknown = explained("SELECT gone FROM people").await;
    assert_eq!(
        unknown["error"]["details"],
        "can't resolve Symbol(namespace=FIELD_NAME, name=gone) in type env"
    );
    let paged = json!({"query": "SELECT city FROM people GROUP BY city", "fetch_size": 1});
    let paged = self::explained(&store, paged).await;
    assert_eq!(paged["aggregations"]["city"]["terms"]["size"], 10_000);
}

#[tokio::test]
async fn indices_that_differ_sort_alike_or_not_at_all() {
    let store = people().await;
    let mappings = json!({"mappings": {"properties": {"name": {"type": "keyword"}}}});
    store.create("names", &mappings).await;
    store.index("names", &[json!({"name": "Zoe"})]).await;
    let by_age = explained(&store, json!({"query": "SELECT name FROM people,names ORDER BY age"})).await;
    assert_eq!(by_age["sort"], json!([{"age": {"order": "asc", "unmapped_type": "integer"}}]));
    assert!(store.search("people,names", &[], by_age).await.is_ok());
    let by_name = explained(&store, json!({"query": "SELECT age FROM people,names ORDER BY name"})).await;
    assert!(by_name["description"].as_str().unwrap().contains("[name]"), "{by_name}");
    let (status, answer) = native(&store, "SELECT name FROM people,names ORDER BY name DESC LIMIT 1").await;
    assert_eq!((status, &answer["hits"]["hits"][0]["_source"]["name"]), (200, &json!("Zoe")), "{answer}");
}

#[tokio::test]
async fn keys_of_elements_stand_in_select() {
    let store = people().await;
    let query = "SELECT nested(pets.kind) AS kind, COUNT(*) AS n FROM people GROUP BY nested(pets.kind) ORDER BY kind";
    let (status, answer) = native(&store, query).await;
    let buckets = &answer["aggregations"]["pets.kind@NESTED"]["kind"]["buckets"];
    assert_eq!(
        (status, &buckets[1]["key"], &buckets[1]["n"]["value"]),
        (200, &json!("dog"), &json!(1)),
        "{answer}"
    );
    let search = explained(&store, json!({"query": query})).await;
    assert!(search["aggregations"]["pets.kind@NESTED"].is_object(), "{search}");
    let (_, text) = ask(&store, query, "csv").await;
    assert_eq!(text, "kind,n\ncat,1\ndog,1\n");
    let back = "SELECT COUNT(*) AS n FROM people GROUP BY nested(pets.kind), filter('f', pets.kind = 'cat'), reverse_nested(age)";
    let (status, answer) = native(&store, back).await;
    let ages =
        &answer["aggregations"]["pets.kind@NESTED"]["f@FILTER"]["pets.kind"]["buckets"][0]["age@NESTED"];
    assert_eq!((status, &ages["age"]["buckets"][0]["n"]["value"]), (200, &json!(1)), "{answer}");
}

#[tokio::test]
async fn highlights_are_columns_of_hits() {
    let store = people().await;
    let query = "SELECT HIGHLIGHT(name) AS h FROM people WHERE match(name, 'ann')";
    let (status, answer) = native(&store, query).await;
    let fields = &answer["hits"]["hits"][0]["fields"];
    assert_eq!((status, fields), (200, &json!({"h": ["<em>Ann</em> Lee"]})), "{answer}");
}

/// Reads the rows of a search: columns of hits, or keys and values of buckets.
fn rows_of(answer: &Value, columns: &[String]) -> Vec<Value> {
    let mut rows = Vec::new();
    if let Some(aggregations) = answer.get("aggregations") {
        add_groups(aggregations, &mut Map::new(), columns, &mut rows);
        return rows;
    }
    for hit in answer["hits"]["hits"].as_array().unwrap() {
        let cell = |name: &String| {
            let member = hit.get(name).filter(|_| name.starts_with('_'));
            member.unwrap_or(&hit["_source"][name]).clone()
        };
        rows.push(columns.iter().map(cell).collect());
    }
    rows
}

fn add_groups(level: &Value, known: &mut Map<String, Value>, columns: &[String], rows: &mut Vec<Value>) {
    let members = level.as_object().unwrap();
    for (name, member) in members {
        if let Some(value) = member.get("value") {
            known.insert(name.clone(), value.clone());
        }
    }
    let inner = members.iter().find_map(|(name, member)| Some((name, member.get("buckets")?.as_array()?)));
    match inner {
        None => {
            let cell = |name: &String| {
                let known = known.get(name).or_else(|| known.get(&format!("{name}.keyword")));
                known.cloned().unwrap_or_default()
            };
            rows.push(columns.iter().map(cell).collect());
        }
        Some((name, buckets)) => {
            for bucket in buckets {
                known.insert(name.clone(), bucket["key"].clone());
                add_groups(bucket, known, columns, rows);
            }
        }
    }
}

/// Writes numbers alike, and lists of one value as the value.
fn plain(row: &Value) -> String {
    let cell = |cell: &Value| match cell {
        Value::Number(number) => format!("{:.3}", number.as_f64().unwrap()),
        Value::Array(values) if values.is_empty() => "null".to_owned(),
        other => other.to_string(),
    };
    row.as_array().unwrap().iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// The search that `_explain` shows has the rows of the statement.
#[tokio::test]
async fn the_search_that_is_shown_has_the_rows_of_the_statement() {
    let store = people().await;
    let filter = json!({"range": {"balance": {"gte": -5}}});
    for query in [
        "SELECT name, age, city FROM people",
        "SELECT name FROM people WHERE age >= 30 AND city <> 'Oslo'",
        "SELECT name FROM people WHERE NOT (age = 30 OR city = 'Oslo')",
        "SELECT name FROM people WHERE city IS NULL OR age > 45",
        "SELECT name, balance FROM people WHERE balance NOT IN (100, -7) ORDER BY balance DESC",
        "SELECT name FROM people WHERE city LIKE '%O%' AND NOT active = true",
        "SELECT name, tags FROM people WHERE tags = 'x' ORDER BY tags DESC, name",
        "SELECT age, name FROM people ORDER BY age DESC, name LIMIT 1, 2",
        "SELECT age, name FROM people ORDER BY age NULLS FIRST, name",
        "SELECT name, _score FROM people WHERE match(name, 'ann ray') AND age > 20 ORDER BY _score DESC, name",
        "SELECT name, _score FROM people WHERE match(name, 'ann') OR age = 50 ORDER BY _score DESC, name",
        "SELECT name, _score FROM people WHERE score(match_query(name, 'ann'), 3) ORDER BY _score DESC",
        "SELECT name, _score FROM people WHERE match(name, 'ann ray') ORDER BY age",
        "SELECT _id, name FROM people WHERE born < '1985-01-01'",
        "SELECT t.name FROM (SELECT name, age FROM people WHERE city = 'Rome') AS t WHERE t.age > 30",
        "SELECT name FROM people WHERE home.ip = '10.0.0.1'",
        "SELECT COUNT(*), SUM(balance), MIN(age), MAX(score), AVG(age), COUNT(city) FROM people WHERE balance > -50",
        "SELECT COUNT(DISTINCT city) FROM people",
        "SELECT city, COUNT(*) FROM people WHERE city IS NOT NULL GROUP BY city",
        "SELECT city, age, SUM(balance) FROM people WHERE city IS NOT NULL AND age > 0 GROUP BY city, age ORDER BY city, age",
        "SELECT tags, COUNT(*) FROM people WHERE tags IS NOT NULL GROUP BY tags",
        "SELECT city, COUNT(*) AS n FROM people WHERE city IS NOT NULL GROUP BY city HAVING n > 1 AND MAX(age) < 60",
        "SELECT city, AVG(age) AS a FROM people WHERE city IS NOT NULL GROUP BY city ORDER BY a DESC LIMIT 1, 1",
        "SELECT city, COUNT(*) FROM people WHERE city IS NOT NULL GROUP BY city HAVING MAX(score) <> 9",
        "SELECT city, COUNT(*) FROM people WHERE city IS NOT NULL GROUP BY city HAVING NOT (MAX(score) > 9)",
        "SELECT city, COUNT(*) FROM people WHERE city IS NOT NULL GROUP BY city HAVING SUM(score) < 10 OR COUNT(*) > 5",
        "SELECT city, COUNT(*) FROM people WHERE city IS NOT NULL GROUP BY city HAVING NOT (SUM(score) + 1 > 10 AND COUNT(*) > 0)",
        "SELECT city, SUM(score) AS s, COUNT(score) AS s_values FROM people WHERE city IS NOT NULL GROUP BY city HAVING s < 10",
        "SELECT city, age, COUNT(*) FROM people WHERE age > 0 GROUP BY city, age HAVING MIN(age) > 45 ORDER BY city, age LIMIT 1",
        "SELECT DISTINCT city FROM people WHERE city IS NOT NULL",
        "SELECT name FROM people WHERE name IS NOT NULL AND age > 0 GROUP BY name",
    ] {
        for filter in [None, Some(&filter)] {
            let mut body = json!({"query": query});
            if let Some(filter) = filter {
                body["filter"] = filter.clone();
            }
            let search = explained(&store, body.clone()).await;
            assert!(search.get("description").is_none(), "{query}: {search}");
            let answer = store.search("people", &[], search.clone()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{query}: {error}: {search}"));
            let statement = value(store.service.sql(&store.session, Vec::new(), Some(body)).await);
            let columns = statement["schema"].as_array().unwrap_or_else(|| panic!("{query}: {statement}"));
            let name =
                |column: &Value| column.get("alias").unwrap_or(&column["name"]).as_str().unwrap().to_owned();
            let columns: Vec<String> = columns.iter().map(name).collect();
            let expected = statement["datarows"].as_array().unwrap().iter();
            let mut expected: Vec<String> = expected.map(plain).collect();
            let mut found: Vec<String> = rows_of(&answer, &columns).iter().map(plain).collect();
            if !query.contains("ORDER BY") {
                expected.sort();
                found.sort();
            }
            assert_eq!(found, expected, "{query}: {search}");
        }
    }
}

#[tokio::test]
async fn plans_of_statements_are_answers() {
    let store = people().await;
    let rows = async |query: &str| crate::sql::rows(&store, query).await;
    let plan = rows("EXPLAIN SELECT city, COUNT(*) FROM people WHERE age > 20 GROUP BY city").await;
    let text = |row: &Value| row[1].as_str().unwrap_or_default().to_owned();
    assert!(plan[0][0] == "search" && text(&plan[0]).contains("aggregations"), "{plan:?}");
    assert!(plan.iter().any(|row| row[0] == "logical" && text(row).contains("TableScan")), "{plan:?}");
    let operators = rows("EXPLAIN ANALYZE SELECT name FROM people WHERE age + 0 > 30").await;
    assert_eq!(operators[0][1], 2, "{operators:?}");
    let scan = operators.iter().find(|row| row[0].to_string().contains("ColumnsExec")).unwrap();
    assert!(scan[1] == 4 && scan[2].as_i64().unwrap() > 0, "{operators:?}");
    assert!(scan[5] == 4 && scan[6] == scan[7] && scan[7].as_i64().unwrap() > 0, "{operators:?}");
    let (status, text) = ask(&store, "EXPLAIN DELETE FROM people", "jdbc").await;
    assert!(status == 400 && text.contains("explained"), "{text}");
}
