use futures::future::join_all;
use millrace_runtime::Kind;

use super::*;
use crate::{CERTIFICATE_SUBJECT, Mapping};

#[tokio::test]
async fn users_come_and_go() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    server.user("ann", &["reader"]).await;
    let ann = basic("ann:ann-secret");
    let shown = server.ask(&ann).await.unwrap();
    assert_eq!((shown.principal.name(), shown.scheme), ("ann", Scheme::Basic));
    assert_eq!(shown.principal.roles(), list(&["reader"]));
    assert!(server.may(&ann, Action::Search, "logs").await);
    assert!(!server.may(&ann, Action::IndexDocument, "logs").await);
    // What is changed holds from the next request on; the password stays.
    let writer =
        User { roles: list(&["ingest"]), email: Some("ann@example.org".to_owned()), ..User::default() };
    assert!(!accounts.put_user("ann", writer.clone(), None).await.unwrap());
    assert!(!server.may(&ann, Action::Search, "logs").await);
    assert!(server.may(&ann, Action::IndexDocument, "logs").await);
    assert_eq!(accounts.user("ann").unwrap().user, writer);
    accounts.change_password("ann", "another".to_owned()).await.unwrap();
    assert_eq!(status(&server.ask(&ann).await), 401);
    let ann = basic("ann:another");
    accounts.enable_user("ann", false).await.unwrap();
    assert_eq!(status(&server.ask(&ann).await), 401);
    assert!(accounts.principal("ann").is_none() && accounts.find_principal("ann").await.unwrap().is_none());
    accounts.enable_user("ann", true).await.unwrap();
    assert_eq!(status(&server.ask(&ann).await), 200);
    let server = server.restart().await;
    assert_eq!(status(&server.ask(&ann).await), 200);
    assert_eq!(server.accounts.user("ann").unwrap().user, writer);
    server.accounts.delete_user("ann").await.unwrap();
    assert_eq!(status(&server.ask(&ann).await), 401);
    assert_eq!(server.accounts.delete_user("ann").await.unwrap_err().kind(), Kind::NotFound);
    let server = server.restart().await;
    let names: Vec<_> = server.accounts.users().iter().map(|user| user.name.to_string()).collect();
    assert_eq!(names, ["admin"]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_nothing_changes() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let put = |name: &'static str, user: User, password: Option<&str>| {
        accounts.put_user(name, user, password.map(str::to_owned))
    };
    let user = User::default;
    for (name, password) in [
        ("", Some("secret")),
        ("_anonymous", Some("secret")),
        ("_system", Some("secret")),
        ("a:b", Some("secret")),
        (" a", Some("secret")),
        ("a", None),
        ("a", Some("short")),
    ] {
        let error = put(name, user(), password).await.unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput, "{name}: {error}");
    }
    // The administrator stays one.
    for roles in [&["reader"][..], &[]] {
        let error = put("admin", User { roles: list(roles), ..user() }, None).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden);
    }
    assert_eq!(accounts.enable_user("admin", false).await.unwrap_err().kind(), Kind::Forbidden);
    assert_eq!(accounts.delete_user("admin").await.unwrap_err().kind(), Kind::Forbidden);
    let missing = accounts.change_password("nobody", "password".to_owned()).await.unwrap_err();
    assert_eq!(missing.to_string(), "user [nobody] not found");
    // What is not stored is not so.
    server.store.fails.store(true, Ordering::Relaxed);
    let failed = put("ann", user(), Some("password")).await.unwrap_err();
    assert_eq!(failed.kind(), Kind::Overloaded);
    assert_eq!(accounts.users().len(), 1);
}

#[tokio::test]
async fn a_password_of_ones_own_replaces_the_one_that_was_shown() {
    use crate::Edit;
    let server = Server::start().await;
    let accounts = &server.accounts;
    server.user("ann", &["reader"]).await;
    let set = async |password: &str, own: Option<Arc<Account>>| {
        let password = accounts.hash_own(password.to_owned()).await.unwrap();
        accounts.edit_one(Edit::SetPassword { name: "ann".to_owned(), password, own }).await
    };
    let shown = accounts.user("ann");
    // What else is said of the user is no other password.
    let writer = User { roles: list(&["ingest"]), ..User::default() };
    accounts.put_user("ann", writer, None).await.unwrap();
    set("another", shown.clone()).await.unwrap();
    assert_eq!(set("a third", shown).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(status(&server.ask(&basic("ann:another")).await), 200);
    // Nor is one of the name the same user, if it gets the same password.
    let shown = accounts.user("ann");
    accounts.delete_user("ann").await.unwrap();
    let user = User { roles: list(&["reader"]), ..User::default() };
    accounts.put_user("ann", user, Some("another".to_owned())).await.unwrap();
    assert_eq!(set("a third", shown).await.unwrap_err().kind(), Kind::Conflict);
    // Who may set those of others sets it as it is.
    set("a third", None).await.unwrap();
    assert_eq!(status(&server.ask(&basic("ann:a third")).await), 200);
}

#[tokio::test]
async fn certificates_are_of_the_user_that_names_them() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let of = |subject: &str| User {
        roles: list(&["ingest"]),
        attributes: [(CERTIFICATE_SUBJECT.to_owned(), subject.to_owned())].into(),
        ..User::default()
    };
    let find = async |subject| {
        let shown = accounts.by_certificate(subject, HERE).await.unwrap();
        shown.map(|shown| shown.principal.name().to_owned())
    };
    accounts.put_user("shipper", of("CN=shipper,O=Acme"), None).await.unwrap();
    server.user("CN=other", &["reader"]).await;
    assert_eq!(find("CN=shipper,O=Acme").await.as_deref(), Some("shipper"));
    assert_eq!(find("CN=other").await.as_deref(), Some("CN=other"));
    assert_eq!((find("CN=shipper").await, find("").await), (None, None));
    // Nobody else can have it.
    let taken = accounts.put_user("thief", of("CN=shipper,O=Acme"), None).await.unwrap_err();
    assert_eq!(taken.to_string(), "certificate [CN=shipper,O=Acme] is that of user [shipper]");
    assert!(accounts.put_user("thief", of("CN=other"), None).await.is_err());
    // Without a password there is no other way in.
    assert_eq!(status(&server.ask(&basic("shipper:")).await), 401);
    accounts.put_user("shipper", of("CN=new"), None).await.unwrap();
    assert_eq!((find("CN=shipper,O=Acme").await, find("CN=new").await.as_deref()), (None, Some("shipper")));
    accounts.enable_user("shipper", false).await.unwrap();
    assert_eq!(find("CN=new").await, None);
}

#[tokio::test]
async fn mappings_give_roles() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let ann = User { backend_roles: list(&["ops"]), ..User::default() };
    accounts.put_user("ann", ann, Some("ann-secret".to_owned())).await.unwrap();
    let ann = basic("ann:ann-secret");
    let roles = async |address: [u8; 4]| {
        let shown = accounts.authenticate(&ann, "/", address.into()).await.unwrap();
        shown.principal.roles().to_vec()
    };
    assert_eq!(roles([10, 0, 0, 1]).await, list(&[]));
    let ops = Mapping { backend_roles: list(&["op*"]), ..Mapping::default() };
    assert!(accounts.put_mapping("reader", ops).await.unwrap());
    let hosts = Mapping { hosts: list(&["10.0.*"]), ..Mapping::default() };
    accounts.put_mapping("monitor", hosts).await.unwrap();
    assert_eq!(roles([10, 0, 0, 1]).await, list(&["monitor", "reader"]));
    assert_eq!(roles([10, 1, 0, 1]).await, list(&["reader"]));
    assert_eq!(accounts.roles_of("ann"), Some(list(&["reader"])));
    let missing = accounts.put_mapping("nothing", Mapping::default()).await.unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    accounts.delete_mapping("reader").await.unwrap();
    assert_eq!(roles([10, 1, 0, 1]).await, list(&[]));
    accounts.delete_mapping("reader").await.unwrap_err();
}

#[tokio::test]
async fn what_a_host_or_a_certificate_gives_is_made_once_and_with_the_next_change_anew() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let hosts = |hosts: &[&str]| Mapping { hosts: list(hosts), ..Mapping::default() };
    accounts.put_mapping("monitor", hosts(&["::FFFF:10.0.0.*", "2001:DB8:0:0:*"])).await.unwrap();
    assert_eq!(accounts.mapping("monitor").unwrap().hosts, list(&["10.0.0.*", "2001:db8:0:0:*"]));
    let agent = User {
        attributes: [(CERTIFICATE_SUBJECT.to_owned(), "CN=agent".to_owned())].into(),
        ..User::default()
    };
    accounts.put_user("agent", agent, None).await.unwrap();
    let made = || accounts.0.resolver.made.load(Ordering::Relaxed);
    let roles = async |address: &str| {
        let shown = accounts.by_certificate("CN=agent", address.parse().unwrap()).await.unwrap();
        shown.unwrap().principal.roles().to_vec()
    };
    for address in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
        assert_eq!(roles(address).await, list(&["monitor"]), "{address}");
    }
    assert_eq!(roles("10.0.1.1").await, list(&[]));
    let before = made();
    for _ in 0..10 {
        assert_eq!(roles("10.0.0.2").await, list(&["monitor"]));
        assert_eq!(roles("10.0.1.1").await, list(&[]));
    }
    assert_eq!(made(), before, "the same roles of other addresses are the same");
    accounts.put_mapping("reader", hosts(&["10.0.0.2"])).await.unwrap();
    assert_eq!(roles("10.0.0.2").await, list(&["monitor", "reader"]));
    accounts.delete_mapping("monitor").await.unwrap();
    assert_eq!(roles("10.0.0.2").await, list(&["reader"]));
}

#[tokio::test]
async fn several_changes_are_made_all_or_none() {
    use crate::Edit;
    let server = Server::start().await;
    let accounts = &server.accounts;
    let role = |name: &str| Edit::PutRole(name.to_owned(), Role::default());
    let mapping = |role: &str| Edit::PutMapping(role.to_owned(), Mapping::default());
    let before = server.store.records.lock().clone();
    for refused in [
        Edit::DeleteRole("missing".to_owned()),
        Edit::DeleteUser("admin".to_owned()),
        mapping("missing"),
        Edit::PutUser { name: "new".to_owned(), user: User::default(), password: None },
    ] {
        accounts.edit(vec![role("a"), mapping("a"), refused]).await.unwrap_err();
        assert!(accounts.role("a").is_none() && accounts.mapping("a").is_none());
        assert_eq!(*server.store.records.lock(), before);
    }
    // Each is decided on what those before it leave.
    let edits = vec![role("a"), mapping("a"), role("a"), Edit::DeleteMapping("a".to_owned()), role("b")];
    assert_eq!(accounts.edit(edits).await.unwrap(), [true, true, false, false, true]);
    assert!(accounts.role("a").is_some() && accounts.mapping("a").is_none());
    let roles = accounts.roles();
    assert_eq!(server.restart().await.accounts.roles(), roles);
}

#[tokio::test]
async fn certificates_change_hands_in_one_change() {
    use crate::Edit;
    let server = Server::start().await;
    let accounts = &server.accounts;
    let put = |name: &str, subject: &str| {
        let attributes = [(CERTIFICATE_SUBJECT.to_owned(), subject.to_owned())].into();
        let user = User { attributes, ..User::default() };
        Edit::PutUser { name: name.to_owned(), user, password: None }
    };
    accounts.edit(vec![put("ann", "CN=1"), put("ben", "CN=2"), put("cid", "CN=3")]).await.unwrap();
    accounts.edit(vec![put("ann", "CN=2"), put("ben", "CN=1")]).await.unwrap();
    accounts.edit(vec![Edit::DeleteUser("cid".to_owned()), put("dan", "CN=3")]).await.unwrap();
    for twice in [
        vec![put("ann", "CN=4"), put("ben", "CN=4")],
        vec![put("ben", "CN=2"), put("ann", "CN=2")],
        vec![put("ann", "CN=3")],
    ] {
        assert_eq!(accounts.edit(twice).await.unwrap_err().kind(), Kind::Conflict);
    }
    // A user whose name is the subject of another's stands in nobody's way.
    server.user("CN=3", &[]).await;
    accounts.edit(vec![put("dan", "CN=3")]).await.unwrap();
    let of = async |accounts: &Accounts| {
        let mut names = Vec::new();
        for subject in ["CN=1", "CN=2", "CN=3"] {
            let shown = accounts.by_certificate(subject, HERE).await.unwrap().unwrap();
            names.push(shown.principal.name().to_owned());
        }
        names
    };
    assert_eq!(of(accounts).await, ["ben", "ann", "dan"]);
    assert_eq!(of(&server.restart().await.accounts).await, ["ben", "ann", "dan"]);
}

#[tokio::test]
async fn changes_at_the_same_time_are_all_kept() {
    let server = Server::start().await;
    let puts = (0..50).map(|number| {
        let accounts = server.accounts.clone();
        let role = Role { description: number.to_string(), ..Role::default() };
        async move { accounts.put_role(&format!("role-{number}"), role).await }
    });
    assert!(join_all(puts).await.into_iter().all(|put| put.unwrap()));
    // One makes it, the others replace it.
    let same = (0..20).map(|_| server.accounts.put_role("same", Role::default()));
    let made = join_all(same).await.into_iter().filter(|put| *put.as_ref().unwrap()).count();
    assert_eq!(made, 1);
    let before = server.accounts.roles();
    assert_eq!(before.len(), 8 + 51);
    assert_eq!(server.restart().await.accounts.roles(), before);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_store_and_memory_alike() {
    use futures::FutureExt;
    let server = Server::start().await;
    for number in 0..20 {
        let name = format!("role-{number}");
        let mut put = Box::pin(server.accounts.put_role(&name, Role::default()));
        let _ = put.as_mut().now_or_never();
        drop(put);
    }
    // It waits for those before it.
    server.accounts.put_role("last", Role::default()).await.unwrap();
    let before = server.accounts.roles();
    assert_eq!(server.restart().await.accounts.roles(), before);
}

#[tokio::test]
async fn logins_and_password_changes_at_the_same_time_leave_no_old_login() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let old = (0..50).map(|_| server.accounts.login("ann", "ann-secret", HERE));
    let (logins, changed) =
        futures::future::join(join_all(old), server.accounts.change_password("ann", "another".to_owned()))
            .await;
    changed.unwrap();
    for login in logins.into_iter().flatten() {
        assert_eq!(status(&server.ask(&token(&login.token)).await), 401);
    }
    let new = server.accounts.login("ann", "another", HERE).await.unwrap();
    assert_eq!(status(&server.ask(&token(&new.token)).await), 200);
}

#[tokio::test]
async fn the_administrator_is_one_whatever_is_stored() {
    let server = Server::start().await;
    let stored = || server.store.records.lock()[&("user".to_owned(), "admin".to_owned())].clone();
    let broken = stored().replace(r#""enabled":true"#, r#""enabled":false"#).replace(r#"["admin"]"#, "[]");
    assert_ne!(broken, stored());
    server.store.records.lock().insert(("user".to_owned(), "admin".to_owned()), broken);
    let server = server.restart().await;
    assert!(server.may(&basic("admin:secret"), Action::DeleteIndex, "logs").await);
}
