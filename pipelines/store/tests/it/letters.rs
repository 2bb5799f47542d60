//! Dead letters of pipelines that run against a real store.

use std::sync::Arc;
use std::time::Duration;

use millrace_pipelines::manager::DeadLetterFilter;
use serde_json::json;

use crate::{engine, filter, manager_of, put, values};

const WRONG: &str = r#"
input { generator { count => 1 codec => json lines => [
  '{"n":1,"m":1,"kind":"a"}', '{"n":2,"kind":"a"}', '{"n":3,"m":0}', '{"n":4,"m":5,"kind":"a","f":"text"}'
] } }
filter {
  if [f] and [f] > 1 { drop { } }
  mutate { add_field => { "[@metadata][to]" => "of-%{kind}" } }
}
output {
  elasticsearch { id => here index => 'here' }
  if [m] > 1 { elasticsearch { index => 'big' } } else { elasticsearch { id => small index => 'small' } }
  elasticsearch { id => unmade index => '%{[@metadata][to]}' }
  if [never] { file { id => rest path => '${OUT}/rest' codec => json_lines } }
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_again_to_what_refused_them_while_pipelines_run() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    put(dir.path(), "main.conf", WRONG);
    let manager = manager_of(dir.path(), &engine);
    manager.start().await;
    let letters = |most: usize| {
        let manager = Arc::clone(&manager);
        async move {
            let letters = manager.dead_letters(filter(Some("main"), most)).await.unwrap().letters;
            let mut plugins: Vec<String> = letters.iter().map(|letter| letter.plugin.clone()).collect();
            plugins.sort();
            plugins
        }
    };
    // A filter's condition and an output's have no answer, and a name cannot be made.
    while letters(10).await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let plugins = letters(10).await;
    let [filters, outputs, unmade] = plugins.as_slice() else { panic!("{plugins:?}") };
    assert!(filters.starts_with("if_filter_") && outputs.starts_with("if_output_"), "{plugins:?}");
    assert_eq!(unmade, "unmade");
    assert_eq!(values(&engine, "here", "n").await, [json!(1), json!(2), json!(3)]);

    // As long as the reason is there, each is a letter again.
    let again = manager.replay(filter(None, 100), None).await.unwrap();
    assert_eq!((again.stored, again.left.len()), (0, 3));
    assert!(again.left.iter().all(|(_, reason)| reason.contains("refused again")), "{again:?}");
    assert_eq!(letters(10).await, plugins);
    assert_eq!(manager.dead_letters(filter(Some("other"), 10)).await.unwrap().letters.len(), 0);

    // Those that stay do not keep others from being tried.
    let first = manager.replay(filter(None, 1), None).await.unwrap();
    let next = first.next.clone().unwrap();
    let second =
        manager.replay(DeadLetterFilter { after: Some(&next), ..filter(None, 1) }, None).await.unwrap();
    assert!(first.left.len() == 1 && second.left.len() == 1 && first.left[0].0 != second.left[0].0);

    let right = WRONG
        .replace("[f] and [f] > 1 { drop { } }", "[f] { mutate { add_tag => ['seen'] } }")
        .replace("if [m] > 1", "if [m] and [m] > 1")
        .replace("'%{[@metadata][to]}'", "'made'");
    put(dir.path(), "main.conf", &right);
    manager.reload_changed().await;
    let done = manager.replay(filter(Some("main"), 100), None).await.unwrap();
    assert_eq!((done.stored, done.left), (3, Vec::new()));
    assert_eq!(letters(10).await, Vec::<String>::new());
    // What had them does not get them again; the one that came through no filter goes everywhere.
    assert_eq!(values(&engine, "here", "n").await, [json!(1), json!(2), json!(3), json!(4)]);
    assert_eq!(values(&engine, "small", "n").await, [json!(1), json!(2), json!(3)]);
    assert_eq!(values(&engine, "big", "tags").await, [json!(["seen"])]);
    assert_eq!(values(&engine, "of-a", "n").await, [json!(1), json!(2)]);
    assert_eq!(values(&engine, "made", "n").await, [json!(3), json!(4)]);
    manager.stop(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_to_the_output_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let strict = r#"
input { generator { count => 1 codec => json lines => ['{"n":1}', '{"n":"text"}'] } }
output {
  elasticsearch { index => 'strict' }
  if [never] { file { id => rest path => '${OUT}/rest' codec => json_lines } }
}
"#;
    put(dir.path(), "main.conf", strict);
    let manager = manager_of(dir.path(), &engine);
    manager.start().await;
    while manager.dead_letters(filter(None, 10)).await.unwrap().letters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let left = manager.replay(filter(None, 10), Some("absent")).await.unwrap().left;
    assert!(left.len() == 1 && left[0].1.contains("name one of its outputs"), "{left:?}");
    let done = manager.replay(filter(None, 10), Some("rest")).await.unwrap();
    assert_eq!((done.stored, done.left), (1, Vec::new()));
    let rest = std::fs::read_to_string(dir.path().join("out/rest")).unwrap();
    assert!(rest.lines().count() == 1 && rest.contains("\"n\":\"text\""), "{rest}");
    assert_eq!(manager.dead_letters(filter(None, 10)).await.unwrap().letters, []);
    manager.stop(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}
