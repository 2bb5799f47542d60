use serde_json::json;

use super::*;

fn parse(body: &Value) -> crate::Result<IndexPolicy> {
    IndexPolicy::parse("p", body, 7)
}

#[test]
fn a_policy_is_shown_with_its_defaults_and_read_back() {
    let body = json!({
        "description": "logs",
        "default_state": "hot",
        "states": [
            {"name": "hot", "actions": [{"rollover": {"min_size": "5gb", "copy_alias": true}}],
             "transitions": [{"state_name": "gone", "conditions": {"min_rollover_age": "7d"}}]},
            {"name": "gone", "actions": [
                {"retry": {"count": 1, "backoff": "linear", "delay": "10m"}, "timeout": "1h", "force_merge": {"max_num_segments": 1}},
                {"snapshot": {"repository": "r", "snapshot": "s"}},
                {"alias": {"actions": [{"add": {"alias": "old"}}]}},
                {"delete": {}},
            ], "transitions": []},
        ],
        "ism_template": {"index_patterns": ["logs-*", "-logs-x*"], "priority": 5},
    });
    let policy = parse(&body).unwrap();
    assert_eq!(policy.body["states"][0]["actions"][0]["retry"]["count"], 3);
    assert_eq!(policy.body["ism_template"][0]["last_updated_time"], 7);
    assert_eq!(policy.updated_ms(), 7);
    assert_eq!((policy.priority_for("logs-1"), policy.priority_for("logs-x1")), (Some(5), None));
    assert_eq!(IndexPolicy::from_stored(&policy.body).unwrap(), policy);
    let retry = policy.states[1].actions[0].retry;
    assert_eq!(retry.delay_after(2), Duration::from_secs(1200));
    let exponential = policy.states[0].actions[0].retry;
    assert_eq!(exponential.delay_after(3), Duration::from_secs(240));
}

#[test]
fn what_is_no_policy_is_refused_by_name() {
    let state = |state: Value| json!({"default_state": "a", "states": [state]});
    for (body, needle) in [
        (json!({}), "at least one state"),
        (json!({"states": [{"name": "a"}]}), "default_state"),
        (json!({"default_state": "b", "states": [{"name": "a"}]}), "valid default state"),
        (json!({"default_state": "a", "states": [{"name": "a"}, {"name": "a"}]}), "same name"),
        (json!({"default_state": "a", "states": [{"name": "a"}], "x": 1}), "[x]"),
        (state(json!({"name": "a", "actions": [{"rollup": {}}]})), "[rollup] is not supported"),
        (state(json!({"name": "a", "actions": [{"jump": {}}]})), "[jump]"),
        (state(json!({"name": "a", "actions": [{"delete": {}}, {"close": {}}]})), "behind [delete]"),
        (state(json!({"name": "a", "actions": [{"delete": {"x": 1}}]})), "[x]"),
        (state(json!({"name": "a", "actions": [{"force_merge": {}}]})), "max_num_segments"),
        (state(json!({"name": "a", "actions": [{"rollover": {"min_size": "5"}}]})), "min_size"),
        (state(json!({"name": "a", "transitions": [{"state_name": "b"}]})), "nonexistent state=b"),
        (
            state(
                json!({"name": "a", "transitions": [{"state_name": "a", "conditions": {"min_size": "1kb", "min_doc_count": 1}}]}),
            ),
            "more than one",
        ),
        (
            state(
                json!({"name": "a", "transitions": [{"state_name": "a", "conditions": {"cron": {"expression": "x"}}}]}),
            ),
            "cron",
        ),
    ] {
        let reason = parse(&body).unwrap_err().to_string();
        assert!(reason.contains(needle), "{body}: {reason}");
    }
}

#[test]
fn policies_of_ilm_become_states() {
    let body = json!({"policy": {"phases": {
        "hot": {"actions": {"rollover": {"max_size": "50gb", "max_age": "30d"}, "set_priority": {"priority": 100}}},
        "warm": {"min_age": "7d", "actions": {"forcemerge": {"max_num_segments": 1, "index_codec": "best_compression"}, "readonly": {}, "allocate": {"include": {}}}},
        "delete": {"min_age": "90d", "actions": {"delete": {}}},
    }}});
    let (policy, ignored) = parse_ilm("p", &body, 7).unwrap();
    assert_eq!(ignored, ["warm.forcemerge.index_codec", "warm.allocate"]);
    let names: Vec<&str> = policy.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!((names.as_slice(), policy.default_state.as_str()), (&["hot", "warm", "delete"][..], "hot"));
    assert_eq!(policy.states[0].actions[0].spec, ActionSpec::IndexPriority(100));
    assert!(matches!(policy.states[0].actions[1].spec, ActionSpec::Rollover(_)));
    assert_eq!(policy.states[1].actions[0].spec, ActionSpec::ReadOnly);
    let week = Duration::from_secs(7 * 86_400);
    assert_eq!(policy.states[0].transitions[0].condition, Some(TransitionCondition::RolloverAge(week)));
    for (body, needle) in [
        (json!({"policy": {}}), "phases"),
        (json!({"policy": {"phases": {"tepid": {}}}}), "tepid"),
        (
            json!({"policy": {"phases": {"hot": {"actions": {"searchable_snapshot": {}}}}}}),
            "searchable_snapshot",
        ),
    ] {
        let reason = parse_ilm("p", &body, 7).unwrap_err().to_string();
        assert!(reason.contains(needle), "{reason}");
    }
    let only_delete = json!({"policy": {"phases": {"delete": {"min_age": "1d", "actions": {"delete": {}}}}}});
    let (policy, _) = parse_ilm("p", &only_delete, 7).unwrap();
    let day = Duration::from_secs(86_400);
    assert_eq!(policy.states[0].transitions[0].condition, Some(TransitionCondition::IndexAge(day)));
}

#[test]
fn what_ilm_says_of_nodes_is_stated_and_a_shrink_replaces_its_source() {
    let body = json!({"policy": {"phases": {
        "warm": {"actions": {
            "allocate": {"number_of_replicas": 0, "require": {"box": "warm"}},
            "shrink": {"max_primary_shard_size": "50gb", "allow_write_after_shrink": false},
            "forcemerge": {"max_num_segments": 1},
        }},
        "delete": {"min_age": "9d", "actions": {"delete": {"delete_searchable_snapshot": true}}},
    }}});
    let (policy, ignored) = parse_ilm("p", &body, 7).unwrap();
    let stated = [
        "warm.allocate.require",
        "warm.shrink.allow_write_after_shrink",
        "delete.delete.delete_searchable_snapshot",
    ];
    assert_eq!(ignored, stated);
    let [shrink, merge, replicas] = &policy.states[0].actions[..] else { panic!("{policy:?}") };
    let ActionSpec::Shrink(target) = &shrink.spec else { panic!("{shrink:?}") };
    assert!(target.replace_source && target.switch_aliases);
    assert_eq!((&merge.spec, &replicas.spec), (&ActionSpec::ForceMerge(1), &ActionSpec::ReplicaCount(0)));
    assert_eq!(IndexPolicy::from_stored(&policy.body).unwrap().states, policy.states);
    for (phase, action, needle) in [
        ("cold", json!({"shrink": {"number_of_shards": 1}}), "action [shrink] of phase [cold]"),
        ("warm", json!({"shrink": {}}), "exactly one"),
        ("warm", json!({"shrink": {"shards": 1}}), "[shrink] unknown field [shards]"),
        (
            "warm",
            json!({"allocate": {"number_of_replicas": 1, "rack": 1}}),
            "[allocate] unknown field [rack]",
        ),
        ("delete", json!({"delete": {"later": true}}), "[delete] unknown field [later]"),
    ] {
        let body = json!({"policy": {"phases": {phase: {"actions": action}}}});
        let refused = parse_ilm("p", &body, 7).unwrap_err().to_string();
        assert!(refused.contains(needle), "{refused}");
    }
}

#[test]
fn templates_of_the_same_priority_conflict() {
    let with = |templates: Value| {
        parse(&json!({"default_state": "a", "states": [{"name": "a"}], "ism_template": templates})).unwrap()
    };
    let template = |pattern: &str, priority: u64| json!({"index_patterns": [pattern], "priority": priority});
    let logs = with(json!([template("logs-*", 1)]));
    let conflict = |policy: &IndexPolicy| policy.find_conflict("new", [("old", &logs)].into_iter());
    let reason = conflict(&with(json!([template("*-web", 1)]))).unwrap();
    assert!(reason.contains("policy [old] => [logs-*]") && reason.contains("priority than 1"), "{reason}");
    for free in [template("*-web", 2), template("metrics-*", 1), template("-logs-*", 1)] {
        assert_eq!(conflict(&with(json!([free]))), None, "{free}");
    }
    let own = with(json!([template("a*", 0), template("*b", 0)]));
    assert!(conflict(&own).unwrap().contains("policy [new] => [a*]"));
}
