use std::collections::HashMap;

use futures::FutureExt;

use super::*;

/// A client of so many.
fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) + number).into()
}

fn hashed(accounts: &Accounts) -> usize {
    accounts.0.verifier.hashed()
}

async fn server(clock: &Arc<ManualClock>) -> Accounts {
    open(&Arc::default(), clock).await
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(0))
}

async fn asked(accounts: &Accounts, pair: &str) -> u16 {
    status(&accounts.authenticate(&basic(pair), "/", HERE).await)
}

#[tokio::test]
async fn generated_once_then_kept_until_configured() {
    let store: Arc<Memory> = Arc::default();
    let (accounts, generated) = open_as(&store, &clock(), Config::default()).await.unwrap();
    let generated = generated.unwrap();
    let shown = accounts.authenticate(&basic(&format!("admin:{generated}")), "/", HERE).await.unwrap();
    assert_eq!((shown.principal.name(), shown.principal.roles()), ("admin", &list(&["admin"])[..]));
    assert!(store.records.lock().values().all(|body| !body.contains(&generated)));

    let (accounts, again) = open_as(&store, &clock(), Config::default()).await.unwrap();
    assert_eq!(again, None);
    assert_eq!(asked(&accounts, &format!("admin:{generated}")).await, 200);
    let login = accounts.login("admin", &generated, HERE).await.unwrap();

    let chosen = || Config { admin_password: Some("chosen".to_owned()), ..Config::default() };
    // What is configured counts at the first start only: one that was changed since does not come back.
    let (accounts, none) = open_as(&store, &clock(), chosen()).await.unwrap();
    assert_eq!(none, None);
    assert_eq!(asked(&accounts, "admin:chosen").await, 401);
    assert_eq!(status(&accounts.authenticate(&token(&login.token), "/", HERE).await), 200);
    let store: Arc<Memory> = Arc::default();
    let (accounts, none) = open_as(&store, &clock(), chosen()).await.unwrap();
    assert_eq!((none, asked(&accounts, "admin:chosen").await), (None, 200));
    accounts.change_password("admin", "rotated".to_owned()).await.unwrap();
    for _ in 0..2 {
        let (accounts, _) = open_as(&store, &clock(), chosen()).await.unwrap();
        assert_eq!(
            (asked(&accounts, "admin:chosen").await, asked(&accounts, "admin:rotated").await),
            (401, 200)
        );
    }
    for short in ["", "12345"] {
        let short = Config { admin_password: Some(short.to_owned()), ..Config::default() };
        let error = open_as(&store, &clock(), short).await.unwrap_err().to_string();
        assert!(error.contains("at least [6] characters") && error.contains("configure another"), "{error}");
    }
    // A configuration without one leaves the one that there is.
    let (accounts, _) = open_as(&store, &clock(), Config::default()).await.unwrap();
    assert_eq!(asked(&accounts, "admin:rotated").await, 200);
}

#[tokio::test]
async fn the_hash_of_a_version_before_is_taken_over() {
    let store: Arc<Memory> = Arc::default();
    let hash = crate::password::hash::hash("from before").unwrap();
    store.put_secret("auth/admin", hash.as_bytes()).await.unwrap();
    for _ in 0..2 {
        let (accounts, generated) = open_as(&store, &clock(), Config::default()).await.unwrap();
        assert_eq!(generated, None);
        assert_eq!(asked(&accounts, "admin:from before").await, 200);
    }
    // It does not come back.
    let (accounts, _) = open_as(&store, &clock(), Config::default()).await.unwrap();
    accounts.change_password("admin", "another".to_owned()).await.unwrap();
    let (accounts, _) = open_as(&store, &clock(), Config::default()).await.unwrap();
    assert_eq!(
        (asked(&accounts, "admin:from before").await, asked(&accounts, "admin:another").await),
        (401, 200)
    );
    assert!(store.secrets.lock()["auth/admin"].is_empty());
}

#[tokio::test]
async fn a_generated_password_is_kept_in_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin-password");
    // What somebody else put there is not written to.
    std::fs::write(&file, "before").unwrap();
    let other = std::fs::File::open(&file).unwrap();
    let store: Arc<Memory> = Arc::default();
    let config = Config { password_file: Some(file.clone()), ..Config::default() };
    let (_, generated) = open_as(&store, &clock(), config.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), generated.unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::io::read_to_string(other).unwrap(), "before");
    let chosen = Config { admin_password: Some("chosen".to_owned()), ..config.clone() };
    open_as(&store, &clock(), chosen.clone()).await.unwrap();
    assert!(file.exists(), "it is still the right one");
    open_as(&Arc::default(), &clock(), chosen).await.unwrap();
    assert!(!file.exists());
    // A password that could not be kept is not set.
    let (store, missing) = (Arc::<Memory>::default(), dir.path().join("missing/admin-password"));
    let config = Config { password_file: Some(missing), ..Config::default() };
    let error = open_as(&store, &clock(), config).await.unwrap_err();
    assert!(error.to_string().contains("missing/admin-password"), "{error:?}");
    assert!(store.records.lock().is_empty());
}

#[tokio::test]
async fn refusals_say_what_is_missing() {
    let accounts = server(&clock()).await;
    let error = accounts.authenticate(&HeaderMap::new(), "/_bulk", HERE).await.unwrap_err();
    assert_eq!(error.to_string(), "missing authentication credentials for REST request [/_bulk]");
    for pair in ["admin:wrong", "root:secret", "admin:", "nocolon"] {
        assert_eq!(asked(&accounts, pair).await, 401, "{pair}");
    }
    for value in ["ApiKey abc", "Bearer abc", "Digest abc", "Basic ***"] {
        let refused = accounts.authenticate(&authorization(value), "/", HERE).await;
        assert_eq!(status(&refused), 401, "{value}");
    }
}

#[tokio::test]
async fn insecure_is_the_administrator_and_leaves_no_password() {
    let store: Arc<Memory> = Arc::default();
    let config = Config { insecure: true, ..Config::default() };
    let (accounts, generated) = open_as(&store, &clock(), config).await.unwrap();
    let shown = accounts.authenticate(&HeaderMap::new(), "/", HERE).await.unwrap();
    assert_eq!((shown.principal.name(), shown.scheme), ("admin", Scheme::Insecure));
    assert_eq!((generated, store.records.lock().len()), (None, 0));
    // A start with credentials makes one.
    let (_, generated) = open_as(&store, &clock(), Config::default()).await.unwrap();
    assert!(generated.is_some());
}

#[tokio::test]
async fn whoever_may_not_come_in_costs_a_hash_whatever_the_password_is() {
    let clock = clock();
    let accounts = server(&clock).await;
    let user = |certificate: Option<&str>| crate::User {
        attributes: certificate
            .map(|subject| (crate::CERTIFICATE_SUBJECT.to_owned(), subject.to_owned()))
            .into_iter()
            .collect(),
        ..crate::User::default()
    };
    accounts.put_user("ann", user(None), Some("ann-secret".to_owned())).await.unwrap();
    accounts.put_user("agent", user(Some("CN=agent")), None).await.unwrap();
    // What was right before is remembered.
    assert_eq!(asked(&accounts, "ann:ann-secret").await, 200);
    accounts.enable_user("ann", false).await.unwrap();
    for _ in 0..2 {
        for pair in ["nobody:secret", "admin:wrong", "ann:ann-secret", "ann:wrong", "agent:", "agent:secret"]
        {
            let before = hashed(&accounts);
            assert_eq!(asked(&accounts, pair).await, 401, "{pair}");
            assert_eq!(hashed(&accounts), before + 1, "{pair}");
            // Refusals are remembered alike.
            assert_eq!((asked(&accounts, pair).await, hashed(&accounts)), (401, before + 1), "{pair}");
        }
        clock.advance_ms(31_000);
    }
    accounts.enable_user("ann", true).await.unwrap();
    // The refusal was one of the user that may not come in.
    assert_eq!(asked(&accounts, "ann:ann-secret").await, 200);
}

#[tokio::test]
async fn passwords_that_nobody_waits_for_are_not_hashed() {
    let accounts = server(&clock()).await;
    let before = hashed(&accounts);
    for number in 0..500 {
        let name = format!("user-{number}");
        let setter = crate::Setter { name: &name, address: client(number) };
        let mut request = Box::pin(accounts.hash_password("a-password".to_owned(), setter));
        assert!(request.as_mut().now_or_never().is_none_or(|answer| answer.is_err()));
        drop(request);
    }
    // Whoever comes next waits for the jobs under way, and for no other ones.
    let setter = crate::Setter { name: "admin", address: HERE };
    accounts.hash_password("a-password".to_owned(), setter).await.unwrap();
    assert!(hashed(&accounts) <= before + 2 + 2 + 1, "{}", hashed(&accounts) - before);
}

#[tokio::test]
async fn passwords_that_are_set_are_bounded_by_user_and_by_address() {
    let accounts = server(&clock()).await;
    let names: Vec<_> = (0..100).map(|number| format!("user-{number}")).collect();
    for of_user in [true, false] {
        let (mut requests, mut refused) = (Vec::new(), 0);
        for (number, other) in (0..).zip(&names) {
            let name = if of_user { "ann" } else { other.as_str() };
            let address = if of_user { client(number) } else { HERE };
            let setter = crate::Setter { name, address };
            let mut request = Box::pin(accounts.hash_password("a-password".to_owned(), setter));
            match request.as_mut().now_or_never() {
                None => requests.push(request),
                Some(Err(crate::Error::Later { after, .. })) => {
                    assert!(after.as_secs() >= 1);
                    refused += 1;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        assert!(refused > 0 && requests.len() <= 12 + hashed(&accounts), "{refused}");
        // There is a place for those who come in.
        assert_eq!(asked(&accounts, "admin:secret").await, 200);
        for request in requests {
            request.await.unwrap();
        }
    }
}

#[tokio::test]
async fn many_who_set_passwords_leave_places_to_those_who_come_in() {
    let accounts = server(&clock()).await;
    let (mut requests, mut refused) = (Vec::new(), 0);
    for (number, name) in (0..).zip(["ann", "ben", "cid", "dan", "eve", "fay", "gus", "hal"]) {
        let setter = crate::Setter { name, address: client(number) };
        for _ in 0..32 {
            let mut request = Box::pin(accounts.hash_password("a-password".to_owned(), setter));
            match request.as_mut().now_or_never() {
                None => requests.push(request),
                Some(Err(crate::Error::Later { .. })) => refused += 1,
                Some(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0 && requests.len() <= 48 + hashed(&accounts), "{refused}");
    let admin = accounts.authenticate(&basic("admin:secret"), "/", client(8)).await;
    assert!(admin.is_ok(), "{admin:?}");
    for request in requests {
        request.await.unwrap();
    }
}

#[tokio::test]
async fn requests_that_go_away_leave_no_hashes() {
    let auth = server(&clock()).await;
    for number in 0..1000 {
        let (headers, uri) = (basic(&format!("user-{number}:wrong")), "/");
        let mut request = Box::pin(auth.authenticate(&headers, uri, client(number)));
        assert!(request.as_mut().now_or_never().is_none_or(|answer| answer.is_err()));
        drop(request);
    }
    // Whoever comes next waits for the jobs under way, and for no other ones.
    auth.authenticate(&basic("admin:secret"), "/", HERE).await.unwrap();
    assert!(hashed(&auth) <= 2 + 2 + 1, "{}", hashed(&auth));
}

#[tokio::test]
async fn jobs_are_bounded_in_all_and_of_an_address() {
    let auth = server(&clock()).await;
    let headers: Vec<_> = (0..200).map(|number| basic(&format!("user-{number}:wrong"))).collect();
    let ask = |number: u32, address| auth.authenticate(&headers[number as usize], "/", address);
    let (mut requests, mut refused) = (Vec::new(), 0);
    for number in 0..200 {
        let mut request = Box::pin(ask(number, if number < 20 { HERE } else { client(number) }));
        match request.as_mut().now_or_never() {
            None => requests.push(request),
            Some(answer) => {
                let error = answer.unwrap_err();
                let later = matches!(error, Refusal::Later { after, .. } if after.as_secs() == 1);
                assert!(later, "{error:?}");
                refused += 1;
            }
        }
        if number == 19 {
            assert!(requests.len() <= 8 + hashed(&auth), "{}", requests.len());
        }
    }
    assert!(requests.len() <= 128 + 2 + hashed(&auth), "{}", requests.len());
    assert!(refused > 0);
    for request in requests {
        assert_eq!(status(&request.await), 401);
    }
    assert!(hashed(&auth) <= 200 - refused);
}

#[tokio::test]
async fn the_same_credentials_are_hashed_once() {
    let auth = server(&clock()).await;
    for (pair, expected) in [("admin:secret", 200), ("admin:wrong", 401)] {
        let before = hashed(&auth);
        let headers = basic(pair);
        let requests = (0..100).map(|number| auth.authenticate(&headers, "/", client(number)));
        for answer in futures::future::join_all(requests).await {
            assert_eq!(status(&answer), expected);
        }
        let _ = auth.authenticate(&headers, "/", HERE).await;
        assert_eq!(hashed(&auth), before + 1);
    }
}

#[tokio::test]
async fn wrong_passwords_lock_nobody_out_who_was_right() {
    let clock = Arc::new(ManualClock::new(0));
    let auth = server(&clock).await;
    let right = basic("admin:secret");
    auth.authenticate(&right, "/", HERE).await.unwrap();
    for address in [client(1), HERE] {
        let mut statuses = Vec::new();
        for number in 0..128 {
            let wrong = basic(&format!("admin:wrong-{number}-{address}"));
            statuses.push(status(&auth.authenticate(&wrong, "/", address).await));
            auth.authenticate(&right, "/", HERE).await.unwrap();
        }
        // The address has its attempts, and is told to wait then.
        assert_eq!((&statuses[..32], &statuses[32..]), (&[401; 32][..], &[429; 96][..]));
    }
    // Others have theirs, also for this account.
    auth.authenticate(&right, "/", client(2)).await.unwrap();
    let wrong = auth.authenticate(&basic("admin:other"), "/", client(2)).await;
    assert_eq!(status(&wrong), 401);
    // After a while the address may try again; what is right stays so while it is used.
    clock.advance_ms(31_000);
    let again = auth.authenticate(&basic("admin:wrong"), "/", client(1)).await;
    assert_eq!(status(&again), 401);
    let before = hashed(&auth);
    for _ in 0..10 {
        clock.advance_ms(50 * 60 * 1000);
        auth.authenticate(&right, "/", HERE).await.unwrap();
    }
    assert_eq!(hashed(&auth), before);
    clock.advance_ms(60 * 60 * 1000);
    auth.authenticate(&right, "/", HERE).await.unwrap();
    assert_eq!(hashed(&auth), before + 1);
}

#[tokio::test]
async fn an_account_has_its_attempts_from_wherever_they_come() {
    let auth = server(&clock()).await;
    let mut statuses = HashMap::<u16, usize>::new();
    for number in 0..136 {
        let wrong = basic(&format!("admin:wrong-{number}"));
        let answer = auth.authenticate(&wrong, "/", client(number / 8)).await;
        *statuses.entry(status(&answer)).or_default() += 1;
    }
    // The last address has its reserve only.
    assert_eq!(statuses, HashMap::from([(401, 132), (429, 4)]));
    // Another name is another account, known or not.
    let other = auth.authenticate(&basic("other:wrong"), "/", client(1000)).await;
    assert_eq!(status(&other), 401);
}

#[tokio::test]
async fn who_guesses_keeps_nobody_behind_its_address_out() {
    let clock = Arc::new(ManualClock::new(0));
    let auth = server(&clock).await;
    for name in ["ann", "bob", "eve"] {
        let password = Some(format!("{name}-password"));
        auth.put_user(name, crate::User::default(), password).await.unwrap();
    }
    assert_eq!(asked(&auth, "ann:ann-password").await, 200);
    // What was right before is checked anew.
    clock.advance_ms(61 * 60 * 1000);
    for number in 0..100 {
        let _ = asked(&auth, &format!("admin:wrong-{number}")).await;
    }
    assert_eq!(asked(&auth, "bob:bob-password").await, 200, "one account is guessed at");
    for number in 0..100 {
        let _ = asked(&auth, &format!("somebody-{number}:wrong")).await;
    }
    // All are guessed at: who came in from here before still does.
    assert_eq!((asked(&auth, "eve:wrong").await, asked(&auth, "ann:ann-password").await), (429, 200));
}

#[tokio::test]
async fn who_guesses_elsewhere_does_not_keep_others_out() {
    let auth = server(&clock()).await;
    for number in 0..160 {
        let wrong = basic(&format!("admin:wrong-{number}"));
        let _ = auth.authenticate(&wrong, "/", client(number / 8)).await.unwrap_err();
    }
    // As a shipper after a restart, of which nothing is remembered.
    let right = auth.authenticate(&basic("admin:secret"), "/", client(1000)).await;
    assert!(right.is_ok(), "{right:?}");
    // Not one that guesses itself.
    for number in 0..8 {
        let _ =
            auth.authenticate(&basic(&format!("admin:more-{number}")), "/", client(1001)).await.unwrap_err();
    }
    let guesser = auth.authenticate(&basic("admin:again"), "/", client(1001)).await;
    assert_eq!(status(&guesser), 429);
}
