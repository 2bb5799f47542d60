use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures::FutureExt;
use millrace_storage::ManualClock;
use parking_lot::Mutex;

use super::*;

#[derive(Debug, Default)]
struct Memory(Mutex<HashMap<String, Vec<u8>>>);

#[async_trait]
impl SecretStore for Memory {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.lock().get(key).cloned())
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.0.lock().insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

fn basic(pair: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)).parse().unwrap());
    headers
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A client of so many.
fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) + number).into()
}

fn clock() -> SharedClock {
    Arc::new(ManualClock::new(0))
}

#[tokio::test]
async fn generated_once_then_kept_until_configured() {
    let store = Memory::default();
    let (auth, generated) = Authenticator::open(&store, None, None, clock()).await.unwrap();
    let generated = generated.unwrap();
    let principal = auth.authenticate(&basic(&format!("admin:{generated}")), "/", HERE).await.unwrap();
    assert_eq!((principal.name(), principal.roles()), ("admin", &["admin".to_owned()][..]));
    let hash = store.0.lock()[ADMIN_KEY].clone();
    assert!(hash.starts_with(b"$argon2id$"));

    let (auth, again) = Authenticator::open(&store, None, None, clock()).await.unwrap();
    assert_eq!(again, None);
    auth.authenticate(&basic(&format!("admin:{generated}")), "/", HERE).await.unwrap();

    let (auth, none) = Authenticator::open(&store, Some("chosen"), None, clock()).await.unwrap();
    assert_eq!(none, None);
    assert_eq!(
        auth.authenticate(&basic(&format!("admin:{generated}")), "/", HERE).await.unwrap_err().status(),
        401
    );
    auth.authenticate(&basic("admin:chosen"), "/", HERE).await.unwrap();
}

#[tokio::test]
async fn a_generated_password_is_kept_in_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin-password");
    // What somebody else put there is not written to.
    std::fs::write(&file, "before").unwrap();
    let other = std::fs::File::open(&file).unwrap();
    let store = Memory::default();
    let (_, generated) = Authenticator::open(&store, None, Some(&file), clock()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), generated.unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::io::read_to_string(other).unwrap(), "before");
    Authenticator::open(&store, Some("chosen"), Some(&file), clock()).await.unwrap();
    assert!(!file.exists());
    // A password that could not be kept is not set.
    let (store, missing) = (Memory::default(), dir.path().join("missing/admin-password"));
    let error = Authenticator::open(&store, None, Some(&missing), clock()).await.unwrap_err();
    assert!(error.reason().contains("missing/admin-password"), "{error:?}");
    assert!(store.0.lock().is_empty());
}

#[tokio::test]
async fn refusals_say_what_is_missing() {
    let (auth, _) = Authenticator::open(&Memory::default(), Some("secret"), None, clock()).await.unwrap();
    let error = auth.authenticate(&HeaderMap::new(), "/_bulk", HERE).await.unwrap_err();
    assert_eq!(error.reason(), "missing authentication credentials for REST request [/_bulk]");
    let response = error.into_response();
    assert_eq!(response.status, 401);
    assert_eq!(response.headers[0].0, "www-authenticate");

    for pair in ["admin:wrong", "root:secret", "admin:", "nocolon"] {
        assert_eq!(auth.authenticate(&basic(pair), "/", HERE).await.unwrap_err().status(), 401, "{pair}");
    }
    for value in ["ApiKey abc", "Bearer abc", "Digest abc", "Basic ***"] {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        assert_eq!(auth.authenticate(&headers, "/", HERE).await.unwrap_err().status(), 401, "{value}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("token", "abc".parse().unwrap());
    assert!(auth.authenticate(&headers, "/", HERE).await.unwrap_err().reason().contains("tokens"));
}

#[tokio::test]
async fn insecure_is_the_administrator() {
    let principal = Authenticator::insecure().authenticate(&HeaderMap::new(), "/", HERE).await.unwrap();
    assert_eq!(principal.name(), "admin");
}

fn hashed(auth: &Authenticator) -> usize {
    match &auth.mode {
        Mode::Passwords(basic) => basic.verifier.hashed(),
        Mode::Insecure => 0,
    }
}

async fn open(clock: SharedClock) -> Authenticator {
    Authenticator::open(&Memory::default(), Some("secret"), None, clock).await.unwrap().0
}

#[tokio::test]
async fn requests_that_go_away_leave_no_hashes() {
    let auth = open(clock()).await;
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
    let auth = open(clock()).await;
    let headers: Vec<_> = (0..200).map(|number| basic(&format!("user-{number}:wrong"))).collect();
    let ask = |number: u32, address| auth.authenticate(&headers[number as usize], "/", address);
    let (mut requests, mut refused) = (Vec::new(), 0);
    for number in 0..200 {
        let mut request = Box::pin(ask(number, if number < 20 { HERE } else { client(number) }));
        match request.as_mut().now_or_never() {
            None => requests.push(request),
            Some(answer) => {
                let error = answer.unwrap_err();
                assert_eq!(error.status(), 429);
                let headers = error.into_response().headers;
                assert!(headers.contains(&("retry-after", "1".to_owned())), "{headers:?}");
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
        assert_eq!(request.await.unwrap_err().status(), 401);
    }
    assert!(hashed(&auth) <= 200 - refused);
}

#[tokio::test]
async fn the_same_credentials_are_hashed_once() {
    let auth = open(clock()).await;
    for (pair, status) in [("admin:secret", 200), ("admin:wrong", 401)] {
        let before = hashed(&auth);
        let headers = basic(pair);
        let requests = (0..100).map(|number| auth.authenticate(&headers, "/", client(number)));
        for answer in futures::future::join_all(requests).await {
            assert_eq!(answer.map_or_else(|error| error.status(), |_| 200), status);
        }
        let _ = auth.authenticate(&headers, "/", HERE).await;
        assert_eq!(hashed(&auth), before + 1);
    }
}

#[tokio::test]
async fn wrong_passwords_lock_nobody_out_who_was_right() {
    let clock = Arc::new(ManualClock::new(0));
    let auth = open(clock.clone()).await;
    let right = basic("admin:secret");
    auth.authenticate(&right, "/", HERE).await.unwrap();
    for address in [client(1), HERE] {
        let mut statuses = Vec::new();
        for number in 0..128 {
            let wrong = basic(&format!("admin:wrong-{number}-{address}"));
            statuses.push(auth.authenticate(&wrong, "/", address).await.unwrap_err().status());
            auth.authenticate(&right, "/", HERE).await.unwrap();
        }
        // The address has its attempts, and is told to wait then.
        assert_eq!((&statuses[..32], &statuses[32..]), (&[401; 32][..], &[429; 96][..]));
    }
    // Others have theirs, also for this account.
    auth.authenticate(&right, "/", client(2)).await.unwrap();
    let wrong = auth.authenticate(&basic("admin:other"), "/", client(2)).await.unwrap_err();
    assert_eq!(wrong.status(), 401);
    // After a while the address may try again; what is right stays so while it is used.
    clock.advance_ms(31_000);
    let again = auth.authenticate(&basic("admin:wrong"), "/", client(1)).await.unwrap_err();
    assert_eq!(again.status(), 401);
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
    let auth = open(clock()).await;
    let mut statuses = HashMap::<u16, usize>::new();
    for number in 0..136 {
        let wrong = basic(&format!("admin:wrong-{number}"));
        let status = auth.authenticate(&wrong, "/", client(number / 8)).await.unwrap_err().status();
        *statuses.entry(status).or_default() += 1;
    }
    // The last address has its reserve only.
    assert_eq!(statuses, HashMap::from([(401, 132), (429, 4)]));
    // Another name is another account, known or not.
    let other = auth.authenticate(&basic("other:wrong"), "/", client(1000)).await.unwrap_err();
    assert_eq!(other.status(), 401);
}

#[tokio::test]
async fn who_guesses_elsewhere_does_not_keep_others_out() {
    let auth = open(clock()).await;
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
    let guesser = auth.authenticate(&basic("admin:again"), "/", client(1001)).await.unwrap_err();
    assert_eq!(guesser.status(), 429);
}
