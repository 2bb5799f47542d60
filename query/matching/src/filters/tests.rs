use std::sync::LazyLock;

use bytes::Bytes;
use millrace_catalog::access::DocumentRule;
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_runtime::Compute;
use millrace_work::QueryContext;
use serde_json::{Map, Value, json};

use super::*;

static COMPUTE: LazyLock<Compute> = LazyLock::new(|| Compute::start(1).unwrap());

fn meta() -> Arc<IndexMeta> {
    Arc::new(IndexMeta {
        name: "logs".into(),
        uuid: uuid::Uuid::nil(),
        settings: Map::new(),
        aliases: [("errors".to_owned(), json!({"filter": {"term": {"level": "error"}}}))].into(),
        open: true,
        created_ms: 0,
        shards: 1,
        replicas: 0,
        doc_type: None,
    })
}

fn mapping() -> Mapping {
    let body = json!({"properties": {
        "message": {"type": "text"}, "level": {"type": "keyword"}, "size": {"type": "long"},
        "ratio": {"type": "double"}, "at": {"type": "date"}, "ip": {"type": "ip"},
        "validity": {"type": "date_range"}, "severity": {"type": "alias", "path": "level"}, "labels": {"type": "flat_object"},
        "items": {"type": "nested", "properties": {"name": {"type": "keyword"}, "count": {"type": "integer"}}}
    }});
    Mapping::parse(&body, &Map::new()).unwrap()
}

fn whole() -> Arc<IndexView> {
    Arc::new(IndexView::whole(meta(), Arc::new(mapping())))
}

fn arrival(row: usize, source: &Value, now_ms: i64) -> ArrivedDocument {
    let (id, source) = (row.to_string().into(), Bytes::from(source.to_string()));
    ArrivedDocument { id, source, seq_no: row as u64, routing: None, now_ms }
}

fn arrivals(count: usize) -> Vec<ArrivedDocument> {
    let messages = ["disk full", "disk ok", "node joined", "node left the cluster", "disk failed on node"];
    let (levels, names) = (["info", "warn", "error"], ["x", "y"]);
    let document = |row: usize| {
        json!({
            "message": messages[row % messages.len()], "level": levels[row % levels.len()], "size": row * 7 % 100,
            "ratio": row as f64 / 8.0 - 3.0, "at": 1_700_000_000_000_i64 + row as i64 * 60_000,
            "ip": format!("10.0.{}.{}", row % 3, row % 50), "labels": {"team": names[row % 2]},
            "items": [{"name": names[row % 2], "count": row}]
        })
    };
    (0..count).map(|row| arrival(row, &document(row), 1_700_000_000_000)).collect()
}

fn compiled(queries: &[Value], view: &Arc<IndexView>) -> Vec<Arc<Filter>> {
    let filter = |query: &Value| Arc::new(Filter::compile(&json!({"query": query}), view).unwrap());
    queries.iter().map(filter).collect()
}

/// The rows of each filter.
fn rows(matcher: &Matcher, filters: usize, batch: &Batch) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new(); filters];
    for found in matcher.run(batch, &QueryContext::default()).unwrap() {
        all[found.filter] = found.rows.unwrap().into_iter().collect();
    }
    all
}

fn matched(query: Value, view: &Arc<IndexView>, arrivals: &[ArrivedDocument]) -> Vec<u32> {
    let matcher = Matcher::new(&compiled(&[query], view));
    let batch = Batch::build(view.mapping(), arrivals, matcher.fields(), COMPUTE.clone()).unwrap();
    let found = rows(&matcher, 1, &batch).remove(0);
    let own = matcher.batch(view.mapping(), arrivals, &COMPUTE).unwrap();
    assert_eq!(rows(&matcher, 1, &own).remove(0), found);
    found
}

#[test]
fn many_filters_find_what_each_finds_alone() {
    let (disk, error) = (json!({"match": {"message": "disk"}}), json!({"term": {"level": "error"}}));
    let small = json!({"range": {"size": {"lt": 20}}});
    let gone = json!({"term": {"level": "gone"}});
    let queries = [
        json!({"match_all": {}}),
        json!({"match_none": {}}),
        disk.clone(),
        small.clone(),
        gone.clone(),
        json!({"bool": {"must": [disk, error], "must_not": small}}),
        json!({"bool": {"should": [disk, error, small], "minimum_should_match": 2}}),
        json!({"bool": {"should": [disk, {"bool": {"must": [small, error]}}]}}),
        json!({"bool": {"must_not": [disk]}}),
        json!({"bool": {"should": [disk], "filter": [{"ids": {"values": ["1", "5", "7"]}}]}}),
        json!({"boosting": {"positive": disk, "negative": error, "negative_boost": 0.5}}),
        json!({"dis_max": {"queries": [error, small]}}),
        json!({"function_score": {"query": error, "weight": 2}}),
        json!({"match_phrase": {"message": "disk failed"}}),
        json!({"match_phrase_prefix": {"message": "node le"}}),
        json!({"query_string": {"query": "message:(dis* AND full) OR size:[90 TO *]"}}),
        json!({"query_string": {"query": "cluster"}}),
        json!({"fuzzy": {"message": "disc"}}),
        json!({"wildcard": {"level": "*rro*"}}),
        json!({"wildcard": {"severity": {"value": "*RRO*", "case_insensitive": true}}}),
        json!({"regexp": {"message": "clus?ter"}}),
        json!({"prefix": {"message": "clu"}}),
        json!({"term": {"ratio": -0.5}}),
        json!({"range": {"ratio": {"gte": -0.0, "lt": 1.0}}}),
        json!({"term": {"ip": "10.0.1.0/24"}}),
        json!({"range": {"level": {"gt": "info"}}}),
        json!({"term": {"labels.team": "x"}}),
        json!({"exists": {"field": "nothing"}}),
        json!({"exists": {"field": "labels"}}),
        json!({"nested": {"path": "items", "query": {"term": {"items.name": "y"}}}}),
        json!({"nested": {"path": "items", "query": {"range": {"items.count": {"gte": 50, "lt": 55}}}}}),
        json!({"bool": {"must_not": {"nested": {"path": "items", "query": {"term": {"items.name": "y"}}}}}}),
        json!({"range": {"at": {"gte": "2023-11-14T22:20:00Z", "lt": "2023-11-14T22:30:00Z"}}}),
        json!({"bool": {"filter": [gone, {"range": {"size": {"gte": 80}}}]}}),
        json!({"terms": {"size": [7, 14, 15, 1000]}}),
        json!({"range": {"_seq_no": {"gte": 295}}}),
    ];
    let view = whole();
    let (arrivals, filters) = (arrivals(300), compiled(&queries, &view));
    let all = Matcher::new(&filters);
    let batch = Batch::build(view.mapping(), &arrivals, all.fields(), COMPUTE.clone()).unwrap();
    let found = rows(&all, queries.len(), &batch);
    let own = all.batch(view.mapping(), &arrivals, &COMPUTE).unwrap();
    assert_eq!(rows(&all, queries.len(), &own), found);
    let everything = Batch::build(view.mapping(), &arrivals, &Fields::all(), COMPUTE.clone()).unwrap();
    let unpruned = rows(&Matcher::new(&filters).without_pruning(), queries.len(), &everything);
    for ((query, found), unpruned) in queries.iter().zip(&found).zip(unpruned) {
        assert_eq!(*found, unpruned, "{query}");
        assert_eq!(*found, matched(query.clone(), &view, &arrivals), "{query}");
    }
    let counts: Vec<usize> = found.iter().map(Vec::len).collect();
    let empty: Vec<usize> = (0..).zip(&counts).filter(|(_, count)| **count == 0).map(|(at, _)| at).collect();
    assert_eq!(empty, [1, 4, 27, 33], "{counts:?}");
    assert_eq!((counts[0], counts[2], counts[22]), (300, 180, 1));
}

#[test]
fn only_filters_of_what_a_batch_has_are_asked() {
    let level = |at: usize| json!({"term": {"level": format!("level-{at}")}});
    let queries: Vec<Value> = (0..4_000)
        .map(|at| match at % 8 {
            0 => level(at),
            1 => json!({"bool": {"filter": [level(at), {"range": {"size": {"gte": at}}}]}}),
            2 => json!({"match_phrase": {"message": format!("disk sd{at} failed")}}),
            3 => json!({"wildcard": {"level": format!("*{at}-oops*")}}),
            4 => json!({"range": {"size": {"gte": 1_000 + at, "lt": 1_010 + at}}}),
            5 => json!({"term": {"ip": format!("192.168.{}.0/24", at % 250)}}),
            6 => json!({"query_string": {"query": format!("level:level-{at} AND message:disk")}}),
            _ => {
                json!({"nested": {"path": "items", "query": {"term": {"items.name": format!("name-{at}")}}}})
            }
        })
        .chain([json!({"term": {"level": "error"}}), json!({"bool": {"must_not": level(0)}})])
        .collect();
    let view = whole();
    let matcher = Matcher::new(&compiled(&queries, &view));
    let batch = Batch::build(view.mapping(), &arrivals(100), matcher.fields(), COMPUTE.clone()).unwrap();
    let found = matcher.run(&batch, &QueryContext::default()).unwrap();
    assert_eq!(found.iter().map(|own| own.filter).collect::<Vec<_>>(), [4_000, 4_001]);
    assert_eq!(matcher.asked(&batch, &QueryContext::default()).unwrap(), 2);
    let own = matcher.batch(view.mapping(), &arrivals(100), &COMPUTE).unwrap();
    assert_eq!(matcher.run(&own, &QueryContext::default()).unwrap().len(), 2);
    assert_eq!((own.rows(), matcher.asked(&own, &QueryContext::default()).unwrap()), (100, 2));
}

#[test]
fn nothing_is_indexed_for_filters_that_match_everything() {
    let (view, arrivals) = (whole(), arrivals(20));
    let all = json!({"match_all": {}});
    let every = [all.clone(), json!({"bool": {"filter": [all, {"match_all": {}}]}})];
    let some =
        [json!({"term": {"level": "error"}}), json!({"bool": {"must_not": {"term": {"level": "error"}}}})];
    for (queries, parts) in [(every.to_vec(), 0), ([&every[..], &some[..]].concat(), 2), (some.to_vec(), 2)] {
        let matcher = Matcher::new(&compiled(&queries, &view));
        let batch = matcher.batch(view.mapping(), &arrivals, &COMPUTE).unwrap();
        assert_eq!((batch.parts.len(), batch.rows()), (parts, 20));
        let whole = Batch::build(view.mapping(), &arrivals, matcher.fields(), COMPUTE.clone()).unwrap();
        let found = rows(&matcher, queries.len(), &batch);
        assert_eq!(found, rows(&matcher, queries.len(), &whole));
    }
    let none = Matcher::new(&[]).batch(view.mapping(), &[], &COMPUTE).unwrap();
    assert!(Matcher::new(&[]).run(&none, &QueryContext::default()).unwrap().is_empty());
}

#[test]
fn now_is_the_time_of_each_document() {
    let hour = 3_600_000;
    let at = |row: usize, age_ms: i64| {
        let now_ms = 1_700_000_000_000 + row as i64 * 24 * hour;
        arrival(row, &json!({"at": now_ms - age_ms, "level": "error"}), now_ms)
    };
    let arrivals = [at(0, 0), at(1, 2 * hour), at(2, hour / 2), at(3, 3 * hour)];
    let view = whole();
    let recent = json!({"range": {"at": {"gte": "now-1h"}}});
    assert_eq!(matched(recent.clone(), &view, &arrivals), [0, 2]);
    assert_eq!(matched(json!({"bool": {"must_not": recent}}), &view, &arrivals), [1, 3]);
    let both = json!({"query_string": {"query": "level:error AND at:[now-150m TO now-10m]"}});
    assert_eq!(matched(both, &view, &arrivals), [1, 2]);
    // There is no such time yet, and there was none, at others that `now` may be.
    let so_far = json!({"range": {"at": {"gte": "2023-11-12||/d", "lt": "now-1h"}}});
    assert_eq!(matched(so_far, &view, &arrivals), [1, 3]);
    let from_now = json!({"range": {"at": {"gte": "now-1h", "lt": "2023-11-15T12:00:00Z"}}});
    assert_eq!(matched(from_now, &view, &arrivals), [0]);
    // Their batches do not matter.
    assert_eq!(matched(recent, &view, &arrivals[1..3]), [1]);
}

#[test]
fn ranges_of_a_filter_may_end_now_or_begin_now() {
    let at = |row: usize, now_ms: i64, from: &str, to: &str| {
        arrival(row, &json!({"validity": {"gte": from, "lte": to}}), now_ms)
    };
    let (now_ms, later_ms) = (1_700_000_000_000, 2_051_222_400_000);
    let arrivals = [
        at(0, now_ms, "2022-01-01", "2022-06-01"),
        at(1, now_ms, "2023-02-01", "2023-03-01"),
        at(2, now_ms, "2024-01-01", "2025-01-01"),
        at(3, later_ms, "2024-01-01", "2025-01-01"),
        at(4, later_ms, "2020-01-01", "2040-01-01"),
    ];
    let view = whole();
    let so_far = json!({"range": {"validity": {"gte": "2023-01-01", "lte": "now"}}});
    assert_eq!(matched(so_far.clone(), &view, &arrivals), [1, 3, 4]);
    // In 2035, no time is between the two.
    let from_now = json!({"range": {"validity": {"gte": "now", "lte": "2030-01-01"}}});
    assert_eq!(matched(from_now.clone(), &view, &arrivals), [2]);
    assert_eq!(matched(json!({"bool": {"must_not": from_now}}), &view, &arrivals), [0, 1, 3, 4]);
    for relation in ["contains", "within"] {
        let never = json!({"range": {"validity": {"gt": "now", "lt": "now-1h", "relation": relation}}});
        assert_eq!(matched(never, &view, &arrivals), Vec::<u32>::new(), "{relation}");
    }
    // The first ten days of a month have no such time.
    let this_month =
        json!({"range": {"validity": {"gte": "now/M+10d", "lte": "now", "relation": "contains"}}});
    assert_eq!(matched(this_month, &view, &arrivals), Vec::<u32>::new());
    let narrowed = |rule: &Value| {
        let documents = vec![DocumentRule::new(vec![rule.to_string().into()])];
        Arc::new(IndexView::under(meta(), Arc::new(mapping()), documents, Vec::new()).unwrap())
    };
    assert_eq!(matched(json!({"match_all": {}}), &narrowed(&so_far), &arrivals), [1, 3, 4]);
    assert_eq!(matched(json!({"match_all": {}}), &narrowed(&from_now), &arrivals), [2]);
    let fixed = json!({"query": {"range": {"validity": {"gte": "2030-01-01", "lte": "2023-01-01"}}}});
    let refused = Filter::compile(&fixed, &view).unwrap_err();
    assert!(refused.reason().contains("is greater than `to` value"), "{refused}");
}

#[test]
fn a_filter_matches_what_its_owner_may_see() {
    let (meta, mapping) = (meta(), Arc::new(mapping()));
    let team_x = vec![DocumentRule::new(vec![json!({"term": {"labels.team": "x"}}).to_string().into()])];
    let rules = FieldRules::new(&["*"], &["level", "labels"]);
    let fields = vec![Arc::new(rules)];
    let owner = IndexView::under(Arc::clone(&meta), Arc::clone(&mapping), team_x, fields).unwrap();
    let (owner, all, arrivals) = (Arc::new(owner), whole(), arrivals(12));
    let disk = json!({"match": {"message": "disk"}});
    assert_eq!(matched(disk.clone(), &all, &arrivals), [0, 1, 4, 5, 6, 9, 10, 11]);
    assert_eq!(matched(disk, &owner, &arrivals), [0, 4, 6, 10]);
    // A field that is hidden does not match, also where another's filter asks the same.
    let error = json!({"term": {"level": "error"}});
    let asked = std::slice::from_ref(&error);
    let filters = [compiled(asked, &owner), compiled(asked, &all)].concat();
    let matcher = Matcher::new(&filters);
    let batch = Batch::build(&mapping, &arrivals, matcher.fields(), COMPUTE.clone()).unwrap();
    assert_eq!(rows(&matcher, 2, &batch), [vec![], vec![2, 5, 8, 11]]);

    // Which words are the nearest ones is known of an index, not of a document: nobody is to see more by a filter.
    let chosen = json!({"fuzzy": {"message": "disc"}});
    let by_words = vec![DocumentRule::new(vec![chosen.to_string().into()])];
    let under = IndexView::under(Arc::clone(&meta), Arc::clone(&mapping), by_words, Vec::new()).unwrap();
    let refused = Filter::compile(&json!({"query": {"match_all": {}}}), &Arc::new(under)).unwrap_err();
    assert!(refused.reason().contains("chosen among those of all documents"), "{refused}");
    assert!(Filter::compile(&json!({"query": chosen}), &all).is_ok(), "one's own words may be");

    let through_alias = IndexView::whole(meta, mapping).named_by(&["errors".to_owned()]).unwrap();
    assert_eq!(matched(json!({"match_all": {}}), &Arc::new(through_alias), &arrivals), [2, 5, 8, 11]);
}

#[test]
fn a_filter_that_fails_does_so_alone() {
    let wide = json!({"intervals": {"message": {"wildcard": {"pattern": "*", "max_expansions": 2}}}});
    let view = whole();
    let matcher = Matcher::new(&compiled(&[wide, json!({"term": {"level": "error"}})], &view));
    let batch = Batch::build(view.mapping(), &arrivals(10), matcher.fields(), COMPUTE.clone()).unwrap();
    let found = matcher.run(&batch, &QueryContext::default()).unwrap();
    assert!(found[0].rows.as_ref().unwrap_err().to_string().contains("too many terms"), "{found:?}");
    assert_eq!(found[1].rows.as_ref().unwrap().len(), 3);
    let ended = QueryContext::default();
    ended.stop().time_out();
    assert!(matches!(matcher.run(&batch, &ended), Err(millrace_work::error::Error::TimedOut)));
}

#[test]
fn a_filter_is_compiled_anew_where_a_field_that_it_names_changed() {
    let before = whole();
    let later = before
        .mapping()
        .merge(&json!({"properties": {
            "level": {"type": "keyword", "ignore_above": 100}, "labels_of_host": {"type": "keyword"},
            "host": {"properties": {"name": {"type": "keyword"}}}
        }}))
        .unwrap();
    let later = Arc::new(IndexView::whole(meta(), Arc::new(later)));
    let changes = Changes::between(&before, &later);
    let needs = |query: Value, view: &Arc<IndexView>, changes: &Changes| {
        compiled(&[query], view).remove(0).needs_recompile(changes)
    };
    let changed = [
        json!({"term": {"level": "error"}}),
        json!({"term": {"severity": "error"}}),
        json!({"exists": {"field": "host"}}),
        json!({"term": {"host.name": "a"}}),
        json!({"exists": {"field": "lev*"}}),
        json!({"multi_match": {"query": "a", "fields": ["message", "level"]}}),
        json!({"multi_match": {"query": "a"}}),
        json!({"query_string": {"query": "a"}}),
        json!({"query_string": {"query": "size:1 AND (message:b OR _exists_:host)"}}),
        json!({"simple_query_string": {"query": "a"}}),
        json!({"bool": {"must_not": [{"nested": {"path": "items", "query": {"term": {"level": "a"}}}}]}}),
        json!({"function_score": {"query": {"match_all": {}}, "functions": [
            {"filter": {"term": {"level": "a"}}, "weight": 2}
        ]}}),
    ];
    for query in changed {
        let own = needs(query.clone(), &before, &changes);
        // What lowering leaves out is not named.
        assert_eq!(own, query.get("function_score").is_none(), "{query}");
    }
    let unchanged = [
        json!({"match_all": {}}),
        json!({"term": {"size": 1}}),
        json!({"term": {"labels.team": "x"}}),
        json!({"match": {"message": "level"}}),
        json!({"wildcard": {"message": "*a*"}}),
        json!({"query_string": {"query": "size:1 AND message:(b OR c)"}}),
        json!({"query_string": {"query": "a b", "fields": ["message"]}}),
        json!({"nested": {"path": "items", "query": {"term": {"items.name": "a"}}}}),
    ];
    let other = Arc::new(
        IndexView::under(meta(), Arc::clone(before.mapping()), vec![DocumentRule::default()], Vec::new())
            .unwrap(),
    );
    for query in unchanged {
        assert!(!needs(query.clone(), &before, &changes), "{query}");
        assert!(needs(query, &before, &Changes::between(&before, &other)));
    }
    assert!(Changes::between(&before, &before).is_empty());
}

#[test]
fn a_batch_is_bounded() {
    let view = whole();
    let large = json!({"message": "x".repeat(Batch::MAX_BYTES / 2)});
    let arrivals: Vec<ArrivedDocument> = (0..3).map(|row| arrival(row, &large, 0)).collect();
    assert_eq!(Batch::fitting(&arrivals), 1);
    assert_eq!(Batch::fitting(&[]), 0);
    assert!(Batch::build(view.mapping(), &arrivals, &Fields::all(), COMPUTE.clone()).is_err());
    let small = vec![arrival(0, &json!({}), 0); Batch::MAX_ROWS + 1];
    assert_eq!(Batch::fitting(&small), Batch::MAX_ROWS);
}

#[test]
fn indices_of_equal_mappings_have_filters_in_common_unless_these_ask_which_index_it_is() {
    let other = |mapping: Mapping, settings: Value| {
        let settings = settings.as_object().unwrap().clone();
        let meta = IndexMeta { name: "other".into(), settings, ..IndexMeta::clone(&meta()) };
        IndexView::whole(Arc::new(meta), Arc::new(mapping))
    };
    let own = whole();
    assert!(own.is_like(&other(mapping(), json!({"index.creation_date": "17", "index.uuid": "u"}))));
    assert!(!own.is_like(&other(mapping(), json!({"index.max_regex_length": "7"}))));
    let grown = mapping().merge(&json!({"properties": {"host": {"type": "keyword"}}})).unwrap();
    assert!(!own.is_like(&other(grown, json!({}))));
    let restricted = IndexView::under(
        meta(),
        Arc::new(mapping()),
        vec![millrace_catalog::access::DocumentRule::default()],
        Vec::new(),
    )
    .unwrap();
    assert!(!own.is_like(&restricted));
    let queries = [
        json!({"term": {"level": "error"}}),
        json!({"query_string": {"query": "disk AND level:err*"}}),
        json!({"term": {"_index": "logs"}}),
        json!({"query_string": {"query": "_index:logs"}}),
        json!({"query_string": {"query": "_ind\\*:logs"}}),
    ];
    let filters = compiled(&queries, &own);
    let alike: Vec<bool> = filters.iter().map(|filter| filter.is_of_any_index()).collect();
    assert_eq!(alike, [true, true, false, false, false]);
    assert!(filters.iter().all(|filter| filter.weight() > 0));
    // Filters of one are asked of documents of the other.
    let matcher = Matcher::new(&filters[..1]);
    let view = Arc::new(other(mapping(), json!({})));
    let batch = matcher.batch(view.mapping(), &arrivals(9), &COMPUTE).unwrap();
    assert_eq!(rows(&matcher, 1, &batch), [[2, 5, 8]]);
}
