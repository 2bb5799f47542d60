//! Typed documents of a system index.
//!
//! - [`SystemDocument`] of the catalog: a type of documents, with the name, settings and mapping of its index
//! - [`SystemDocuments`]: its store: load, get, put and delete, each under a [`Precondition`]
//! - [`DocumentMirror`]: the same with all documents in memory, for types of which there are few
//!
//! Rules, AI rules, secrets, saved objects, predictions and dead letters are stored by it. The index is made before the first write.
//! A write that returns without an error is durable. A document that cannot be decoded stays in the index, and is reported as an
//! [`UnreadableDocument`]: it may be of a later version, or somebody may mend it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::operation::{DocResult, RefreshPolicy, WriteOp, WriteOutcome};
use millrace_catalog::system_document::{DocumentVersion, Precondition, SystemDocument};
use millrace_runtime::{Error, Result};
use parking_lot::RwLock;

use super::Engine;

/// A document that knows its id and version, for a [`DocumentMirror`].
pub trait MirroredDocument: SystemDocument {
    /// Returns the id.
    fn id(&self) -> &str;

    /// Returns the stored version that this document is, or replaces; `None` for a document that is not stored yet.
    fn version(&self) -> Option<DocumentVersion>;

    /// Sets the stored version.
    fn set_version(&mut self, version: DocumentVersion);
}

/// A decoded document with its id and version.
#[derive(Clone, Debug)]
pub struct VersionedDocument<T> {
    /// Id.
    pub id: String,
    /// Document.
    pub document: T,
    /// Version.
    pub version: DocumentVersion,
}

/// A document of the index that is none of its type.
#[derive(Clone, Debug)]
pub struct UnreadableDocument {
    /// Id.
    pub id: String,
    /// Why it cannot be decoded.
    pub reason: String,
    /// Version.
    pub version: DocumentVersion,
}

type Decoded<T> = Result<VersionedDocument<T>, UnreadableDocument>;

/// The documents of a system index.
pub struct SystemDocuments<T> {
    engine: Arc<Engine>,
    principal: Arc<Principal>,
    document: PhantomData<fn() -> T>,
}

impl<T> Clone for SystemDocuments<T> {
    fn clone(&self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            principal: Arc::clone(&self.principal),
            document: PhantomData,
        }
    }
}

impl<T: SystemDocument> fmt::Debug for SystemDocuments<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemDocuments").field("index", &T::INDEX).finish_non_exhaustive()
    }
}

impl<T: SystemDocument> SystemDocuments<T> {
    /// Makes the store of documents that the server itself writes.
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self::with_principal(engine, Principal::system())
    }

    /// Makes the store of documents that are written as a principal, such as that of rules.
    pub fn with_principal(engine: &Arc<Engine>, principal: Principal) -> Self {
        Self { engine: Arc::clone(engine), principal: Arc::new(principal), document: PhantomData }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Makes the index where it is missing; returns whether it was.
    ///
    /// # Errors
    /// As [`Engine::make_own_index`].
    pub async fn ensure_index(&self) -> Result<bool> {
        if self.engine.metadata().index(T::INDEX).is_some() {
            return Ok(false);
        }
        self.engine.make_own_index(T::INDEX, &T::index_body()).await
    }

    /// Reads all documents, in the order in which they were written; those that a snapshot brought are among them.
    ///
    /// # Errors
    /// As [`Engine::read_back`].
    pub async fn load(&self) -> Result<Vec<Decoded<T>>> {
        let mut documents = Vec::new();
        let Ok(index) = self.engine.index(T::INDEX) else { return Ok(documents) };
        let mut frames = self.engine.read_back_stored(&index).await?;
        while let Some(frame) = frames.next().await? {
            for part in &frame.parts {
                for (seq_no, op) in (part.first_seq_no..).zip(&part.ops) {
                    let Some(source) = &op.source else { continue };
                    let version = DocumentVersion { seq_no, primary_term: part.primary_term };
                    documents.push(decode(String::from_utf8_lossy(&op.id).into_owned(), source, version));
                }
            }
        }
        Ok(documents)
    }

    /// Reads a document, also one that is not visible to searches yet. `None`: there is no such document, or no index.
    ///
    /// # Errors
    /// As [`Engine::get`].
    pub async fn get(&self, id: &str) -> Result<Option<Decoded<T>>> {
        match self.engine.get(&self.principal, T::INDEX, id, None, true).await {
            Err(Error::IndexNotFound { .. }) => Ok(None),
            stored => Ok(stored?.map(|stored| {
                let version = DocumentVersion { seq_no: stored.seq_no, primary_term: stored.primary_term };
                decode(stored.id, &stored.source, version)
            })),
        }
    }

    /// Stores a document.
    ///
    /// # Errors
    /// [`Error::VersionConflict`] where the condition fails; as [`Engine::write`]. Nothing has changed then.
    pub async fn put(
        &self,
        id: &str,
        document: &T,
        precondition: Precondition,
        refresh: RefreshPolicy,
    ) -> Result<WriteOutcome> {
        let op = T::put_op(Some(id.to_owned()), document.encode(), precondition);
        self.write_one(op, refresh).await
    }

    /// Deletes a document; [`DocResult::NotFound`] where there is none.
    ///
    /// # Errors
    /// As [`SystemDocuments::put`].
    pub async fn delete(
        &self,
        id: &str,
        precondition: Precondition,
        refresh: RefreshPolicy,
    ) -> Result<WriteOutcome> {
        self.write_one(T::delete_op(id, precondition), refresh).await
    }

    /// Executes operations on documents in one request: one result an operation.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub async fn write(
        &self,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
    ) -> Result<Vec<Result<WriteOutcome>>> {
        self.ensure_index().await?;
        self.engine.write(&self.principal, ops, refresh, T::WRITE_TIMEOUT).await
    }

    async fn write_one(&self, op: WriteOp, refresh: RefreshPolicy) -> Result<WriteOutcome> {
        let outcome = self.write(vec![op], refresh).await?.pop();
        outcome.unwrap_or_else(|| Err(Error::Internal("the store answered no result".to_owned())))
    }
}

fn decode<T: SystemDocument>(id: String, source: &Bytes, version: DocumentVersion) -> Decoded<T> {
    match T::decode(&id, source) {
        Ok(document) => Ok(VersionedDocument { id, document, version }),
        Err(reason) => Err(UnreadableDocument { id, reason, version }),
    }
}

/// The documents of a system index with a copy of each in memory.
///
/// A write reaches the index first, as the replacement of the version in memory. So both are the same whatever happens between.
/// Whoever bounds the number of documents does so before [`DocumentMirror::put`].
pub struct DocumentMirror<T> {
    store: SystemDocuments<T>,
    documents: RwLock<BTreeMap<String, Arc<T>>>,
    /// Documents that cannot be decoded, by id.
    unreadable: RwLock<BTreeMap<String, UnreadableDocument>>,
}

impl<T: MirroredDocument> fmt::Debug for DocumentMirror<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let documents = self.documents.read().len();
        f.debug_struct("DocumentMirror").field("index", &T::INDEX).field("documents", &documents).finish()
    }
}

impl<T: MirroredDocument> DocumentMirror<T> {
    /// Reads all documents.
    ///
    /// # Errors
    /// As [`SystemDocuments::load`].
    pub async fn load(engine: &Arc<Engine>) -> Result<Self> {
        let store = SystemDocuments::new(engine);
        let mirror = Self { store, documents: RwLock::default(), unreadable: RwLock::default() };
        for decoded in mirror.store.load().await? {
            mirror.insert(decoded);
        }
        Ok(mirror)
    }

    /// Takes a document as the index has it; returns it if it is readable.
    fn insert(&self, decoded: Decoded<T>) -> Option<Arc<T>> {
        match decoded {
            Ok(VersionedDocument { id, mut document, version }) => {
                document.set_version(version);
                let document = Arc::new(document);
                self.unreadable.write().remove(&id);
                self.documents.write().insert(id, Arc::clone(&document));
                Some(document)
            }
            Err(unreadable) => {
                self.unreadable.write().insert(unreadable.id.clone(), unreadable);
                None
            }
        }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.store.engine()
    }

    /// Takes over the documents of a mirror that was loaded later, as once a restore has replaced the index.
    pub fn replace(&self, newer: Self) {
        *self.documents.write() = newer.documents.into_inner();
        *self.unreadable.write() = newer.unreadable.into_inner();
    }

    /// Returns all documents, in the order of their ids.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.documents.read().values().cloned().collect()
    }

    /// Returns the documents that a predicate holds for, in the order of their ids.
    pub fn filter(&self, predicate: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        self.documents.read().values().filter(|document| predicate(document)).cloned().collect()
    }

    /// Returns the first document that a predicate holds for.
    pub fn find(&self, predicate: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.documents.read().values().find(|document| predicate(document)).cloned()
    }

    /// Returns a document.
    pub fn get(&self, id: &str) -> Option<Arc<T>> {
        self.documents.read().get(id).cloned()
    }

    /// Counts the documents.
    pub fn len(&self) -> usize {
        self.documents.read().len()
    }

    /// Checks that there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents.read().is_empty()
    }

    /// Returns the documents that cannot be decoded.
    pub fn unreadable(&self) -> Vec<UnreadableDocument> {
        self.unreadable.read().values().cloned().collect()
    }

    /// Returns the version of a document that cannot be decoded. A document with this version replaces it.
    pub fn unreadable_version(&self, id: &str) -> Option<DocumentVersion> {
        self.unreadable.read().get(id).map(|unreadable| unreadable.version)
    }

    /// Reads the unreadable documents again, as somebody may have mended or deleted them; returns those that are readable now.
    ///
    /// # Errors
    /// As [`SystemDocuments::get`].
    pub async fn reread_unreadable(&self) -> Result<Vec<Arc<T>>> {
        let ids: Vec<String> = self.unreadable.read().keys().cloned().collect();
        let mut mended = Vec::new();
        for id in ids {
            match self.store.get(&id).await? {
                Some(decoded) => mended.extend(self.insert(decoded)),
                None => drop(self.unreadable.write().remove(&id)),
            }
        }
        Ok(mended)
    }

    /// Stores a document in place of its version; one without a version where there is none with its id.
    ///
    /// # Errors
    /// As [`SystemDocuments::put`].
    pub async fn put(&self, document: T, refresh: RefreshPolicy) -> Result<Arc<T>> {
        let precondition = document.version().map_or(Precondition::Absent, Precondition::Version);
        let id = document.id().to_owned();
        let outcome = self.store.put(&id, &document, precondition, refresh).await?;
        let version = DocumentVersion::from(&outcome);
        let mut document = document;
        document.set_version(version);
        let document = Arc::new(document);
        self.unreadable.write().remove(&id);
        self.documents.write().insert(id, Arc::clone(&document));
        Ok(document)
    }

    /// Deletes a document of a version, readable or not; returns whether the index had it.
    ///
    /// # Errors
    /// As [`SystemDocuments::put`].
    pub async fn delete(
        &self,
        id: &str,
        version: Option<DocumentVersion>,
        refresh: RefreshPolicy,
    ) -> Result<bool> {
        let precondition = version.map_or(Precondition::Any, Precondition::Version);
        let outcome = self.store.delete(id, precondition, refresh).await?;
        self.documents.write().remove(id);
        self.unreadable.write().remove(id);
        Ok(outcome.result != DocResult::NotFound)
    }
}

#[cfg(test)]
mod tests;
