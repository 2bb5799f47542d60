use std::path::Path;

use super::*;
use crate::store::Volatile;

fn manager(directory: &Path) -> Arc<Manager> {
    let config = Config {
        directory: directory.join("pipelines"),
        reload_interval: Duration::ZERO,
        settings_file: Some(directory.join("settings.json")),
        queues: Some(directory.join("queues")),
        outputs: Some(directory.join("outputs")),
        memory_bytes: millrace_ingest::budget::DEFAULT_BYTES,
        environment: [("OUT".to_owned(), directory.join("out").display().to_string())].into_iter().collect(),
    };
    Manager::new(config, Arc::new(Volatile::default()), Compute::start(1).unwrap())
}

fn put(directory: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(directory.join("pipelines")).unwrap();
    std::fs::write(directory.join("pipelines").join(name), text).unwrap();
}

async fn until(manager: &Manager, id: &str, what: impl Fn(&Status) -> bool) -> Status {
    loop {
        if let Some(status) = manager.get(id)
            && what(&status)
        {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const ENDS: &str = "
input { generator { count => 10 message => 'x' id => in } }
filter { mutate { add_field => { seen => '%{message}' } id => change } }
output { file { path => '${OUT}/ends' codec => json_lines id => out } }
";
const STAYS: &str = "
input { generator { message => 'x' id => in } }
filter { drop { id => all } }
output { file { path => '${OUT}/stays' } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_run_reloaded_and_refused() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "ends.conf", ENDS);
    put(dir.path(), "stays.conf", STAYS);
    put(dir.path(), "wrong.conf", "input { nothing { } }");
    put(
        dir.path(),
        "pipelines.yml",
        "- {pipeline.id: off, config.string: 'input { stdin { } }', pipeline.enabled: false}",
    );
    let manager = manager(dir.path());
    manager.start().await;

    let ended = until(&manager, "ends", |status| status.state == State::Inactive).await;
    let ended = match ended.figures.events_out {
        10 => ended,
        _ => until(&manager, "ends", |status| status.figures.events_out == 10).await,
    };
    assert_eq!((ended.figures.events_in, ended.figures.filtered), (10, 10));
    let ids: Vec<Vec<&str>> =
        ended.plugins.iter().map(|p| p.iter().map(|plugin| &*plugin.id).collect()).collect();
    assert_eq!(ids, [["in"], ["change"], ["out"]]);
    assert_eq!(std::fs::read_to_string(dir.path().join("out/ends")).unwrap().lines().count(), 10);

    let states: Vec<(String, State)> =
        manager.list().into_iter().map(|status| (status.id, status.state)).collect();
    let expected = [
        ("ends", State::Inactive),
        ("off", State::Disabled),
        ("stays", State::Active),
        ("wrong", State::Inactive),
    ];
    assert_eq!(states, expected.map(|(id, state)| (id.to_owned(), state)));
    let wrong = manager.get("wrong").unwrap();
    let why = wrong.reloads.last_error.unwrap();
    assert!(why.contains("wrong.conf:1:9: there is no input [nothing]"), "{why}");
    assert_eq!(wrong.reloads.failures, 1);

    // A broken file leaves the running pipeline in place.
    put(dir.path(), "stays.conf", "input { generator { } } filter { drop { what => 1 } } output { }");
    manager.reload_changed().await;
    let stays = manager.get("stays").unwrap();
    assert_eq!(stays.state, State::ActiveWithWarning);
    assert!(stays.warning.unwrap().contains("[drop] has no option [what]"));
    let before = stays.figures.events_in;
    until(&manager, "stays", |status| status.figures.events_in > before).await;

    put(dir.path(), "stays.conf", &STAYS.replace("id => all", "id => other"));
    manager.reload_changed().await;
    let stays = manager.get("stays").unwrap();
    assert_eq!((stays.state, stays.reloads.successes, stays.reloads.failures), (State::Active, 1, 1));
    assert_eq!((&*stays.plugins[1][0].id, stays.reloads.last_error), ("other", None));

    std::fs::remove_file(dir.path().join("pipelines/stays.conf")).unwrap();
    manager.reload_changed().await;
    assert!(manager.get("stays").is_none());
    manager.stop(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn what_pipelines_show_has_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "hosts.conf",
            "input { stdin { } } output { opensearch { hosts => 'https://joe:s3cr3t@host:port' } }",
        ),
        ("path.conf", "input { stdin { } } output { opensearch { hosts => 'https://joe:s3cr3t/x@host' } }"),
        (
            "jdbc.conf",
            "input { jdbc { jdbc_connection_string => 'jdbc:postgresql://joe:s3cr3t/x@db/logs' statement => 'SELECT 1' } } output { stdout { } }",
        ),
    ] {
        put(dir.path(), name, text);
    }
    let manager = manager(dir.path());
    manager.start().await;
    let shown = manager.list();
    assert!(shown.len() == 3 && shown.iter().all(|status| status.reloads.last_error.is_some()), "{shown:?}");
    assert!(!format!("{shown:?}").contains("s3cr3t"), "{shown:?}");
    manager.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_set_holds_until_the_files_change() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "stays.conf", STAYS);
    let first = manager(dir.path());
    first.start().await;
    let change = |size| Change { batch_size: Some(size), ..Change::default() };
    assert_eq!(first.change("absent", change(5)).await, Err(ChangeError::Unknown("absent".to_owned())));
    assert!(matches!(first.change("stays", change(0)).await, Err(ChangeError::Invalid(_))));
    assert_eq!(first.change("stays", change(77)).await.unwrap().settings.batch_size, 77);
    first.stop(Duration::from_secs(10)).await;

    let second = manager(dir.path());
    second.start().await;
    assert_eq!(second.get("stays").unwrap().settings.batch_size, 77, "kept over a restart");
    put(dir.path(), "stays.conf", &format!("{STAYS}# changed"));
    second.reload_changed().await;
    assert_eq!(second.get("stays").unwrap().settings.batch_size, crate::settings::BATCH_SIZE);
    second.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelines_stop_before_those_that_they_send_to() {
    let dir = tempfile::tempdir().unwrap();
    let receives =
        "input { pipeline { address => 'stop order' } } output { file { path => '${OUT}/received' } }";
    let sends = "input { generator { message => 'x' } } output { pipeline { send_to => 'stop order' } }";
    put(dir.path(), "a_receives.conf", receives);
    put(dir.path(), "b_sends.conf", sends);
    let manager = manager(dir.path());
    manager.start().await;
    until(&manager, "a_receives", |status| status.figures.events_out > 0).await;
    let began = Instant::now();
    let patience = Duration::from_secs(120);
    manager.stop(patience).await;
    assert!(began.elapsed() < patience / 2, "the sender waits for an address that nobody has");
}

#[test]
fn a_pipeline_cannot_send_to_itself() {
    let text = "
input { pipeline { address => here } }
output { if [a] { pipeline { send_to => [there, here] } } }
";
    let faults = crate::check(text, &crate::Dialect::default()).unwrap_err();
    assert_eq!(faults.len(), 1);
    let fault = faults[0].to_string();
    assert!(fault.contains("line 3") && fault.contains("[send_to] has the address [here]"), "{fault}");
}

#[test]
fn faults_of_a_whole_definition_are_reported_together() {
    let text = "
input { htp { } generator { id => same cout => 5 } }
filter { grok { match => { message => '%{NOPE}' } } drop { id => same } mutate { add_field => { '[a' => 1 } } }
output { stdout { codec => jsn } if [a] { nowhere { } } }
";
    let faults = crate::check(text, &crate::Dialect::default()).unwrap_err();
    let all = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in [
        "line 2, column 9: there is no input [htp], did you mean [http]?",
        "[generator] has no option [cout], did you mean [count]?",
        "NOPE",
        "two plugins have the id [same]",
        "[a] is not a field reference",
        "there is no codec [jsn], did you mean [json]?",
        "there is no output [nowhere]",
    ] {
        let part = if part.starts_with("[a]") { "[[a] is not a field reference" } else { part };
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
}
