//! A catalog is lost: the server says so, `millrace repair` makes another, and the documents are there.

use reqwest::Method;
use rustix::process::Signal;

use crate::process::{Server, millrace, run};

#[tokio::test]
async fn a_lost_catalog_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let start = || {
        let mut server = Server::new(
            millrace(&["serve", "--listen", "127.0.0.1:0", "--data", data])
                .env("MILLRACE_ADMIN_PASSWORD", "correct horse"),
        );
        server.log_in("admin", "correct horse");
        server
    };
    let server = start();
    let (status, answer) = server
        .call(Method::PUT, "/logs", r#"{"settings":{"number_of_shards":2},"aliases":{"all":{}}}"#)
        .await;
    assert_eq!(status, 200, "{answer}");
    for n in 0..10 {
        let path = format!("/logs/_doc/{n}");
        assert_eq!(server.call(Method::PUT, &path, format!(r#"{{"n":{n}}}"#)).await.0, 201);
        if n == 4 {
            assert_eq!(server.call(Method::POST, "/logs/_flush", "").await.0, 200);
        }
    }
    assert_eq!(server.call(Method::DELETE, "/logs/_doc/3", "").await.0, 200);
    let (code, _, errors) = run(&mut millrace(&["repair", "--data", data]));
    assert_eq!(code, Some(5), "{errors}");
    server.signal(Signal::KILL);
    server.wait();

    let (code, _, errors) = run(&mut millrace(&["repair", "--data", data]));
    assert_eq!(code, Some(7), "{errors}");
    assert!(errors.contains("--replace"), "{errors}");
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"] {
        let _ = std::fs::remove_file(dir.path().join(name));
    }
    let (code, _, errors) = run(&mut millrace(&["serve", "--listen", "127.0.0.1:0", "--data", data]));
    assert_eq!(code, Some(7), "{errors}");
    assert!(errors.contains("`millrace repair`"), "{errors}");
    let (code, report, errors) = run(&mut millrace(&["repair", "--data", data, "--dry-run"]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(report.contains("would be rebuilt: 1 indices, 2 shards"), "{report}");
    assert!(!dir.path().join("catalog.sqlite").exists());
    let (code, report, errors) = run(&mut millrace(&["repair", "--data", data]));
    assert_eq!(code, Some(0), "{errors}");
    for said in ["rebuilt: 1 indices, 2 shards", "6 operations are replayed", "aliases", "password"] {
        assert!(report.contains(said), "{said}: {report}");
    }

    let server = start();
    let (_, count) = server.call(Method::GET, "/logs/_count", "").await;
    assert_eq!(count["count"], 9);
    assert_eq!(server.call(Method::GET, "/logs/_doc/3", "").await.0, 404);
    assert_eq!(server.call(Method::GET, "/logs/_doc/9", "").await.0, 200);
    assert_eq!(server.call(Method::GET, "/_alias/all", "").await.0, 404);
    server.stop();
}
