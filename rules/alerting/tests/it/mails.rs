//! Alerts that are mailed: to addresses, to accounts, and to those who hear of alerts that nobody looked at.

use std::sync::Arc;
use std::time::Duration;

use millrace_accounts::{Accounts, User};
use millrace_alerting::{AlertStatus, ReplaySubject};
use millrace_notifications::{Config, Smtp, SmtpTls};
use serde_json::json;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fixture::{Server, until};
use crate::notifications::{alerts, config, errors, rule, sent, write};
use crate::receiver::MailServer;

fn mailing(port: u16, tls: SmtpTls) -> Config {
    let smtp = Smtp {
        host: "localhost".to_owned(),
        port,
        tls,
        credentials: None,
        from: "Millrace <alerts@example.com>".to_owned(),
    };
    Config { smtp: Some(smtp), ..config() }
}

async fn account(accounts: &Accounts, name: &str, email: Option<&str>) {
    let user = User { email: email.map(str::to_owned), roles: vec!["alert".to_owned()], ..User::default() };
    accounts.put_user(name, user, Some("long enough".to_owned())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_arrive_when_the_server_refuses_first_each_under_one_id() {
    let dir = tempfile::tempdir().unwrap();
    let mails = MailServer::start(3, None).await;
    let server = Server::open_notifying(dir.path(), mailing(mails.port, SmtpTls::None)).await;
    let saved = rule(
        "mailed",
        json!({"alert_method": "email", "email": ["a@example.org", "nobody@example.org"],
        "alert_subject": "{0} did it", "alert_subject_args": ["user"]}),
    );
    server.save(saved).await;
    write(&server, 3).await;
    sent(&server, 3).await;
    let got = mails.got();
    let mut ids: Vec<&str> = got.iter().map(|mail| mail.header("Message-ID")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
    for mail in &got {
        assert_eq!(mail.to, ["a@example.org"]);
        assert_eq!(mail.header("Message-ID"), format!("<{}@example.com>", mail.header("Idempotency-Key")));
        assert!(mail.text.contains("did it") && mail.text.contains("text/html"), "{}", mail.text);
    }
    let told = errors(&server).await;
    assert!(
        told.iter().any(|error| error.contains("1 recipients got it; refused were nobody@example.org")),
        "{told:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_encrypted_and_the_server_verified() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let tls =
        ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], private)
            .unwrap();
    let mails = MailServer::start(0, Some(Arc::new(tls))).await;
    let authorities = dir.path().join("authorities.pem");
    std::fs::write(&authorities, key.cert.pem()).unwrap();
    let known = Config { authorities: Some(authorities), ..mailing(mails.port, SmtpTls::StartTls) };
    let written =
        || ReplaySubject::Written(rule("m", json!({"alert_method": "email", "email": "a@example.org"})));
    let server = Server::open_notifying(&dir.path().join("data"), known).await;
    let tested = server.alerting.notify_test(&server.admin(), written(), None).await.unwrap();
    assert_eq!(tested[0].error, None);
    assert!(mails.got()[0].encrypted);
    server.stop().await;
    // A certificate that nobody vouches for, and a server without TLS.
    let plain = MailServer::start(0, None).await;
    for (port, reason) in [(mails.port, "certificate"), (plain.port, "STARTTLS")] {
        let server = Server::open_notifying(&dir.path().join("data"), mailing(port, SmtpTls::StartTls)).await;
        let tested = server.alerting.notify_test(&server.admin(), written(), None).await.unwrap();
        let error = tested[0].error.clone().unwrap_or_default();
        assert!(error.contains(reason), "{error}");
        server.stop().await;
    }
    assert_eq!((mails.got().len(), plain.got().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_mailed_and_escalation_tells_of_what_is_still_new() {
    let dir = tempfile::tempdir().unwrap();
    let mails = MailServer::start(0, None).await;
    let server = Server::open_notifying(dir.path(), mailing(mails.port, SmtpTls::None)).await;
    account(&server.accounts, "ann", Some("ann@example.org")).await;
    account(&server.accounts, "boss", Some("boss@example.org")).await;
    account(&server.accounts, "mute", None).await;
    let unknown = rule("x", json!({"alert_method": "user", "users": ["mute"]}));
    assert!(server.alerting.change(&server.admin(), unknown).await.is_err());
    let saved = rule(
        "escalates",
        json!({"alert_method": "user", "users": ["ann"], "escalate_users": ["boss"], "escalate_after": "12s"}),
    );
    server.save(saved).await;
    write(&server, 2).await;
    until(async || (alerts(&server).await.len() == 2).then_some(())).await;
    let seen = alerts(&server).await[0]["alert_id"].as_str().unwrap().to_owned();
    server.alerting.set_status(&server.admin(), &seen, AlertStatus::Ongoing, None).await.unwrap();
    until(async || mails.got().iter().any(|mail| mail.to == ["boss@example.org"]).then_some(())).await;
    sent(&server, 2).await;
    let to = |who: &str| mails.got().iter().filter(|mail| mail.to == [who]).count();
    assert_eq!((to("ann@example.org"), to("boss@example.org")), (2, 1));
    let told = mails.got().into_iter().find(|mail| mail.to == ["boss@example.org"]).unwrap();
    assert!(told.header("Subject").starts_with("New for 12 s"), "{}", told.text);
    tokio::time::sleep(Duration::from_millis(10)).await;
    server.stop().await;
}
