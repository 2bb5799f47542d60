//! Secrets that rules name: documents of a system index, each encrypted with AES-256-GCM under the key of the configuration.
//!
//! A document has the name, the hosts that the secret may be sent to, who stored it, and `sealed`: the nonce and
//! the encrypted text in Base64. The name is authenticated with it, so that one cannot be put in the place of another. Values are
//! answered by nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millrace_engine::{Action, DocResult, Engine, RefreshPolicy, Session, WriteOp};
use millrace_query::SearchService;
use millrace_rules::Time;
use millrace_rules::definition::notification::Secret;
use millrace_runtime::{Error as StorageError, Priority};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The index.
const INDEX: &str = ".alert_secrets";
/// Bytes of a secret.
const MAX_VALUE: usize = 16 << 10;
/// Secrets that there may be.
const MAX_SECRETS: usize = 5_000;
/// Hosts of a secret.
const MAX_HOSTS: usize = 20;
/// How long a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(10);

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
    engine: Arc<Engine>,
    session: Session,
    search: Arc<SearchService>,
    key: Option<LessSafeKey>,
    /// Held by who stores one, from counting them to its end.
    storing: tokio::sync::Mutex<()>,
}

impl Secrets {
    pub(crate) fn new(engine: &Arc<Engine>, search: &Arc<SearchService>, key: Option<&[u8; 32]>) -> Self {
        let key = key.and_then(|key| UnboundKey::new(&AES_256_GCM, key).ok()).map(LessSafeKey::new);
        let (engine, session, search) = (Arc::clone(engine), Session::system(engine), Arc::clone(search));
        Self { engine, session, search, key, storing: tokio::sync::Mutex::default() }
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
        if self.open_document(name).await?.is_none() && self.count().await? >= MAX_SECRETS {
            return Err(Error::Busy(format!("there are {MAX_SECRETS} secrets already: delete some")));
        }
        let document = json!({
            "name": name,
            "hosts": hosts,
            "by": by,
            "@timestamp": Time::from_ms(self.engine.clock().now_ms()).iso(),
            "sealed": sealed,
        });
        let result = self.write(name, Action::Index(Bytes::from(document.to_string()))).await?;
        Ok(result == DocResult::Created)
    }

    /// Opens a secret.
    ///
    /// # Errors
    /// Why it cannot be: in words for who has to mend it.
    pub(crate) async fn open(&self, name: &str) -> Result<DecryptedSecret, String> {
        let found = self.open_document(name).await.map_err(|error| error.to_string())?;
        let document = found.ok_or_else(|| {
            format!("there is no secret [{name}]: store it with PUT /api/alert/secret/{name}")
        })?;
        let Some(key) = &self.key else { return Err(Error::NoKey.to_string()) };
        let broken = || {
            format!(
                "secret [{name}] cannot be opened: notifications.secret_key is another one than it was stored with"
            )
        };
        let mut sealed =
            STANDARD.decode(document["sealed"].as_str().unwrap_or_default()).map_err(|_| broken())?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), text).map_err(|_| broken())?;
        let value = String::from_utf8(opened.to_vec()).map_err(|_| broken())?;
        let hosts = document["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(DecryptedSecret { value, hosts: hosts.map(str::to_ascii_lowercase).collect() })
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
        if !Secret::is_name(name) || self.open_document(name).await?.is_none() {
            return Ok(false);
        }
        Ok(self.write(name, Action::Delete).await? == DocResult::Deleted)
    }

    async fn open_document(&self, name: &str) -> Result<Option<Value>> {
        match self.session.get(INDEX, name, None, true).await {
            Err(StorageError::IndexNotFound { .. }) | Ok(None) => Ok(None),
            Ok(Some(found)) => {
                let read = serde_json::from_slice(&found.source);
                read.map(Some)
                    .map_err(|error| Error::Internal(format!("secret [{name}] cannot be read: {error}")))
            }
            Err(error) => Err(error.into()),
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

    async fn write(&self, name: &str, action: Action) -> Result<DocResult> {
        let keyword = json!({"type": "keyword"});
        let body = json!({
            "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.hidden": true},
            "mappings": {"dynamic": "strict", "properties": {
                "name": keyword, "hosts": keyword, "by": keyword, "@timestamp": {"type": "date"},
                "sealed": {"type": "keyword", "index": false, "doc_values": false},
            }},
        });
        self.engine.make_own_index(INDEX, &body).await?;
        let op = WriteOp::new(INDEX, Some(name.to_owned()), action);
        Ok(self.session.write_one(op, RefreshPolicy::Immediate, TIMEOUT).await?.result)
    }
}
