use millrace_runtime::Kind;

use super::*;
use crate::password::hash;
use crate::{ApiKeyQuery, Mapping, NewApiKey};

impl Server {
    /// Makes a user, its role and mapping, and a key of it, whose header is returned with the key's id.
    async fn with_accounts(&self) -> (HeaderMap, String) {
        self.role("logs", json!({"indices": [{"names": ["logs-*"], "privileges": ["read"]}]})).await;
        self.user("ann", &["logs"]).await;
        self.user("bob", &[]).await;
        let mapping = Mapping { users: list(&["bob"]), ..Mapping::default() };
        self.accounts.put_mapping("logs", mapping).await.unwrap();
        let owner = self.accounts.principal("ann").unwrap();
        let new = NewApiKey { name: "shipper".to_owned(), ..NewApiKey::default() };
        let created = self.accounts.create_api_key(&owner, new).await.unwrap();
        (authorization(&format!("ApiKey {}", created.encoded)), created.key.id.to_string())
    }

    async fn import(&self, records: &[AccountRecord]) -> Result<usize> {
        self.accounts.import_records(records.to_vec()).await
    }
}

fn record(kind: &str, name: &str, body: Value) -> AccountRecord {
    AccountRecord { kind: kind.to_owned(), name: name.to_owned(), body: body.to_string() }
}

#[tokio::test]
async fn an_empty_store_takes_the_accounts_of_another_one() {
    let first = Server::start().await;
    let (key, _) = first.with_accounts().await;
    let administrator = first.accounts.principal("admin").unwrap();
    let new = NewApiKey { name: "of the administrator".to_owned(), ..NewApiKey::default() };
    let of_admin = first.accounts.create_api_key(&administrator, new).await.unwrap();
    let login = first.accounts.login("ann", "ann-secret", HERE).await.unwrap();
    let forged = first.store.accounts().await.unwrap();
    let records = first.accounts.export_records().await.unwrap();
    let kinds: Vec<(&str, &str)> =
        records.iter().map(|record| (record.kind.as_str(), record.name.as_str())).collect();
    assert!(
        !kinds.contains(&("user", "admin")) && kinds.iter().all(|(kind, _)| *kind != "token"),
        "{kinds:?}"
    );

    assert_eq!(kinds.iter().filter(|(kind, _)| *kind == "api_key").count(), 1, "{kinds:?}");

    let second = Server::start().await;
    second.user("old", &[]).await;
    assert_eq!(second.import(&records).await.unwrap(), 5);
    // Nor does a record of the administrator's key that somebody has put there count.
    let forged: Vec<_> = forged.into_iter().filter(|record| record.kind == "api_key").collect();
    assert_eq!((forged.len(), second.import(&forged).await.unwrap()), (2, 1));
    let of_admin = authorization(&format!("ApiKey {}", of_admin.encoded));
    assert_eq!(status(&second.ask(&of_admin).await), 401);
    let second = second.restart().await;
    for shown in [basic("ann:ann-secret"), basic("bob:bob-secret"), key] {
        assert!(second.may(&shown, Action::Search, "logs-1").await);
        assert!(!second.may(&shown, Action::Search, "metrics").await);
    }
    assert_eq!(status(&second.ask(&token(&login.token)).await), 401);
    // What was there stays, and so does the administrator.
    for shown in ["old:old-secret", "admin:secret"] {
        assert_eq!(status(&second.ask(&basic(shown)).await), 200, "{shown}");
    }
}

#[tokio::test]
async fn accounts_become_what_they_were_and_revoked_keys_stay_revoked() {
    let server = Server::start().await;
    let (key, id) = server.with_accounts().await;
    let records = server.accounts.export_records().await.unwrap();
    server.accounts.change_password("ann", "another-secret".to_owned()).await.unwrap();
    let login = server.accounts.login("ann", "another-secret", HERE).await.unwrap();
    let unchanged = server.accounts.login("bob", "bob-secret", HERE).await.unwrap();
    server.accounts.delete_role("logs").await.unwrap();
    let query = ApiKeyQuery { ids: Some(vec![id]), ..ApiKeyQuery::default() };
    server.accounts.invalidate_api_keys(query).await.unwrap();
    server.accounts.change_password("admin", "admin-secret".to_owned()).await.unwrap();

    server.import(&records).await.unwrap();
    assert!(server.may(&basic("ann:ann-secret"), Action::Search, "logs-1").await);
    assert_eq!(status(&server.ask(&basic("ann:another-secret")).await), 401);
    // A password that is another one ends the logins of its user.
    assert_eq!(status(&server.ask(&token(&login.token)).await), 401);
    assert_eq!(status(&server.ask(&token(&unchanged.token)).await), 200);
    assert_eq!(status(&server.ask(&key).await), 401);
    assert_eq!(status(&server.ask(&basic("admin:admin-secret")).await), 200);
    // Once more changes nothing.
    server.import(&records).await.unwrap();
    assert_eq!(status(&server.ask(&token(&unchanged.token)).await), 200);
}

#[tokio::test]
async fn records_that_no_store_writes_are_refused_as_a_whole() {
    let server = Server::start().await;
    let usual = hash::hash("a-secret").unwrap();
    let costly = usual.replacen("m=19456", "m=4000000", 1);
    assert!(hash::is_usual(&usual) && costly != usual);
    let user =
        |name: &str, hash: &str| record("user", name, json!({"v": 1, "hash": hash, "roles": ["admin"]}));
    for (wrong, needle) in [
        (user("eve", &costly), "user [eve]"),
        (user("eve", "plain"), "user [eve]"),
        (user("_system", &usual), "must not begin with _"),
        (user("a:b", &usual), "colon"),
        (record("user", "eve", json!({"v": 1, "roles": []})), "needs a password"),
        (record("token", "00", json!({"v": 1})), "token [00]"),
        (record("oracle", "eve", json!({"v": 1})), "oracle [eve]"),
        (record("api_key", "eve", json!({"v": 1})), "api_key [eve]"),
    ] {
        let refused = server.import(&[user("carl", &usual), wrong.clone()]).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::InvalidInput, "{wrong:?}");
        assert!(refused.to_string().contains(needle), "{refused}");
        assert!(server.accounts.user("carl").is_none(), "{wrong:?}");
    }
    // Built-in roles and the administrator are the store's own.
    let admin = user("admin", &usual);
    let role = record("role", "reader", json!({"v": 1}));
    assert_eq!(server.import(&[admin, role]).await.unwrap(), 0);
    assert_eq!(status(&server.ask(&basic("admin:secret")).await), 200);
}
