//! Everything beside `_search` that asks the same snapshots, and what a search may ask beside its query.

use serde_json::{Value, json};

use crate::fixture::{Store, ids, owned, value};

async fn logs() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "message": {"type": "text"}, "status": {"type": "integer"}, "host": {"type": "keyword"},
        "at": {"type": "geo_point"}, "day": {"type": "date"}
    }}, "aliases": {"errors": {"filter": {"range": {"status": {"gte": 400}}}}}});
    store.create("logs", &mapping).await;
    let documents = [
        json!({"message": "disk full on node", "status": 500, "host": "a", "at": [1, 1], "day": "2024-01-01"}),
        json!({"message": "disk ok", "status": 200, "host": "b", "at": [[1, 2], [1, 4]], "day": "2024-01-02"}),
        json!({"message": "node joined", "status": 200, "day": "2024-01-03"}),
        json!({"message": "disk disk full", "status": 404, "host": "a", "at": "3,1", "day": "2024-01-04"}),
    ];
    store.index("logs", &documents).await;
    store.create("other", &json!({"mappings": {"properties": {"status": {"type": "keyword"}}}})).await;
    store.index("other", &[json!({"message": "disk", "status": "x"})]).await;
    store
}

/// The text of a refusal: its type and reason, and those of its first root cause.
fn refused(result: Result<Value, millrace_query::Error>) -> String {
    let error = result.unwrap_err();
    let Some(body) = error.to_body() else { return error.to_string() };
    let cause = &body["error"]["root_cause"][0];
    format!("{} {}: {}", body["status"], cause["type"].as_str().unwrap(), cause["reason"].as_str().unwrap())
}

#[tokio::test]
async fn filters_behind_the_query_take_part_in_totals() {
    let store = logs().await;
    let query = json!({"match": {"message": "disk"}});
    for (body, expected) in [
        (json!({"query": query, "post_filter": {"term": {"host": "a"}}}), vec!["4", "1"]),
        (json!({"post_filter": {"term": {"host": "a"}}}), vec!["1", "4"]),
        (json!({"post_filter": {"term": {"host": "a"}}, "sort": [{"status": "asc"}]}), vec!["4", "1"]),
        (json!({"query": query, "min_score": 0.35}), vec!["4", "2"]),
        (json!({"query": query, "min_score": 0.35, "sort": [{"status": "desc"}]}), vec!["4", "2"]),
        (json!({"min_score": 1.5}), vec![]),
    ] {
        let answer = store.search("logs", &[], body.clone()).await.unwrap();
        assert_eq!(ids(&answer), expected, "{body}");
        assert_eq!(answer["hits"]["total"]["value"], expected.len(), "{body}");
        let scored = answer["hits"]["hits"].as_array().unwrap().iter().all(|hit| hit["_score"] != 0.0);
        assert!(scored, "{body}");
    }
}

#[tokio::test]
async fn scores_are_given_again_and_weighed_by_index() {
    let store = logs().await;
    let rescore = |mode: &str, window: usize| {
        json!({
            "query": {"match": {"message": "disk"}},
            "rescore": {"window_size": window, "query": {
                "rescore_query": {"constant_score": {"filter": {"term": {"status": 500}}, "boost": 3}},
                "query_weight": 2, "score_mode": mode
            }}
        })
    };
    let first = store.search("logs", &[], json!({"query": {"match": {"message": "disk"}}})).await.unwrap();
    let score = |answer: &Value, at: usize| answer["hits"]["hits"][at]["_score"].as_f64().unwrap();
    let answer = store.search("logs", &[], rescore("total", 10)).await.unwrap();
    assert_eq!(ids(&answer), ["1", "4", "2"]);
    assert!((score(&answer, 0) - (2.0 * score(&first, 2) + 3.0)).abs() < 1e-5);
    assert!((score(&answer, 1) - 2.0 * score(&first, 0)).abs() < 1e-5);
    assert_eq!(answer["hits"]["max_score"], answer["hits"]["hits"][0]["_score"]);
    // Behind the window nothing is scored again, only weighed.
    assert_eq!(ids(&store.search("logs", &[], rescore("total", 1)).await.unwrap()), ["4", "2", "1"]);
    assert_eq!(
        refused(store.search("logs", &[], rescore("total", 10_001)).await),
        "400 illegal_argument_exception: Rescore window [10001] is too large. It must be less than [10000]. This prevents allocating massive heaps for storing the results to be rescored. This limit can be set by changing the [index.max_rescore_window] index level setting."
    );
    let mut sorted = rescore("max", 10);
    sorted["sort"] = json!("status");
    assert_eq!(
        refused(store.search("logs", &[], sorted).await),
        "400 illegal_argument_exception: Cannot use [sort] option in conjunction with [rescore]."
    );

    let body = json!({"indices_boost": [{"oth*": 5.0}, {"other": 0.5}]});
    let answer = store.search("logs,other", &[], body).await.unwrap();
    assert_eq!(
        (&answer["hits"]["hits"][0]["_index"], score(&answer, 0), score(&answer, 1)),
        (&json!("other"), 5.0, 1.0)
    );
}

#[tokio::test]
async fn several_searches_have_answers_of_their_own() {
    let store = logs().await;
    let header = |index: &str| json!({"index": index});
    let searches = vec![
        (header("logs"), json!({"query": {"term": {"host": "a"}}})),
        (header("missing"), json!({})),
        (header("logs"), json!({"query": {"term": {"status": "abc"}}})),
        (json!({"index": ["logs", "nope"], "ignore_unavailable": true}), json!({"size": 0})),
        (Value::Null, json!({"size": 0, "track_total_hits": 2})),
    ];
    let params = owned(&[("max_concurrent_searches", "2")]);
    let answer = store.service.multi_search(&store.session, "logs", params, searches).await;
    let answer = value(answer.unwrap());
    let responses = answer["responses"].as_array().unwrap();
    let statuses: Vec<u64> = responses.iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 404, 400, 200, 200]);
    assert_eq!(ids(&responses[0]), ["1", "4"]);
    assert_eq!(responses[1]["error"]["root_cause"][0]["index"], "missing");
    assert_eq!(responses[3]["hits"]["total"]["value"], 4);
    assert_eq!(responses[4]["hits"]["total"], json!({"value": 2, "relation": "gte"}));

    let ask = async |header: Value, body: Value| {
        let asked = store.service.multi_search(&store.session, "", Vec::new(), vec![(header, body)]).await;
        refused(asked.map(value))
    };
    assert_eq!(
        ask(json!({"scroll": "1m"}), json!({})).await,
        "400 illegal_argument_exception: key [scroll] is not supported in the metadata section"
    );
    assert_eq!(
        ask(Value::Null, json!({"foo": 1})).await,
        "400 parsing_exception: Unknown key for a VALUE_NUMBER in [foo]."
    );
}

#[tokio::test]
async fn points_in_time_outlive_what_happens_to_the_index() {
    let store = logs().await;
    let open = async |params: &[(&str, &str)]| {
        store.service.open_point_in_time(&store.session, "logs", owned(params), None).await.map(value)
    };
    assert_eq!(
        refused(open(&[]).await),
        "400 action_request_validation_exception: Validation Failed: 1: keep alive not specified;"
    );
    assert!(refused(open(&[("keep_alive", "2d")]).await).contains("[point_in_time.max_keep_alive]"));
    let opened = open(&[("keep_alive", "1m")]).await.unwrap();
    let id = opened["pit_id"].clone();
    store.write("logs", vec![("1".into(), None), ("2".into(), None)]).await;
    let indices =
        store.engine.resolve("logs", &millrace_catalog::metadata::IndicesOptions::open_only()).unwrap();
    store.engine.flush(&indices).await.unwrap();
    store.engine.force_merge(&indices, 1).await.unwrap();

    let body = json!({"pit": {"id": id, "keep_alive": "2m"}, "sort": "_doc"});
    let answer = store.search("", &[], body.clone()).await.unwrap();
    assert_eq!((ids(&answer).len(), &answer["pit_id"]), (4, &id));
    assert_eq!(ids(&store.search("logs", &[], json!({})).await.unwrap()).len(), 2);
    let mut seen = Vec::new();
    for slice in 0..2 {
        let mut body = body.clone();
        body["slice"] = json!({"id": slice, "max": 2});
        seen.extend(ids(&store.search("", &[], body).await.unwrap()));
    }
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4"]);
    assert_eq!(
        refused(store.search("logs", &[("routing", "a")], body.clone()).await),
        "400 action_request_validation_exception: Validation Failed: 1: [indices] cannot be used with point in time;2: [routing] cannot be used with point in time;"
    );

    let listed = value(store.service.list_points_in_time(&store.session, Vec::new()).await.unwrap());
    assert_eq!(listed["pits"][0]["keep_alive"], 120_000);
    let close = async |body: Value| {
        store.service.close_points_in_time(&store.session, false, Vec::new(), Some(body)).await.map(value)
    };
    assert_eq!(close(json!({"pit_id": [id]})).await.unwrap()["pits"][0]["successful"], true);
    assert_eq!(store.search("", &[], body).await.unwrap_err().status(), 404);
    assert!(refused(close(json!({})).await).ends_with("1: no pit ids specified;"));
}

#[tokio::test]
async fn queries_are_validated_and_shown_as_lucene_shows_them() {
    let store = logs().await;
    let validate = async |query: Value| {
        let params = owned(&[("explain", "true")]);
        let body = Some(json!({"query": query}));
        value(store.service.validate_query(&store.session, "logs", params, body).await.unwrap())
    };
    for (query, expected) in [
        (json!({"match_all": {}}), "*:*"),
        (json!({"match_all": {"boost": 2}}), "(*:*)^2.0"),
        (json!({"term": {"host": "a"}}), "host:a"),
        (
            json!({"term": {"status": 3}}),
            "IndexOrDocValuesQuery(indexQuery=status:[3 TO 3], dvQuery=status:[3 TO 3])",
        ),
        (json!({"terms": {"host": ["b", "a"]}}), "host:(a b)"),
        (json!({"match": {"message": "disk full"}}), "message:disk message:full"),
        (
            json!({"match": {"message": {"query": "disk full", "operator": "and"}}}),
            "+message:disk +message:full",
        ),
        (
            json!({"match": {"message": {"query": "a b c", "minimum_should_match": 2}}}),
            "(message:a message:b message:c)~2",
        ),
        (json!({"prefix": {"host": "ab"}}), "host:ab*"),
        (json!({"exists": {"field": "host"}}), "ConstantScore(FieldExistsQuery [field=host])"),
        (json!({"ids": {"values": ["1", "23"]}}), "_id:([fe 1f] [fe 23])"),
        (
            json!({"constant_score": {"filter": {"term": {"host": "a"}}, "boost": 2}}),
            "(ConstantScore(host:a))^2.0",
        ),
        (
            json!({"bool": {
                "must": [{"term": {"host": "a"}}, {"match": {"message": "x y"}}], "must_not": {"term": {"host": "z"}},
                "should": [{"term": {"host": "q"}}, {"term": {"host": "r"}}], "filter": {"range": {"status": {"gte": 1}}},
                "minimum_should_match": 1, "boost": 3
            }}),
            "((+host:a +(message:x message:y) -host:z host:q host:r #IndexOrDocValuesQuery(indexQuery=status:[1 TO 2147483647], dvQuery=status:[1 TO 2147483647]))~1)^3.0",
        ),
        (json!({"term": {"nope": 1}}), "MatchNoDocsQuery(\"User requested \"match_none\" query.\")"),
    ] {
        let answer = validate(query.clone()).await;
        assert_eq!(answer["explanations"][0]["explanation"], expected, "{query}");
    }
    let answer = validate(json!({"term": {"status": "abc"}})).await;
    assert_eq!(answer["valid"], false);
    let error = answer["explanations"][0]["error"].as_str().unwrap();
    assert!(
        error.ends_with("NumberFormatException[For input string: \"abc\"];; For input string: \"abc\""),
        "{error}"
    );
    let answer = validate(json!({"boool": {}})).await;
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .starts_with("ParsingException[unknown query [boool] did you mean [bool]?]")
    );
}

#[tokio::test]
async fn scores_are_explained_by_their_parts() {
    let store = logs().await;
    let explain = async |id: &str, query: Value| {
        let body = Some(json!({"query": query}));
        store.service.explain(&store.session, "logs", (None, id), Vec::new(), body).await.unwrap()
    };
    let query = json!({"bool": {
        "must": {"match": {"message": "disk full"}}, "filter": {"term": {"host": "a"}},
        "should": {"constant_score": {"filter": {"term": {"status": 404}}, "boost": 2}},
        "must_not": {"term": {"host": "z"}}
    }});
    let found = store.search("logs", &[], json!({"query": query, "explain": true})).await.unwrap();
    for hit in found["hits"]["hits"].as_array().unwrap() {
        let (explained, score) =
            (hit["_explanation"]["value"].as_f64().unwrap(), hit["_score"].as_f64().unwrap());
        assert!((explained - score).abs() < 1e-6, "{hit}");
        assert_eq!(hit["_shard"], "[logs][0]");
    }
    let explained = value(explain("4", query.clone()).await);
    assert_eq!(explained["matched"], true);
    let details = &explained["explanation"]["details"];
    assert_eq!(details[0]["description"], "sum of:");
    assert_eq!(
        details[0]["details"][0]["description"],
        "weight(message:disk in 3) [PerFieldSimilarity], result of:"
    );
    assert_eq!(
        details[0]["details"][0]["details"][0]["description"],
        "score(freq=2.0), computed as boost * idf * tf from:"
    );
    assert_eq!(details[1]["value"], 2.0);
    assert_eq!(details[2]["details"][1]["description"], "host:a");

    let missed = value(explain("3", query).await);
    assert_eq!(missed["matched"], false);
    assert_eq!(missed["explanation"]["details"][1]["description"], "no match on required clause (host:a)");
    assert_eq!(explain("99", json!({"match_all": {}})).await.status, 404);
    let body = Some(json!({"query": {"match_all": {}}}));
    let asked = store.service.explain(&store.session, "errors", (None, "2"), Vec::new(), body).await;
    assert_eq!(value(asked.unwrap())["matched"], false, "the filter of an alias counts");
}

#[tokio::test]
async fn fields_are_listed_with_what_can_be_done_with_them() {
    let store = logs().await;
    let ask = async |params: &[(&str, &str)], body: Option<Value>| {
        value(store.service.field_caps(&store.session, "logs,other", owned(params), body).await.unwrap())
    };
    let answer = ask(&[("fields", "status,message,da*"), ("include_unmapped", "true")], None).await;
    assert_eq!(
        answer,
        json!({"indices": ["logs", "other"], "fields": {
            "day": {
                "date": {"type": "date", "searchable": true, "aggregatable": true, "indices": ["logs"]},
                "unmapped": {"type": "unmapped", "searchable": false, "aggregatable": false, "indices": ["other"]}
            },
            "message": {"text": {"type": "text", "searchable": true, "aggregatable": false}},
            "status": {
                "integer": {"type": "integer", "searchable": true, "aggregatable": true, "indices": ["logs"]},
                "keyword": {"type": "keyword", "searchable": true, "aggregatable": true, "indices": ["other"]}
            }
        }})
    );
    for (filter, expected) in [
        (json!({"range": {"day": {"gte": "2024-01-04"}}}), json!(["logs"])),
        (json!({"range": {"day": {"gte": "2025-01-01"}}}), json!([])),
        (json!({"match_all": {}}), json!(["logs", "other"])),
    ] {
        let answer = ask(&[("fields", "*")], Some(json!({"index_filter": filter}))).await;
        assert_eq!(answer["indices"], expected, "{filter}");
    }
}

#[tokio::test]
async fn sorts_take_points_small_numbers_and_all_places_of_the_missing() {
    let store = logs().await;
    let far = |mode: &str| json!({"_geo_distance": {"at": [1, 1], "unit": "km", "mode": mode}});
    for (sort, expected) in [
        (far("min"), json!([["1", 0.0], ["2", 111.195], ["4", 222.39], ["3", "Infinity"]])),
        (far("max"), json!([["1", 0.0], ["4", 222.39], ["2", 333.585], ["3", "Infinity"]])),
        (far("avg"), json!([["1", 0.0], ["2", 222.39], ["4", 222.39], ["3", "Infinity"]])),
        (
            json!({"nope": {"unmapped_type": "integer"}}),
            json!([["1", 2147483647], ["2", 2147483647], ["3", 2147483647], ["4", 2147483647]]),
        ),
        (json!({"host": {"missing": "aa"}}), json!([["1", "a"], ["4", "a"], ["3", "aa"], ["2", "b"]])),
        (
            json!({"day": {"order": "desc", "format": "yyyy/MM/dd"}}),
            json!([["4", "2024/01/04"], ["3", "2024/01/03"], ["2", "2024/01/02"], ["1", "2024/01/01"]]),
        ),
    ] {
        let answer = store.search("logs", &[], json!({"sort": [sort]})).await.unwrap();
        for (hit, expected) in
            answer["hits"]["hits"].as_array().unwrap().iter().zip(expected.as_array().unwrap())
        {
            assert_eq!(hit["_id"], expected[0], "{sort}");
            match (hit["sort"][0].as_f64(), expected[1].as_f64()) {
                (Some(actual), Some(expected)) => {
                    assert!((actual - expected).abs() < 0.01, "{sort}: {actual}")
                }
                _ => assert_eq!(hit["sort"][0], expected[1], "{sort}"),
            }
        }
    }
    let texts = [
        refused(store.search("logs", &[], json!({"sort": [far("sum")]})).await),
        refused(store.search("logs", &[], json!({"sort": {"status": {"missing": "abc"}}})).await),
        refused(store.search("logs", &[], json!({"sort": {"host": {"mode": "avg"}}})).await),
        refused(store.search("logs", &[], json!({"sort": {"host": {"order": "up"}}})).await),
        refused(store.search("logs", &[], json!({"sort": {"_script": {"script": "1"}}})).await),
        refused(store.search("logs", &[], json!({"search_after": [1], "sort": ["status"], "from": 1})).await),
        refused(store.search("logs", &[], json!({"slice": {"id": 0, "max": 2}})).await),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r#"
    400 illegal_argument_exception: sort_mode [sum] isn't supported for sorting by geo distance
    400 number_format_exception: For input string: "abc"
    400 query_shard_exception: we only support AVG, MEDIAN and SUM on number based fields
    400 x_content_parse_exception: [field_sort] failed to parse field [order]
    400 parsing_exception: [_script] sort is not supported: there are no scripts
    400 search_exception: `from` parameter must be set to 0 when `search_after` is used.
    400 search_exception: `slice` cannot be used outside of a scroll context or PIT context
    "#);
}

#[tokio::test]
async fn profiles_tell_the_plan_and_the_shards() {
    let store = logs().await;
    let body = json!({"query": {"term": {"host": "a"}}, "profile": true});
    let answer = store.search("logs", &[], body).await.unwrap();
    let shard = &answer["profile"]["shards"][0];
    assert!(shard["id"].as_str().unwrap().ends_with("[logs][0]"));
    let query = &shard["searches"][0]["query"][0];
    assert_eq!(query["description"], "host:a");
    assert!(query["breakdown"]["build_scorer_count"].as_u64().unwrap() > 0);
    let plan = answer["profile"]["plan"]["description"].to_string();
    assert!(plan.contains("IndexScanExec") && plan.contains("SortExec"), "{plan}");

    let body = json!({"size": 0, "profile": true, "aggs": {
        "hosts": {"terms": {"field": "host"}, "aggs": {"days": {"date_histogram": {"field": "day", "fixed_interval": "1d"}}}},
        "count": {"value_count": {"field": "host"}},
    }});
    let answer = store.search("logs", &[], body).await.unwrap();
    let measured = answer["profile"]["shards"][0]["aggregations"].as_array().unwrap();
    let names: Vec<&str> = measured.iter().map(|one| one["description"].as_str().unwrap()).collect();
    assert_eq!((names, &measured[0]["children"][0]["description"]), (vec!["hosts", "count"], &json!("days")));
    assert!(measured[0]["breakdown"]["collect_count"].as_u64().unwrap() > 0);
    assert!(measured[0]["time_in_nanos"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn shards_and_filters_of_expressions_decide_what_is_searched() {
    let store = logs().await;
    let found = async |expression: &str, params: &[(&str, &str)]| {
        let answer = store.search(expression, params, json!({"sort": "_doc"})).await.unwrap();
        (ids(&answer), answer["_shards"]["total"].as_u64().unwrap())
    };
    assert_eq!(found("errors", &[]).await, (vec!["1".into(), "4".into()], 1));
    assert_eq!(found("<errors>", &[]).await.0, ["1", "4"]);
    assert_eq!(found("err*", &[]).await.0, ["1", "4"]);
    assert_eq!(found("errors,logs", &[]).await.0.len(), 4);
    assert_eq!(found("*,-other", &[]).await.0.len(), 4);
    assert_eq!(found("logs", &[("preference", "_shards:7")]).await, (vec![], 0));
    assert_eq!(found("logs", &[("preference", "_shards:0|_local")]).await.0.len(), 4);
    let params = owned(&[("q", "*")]);
    let counted = store.service.count(&store.session, "errors", params, None).await.unwrap();
    assert_eq!(value(counted)["count"], 2);
    let body = json!({"size": 0, "query": {"range": {"day": {"gte": "2030-01-01"}}}});
    let answer = store.search("logs,other", &[("pre_filter_shard_size", "1")], body).await.unwrap();
    assert_eq!((&answer["_shards"]["skipped"], &answer["_shards"]["successful"]), (&json!(1), &json!(2)));
}
