//! Alerts reach their recipients: by webhooks and programs, each once by its key, through all failures on the way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_alerting::{AlertStatus, Error, ReplaySubject};
use millrace_notifications::{Config, StandaloneMessage};
use millrace_runtime::Instant;
use serde_json::{Value, json};

use crate::faults::block;
use crate::fixture::{Server, document, until};
use crate::receiver::{Answer, Receiver};

/// A server that may reach this machine.
async fn open(dir: &Path) -> Server {
    Server::open_notifying(dir, config()).await
}

pub(crate) fn config() -> Config {
    Config {
        allow: "127.0.0.1".parse().unwrap(),
        secret_key: Some([7; 32]),
        per_minute: 60_000,
        ..Config::default()
    }
}

/// A rule that tells of each document of `logs`.
pub(crate) fn rule(name: &str, more: Value) -> Value {
    let mut rule = json!({"name": name, "index": "logs", "type": "any"});
    for (name, value) in more.as_object().unwrap() {
        rule[name] = value.clone();
    }
    rule
}

pub(crate) fn webhook(name: &str, receiver: &Receiver) -> Value {
    rule(name, json!({"alert_method": "webhook", "http_post_url": receiver.url()}))
}

pub(crate) async fn write(server: &Server, count: usize) {
    let ops =
        (0..count).map(|n| document("logs", &format!("{n}"), json!({"user": format!("u{}", n % 3), "n": n})));
    server.write(ops.collect()).await;
}

/// Rows of the outbox that wait.
async fn waiting(server: &Server) -> Vec<Value> {
    live(server, ".alert_outbox").await.into_values().filter(|row| row["state"] == "waiting").collect()
}

/// Documents that there are: of those of [`Server::documents`] the ones that are not deleted.
async fn live(server: &Server, index: &str) -> BTreeMap<String, Value> {
    let session = millrace_engine::Session::system(&server.engine);
    let mut live = BTreeMap::new();
    for id in server.documents(index).await.into_keys() {
        if let Ok(Some(found)) = session.get(index, &id, None, true).await {
            live.insert(id, serde_json::from_slice(&found.source).unwrap());
        }
    }
    live
}

pub(crate) async fn alerts(server: &Server) -> Vec<Value> {
    live(server, "alert").await.into_values().collect()
}

pub(crate) async fn errors(server: &Server) -> Vec<String> {
    live(server, "alert_error")
        .await
        .into_values()
        .map(|error| error["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until so many alerts are marked as sent, and nothing waits.
pub(crate) async fn sent(server: &Server, count: usize) {
    until(async || {
        let alerts = alerts(server).await;
        let sent = alerts.iter().filter(|alert| alert["alert_sent"] == true).count();
        (sent == count && waiting(server).await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_sent_once_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let id = server.save(webhook("told", &receiver)).await.id;
    write(&server, 20).await;
    sent(&server, 20).await;
    let got = receiver.got();
    assert_eq!((got.len(), receiver.keys()), (20, 20));
    let body = got[0].json();
    assert_eq!(
        (&body["rule"]["id"], &body["kind"], &body["count"]),
        (&json!(id), &json!("alert"), &json!(1))
    );
    assert_eq!(body["key"], json!(got[0].key()));
    assert!(body["alerts"][0]["match_body"]["user"].is_string(), "{body}");
    let alert = &alerts(&server).await[0];
    assert!(alert["alert_sent_time"].is_string(), "{alert}");
    let figures = server.alerting.notifications().unwrap().figures();
    assert_eq!((figures.sent, figures.waiting, figures.given_up), (20, 0, 0));
    let rules = server.alerting.figures();
    assert_eq!((rules.enabled, rules.paused, rules.unwatched), (1, 0, 0));
    // Nothing waits, and nothing comes twice after a start.
    assert!(waiting(&server).await.is_empty());
    server.stop().await;
    let server = open(dir.path()).await;
    server.settled().await;
    assert_eq!(receiver.got().len(), 20);
    assert_eq!(server.shown(&id)["notices"], json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_dies_after_receiving_knows_each_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = open(dir.path()).await;
    let receiver = Receiver::start(|number, _| match number % 4 {
        0 => Answer::Dies,
        2 => Answer::Status(503),
        _ => Answer::Status(204),
    })
    .await;
    server.save(webhook("told", &receiver)).await;
    write(&server, 6).await;
    until(async || (!receiver.got().is_empty()).then_some(())).await;
    // In the midst of it: what was sent may be sent again, under its key.
    drop(server);
    server = open(dir.path()).await;
    sent(&server, 6).await;
    assert_eq!(receiver.keys(), 6);
    assert!(receiver.got().len() >= 12);
    let errors = errors(&server).await;
    assert!(errors.iter().any(|error| error.contains("tried again until")), "{errors:?}");
    assert!(!errors.iter().any(|error| error.contains("given up")), "{errors:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slow_channel_and_one_that_fails_delay_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let slow = Receiver::start(|_, _| Answer::After(Duration::from_secs(600))).await;
    let failing = Receiver::start(|_, _| Answer::Status(500)).await;
    let good = Receiver::start(|_, _| Answer::Status(200)).await;
    server.save(webhook("slow", &slow)).await;
    server.save(webhook("failing", &failing)).await;
    server.save(webhook("good", &good)).await;
    let began = Instant::now();
    write(&server, 300).await;
    until(async || (good.keys() == 300).then_some(())).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(slow.got().len() <= 3, "{}", slow.got().len());
    server.stop().await;
}

/// As on a disk that is nearly full: sent notifications are not sent again, and others go on, though no alert can be marked.
#[tokio::test(flavor = "multi_thread")]
async fn while_alerts_cannot_be_written_what_was_sent_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let is_well = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_well);
    let receiver = Receiver::start(move |_, _| match answers.load(Ordering::Acquire) {
        true => Answer::Status(200),
        false => Answer::Status(500),
    })
    .await;
    server.save(webhook("told", &receiver)).await;
    write(&server, 20).await;
    until(async || (alerts(&server).await.len() == 20 && !receiver.got().is_empty()).then_some(())).await;
    block(&server, true).await;
    is_well.store(true, Ordering::Release);
    until(async || (receiver.keys() == 20 && waiting(&server).await.is_empty()).then_some(())).await;
    assert!(alerts(&server).await.iter().all(|alert| alert["alert_sent"] != true));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_rate_a_channel_sends_digests_that_name_every_alert() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver =
        Receiver::start(|number, _| if number == 12 { Answer::Dies } else { Answer::Status(200) }).await;
    let mut rule = webhook("storm", &receiver);
    rule["notifications_per_minute"] = json!(40);
    server.save(rule).await;
    write(&server, 150).await;
    sent(&server, 150).await;
    let got = receiver.got();
    assert!((40..80).contains(&got.len()), "{}", got.len());
    let mut told: Vec<String> = got
        .iter()
        .flat_map(|got| got.json()["alerts"].as_array().unwrap().clone())
        .map(|alert| alert["notification_key"].as_str().unwrap().to_owned())
        .collect();
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 150);
    assert!(got.iter().any(|got| got.json()["kind"] == "digest"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_are_gathered_are_one_notification_of_each_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let mut rule = webhook("gathered", &receiver);
    rule["aggregation"] = json!({"seconds": 2});
    rule["aggregation_key"] = json!("user");
    server.save(rule).await;
    write(&server, 9).await;
    sent(&server, 9).await;
    let counts: Vec<u64> = receiver.got().iter().map(|got| got.json()["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 3, 3]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_told_and_stops_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { give_up_after: Duration::from_secs(1), ..config() };
    let server = Server::open_notifying(dir.path(), config).await;
    let good = Receiver::start(|_, _| Answer::Status(200)).await;
    let refusing = Receiver::start(|_, _| Answer::Status(404)).await;
    let elsewhere = Receiver::start(|_, _| Answer::Elsewhere).await;
    let body = "{% for a in alerts %}{% for b in alert.match_body.text.parts %}{% if b %}{{ text }}{% endif %}{% endfor %}{% endfor %}";
    let mut looping = webhook("loops", &good);
    looping["webhook_body"] = json!(body);
    server.save(looping).await;
    server.save(webhook("refused", &refusing)).await;
    server.save(webhook("moved", &elsewhere)).await;
    server
        .save(rule("inside", json!({"alert_method": "webhook", "http_post_url": "http://127.0.0.2:9/"})))
        .await;
    server
        .save(rule(
            "metadata",
            json!({"alert_method": "webhook", "http_post_url": "http://169.254.169.254/latest"}),
        ))
        .await;
    server
        .save(rule("secret", json!({"alert": {"slack": {"slack_webhook_url": {"secret": "nothing"}}}})))
        .await;
    let id = server.save(webhook("good", &good)).await.id;
    let parts: Vec<u8> = vec![1; 10_000];
    server.write(vec![document("logs", "1", json!({"text": {"parts": parts}}))]).await;
    until(async || {
        (errors(&server).await.iter().filter(|error| error.contains("given up")).count() == 6).then_some(())
    })
    .await;
    let errors = errors(&server).await;
    for (reason, of) in [
        ("answered 404", "refused"),
        ("answered 302", "moved"),
        ("[127.0.0.2:9] is not allowed", "inside"),
        ("[169.254.169.254:80] is not allowed", "metadata"),
        ("there is no secret [nothing]", "secret"),
        ("the template cannot be used", "loops"),
    ] {
        assert!(errors.iter().any(|error| error.contains(reason)), "{of}: {errors:?}");
    }
    until(async || (good.got().len() == 1).then_some(())).await;
    assert_eq!(good.got()[0].json()["rule"]["id"], json!(id));
    let inside = server
        .alerting
        .list(&server.admin())
        .into_iter()
        .map(|rule| rule.value())
        .find(|rule| rule["name"] == "inside");
    assert!(inside.unwrap()["notices"].to_string().contains("not allowed"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_never_be_sent_is_refused_when_it_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    for (field, more) in [
        (
            "webhook_body",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "webhook_body": "{% set a = 1 %}"}),
        ),
        (
            "webhook_body",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "webhook_body": "{{ a"}),
        ),
        ("http_post_url", json!({"alert_method": "webhook", "http_post_url": "ftp://a/"})),
        ("http_post_url", json!({"alert_method": "webhook", "http_post_url": "https://user:pass@a/"})),
        (
            "x-a",
            json!({"alert_method": "webhook", "http_post_url": "https://a/", "http_post_headers": {"x-a": "{{ a ~ b }}"}}),
        ),
        ("users", json!({"alert_method": "user", "users": "nobody"})),
        ("escalate_users", json!({"escalate_users": "nobody", "escalate_after": "1h"})),
        ("email", json!({"alert_method": "email", "email": "a@b@c"})),
        ("command", json!({"alert_method": "command", "command": ["/bin/sh", "-c", "x"]})),
        ("aggregation", json!({"aggregation": {"schedule": "now and then"}})),
        ("limit_execution", json!({"limit_execution": "0 0 31 2 *"})),
    ] {
        let saved = server.alerting.change(&server.admin(), rule("wrong", more.clone())).await;
        let error = saved.expect_err(&more.to_string()).to_string();
        assert!(error.starts_with(&format!("[{field}]")), "{more}: {error}");
    }
    assert!(server.alerting.list(&server.admin()).is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_used_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let (notifications, port) = (server.notifications(), receiver.address.port());
    let url = format!("http://127.0.0.1:{port}/services/T0/sesame");
    assert!(notifications.put_secret("slack", &url, vec!["127.0.0.1".to_owned()], "ann").await.unwrap());
    assert!(!notifications.put_secret("slack", &url, vec!["127.0.0.1".to_owned()], "ann").await.unwrap());
    notifications.put_secret("token", "sesame-token", vec!["127.0.0.1".to_owned()], "ann").await.unwrap();
    let unbound = notifications.put_secret("unbound", "v", Vec::new(), "ann").await.unwrap_err().to_string();
    assert!(unbound.contains("[hosts] is missing: name the hosts"), "{unbound}");
    notifications
        .put_secret("elsewhere", "sesame-elsewhere", vec!["hooks.example.com".to_owned()], "ann")
        .await
        .unwrap();
    for (name, value) in [("../x", "v"), ("", "v"), ("a", ""), ("a", "\u{1}"), (&*"n".repeat(129), "v")] {
        let put = notifications.put_secret(name, value, vec!["127.0.0.1".to_owned()], "ann").await;
        assert!(put.is_err(), "{name} {value}");
    }
    let header = |secret: &str| {
        json!({"alert_method": "webhook", "http_post_url": receiver.url(), "webhook_hmac": {"secret": "token"},
            "http_post_headers": {"Authorization": {"secret": secret, "prefix": "Bearer "}}})
    };
    server
        .save(rule("slack", json!({"alert_method": "slack", "slack_webhook_url": {"secret": "slack"}})))
        .await;
    server.save(rule("header", header("token"))).await;
    server.save(rule("wrong host", header("elsewhere"))).await;
    write(&server, 1).await;
    until(async || (receiver.got().len() == 2 && !errors(&server).await.is_empty()).then_some(())).await;
    let got = receiver.got();
    let slack = got.iter().find(|got| got.path == "/services/T0/sesame").unwrap();
    assert_eq!(slack.json()["attachments"][0]["title"], json!("slack"));
    let plain = got.iter().find(|got| got.path == "/hook").unwrap();
    assert_eq!(plain.header("authorization"), Some("Bearer sesame-token"));
    assert!(plain.header("x-millrace-signature").unwrap().starts_with("sha256="));
    let told = errors(&server).await;
    assert!(told.iter().all(|error| error.contains("may not be sent to [127.0.0.1]")), "{told:?}");
    let listed = json!(notifications.secrets().await.unwrap()).to_string();
    assert!(listed.contains("\"slack\"") && !listed.contains("sealed"), "{listed}");
    for index in [".alert_secrets", ".alertrules", ".alert_outbox", "alert", "alert_error"] {
        let all = json!(server.documents(index).await).to_string();
        assert!(!all.contains("sesame"), "{index}: {all}");
    }
    assert!(notifications.delete_secret("token").await.unwrap());
    assert!(!notifications.delete_secret("token").await.unwrap());
    // With another key they are of no use, and without one there are none.
    server.stop().await;
    let server = Server::open_notifying(dir.path(), Config { secret_key: Some([8; 32]), ..config() }).await;
    let written = rule("t", json!({"alert_method": "slack", "slack_webhook_url": {"secret": "slack"}}));
    let tested =
        server.alerting.notify_test(&server.admin(), ReplaySubject::Written(written), None).await.unwrap();
    assert!(tested[0].error.as_ref().unwrap().contains("secret_key is another one"), "{tested:?}");
    server.stop().await;
    let server = Server::open_notifying(dir.path(), Config { secret_key: None, ..config() }).await;
    assert!(server.notifications().put_secret("a", "b", vec!["a".to_owned()], "ann").await.is_err());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_of_channels_says_what_became_of_each() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let good = Receiver::start(|_, _| Answer::Status(200)).await;
    let bad = Receiver::start(|_, _| Answer::Status(418)).await;
    let written = rule(
        "t",
        json!({"alert": [{"webhook": {"url": good.url()}}, {"webhook": {"url": bad.url()}},
        {"command": {"command": ["x"]}}, "index"]}),
    );
    let tested =
        server.alerting.notify_test(&server.admin(), ReplaySubject::Written(written), None).await.unwrap();
    let errors: Vec<Option<&str>> = tested.iter().map(|tested| tested.error.as_deref()).collect();
    assert_eq!(errors[0], None);
    assert!(
        errors[1].unwrap().contains("418") && errors[2].unwrap().contains("command_directory"),
        "{errors:?}"
    );
    assert_eq!(good.got()[0].json()["kind"], json!("test"));
    let id = server.save(webhook("stored", &good)).await.id;
    let alert = json!({"alert_subject": "mine", "match_body": {"a": 1}});
    server.alerting.notify_test(&server.admin(), ReplaySubject::Stored(id), Some(alert)).await.unwrap();
    assert_eq!(good.got()[1].json()["subject"], json!("Test: mine"));
    assert!(alerts(&server).await.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_who_and_when_and_hides_no_other_alert() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    server.save(rule("r", json!({"query_key": "user"}))).await;
    write(&server, 2).await;
    until(async || (alerts(&server).await.len() == 2).then_some(())).await;
    let first = alerts(&server).await[0]["alert_id"].as_str().unwrap().to_owned();
    let admin = server.admin();
    server.alerting.set_status(&admin, &first, AlertStatus::Ongoing, Some("mine".to_owned())).await.unwrap();
    let (one, other): (Vec<Value>, Vec<Value>) =
        alerts(&server).await.into_iter().partition(|alert| alert["alert_id"] == json!(first));
    assert_eq!((&one[0]["status"], &one[0]["status_note"]), (&json!("Ongoing"), &json!("mine")));
    assert_eq!(one[0]["status_by"], json!(admin.name()));
    assert!(one[0]["status_time"].is_string());
    assert_eq!((&other[0]["status"], other[0].get("status_by")), (&json!("New"), None));
    let missing = server.alerting.set_status(&admin, "none", AlertStatus::False, None).await;
    assert!(matches!(missing, Err(Error::NoAlert(_))));
    // Later alerts of the same key are there as ever.
    server.write(vec![document("logs", "more", json!({"user": "u0"}))]).await;
    until(async || (alerts(&server).await.len() == 3).then_some(())).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sends_only_what_it_is_told_to_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    write(&server, 5).await;
    let id = server.save(webhook("late", &receiver)).await.id;
    let run = async |notify| {
        server.alerting.run_and_notify(&server.admin(), &id, Some(0), i64::MAX, notify).await.unwrap()
    };
    assert_eq!(run(true).await.created, 5);
    sent(&server, 5).await;
    assert_eq!(run(true).await.created, 0);
    server.settled().await;
    assert_eq!(receiver.got().len(), 5);
    server.write(vec![document("other", "1", json!({}))]).await;
    let mut quiet = webhook("quiet", &receiver);
    quiet["index"] = json!("other");
    let id = server.save(quiet).await.id;
    assert_eq!(server.alerting.run(&server.admin(), &id, Some(0), i64::MAX).await.unwrap().created, 1);
    server.settled().await;
    assert_eq!(receiver.got().len(), 5);
    server.stop().await;
}

/// Says how many notifications a minute go to a receiver on this machine. `MILLRACE_NOTIFICATIONS` says how many there are (1,000).
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_sent_within_its_time() {
    let count = std::env::var("MILLRACE_NOTIFICATIONS").map_or(1_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    server.save(webhook("many", &receiver)).await;
    let began = Instant::now();
    for start in (0..count).step_by(500) {
        let ops =
            (start..count.min(start + 500)).map(|n| document("logs", &format!("n{n}"), json!({"n": n})));
        server.write(ops.collect()).await;
    }
    let patience = Duration::from_secs(600);
    while receiver.keys() < count {
        assert!(began.elapsed() < patience, "{} of {count}", receiver.keys());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let a_minute = count as f64 * 60.0 / began.elapsed().as_secs_f64();
    println!("{count} notifications in {:?}: {a_minute:.0} a minute", began.elapsed());
    assert_eq!(receiver.got().len(), count);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_no_alert_is_posted_under_one_key_to_hosts_that_are_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let receiver = Receiver::start(|number, _| Answer::Status(if number == 0 { 503 } else { 200 })).await;
    let notifications = server.alerting.notifications().unwrap();
    let hosts = vec!["127.0.0.1".to_owned()];
    notifications.put_secret("hook", &receiver.url(), hosts, "ann").await.unwrap();
    let message = StandaloneMessage {
        key: "index/hot\n/0".to_owned(),
        sender: "policy".to_owned(),
        subject: "policy [p]".to_owned(),
        text: "index \"a\" goes".to_owned(),
    };
    let webhook = |url: Value| {
        let options = json!({"http_post_url": url, "webhook_body": "{\"text\": {{ text | tojson }}}"});
        options.as_object().unwrap().clone()
    };
    let hook = webhook(json!({"secret": "hook"}));
    let refused = notifications.post(&message, &hook).await.unwrap_err();
    assert!(refused.contains("503"), "{refused}");
    notifications.post(&message, &hook).await.unwrap();
    let got = receiver.got();
    assert_eq!((got.len(), receiver.keys()), (2, 1));
    assert_eq!(got[1].json(), json!({"text": "index \"a\" goes"}));
    for (url, needle) in [(json!("http://192.0.2.1/hook"), "192.0.2.1"), (json!({"secret": "none"}), "none")]
    {
        let refused = notifications.post(&message, &webhook(url)).await.unwrap_err();
        assert!(refused.contains(needle), "{refused}");
    }
    assert_eq!(receiver.got().len(), 2);
    server.stop().await;
}
