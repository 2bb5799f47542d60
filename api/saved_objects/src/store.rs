//! Saved objects in the system index `.console`, a document each.
//!
//! The session here is the server's own and is handed to nobody: what users may do is decided before they get to the
//! [`SavedObjectStore`], which handlers of the console alone are given.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{DocResult, Engine, RefreshPolicy, Session, WriteOp, hidden_index};
use millrace_engine::{DocumentVersion, Precondition, SystemDocument, SystemDocuments};
use millrace_query::{OutcomeBody, SearchService};
use millrace_runtime::Error as StorageError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::object::{Document, Key, StoredObject, Version};
use crate::error::Error;

const INDEX: &str = ".console";

/// Keeps saved objects; cheap to clone.
#[derive(Clone, Debug)]
pub struct SavedObjectStore {
    documents: SystemDocuments<Document>,
    session: Session,
    search: Arc<SearchService>,
}

/// Write of an object.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) key: Key,
    pub(crate) change: Change,
}

/// Change of the object.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Stored where there is none.
    Create(Document),
    /// Stored, replacing any object there.
    Overwrite(Document),
    /// Stored in place of this version.
    Replace(Document, Version),
    /// Removed.
    Delete,
}

impl Change {
    /// Stores a document where there is none, or in place of what is there, which is to have the version that is said.
    pub(super) fn storing(document: Document, overwrite: bool, version: Option<Version>) -> Self {
        match (overwrite, version) {
            (true, Some(version)) => Self::Replace(document, version),
            (true, None) => Self::Overwrite(document),
            (false, _) => Self::Create(document),
        }
    }
}

/// A stored [`Document`], as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Source<'a> {
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

impl SystemDocument for Document {
    const INDEX: &'static str = INDEX;
    const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

    fn index_body() -> Value {
        index_body()
    }

    fn encode(&self) -> Bytes {
        self.text.clone()
    }

    fn decode(_: &str, source: &Bytes) -> Result<Self, String> {
        let read = serde_json::from_slice::<Source<'_>>(source).map_err(|error| error.to_string())?;
        Ok(Self::from_stored(source, read.object.get()))
    }
}

/// The mapping and settings of the index: the fields for searches, sorting and filters.
fn index_body() -> Value {
    let keyword = json!({ "type": "keyword", "ignore_above": 8191 });
    let words = json!({ "type": "text", "fields": { "keyword": keyword } });
    hidden_index(json!({
        "title": words,
        "description": words,
        "object": {
            "properties": {
                "id": keyword,
                "type": keyword,
                "updated_at": { "type": "date" },
                "attributes": { "type": "object", "enabled": false },
                "migrationVersion": { "type": "object", "enabled": false },
                "references": {
                    "type": "nested",
                    "properties": { "id": keyword, "type": keyword, "name": keyword },
                },
            },
        },
    }))
}

impl SavedObjectStore {
    /// Makes the store of an engine.
    pub fn new(engine: &Arc<Engine>, search: &Arc<SearchService>) -> Self {
        let (documents, session) = (SystemDocuments::new(engine), Session::system(engine));
        Self { documents, session, search: Arc::clone(search) }
    }

    /// Returns the time.
    pub(crate) fn now_ms(&self) -> i64 {
        self.session.clock().now_ms()
    }

    /// Reads an object.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn get(&self, key: &Key) -> Result<Option<StoredObject>, Error> {
        match self.documents.get(&key.to_string()).await? {
            None => Ok(None),
            Some(Ok(stored)) => {
                let version = Version::from(stored.version);
                Ok(Some(StoredObject { object: stored.document.object(), version }))
            }
            Some(Err(unreadable)) => {
                Err(Error::concealed(500, "illegal_state_exception", &unreadable.reason))
            }
        }
    }

    /// Changes objects in one request and makes the result visible to searches: one result a change. 409 for what is there
    /// already, or is another version than was said; 404 for a removal of what is not there.
    ///
    /// # Errors
    /// The store's; nothing was changed then.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<Vec<Result<Version, Error>>, Error> {
        let keys: Vec<Key> = writes.iter().map(|write| write.key.clone()).collect();
        let ops = writes.into_iter().map(operation).collect();
        let results = self.documents.write(ops, RefreshPolicy::Immediate).await?;
        let answers = keys.iter().zip(results).map(|(key, result)| match result {
            Ok(outcome) if outcome.result == DocResult::NotFound => Err(key.missing()),
            Ok(outcome) => Ok(Version::from(DocumentVersion::from(&outcome))),
            Err(StorageError::VersionConflict { .. }) => Err(Error::new(
                409,
                "version_conflict_engine_exception",
                format!("Saved object [{}/{}] conflict", key.kind.name(), key.id),
            )),
            Err(error) => Err(error.into()),
        });
        Ok(answers.collect())
    }

    /// Changes one object.
    ///
    /// # Errors
    /// As [`SavedObjectStore::write`], those of the object included.
    pub(crate) async fn write_one(&self, key: Key, change: Change) -> Result<Version, Error> {
        let results = self.write(vec![Write { key, change }]).await?;
        let none = || Error::concealed(500, "illegal_state_exception", &"the store answered no result");
        results.into_iter().next().ok_or_else(none)?
    }

    /// Runs a search over the objects and returns its answer.
    ///
    /// # Errors
    /// Those of the search.
    pub(crate) async fn search(&self, body: Value) -> Result<Bytes, Error> {
        let params = vec![("ignore_unavailable".to_owned(), "true".to_owned())];
        let outcome = self.search.search(&self.session, INDEX, params, Some(body)).await?;
        match outcome.body {
            OutcomeBody::Raw(bytes) => Ok(bytes),
            _ => Err(Error::concealed(500, "illegal_state_exception", &"the search answered no text")),
        }
    }
}

fn operation(Write { key, change }: Write) -> WriteOp {
    let (text, precondition) = match change {
        Change::Create(document) => (document.text, Precondition::Absent),
        Change::Overwrite(document) => (document.text, Precondition::Any),
        Change::Replace(document, version) => (document.text, Precondition::Version(version.into())),
        Change::Delete => {
            return Document::delete_op(&key.to_string(), Precondition::Any);
        }
    };
    Document::put_op(Some(key.to_string()), text, precondition)
}
