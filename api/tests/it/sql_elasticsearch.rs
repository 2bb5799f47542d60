//! `_sql` on the wire: formats by parameter and by `Accept`, the cursor beside text, errors, methods.

use serde_json::json;

use crate::support::Node;

#[tokio::test]
async fn formats_are_chosen_by_parameter_and_by_accept() {
    let node = Node::insecure().await;
    let lines: String = (0..3).map(|n| format!("{{\"index\":{{}}}}\n{{\"n\":{n}}}\n")).collect();
    node.ask("POST /numbers/_bulk?refresh=true", &lines, 200).await;
    let body = json!({"query": "SELECT \"n\" FROM \"numbers\" ORDER BY n", "fetch_size": 2}).to_string();
    let page = node.ask("POST /_sql", &body, 200).await;
    assert_eq!(
        (&page["columns"], &page["rows"]),
        (&json!([{"name": "n", "type": "long"}]), &json!([[0], [1]]))
    );
    let json_type = ("content-type", "application/json");
    let closing = json!({"cursor": page["cursor"]}).to_string();
    // These answer JSON to clients that take tables.
    let headers = [json_type, ("accept", "text/csv")];
    let closed = node.send("POST /_sql/close", &headers, closing).await;
    assert_eq!((closed.status, closed.text()), (200, r#"{"succeeded":true}"#));
    let search = node.send("POST /_sql/translate", &headers, body.clone()).await;
    assert_eq!((search.status, search.json()["size"].clone()), (200, json!(2)));
    for (line, accept, content_type, expected) in [
        ("POST /_sql?format=csv", "*/*", "text/csv; charset=utf-8; header=present", "n\r\n0\r\n1\r\n"),
        ("POST /_sql", "text/csv", "text/csv; charset=utf-8; header=present", "n\r\n0\r\n1\r\n"),
        ("POST /_sql", "text/tab-separated-values", "text/tab-separated-values; charset=utf-8", "n\n0\n1\n"),
    ] {
        let answer = node.send(line, &[json_type, ("accept", accept)], body.clone()).await;
        assert_eq!((answer.status, answer.text()), (200, expected), "{line} {accept}");
        assert_eq!(answer.headers["content-type"], content_type);
        let next = json!({"cursor": answer.headers["cursor"].to_str().unwrap()}).to_string();
        let answer = node.send(line, &[json_type, ("accept", accept)], next).await;
        assert!(
            answer.text().trim_end() == "2" && !answer.headers.contains_key("cursor"),
            "{}",
            answer.text()
        );
    }
    let text = node.send("GET /_sql?format=txt", &[json_type], body.clone()).await;
    assert!(text.text().contains("-----\n0"), "{}", text.text());
    let yaml = node.send("POST /_sql?format=yaml", &[json_type], body.clone()).await;
    assert!(yaml.text().starts_with("---\ncolumns:\n- name: \"n\""), "{}", yaml.text());
    let search = node.ask("POST /_sql/translate", &body, 200).await;
    assert_eq!(search["size"], json!(2));
    // Errors are JSON in any format.
    let wrong = json!({"query": "SELECT * FROM \"nowhere\""}).to_string();
    let answer = node.ask("POST /_sql?format=csv", &wrong, 404).await;
    assert_eq!(answer["error"]["type"], json!("index_not_found_exception"));
    node.ask("DELETE /_sql", &body, 405).await;
    node.ask("POST /_sql?format=smile", &body, 400).await;
    node.ask("POST /_sql?sanitize=true", &body, 400).await;
}
