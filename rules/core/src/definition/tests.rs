//! Tests of reading, refusals by name, storage, and the effect of edits.

use serde_json::{Value, json};

use super::*;
use crate::error::Kind;

fn parse(rule: Value) -> Definition {
    Definition::parse(&rule).unwrap_or_else(|error| panic!("{rule}: {error}"))
}

/// A rule of each type.
fn of_each_type() -> Vec<Value> {
    vec![
        json!({"name": "r", "index": "i", "type": "any"}),
        json!({"name": "r", "index": "i", "num_events": 3, "timeframe": "1m"}),
        json!({"name": "r", "index": "i", "type": "cardinality", "cardinality_field": "a.b", "max_cardinality": 2}),
        json!({"name": "r", "index": "i", "type": "blacklist", "compare_key": "a", "blacklist": ["x", 1, true]}),
        json!({"name": "r", "index": "i", "type": "whitelist", "compare_key": ["a", "b"], "whitelist": ["x"],
            "ignore_null": true}),
        json!({"name": "r", "index": "i", "type": "change", "query_key": "k", "compare_key": "a", "timeframe": {"days": 1}}),
        json!({"name": "r", "index": "i", "type": "new term", "fields": ["a", ["b", "c"]], "terms_window_size": "2w"}),
        json!({"name": "r", "index": "i", "type": "spike", "spike_height": 3, "spike_type": "both", "timeframe": "10m",
            "threshold_ref": 5, "field_value": "a", "query_key": "k", "alert_on_new_data": true}),
        json!({"name": "r", "index": "i", "type": "flatline", "threshold": 3, "forget_keys": "yes", "query_delay": "20s"}),
        json!({"name": "r", "index": "i", "type": "cardinality", "cardinality_field": "a.b", "min_cardinality": 2}),
        json!({"name": "r", "index": "i", "type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "percentiles",
            "percentile_range": [95], "max_threshold": 1.5, "buffer_time": {"minutes": 15}}),
        json!({"name": "r", "index": "i", "type": "percentage_match", "match_bucket_filter": [{"term": {"a": 1}}],
            "min_percentage": 5, "bucket_interval": "1h", "min_denominator": 10, "recovery": true,
            "schedule": "* 8-15 * * mon-fri Europe/Warsaw"}),
    ]
}

#[test]
fn names_and_places_of_options_make_no_difference() {
    let plain = parse(json!({
        "id": "1", "name": "r", "index": "a-*,b", "search.request.body": {"query": {"match_all": {}}},
        "timeframe": "5m", "num_events": 3, "alert_method": "email", "email": "a@b", "importance": 70,
        "selectedroles": ["x"], "query_key": "user", "realert": "1h", "alertruleplaybooks": "p",
    }));
    let stored = parse(json!({
        "id": "1", "alertrulename": "r", "alertruleindexpattern": ["a-*", "b"],
        "search": {"request": {"body": {"query": {"match_all": {}}}}}, "alertruletype": "Frequency",
        "alertrulemethod": "email", "email": ["a@b"], "alertruleimportance": "70", "selectedroles": "x",
        "alertruleplaybooks": ["p"], "enable": "yes",
        "alertrule_any": "timeframe: {minutes: 5}\nnum_events: 3\nquery_key: [user]\nrealert:\n  hours: 1\n",
    }));
    assert_eq!(plain, stored);
    assert_eq!(plain.index, ["a-*", "b"]);
    assert_eq!((plain.importance, plain.enabled, plain.timestamp_field.as_str()), (70, true, "@timestamp"));
}

#[test]
fn defaults_are_those_of_the_interface() {
    let rule = parse(json!({"name": "r", "index": "i", "search.request.body": {"query": {"match_all": {}}}}));
    let expected =
        RuleType::Frequency { num_events: 1, timeframe: Span::from_secs(300), attach_related: false };
    assert_eq!(rule.rule_type, expected);
    assert_eq!(
        (rule.notification.method(), rule.realert, rule.importance),
        (json!("none"), Realert::default(), 50)
    );
    let change =
        parse(json!({"name": "r", "index": "i", "type": "change", "query_key": "k", "compare_key": "a"}));
    assert!(matches!(change.rule_type, RuleType::Change { timeframe: None, .. }));
}

#[test]
fn the_stored_form_reads_back() {
    for mut rule in of_each_type() {
        rule["id"] = json!("x");
        rule["search.request.index"] = json!(["other"]);
        rule["alert_text"] = json!("{0} and {}");
        rule["alert_text_args"] = json!(["a", "b"]);
        rule["alert_subject_max_len"] = json!(20);
        rule["realert"] = json!("90s");
        rule["exponential_realert"] = json!({"minutes": 2.5});
        rule["include"] = json!(["a", "b.*"]);
        rule["slack_webhook_url"] = json!("https://example.com/secret");
        rule["priority"] = json!(2);
        let definition = parse(rule);
        assert_eq!(parse(definition.document()), definition);
        assert!(!definition.document().to_string().contains("secret"), "{}", definition.document());
    }
}

#[test]
fn each_field_that_is_missing_wrong_or_out_of_range_is_named() {
    let base = json!({"name": "r", "index": "i", "type": "any"});
    let cases = [
        ("name", json!({"name": null})),
        ("name", json!({"name": "  "})),
        ("name", json!({"name": ["a"]})),
        ("name", json!({"name": "a".repeat(300)})),
        ("index", json!({"index": null})),
        ("index", json!({"index": ","})),
        ("index", json!({"index": "Logs"})),
        ("index", json!({"index": "alert"})),
        ("index", json!({"index": {"a": 1}})),
        ("type", json!({"type": "spike_aggregation"})),
        ("type", json!({"type": null, "spike_height": 2, "timeframe": "1m"})),
        ("spike_height", json!({"type": "spike", "spike_type": "up"})),
        ("spike_height", json!({"type": "spike", "spike_type": "up", "spike_height": 0.5})),
        ("spike_height", json!({"type": "spike", "spike_type": "up", "spike_height": "high"})),
        ("spike_type", json!({"type": "spike", "spike_height": 2})),
        ("spike_type", json!({"type": "spike", "spike_height": 2, "spike_type": "sideways"})),
        (
            "threshold_ref",
            json!({"type": "spike", "spike_height": 2, "spike_type": "up", "threshold_ref": -1}),
        ),
        (
            "alert_on_new_data",
            json!({"type": "spike", "spike_height": 2, "spike_type": "up", "alert_on_new_data": true}),
        ),
        ("field_value", json!({"type": "spike", "spike_height": 2, "spike_type": "up", "field_value": "a."})),
        ("threshold", json!({"type": "flatline"})),
        ("threshold", json!({"type": "flatline", "threshold": 0})),
        ("timeframe", json!({"type": "flatline", "threshold": 1, "timeframe": "0.5s"})),
        ("forget_keys", json!({"type": "flatline", "threshold": 1, "forget_keys": "perhaps"})),
        ("query_delay", json!({"type": "flatline", "threshold": 1, "query_delay": "later"})),
        (
            "metric_agg_key",
            json!({"type": "metric_aggregation", "metric_agg_type": "avg", "max_threshold": 1}),
        ),
        ("metric_agg_type", json!({"type": "metric_aggregation", "metric_agg_key": "a", "max_threshold": 1})),
        (
            "metric_agg_type",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "median", "max_threshold": 1}),
        ),
        (
            "max_threshold",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "avg"}),
        ),
        (
            "min_threshold",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "avg", "max_threshold": 1,
                "min_threshold": 2}),
        ),
        (
            "max_threshold",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "cardinality",
                "max_threshold": 1e9}),
        ),
        (
            "percentile_range",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "percentiles",
                "max_threshold": 1}),
        ),
        (
            "percentile_range",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "avg", "percentile_range": 5,
                "max_threshold": 1}),
        ),
        (
            "bucket_interval",
            json!({"type": "metric_aggregation", "metric_agg_key": "a", "metric_agg_type": "avg", "max_threshold": 1,
                "bucket_interval": "1"}),
        ),
        ("metric_agg_script", json!({"metric_agg_script": {"script": "1"}})),
        ("match_bucket_filter", json!({"type": "percentage_match", "max_percentage": 5})),
        (
            "match_bucket_filter",
            json!({"type": "percentage_match", "max_percentage": 5, "match_bucket_filter": "x"}),
        ),
        (
            "match_bucket_filter",
            json!({"type": "percentage_match", "max_percentage": 5, "match_bucket_filter": ["x"]}),
        ),
        ("max_percentage", json!({"type": "percentage_match", "match_bucket_filter": []})),
        (
            "max_percentage",
            json!({"type": "percentage_match", "match_bucket_filter": [], "max_percentage": 101}),
        ),
        ("schedule", json!({"schedule": "sometimes"})),
        ("schedule", json!({"calendar": {"schedule": "* * * * *", "timezone": "Mars"}})),
        ("recovery", json!({"recovery": {"command": "true"}})),
        ("type", json!({"type": "frequncy"})),
        ("type", json!({"type": null, "blacklist": ["a"], "timeframe": "1m"})),
        ("search.request.body", json!({"type": null})),
        ("search.request.body", json!({"search.request.body": "text"})),
        ("search.request.body.query", json!({"search.request.body": {"query": []}})),
        ("search.request.body.aggs", json!({"search.request.body": {"aggs": {}}})),
        ("search.request.body.min_score", json!({"search": {"request": {"body": {"min_score": 1}}}})),
        ("search.request.size", json!({"search.request": {"size": 1}})),
        ("search.response", json!({"search": {"response": {}}})),
        (
            "search.request.body",
            json!({"search.request.body": {"query": {"match": {"a": "x".repeat(2 << 20)}}}}),
        ),
        ("filter", json!({"filter": ["text"]})),
        ("filter", json!({"filter": [], "search.request.body": {}})),
        ("timeframe", json!({"type": "frequency", "timeframe": "5"})),
        ("timeframe", json!({"type": "frequency", "timeframe": 5})),
        ("timeframe", json!({"type": "frequency", "timeframe": "5y"})),
        ("timeframe", json!({"type": "frequency", "timeframe": "0s"})),
        ("timeframe", json!({"type": "frequency", "timeframe": "-1m"})),
        ("timeframe", json!({"type": "frequency", "timeframe": "1000w"})),
        ("timeframe", json!({"type": "frequency", "timeframe": {"fortnights": 1}})),
        ("timeframe", json!({"type": "frequency", "timeframe": {"minutes": "1"}})),
        ("timeframe", json!({"type": "frequency", "timeframe": {}})),
        ("timeframe", json!({"type": "frequency", "timeframe": "1é"})),
        ("num_events", json!({"type": "frequency", "num_events": 0})),
        ("num_events", json!({"type": "frequency", "num_events": 1.5})),
        ("num_events", json!({"type": "frequency", "num_events": 1_000_000})),
        ("num_events", json!({"type": "frequency", "num_events": -1})),
        ("attach_related", json!({"type": "frequency", "attach_related": 1})),
        ("query_key", json!({"query_key": "a..b"})),
        ("query_key", json!({"query_key": [1, ""]})),
        ("query_key", json!({"query_key": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]})),
        ("query_key", json!({"type": "change", "compare_key": "a"})),
        ("compare_key", json!({"type": "blacklist", "blacklist": ["a"]})),
        ("compare_key", json!({"type": "blacklist", "blacklist": ["a"], "compare_key": []})),
        ("blacklist", json!({"type": "blacklist", "compare_key": "a"})),
        ("blacklist", json!({"type": "blacklist", "compare_key": "a", "blacklist": []})),
        ("blacklist", json!({"type": "blacklist", "compare_key": "a", "blacklist": ["!file /etc/passwd"]})),
        ("whitelist", json!({"type": "whitelist", "compare_key": "a", "whitelist": [["a"]]})),
        ("whitelist", json!({"type": "whitelist", "compare_key": "a", "whitelist": vec!["x"; 100_001]})),
        ("cardinality_field", json!({"type": "cardinality", "max_cardinality": 1})),
        ("max_cardinality", json!({"type": "cardinality", "cardinality_field": "a"})),
        ("min_cardinality", json!({"type": "cardinality", "cardinality_field": "a", "min_cardinality": 0})),
        (
            "min_cardinality",
            json!({"type": "cardinality", "cardinality_field": "a", "min_cardinality": 1, "max_cardinality": 2}),
        ),
        ("fields", json!({"type": "new_term"})),
        ("fields", json!({"type": "new_term", "fields": []})),
        ("fields", json!({"type": "new_term", "fields": [[]]})),
        ("terms_window_size", json!({"type": "new_term", "fields": "a", "terms_window_size": "1ms"})),
        ("ignore_null", json!({"ignore_null": "maybe"})),
        ("timestamp_field", json!({"timestamp_field": ["a"]})),
        ("timestamp_type", json!({"timestamp_type": "moon"})),
        ("realert", json!({"realert": "soon"})),
        ("exponential_realert", json!({"exponential_realert": "1h"})),
        ("exponential_realert", json!({"realert": "2h", "exponential_realert": "1h"})),
        ("importance", json!({"importance": 0})),
        ("importance", json!({"importance": 101})),
        ("importance", json!({"importance": "high"})),
        ("alert_text", json!({"alert_text": "{1}", "alert_text_args": ["a"]})),
        ("alert_text", json!({"alert_text": "{0:q}", "alert_text_args": ["a"]})),
        ("alert_text", json!({"alert_text": "{0!r}", "alert_text_args": ["a"]})),
        ("alert_text", json!({"alert_text": "{{ a", "alert_text_type": "alert_text_jinja"})),
        ("alert_subject", json!({"alert_subject": "{% set x = a %}", "alert_text_type": "alert_text_jinja"})),
        ("alert_text", json!({"alert_text": "{x}", "alert_text_kw": {"a": "y"}})),
        ("alert_subject", json!({"alert_subject": "a } b", "alert_subject_args": ["a"]})),
        ("alert_text_type", json!({"alert_text_type": "alert_text_mako"})),
        ("alert_text_kw", json!({"alert_text_kw": "a"})),
        ("alertrule_any", json!({"alertrule_any": "a: [b"})),
        ("alertrule_any", json!({"alertrule_any": ["a"]})),
        ("alert_method_data", json!({"alertrulemethoddata": "text"})),
        ("selectedroles", json!({"selectedroles": {"a": 1}})),
        ("include_updates", json!({"include_updates": []})),
        ("num_event", json!({"num_event": 5})),
        ("import", json!({"import": "base.yaml"})),
        ("alert_method", json!({"alert_method": "pigeon"})),
        ("alert_method", json!({"alert_method": {"email": {}}})),
        ("alert", json!({"alert": ["email"], "alert_method": "slack"})),
        ("alert", json!({"alert": [{"email": 5}]})),
        ("alert_method", json!({"alert_method": vec!["slack"; 17]})),
        ("email", json!({"alert_method": "email"})),
        ("email", json!({"alert_method": "email", "email": "no address"})),
        ("cc", json!({"alert_method": "email", "email": "a@b", "cc": "a@b\nBcc: c@d"})),
        ("users", json!({"alert_method": "user"})),
        ("command", json!({"alert_method": "command"})),
        ("command", json!({"alert_method": "command", "command": "rm -rf /"})),
        ("http_post_url", json!({"alert_method": "webhook"})),
        ("http_post_url", json!({"alert_method": "webhook", "http_post_url": {"secret": "../x"}})),
        (
            "http_post_headers",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "http_post_headers": {"Host": "a"}}),
        ),
        (
            "Authorization",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "http_post_headers": {"Authorization": "Bearer x"}}),
        ),
        (
            "webhook_hmac",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "webhook_hmac": "x"}),
        ),
        (
            "http_post_timeout",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "http_post_timeout": 600}),
        ),
        ("pigeons", json!({"alert": [{"webhook": {"url": "https://a/", "pigeons": 1}}]})),
        ("slack_webhook_url", json!({"alert_method": "slack"})),
        ("slack_webhook_url", json!({"alert_method": "slack", "slack_webhook_url": "https://a/"})),
        (
            "alert_method_data",
            json!({"alert_method": "email,user", "email": "a@b", "users": "u", "alert_method_data": {"cc": "a@b"}}),
        ),
        ("aggregation", json!({"aggregation": "soon"})),
        ("aggregation_key", json!({"aggregation_key": "user"})),
        ("escalate_after", json!({"escalate_users": "a"})),
        ("escalate_users", json!({"escalate_after": "1h"})),
        ("limit_execution_coverage", json!({"limit_execution_coverage": true})),
        ("notifications_per_minute", json!({"notifications_per_minute": 0})),
        ("recovery", json!({"recovery": "perhaps"})),
        ("match_enhancements", json!({"match_enhancements": ["a.B"]})),
        ("importance", json!({"alertruleimportance": 5, "importance": 6})),
        ("realert", json!({"realert": "1m", "alertrule_any": {"realert": "2m"}})),
    ];
    for (field, change) in cases {
        let mut rule = base.clone();
        for (name, value) in change.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let shown: String = change.to_string().chars().take(200).collect();
        let error = Definition::parse(&rule).expect_err(&shown);
        assert!(error.to_string().starts_with(&format!("[{field}]")), "{shown}: {error}");
        assert!(error.to_string().len() < 400, "{shown}: {error}");
        assert!(matches!(error.kind(), Kind::InvalidInput | Kind::TooLarge));
    }
    assert!(Definition::parse(&json!([])).is_err());
}

#[test]
fn what_is_not_used_is_shown_with_its_reason() {
    let rule = parse(json!({
        "name": "r", "index": "i", "type": "any", "alert_method": "jira", "email": "a@b", "num_events": 5,
        "slack_webhook_url": "https://example.com/token", "es_host": "localhost", "es_password": "p",
        "forget_keys": true, "aggregate_by_match_time": true, "alertruleriskkey": "user",
    }));
    let notices = rule.notices();
    let reason = |option: &str| {
        let found = notices.iter().find(|notice| notice.option == option);
        found.map(|notice| notice.reason.as_str()).unwrap_or_else(|| panic!("{option}: {notices:?}"))
    };
    assert!(reason("alert_method").contains("[jira]"));
    assert!(reason("slack_webhook_url").ends_with("rules keep no secrets"));
    assert!(reason("es_password").ends_with("rules keep no secrets"));
    assert_eq!(reason("num_events"), "type [any] does not use it");
    assert_eq!(reason("forget_keys"), "type [any] does not use it");
    assert_eq!(reason("aggregate_by_match_time"), "alerts are gathered by when they are raised");
    reason("email");
    reason("alertruleriskkey");
    assert_eq!(rule.kept["es_host"], "localhost");
    assert_eq!(
        parse(json!({"name": "r", "index": "i", "type": "any", "alert_method": "index"})).notices(),
        []
    );
}

#[test]
fn channels_have_the_options_of_the_rule_and_their_own_and_read_back_the_same() {
    let rule = parse(json!({
        "name": "r", "index": "i", "type": "any", "email": "a@b",
        "alert": ["email", {"webhook": {"url": "https://a/"}}, {"webhook": {"url": {"secret": "b.url"}}}, "jira"],
        "http_post_headers": {"X-Env": "test", "Authorization": {"secret": "t", "prefix": "Bearer "}},
        "aggregation": {"schedule": "0 * * * *"}, "aggregation_key": "user", "limit_execution": "* 8-16 * * *",
        "escalate_users": ["ann"], "escalate_after": {"minutes": 30}, "recovery": true, "notifications_per_minute": 5,
    }));
    let notification = &rule.notification;
    let urls: Vec<_> =
        notification.channels.iter().skip(1).map(|channel| &channel.options["http_post_url"]).collect();
    assert_eq!(urls, [&json!("https://a/"), &json!({"secret": "b.url"})]);
    for channel in &notification.channels[1..] {
        assert_eq!(channel.options["http_post_headers"]["X-Env"], json!("test"));
    }
    assert_eq!(notification.channels[0].options["email"], json!(["a@b"]));
    assert_eq!(notification.method(), json!(["jira", "email", "webhook", "webhook"]));
    assert_eq!(rule.kept, Map::new());
    assert_eq!(parse(rule.document()), rule);
    let stored = json!({"name": "r", "index": "i", "type": "any", "alert_method": "slack", "slack_webhook_url": "(not stored)"});
    assert!(Definition::parse(&stored).is_err());
    let rule = Definition::parse_stored(&stored).unwrap();
    assert!(
        rule.notices()[0].reason.contains("nothing is sent by [slack]: [slack_webhook_url] was not stored")
    );
    assert_eq!(Definition::parse_stored(&rule.document()).unwrap(), rule);
}

#[test]
fn edits_of_appearance_keep_state() {
    for base in of_each_type() {
        let old = parse(base.clone());
        let edited = |change: Value| {
            let mut rule = base.clone();
            for (name, value) in change.as_object().unwrap() {
                rule[name] = value.clone();
            }
            edit(&old, &parse(rule))
        };
        assert_eq!(edited(json!({})), Edit::Same);
        let appearance = json!({"name": "new", "description": "d", "alert_text": "t", "importance": 99,
            "alert_method": "email", "email": "a@b", "realert": "1m", "selectedroles": "x", "priority": 1});
        assert!(matches!(edited(appearance), Edit::KeepsState { changed } if changed.len() == 9));
        for change in [
            json!({"search.request.body": {"query": {"term": {"a": 1}}}}),
            json!({"index": "j"}),
            json!({"query_key": "other", "name": "new"}),
            json!({"timestamp_field": "seen"}),
            json!({"include_updates": true}),
        ] {
            assert!(matches!(edited(change.clone()), Edit::NewRevision { .. }), "{change}");
        }
        assert!(matches!(
            edited(json!({"search.request.body": {"query": {"match_all": {}}, "size": 5}})),
            Edit::KeepsState { .. }
        ));
    }
    let (short, long) =
        (of_each_type()[1].clone(), json!({"name": "r", "index": "i", "num_events": 3, "timeframe": "2m"}));
    assert_eq!(edit(&parse(short), &parse(long)), Edit::NewRevision { because: vec!["options of the type"] });
}

#[test]
fn files_of_elastalert_are_imported() {
    let text = "
es_host: elasticsearch.example.com
es_password: hunter2
index: logstash-%Y.%m.%d
use_strftime_index: true
type: frequency
num_events: 50
timeframe:
  hours: 4
query_key: [user, host]
filter:
- query:
    query_string:
      query: 'level: error'
- term:
    status: 500
alert:
- email
- slack
email:
- ops@example.com
slack_webhook_url: https://hooks.slack.com/services/secret
";
    let imported = import("rules/many_errors.yaml", text, MissingChannels::Refuse).unwrap();
    let rule = imported.definition;
    assert_eq!((rule.name.as_str(), rule.index.as_slice()), ("many_errors", &["logstash-*".to_owned()][..]));
    assert_eq!(rule.realert.wait, Span::from_secs(60));
    assert_eq!(rule.query_key, ["user", "host"]);
    assert_eq!(
        (rule.notification.method(), rule.email.as_slice()),
        (json!(["email", "slack"]), &["ops@example.com".to_owned()][..])
    );
    let filters = json!([{"query_string": {"query": "level: error"}}, {"term": {"status": 500}}]);
    assert_eq!(rule.body, json!({"query": {"bool": {"filter": filters}}}));
    for option in ["index", "realert", "es_host", "es_password", "slack_webhook_url", "use_strftime_index"] {
        assert!(
            imported.warnings.iter().any(|notice| notice.option == option),
            "{option}: {:?}",
            imported.warnings
        );
    }
    let document = rule.document().to_string();
    assert!(!document.contains("hunter2") && !document.contains("services/secret"), "{document}");
    assert!(
        document.contains("many_errors") && document.contains("many-errors.slack_webhook_url"),
        "{document}"
    );
    for (text, wrong) in [
        ("type: any\nindex: i\ntype: [", "[f.yaml] is no YAML"),
        ("- a", "[f.yaml] is no rule"),
        ("index: i", "[type] is missing"),
        ("index: i\ntype: my.module.Rule", "[type] [my.module.Rule]: code"),
        ("index: i\ntype: spike_aggregation", "[type] [spike_aggregation] is not there yet"),
        ("index: i\ntype: flatline", "[threshold] is missing"),
    ] {
        let error = import("f.yaml", text, MissingChannels::Refuse).unwrap_err().to_string();
        assert!(error.starts_with(wrong), "{error}");
    }
    let plain = import(
        "any.yml",
        "type: any\nindex: i\nalert: debug\nrealert: {minutes: 0}",
        MissingChannels::Refuse,
    )
    .unwrap();
    assert_eq!(
        (plain.definition.notification.method(), plain.definition.realert),
        (json!("none"), Realert::default())
    );
    assert_eq!(plain.definition.body, json!({"query": {"match_all": {}}}));
}

#[test]
fn files_of_elastalert_have_lists_of_addresses_and_empty_options() {
    let read = |more: &str, missing| import("f.yaml", &format!("type: any\nindex: i\n{more}"), missing);
    let channels = |more: &str| {
        let notification = read(more, MissingChannels::Refuse).unwrap().definition.notification;
        let options = notification.channels.into_iter().map(|channel| Value::Object(channel.options));
        options.collect::<Vec<_>>()
    };
    let secret = |name: &str| json!({"slack_webhook_url": {"secret": format!("f.slack_webhook_url{name}")}});
    let one = channels("match_enhancements: []\nalert: slack\nslack_webhook_url: https://h/1");
    assert_eq!(one, [secret("")]);
    let two = channels("alert: slack\nslack_webhook_url: [https://h/1, https://h/2]");
    assert_eq!(two, [secret(".1"), secret(".2")]);
    let each =
        channels("alert: [slack]\nslack_webhook_url: [https://h/1]\nslack_channel_override: ['#a', '#b']");
    let names: Vec<&Value> = each.iter().map(|options| &options["slack_channel_override"]).collect();
    assert_eq!(names, ["#a", "#b"]);
    let posts = channels("alert: post\nhttp_post_url: [https://a/, https://b/]");
    assert_eq!(posts, [json!({"http_post_url": "https://a/"}), json!({"http_post_url": "https://b/"})]);
    let hosts = channels("alert: alertmanager\nalertmanager_hosts: [http://a:9093, http://b:9093]");
    assert_eq!(
        hosts,
        [json!({"alertmanager_url": "http://a:9093"}), json!({"alertmanager_url": "http://b:9093"})]
    );
    let automate = channels("alert: ms_power_automate\nms_power_automate_webhook_url: https://h/1");
    assert_eq!(automate, [json!({"ms_teams_webhook_url": {"secret": "f.ms_power_automate_webhook_url"}})]);
    let many = format!("alert: post\nhttp_post_url: [{}]", "'https://a/',".repeat(17));
    assert!(read(&many, MissingChannels::Refuse).unwrap_err().to_string().contains("17 channels"));
    // What is stored is read as it was written.
    let rule = read("alert: post\nhttp_post_url: [https://a/, https://b/]", MissingChannels::Refuse).unwrap();
    let again = Definition::parse_stored(&rule.definition.document()).unwrap();
    assert_eq!(again.notification.channels, rule.definition.notification.channels);
    for more in ["match_enhancements: [my.module]", "timestamp_type: moon"] {
        assert!(read(more, MissingChannels::Skip).is_err(), "{more}");
    }
    // Nobody would hear of it.
    let jira = "alert: [jira, email]\nemail: a@b.c";
    let refused = read(jira, MissingChannels::Refuse).unwrap_err().to_string();
    assert!(refused.contains("no channel [jira]") && refused.contains("--skip-channels"), "{refused}");
    assert_eq!(read(jira, MissingChannels::Skip).unwrap().definition.notification.channels.len(), 1);
}

#[test]
fn numbers_are_seconds_where_a_rule_says_so() {
    let rule = |kind: &str| {
        Definition::parse(&json!({"name": "r", "index": "i", "type": "any", "timestamp_type": kind})).unwrap()
    };
    assert!(rule("unix").counts_seconds());
    assert!(
        !rule("unix_ms").counts_seconds()
            && !rule("iso").counts_seconds()
            && !rule("custom").counts_seconds()
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = import("f.yaml", &text, MissingChannels::Skip);
        let _ = Definition::parse(&json!({"name": text, "index": text, "alertrule_any": text, "timeframe": text}));
        let with_text = json!({"name": "r", "index": "i", "type": "any", "alert_text": text, "alert_text_args": ["a"]});
        if let Ok(rule) = Definition::parse(&with_text) {
            let _ = rule.text.text("r", "", &json!({"a": 1}), &|_| None);
        }
    }
}

#[test]
fn a_rule_as_it_is_listed_is_saved_again() {
    let rule = Definition::parse(&json!({"name": "r", "index": "i", "type": "any"})).unwrap();
    let mut listed = rule.document();
    let beside = json!({
        "name": "r", "index": "i", "enabled": true, "revision": 3, "state": {"owner": "a"},
        "last_run": "2026-01-01T00:00:00.000Z", "last_alert": "2026-01-01T00:00:00.000Z", "lag": 0,
        "error": "paused", "notices": [], "passed_over": {"too_late": 0},
        "catching_up": {"seen_from": "2026-01-01T00:00:00.000Z", "documents": 5},
    });
    listed.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
    assert_eq!(Definition::parse(&listed).unwrap(), rule);
}
