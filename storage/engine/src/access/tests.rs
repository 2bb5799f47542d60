//! Visibility and changes of a store by principals.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::{
    Action, ActionSet, Caller, DocumentRule, Grant, NamePattern, Principal, Privileges, check_mapping,
};
use millrace_catalog::metadata::{
    IndicesOptions, TemplateKind, Uuid, parse_alias_actions, parse_index_template,
};
use millrace_mapping::fields::FieldRules;
use millrace_runtime::{Error, Kind, ManualClock, Result, SharedClock};
use serde_json::json;

use super::Sender;
use crate::{
    Action as Operation, Config, DeadLetter, Engine, OnReject, RefreshPolicy, Session, SourceWrite, Update,
    WriteOp,
};

const READ: ActionSet =
    ActionSet::new(&[Action::Search, Action::Get, Action::IndexStats, Action::GetAliases]);

fn grant(names: &[&str], actions: ActionSet) -> Grant {
    let names = names.iter().map(|name| NamePattern::parse(name).unwrap()).collect();
    Grant { names, actions, system: false, documents: None, fields: None }
}

fn ann(grants: Vec<Grant>) -> Principal {
    let privileges = Arc::new(Privileges::new(ActionSet::NONE, grants));
    Principal::new(Caller::User("ann".into()), vec!["some".to_owned()], privileges)
}

fn document(index: &str, id: Option<&str>, action: Operation) -> WriteOp {
    WriteOp::new(index, id.map(str::to_owned), action)
}

async fn engine(directory: &std::path::Path) -> Arc<Engine> {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let config = Config { data_dir: directory.to_owned(), ..Config::default() };
    let engine = Engine::open(config, clock as SharedClock).await.unwrap();
    let system = Session::system(&engine);
    for name in ["logs-1", "logs-2", "secret", ".console", "alert"] {
        let body = json!({"settings": {"index.hidden": name.starts_with('.')}});
        system.change(|state| state.create_index(name, &body, 0, Uuid::new_v4())).await.unwrap();
    }
    let body = json!({"actions": [
        {"add": {"index": "logs-1", "alias": "mixed"}}, {"add": {"index": "secret", "alias": "mixed"}},
        {"add": {"index": "secret", "alias": "logs-hidden"}},
    ]});
    let actions = parse_alias_actions(&body).unwrap();
    system.change(|state| state.update_aliases(&actions, 0)).await.unwrap();
    engine
}

fn names(session: &Session, expression: &str) -> Result<Vec<String>> {
    let found = session.resolve(expression, &IndicesOptions::open_only())?;
    Ok(found.iter().map(|index| index.meta().name.to_string()).collect())
}

fn refused(error: Error) -> String {
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn expressions_stand_for_what_may_be_seen() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let session = Session::new(&engine, ann(vec![grant(&["logs-*"], READ)]), Action::Search).unwrap();
    for (expression, expected) in [
        ("*", vec!["logs-1", "logs-2"]),
        ("_all", vec!["logs-1", "logs-2"]),
        ("logs-1,logs-*", vec!["logs-1", "logs-2"]),
        ("*,-logs-1", vec!["logs-2"]),
        ("s*", vec![]),
        // An alias stands for those of its indices that may be seen.
        ("mixed", vec!["logs-1"]),
        ("m*", vec!["logs-1"]),
    ] {
        assert_eq!(names(&session, expression).unwrap(), expected, "{expression}");
    }
    let of = |name: &str| {
        format!("action [indices:data/read/search] is unauthorized for user [ann] on indices [{name}]")
    };
    for name in ["secret", "secret2", ".console", ".absent", "alert", "alert2"] {
        assert_eq!(refused(names(&session, name).unwrap_err()), of(name), "as a missing one is");
        assert_eq!(refused(session.index(name).unwrap_err()), of(name));
    }
    // A name that the role may read is missing where there is none, or none to be seen.
    for name in ["logs-3", "logs-hidden"] {
        let missing = names(&session, name).unwrap_err();
        assert!(matches!(missing, Error::IndexNotFound { .. }), "{name}: {missing}");
    }
    let listed: Vec<String> = session.metadata().indices().map(|meta| meta.name.to_string()).collect();
    assert_eq!(listed, ["logs-1", "logs-2"]);
    let aliases: Vec<String> = session.metadata().alias_names().map(ToString::to_string).collect();
    assert_eq!(aliases, ["mixed"]);
    assert_eq!(&*session.metadata().alias_indices("mixed").unwrap(), ["logs-1".into()]);
    let found = session.get("secret", "1", None, true).await;
    refused(found.unwrap_err());
    // Some other action, allowed on nothing.
    let message = refused(session.doing(Action::DeleteIndex).unwrap_err());
    assert_eq!(message, "action [indices:admin/delete] is unauthorized for user [ann]");
}

#[tokio::test]
async fn system_indices_are_reached_by_name_and_explicit_privilege_only() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let everything = grant(&["*"], ActionSet::ALL);
    let session = Session::new(&engine, ann(vec![everything.clone()]), Action::Search).unwrap();
    assert_eq!(names(&session, "*").unwrap(), ["alert", "logs-1", "logs-2", "secret"]);
    refused(names(&session, ".console").unwrap_err());
    assert!(names(&session, ".*").unwrap().is_empty());

    let explicit = ann(vec![Grant { system: true, ..everything }]);
    let session = Session::new(&engine, explicit, Action::Search).unwrap();
    assert_eq!(names(&session, "*").unwrap(), ["alert", "logs-1", "logs-2", "secret"]);
    assert!(names(&session, ".c*").unwrap().is_empty(), "no wildcard reaches them");
    assert_eq!(names(&session, ".console").unwrap(), [".console"]);
    // They are changed through their own API, and what rules write by rules.
    let writer = session.doing(Action::Bulk).unwrap();
    for name in [".console", ".audit-2026.01.01", ".security", "alert", "intelligence"] {
        let ops = vec![document(name, Some("1"), Operation::Index("{}".into()))];
        let outcome = writer.write(ops, RefreshPolicy::None, Duration::from_secs(1)).await.unwrap();
        let message = refused(outcome.into_iter().next().unwrap().unwrap_err());
        assert!(message.contains(name), "{message}");
        let creates = session.doing(Action::CreateIndex).unwrap();
        let made = creates.change(|state| state.create_index(name, &json!({}), 0, Uuid::new_v4())).await;
        assert!(made.is_err(), "{name}");
    }
    let deletes = session.doing(Action::DeleteIndex).unwrap();
    let options = IndicesOptions::open_and_closed();
    refused(deletes.change(|state| state.delete_indices(".console", &options, 0)).await.unwrap_err());
    deletes.change(|state| state.delete_indices("*", &options, 0)).await.unwrap();
    let left: Vec<String> = engine.metadata().indices().map(|meta| meta.name.to_string()).collect();
    assert_eq!(left, [".console", "alert"]);
}

#[tokio::test]
async fn what_rules_wrote_is_deleted_by_name_or_by_who_reaches_system_indices() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let wait = Duration::from_secs(5);
    let all = grant(&["*"], ActionSet::ALL);
    let named = grant(&["alert"], ActionSet::new(&[Action::DeleteDocument, Action::Search]));
    for (id, grants, allowed) in [
        ("wildcard", vec![all.clone()], false),
        ("prefix", vec![grant(&["alert*"], ActionSet::ALL)], false),
        ("system", vec![Grant { system: true, ..all.clone() }], true),
        ("named", vec![all, named], true),
    ] {
        let ops = vec![document("alert", Some(id), Operation::Index("{}".into()))];
        Session::system(&engine).write(ops, RefreshPolicy::None, wait).await.unwrap();
        let session = Session::new(&engine, ann(grants), Action::Bulk).unwrap();
        let write = async |action| {
            let ops = vec![document("alert", Some(id), action)];
            session.write(ops, RefreshPolicy::None, wait).await.unwrap().remove(0)
        };
        assert_eq!(write(Operation::Delete).await.is_ok(), allowed, "{id}");
        refused(write(Operation::Index("{}".into())).await.unwrap_err());
        refused(write(Operation::Create("{}".into())).await.unwrap_err());
    }
}

#[tokio::test]
async fn aliases_in_a_body_need_the_right_on_index_and_alias_and_those_of_templates_none() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let creates =
        ActionSet::new(&[Action::CreateIndex, Action::AutoCreate, Action::CreateDocument, Action::Bulk]);
    let aliases = creates.or(ActionSet::new(&[Action::PutAliases]));
    let body = json!({"aliases": {"logs-app": {}}});
    for (name, grants, allowed) in [
        ("logs-a", vec![grant(&["logs-*"], creates)], false),
        ("logs-b", vec![grant(&["logs-*"], creates), grant(&["logs-b"], aliases)], false),
        ("logs-c", vec![grant(&["logs-*"], creates), grant(&["logs-app"], aliases)], false),
        ("logs-d", vec![grant(&["logs-*"], aliases)], true),
    ] {
        let session = Session::new(&engine, ann(grants), Action::CreateIndex).unwrap();
        let created = session.change(|state| state.create_index(name, &body, 0, Uuid::new_v4())).await;
        match allowed {
            true => created.unwrap(),
            false => assert!(refused(created.unwrap_err()).contains("indices:admin/aliases"), "{name}"),
        }
    }
    // Who puts a template is asked for its aliases, who writes to the index is not.
    let template = json!({"index_patterns": ["day-*"], "template": {"aliases": {"all-days": {}}}});
    let template = parse_index_template("days", &template).unwrap();
    let templates = ActionSet::new(&[Action::PutIndexTemplates]);
    let put = async |grants| {
        let privileges = Arc::new(Privileges::new(templates, grants));
        let writer = Principal::new(Caller::User("bob".into()), Vec::new(), privileges);
        let session = Session::new(&engine, writer, Action::PutIndexTemplates).unwrap();
        session.change(|state| state.put_template(TemplateKind::Index, "days", template.clone(), false)).await
    };
    assert!(refused(put(Vec::new()).await.unwrap_err()).contains("[all-days]"));
    put(vec![grant(&["all-days"], aliases)]).await.unwrap();
    let session = Session::new(&engine, ann(vec![grant(&["day-*"], creates)]), Action::Bulk).unwrap();
    let ops = vec![document("day-1", None, Operation::Create("{}".into()))];
    let outcome = session.write(ops, RefreshPolicy::None, Duration::from_secs(5)).await.unwrap().remove(0);
    outcome.unwrap();
    assert_eq!(&*engine.metadata().alias_indices("all-days").unwrap(), ["day-1".into()]);
}

#[test]
fn a_mapping_names_only_fields_that_its_writer_sees() {
    let writer = ann(Vec::new());
    let rules = [Arc::new(FieldRules::new(&["*"], &["salary", "obj.b"]))];
    for (mapping, named) in [
        (
            json!({"properties": {"open": {"type": "keyword"}, "obj": {"properties": {"a": {"type": "long"}}}}}),
            None,
        ),
        (json!({"properties": {"salary": {"type": "long", "copy_to": "open"}}}), Some("salary")),
        (json!({"_doc": {"properties": {"salary": {"type": "long"}}}}), Some("salary")),
        (json!({"properties": {"open": {"type": "alias", "path": "salary"}}}), Some("salary")),
        (json!({"properties": {"open": {"type": "long", "copy_to": ["x", "salary"]}}}), Some("salary")),
        (json!({"properties": {"obj": {"properties": {"b": {"type": "long"}}}}}), Some("obj.b")),
        (
            json!({"properties": {"c": {"type": "completion", "contexts": [{"path": "salary"}]}}}),
            Some("salary"),
        ),
        (
            json!({"dynamic_templates": [{"t": {"match": "*", "mapping": {"copy_to": "open"}}}]}),
            Some("dynamic template"),
        ),
    ] {
        let checked = check_mapping(&mapping, &rules, &writer);
        match named {
            None => checked.unwrap(),
            Some(named) => assert!(checked.unwrap_err().to_string().contains(named), "{mapping}"),
        }
        check_mapping(&mapping, &[], &writer).unwrap();
    }
}

#[tokio::test]
async fn each_operation_of_a_request_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let appends = ActionSet::new(&[Action::CreateDocument, Action::AutoCreate, Action::AutoPutMapping]);
    let grants = vec![grant(&["logs-*"], appends), grant(&["app"], ActionSet::WRITES)];
    let session = Session::new(&engine, ann(grants), Action::Bulk);
    // Bulk is no more than its operations.
    let session = match session {
        Ok(session) => session,
        Err(error) => panic!("{error}"),
    };
    let source = || Operation::Index("{\"a\":1}".into());
    let ops = vec![
        document("logs-1", None, source()),
        document("logs-1", Some("x"), Operation::Create("{}".into())),
        document("logs-1", Some("x"), source()),
        document("logs-1", Some("x"), Operation::Delete),
        document("logs-new", None, source()),
        document("secret", None, source()),
        document("absent", None, source()),
        document("mixed", None, source()),
        document("logs-hidden", None, source()),
        // No right to create it.
        document("app", None, source()),
    ];
    let outcomes = session.write(ops, RefreshPolicy::None, Duration::from_secs(1)).await.unwrap();
    let said: Vec<String> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(done) => format!("{:?}", done.result),
            Err(error @ Error::Unauthorized { .. }) => {
                error.to_string().split(['[', ']']).nth(1).unwrap().rsplit('/').next().unwrap().to_owned()
            }
            Err(error) => error.to_string(),
        })
        .collect();
    // Not the name of the index that it stands for.
    let hidden = document("logs-hidden", None, source());
    let hidden = session.write(vec![hidden], RefreshPolicy::None, Duration::from_secs(1)).await.unwrap();
    let said_of_hidden = hidden.into_iter().next().unwrap().unwrap_err().to_string();
    assert!(
        said_of_hidden.contains("[logs-hidden]") && !said_of_hidden.contains("secret"),
        "{said_of_hidden}"
    );
    let no_write_index = said[7].starts_with("no write index");
    assert!(no_write_index, "{}", said[7]);
    assert_eq!(
        [&said[..7], &said[8..]].concat(),
        ["Created", "Created", "index", "delete", "Created", "bulk", "bulk", "bulk", "auto_create",]
    );
    assert!(engine.index("app").is_err() && engine.index("absent").is_err());
}

#[tokio::test]
async fn new_fields_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let mapping = json!({"properties": {"a": {"type": "long"}, "n": {"type": "nested", "properties": {"k": {"type": "long"}}}}});
    Session::system(&engine).put_mapping("logs-1", &mapping).await.unwrap();
    let mapped = || {
        let mapping = engine.index("logs-1").unwrap().mapping();
        mapping.fields().map(|field| field.path.to_string()).collect::<Vec<_>>()
    };
    let ops = || {
        let merges = |doc: serde_json::Value| {
            Operation::Update(Box::new(Update { doc: Some(doc.into()), ..Update::default() }))
        };
        let indexes = |doc: serde_json::Value| Operation::Index(doc.to_string().into());
        vec![
            document("logs-1", Some("1"), indexes(json!({"a": 1, "n": [{"k": 1}]}))),
            document("logs-1", Some("2"), indexes(json!({"a": 1, "n": [{"k": 1}, {"b": "x"}], "c": "long"}))),
            document("logs-1", None, indexes(json!({"a": 2, "o": {"x": 1.5}}))),
            document("logs-1", Some("1"), merges(json!({"d": true}))),
            document("logs-1", Some("1"), merges(json!({"a": 3}))),
            document("logs-1", Some("3"), indexes(json!({"a": 4, "n": {"k": 2}}))),
        ]
    };
    let written = |more: &'static [Action], ops: Vec<WriteOp>| {
        let allowed = ActionSet::WRITES.or(ActionSet::new(more));
        let session = Session::new(&engine, ann(vec![grant(&["logs-*"], allowed)]), Action::Bulk).unwrap();
        async move {
            let outcomes = session.write(ops, RefreshPolicy::None, Duration::from_secs(1)).await.unwrap();
            outcomes.into_iter().map(|outcome| outcome.map(|done| done.result)).collect::<Vec<_>>()
        }
    };
    let creates = |ops: Vec<WriteOp>| ops.into_iter().filter(|op| matches!(op.action, Operation::Index(_)));
    let known = mapped();
    // With partial updates among them, and without.
    for ops in [ops(), creates(ops()).collect()] {
        let has_updates = ops.len() > 4;
        let outcomes = written(&[], ops).await;
        let refused: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_err()).collect();
        assert_eq!(refused, if has_updates { vec![1, 2, 3] } else { vec![1, 2] }, "{outcomes:?}");
        for error in outcomes.into_iter().filter_map(Result::err) {
            assert_eq!(
                error.to_string(),
                "action [indices:admin/mapping/auto_put] is unauthorized for user [ann] on indices [logs-1]"
            );
        }
        assert_eq!(mapped(), known);
    }
    let stored = Session::system(&engine).get("logs-1", "1", None, true).await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&stored.source).unwrap()["a"], 1);
    assert!(Session::system(&engine).get("logs-1", "2", None, true).await.unwrap().is_none());
    // Who may change mappings may do so by documents, too.
    let last = json!({"by_right": 1}).to_string();
    let op = document("logs-1", None, Operation::Index(last.into()));
    assert!(written(&[Action::PutMapping], vec![op]).await[0].is_ok());
    let outcomes = written(&[Action::AutoPutMapping], ops()).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for field in ["c", "o.x", "d", "n.b", "by_right"] {
        assert!(mapped().iter().any(|known| known == field), "{field}");
    }
}

#[tokio::test]
async fn changes_are_checked_whatever_decides_them() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let manage =
        ActionSet::new(&[Action::CreateIndex, Action::PutAliases, Action::PutSettings, Action::PutMapping]);
    let session = Session::new(&engine, ann(vec![grant(&["logs-*"], manage)]), Action::CreateIndex).unwrap();
    let create = |name: &'static str, body: serde_json::Value| {
        let session = session.clone();
        async move { session.change(|state| state.create_index(name, &body, 0, Uuid::new_v4())).await }
    };
    create("logs-3", json!({"aliases": {"logs-all": {}}})).await.unwrap();
    refused(create("other", json!({})).await.unwrap_err());
    refused(create("secret", json!({})).await.unwrap_err());
    // Nor a name that others use, by way of an alias.
    refused(create("logs-4", json!({"aliases": {"app": {}}})).await.unwrap_err());
    let aliases = session.doing(Action::PutAliases).unwrap();
    for (actions, allowed) in [
        (json!([{"add": {"index": "logs-1", "alias": "logs-a"}}]), true),
        (json!([{"add": {"index": "logs-1", "alias": "app"}}]), false),
        (json!([{"add": {"index": "secret", "alias": "logs-b"}}]), false),
        (json!([{"remove_index": {"index": "logs-1"}}]), false),
    ] {
        let parsed = parse_alias_actions(&json!({"actions": actions})).unwrap();
        let changed = aliases.change(|state| state.update_aliases(&parsed, 0)).await;
        assert_eq!(changed.is_ok(), allowed, "{actions}: {changed:?}");
    }
    // What else an alias stands for is not told.
    let made_hidden = json!({"actions": [{"add": {"index": "secret", "alias": "logs-hidden", "is_write_index": true, "is_hidden": true}}]});
    let actions = parse_alias_actions(&made_hidden).unwrap();
    Session::system(&engine).change(|state| state.update_aliases(&actions, 0)).await.unwrap();
    for more in [json!({"is_write_index": true, "is_hidden": true}), json!({"is_hidden": false})] {
        let mut add = json!({"index": "logs-1", "alias": "logs-hidden"});
        add.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let parsed = parse_alias_actions(&json!({"actions": [{"add": add}]})).unwrap();
        let error = aliases.change(|state| state.update_aliases(&parsed, 0)).await.unwrap_err().to_string();
        assert!(error.contains("others") && !error.contains("secret"), "{error}");
    }
    let mapping = json!({"properties": {"a": {"type": "keyword"}}});
    let puts = session.doing(Action::PutMapping).unwrap();
    puts.put_mapping("logs-1", &mapping).await.unwrap();
    refused(puts.put_mapping("secret", &mapping).await.unwrap_err());
}

#[test]
fn a_key_has_no_more_than_its_owner() {
    let owner = Arc::new(Privileges::new(
        ActionSet::new(&[Action::Health]),
        vec![
            Grant { documents: Some("{\"term\":{\"a\":1}}".into()), ..grant(&["logs-*"], READ) },
            grant(&["app"], ActionSet::new(&[Action::Search])),
        ],
    ));
    let all = ActionSet::new(&[Action::Health, Action::PutSecurity]);
    let key = Privileges::new(
        all,
        vec![
            grant(&["*"], ActionSet::ALL),
            // Lifts no rule of the owner's.
            Grant { documents: Some("{\"term\":{\"b\":1}}".into()), ..grant(&["logs-2"], READ) },
        ],
    )
    .within(Arc::clone(&owner));
    assert!(key.allows(Action::Health) && !key.allows(Action::PutSecurity));
    assert!(key.on("app").allows(Action::Search) && !key.on("app").allows(Action::Get));
    assert!(!key.on("other").allows(Action::Search));
    let of_owner = DocumentRule::new(vec![Arc::from("{\"term\":{\"a\":1}}")]);
    assert_eq!(key.on("logs-2").documents(Action::Search), vec![of_owner]);
    let narrow = Grant { documents: Some("{\"term\":{\"b\":1}}".into()), ..grant(&["logs-2"], READ) };
    let narrow = Privileges::new(ActionSet::NONE, vec![narrow]).within(owner);
    assert_eq!(narrow.on("logs-2").documents(Action::Search).len(), 2, "both have to hold");
    assert!(narrow.on("app").actions().is_empty());
}

#[test]
fn a_grant_without_a_rule_lifts_those_of_others_for_its_actions() {
    let rule: Arc<str> = "{\"term\":{\"a\":1}}".into();
    let ruled = |actions| Grant { documents: Some(Arc::clone(&rule)), ..grant(&["logs-*"], actions) };
    let search = ActionSet::new(&[Action::Search]);
    let privileges = Privileges::new(ActionSet::NONE, vec![ruled(READ), grant(&["logs-1"], search)]);
    assert!(privileges.on("logs-1").documents(Action::Search).is_empty());
    assert_eq!(privileges.on("logs-1").documents(Action::Get).len(), 1);
    assert_eq!(privileges.on("logs-2").documents(Action::Search).len(), 1);
    assert!(!privileges.on("logs-2").sees_all(Action::Search));
}

#[test]
fn roles_show_the_same_in_whatever_order_and_how_often_they_say_so() {
    let rule = |field: &str, actions| {
        let fields = Some(Arc::new(FieldRules::new(&[field], &[])));
        let documents = Some(format!("{{\"term\":{{\"{field}\":1}}}}").into());
        Grant { documents, fields, ..grant(&["logs-*"], actions) }
    };
    let (a, b) = (|actions| rule("a", actions), |actions| rule("b", actions));
    let more = ActionSet::new(&[Action::Search, Action::Sql]);
    let of = |grants: Vec<Grant>| ann(grants).privileges().on("logs-1");
    let seen = of(vec![a(READ), b(READ)]);
    assert!(of(vec![b(READ), a(READ)]).shows_as(&seen, Action::Search));
    assert!(of(vec![a(READ), b(READ), a(more)]).shows_as(&seen, Action::Search));
    for other in [vec![a(READ)], vec![grant(&["logs-*"], READ)], vec![a(READ), rule("c", READ)]] {
        assert!(!of(other).shows_as(&seen, Action::Search));
    }
}

#[tokio::test]
async fn a_view_of_a_mapping_is_made_once_for_all_who_see_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let mapping = json!({"properties": {"a": {"type": "keyword"}, "b": {"type": "keyword"}}});
    let system = Session::system(&engine);
    system.put_mapping("logs-1", &mapping).await.unwrap();
    let view = |fields: &[&str]| {
        let fields = Some(Arc::new(millrace_mapping::fields::FieldRules::new(fields, &[])));
        let session =
            Session::new(&engine, ann(vec![Grant { fields, ..grant(&["*"], READ) }]), Action::Search)
                .unwrap();
        session.mapping(&session.index("logs-1").unwrap())
    };
    assert!(Arc::ptr_eq(&view(&["a"]), &view(&["a"])));
    assert!(view(&["b"]).field("a").is_none() && view(&["a"]).field("a").is_some());
    let before = view(&["a", "c"]);
    system.put_mapping("logs-1", &json!({"properties": {"c": {"type": "keyword"}}})).await.unwrap();
    assert!(before.field("c").is_none() && view(&["a", "c"]).field("c").is_some());
}

#[tokio::test]
async fn settings_and_aliases_name_no_hidden_fields() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let system = Session::system(&engine);
    let body = json!({
        "settings": {"index.sort.field": ["a", "b"], "index.sort.order": ["asc", "desc"],
            "index.query.default_field": ["a", "b^2", "c*"]},
        "mappings": {"properties": {"a": {"type": "keyword"}, "b": {"type": "keyword"}}},
        "aliases": {"few": {"filter": {"term": {"b": "x"}}, "search_routing": "1"}},
    });
    system.change(|state| state.create_index("logs-3", &body, 0, Uuid::new_v4())).await.unwrap();
    let meta = Arc::clone(system.metadata().index("logs-3").unwrap());
    assert_eq!(*system.settings(&meta), meta.settings);
    assert_eq!(system.alias("logs-3", meta.aliases["few"].clone()), meta.aliases["few"]);
    let (order, default_field) = ("index.sort.order", "index.query.default_field");
    for (granted, fields, orders, defaults) in [
        ("a", Some(json!(["a"])), Some(json!(["asc"])), Some(json!(["a"]))),
        ("b", Some(json!(["b"])), Some(json!(["desc"])), Some(json!(["b^2"]))),
        ("c", None, None, None),
        // A pattern may stand for what is hidden.
        ("*", Some(json!(["a", "b"])), Some(json!(["asc", "desc"])), Some(json!(["a", "b^2"]))),
    ] {
        let fields_of = Some(Arc::new(millrace_mapping::fields::FieldRules::new(&[granted], &["d"])));
        let actions = ActionSet::new(&[Action::GetSettings]);
        let ruled = Grant { fields: fields_of, ..grant(&["logs-*"], actions) };
        let session = Session::new(&engine, ann(vec![ruled]), Action::GetSettings).unwrap();
        let settings = session.settings(&meta);
        assert_eq!(settings.get("index.sort.field"), fields.as_ref(), "{granted}");
        assert_eq!(settings.get(order), orders.as_ref(), "{granted}");
        assert_eq!(settings.get(default_field), defaults.as_ref(), "{granted}");
        assert_eq!(settings.get("index.uuid"), meta.settings.get("index.uuid"));
        assert_eq!(
            session.alias("logs-3", meta.aliases["few"].clone()),
            json!({"search_routing": "1"}),
            "{granted}"
        );
    }
}

#[tokio::test]
async fn refusals_of_aliases_name_what_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let body =
        json!({"actions": [{"add": {"indices": ["logs-1", "logs-2", "secret"], "alias": "logs-wide"}}]});
    let actions = parse_alias_actions(&body).unwrap();
    Session::system(&engine).change(|state| state.update_aliases(&actions, 0)).await.unwrap();
    let session = Session::new(&engine, ann(vec![grant(&["logs-*"], READ)]), Action::Get).unwrap();
    let error = session.get("logs-wide", "1", None, true).await.unwrap_err().to_string();
    assert!(error.contains("[logs-1, logs-2]"), "{error}");
}

/// A sender who is nobody any more, or of whom there is no telling now.
struct VanishedSender {
    is_told: bool,
}

impl Sender for VanishedSender {
    fn again(&self) -> BoxFuture<'_, Result<Option<Principal>>> {
        let told = if self.is_told { Ok(None) } else { Err(Error::Rejected("busy".to_owned())) };
        Box::pin(async move { told })
    }
}

#[tokio::test]
async fn who_cannot_be_told_now_is_not_taken_for_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    for (is_told, kind) in [(true, Kind::Unauthorized), (false, Kind::Overloaded)] {
        let session = Session::system(&engine).sent_by(Arc::new(VanishedSender { is_told }));
        assert_eq!(session.again().await.unwrap_err().kind(), kind);
    }
}

/// A sender who is another one now.
struct ReplacedSender(Principal);

impl Sender for ReplacedSender {
    fn again(&self) -> BoxFuture<'_, Result<Option<Principal>>> {
        Box::pin(async move { Ok(Some(self.0.clone())) })
    }
}

#[tokio::test]
async fn what_somebody_began_nobody_else_goes_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let session = Session::new(&engine, ann(vec![grant(&["logs-*"], READ)]), Action::Search).unwrap();
    let sent = |sender: Principal| session.clone().sent_by(Arc::new(ReplacedSender(sender)));
    sent(ann(vec![grant(&["*"], READ)])).again().await.unwrap();
    let refused = sent(Principal::system()).again().await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unauthorized);
}

#[test]
fn names_that_are_asked_for_all_the_time_are_remembered() {
    let privileges = Privileges::new(ActionSet::NONE, vec![grant(&["logs-*"], READ)]);
    let first = privileges.on("logs-1");
    for name in 0..20_000 {
        privileges.on(&format!("logs-{name}"));
        assert!(name % 100 > 0 || Arc::ptr_eq(&privileges.on("logs-1"), &first), "{name}");
    }
}

#[test]
fn a_key_remembers_a_thousand_indices_and_fewer_of_long_names() {
    let owner = Arc::new(Privileges::new(ActionSet::NONE, vec![grant(&["*"], ActionSet::ALL)]));
    for (tail, is_remembered) in [(0, true), (240, false)] {
        let key = Privileges::new(ActionSet::NONE, vec![grant(&["logs-*"], READ)]).within(Arc::clone(&owner));
        let all = || (0..1_000).map(|n| key.on(&format!("logs-{n}{}", "x".repeat(tail)))).collect::<Vec<_>>();
        let first = all();
        assert_eq!(first.iter().zip(all()).all(|(a, b)| Arc::ptr_eq(a, &b)), is_remembered, "{tail}");
    }
}

#[test]
fn what_many_rules_are_of_is_remembered_of_few_names() {
    let owner = Arc::new(Privileges::new(ActionSet::NONE, vec![grant(&["*"], ActionSet::ALL)]));
    let ruled = |count: usize| {
        let shows = |n: usize| Grant {
            documents: Some(format!("{{\"term\":{{\"n\":{n}}}}}").into()),
            ..grant(&["*"], READ)
        };
        Privileges::new(ActionSet::NONE, (0..count).map(shows).collect())
    };
    for (grants, names, is_remembered) in [(1, 200, true), (50, 200, false), (1_100, 1, false)] {
        let privileges = ruled(grants).within(Arc::clone(&owner));
        let first = privileges.on("logs");
        assert_eq!(first.documents(Action::Search)[0].any_of.len(), grants);
        for name in 0..names {
            privileges.on(&format!("logs-{name}"));
        }
        assert_eq!(Arc::ptr_eq(&privileges.on("logs"), &first), is_remembered, "{grants}");
    }
    // What is within no others is remembered of some, whatever is granted.
    let privileges = ruled(2_100);
    let (first, second) = (privileges.on("logs-1"), privileges.on("logs-2"));
    assert!(Arc::ptr_eq(&privileges.on("logs-1"), &first) && Arc::ptr_eq(&privileges.on("logs-2"), &second));
}

#[tokio::test]
async fn dead_letters_are_the_servers_and_no_event_is() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let write = |names: &[&str], own: &[&str]| {
        let of = |names: &[&str]| {
            names.iter().map(|name| document(name, None, Operation::Index("{\"a\":1}".into()))).collect()
        };
        SourceWrite { ops: of(names), own: of(own), moves: Vec::new() }
    };
    let letters: DeadLetter = Arc::new(|_, _| {
        OnReject::DeadLetter(document(".dead-letters", None, Operation::Index("{\"letter\":true}".into())))
    });
    let privileges =
        Privileges::new(ActionSet::NONE, vec![grant(&["logs-*", "mixed"], ActionSet::ALL)]).through_aliases();
    let pipeline = Principal::new(Caller::Pipeline("p".into()), Vec::new(), Arc::new(privileges));
    let (wait, written) = (Duration::from_secs(5), write(&["logs-1", ".dead-letters"], &[".dead-letters"]));
    // The same name by two rights.
    let outcomes = engine.write_from_source(&pipeline, written, letters.clone(), wait).await.unwrap();
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(Error::Unauthorized { .. })), "{outcomes:?}");
    let written = write(&["secret", "alert", "absent", "logs-new", "mixed"], &[]);
    let outcomes = engine.write_from_source(&pipeline, written, letters, wait).await.unwrap();
    let refused = |outcome: &Result<_>| matches!(outcome, Err(Error::Unauthorized { .. }));
    assert!(outcomes[..3].iter().all(refused) && outcomes[3].is_ok(), "{outcomes:?}");
    assert!(outcomes[4].as_ref().is_err_and(|error| error.to_string().contains("no write index")));
    // An alias whose name is granted stands for the index that it writes to, unless that is kept from all.
    let body = json!({"actions": [
        {"add": {"index": "secret", "alias": "mixed", "is_write_index": true}},
        {"add": {"index": "alert", "alias": "logs-alert"}},
    ]});
    let actions = parse_alias_actions(&body).unwrap();
    Session::system(&engine).change(|state| state.update_aliases(&actions, 0)).await.unwrap();
    let abandons: DeadLetter = Arc::new(|_, _| OnReject::Abort);
    let written = write(&["mixed", "logs-hidden"], &[]);
    let outcomes = engine.write_from_source(&pipeline, written, abandons.clone(), wait).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let written = write(&["logs-1", "logs-alert"], &[]);
    let outcome = engine.write_from_source(&pipeline, written, abandons, wait).await;
    assert!(matches!(outcome, Err(Error::DeadLetterRefused(_))), "{outcome:?}");
    // Nobody else's rights go by the names of aliases.
    let user = ann(vec![grant(&["logs-*", "mixed"], ActionSet::ALL)]);
    let session = Session::new(&engine, user, Action::Bulk).unwrap();
    let outcomes = session.write(write(&["mixed"], &[]).ops, RefreshPolicy::None, wait).await.unwrap();
    assert!(outcomes.iter().all(refused), "{outcomes:?}");
}
