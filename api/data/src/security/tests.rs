//! Tests of requests while a password is hashed.

use std::net::{IpAddr, Ipv4Addr};

use futures::future::BoxFuture;
use millrace_accounts::{self as accounts, Accounts, Scheme, User};
use millrace_catalog::access::Principal;
use millrace_engine::access::Sender;
use millrace_engine::{Config, Engine};
use millrace_query::SearchService;
use millrace_runtime::SystemClock;
use tempfile::TempDir;

use super::*;
use crate::{Identity, Node, Requester};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A sender of whom it is asked who it is when something has just happened.
struct OvertakenSender {
    accounts: Accounts,
    by: Edit,
}

impl Sender for OvertakenSender {
    fn again(&self) -> BoxFuture<'_, millrace_runtime::Result<Option<Principal>>> {
        Box::pin(async move {
            self.accounts.edit_one(self.by.clone()).await.unwrap();
            Ok(self.accounts.principal("ann"))
        })
    }
}

/// A node with the users ann, of a role, and ben.
async fn node(role: &str) -> (Node, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let config = Config { data_dir: data_dir.clone(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let search = Arc::new(SearchService::new(engine.clone(), millrace_query::Config::default()));
    let config =
        accounts::Config { admin_password: Some("secret".to_owned()), ..accounts::Config::default() };
    let opened =
        Accounts::open(Arc::clone(&engine) as _, config, Arc::new(SystemClock), Arc::new(SearchQueryParser));
    let (accounts, _) = opened.await.unwrap();
    for (name, role) in [("ann", role), ("ben", "reader")] {
        let user = User { roles: vec![role.to_owned()], ..User::default() };
        accounts.put_user(name, user, Some(format!("{name}-secret"))).await.unwrap();
    }
    let identity = Identity::open(&*engine, "node", "cluster", data_dir, String::new()).await.unwrap();
    (Node::new(engine, search, accounts, identity), directory)
}

/// Makes what a handler gets of ann's request, which is overtaken by a change.
fn overtaken(node: &Node, action: Action, by: Edit) -> Api {
    let principal = node.accounts.principal("ann").unwrap();
    let asker = Requester { principal, scheme: Some(Scheme::Basic), token: None, address: HERE };
    let api = node.api(asker, action, Arc::default()).unwrap();
    let sender = OvertakenSender { accounts: node.accounts.clone(), by };
    let session = api.session.clone().sent_by(Arc::new(sender));
    Api { session, ..api }
}

async fn has(node: &Node, name: &str, password: &str) -> bool {
    node.accounts.verify_password(name, password, HERE).await.is_ok()
}

#[tokio::test]
async fn a_password_that_was_set_meanwhile_stays() {
    let (node, _directory) = node("reader").await;
    let setter = Setter { name: "admin", address: HERE };
    let password = node.accounts.hash_password("of the administrator".to_owned(), setter).await.unwrap();
    let reset = Edit::SetPassword { name: "ann".to_owned(), password, own: None };
    let api = overtaken(&node, Action::Own, reset);
    let own = node.accounts.user("ann");
    let set = api.set_password("ann", "of whoever knew it".to_owned(), Action::Own, own).await;
    assert_eq!(set.unwrap_err().status(), 409);
    assert!(has(&node, "ann", "of the administrator").await);
    assert!(!has(&node, "ann", "of whoever knew it").await);
}

#[tokio::test]
async fn who_is_nobody_any_more_sets_nothing() {
    let (node, _directory) = node("reader").await;
    let api = overtaken(&node, Action::Own, Edit::DeleteUser("ann".to_owned()));
    let own = node.accounts.user("ann");
    let set = api.set_password("ann", "another".to_owned(), Action::Own, own).await;
    assert_eq!(set.unwrap_err().status(), 403);
    assert!(node.accounts.user("ann").is_none());
}

#[tokio::test]
async fn who_may_not_any_more_sets_no_password_of_others() {
    let (node, _directory) = node("superuser").await;
    let user = User { roles: vec!["reader".to_owned()], ..User::default() };
    let deprives = Edit::PutUser { name: "ann".to_owned(), user, password: None };
    let api = overtaken(&node, Action::PutSecurity, deprives);
    let set = api.set_password("ben", "another".to_owned(), Action::PutSecurity, None).await;
    assert_eq!(set.unwrap_err().status(), 403);
    assert!(has(&node, "ben", "ben-secret").await);
}
