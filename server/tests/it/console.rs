//! The console's listener.

use serde_json::{Value, json};

use crate::pipelines::{command, start};
use crate::process::{Server, http_client};

fn console(server: &Server) -> Option<String> {
    server.greeting.lines().find_map(|line| line.strip_prefix("the console is on ")).map(str::to_owned)
}

#[tokio::test]
async fn the_console_answers_beside_the_data_api() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path());
    let url = console(&server).unwrap();
    let ask = async |method: reqwest::Method, path: &str, body: &str| {
        let request = http_client().request(method, format!("{url}{path}")).header("console-xsrf", "true");
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let body = json!({ "attributes": { "title": "t" } }).to_string();
    let (status, answer) = ask(reqwest::Method::POST, "/api/saved_objects/dashboard/d", &body).await;
    assert_eq!((status, &answer["id"]), (200, &json!("d")), "{answer}");
    let (status, answer) = ask(reqwest::Method::GET, "/_search", "").await;
    assert_eq!((status, &answer["status"]), (404, &json!(false)), "the data API is elsewhere: {answer}");
    let (status, _) = server.call(reqwest::Method::GET, "/api/saved_objects/dashboard/d", "").await;
    assert_eq!(status, 400, "and the console is not there");
    server.stop();

    let server = Server::new(command(data.path()).env("MILLRACE_CONSOLE__LISTEN", "off"));
    assert_eq!(console(&server), None);
    server.stop();
}
