use super::*;
use crate::limits::MAX_TOKENS_OF_USER;

#[tokio::test]
async fn a_login_gives_a_token_until_the_logout() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    assert_eq!(status(&server.accounts.login("ann", "wrong", HERE).await), 401);
    assert_eq!(status(&server.accounts.login("nobody", "ann-secret", HERE).await), 401);
    let login = server.accounts.login("ann", "ann-secret", HERE).await.unwrap();
    assert_eq!((login.principal.name(), login.token.len()), ("ann", 64));
    for headers in [token(&login.token), authorization(&format!("Bearer {}", login.token))] {
        let shown = server.ask(&headers).await.unwrap();
        assert_eq!((shown.principal.name(), shown.scheme), ("ann", Scheme::Token));
    }
    // It is nowhere in the store.
    assert!(
        server
            .store
            .records
            .lock()
            .iter()
            .all(|((_, name), body)| { !name.contains(&login.token) && !body.contains(&login.token) })
    );
    let server = server.restart().await;
    assert_eq!(status(&server.ask(&token(&login.token)).await), 200);
    assert!(server.accounts.logout(&login.token).await.unwrap());
    assert_eq!(status(&server.ask(&token(&login.token)).await), 401);
    assert!(!server.accounts.logout(&login.token).await.unwrap());
    let server = server.restart().await;
    assert_eq!(status(&server.ask(&token(&login.token)).await), 401);
    assert_eq!(status(&server.ask(&token(&"0".repeat(64))).await), 401);
}

#[tokio::test]
async fn tokens_end_with_what_the_login_was_for() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let login =
        async |name: &str, password: &str| token(&accounts.login(name, password, HERE).await.unwrap().token);
    for name in ["ann", "ben", "eve", "joe"] {
        server.user(name, &["reader"]).await;
    }
    let kept = login("joe", "joe-secret").await;
    let ann = login("ann", "ann-secret").await;
    accounts.change_password("ann", "another".to_owned()).await.unwrap();
    let ben = login("ben", "ben-secret").await;
    accounts.enable_user("ben", false).await.unwrap();
    accounts.enable_user("ben", true).await.unwrap();
    let eve = login("eve", "eve-secret").await;
    accounts.delete_user("eve").await.unwrap();
    server.user("eve", &["reader"]).await;
    for (name, headers) in [("ann", ann), ("ben", ben), ("eve", eve)] {
        assert_eq!(status(&server.ask(&headers).await), 401, "{name}");
    }
    let (one, other) = (login("ann", "another").await, login("ann", "another").await);
    assert_eq!(accounts.logout_everywhere("ann").await.unwrap(), 2);
    assert_eq!((status(&server.ask(&one).await), status(&server.ask(&other).await)), (401, 401));
    assert_eq!(status(&server.ask(&kept).await), 200);
}

#[tokio::test]
async fn tokens_last_while_they_are_used_and_no_longer_than_they_may() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let login = async || token(&server.accounts.login("ann", "ann-secret", HERE).await.unwrap().token);
    let (used, idle) = (login().await, login().await);
    for _ in 0..6 {
        server.clock.advance_ms(11 * HOUR_MS);
        assert_eq!(status(&server.ask(&used).await), 200);
        server.accounts.sweep().await.unwrap();
    }
    assert_eq!(status(&server.ask(&idle).await), 401);
    // The last use counts after a restart, too.
    let server = server.restart().await;
    server.clock.advance_ms(11 * HOUR_MS);
    assert_eq!(status(&server.ask(&used).await), 200);
    for _ in 0..59 {
        server.clock.advance_ms(11 * HOUR_MS);
        let _ = server.ask(&used).await;
    }
    assert_eq!(status(&server.ask(&used).await), 401);
    assert_eq!(server.accounts.sweep().await.unwrap(), 1);
    assert!(!server.store.records.lock().keys().any(|(kind, _)| kind == "token"));
}

#[tokio::test]
async fn uses_are_stored_now_and_then_only() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let ann = token(&server.accounts.login("ann", "ann-secret", HERE).await.unwrap().token);
    let stored = || {
        let records = server.store.records.lock();
        records.iter().find(|((kind, _), _)| kind == "token").map(|(_, body)| body.clone())
    };
    let first = stored();
    server.clock.advance_ms(HOUR_MS);
    server.ask(&ann).await.unwrap();
    server.accounts.sweep().await.unwrap();
    assert_eq!(stored(), first);
    server.clock.advance_ms(HOUR_MS / 2);
    server.ask(&ann).await.unwrap();
    server.accounts.sweep().await.unwrap();
    assert_ne!(stored(), first);
}

#[tokio::test]
async fn who_logs_in_again_and_again_loses_the_oldest() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let mut logins = Vec::new();
    for _ in 0..=MAX_TOKENS_OF_USER {
        server.clock.advance_ms(1);
        logins.push(token(&server.accounts.login("ann", "ann-secret", HERE).await.unwrap().token));
    }
    assert_eq!(status(&server.ask(&logins[0]).await), 401);
    assert_eq!(status(&server.ask(&logins[1]).await), 200);
    assert_eq!(status(&server.ask(&logins[MAX_TOKENS_OF_USER]).await), 200);
}
