//! Files of dashboards with objects of other types and other versions.

use serde_json::{Value, json};

use crate::console::{EXPORT, IMPORT, ask, console, keys, object, objects};

#[tokio::test]
async fn objects_of_other_types_keep_no_object_out() {
    let node = console().await;
    let mut all = objects();
    for (at, kind) in ["lens", "map", "tag", "config", "query", "url"].into_iter().enumerate() {
        all.insert(at, object(kind, "x", json!({}), json!([])));
    }
    let answer = ask(&node, IMPORT, json!({ "objects": all }), 200).await;
    let (stored, other) = answer["objects"].as_array().unwrap().split_at(4);
    assert_eq!(keys(&json!(stored)), keys(&json!(objects())));
    assert_eq!(keys(&json!(other)), ["lens:x", "map:x", "tag:x", "config:x", "query:x", "url:x"]);
    for object in other {
        let (kind, error) = (object["type"].as_str().unwrap(), &object["error"]);
        assert_eq!(
            (&error["statusCode"], error["message"].as_str().unwrap().contains(kind)),
            (&json!(400), true)
        );
    }
    ask(&node, "GET /api/saved_objects/dashboard/overview", Value::Null, 200).await;
}

#[tokio::test]
async fn files_of_kibana_5_and_6_are_imported() {
    let node = console().await;
    let source = json!({ "index": "logs-*", "filter": [] }).to_string();
    let meta = json!({ "searchSourceJSON": source });
    let file = json!([
        { "_id": "d", "_type": "dashboard", "_source": { "title": "D", "panelsJSON": "[]" }, "_meta": { "savedObjectVersion": 2 } },
        { "_id": "search:s", "_type": "doc", "_source": { "type": "search", "search": { "title": "S", "kibanaSavedObjectMeta": meta } } },
        { "_id": "5.6.0", "_type": "config", "_source": {} },
    ]);
    let answer = ask(&node, IMPORT, file, 200).await;
    assert_eq!(keys(&answer["objects"]), ["dashboard:d", "search:s", "config:5.6.0"]);
    assert_eq!(answer["objects"][2]["error"]["statusCode"], 400);
    let stored = ask(&node, "GET /api/saved_objects/search/s", Value::Null, 200).await;
    assert_eq!(stored["attributes"], json!({ "title": "S", "kibanaSavedObjectMeta": meta }));
    let exported = ask(&node, &format!("{EXPORT}?dashboard=d"), Value::Null, 200).await;
    assert_eq!(keys(&exported["objects"]), ["dashboard:d"]);
}
