use millrace_catalog::access::{Action as Right, ActionSet, Caller, Grant, NamePattern, Privileges};
use millrace_catalog::metadata::{TemplateKind, Uuid, parse_index_template};
use millrace_catalog::operation::{OnReject, Update};
use millrace_catalog::system_document::SystemDocument as _;
use millrace_engine::{Config, Session, WriteOutcome};
use millrace_ingest::dead_letter::{
    Cursor, DeadLetterFilter, INDEX, Limits, MAX_BYTES, Policy, Sender, StoredDeadLetter, WRITE_TIMEOUT,
    in_place_of, of_event,
};
use millrace_runtime::SystemClock;
use serde_json::{Map, Value, json};

use super::dead_letters::{create_index, list, replay};
use super::*;

async fn write(engine: &Engine, ops: Vec<WriteOp>) -> Vec<Result<WriteOutcome>> {
    let sender = Sender { pipeline: "main", plugin: "out" };
    let letters: DeadLetter = Arc::new(move |op, error| in_place_of(op, error, sender, Utc::now()).into());
    let write = SourceWrite { ops, ..SourceWrite::default() };
    engine.write_from_source(&Principal::system(), write, letters, WRITE_TIMEOUT).await.unwrap()
}

fn index(id: &str, source: &str) -> WriteOp {
    WriteOp::new("logs", Some(id.to_owned()), Action::Index(Bytes::copy_from_slice(source.as_bytes())))
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_and_replayed_once_the_reason_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    create_index(&engine).await.unwrap();
    create_index(&engine).await.unwrap();
    write(&engine, vec![index("1", r#"{"n":1}"#)]).await;
    let mut update = WriteOp::new("logs", Some("3".to_owned()), Action::Update(Box::default()));
    update.action =
        Action::Update(Box::new(Update { doc: Some(json!({"m": 2}).into()), ..Update::default() }));
    let exists = WriteOp::new("logs", Some("1".to_owned()), Action::Create(Bytes::from_static(b"{}")));
    let results = write(&engine, vec![index("2", r#"{"n":"none"}"#), update, exists]).await;
    assert!(results.iter().all(Result::is_err));
    let list = async |pipeline| {
        let page = list(&engine, DeadLetterFilter { pipeline, after: None, most: 10 }).await.unwrap();
        assert_eq!(page.next, None);
        page.letters
    };
    let found = list(Some("main")).await;
    assert_eq!(list(Some("other")).await, []);
    let mut found: Vec<_> = found.into_iter().map(|l| (l.action.clone(), l)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let [(_, refused), (_, missing)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((refused.action.as_str(), refused.plugin.as_str()), ("index", "out"));
    assert_eq!(refused.payload().unwrap(), r#"{"n":"none"}"#);
    assert!(refused.reason.contains("[n]"), "{}", refused.reason);
    assert_eq!(missing.action, "update");
    // As long as the reason is there, they stay.
    let both = [refused.clone(), missing.clone()];
    let again = replay(&engine, &Principal::system(), &both).await.unwrap();
    assert_eq!((again.stored, again.left.len()), (0, 2));
    assert_eq!(list(None).await.len(), 2);
    let mut other = refused.clone();
    other.index = Some("others".to_owned());
    write(&engine, vec![index("3", r#"{"n":3}"#)]).await;
    let again = replay(&engine, &Principal::system(), &[other, missing.clone()]).await.unwrap();
    assert_eq!((again.stored, again.left), (2, Vec::new()));
    assert_eq!(list(None).await, []);
    let get = |index: &'static str, id: &'static str| {
        let engine = Arc::clone(&engine);
        async move {
            let found = engine.get(&Principal::system(), index, id, None, true).await.unwrap().unwrap();
            String::from_utf8(found.source.to_vec()).unwrap()
        }
    };
    assert_eq!(get("others", "2").await, r#"{"n":"none"}"#);
    assert_eq!(get("logs", "3").await, r#"{"n":3,"m":2}"#);
}

/// Makes the principal of a pipeline whose outputs have a pattern of names.
fn pipeline_of(pattern: &str) -> Principal {
    let actions = ActionSet::WRITES.with(Right::AutoCreate).with(Right::AutoPutMapping);
    let names = vec![NamePattern::parse(pattern).unwrap()];
    let grant = Grant { names, actions, system: false, documents: None, fields: None };
    let privileges = Privileges::new(ActionSet::NONE, vec![grant]).through_aliases();
    Principal::new(Caller::Pipeline("main".into()), Vec::new(), Arc::new(privileges))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_event_makes_a_data_stream_within_the_rights_of_its_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let template = json!({"index_patterns": ["logs-*-*"], "data_stream": {}});
    let template = parse_index_template("logs", &template).unwrap();
    let session = Session::new(&engine, Principal::system(), Right::PutIndexTemplates).unwrap();
    let put =
        session.change(|state| state.put_template(TemplateKind::Index, "logs", template.clone(), false));
    put.await.unwrap();
    let letters: DeadLetter = Arc::new(|_, _| OnReject::Skip);
    let create = async |stream: &str, pattern: &str| {
        let document = Bytes::from_static(br#"{"@timestamp":"2026-01-02T03:04:05Z","n":1}"#);
        let ops = vec![WriteOp::new(stream, None, Action::Create(document))];
        let write = SourceWrite { ops, ..SourceWrite::default() };
        let principal = pipeline_of(pattern);
        let written = engine.write_from_source(&principal, write, Arc::clone(&letters), WRITE_TIMEOUT);
        written.await.unwrap().remove(0)
    };
    for (stream, pattern) in [
        ("logs-generic-default", "logs-generic-default"),
        ("logs-generic-default", "*-*-*"),
        ("logs-nginx-default", "*-*-*"),
    ] {
        let outcome = create(stream, pattern).await;
        assert!(outcome.is_ok(), "{stream}: {outcome:?}");
        assert!(engine.metadata().data_stream(stream).is_some(), "{stream}");
    }
    let refused = create("logs-nginx-default", "logs-generic-default").await.unwrap_err();
    assert!(refused.to_string().contains("unauthorized"), "{refused}");
}

fn letter_of(pipeline: &str, number: usize, length: usize, seconds: i64) -> WriteOp {
    let mut event = Event::new(DateTime::from_timestamp(1, 0).unwrap());
    event.fields_mut().insert("message".to_owned(), Value::from("x".repeat(length)));
    let sender = Sender { pipeline, plugin: "out" };
    of_event(&event, &number.to_string(), sender, DateTime::from_timestamp(seconds, 0).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_whatever_the_times_and_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    create_index(&engine).await.unwrap();
    // Many of one time, and of two segments.
    for half in [0..60, 60..120] {
        let op = |n: usize| letter_of(if n.is_multiple_of(4) { "b" } else { "a" }, n, 10, (n / 50) as i64);
        write(&engine, half.map(op).collect()).await;
        engine.refresh(&[engine.index(INDEX).unwrap()]).await.unwrap();
    }
    let walk = async |pipeline: Option<&str>, most: usize| {
        let (mut all, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let page =
                list(&engine, DeadLetterFilter { pipeline, after: after.as_ref(), most }).await.unwrap();
            pages += 1;
            all.extend(page.letters);
            match page.next {
                // As it goes through an answer.
                Some(next) => after = Some(Cursor::parse(&next.to_string()).unwrap()),
                None => return (all, pages),
            }
        }
    };
    let (all, pages) = walk(None, 7).await;
    let reasons: std::collections::HashSet<&str> = all.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!((all.len(), reasons.len(), pages), (120, 120, 18));
    assert!(all.is_sorted_by_key(|letter| &letter.time));
    assert_eq!(walk(Some("b"), 7).await.0.len(), 30);
    // Long ones: a page ends before it is too much.
    write(&engine, (0..4).map(|n| letter_of("long", n, 5 << 20, 9)).collect()).await;
    let (all, pages) = walk(Some("long"), 100).await;
    assert_eq!((all.len(), pages), (4, 2));
    assert!(Cursor::parse("x").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_an_earlier_version_are_listed_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let mut body = StoredDeadLetter::index_body();
    body["mappings"]["properties"].as_object_mut().unwrap().remove("bytes");
    let create = |metadata: &millrace_catalog::metadata::Metadata| {
        metadata.create_index(INDEX, &body, 0, Uuid::new_v4())
    };
    engine.change(&Principal::system(), create).await.unwrap();
    let old = |n: usize| {
        let mut op = letter_of("a", n, 10, n as i64);
        let Action::Index(source) = &op.action else { panic!() };
        let mut letter: Map<String, Value> = serde_json::from_slice(source).unwrap();
        letter.remove("bytes");
        op.action = Action::Index(Value::Object(letter).to_string().into());
        op
    };
    write(&engine, (0..3).map(old).collect()).await;
    create_index(&engine).await.unwrap();
    write(&engine, (3..6).map(|n| letter_of("a", n, 10, n as i64)).collect()).await;
    let page = list(&engine, DeadLetterFilter { pipeline: Some("a"), after: None, most: 5 }).await.unwrap();
    let reasons: Vec<&str> = page.letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!((reasons, page.next.is_some()), (vec!["0", "1", "2", "3", "4"], true));
    let keeper = RetentionTask::default();
    keeper.limit("a", Limits { max_bytes: 3 * heads::UNKNOWN_BYTES, ..Limits::default() });
    keeper.begin(&engine, &Principal::system()).await.unwrap();
    assert!(!keeper.admit("a", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_stay_within_their_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    create_index(&engine).await.unwrap();
    let principal = Principal::system();
    let now = Utc::now().timestamp();
    let ops = |pipeline: &'static str, seconds: i64| {
        (0..20).map(move |n| letter_of(pipeline, n, 7_000, seconds + n as i64))
    };
    for op in [ops("newer", now - 100), ops("older", now - 100), ops("aged", now - 5_000)] {
        write(&engine, op.collect()).await;
    }
    let keeper = RetentionTask::default();
    let max_bytes = 100_000;
    keeper.limit("newer", Limits { max_bytes, ..Limits::default() });
    keeper.limit("older", Limits { max_bytes, policy: Policy::DropOlder, ..Limits::default() });
    keeper.limit("aged", Limits { retain: Some(Duration::from_secs(4_990)), ..Limits::default() });
    keeper.begin(&engine, &principal).await.unwrap();
    let count = async |pipeline| {
        let page = list(&engine, DeadLetterFilter { pipeline: Some(pipeline), after: None, most: 100 })
            .await
            .unwrap();
        page.letters
    };
    // What is there is counted, and no more comes.
    assert_eq!(count("newer").await.len(), 20);
    assert!(!keeper.admit("newer", 1));
    // The oldest have gone.
    let older = count("older").await;
    assert!((5..=9).contains(&older.len()), "{}", older.len());
    assert_eq!(older.last().unwrap().reason, "19");
    assert!(keeper.admit("older", 9_000) && !keeper.admit("older", 50_000));
    let aged = count("aged").await;
    assert!((8..=11).contains(&aged.len()) && aged.last().unwrap().reason == "19", "{}", aged.len());
    // Others have the default; who deletes letters makes room.
    assert!(keeper.admit("other", MAX_BYTES - 1) && !keeper.admit("other", 2));
    let removals = count("newer").await.iter().map(StoredDeadLetter::removal).collect();
    write(&engine, removals).await;
    keeper.sweep(&engine, &principal).await.unwrap();
    assert!(keeper.admit("newer", 90_000) && !keeper.admit("newer", 90_000));
    assert!(keeper.admit("other", 2), "what was never written does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_of_outputs_stay_unless_they_are_to_be_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let engine = Arc::new(Engine::open(config, Arc::new(SystemClock)).await.unwrap());
    let store = EngineStore::new(Arc::clone(&engine));
    let template = |priority: u64, overwrites| {
        let body = json!({"index_patterns": ["logs-*"], "priority": priority, "template": {"settings": {}}});
        let body = parse_index_template("mine", &body).unwrap();
        IndexTemplate { kind: TemplateKind::Index, name: "mine".to_owned(), body, overwrites }
    };
    let priority = || {
        let state = engine.metadata();
        let templates = state.list_templates(TemplateKind::Index, Some("mine"));
        templates.first().map(|(_, body)| body["priority"].clone())
    };
    for (given, overwrites, expected) in [(1, false, 1), (2, false, 1), (3, true, 3)] {
        store.put_template(&template(given, overwrites)).await.unwrap();
        assert_eq!(priority(), Some(json!(expected)));
    }
}
