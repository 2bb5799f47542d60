//! Secrets that rules name: documents of a system index, each encrypted with AES-256-GCM under the key of the configuration.
//!
//! A document has the name, the hosts that the secret may be sent to, who stored it, and `sealed`: the nonce and
//! the encrypted text in Base64. The name is authenticated with it, so that one cannot be put in the place of another. Values are
//! answered by nothing.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millrace_engine::{
    DocResult, Engine, Precondition, RefreshPolicy, Session, SystemDocument, SystemDocuments,
};
use millrace_query::SearchService;
use millrace_rules::Time;
use millrace_rules::definition::notification::Secret;
use millrace_runtime::Priority;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Error, Result};

const INDEX: &str = ".alert_secrets";
/// Bytes of a secret.
const MAX_VALUE: usize = 16 << 10;
/// Secrets that there may be.
const MAX_SECRETS: usize = 5_000;
/// Hosts of a secret.
const MAX_HOSTS: usize = 20;

/// A secret as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredSecret {
    #[serde(default)]
    name: String,
    /// Hosts that the secret may be sent to.
    #[serde(default)]
    hosts: Vec<String>,
    /// The user who stored it.
    #[serde(default)]
    by: String,
    #[serde(rename = "@timestamp", default)]
    time: String,
    /// The nonce and the encrypted text in Base64.
    #[serde(default)]
    sealed: String,
}

impl SystemDocument for StoredSecret {
    const INDEX: &'static str = INDEX;

    fn index_body() -> Value {
        let keyword = json!({"type": "keyword"});
        json!({
            "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.hidden": true},
            "mappings": {"dynamic": "strict", "properties": {
                "name": keyword, "hosts": keyword, "by": keyword, "@timestamp": {"type": "date"},
                "sealed": {"type": "keyword", "index": false, "doc_values": false},
            }},
        })
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("texts and lists of texts are JSON"))
    }

    fn decode(_: &str, source: &Bytes) -> Result<Self, String> {
        serde_json::from_slice(source).map_err(|error| error.to_string())
    }
}

/// A secret that was opened.
#[derive(Clone)]
pub(crate) struct DecryptedSecret {
    pub(crate) value: String,
    pub(crate) hosts: Vec<String>,
}

impl fmt::Debug for DecryptedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Keeps secrets.
pub(crate) struct Secrets {
    secrets: SystemDocuments<StoredSecret>,
    session: Session,
    search: Arc<SearchService>,
    key: Option<LessSafeKey>,
    /// Held by who stores one, from counting them to its end.
    storing: tokio::sync::Mutex<()>,
}

impl Secrets {
    pub(crate) fn new(engine: &Arc<Engine>, search: &Arc<SearchService>, key: Option<&[u8; 32]>) -> Self {
        let key = key.and_then(|key| UnboundKey::new(&AES_256_GCM, key).ok()).map(LessSafeKey::new);
        let (secrets, session) = (SystemDocuments::new(engine), Session::system(engine));
        Self { secrets, session, search: Arc::clone(search), key, storing: tokio::sync::Mutex::default() }
    }

    /// Stores a secret; returns whether there was none of the name.
    pub(crate) async fn put(&self, name: &str, value: &str, hosts: Vec<String>, by: &str) -> Result<bool> {
        if !Secret::is_name(name) {
            return Err(Error::invalid(
                "name",
                "has at most 128 letters, digits, -, _ and ., and does not begin with a dot",
            ));
        }
        if value.is_empty() || value.len() > MAX_VALUE || value.chars().any(|c| c.is_control() && c != '\n') {
            return Err(Error::invalid(
                "value",
                format!("has 1 to {MAX_VALUE} bytes, and no control characters"),
            ));
        }
        let is_host = |host: &String| {
            (1..=253).contains(&host.len())
                && host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:[]".contains(c))
        };
        if hosts.len() > MAX_HOSTS || !hosts.iter().all(is_host) {
            return Err(Error::invalid(
                "hosts",
                format!("names at most {MAX_HOSTS} hosts, such as hooks.example.com"),
            ));
        }
        // Who may save a rule could send it to any other, else.
        if hosts.is_empty() {
            return Err(Error::invalid(
                "hosts",
                "is missing: name the hosts that the secret may be sent to, such as [\"hooks.example.com\"]",
            ));
        }
        let sealed = self.seal(name, value)?;
        let _storing = self.storing.lock().await;
        if self.read(name).await?.is_none() && self.count().await? >= MAX_SECRETS {
            return Err(Error::Busy(format!("there are {MAX_SECRETS} secrets already: delete some")));
        }
        let secret = StoredSecret {
            name: name.to_owned(),
            hosts,
            by: by.to_owned(),
            time: Time::from_ms(self.session.clock().now_ms()).iso(),
            sealed,
        };
        let outcome = self.secrets.put(name, &secret, Precondition::Any, RefreshPolicy::Immediate).await?;
        Ok(outcome.result == DocResult::Created)
    }

    /// Opens a secret.
    ///
    /// # Errors
    /// Why it cannot be: in words for who has to mend it.
    pub(crate) async fn open(&self, name: &str) -> Result<DecryptedSecret, String> {
        let found = self.read(name).await.map_err(|error| error.to_string())?;
        let secret = found.ok_or_else(|| {
            format!("there is no secret [{name}]: store it with PUT /api/alert/secret/{name}")
        })?;
        let Some(key) = &self.key else { return Err(Error::NoKey.to_string()) };
        let broken = || {
            format!(
                "secret [{name}] cannot be opened: notifications.secret_key is another one than it was stored with"
            )
        };
        let mut sealed = STANDARD.decode(&secret.sealed).map_err(|_| broken())?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), text).map_err(|_| broken())?;
        let value = String::from_utf8(opened.to_vec()).map_err(|_| broken())?;
        let hosts = secret.hosts.iter().map(|host| host.to_ascii_lowercase());
        Ok(DecryptedSecret { value, hosts: hosts.collect() })
    }

    /// Lists them by name, without what they hide.
    pub(crate) async fn list(&self) -> Result<Vec<Value>> {
        let body = json!({"size": MAX_SECRETS, "sort": ["name"], "_source": {"excludes": ["sealed"]}, "track_total_hits": false});
        let answer = self.search(body).await?;
        let hits = answer["hits"]["hits"].as_array().into_iter().flatten();
        Ok(hits.map(|hit| hit["_source"].clone()).collect())
    }

    /// Counts them.
    async fn count(&self) -> Result<usize> {
        let answer = self.search(json!({"size": 0, "track_total_hits": true})).await?;
        Ok(answer["hits"]["total"]["value"].as_u64().map_or(0, |count| count as usize))
    }

    async fn search(&self, body: Value) -> Result<Value> {
        let answer = self.search.read(&self.session, INDEX, body, Priority::Foreground).await;
        answer.map_err(|error| Error::Internal(error.to_string()))
    }

    /// Removes one; returns whether it was there.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool> {
        if !Secret::is_name(name) || self.read(name).await?.is_none() {
            return Ok(false);
        }
        let outcome = self.secrets.delete(name, Precondition::Any, RefreshPolicy::Immediate).await?;
        Ok(outcome.result == DocResult::Deleted)
    }

    async fn read(&self, name: &str) -> Result<Option<StoredSecret>> {
        match self.secrets.get(name).await? {
            None => Ok(None),
            Some(Ok(secret)) => Ok(Some(secret.document)),
            Some(Err(unreadable)) => {
                Err(Error::Internal(format!("secret [{name}] cannot be read: {}", unreadable.reason)))
            }
        }
    }

    fn seal(&self, name: &str, value: &str) -> Result<String> {
        let key = self.key.as_ref().ok_or(Error::NoKey)?;
        let failed = |_| Error::Internal("encryption failed".to_owned());
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut text = value.as_bytes().to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut text,
        )
        .map_err(failed)?;
        let mut sealed = nonce.to_vec();
        sealed.extend(text);
        Ok(STANDARD.encode(sealed))
    }
}
