//! Licences over the API: the community licence, and what Elastic's shippers ask at connection.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

#[tokio::test]
async fn a_server_without_a_licence_is_under_the_community_licence() {
    let node = Node::insecure().await;
    let community =
        [("/status", json!(200)), ("/customerName", json!("community")), ("/siemPlan", json!("true"))];
    let none = Value::Null;
    play(
        &node,
        vec![
            Step::new("GET /_service/license", none.clone(), 200, &community),
            Step::new("POST /_service/license/reload", none.clone(), 200, &community),
            Step::new("PUT /_service/license", none.clone(), 405, &[]),
            Step::new("GET /_service/license/reload", none.clone(), 405, &[]),
            Step::new("GET /_service/license?wrong=1", none.clone(), 400, &[]),
            Step::new("POST /_service/license/reload?wrong=1", none.clone(), 400, &[]),
            Step::new("DELETE /_service/license", none.clone(), 405, &[]),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_refused_licence_is_told_what_is_wrong_with_it() {
    let node = Node::insecure().await;
    let terms = json!({"customerName": "Acme", "issuedOn": "2026-01-01T00:00", "expiration_date": "2999-01-01T00:00"});
    for (body, reason) in [
        (Value::Null, "the licence cannot be read: it is no JSON object"),
        (json!([]), "the licence cannot be read: it is no JSON object"),
        (json!({"customerName": 5}), "the licence cannot be read: [customerName] is no string"),
        (json!({"customerName": "Acme"}), "the licence cannot be read: [issuedOn] is missing"),
        (json!({"x".repeat(1_000): "y"}), "the licence cannot be read: [xxxxxxxx"),
        (terms, "the server checks no licences: set [license.public_key]"),
        (json!({"nodes": "9".repeat(20_000)}), "the licence cannot be read: it has more than 16384 bytes"),
    ] {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node.ask("POST /_service/license", &text, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.starts_with(reason) && found.len() < 300, "{found}");
        assert_eq!(answer["error"]["type"], "license_exception");
    }
    for text in [
        "{",
        "[[",
        "\u{0}",
        "null",
        "{\"customerName\":",
        &format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)),
    ] {
        let answer = node.send("POST /_service/license", &[], text.to_owned()).await;
        let shown: String = text.chars().take(20).collect();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        assert!(answer.text().len() < 1_000, "{shown}: {}", answer.text());
    }
    assert_eq!(node.send("POST /_service/license", &[], vec![0xff, 0xfe]).await.status, 400);
    assert_eq!(node.ask("GET /_service/license", "", 200).await["customerName"], "community");
}

#[tokio::test]
async fn shippers_find_a_basic_licence() {
    let node = Node::insecure().await;
    let license = node.ask("GET /_license?human=false", "", 200).await["license"].clone();
    assert_eq!((&license["type"], &license["status"]), (&json!("basic"), &json!("active")));
    let xpack = node.ask("GET /_xpack", "", 200).await;
    assert_eq!(xpack["license"]["mode"], "basic");
    assert_eq!(xpack["license"]["uid"], license["uid"]);
    assert_eq!(xpack["features"]["ml"], json!({"available": false, "enabled": false}));
    let only = node.ask("GET /_xpack?categories=license", "", 200).await;
    assert!(only.get("features").is_none() && only.get("license").is_some());
}
