//! The listener of Arrow Flight SQL.

use crate::pipelines::{command, start};
use crate::process::{Server, http_client};

fn address(server: &Server) -> Option<String> {
    server
        .greeting
        .lines()
        .find_map(|line| line.strip_prefix("Arrow Flight SQL is on grpc://"))
        .map(str::to_owned)
}

#[tokio::test]
async fn arrow_flight_sql_is_served_beside_the_data_api_unless_it_is_off() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path());
    let url = format!("http://{}/", address(&server).unwrap());
    let answer = http_client().get(url).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 415, "it speaks gRPC only");
    assert!(answer.text().await.unwrap().contains("Arrow Flight SQL"));
    server.stop();

    let server = Server::new(command(data.path()).env("MILLRACE_FLIGHT__LISTEN", "off"));
    assert_eq!(address(&server), None);
    server.stop();
}
