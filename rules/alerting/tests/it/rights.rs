//! A rule sees what its owner may see now, and is seen by whom it names.

use millrace_accounts::{IndexGrant, Role, User};
use millrace_alerting::ReplaySubject;
use millrace_runtime::Kind;
use serde_json::json;

use crate::fixture::{Server, document, errors, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_runs_with_what_its_owner_may_do_now() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("logs-a", json!({})).await;
    let role = |query: &str| Role {
        indices: vec![IndexGrant {
            names: vec!["logs-a".to_owned()],
            privileges: vec!["read".to_owned()],
            query: Some(query.to_owned()),
            ..IndexGrant::default()
        }],
        ..Role::default()
    };
    server.accounts.put_role("team", role(r#"{"match": {"team": "one"}}"#)).await.unwrap();
    let ann = User { roles: vec!["team".to_owned()], ..User::default() };
    server.accounts.put_user("ann", ann, Some("a long password".to_owned())).await.unwrap();
    let principal = server.accounts.principal("ann").unwrap();
    let id = server.alerting.change(&principal, errors("of ann")).await.unwrap().id;
    let of = |index: &str, team: &str, id: &str| document(index, id, json!({"level": "error", "team": team}));
    server.write(vec![of("logs-a", "one", "1"), of("logs-a", "two", "2"), of("logs-b", "one", "3")]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    server.accounts.put_role("team", role(r#"{"match": {"team": "two"}}"#)).await.unwrap();
    server.write(vec![of("logs-a", "one", "4"), of("logs-a", "two", "5")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "5"]);
    server.accounts.enable_user("ann", false).await.unwrap();
    server.write(vec![of("logs-a", "two", "6")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "5"]);
    let error = until(async || server.shown(&id)["error"].as_str().map(str::to_owned)).await;
    assert!(error.contains("ann"), "{error}");
    let told = server.documents("alert_error").await;
    assert!(told.values().any(|told| told["rule_id"] == json!(id)), "{told:?}");
    server.accounts.enable_user("ann", true).await.unwrap();
    server.write(vec![of("logs-a", "two", "7")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "5", "7"]);
    assert!(server.shown(&id)["error"].is_null());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_shows_the_fields_that_its_rules_owner_may_see_live_and_in_tests() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("logs", json!({})).await;
    let field_security = json!({"grant": ["level", "user.*"], "except": ["user.token"]});
    let role = Role {
        indices: vec![IndexGrant {
            names: vec!["logs".to_owned()],
            privileges: vec!["read".to_owned()],
            field_security: Some(serde_json::from_value(field_security).unwrap()),
            ..IndexGrant::default()
        }],
        ..Role::default()
    };
    server.accounts.put_role("some", role).await.unwrap();
    let ann = User { roles: vec!["some".to_owned()], ..User::default() };
    server.accounts.put_user("ann", ann, Some("a long password".to_owned())).await.unwrap();
    let ann = server.accounts.principal("ann").unwrap();
    let hers = server.alerting.change(&ann, errors("of ann")).await.unwrap().id;
    let all = server.save(errors("of admin")).await.id;
    let source = json!({"level": "error", "user": {"name": "bob", "token": "t"}, "salary": 5});
    server.write(vec![document("logs", "1", source.clone())]).await;
    server.settled().await;
    let alerts = server.documents("alert").await;
    let body = |rule: &str| {
        let alert = alerts.values().find(|alert| alert["rule_id"] == json!(rule)).unwrap();
        alert["match_body"].clone()
    };
    let seen = json!({"level": "error", "user": {"name": "bob"}});
    assert_eq!((body(&hers), body(&all)), (seen.clone(), source));
    let tested =
        server.alerting.test(&ann, ReplaySubject::Written(errors("of ann")), 0..i64::MAX).await.unwrap();
    assert_eq!(tested.alerts[0].document["match_body"], seen);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_seen_by_its_owner_administrators_and_the_roles_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    for (name, role) in [("ann", "operators"), ("bob", "guests")] {
        let user = User { roles: vec![role.to_owned()], ..User::default() };
        server.accounts.put_user(name, user, Some("a long password".to_owned())).await.unwrap();
    }
    let mut rule = errors("errors");
    rule["selectedroles"] = json!(["operators"]);
    let id = server.save(rule.clone()).await.id;
    let seen = |user: &str| server.alerting.list(&server.accounts.principal(user).unwrap()).len();
    assert_eq!((seen("admin"), seen("ann"), seen("bob")), (1, 1, 0));
    let bob = server.accounts.principal("bob").unwrap();
    assert_eq!(server.alerting.show(&bob, &id).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(server.alerting.delete(&bob, &id).await.unwrap_err().kind(), Kind::NotFound);
    server.stop().await;
}
