use millrace_runtime::Error;
use serde_json::json;

use super::*;

const NOW: i64 = 1_711_069_323_456; // 2024-03-22

fn ids(state: &Metadata) -> Uuid {
    Uuid::from_u128(u128::from(state.version) + 1)
}

fn create(state: Metadata, name: &str, body: Value) -> Metadata {
    try_create(&state, name, body).unwrap()
}

fn try_create(state: &Metadata, name: &str, body: Value) -> Result<Metadata> {
    let request = CreateIndex::parse(name, &body, false, NOW)?;
    let (meta, mapping) = state.plan_index(&request, NOW, ids(state))?;
    Ok(state.apply(&[MetadataChange::PutIndex { meta: Arc::new(meta), mapping }]))
}

fn template(state: Metadata, kind: TemplateKind, name: &str, body: Value) -> Metadata {
    try_template(&state, kind, name, body).unwrap()
}

fn try_template(state: &Metadata, kind: TemplateKind, name: &str, body: Value) -> Result<Metadata> {
    let body = match kind {
        TemplateKind::Legacy => parse_legacy_template(name, &body, false, None)?,
        TemplateKind::Index => parse_index_template(name, &body)?,
        TemplateKind::Component => parse_component_template(name, &body)?,
    };
    Ok(state.apply(&state.put_template_unchecked(kind, name, body, false)?))
}

fn cluster(state: Metadata, persistent: Value) -> Metadata {
    let update = ClusterSettingsUpdate::parse(&json!({"persistent": persistent})).unwrap();
    state.apply(&state.update_cluster_settings(&update).unwrap())
}

fn names(found: Result<Vec<Arc<IndexMeta>>>) -> String {
    match found {
        Ok(found) => found.iter().map(|meta| &*meta.name).collect::<Vec<_>>().join(" "),
        Err(error) => format!("! {error}"),
    }
}

/// Open: a1 a2 b1 logs-2024.03.22; closed: c1; hidden: .h1 h2. Aliases: all-a, of-c, mixed.
fn some_indices() -> Metadata {
    let state = Metadata::default();
    let state = create(state, "a1", json!({"aliases": {"all-a": {}, "mixed": {}}}));
    let state = create(state, "a2", json!({"aliases": {"all-a": {"is_write_index": true}}}));
    let state = create(state, "b1", json!({"aliases": {"mixed": {}}}));
    let state = create(state, "c1", json!({"aliases": {"of-c": {}}}));
    let state = create(state, "logs-2024.03.22", json!({}));
    let state = create(state, ".h1", json!({"settings": {"hidden": true}}));
    let state = create(state, "h2", json!({"settings": {"index.hidden": "true"}, "aliases": {"seen": {}}}));
    let closed = state.close_indices("c1", &IndicesOptions::open_only(), NOW).unwrap();
    state.apply(&closed)
}

#[test]
fn expressions_resolve() {
    let state = some_indices();
    let read = IndicesOptions::open_only();
    let lenient = IndicesOptions { ignore_unavailable: true, ..read.clone() };
    let strict = IndicesOptions { allow_no_indices: false, ..read.clone() };
    let all = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
    let delete = IndicesOptions { ignore_aliases: true, ..IndicesOptions::open_and_closed() };
    let none = IndicesOptions { expand_open: false, ..read.clone() };
    for (expression, options, expected) in [
        ("a1", &read, "a1"),
        ("b1,a1,b1", &read, "b1 a1"),
        ("a*", &read, "a1 a2"),
        ("", &read, "a1 a2 b1 logs-2024.03.22"),
        ("_all", &read, "a1 a2 b1 logs-2024.03.22"),
        ("*", &read, "a1 a2 b1 logs-2024.03.22"),
        ("*", &all, ".h1 a1 a2 b1 c1 h2 logs-2024.03.22"),
        ("*,-a*", &read, "b1 logs-2024.03.22"),
        ("*,-all-a", &read, "b1 logs-2024.03.22"),
        ("*1,-a1", &read, "b1"),
        ("all-a", &read, "a1 a2"),
        ("mix*", &read, "a1 b1"),
        (".h*", &read, ".h1"),
        ("h*", &read, ""),
        ("seen", &read, "h2"),
        ("see*", &read, "h2"),
        ("<logs-{now/d}>", &read, "logs-2024.03.22"),
        ("c1", &read, "! closed"),
        ("of-c", &read, "! closed"),
        ("c1", &lenient, ""),
        ("c*", &read, ""),
        ("c*", &all, "c1"),
        ("nope", &read, "! no such index [nope]"),
        ("a1,nope", &read, "! no such index [nope]"),
        ("a1,nope", &lenient, "a1"),
        ("nope*", &read, ""),
        ("nope*", &strict, "! no such index [nope*]"),
        ("-a1", &read, "! no such index [-a1]"),
        ("_foo", &read, "! Invalid index name [_foo], must not start with '_'."),
        (
            "all-a",
            &delete,
            "! The provided expression [all-a] matches an alias, specify the corresponding concrete indices instead.",
        ),
        ("all*", &delete, ""),
        ("a*", &none, ""),
    ] {
        assert_eq!(names(state.resolve(expression, options, NOW)), expected, "[{expression}] {options:?}");
    }
    let strict_lenient = IndicesOptions { allow_no_indices: false, ..lenient };
    assert_eq!(names(state.resolve("nope", &strict_lenient, NOW)), "! no such index [nope]");
}

#[test]
fn writes_go_to_one_index() {
    let state = some_indices();
    let state = create(state, "w1", json!({"aliases": {"no-writer": {"is_write_index": false}}}));
    let to = |name: &str| state.write_index(name, NOW).map(|meta| meta.map(|meta| meta.name.to_string()));
    assert_eq!(to("a1").unwrap().as_deref(), Some("a1"));
    assert_eq!(to("all-a").unwrap().as_deref(), Some("a2"));
    assert_eq!(to("of-c").unwrap().as_deref(), Some("c1"));
    assert_eq!(to("<logs-{now/d}>").unwrap().as_deref(), Some("logs-2024.03.22"));
    assert_eq!(to("nope").unwrap(), None);
    for alias in ["mixed", "no-writer"] {
        let error = to(alias).unwrap_err().to_string();
        assert!(error.starts_with(&format!("no write index is defined for alias [{alias}]")), "{error}");
    }
}

#[test]
fn creation_fills_in_defaults() {
    let uuid = Uuid::from_u128(7);
    let request = CreateIndex::parse(
        "<logs-{now/d}>",
        &json!({"settings": {"index": {"refresh_interval": "5s"}, "number_of_replicas": 0}}),
        false,
        NOW,
    )
    .unwrap();
    let (meta, mapping) = Metadata::default().plan_index(&request, NOW, uuid).unwrap();
    assert_eq!(
        nest(&meta.settings),
        json!({"index": {
            "creation_date": NOW.to_string(),
            "number_of_replicas": "0",
            "number_of_shards": "1",
            "provided_name": "<logs-{now/d}>",
            "refresh_interval": "5s",
            "uuid": "AAAAAAAAAAAAAAAAAAAABw",
            "version": {"created": "7100299"}}})
    );
    assert_eq!((&*meta.name, meta.shards, meta.replicas, meta.open), ("logs-2024.03.22", 1, 0, true));
    assert_eq!(mapping, None);
    assert_eq!(meta.duration("index.refresh_interval"), Some(Duration::from_secs(5)));
    assert_eq!(meta.integer("index.max_result_window"), Some(10_000));
}

#[test]
fn creation_is_refused_in_opensearch_words() {
    let state = some_indices();
    let uuid = state.indices["a1"].uuid_text();
    let limited = cluster(state.clone(), json!({"cluster.max_shards_per_node": 10}));
    let too_many = json!({"settings": {"number_of_shards": 900, "number_of_replicas": 1}});
    for (name, body, expected) in [
        ("a1", json!({}), format!("index [a1/{uuid}] already exists")),
        ("all-a", json!({}), "Invalid index name [all-a], already exists as alias".into()),
        ("Upper", json!({}), "Invalid index name [Upper], must be lowercase".into()),
        ("x", json!({"foo": {}}), "unknown key [foo] for create index".into()),
        ("x", json!({"settings": 5}), "key [settings] must be an object".into()),
        ("x", json!([]), "request body must be an object, but found [[]]".into()),
        (
            "x",
            json!({"aliases": {"a1": {}}}),
            "Invalid alias name [a1]: an index exists with the same name as the alias".into(),
        ),
        (
            "x",
            json!({"aliases": {"x": {}}}),
            "Invalid alias name [x]: an index exists with the same name as the alias".into(),
        ),
        ("x", json!({"aliases": {"a": {"rooting": "b"}}}), "unknown field [rooting] in alias [a]".into()),
        (
            "x",
            json!({"aliases": {"all-a": {"is_write_index": true}}}),
            "alias [all-a] has more than one write index [a2,x]".into(),
        ),
        (
            "x",
            json!({"settings": {"number_of_shards": 0}}),
            "Failed to parse value [0] for setting [index.number_of_shards] must be >= 1".into(),
        ),
    ] {
        assert_eq!(try_create(&state, name, body).unwrap_err().to_string(), expected);
    }
    // Replicas count for nothing.
    assert_eq!(
        try_create(&limited, "x", too_many).unwrap_err().to_string(),
        "Validation Failed: 1: this action would add [900] total shards, but this cluster currently has \
         [6]/[10] maximum shards open;"
    );
    // The count follows what is closed, opened and deleted; the hidden ones stay open.
    let options = IndicesOptions::open_and_closed();
    let closed = limited.apply(&limited.close_indices("*", &options, NOW).unwrap());
    let full = create(closed, "x", json!({"settings": {"number_of_shards": 8}}));
    assert!(full.open_indices("*", &options, NOW).is_err());
    let room = full.apply(&full.delete_indices("x", &options, NOW).unwrap());
    let opened = room.apply(&room.open_indices("*", &options, NOW).unwrap());
    assert_eq!((room.open_shards, opened.open_shards), (2, 7));
}

#[test]
fn the_servers_own_indices_are_made_and_written_beyond_what_is_set() {
    let full = cluster(some_indices(), json!({"cluster.max_shards_per_node": 1}));
    assert!(try_create(&full, "x", json!({})).is_err());
    let mut state = full;
    for own in [".audit-2024.03.22", ".console", "alert"] {
        state = create(state, own, json!({}));
    }
    let options = IndicesOptions::open_and_closed();
    let closed = state.apply(&state.close_indices("alert", &options, NOW).unwrap());
    assert_eq!(closed.open_indices("alert", &options, NOW).unwrap().len(), 1);

    state.flood_stage = true;
    assert!(state.check_flood("a1", NOW).is_err() && state.check_flood("all-a", NOW).is_err());
    for own in [".audit-2024.03.22", ".audit-2024.03.23", "alert"] {
        state.check_flood(own, NOW).unwrap();
    }
    state.check_block(&state.indices["alert"], BlockLevel::MetadataWrite).unwrap();
    let last = [".audit-2024.03.22", ".alert_outbox"];
    state.disk_tight = true;
    for own in [".console", ".alertrules", "alert"] {
        // By that who sends notifications knows that alerts cannot be marked, but rows be written.
        assert!(matches!(state.check_flood(own, NOW), Err(Error::Blocked { .. })), "{own}");
    }
    last.into_iter().for_each(|own| state.check_flood(own, NOW).unwrap());
    state.disk_full = true;
    assert!(last.into_iter().all(|own| state.check_flood(own, NOW).is_err()));
}

#[test]
fn replicas_expand_to_what_one_node_has() {
    for (range, expected) in [("0-1", "0"), ("1-all", "1"), ("false", "3")] {
        let body = json!({"settings": {"auto_expand_replicas": range, "number_of_replicas": 3}});
        let state = create(Metadata::default(), "x", body);
        assert_eq!(state.indices["x"].settings["index.number_of_replicas"], expected);
    }
}

#[test]
fn legacy_templates_apply_in_order() {
    let state = Metadata::default();
    let state = template(
        state,
        TemplateKind::Legacy,
        "low",
        json!({
        "index_patterns": "logs-*", "order": 0,
        "settings": {"number_of_shards": 3, "refresh_interval": "9s"},
        "mappings": {"properties": {"a": {"type": "keyword"}, "b": {"type": "long"}}},
        "aliases": {"{index}-alias": {"routing": 1}}}),
    );
    let state = template(
        state,
        TemplateKind::Legacy,
        "high",
        json!({
        "index_patterns": ["other", "logs-1*"], "order": 5,
        "settings": {"index": {"number_of_shards": 2}},
        "mappings": {"properties": {"a": {"type": "text"}}}}),
    );
    let request = CreateIndex::parse(
        "logs-1",
        &json!({
        "settings": {"refresh_interval": null},
        "mappings": {"properties": {"b": {"type": "ip"}}}}),
        false,
        NOW,
    )
    .unwrap();
    let (meta, mapping) = state.plan_index(&request, NOW, Uuid::nil()).unwrap();
    assert_eq!(meta.shards, 2);
    assert!(!meta.settings.contains_key("index.refresh_interval"));
    assert_eq!(meta.aliases["logs-1-alias"], json!({"index_routing": "1", "search_routing": "1"}));
    assert_eq!(mapping.unwrap(), json!({"properties": {"b": {"type": "ip"}, "a": {"type": "text"}}}));
}

#[test]
fn the_type_of_a_legacy_template_is_kept() {
    let typed = parse_legacy_template(
        "t",
        &json!({"index_patterns": ["t-*"], "mappings": {"my_type": {"properties": {}}}}),
        true,
        Some(4),
    )
    .unwrap();
    assert_eq!(typed["order"], 4);
    let state = Metadata::default();
    let state = state.apply(&state.put_template_unchecked(TemplateKind::Legacy, "t", typed, true).unwrap());
    let state = create(state, "t-1", json!({}));
    assert_eq!(state.indices["t-1"].mapping_type(), "my_type");
}

#[test]
fn the_composable_template_of_highest_priority_wins_alone() {
    let state = Metadata::default();
    let state = template(
        state,
        TemplateKind::Legacy,
        "old",
        json!({
        "index_patterns": "*", "settings": {"number_of_shards": 9}}),
    );
    let state = template(
        state,
        TemplateKind::Component,
        "base",
        json!({
        "template": {"settings": {"number_of_shards": 2, "refresh_interval": "3s"},
                     "mappings": {"_doc": {"properties": {"a.b": {"type": "keyword"}}}}}}),
    );
    let state = template(
        state,
        TemplateKind::Index,
        "wide",
        json!({
        "index_patterns": ["x*"], "priority": 1, "template": {"settings": {"number_of_shards": 7}}}),
    );
    let state = template(
        state,
        TemplateKind::Index,
        "narrow",
        json!({
        "index_patterns": ["x-*"], "priority": 2, "composed_of": ["base"],
        "template": {"settings": {"number_of_shards": 4}, "aliases": {"ali": {}},
                     "mappings": {"properties": {"a": {"properties": {"c": {"type": "long"}}}}}}}),
    );
    let request = CreateIndex::parse(
        "x-1",
        &json!({"mappings": {"properties": {"a.b": {"type": "text"}}}}),
        false,
        NOW,
    )
    .unwrap();
    let (meta, mapping) = state.plan_index(&request, NOW, Uuid::nil()).unwrap();
    assert_eq!(meta.shards, 4);
    assert_eq!(meta.settings["index.refresh_interval"], "3s");
    assert!(meta.aliases.contains_key("ali"));
    assert_eq!(
        mapping.unwrap(),
        json!({"properties": {"a": {"properties": {"b": {"type": "text"}, "c": {"type": "long"}}}}})
    );
    assert_eq!(create(state.clone(), "y", json!({})).indices["y"].shards, 9);
    let hidden = json!({"settings": {"index.hidden": true}});
    assert_eq!(create(state, "y", hidden).indices["y"].shards, 1);
}

#[test]
fn templates_are_refused_in_opensearch_words() {
    let state = Metadata::default();
    let state = template(state, TemplateKind::Component, "part", json!({"template": {}}));
    let state = template(
        state,
        TemplateKind::Index,
        "old",
        json!({"index_patterns": ["a*", "q"], "composed_of": ["part"]}),
    );
    for (kind, body, expected) in [
        (TemplateKind::Legacy, json!({}), "Validation Failed: 1: index patterns are missing;"),
        (
            TemplateKind::Legacy,
            json!({"index_patterns": "x", "foo": 1}),
            "unknown key [foo] in the template ",
        ),
        (TemplateKind::Index, json!({}), "Validation Failed: 1: index patterns are missing;"),
        (
            TemplateKind::Index,
            json!({"index_patterns": "x", "foo": 1}),
            "[index_template] unknown field [foo]",
        ),
        (
            TemplateKind::Index,
            json!({"index_patterns": "x", "template": {"foo": 1}}),
            "[template] unknown field [foo]",
        ),
        (
            TemplateKind::Index,
            json!({"index_patterns": "x", "data_stream": {}, "template": {"aliases": {"y": {}}}}),
            "template [new] has alias and data stream definitions",
        ),
        (
            TemplateKind::Index,
            json!({"index_patterns": "x", "composed_of": ["nope", "part"]}),
            "index_template [new] invalid, cause [index template [new] specifies component templates [nope] that do \
             not exist]",
        ),
        (
            TemplateKind::Index,
            json!({"index_patterns": ["*b"]}),
            "index template [new] has index patterns [*b] matching patterns from existing templates [old] with patterns \
             (old => [a*, q]) that have the same priority [0], multiple index templates may not match during index \
             creation, please use a different priority",
        ),
        (TemplateKind::Component, json!({}), "Required [template]"),
        (
            TemplateKind::Component,
            json!({"template": {"settings": {"number_of_shards": -1}}}),
            "Failed to parse value [-1] for setting [index.number_of_shards] must be >= 1",
        ),
    ] {
        assert_eq!(try_template(&state, kind, "new", body).unwrap_err().to_string(), expected);
    }
    let again =
        state.put_template_unchecked(TemplateKind::Index, "old", json!({"index_patterns": ["a*"]}), true);
    assert_eq!(again.unwrap_err().to_string(), "index template [old] already exists");
    assert_eq!(
        state.delete_templates(TemplateKind::Component, "part").unwrap_err().to_string(),
        "component templates [part] cannot be removed as they are still in use by index templates [old]"
    );
    assert!(matches!(
        state.delete_templates(TemplateKind::Index, "nope"),
        Err(Error::TemplateNotFound { .. })
    ));
    let state = state.apply(&state.delete_templates(TemplateKind::Index, "o*").unwrap());
    assert!(state.index_templates.is_empty());
}

fn actions(body: Value) -> Vec<AliasAction> {
    parse_alias_actions(&json!({"actions": body})).unwrap()
}

#[test]
fn alias_actions_change_all_or_nothing() {
    let state = some_indices();
    let changes = state
        .update_aliases(
            &actions(json!([
                {"add": {"indices": ["a*"], "aliases": ["n1", "n2"], "routing": 5, "index_routing": "i",
                         "filter": {"term": {"x": 1}}}},
                {"remove": {"index": "a1", "alias": "all-*"}},
            ])),
            NOW,
        )
        .unwrap();
    let next = state.apply(&changes);
    let alias = json!({"filter": {"term": {"x": 1}}, "index_routing": "i", "search_routing": "5"});
    assert_eq!(next.indices["a1"].aliases["n1"], alias);
    assert_eq!(next.indices["a2"].aliases["n2"], alias);
    assert_eq!(*next.alias_indices("all-a").unwrap(), [Arc::from("a2")]);
    assert_eq!(next.alias_indices("n1").unwrap().len(), 2);
}

#[test]
fn an_alias_takes_the_name_of_a_removed_index() {
    let state = some_indices();
    let changes = state
        .update_aliases(
            &actions(json!([
                {"add": {"index": "a2", "alias": "b1"}},
                {"remove_index": {"index": "b1"}},
            ])),
            NOW,
        )
        .unwrap();
    let next = state.apply(&changes);
    assert!(!next.indices.contains_key("b1"));
    assert_eq!(names(next.resolve("b1", &IndicesOptions::open_only(), NOW)), "a2");
    assert_eq!(*next.alias_indices("mixed").unwrap(), [Arc::from("a1")]);
}

#[test]
fn alias_actions_are_refused_in_opensearch_words() {
    let state = some_indices();
    for (body, expected) in [
        (
            json!([{"add": {"index": "a1", "alias": "b1"}}]),
            "Invalid alias name [b1]: an index exists with the same name as the alias",
        ),
        (
            json!([{"add": {"index": "a1", "alias": "x*"}}]),
            r#"Invalid alias name [x*]: must not contain the following characters [ , ", *, \, <, |, ,, >, /, ?]"#,
        ),
        (json!([{"remove": {"index": "a1", "alias": "nope"}}]), "aliases [nope] missing"),
        (
            json!([{"add": {"index": "a1", "alias": "x"}}, {"remove": {"index": "a1", "alias": "nope", "must_exist": true}}]),
            "aliases [nope] missing",
        ),
        (json!([{"add": {"index": "nope", "alias": "x"}}]), "no such index [nope]"),
        (
            json!([{"add": {"index": "all-a", "alias": "x"}}]),
            "The provided expression [all-a] matches an alias, specify the corresponding concrete indices instead.",
        ),
        (
            json!([{"add": {"index": "a1", "alias": "all-a", "is_write_index": true}}]),
            "alias [all-a] has more than one write index [a1,a2]",
        ),
        (
            json!([{"add": {"index": "a1", "alias": "mixed", "is_hidden": true}}]),
            "alias [mixed] has is_hidden set to true on indices [a1] but does not have is_hidden set to true on indices \
             [b1]; alias must have the same is_hidden setting on all indices",
        ),
    ] {
        assert_eq!(state.update_aliases(&actions(body), NOW).unwrap_err().to_string(), expected);
    }
    for (body, expected) in [
        (json!({}), "Validation Failed: 1: Must specify at least one alias action;"),
        (json!({"action": []}), "[aliases] unknown field [action]"),
        (json!({"actions": [{"put": {}}]}), "[alias_action] unknown field [put]"),
        (json!({"actions": [{"add": {"index": "a"}}]}), "One of [alias] or [aliases] is required"),
        (json!({"actions": [{"add": {"alias": "a"}}]}), "One of [index] or [indices] is required"),
        (
            json!({"actions": [{"add": {"index": "a", "alias": "b", "foo": 1}}]}),
            "unknown field [foo] in alias [b]",
        ),
        (
            json!({"actions": [{"remove": {"index": "a", "alias": "b", "routing": 1}}]}),
            "[remove] unknown field [routing]",
        ),
        (
            json!({"actions": [{"add": {"index": "a", "alias": "b", "index_routing": "x,y"}}]}),
            "alias [b] has several index routing values associated with it",
        ),
    ] {
        assert_eq!(parse_alias_actions(&body).unwrap_err().to_string(), expected);
    }
}

#[test]
fn aliases_are_listed_with_what_is_missing() {
    let state = Metadata::default();
    let state = create(state, "i", json!({"aliases": {"a_1": {}, "a_2": {}, "b_1": {}, "b_2": {}, "t": {}}}));
    let state = create(state, "bare", json!({}));
    let all = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
    for (asked, shown, missing) in [
        ("a*,b_1", "a_1 a_2 b_1", ""),
        ("b_2,a*,-a_1", "a_2 b_2", ""),
        ("-a_1,a*,-a_2", "a_1", "-a_1"),
        ("-a_1,-no,a*,-t", "a_1 a_2", "-a_1 -no"),
        ("a_1,b_2,-a*,-b_2", "", ""),
        ("-no,-no*,-other", "", "-no"),
        ("nope", "", "nope"),
        ("_all", "a_1 a_2 b_1 b_2 t", ""),
    ] {
        let listing = state.list_aliases(None, Some(asked), &all, NOW).unwrap();
        let found: Vec<&str> = listing
            .indices
            .iter()
            .flat_map(|(_, aliases)| aliases.iter().map(|(name, _)| name.as_str()))
            .collect();
        assert_eq!(
            (found.join(" "), listing.missing.join(" ")),
            (shown.to_owned(), missing.to_owned()),
            "{asked}"
        );
        assert!(listing.indices.iter().all(|(meta, _)| &*meta.name == "i"));
    }
    assert_eq!(state.list_aliases(None, None, &all, NOW).unwrap().indices.len(), 2);
}

#[test]
fn deletion_heeds_names_and_blocks() {
    let options = IndicesOptions { expand_closed: true, ..IndicesOptions::open_and_closed() };
    let state = some_indices();
    let next = state.apply(&state.delete_indices("a*,c1", &options, NOW).unwrap());
    assert_eq!(
        next.indices.keys().map(|name| &**name).collect::<Vec<_>>(),
        [".h1", "b1", "h2", "logs-2024.03.22"]
    );
    assert_eq!(next.alias_indices("all-a"), None);

    let strict = cluster(state.clone(), json!({"action.destructive_requires_name": true}));
    for expression in ["*", "_all", "", "a*", "a1,b*"] {
        let error = strict.delete_indices(expression, &options, NOW).unwrap_err().to_string();
        assert_eq!(error, "Wildcard expressions or all indices are not allowed");
    }
    strict.delete_indices("a1", &options, NOW).unwrap();

    let update = json!({"index.blocks.read_only": true});
    let blocked = state.apply(&state.update_settings("a1", &options, &update, false, NOW).unwrap());
    assert_eq!(
        blocked.delete_indices("a1", &options, NOW).unwrap_err().to_string(),
        "index [a1] blocked by: [FORBIDDEN/5/index read-only (api)];"
    );
    let freed = json!({"index.blocks.read_only": null});
    let freed = blocked.apply(&blocked.update_settings("a1", &options, &freed, false, NOW).unwrap());
    freed.delete_indices("a1", &options, NOW).unwrap();
}

#[test]
fn a_recreated_index_survives_the_deletion_of_the_old_one() {
    let state = create(Metadata::default(), "x", json!({}));
    let stale = state.delete_indices("x", &IndicesOptions::open_only(), NOW).unwrap();
    let state = state.apply(&stale);
    let state = create(state, "x", json!({}));
    assert!(state.apply(&stale).indices.contains_key("x"));
}

#[test]
fn settings_update_by_scope() {
    let options = IndicesOptions::open_and_closed();
    let state = create(Metadata::default(), "o", json!({"settings": {"number_of_replicas": 0}}));
    let state = create(state, "c", json!({}));
    let state = state.apply(&state.close_indices("c", &options, NOW).unwrap());
    let uuid = state.indices["o"].uuid_text();
    let put = |index: &str, body: Value, preserve: bool| {
        state.update_settings(index, &options, &body, preserve, NOW).map(|changes| state.apply(&changes))
    };
    for (index, body, expected) in [
        ("o", json!({"number_of_shards": 2}), format!("Can't update non dynamic settings [[index.number_of_shards]] for open indices [[o/{uuid}]]")),
        ("o,c", json!({"codec": "default", "analysis.x": "y"}), format!("Can't update non dynamic settings [[index.analysis.x, index.codec]] for open indices [[o/{uuid}]]")),
        ("c", json!({"number_of_shards": 2}), "final index setting [index.number_of_shards], not updateable".into()),
        ("o", json!({"index.uuid": "x"}), "can not update private setting [index.uuid]; this setting is managed by the server".into()),
        ("o", json!({"index.foo": 1}), "unknown setting [index.foo] please check that any required plugins are installed, or check the breaking changes documentation for removed settings".into()),
        ("o", json!({}), "Validation Failed: 1: no settings to update;".into()),
        ("o", json!({"number_of_replicas": -1}), "Failed to parse value [-1] for setting [index.number_of_replicas] must be >= 0".into()),
        ("nope", json!({"number_of_replicas": 1}), "no such index [nope]".into()),
    ] {
        assert_eq!(put(index, body, false).unwrap_err().to_string(), expected);
    }
    let next =
        put("o", json!({"settings": {"index": {"number_of_replicas": 2, "refresh_interval": "-1"}}}), false)
            .unwrap();
    assert_eq!(next.indices["o"].replicas, 2);
    assert_eq!(next.indices["o"].duration("index.refresh_interval"), None);
    let next = put("o", json!({"number_of_replicas": 2, "translog.durability": "async"}), true).unwrap();
    assert_eq!(next.indices["o"].replicas, 0);
    assert_eq!(next.indices["o"].settings["index.translog.durability"], "async");
    let next = put("o", json!({"number_of_replicas": null}), false).unwrap();
    assert_eq!(next.indices["o"].replicas, 1);
    let next = put("o", json!({"index.*": null}), false).unwrap();
    assert_eq!(next.indices["o"].settings["index.number_of_shards"], "1");
    assert!(next.indices["o"].settings.contains_key("index.uuid"));
    let next = put("c", json!({"query_string.lenient": true}), false).unwrap();
    assert!(next.indices["c"].flag("index.query_string.lenient"));
}

#[test]
fn blocks_forbid_by_level() {
    let state = create(
        Metadata::default(),
        "i",
        json!({"settings": {"blocks": {"write": true, "read_only_allow_delete": true}}}),
    );
    let meta = &state.indices["i"];
    assert_eq!(
        check_block(meta, BlockLevel::Write).unwrap_err().to_string(),
        "index [i] blocked by: [FORBIDDEN/8/index write (api), TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage \
         watermark, index has read-only-allow-delete block];"
    );
    check_block(meta, BlockLevel::Read).unwrap();
    check_block(meta, BlockLevel::Delete).unwrap();
    assert!(check_block(meta, BlockLevel::MetadataWrite).is_err());
}

#[test]
fn cluster_settings_update_and_reset() {
    let state = Metadata::default();
    assert_eq!(state.cluster_setting("search.max_buckets"), Some(json!("65535")));
    assert_eq!(state.cluster_setting("nope"), None);
    let state =
        cluster(state, json!({"search": {"max_buckets": 5}, "cluster.routing.allocation.enable": "none"}));
    assert_eq!(state.cluster_setting("search.max_buckets"), Some(json!("5")));
    let update = ClusterSettingsUpdate::parse(&json!({
        "transient": {"search.max_buckets": 7}, "persistent": {"cluster.*": null}}))
    .unwrap();
    let state = state.apply(&state.update_cluster_settings(&update).unwrap());
    assert_eq!(state.cluster_setting("search.max_buckets"), Some(json!("7")));
    assert_eq!(Value::Object((*state.persistent).clone()), json!({"search.max_buckets": "5"}));
    let update = ClusterSettingsUpdate::parse(&json!({"transient": {"search.max_buckets": null}})).unwrap();
    let state = state.apply(&state.update_cluster_settings(&update).unwrap());
    assert_eq!(state.cluster_setting("search.max_buckets"), Some(json!("5")));
    for (body, expected) in [
        (json!({"persistent": {"foo.bar": 1}}), "persistent setting [foo.bar], not recognized"),
        (json!({"transient": {"foo.bar": null}}), "transient setting [foo.bar], not recognized"),
        (
            json!({"transient": {"search.max_bucket": 1}}),
            "transient setting [search.max_bucket], not recognized",
        ),
        (
            json!({"persistent": {"cluster.name": "x"}}),
            "persistent setting [cluster.name], not dynamically updateable",
        ),
        (
            json!({"transient": {"indices.query.bool.max_clause_count": 4096}}),
            "transient setting [indices.query.bool.max_clause_count], not dynamically updateable",
        ),
        (
            json!({"persistent": {"action.destructive_requires_name": "x"}}),
            "Failed to parse value [x] as only [true] or [false] are allowed.",
        ),
        (
            json!({"persistent": {"action.auto_create_index": "+a,,"}}),
            "Can't parse [+a,,] for setting [action.auto_create_index] must be either [true, false, or a comma separated \
             list of index patterns]",
        ),
        (
            json!({"transient": {"cluster.blocks.read_only": true}}),
            "transient setting [cluster.blocks.read_only] is not supported; set index.blocks.* on the indices instead",
        ),
    ] {
        let update = ClusterSettingsUpdate::parse(&body).unwrap();
        let result = state.update_cluster_settings(&update);
        if body == json!({"transient": {"search.max_bucket": 1}}) {
            // Families of settings are kept as given.
            result.unwrap();
        } else {
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }
    for (body, expected) in [
        (json!({}), "Validation Failed: 1: no settings to update;"),
        (json!({"defaults": {}}), "[cluster_update_settings_request] unknown field [defaults]"),
    ] {
        assert_eq!(ClusterSettingsUpdate::parse(&body).unwrap_err().to_string(), expected);
    }
}

#[test]
fn automatic_creation_follows_its_setting() {
    for (setting, name, expected) in [
        ("true", "x", ""),
        ("false", "x", "no such index [x] and [action.auto_create_index] is [false]"),
        ("+a*,-b*", "a1", ""),
        ("a*", "a1", ""),
        (
            "+a*,-b*",
            "b1",
            "no such index [b1] and [action.auto_create_index] contains [-b*] which forbids automatic creation of the \
             index",
        ),
        ("+a*,-b*", "c", "no such index [c] and [action.auto_create_index] ([+a*,-b*]) doesn't match"),
        (
            "-bad*,+*",
            "bad1",
            "no such index [bad1] and [action.auto_create_index] contains [-bad*] which forbids automatic creation of the index",
        ),
        ("-bad*,+*", "good", ""),
    ] {
        let state = cluster(Metadata::default(), json!({"action.auto_create_index": setting}));
        let refusal =
            state.auto_create_allowed(name).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refusal, expected, "{setting} {name}");
    }
}

#[test]
fn changes_survive_storage() {
    let state = create(Metadata::default(), "x", json!({"aliases": {"a": {}}}));
    let change = MetadataChange::PutIndex {
        meta: state.indices["x"].clone(),
        mapping: Some(json!({"properties": {}})),
    };
    let text = serde_json::to_string(&change).unwrap();
    assert_eq!(serde_json::from_str::<MetadataChange>(&text).unwrap(), change);
}

#[test]
fn uuids_render_as_base64() {
    assert_eq!(uuid_text(&Uuid::from_u128(u128::MAX)), "_____________________w");
    assert_eq!(
        uuid_text(&Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)),
        "AAECAwQFBgcICQoLDA0ODw"
    );
}
