//! Visibility by roles: every kind of request answers as over an index that holds nothing else.

mod statements;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{self, Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_engine::access::{DocumentLookup, Visibility};
use millrace_engine::{Action as Operation, RefreshPolicy, Session, Update, WriteOp};
use millrace_mapping::fields::FieldRules;
use millrace_query::OutcomeBody;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::statements::compare_statements;
use crate::fixture::{Store, ids, value};
use crate::sql_batches::alike;

/// Role with its visible documents and fields.
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
        let open = Grant {
            names: vec![NamePattern::parse("open").unwrap()],
            actions: ActionSet::named(|name| name.starts_with("indices:data/")),
            system: false,
            documents: None,
            fields: None,
        };
        let privileges = Arc::new(Privileges::new(ActionSet::NONE, vec![grant, open]));
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
        "c": {"type": "completion"},
    }})
}

fn document() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["alpha", "beta", "gamma", "delta"]);
    let words = || prop::collection::vec(word(), 1..4).prop_map(|words| words.join(" "));
    (prop::sample::select(vec!["a", "b", "c"]), word(), words(), word(), 0_u64..5, prop::option::of(word()))
        .prop_map(|(tenant, level, msg, secret, v, b)| {
            let mut document = json!({"tenant": tenant, "level": level, "msg": msg, "secret": secret,
                "at": 1_700_000_000_000_u64 + v * 3_600_000, "obj": {"a": level},
                "nest": [{"k": secret, "v": v}, {"k": level, "v": v + 1}], "unmapped": secret,
                "c": [{"input": [secret, msg], "weight": v}, {"input": level, "weight": 2}]});
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

/// Searches for terms that are chosen among those of an index.
fn chosen() -> Vec<Value> {
    let mut queries = vec![
        json!({"match_phrase_prefix": {"msg": {"query": "alpha b", "max_expansions": 1}}}),
        json!({"match_bool_prefix": {"msg": {"query": "gamma d", "max_expansions": 1}}}),
        json!({"match": {"msg": {"query": "alphi", "fuzziness": 2, "max_expansions": 1}}}),
        json!({"span_multi": {"match": {"wildcard": {"msg": {"value": "*a", "rewrite": "top_terms_1"}}}}}),
        json!({"intervals": {"msg": {"prefix": {"prefix": "d"}}}}),
        json!({"query_string": {"query": "/al.*|ga.*/", "fields": ["level"], "rewrite": "top_terms_1"}}),
        json!({"nested": {"path": "nest", "ignore_unmapped": true,
            "query": {"wildcard": {"nest.k": {"value": "*a", "rewrite": "top_terms_1"}}}}}),
    ];
    for field in ["level", "secret", "msg.raw", "msg"] {
        for rewrite in ["top_terms_1", "top_terms_boost_2", "scoring_boolean"] {
            queries.push(json!({"regexp": {field: {"value": "(alpha|delta|gamma).*", "rewrite": rewrite}}}));
            queries.push(json!({"wildcard": {field: {"value": "*a*", "rewrite": rewrite}}}));
        }
        queries.push(json!({"fuzzy": {field: {"value": "beti", "max_expansions": 1, "fuzziness": 2}}}));
        for (least, most) in [(1, 2), (2, 5), (3, 100)] {
            queries.push(json!({"more_like_this": {"fields": [field], "like": "alpha beta gamma", "min_term_freq": 1,
                "min_doc_freq": least, "max_doc_freq": most, "max_query_terms": 1, "minimum_should_match": 1}}));
        }
    }
    let mut searches: Vec<Value> = Vec::new();
    for (at, query) in queries.into_iter().enumerate() {
        searches.push(match at % 4 {
            0 => json!({"size": 0, "aggs": {"x": {"filter": query}}}),
            1 => json!({"size": 100, "sort": [{"n": "asc"}], "post_filter": query}),
            _ => json!({"query": {"bool": {"filter": [query]}}, "sort": [{"n": "asc"}], "size": 100}),
        });
    }
    searches
}

/// Suggestions of words and of documents, and those of phrases.
fn suggestions() -> (Vec<Value>, Vec<Value>) {
    let of = |suggester: Value| json!({"size": 0, "suggest": {"text": "alpa beta gama", "s": suggester}});
    let mut words: Vec<Value> = Vec::new();
    for field in ["msg", "level", "secret", "msg.raw"] {
        for mode in ["always", "popular", "missing"] {
            words.push(of(json!({"term": {"field": field, "suggest_mode": mode, "min_word_length": 2, "prefix_length": 0,
                "max_term_freq": 1000, "size": 20}})));
        }
        words.push(of(json!({"term": {"field": field, "suggest_mode": "always", "min_doc_freq": 2}})));
        words.push(of(json!({"term": {"field": field, "suggest_mode": "always", "max_term_freq": 0.3}})));
    }
    for (prefix, more) in [
        ("al", json!({})),
        ("gema", json!({"fuzzy": {"fuzziness": 2}})),
        ("b", json!({"skip_duplicates": true})),
    ] {
        let mut completion = json!({"field": "c", "size": 4});
        completion.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        words.push(json!({"suggest": {"s": {"prefix": prefix, "completion": completion}}, "size": 0}));
    }
    let mut phrases = Vec::new();
    for field in ["msg", "level"] {
        for (confidence, smoothing) in
            [(0.0, json!({"stupid_backoff": {"discount": 0.4}})), (1.0, json!({"laplace": {"alpha": 0.5}}))]
        {
            phrases.push(of(json!({"phrase": {"field": field, "max_errors": 3, "confidence": confidence, "smoothing": smoothing,
                "direct_generator": [{"field": field, "suggest_mode": "always", "min_word_length": 2}]}})));
        }
    }
    (words, phrases)
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
    let kept = kept
        .map(|(id, source)| (id, source.map(|source| millrace_mapping::fields::shown(source, &rules))))
        .collect();
    alone.write("logs", kept).await;
    for store in [&whole, &alone] {
        store.create("open", &json!({"mappings": mapping()})).await;
        store.write("open", writes(documents)).await;
    }
    (whole, alone)
}

async fn sql(store: &Store, session: &Session, statement: &str) -> Value {
    match store.service.sql(session, Vec::new(), Some(json!({"query": statement}))).await.body {
        OutcomeBody::Json(value) => value,
        OutcomeBody::Raw(bytes) | OutcomeBody::Text(bytes) => serde_json::from_slice(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn compare_searches(whole: &Store, alone: &Store, role: &Role, bodies: Vec<Value>) {
    let session = role.session(whole, Action::Search);
    for body in bodies {
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
}

async fn compare(documents: Vec<Value>, role: Role, seed: u64) {
    let (whole, alone) = stores(&documents, &role).await;
    let ruled = |action| role.session(&whole, action);
    compare_searches(&whole, &alone, &role, searches()).await;
    let (words, phrases) = suggestions();
    if role.documents.is_some() {
        compare_searches(&whole, &alone, &role, words.clone()).await;
    }
    for statement in STATEMENTS {
        let expected = sql(&alone, &alone.session, statement).await;
        let found = sql(&whole, &ruled(Action::Sql), statement).await;
        alike(&whole, &ruled(Action::Sql), statement).await;
        assert_eq!(comparable(found), comparable(expected), "{role:?} {statement}");
    }
    compare_statements(&whole, &alone, &role, seed).await;
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
        let sources = |doc: Option<millrace_engine::StoredDoc>| {
            let source = doc.map(|doc| serde_json::from_slice::<Value>(&doc.source).unwrap());
            source.map(|source| millrace_mapping::fields::shown(source, &rules))
        };
        assert_eq!(sources(found), sources(expected), "{role:?} {id}");
    }
    // How likely a phrase is depends on the segments, too, and where all are seen deleted documents count until they are
    // merged away.
    for store in [&whole, &alone] {
        let index = [store.engine.index("logs").unwrap()];
        store.engine.flush(&index).await.unwrap();
        store.engine.force_merge(&index, 1).await.unwrap();
        store.engine.refresh(&index).await.unwrap();
    }
    compare_searches(&whole, &alone, &role, [words, phrases].concat()).await;
    compare_searches(&whole, &alone, &role, chosen()).await;
    whole.engine.shutdown().await.unwrap();
    alone.engine.shutdown().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 30, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_an_index_of_what_is_shown(
        documents in prop::collection::vec(document(), 2..40),
        role in role(),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(compare(documents, role, seed));
    }
}

fn operation(id: &str, action: Operation) -> WriteOp {
    WriteOp::new("logs", Some(id.to_owned()), action)
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
        let update = Update { doc: Some(json!({"n": 9}).into()), detect_noop: true, ..Update::default() };
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
        ("absent", Operation::Delete, "NotFound"),
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

fn updates(doc: Value, upsert: Option<Value>, retry_on_conflict: u32) -> Operation {
    let (doc, upsert) = (Some(doc.into()), upsert.map(Into::into));
    Operation::Update(Box::new(Update { doc, upsert, retry_on_conflict, ..Update::default() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_under_a_rule_is_looked_up_at_once_and_goes_on_from_itself() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    let of = |tenant: &str| Some(json!({"tenant": tenant, "n": 1}));
    store.write_unseen("logs", vec![("own".into(), of("a")), ("foreign".into(), of("b"))]).await;
    let role = Role { documents: Some(json!({"term": {"tenant": "a"}})), grant: vec!["*"], except: vec![] };
    let session = role.session(&store, Action::Bulk);
    let write = async |ops: Vec<WriteOp>| -> Vec<String> {
        let outcomes = session.write(ops, RefreshPolicy::None, Duration::from_secs(5)).await.unwrap();
        let said = |outcome: millrace_runtime::Result<millrace_engine::WriteOutcome>| match outcome {
            Ok(done) => format!("{:?}", done.result),
            Err(error) if error.to_string().contains("unauthorized") => "refused".to_owned(),
            Err(error) => error.to_string(),
        };
        outcomes.into_iter().map(said).collect()
    };
    let stores = |tenant: &str| Operation::Index(json!({"tenant": tenant}).to_string().into());
    let searches = async || {
        let figures = store.engine.index("logs").unwrap().figures();
        figures.shards.iter().map(|shard| shard.query_total).sum::<u64>()
    };
    let before = searches().await;
    let ops = (0..50).map(|n| operation(&format!("many-{n}"), stores("a"))).collect();
    assert!(write(ops).await.iter().all(|said| said == "Created"));
    let shards = store.engine.index("logs").unwrap().figures().shards.len() as u64;
    assert_eq!(searches().await - before, shards, "one search for all");
    // Without partial updates, and with some: the same as without rules, for what is not hidden.
    let plain = vec![
        operation("new", stores("a")),
        operation("new", stores("a")),
        operation("own", Operation::Delete),
        operation("own", Operation::Create(b"{\"tenant\":\"a\"}".as_slice().into())),
        operation("own", stores("a")),
        operation("foreign", stores("a")),
        operation("foreign", Operation::Delete),
        operation("foreign", Operation::Create("{}".into())),
    ];
    assert_eq!(
        write(plain).await,
        ["Created", "Updated", "Deleted", "Created", "Updated", "refused", "refused", "refused"]
    );
    let mixed = vec![
        operation("fresh", stores("a")),
        operation("fresh", updates(json!({"n": 2}), None, 0)),
        // What it makes of its own document hides it from later requests only.
        operation("fresh", updates(json!({"tenant": "b"}), None, 0)),
        operation("fresh", updates(json!({"n": 3}), None, 2)),
        operation("own", Operation::Delete),
        operation("own", updates(json!({"n": 4}), Some(json!({"tenant": "a"})), 0)),
        operation("own", updates(json!({"n": 5}), None, 3)),
        operation("foreign", updates(json!({"n": 6}), Some(json!({})), 3)),
        operation("foreign", updates(json!({"n": 6}), None, 0)),
    ];
    assert_eq!(
        write(mixed).await,
        ["Created", "Updated", "Updated", "Updated", "Deleted", "Created", "Updated", "refused", "refused"]
    );
    assert_eq!(write(vec![operation("fresh", stores("a"))]).await, ["refused"]);
    // Versions and expectations of the client's do not stand in for what it has seen.
    let foreign = store.session.get("logs", "foreign", None, true).await.unwrap().unwrap();
    let external = WriteOp {
        version: Some((100, millrace_engine::VersionType::External)),
        ..operation("foreign", stores("a"))
    };
    let expecting = WriteOp {
        if_seq_no: Some(foreign.seq_no),
        if_primary_term: Some(foreign.primary_term),
        ..operation("foreign", stores("a"))
    };
    assert_eq!(write(vec![external.clone(), expecting]).await, ["refused", "refused"]);
    let own = WriteOp { id: Some("own".to_owned()), ..external };
    assert_eq!(write(vec![own.clone()]).await, ["Updated"]);
    assert!(write(vec![own]).await[0].contains("higher or equal"));
    let kept = store.session.get("logs", "foreign", None, true).await.unwrap().unwrap();
    assert_eq!((kept.version, kept.seq_no), (foreign.version, foreign.seq_no));
    store.engine.shutdown().await.unwrap();
}

/// Finds nothing, after somebody has changed what was to be looked at.
#[derive(Debug)]
struct InterleavedChange(std::sync::Weak<millrace_engine::Engine>);

impl Visibility for InterleavedChange {
    fn find<'a>(
        &'a self,
        _: &'a Arc<millrace_engine::Index>,
        _: DocumentLookup<'a>,
        _: &'a access::DocumentRules,
    ) -> futures::future::BoxFuture<'a, millrace_runtime::Result<Vec<millrace_engine::StoredDoc>>> {
        Box::pin(async move {
            let system = Session::system(&self.0.upgrade().unwrap());
            let body = json!({"actions": [
                {"remove": {"index": "logs", "alias": "app"}}, {"add": {"index": "other", "alias": "app"}},
            ]});
            let actions = millrace_catalog::metadata::parse_alias_actions(&body).unwrap();
            system.change(|state| state.update_aliases(&actions, 0)).await?;
            let ops = vec![operation("1", Operation::Index("{\"tenant\":\"b\"}".into()))];
            system.write(ops, RefreshPolicy::None, Duration::from_secs(5)).await?.remove(0)?;
            Ok(Vec::new())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_between_look_and_write_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let config = millrace_engine::Config { data_dir: directory.path().to_owned(), ..Default::default() };
    let clock = Arc::new(millrace_runtime::ManualClock::new(1_700_000_000_000));
    let engine = millrace_engine::Engine::open(config, clock).await.unwrap();
    let meanwhile: Arc<dyn Visibility> = Arc::new(InterleavedChange(Arc::downgrade(&engine)));
    engine.see_by(&meanwhile);
    let system = Session::system(&engine);
    for (name, body) in [("logs", json!({"aliases": {"app": {}}})), ("other", json!({}))] {
        let uuid = millrace_catalog::metadata::Uuid::new_v4();
        system.change(|state| state.create_index(name, &body, 0, uuid)).await.unwrap();
    }
    let grant = |names: &str, documents: Option<&str>| Grant {
        names: vec![NamePattern::parse(names).unwrap()],
        actions: ActionSet::ALL,
        system: false,
        documents: documents.map(Into::into),
        fields: None,
    };
    let grants = vec![grant("logs", Some("{\"term\":{\"tenant\":\"a\"}}")), grant("other", None)];
    let privileges = Arc::new(Privileges::new(ActionSet::NONE, grants));
    let principal = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
    let session = Session::new(&engine, principal, Action::Bulk).unwrap();
    let external = Some((100, millrace_engine::VersionType::External));
    for version in [None, external] {
        let op = WriteOp { index: "app".into(), version, ..operation("1", Operation::Index("{}".into())) };
        let outcome =
            session.write(vec![op], RefreshPolicy::None, Duration::from_secs(5)).await.unwrap().remove(0);
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("at the same time"), "{error}");
        let back = json!({"actions": [
            {"remove": {"index": "other", "alias": "app"}}, {"add": {"index": "logs", "alias": "app"}},
        ]});
        let actions = millrace_catalog::metadata::parse_alias_actions(&back).unwrap();
        system.change(|state| state.update_aliases(&actions, 0)).await.unwrap();
        let kept = system.get("logs", "1", None, true).await.unwrap().unwrap();
        assert_eq!(&kept.source[..], b"{\"tenant\":\"b\"}");
    }
    engine.shutdown().await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn hidden_fields_are_not_named_as_ignored_nor_shown_by_their_multi_fields() {
    let store = Store::open().await;
    let fields = json!({"n": {"type": "long", "ignore_malformed": true}, "secret": {"type": "long", "ignore_malformed": true},
        "msg": {"type": "text", "fields": {"raw": {"type": "keyword"}}}});
    store.create("logs", &json!({"mappings": {"properties": fields}})).await;
    let documents = [
        json!({"n": "no number", "secret": "none either", "msg": "alpha beta"}),
        json!({"n": 1, "secret": "none", "msg": "gamma"}),
    ];
    store.index("logs", &documents).await;
    let role = Role { documents: None, grant: vec!["n", "*.raw"], except: vec![] };
    let session = role.session(&store, Action::Search);
    let search = async |query: Value| {
        let body = json!({"query": query, "sort": ["_id"], "fields": ["*"], "docvalue_fields": ["msg.raw"]});
        let found = value(store.service.search(&session, "logs", Vec::new(), Some(body)).await.unwrap());
        found["hits"]["hits"].as_array().unwrap().clone()
    };
    let all = search(json!({"match_all": {}})).await;
    assert_eq!(all.len(), 2);
    assert_eq!(all.iter().filter(|hit| hit["_ignored"] == json!(["n"])).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|hit| hit.get("_ignored").is_none()).count(), 1, "{all:?}");
    assert!(all.iter().all(|hit| hit["_source"].get("msg").is_none() && hit["fields"].get("msg").is_none()));
    for (query, expected) in [
        (json!({"exists": {"field": "_ignored"}}), 1),
        (json!({"term": {"_ignored": "secret"}}), 0),
        (json!({"term": {"_ignored": "n"}}), 1),
        (json!({"match": {"msg": "alpha"}}), 0),
        // A field of its own, with the values that the parent has.
        (json!({"term": {"msg.raw": "gamma"}}), 1),
    ] {
        assert_eq!(search(query.clone()).await.len(), expected, "{query}");
    }
    assert!(all.iter().any(|hit| hit["fields"]["msg.raw"] == json!(["gamma"])), "{all:?}");
    store.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn suggesters_know_the_words_that_rules_by_score_show() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    store.index("logs", &[json!({"n": 1, "msg": "alpha"}), json!({"n": 2, "msg": "alphu"})]).await;
    for rule in [
        json!({"function_score": {"query": {"match": {"msg": "alpha"}}, "min_score": 0.01}}),
        json!({"fuzzy": {"msg": {"value": "alpha", "max_expansions": 1}}}),
        json!({"match_phrase_prefix": {"msg": {"query": "al", "max_expansions": 1}}}),
        json!({"prefix": {"msg": {"value": "al", "rewrite": "top_terms_1"}}}),
    ] {
        let role = Role { documents: Some(rule.clone()), grant: vec!["*"], except: vec![] };
        let session = role.session(&store, Action::Search);
        let body = json!({"suggest": {"text": "alphi", "s": {"term": {"field": "msg"}}}});
        let found = store.service.search(&session, "logs", Vec::new(), Some(body)).await.map(value).unwrap();
        let options = found["suggest"]["s"][0]["options"].as_array().unwrap();
        let texts: Vec<&str> = options.iter().map(|option| option["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["alpha"], "{rule}");
    }
    store.engine.shutdown().await.unwrap();
}

/// A user whose role shows one tenant without the secret, and one of its API keys with a query.
fn key(store: &Store, query: &Value) -> Session {
    let grant = |documents: &Value, fields| Grant {
        names: vec![NamePattern::parse("logs").unwrap()],
        actions: ActionSet::named(|name| name.starts_with("indices:data/")),
        system: false,
        documents: Some(documents.to_string().into()),
        fields,
    };
    let fields = Arc::new(FieldRules::new(&["*"], &["secret"]));
    let owner =
        Privileges::new(ActionSet::NONE, vec![grant(&json!({"term": {"tenant": "a"}}), Some(fields))]);
    let privileges = Privileges::new(ActionSet::NONE, vec![grant(query, None)]).within(Arc::new(owner));
    let caller = Caller::ApiKey { id: "k".into(), name: "k".into(), owner: "ann".into() };
    Session::new(&store.engine, Principal::new(caller, Vec::new(), Arc::new(privileges)), Action::Search)
        .unwrap()
}

#[tokio::test]
async fn the_query_of_a_key_sees_what_its_owner_sees() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    let documents = [
        json!({"tenant": "a", "level": "mine", "secret": "4711", "msg": "quiet"}),
        json!({"tenant": "b", "level": "hidden", "secret": "x", "msg": "quart"}),
    ];
    store.index("logs", &documents).await;
    for (query, expected) in [
        (json!({"match_all": {}}), 1),
        (json!({"term": {"secret": "4711"}}), 0),
        (json!({"range": {"secret": {"gte": "4"}}}), 0),
        (json!({"bool": {"must_not": [{"exists": {"field": "secret"}}]}}), 1),
        (json!({"regexp": {"level": {"value": "hid.*|mine", "rewrite": "top_terms_1"}}}), 1),
        (json!({"match_phrase_prefix": {"msg": {"query": "qu", "max_expansions": 1}}}), 1),
    ] {
        let session = key(&store, &query);
        let found =
            store.service.search(&session, "logs", Vec::new(), Some(json!({}))).await.map(value).unwrap();
        assert_eq!(found["hits"]["total"]["value"], expected, "{query}");
    }
    store.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn hidden_terms_are_not_counted() {
    let store = Store::open().await;
    store.create("logs", &json!({"mappings": mapping()})).await;
    let mut documents = vec![json!({"tenant": "a", "level": "zz", "msg": "zz"})];
    documents.extend(
        (0..1_100).map(|n| json!({"tenant": "b", "level": format!("zz{n}"), "msg": format!("zz{n}")})),
    );
    store.index("logs", &documents).await;
    let role = Role { documents: Some(json!({"term": {"tenant": "a"}})), grant: vec!["*"], except: vec![] };
    let session = role.session(&store, Action::Search);
    for query in [
        json!({"prefix": {"level": {"value": "zz", "rewrite": "scoring_boolean"}}}),
        json!({"wildcard": {"msg": {"value": "z*", "rewrite": "scoring_boolean"}}}),
        json!({"intervals": {"msg": {"prefix": {"prefix": "zz"}}}}),
        json!({"span_multi": {"match": {"prefix": {"msg": "zz"}}}}),
    ] {
        let body = json!({"query": query});
        let found = store.service.search(&session, "logs", Vec::new(), Some(body)).await.map(value);
        assert_eq!(found.unwrap()["hits"]["total"]["value"], 1, "{query}");
    }
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
