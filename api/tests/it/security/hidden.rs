//! Visibility of indices for callers who may see some of their fields, or some of the indices, only.

use super::*;

#[tokio::test]
async fn answers_name_no_hidden_fields() {
    let site = Site::start().await;
    let keyword = json!({ "type": "keyword" });
    let body = json!({
        "settings": {
            "index.sort.field": ["n", "secret"],
            "index.sort.order": ["desc", "asc"],
            "index.query.default_field": ["n", "secret"],
        },
        "mappings": {
            "properties": {
                "n": keyword,
                "secret": keyword,
                "hints": {
                    "type": "completion",
                    "contexts": [{ "name": "by", "type": "category", "path": "secret" }],
                },
            },
            "dynamic_templates": [{ "t": { "match": "secret_*", "mapping": keyword } }],
        },
        "aliases": { "some": { "filter": { "term": { "secret": "x" } }, "search_routing": "1" } },
    });
    site.admin("PUT /logs", body, 200).await;
    let template =
        json!({ "index_patterns": ["x-*"], "mappings": { "properties": { "secret_too": keyword } } });
    site.admin("PUT /_template/old", template, 200).await;
    let role = json!({
        "cluster": ["monitor"],
        "indices": [{
            "names": ["logs"],
            "privileges": ["read", "view_index_metadata"],
            "field_security": { "grant": ["*"], "except": ["secret"] },
        }],
    });
    site.admin("PUT /_security/role/some", role, 200).await;
    let ann = site.user("ann", &["some"]).await;
    for line in [
        "GET /logs",
        "GET /logs/_settings",
        "GET /logs/_alias",
        "GET /logs/_mapping",
        "GET /logs/_field_caps?fields=*",
        "GET /_cluster/state",
    ] {
        let all = site.admin(line, Value::Null, 200).await.to_string();
        let seen = site.ask(&ann, line, Value::Null, 200).await.to_string();
        assert!(all.contains("secret") && !seen.contains("secret"), "{line}: {seen}");
    }
    let settings = site.ask(&ann, "GET /logs/_settings?flat_settings=true", Value::Null, 200).await;
    let settings = &settings["logs"]["settings"];
    assert_eq!(settings["index.sort.field"], json!(["n"]));
    assert_eq!(settings["index.sort.order"], json!(["desc"]));
    assert_eq!(settings["index.query.default_field"], json!(["n"]));
    let aliases = site.ask(&ann, "GET /_alias", Value::Null, 200).await;
    assert_eq!(aliases, json!({ "logs": { "aliases": { "some": { "search_routing": "1" } } } }));
}

#[tokio::test]
async fn refusals_of_aliases_name_no_hidden_indices() {
    let site = Site::start().await;
    for index in ["logs-a", "logs-b", "secret"] {
        let body = json!({ "aliases": { "wide": {} } });
        site.admin(&format!("PUT /{index}"), body, 200).await;
    }
    site.admin("PUT /_security/role/logs", reads("logs-*"), 200).await;
    let ann = site.user("ann", &["logs"]).await;
    for (line, body) in [
        ("GET /wide/_doc/1", Value::Null),
        ("POST /wide/_explain/1", json!({ "query": { "match_all": {} } })),
    ] {
        let answer = site.ask(&ann, line, body, 400).await.to_string();
        assert!(answer.contains("logs-a, logs-b") && !answer.contains("secret"), "{line}: {answer}");
    }
}

#[tokio::test]
async fn what_is_kept_names_only_fields_that_its_writer_sees() {
    let site = Site::start().await;
    let body = json!({ "mappings": { "properties": { "name": { "type": "keyword" }, "salary": { "type": "long" } } } });
    site.admin("PUT /pay", body, 200).await;
    let grant = json!({
        "names": ["pay*"],
        "privileges": ["read", "manage_aliases", "manage"],
        "field_security": { "grant": ["*"], "except": ["salary"] },
    });
    let role = json!({ "cluster": ["manage_index_templates"], "indices": [grant] });
    site.admin("PUT /_security/role/some", role, 200).await;
    let ann = site.user("ann", &["some"]).await;
    let hidden = json!({ "filter": { "range": { "salary": { "gte": 1 } } } });
    let shown = json!({ "filter": { "term": { "name": "bob" } } });
    let words = json!({ "filter": { "query_string": { "query": "4711" } } });
    let copied = json!({ "salary": { "type": "long", "copy_to": "open" } });
    let named = json!({ "open": { "type": "alias", "path": "salary" } });
    let action =
        json!({ "actions": [{ "add": { "index": "pa*", "alias": "x", "filter": hidden["filter"] } }] });
    for (line, body, status) in [
        ("PUT /pay/_alias/pay-x", &hidden, 400),
        ("PUT /pay/_alias/pay-x", &words, 400),
        ("PUT /pay/_alias/pay-x", &shown, 200),
        ("POST /_aliases", &action, 403),
        ("PUT /pay-new", &json!({ "aliases": { "pay-y": hidden } }), 400),
        ("PUT /pay-new", &json!({ "mappings": { "properties": copied } }), 400),
        ("PUT /pay/_mapping", &json!({ "properties": copied }), 400),
        ("PUT /pay/_mapping", &json!({ "properties": named }), 400),
        ("PUT /pay/_mapping", &json!({ "properties": { "open": { "type": "keyword" } } }), 200),
        (
            "PUT /_index_template/t",
            &json!({ "index_patterns": ["pay-*"], "template": { "aliases": { "pay-z": hidden } } }),
            400,
        ),
        (
            "PUT /_index_template/t",
            &json!({ "index_patterns": ["pay-*"], "template": { "mappings": { "properties": named } } }),
            400,
        ),
    ] {
        let answer = site.ask(&ann, line, body.clone(), status).await.to_string();
        // A name that is hidden, or is as if it were not there.
        let refused = answer.contains("may not see") || answer.contains("must refer to an existing field");
        assert!(status != 400 || refused, "{line} {body}: {answer}");
    }
    site.admin("PUT /pay/_alias/pay-hidden", hidden, 200).await;
}
