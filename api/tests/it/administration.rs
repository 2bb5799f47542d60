//! Indices, settings, mappings, aliases, templates and cluster settings, as tables of requests.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

#[tokio::test]
async fn aliases_roll_over() {
    let node = Node::insecure().await;
    play(
        &node,
        vec![
            step("PUT /logs-1", json!({"aliases": {"logs": {}}}), 200, &[]),
            step("PUT /logs/_doc/1?refresh=true", json!({"v": 1}), 201, &[]),
            step(
                "POST /logs/_rollover",
                json!({"conditions": {"max_docs": 2}}),
                200,
                &[("/rolled_over", json!(false)), ("/conditions/[max_docs: 2]", json!(false))],
            ),
            step(
                "POST /logs/_rollover?dry_run",
                json!({"conditions": {"max_docs": 1, "max_size": "1gb"}}),
                200,
                &[("/dry_run", json!(true)), ("/rolled_over", json!(false)), ("/conditions/[max_docs: 1]", json!(true))],
            ),
            step("HEAD /logs-000002", NONE, 404, &[]),
            step(
                "POST /logs/_rollover",
                json!({"conditions": {"max_docs": 1, "max_size": "1gb"}, "settings": {"number_of_replicas": 0}}),
                200,
                &[
                    ("/rolled_over", json!(true)),
                    ("/old_index", json!("logs-1")),
                    ("/new_index", json!("logs-000002")),
                ],
            ),
            step("PUT /logs/_doc/2?refresh=true", json!({"v": 2}), 201, &[("/_index", json!("logs-000002"))]),
            step("POST /logs/_rollover/special", NONE, 200, &[("/new_index", json!("special"))]),
            step("POST /logs/_rollover/special", NONE, 400, &[("/error/type", json!("resource_already_exists_exception"))]),
            step("POST /special/_rollover", NONE, 400, &[("/error/type", json!("illegal_argument_exception"))]),
            step("POST /nope/_rollover", NONE, 400, &[("/error/reason", json!("rollover target [nope] does not exist"))]),
            step("POST /logs/_rollover/x", json!({"conditions": {"max_dogs": 1}}), 400, &[]),
        ],
    )
    .await;
}

#[tokio::test]
async fn indices_live() {
    let node = Node::insecure().await;
    let reason = "/error/reason";
    play(
        &node,
        vec![
            step("PUT /a?wait_for_active_shards=all&timeout=1s", NONE, 200, &[("/index", json!("a"))]),
            step("PUT /a", NONE, 400, &[("/error/type", json!("resource_already_exists_exception"))]),
            step("PUT /A", NONE, 400, &[(reason, json!("Invalid index name [A], must be lowercase"))]),
            step("PUT /_x", NONE, 400, &[("/error/type", json!("invalid_index_name_exception"))]),
            step("DELETE /_x", NONE, 400, &[("/error/index", json!("_x"))]),
            step(
                "GET /_x",
                NONE,
                400,
                &[("/error", json!("no handler found for uri [/_x] and method [GET]"))],
            ),
            step("POST /_x", NONE, 400, &[]),
            step("PUT /a:b", NONE, 400, &[(reason, json!("Invalid index name [a:b], must not contain ':'"))]),
            step("PUT /b", json!({"foo": 1}), 400, &[(reason, json!("unknown key [foo] for create index"))]),
            step("PUT /b", json!({"settings": {"number_of_shards": 0}}), 400, &[]),
            step("PUT /b", json!({"aliases": {"a": {}}}), 400, &[]),
            step("HEAD /b", NONE, 404, &[]),
            step("PUT /b", json!({"aliases": {"of-b": {}}}), 200, &[]),
            step("POST /_close", NONE, 400, &[(reason, json!("Validation Failed: 1: index is missing;"))]),
            step("POST /_open", NONE, 400, &[(reason, json!("Validation Failed: 1: index is missing;"))]),
            step(
                "POST /a,b/_close",
                NONE,
                200,
                &[("/indices/a/closed", json!(true)), ("/indices/b/closed", json!(true))],
            ),
            step("GET /a/_doc/1", NONE, 400, &[("/error/type", json!("index_closed_exception"))]),
            step("PUT /a/_doc/1", json!({}), 400, &[("/error/type", json!("index_closed_exception"))]),
            step(
                "POST /_all/_open?wait_for_active_shards=1",
                NONE,
                200,
                &[("/shards_acknowledged", json!(true))],
            ),
            step("POST /none*/_open", NONE, 200, &[]),
            step("POST /none/_open", NONE, 404, &[]),
            step("DELETE /of-b", NONE, 400, &[]),
            step("DELETE /b,none", NONE, 404, &[("/error/index", json!("none"))]),
            step("HEAD /b", NONE, 200, &[]),
            step("DELETE /none?ignore_unavailable=true", NONE, 200, &[]),
            step("DELETE /none*?allow_no_indices=false", NONE, 404, &[]),
            step("DELETE /a,b", NONE, 200, &[]),
            step("GET /_all", NONE, 200, &[("", json!({}))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn settings_are_read_and_changed() {
    let node = Node::insecure().await;
    let refresh = "/a/settings/index/refresh_interval";
    play(
        &node,
        vec![
            step("PUT /a", json!({"settings": {"number_of_replicas": 0}}), 200, &[]),
            step("PUT /b", NONE, 200, &[]),
            step("PUT /a/_settings", json!({"index": {"refresh_interval": "30s"}}), 200, &[]),
            step(
                "PUT /a/_settings?preserve_existing=true",
                json!({"refresh_interval": "5s", "index.gc_deletes": "1m"}),
                200,
                &[],
            ),
            step(
                "GET /a/_settings",
                NONE,
                200,
                &[(refresh, json!("30s")), ("/a/settings/index/gc_deletes", json!("1m"))],
            ),
            step("PUT /a/_settings", json!({"index.refresh_interval": null}), 200, &[]),
            step("GET /a/_settings", NONE, 200, &[(refresh, NONE)]),
            step(
                "GET /a/_settings?include_defaults=true",
                NONE,
                200,
                &[("/a/defaults/index/refresh_interval", json!("1s"))],
            ),
            step(
                "GET /a/_settings?flat_settings=true",
                NONE,
                200,
                &[("/a/settings/index.number_of_replicas", json!("0"))],
            ),
            step(
                "GET /_settings/index.number_of_r*",
                NONE,
                200,
                &[
                    ("/a/settings", json!({"index": {"number_of_replicas": "0"}})),
                    ("/b/settings", json!({"index": {"number_of_replicas": "1"}})),
                ],
            ),
            // Nothing of what was asked for: the index is left out.
            step(
                "GET /_settings/index.gc_deletes",
                NONE,
                200,
                &[("", json!({"a": {"settings": {"index": {"gc_deletes": "1m"}}}}))],
            ),
            step(
                "GET /a/_settings/index.version.created?human=true",
                NONE,
                200,
                &[("/a/settings/index/version", json!({"created": "7100299", "created_string": "7.10.2"}))],
            ),
            step(
                "GET /a?human=true",
                NONE,
                200,
                &[("/a/settings/index/version/created_string", json!("7.10.2"))],
            ),
            step("PUT /a/_settings", json!({"index.number_of_shards": 3}), 400, &[]),
            step("PUT /a/_settings", json!({"index.unheard_of": 3}), 400, &[]),
            step("PUT /a/_settings", json!({}), 400, &[]),
            step("PUT /none/_settings", json!({"refresh_interval": "1s"}), 404, &[]),
            step("GET /none/_settings?ignore_unavailable=true", NONE, 200, &[("", json!({}))]),
        ],
    )
    .await;
    let shown = node.ask("GET /a?human=true", "", 200).await;
    let settings = &shown["a"]["settings"]["index"];
    let date = settings["creation_date_string"].as_str().unwrap();
    assert!(date.ends_with('Z') && date.len() == 24, "{date}");
}

#[tokio::test]
async fn mappings_have_one_type() {
    let node = Node::insecure().await;
    let typed = "?include_type_name=true";
    let long = json!({"properties": {"n": {"type": "long"}}});
    let other = |doc_type: &str| json!({doc_type: {"properties": {"n": {"type": "long"}}}});
    let reason = "/error/reason";
    let refused = json!(
        "Rejecting mapping update to [a] as the final mapping would have more than 1 type: [_doc, event]"
    );
    play(
        &node,
        vec![
            step(&format!("PUT /a{typed}"), json!({"mappings": other("event")}), 200, &[]),
            step(&format!("PUT /a/_doc/_mapping{typed}"), other("_doc"), 400, &[(reason, refused.clone())]),
            step(&format!("PUT /a/_mapping/_doc{typed}"), other("_doc"), 400, &[(reason, refused)]),
            step(&format!("PUT /a/event/_mapping{typed}"), other("event"), 200, &[]),
            step(&format!("PUT /a/_mapping/event{typed}"), long.clone(), 200, &[]),
            step("PUT /a/_mapping/event", long.clone(), 400, &[]),
            step("PUT /a/_mapping", long.clone(), 200, &[]),
            step(
                &format!("GET /_mapping/event{typed}"),
                NONE,
                200,
                &[("/a/mappings/event/properties/n/type", json!("long"))],
            ),
            step(&format!("GET /_mapping/_doc{typed}"), NONE, 404, &[]),
            step(
                &format!("GET /a/_mapping/none{typed}"),
                NONE,
                404,
                &[("/error/type", json!("type_missing_exception"))],
            ),
            step(
                "PUT /a/_mapping",
                json!({"properties": {"n": {"type": "text"}}}),
                400,
                &[(reason, json!("mapper [n] cannot be changed from type [long] to [text]"))],
            ),
            step("PUT /none*/_mapping", long.clone(), 404, &[]),
            step("PUT /a/_mapping", NONE, 400, &[]),
            // A document may be called as the endpoint is.
            step("PUT /b/_doc/_mapping", json!({"n": 1}), 201, &[("/_id", json!("_mapping"))]),
            step("GET /b/_doc/_mapping", NONE, 200, &[("/_source/n", json!(1))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn blocks_say_whether_to_try_again() {
    let node = Node::insecure().await;
    let text = "/error/reason";
    play(
        &node,
        vec![
            step("PUT /a", NONE, 200, &[]),
            step("PUT /a/_settings", json!({"index.blocks.read_only_allow_delete": true}), 200, &[]),
            step("PUT /a/_doc/1", json!({}), 429, &[(text, json!(
                "index [a] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];"
            ))]),
            step("PUT /a/_settings", json!({"index.blocks.write": true}), 200, &[]),
            step("PUT /a/_doc/1", json!({}), 403, &[]),
            step("DELETE /a", NONE, 200, &[]),
            step("PUT /b", json!({"settings": {"index.blocks.read_only": true}}), 200, &[]),
            step("DELETE /b", NONE, 403, &[]),
            step("PUT /b/_settings", json!({"index.blocks.read_only": false}), 200, &[]),
            step("DELETE /b", NONE, 200, &[]),
        ],
    )
    .await;
}

#[tokio::test]
async fn cluster_settings_have_effect() {
    let node = Node::insecure().await;
    let set = |settings: Value| json!({"transient": settings});
    let settings = "PUT /_cluster/settings";
    let kind = "/error/type";
    play(
        &node,
        vec![
            step(settings, set(json!({"action.auto_create_index": "-no*,+yes*"})), 200, &[]),
            step("PUT /no1/_doc/1", json!({}), 404, &[
                (kind, json!("index_not_found_exception")),
                ("/error/reason", json!(
                    "no such index [no1] and [action.auto_create_index] contains [-no*] which forbids automatic creation of the index"
                )),
            ]),
            step("PUT /yes1/_doc/1", json!({}), 201, &[]),
            step("PUT /other/_doc/1", json!({}), 404, &[(kind, json!("index_not_found_exception"))]),
            step(settings, set(json!({"action.auto_create_index": null, "action.destructive_requires_name": true})), 200, &[]),
            step("DELETE /*", NONE, 400, &[("/error/reason", json!("Wildcard expressions or all indices are not allowed"))]),
            step("DELETE /_all", NONE, 400, &[]),
            step("DELETE /yes1/_doc/*", NONE, 400, &[]),
            step("DELETE /yes1", NONE, 200, &[]),
            step(settings, set(json!({"action.*": null, "cluster.max_shards_per_node": 2})), 200, &[]),
            step("PUT /a", json!({"settings": {"number_of_shards": 3}}), 400, &[]),
            step("PUT /a", json!({"settings": {"number_of_shards": 2}}), 200, &[]),
            step(settings, set(json!({"cluster": {"max_shards_per_node": null}})), 200, &[]),
            step("GET /_cluster/settings?flat_settings=true", NONE, 200, &[("/transient", json!({}))]),
            step(settings, set(json!({"no.such": 1})), 400, &[("/error/reason", json!("transient setting [no.such], not recognized"))]),
            step(settings, json!({}), 400, &[]),
            step(settings, set(json!({"search.default_keep_alive": "2m", "search.max_keep_alive": "1m"})), 400, &[]),
            step(settings, set(json!({"search.default_keep_alive": "1m", "search.max_keep_alive": "1m"})), 200, &[]),
            step("POST /a/_search?scroll=2m", NONE, 400, &[("/error/reason", json!(
                "Keep alive for request (2m) is too large. It must be less than (1m). This limit can be set by changing the [search.max_keep_alive] cluster level setting."
            ))]),
            step(settings, set(json!({"search.max_open_scroll_context": 1})), 200, &[]),
            step("POST /a/_search?scroll=1m", NONE, 200, &[]),
            step("POST /a/_search?scroll=1m", NONE, 429, &[
                (kind, json!("search_phase_execution_exception")),
                ("/error/root_cause/0/type", json!("rejected_execution_exception")),
            ]),
            step("DELETE /_search/scroll/_all", NONE, 200, &[("/num_freed", json!(1))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn aliases_are_listed_and_changed() {
    let node = Node::insecure().await;
    let actions = |actions: Value| json!({"actions": actions});
    let kind = "/error/type";
    play(
        &node,
        vec![
            step("PUT /a", json!({"aliases": {"one": {}, "two": {"routing": "r"}}}), 200, &[]),
            step("PUT /b", NONE, 200, &[]),
            step("GET /_alias/o*,-two", NONE, 200, &[("", json!({"a": {"aliases": {"one": {}}}}))]),
            step(
                "GET /_alias/one,none",
                NONE,
                404,
                &[("/error", json!("alias [none] missing")), ("/a/aliases/one", json!({}))],
            ),
            step("GET /b/_alias", NONE, 200, &[("", json!({"b": {"aliases": {}}}))]),
            step("HEAD /b/_alias/one", NONE, 404, &[]),
            step("PUT /b/_alias/a", NONE, 400, &[(kind, json!("invalid_alias_name_exception"))]),
            step("PUT /_all/_alias/both", NONE, 200, &[]),
            step("POST /_aliases", actions(json!([])), 400, &[]),
            step("POST /_aliases", actions(json!([{"add": {"index": "a"}}])), 400, &[]),
            step(
                "POST /_aliases",
                actions(json!([
                    {"remove": {"index": "a", "alias": "one"}},
                    {"remove": {"index": "a", "alias": "none", "must_exist": true}},
                ])),
                404,
                &[(kind, json!("aliases_not_found_exception"))],
            ),
            step("GET /_alias/one", NONE, 200, &[]),
            step(
                "POST /_aliases",
                actions(json!([
                    {"add": {"index": "a", "alias": "b"}},
                    {"remove_index": {"index": "b"}},
                ])),
                200,
                &[],
            ),
            step("GET /b/_alias/b", NONE, 200, &[("/a/aliases/b", json!({}))]),
            step("DELETE /a/_alias/none", NONE, 404, &[]),
            step("DELETE /a/_alias/*", NONE, 200, &[]),
            step("GET /_alias", NONE, 200, &[("", json!({"a": {"aliases": {}}}))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn templates_are_applied_in_order() {
    let node = Node::insecure().await;
    play(
        &node,
        vec![
            step("PUT /_template/low", json!({
                "index_patterns": ["t*"], "order": 0, "version": 7,
                "settings": {"number_of_shards": 2, "number_of_replicas": 0},
                "aliases": {"all-{index}": {}, "low": {}},
            }), 200, &[]),
            step("PUT /_template/high?order=5", json!({"index_patterns": "t1*", "settings": {"index.number_of_shards": 3}}), 200, &[]),
            step("PUT /_template/high?create=true", json!({"index_patterns": ["x"]}), 400, &[]),
            step("PUT /_template/bad", json!({"settings": {}}), 400, &[]),
            step("GET /_template/low", NONE, 200, &[("/low/version", json!(7)), ("/low/order", json!(0))]),
            step("GET /_template/none", NONE, 404, &[("", json!({}))]),
            step("PUT /t11/_doc/1", json!({"a": 1}), 201, &[]),
            step("GET /t11/_settings", NONE, 200, &[
                ("/t11/settings/index/number_of_shards", json!("3")),
                ("/t11/settings/index/number_of_replicas", json!("0")),
            ]),
            step("GET /t11/_alias", NONE, 200, &[("/t11/aliases", json!({"all-t11": {}, "low": {}}))]),
            step("PUT /_index_template/new", json!({"index_patterns": ["te*"], "priority": 1, "template": {"settings": {"number_of_shards": 4}}}), 200, &[]),
            step("POST /_index_template/_simulate/new", NONE, 200, &[
                ("/overlapping", json!([{"name": "low", "index_patterns": ["t*"]}])),
                ("/template/settings/index/number_of_shards", json!("4")),
            ]),
            step("PUT /te", NONE, 200, &[]),
            step("GET /te/_alias", NONE, 200, &[("/te/aliases", json!({}))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn figures_are_counted() {
    let node = Node::insecure().await;
    let log = "/indices/a/primaries/translog";
    play(
        &node,
        vec![
            step("PUT /a", json!({"settings": {"refresh_interval": "-1"}}), 200, &[]),
            step("PUT /a/_doc/1", json!({"f": 1}), 201, &[]),
            step("PUT /a/_doc/1", json!({"f": 2}), 200, &[]),
            step(
                "GET /a/_stats/translog",
                NONE,
                200,
                &[("/indices/a/primaries/translog/operations", json!(2))],
            ),
            step("POST /a/_refresh", NONE, 200, &[]),
            step(
                "GET /a/_segments",
                NONE,
                200,
                &[
                    ("/indices/a/shards/0/0/num_search_segments", json!(1)),
                    ("/indices/a/shards/0/0/num_committed_segments", json!(0)),
                ],
            ),
            step("POST /a/_flush", NONE, 200, &[]),
            step(
                "GET /a/_stats",
                NONE,
                200,
                &[
                    (
                        log,
                        json!({
                            "operations": 0, "size_in_bytes": 0, "uncommitted_operations": 0,
                            "uncommitted_size_in_bytes": 0, "earliest_last_modified_age": 0,
                        }),
                    ),
                    (
                        "/indices/a/primaries/flush",
                        json!({"total": 1, "periodic": 0, "total_time_in_millis": 0}),
                    ),
                ],
            ),
            step("GET /_segments", NONE, 200, &[("/indices/a/shards/0/0/num_committed_segments", json!(1))]),
            step("POST /a/_close", NONE, 200, &[]),
            step("GET /a/_segments", NONE, 400, &[("/error/type", json!("index_closed_exception"))]),
        ],
    )
    .await;
    assert_eq!(node.send("GET /_cat/segments", &[], "").await.text(), "");
    assert_eq!(node.send("GET /_cat/segments/a", &[], "").await.status, 400);
}

#[tokio::test]
async fn what_searches_keep_open_is_counted() {
    let node = Node::insecure().await;
    node.ask("PUT /a", r#"{"settings": {"number_of_shards": 2}}"#, 200).await;
    for id in 0..5 {
        node.ask(&format!("PUT /a/_doc/{id}?refresh=true"), "{\"f\":1}", 201).await;
    }
    let counted = async |current: [u64; 3], total: [u64; 2]| {
        let stats = node.ask("GET /a/_stats/search", "", 200).await;
        let nodes = node.ask("GET /_nodes/stats", "", 200).await;
        let id = nodes["nodes"].as_object().unwrap().keys().next().unwrap();
        for search in [&stats["_all"]["total"]["search"], &nodes["nodes"][id]["indices"]["search"]] {
            let of = |name: &str| search[name].as_u64().unwrap();
            let now = ["open_contexts", "scroll_current", "point_in_time_current"].map(of);
            assert_eq!((now, ["scroll_total", "point_in_time_total"].map(of)), (current, total));
        }
        nodes["nodes"][id]["breakers"]["open_contexts"]["estimated_size_in_bytes"].as_u64().unwrap()
    };
    assert_eq!(counted([0; 3], [0; 2]).await, 0);
    let page = node.ask("POST /a/_search?scroll=1m&size=1", "{}", 200).await;
    let pit = node.ask("POST /a/_search/point_in_time?keep_alive=1m", "", 200).await;
    assert!(counted([4, 2, 2], [0; 2]).await > 0);
    let table = node.send("GET /_cat/shards/a?h=so,scc,scto", &[], "").await;
    assert_eq!(table.text(), "2 1 0\n2 1 0\n");
    node.ask("DELETE /_search/scroll", &json!({"scroll_id": page["_scroll_id"]}).to_string(), 200).await;
    assert!(counted([2, 0, 2], [2, 0]).await > 0);
    node.ask("DELETE /_search/point_in_time", &json!({"pit_id": pit["pit_id"]}).to_string(), 200).await;
    assert_eq!(counted([0; 3], [2, 2]).await, 0);
}

/// Typed clients refuse an answer that lacks a member, even one that is always 0.
#[tokio::test]
async fn typed_clients_find_what_they_require() {
    let node = Node::insecure().await;
    node.ask("PUT /a/_doc/1?refresh=true", "{\"f\":1}", 201).await;
    let require = |answer: &Value, place: &str, members: &[&str]| {
        for member in members {
            let found = answer.pointer(&format!("{place}/{member}"));
            assert!(found.is_some_and(|found| !found.is_null()), "{place}/{member} of {answer}");
        }
    };
    let sections: [(&str, &[&str]); 7] = [
        ("indexing", &["index_current", "index_failed", "delete_current", "noop_update_total"]),
        ("get", &["time_in_millis", "exists_total", "missing_total", "current"]),
        ("search", &["query_current", "fetch_current", "scroll_current", "suggest_current", "open_contexts"]),
        ("merges", &["current", "current_docs", "total_docs", "total_auto_throttle_in_bytes"]),
        ("refresh", &["external_total", "listeners"]),
        ("flush", &["total_time_in_millis"]),
        ("segments", &["terms_memory_in_bytes", "max_unsafe_auto_id_timestamp", "file_sizes"]),
    ];
    let stats = node.ask("GET /a/_stats?include_segment_file_sizes=true", "", 200).await;
    let nodes = node.ask("GET /_nodes/stats", "", 200).await;
    let info = node.ask("GET /_nodes", "", 200).await;
    let cluster = node.ask("GET /_cluster/stats", "", 200).await;
    let id = nodes["nodes"].as_object().unwrap().keys().next().unwrap();
    for (section, members) in sections {
        for place in ["/_all/total", "/_all/primaries", "/indices/a/total"] {
            require(&stats, &format!("{place}/{section}"), members);
        }
        require(&nodes, &format!("/nodes/{id}/indices/{section}"), members);
    }
    require(&stats, "/_all/total/segments/file_sizes/store", &["size_in_bytes", "description"]);
    let info_of = |place: &str, members: &[&str]| require(&info, &format!("/nodes/{id}{place}"), members);
    info_of("/jvm", &["bundled_jdk", "start_time_in_millis"]);
    info_of("/jvm/mem", &["direct_max_in_bytes", "non_heap_init_in_bytes", "non_heap_max_in_bytes"]);
    info_of("/http", &["max_content_length_in_bytes"]);
    info_of("/transport", &["publish_address"]);
    info_of("/settings", &["transport"]);
    info_of("/settings/path", &["home", "logs"]);
    info_of("/plugins/0", &["classname", "opensearch_version", "java_version", "has_native_controller"]);
    require(
        &cluster,
        "/nodes/plugins/0",
        &["classname", "extended_plugins", "elasticsearch_version", "licensed"],
    );
    require(&cluster, "/nodes", &["discovery_types", "packaging_types", "ingest", "indexing_pressure"]);
    require(&cluster, "/nodes/count", &["data_cold", "ml", "transform"]);
    require(&cluster, "/indices/mappings", &["field_types"]);
    require(&cluster, "/indices/analysis", &["analyzer_types", "built_in_filters"]);
    info_of("/settings/cluster/election", &["strategy"]);
    info_of("/settings/node", &["attr"]);
    require(&cluster, "/nodes/os", &["pretty_names"]);
}

#[tokio::test]
async fn a_disk_at_the_flood_stage_lets_indices_be_read_and_deleted_only() {
    let node = Node::insecure().await;
    node.ask("PUT /a/_doc/1?refresh=true", "{\"f\":1}", 201).await;
    let dashboard = async |id: &str| {
        let line = format!("POST /api/saved_objects/dashboard/{id}");
        let body = "{\"attributes\":{\"title\":\"t\"}}";
        assert_eq!(node.send_to_console(&line, &[("console-xsrf", "true")], body).await.status, 200);
    };
    dashboard("before").await;
    let watermarks = |needed: &str| {
        let marks = json!({ "high": needed, "flood_stage": needed, "low": needed });
        let disk = json!({ "threshold_enabled": true, "watermark": marks });
        json!({ "transient": { "cluster.routing.allocation.disk": disk } }).to_string()
    };
    // No disk has that much.
    node.ask("PUT /_cluster/settings", &watermarks("1000pb"), 200).await;
    while node.ask("GET /_cluster/health", "", 200).await["status"] != "yellow" {
        tokio::task::yield_now().await;
    }
    // The server's own indices are written.
    dashboard("after").await;
    for (index, status) in [("a", "yellow"), (".console", "green")] {
        let health = node.ask(&format!("GET /_cluster/health/{index}"), "", 200).await;
        assert_eq!(health["status"], status, "{index}");
    }
    let refused = "index [a] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has \
                   read-only-allow-delete block];";
    for (request, body) in [
        ("PUT /a/_doc/2", "{\"f\":2}"),
        ("DELETE /a/_doc/1", ""),
        ("PUT /a/_mapping", "{\"properties\":{\"g\":{\"type\":\"long\"}}}"),
        ("PUT /a/_settings", "{\"index.refresh_interval\":\"5s\"}"),
        ("POST /a/_close", ""),
    ] {
        let error = node.ask(request, body, 429).await;
        assert_eq!(error["error"]["type"], "cluster_block_exception", "{request}");
        assert_eq!(error["error"]["reason"], refused, "{request}");
    }
    let bulk = node.ask("POST /_bulk", "{\"index\":{\"_index\":\"a\"}}\n{\"f\":3}\n", 200).await;
    assert_eq!(bulk["items"][0]["index"]["status"], 429, "{bulk}");
    let state = node.ask("GET /_cluster/state/blocks", "", 200).await;
    assert_eq!(state["blocks"]["indices"]["a"]["12"]["retryable"], true, "{state}");
    assert_eq!(node.ask("GET /a/_search", "", 200).await["hits"]["total"]["value"], 1);
    node.ask("POST /a/_refresh", "", 200).await;
    node.ask("POST /a/_forcemerge", "", 200).await;
    node.ask("DELETE /a", "", 200).await;

    node.ask("PUT /_cluster/settings", &watermarks("0b"), 200).await;
    while node.send("PUT /b/_doc/1", &[], "{\"f\":1}").await.status != 201 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.ask("GET /_cluster/health", "", 200).await["status"], "green");
}
