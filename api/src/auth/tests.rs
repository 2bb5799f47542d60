use std::collections::HashMap;
use std::sync::Arc;

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

fn clock() -> SharedClock {
    Arc::new(ManualClock::new(0))
}

#[tokio::test]
async fn generated_once_then_kept_until_configured() {
    let store = Memory::default();
    let (auth, generated) = Authenticator::open(&store, None, clock()).await.unwrap();
    let generated = generated.unwrap();
    let principal = auth.authenticate(&basic(&format!("admin:{generated}")), "/").await.unwrap();
    assert_eq!((principal.name(), principal.roles()), ("admin", &["admin".to_owned()][..]));
    let hash = store.0.lock()[ADMIN_KEY].clone();
    assert!(hash.starts_with(b"$argon2id$"));

    let (auth, again) = Authenticator::open(&store, None, clock()).await.unwrap();
    assert_eq!(again, None);
    auth.authenticate(&basic(&format!("admin:{generated}")), "/").await.unwrap();

    let (auth, none) = Authenticator::open(&store, Some("chosen"), clock()).await.unwrap();
    assert_eq!(none, None);
    assert_eq!(
        auth.authenticate(&basic(&format!("admin:{generated}")), "/").await.unwrap_err().status(),
        401
    );
    auth.authenticate(&basic("admin:chosen"), "/").await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_is_missing() {
    let (auth, _) = Authenticator::open(&Memory::default(), Some("secret"), clock()).await.unwrap();
    let error = auth.authenticate(&HeaderMap::new(), "/_bulk").await.unwrap_err();
    assert_eq!(error.reason(), "missing authentication credentials for REST request [/_bulk]");
    let response = error.into_response();
    assert_eq!(response.status, 401);
    assert_eq!(response.headers[0].0, "www-authenticate");

    for pair in ["admin:wrong", "root:secret", "admin:", "nocolon"] {
        assert_eq!(auth.authenticate(&basic(pair), "/").await.unwrap_err().status(), 401, "{pair}");
    }
    for value in ["ApiKey abc", "Bearer abc", "Digest abc", "Basic ***"] {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        assert_eq!(auth.authenticate(&headers, "/").await.unwrap_err().status(), 401, "{value}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("token", "abc".parse().unwrap());
    assert!(auth.authenticate(&headers, "/").await.unwrap_err().reason().contains("tokens"));
}

#[tokio::test]
async fn insecure_is_the_administrator() {
    let principal = Authenticator::insecure().authenticate(&HeaderMap::new(), "/").await.unwrap();
    assert_eq!(principal.name(), "admin");
}
