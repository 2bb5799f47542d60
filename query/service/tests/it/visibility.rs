//! What a role shows: every kind of request answers as over an index that holds nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_query::OutcomeBody;
use millrace_storage::access::{self, Action, ActionSet, Caller, FieldRules, Grant, NamePattern, Privileges};
use millrace_storage::{Action as Operation, Principal, RefreshPolicy, Session, Update, WriteOp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Store, ids, value};
use crate::sql_batches::alike;

/// What a role shows.
#[derive(Clone, Debug)]
struct Role {
    documents: Option<Value>,
    grant: Vec<&'static str>,
    except: Vec<&'static str>,
}

impl Role {
    fn fields(&self) -> FieldRules {
        FieldRules::new(&self.grant, &self.except)
    }

    fn session(&self, store: &Store, action: Action) -> Session {
        let fields = (self.grant != ["*"] || !self.except.is_empty()).then(|| Arc::new(self.fields()));
        let grant = Grant {
            names: vec![NamePattern::parse("logs").unwrap()],
            actions: ActionSet::named(|name| name.starts_with("indices:data/")),
            system: false,
            documents: self.documents.as_ref().map(|rule| rule.to_string().into()),
            fields,
        };
        let privileges = Arc::new(Privileges::new(ActionSet::NONE, vec![grant]));
        let principal = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
        Session::new(&store.engine, principal, action).unwrap()
    }
}

fn mapping() -> Value {
    json!({"dynamic": false, "properties": {
        "tenant": {"type": "keyword"},
        "level": {"type": "keyword"},
        "n": {"type": "long"},
        "at": {"type": "date"},
        "msg": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "secret": {"type": "keyword"},
        "obj": {"properties": {"a": {"type": "keyword"}, "b": {"type": "keyword"}}},
        "nest": {"type": "nested", "properties": {"k": {"type": "keyword"}, "v": {"type": "long"}}},
    }})
}

fn document() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["alpha", "beta", "gamma", "delta"]);
    let words = || prop::collection::vec(word(), 1..4).prop_map(|words| words.join(" "));
    (prop::sample::select(vec!["a", "b", "c"]), word(), words(), word(), 0_u64..5, prop::option::of(word()))
        .prop_map(|(tenant, level, msg, secret, v, b)| {
            let mut document = json!({"tenant": tenant, "level": level, "msg": msg, "secret": secret,
                "at": 1_700_000_000_000_u64 + v * 3_600_000, "obj": {"a": level},
                "nest": [{"k": secret, "v": v}, {"k": level, "v": v + 1}], "unmapped": secret});
            if let Some(b) = b {
                document["obj"]["b"] = json!(b);
            }
            document
        })
}

fn role() -> impl Strategy<Value = Role> {
    let documents = prop::sample::select(vec![
        None,
        Some(json!({"term": {"tenant": "a"}})),
        Some(json!({"bool": {"must_not": [{"term": {"secret": "alpha"}}]}})),
        Some(json!({"match": {"msg": "beta"}})),
        Some(json!({"nested": {"path": "nest", "query": {"term": {"nest.k": "gamma"}}}})),
        Some(json!({"match_none": {}})),
    ]);
    let fields = prop::sample::select(vec![
        (vec!["*"], vec![]),
        (vec!["*"], vec!["secret", "obj.b", "unmapped", "nest.v"]),
        (vec!["n", "level", "msg", "obj", "at"], vec!["msg.raw"]),
        (vec!["n", "t*", "nest.k", "level"], vec![]),
    ]);
    (documents, fields).prop_map(|(documents, (grant, except))| Role { documents, grant, except })
}

/// Searches of every kind; scores do not count in them.
fn searches() -> Vec<Value> {
    let sort = json!([{"n": "asc"}]);
    let filters = [
        json!({"match_all": {}}),
        json!({"term": {"tenant": "b"}}),
        json!({"term": {"secret": "alpha"}}),
        json!({"match": {"msg": "alpha gamma"}}),
        json!({"query_string": {"query": "alpha OR level:beta"}}),
        json!({"exists": {"field": "obj.b"}}),
        json!({"exists": {"field": "secret"}}),
        json!({"wildcard": {"msg.raw": "al*"}}),
        json!({"range": {"n": {"gte": 3, "lt": 20}}}),
        json!({"nested": {"path": "nest", "ignore_unmapped": true, "query": {"range": {"nest.v": {"gte": 3}}}}}),
        json!({"ids": {"values": ["1", "2", "3", "4"]}}),
        json!({"terms": {"level": {"index": "logs", "id": "2", "path": "secret"}}}),
        json!({"bool": {"must_not": [{"match_phrase": {"msg": "alpha beta"}}]}}),
    ];
    let mut searches: Vec<Value> = filters
        .into_iter()
        .map(|filter| json!({"query": {"bool": {"filter": [filter]}}, "sort": sort, "size": 100, "track_total_hits": true,
            "fields": ["*"], "docvalue_fields": ["level", "secret"]}))
        .collect();
    let aggregations = [
        json!({"x": {"terms": {"field": "level", "min_doc_count": 0, "size": 50}}}),
        json!({"x": {"terms": {"field": "secret", "size": 50}}}),
        json!({"x": {"cardinality": {"field": "msg.raw"}}}),
        json!({"x": {"date_histogram": {"field": "at", "fixed_interval": "1h"}, "aggs": {"s": {"sum": {"field": "n"}}}}}),
        json!({"x": {"stats": {"field": "n"}}}),
        json!({"x": {"missing": {"field": "obj.b"}}}),
        json!({"x": {"filters": {"filters": {"a": {"term": {"level": "beta"}}, "b": {"term": {"secret": "beta"}}}}}}),
        json!({"x": {"nested": {"path": "nest"}, "aggs": {"k": {"terms": {"field": "nest.k"}}, "v": {"max": {"field": "nest.v"}}}}}),
        json!({"x": {"global": {}, "aggs": {"l": {"terms": {"field": "level"}}, "n": {"value_count": {"field": "n"}}}}}),
        json!({"x": {"composite": {"sources": [{"l": {"terms": {"field": "level"}}}], "size": 50}}}),
        json!({"x": {"top_hits": {"sort": [{"n": "asc"}], "size": 3}}}),
        json!({"x": {"terms": {"field": "level"}, "aggs": {"t": {"top_hits": {"sort": [{"n": "asc"}], "size": 2}}}}}),
    ];
    for aggregation in aggregations {
        for query in [json!({"match_all": {}}), json!({"term": {"level": "alpha"}})] {
            searches.push(json!({"size": 0, "query": query, "aggs": aggregation, "track_total_hits": true}));
        }
    }
    searches.push(json!({"sort": sort, "collapse": {"field": "level", "inner_hits": {"name": "i", "sort": [{"n": "asc"}]}}}));
    searches.push(
        json!({"sort": [{"secret": {"order": "asc", "unmapped_type": "keyword"}}, {"n": "desc"}], "size": 5}),
    );
    searches.push(json!({"sort": sort, "query": {"bool": {"filter": {"match": {"msg": "alpha"}}}},
        "highlight": {"fields": {"msg": {}, "secret": {}}}}));
    searches
}

const STATEMENTS: [&str; 11] = [
    "SELECT COUNT(*) FROM logs",
    "SELECT level, COUNT(*) AS c FROM logs GROUP BY level ORDER BY level",
    "SELECT MIN(n), MAX(n), AVG(n) FROM logs",
    "SELECT n, level FROM logs WHERE n > 2 ORDER BY n LIMIT 7",
    "SELECT * FROM logs ORDER BY n LIMIT 5",
    "SELECT n FROM logs WHERE level IN (SELECT level FROM logs WHERE n < 5) ORDER BY n",
    "SELECT a.n FROM logs a JOIN logs b ON a.n = b.n ORDER BY a.n",
    "SELECT COUNT(DISTINCT level) FROM logs",
    "SELECT n, secret FROM logs WHERE secret = 'alpha' ORDER BY n",
    "SELECT n FROM logs WHERE msg LIKE '%alpha%' ORDER BY n",
    "DESCRIBE TABLES LIKE logs",
];

/// Leaves out what two stores may say differently of the same documents.
fn comparable(mut answer: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for name in
                    ["took", "_score", "max_score", "_seq_no", "_version", "_primary_term", "_scroll_id"]
                {
                    members.remove(name);
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut answer);
    answer
}

async fn stores(documents: &[Value], role: &Role) -> (Store, Store) {
    let (whole, alone) = (Store::open().await, Store::open().await);
    whole.create("logs", &json!({"mappings": mapping()})).await;
    let writes = |documents: &[Value]| -> Vec<(String, Option<Value>)> {
        let numbered = documents.iter().enumerate();
        numbered
            .map(|(at, document)| {
                let mut document = document.clone();
                document["n"] = json!(at);
                (at.to_string(), Some(document))
            })
            .collect()
    };
    let all = writes(documents);
    // In two segments, one of them stored, with a deletion.
    let half = all.len() / 2;
    whole.write("logs", all[..half].to_vec()).await;
    whole.engine.flush(&[whole.engine.index("logs").unwrap()]).await.unwrap();
    whole.write("logs", all[half..].to_vec()).await;
    whole.write("logs", vec![("0".to_owned(), None)]).await;
    // What of it the role shows, found without its rule.
    let query = role.documents.clone().unwrap_or(json!({"match_all": {}}));
    let found = whole.search("logs", &[], json!({"query": query, "size": 1000})).await.unwrap();
    let visible = ids(&found);
    let rules = [Arc::new(role.fields())];
    let view = whole.engine.index("logs").unwrap().mapping().seen_under(rules.to_vec());
    alone.create("logs", &json!({"mappings": view.to_json()})).await;
    let kept = all.into_iter().filter(|(id, _)| visible.contains(id));
    let kept = kept.map(|(id, source)| (id, source.map(|source| access::shown(source, &rules)))).collect();
    alone.write("logs", kept).await;
    (whole, alone)
}

async fn sql(store: &Store, session: &Session, statement: &str) -> Value {
    match store.service.sql(session, Vec::new(), Some(json!({"query": statement}))).await.body {
        OutcomeBody::Json(value) => value,
        OutcomeBody::Raw(bytes) | OutcomeBody::Text(bytes) => serde_json::from_slice(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn compare(documents: Vec<Value>, role: Role) {
    let (whole, alone) = stores(&documents, &role).await;
    let ruled = |action| role.session(&whole, action);
    let session = ruled(Action::Search);
    for body in searches() {
        let expected = alone.search("logs", &[], body.clone()).await;
        let found = whole.service.search(&session, "logs", Vec::new(), Some(body.clone())).await.map(value);
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(comparable(found), comparable(expected), "{role:?} {body}");
            }
            (Err(expected), Err(found)) => {
                assert_eq!(found.reason(), expected.reason(), "{role:?} {body}");
            }
            (expected, found) => panic!("{role:?} {body}: {found:?} and not {expected:?}"),
        }
    }
    for statement in STATEMENTS {
        let expected = sql(&alone, &alone.session, statement).await;
        let found = sql(&whole, &ruled(Action::Sql), statement).await;
        alike(&whole, &ruled(Action::Sql), statement).await;
        assert_eq!(comparable(found), comparable(expected), "{role:?} {statement}");
    }
    let caps = |store: &Store, session: Session| {
        let service = store.service.field_caps(&session, "logs", vec![("fields".into(), "*".into())], None);
        futures::executor::block_on(service).map(value).unwrap()
    };
    assert_eq!(
        caps(&whole, ruled(Action::FieldCaps)),
        caps(&alone, alone.session.doing(Action::FieldCaps).unwrap()),
        "{role:?}"
    );
    let rules = [Arc::new(role.fields())];
    for id in 0..documents.len() {
        let id = id.to_string();
        let expected = alone.session.get("logs", &id, None, true).await.unwrap();
        let found = ruled(Action::Get).get("logs", &id, None, true).await.unwrap();
        let sources = |doc: Option<millrace_storage::StoredDoc>| {
            let source = doc.map(|doc| serde_json::from_slice::<Value>(&doc.source).unwrap());
            source.map(|source| access::shown(source, &rules))
        };
        assert_eq!(sources(found), sources(expected), "{role:?} {id}");
    }
    whole.engine.shutdown().await.unwrap();
    alone.engine.shutdown().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 30, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_an_index_of_what_is_shown(
        documents in prop::collection::vec(document(), 2..40),
        role in role(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(compare(documents, role));
    }
}

fn operation(id: &str, action: Operation) -> WriteOp {
    WriteOp {
        index: "logs".into(),
        id: Some(id.to_owned()),
        routing: None,
        action,
        version: None,
        if_seq_no: None,
        if_primary_term: None,
        require_alias: false,
        doc_type: "_doc".into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_documents_are_not_overwritten() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    let (own, foreign) = (json!({"tenant": "a", "n": 1}), json!({"tenant": "b", "n": 2}));
    store
        .write_unseen("logs", vec![("own".into(), Some(own)), ("foreign".into(), Some(foreign.clone()))])
        .await;
    let role = Role { documents: Some(json!({"term": {"tenant": "a"}})), grant: vec!["*"], except: vec![] };
    let session = role.session(&store, Action::Bulk);
    let source = || Bytes::from_static(b"{\"tenant\":\"a\"}");
    let update = || {
        let update = Update { doc: Some(json!({"n": 9})), detect_noop: true, ..Update::default() };
        Operation::Update(Box::new(update))
    };
    for (id, action, expected) in [
        ("own", Operation::Index(source()), "Updated"),
        ("own", update(), "Updated"),
        ("foreign", Operation::Index(source()), "unauthorized"),
        ("foreign", update(), "unauthorized"),
        ("foreign", Operation::Delete, "unauthorized"),
        ("new", Operation::Index(source()), "Created"),
        ("absent", update(), "document missing"),
        ("absent", Operation::Delete, "document missing"),
        ("own", Operation::Delete, "Deleted"),
    ] {
        let ops = vec![operation(id, action)];
        let outcome = session.write(ops, RefreshPolicy::None, Duration::from_secs(5)).await.unwrap();
        let said = match outcome.into_iter().next().unwrap() {
            Ok(done) => format!("{:?}", done.result),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{id}: {said}");
    }
    let kept = store.session.get("logs", "foreign", None, true).await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&kept.source).unwrap(), foreign);
    // By id, too, what was just written is seen under the rule.
    let reads = role.session(&store, Action::Get);
    assert!(reads.get("logs", "foreign", None, true).await.unwrap().is_none());
    assert!(reads.get("logs", "new", None, true).await.unwrap().is_some());
    store.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_end_with_the_roles_that_opened_them() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    let documents: Vec<Value> = (0..10).map(|n| json!({"tenant": "a", "n": n})).collect();
    store.index("logs", &documents).await;
    let role = |rule: Option<Value>| Role { documents: rule, grant: vec!["*"], except: vec![] };
    let (before, after) = (role(None), role(Some(json!({"term": {"tenant": "a"}}))));
    let params = vec![("scroll".to_owned(), "1m".to_owned())];
    let body = json!({"size": 2, "sort": ["n"]});
    let session = before.session(&store, Action::Search);
    let first = value(store.service.search(&session, "logs", params, Some(body)).await.unwrap());
    let next = json!({"scroll_id": first["_scroll_id"], "scroll": "1m"});
    let page = |role: &Role| {
        let session = role.session(&store, Action::Scroll);
        let next = next.clone();
        let service = &store.service;
        async move { service.scroll(&session, "", Vec::new(), Some(next)).await.map(value) }
    };
    assert_eq!(page(&before).await.unwrap()["hits"]["hits"].as_array().unwrap().len(), 2);
    let refused = page(&after).await.unwrap_err();
    assert_eq!(refused.status(), 403);
    assert!(refused.reason().contains("roles have changed"), "{}", refused.reason());
    store.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_rule_that_is_not_understood_shows_nothing() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    store.index("logs", &[json!({"n": 1})]).await;
    for rule in
        [json!({"nothing": {}}), json!({"terms": {"level": {"index": "logs", "id": "1", "path": "level"}}})]
    {
        let role = Role { documents: Some(rule.clone()), grant: vec!["*"], except: vec![] };
        let session = role.session(&store, Action::Search);
        let answer = store.service.search(&session, "logs", Vec::new(), Some(json!({}))).await;
        assert_eq!(answer.unwrap_err().status(), 500, "{rule}");
        assert!(millrace_query::check_rule(&rule).is_err(), "{rule}");
    }
    assert!(millrace_query::check_rule(&json!({"term": {"a": 1}})).is_ok());
    store.engine.shutdown().await.unwrap();
}
