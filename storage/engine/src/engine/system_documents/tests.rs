use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    DocumentMirror, DocumentVersion, MirroredDocument, Precondition, SystemDocument, SystemDocuments,
};
use crate::engine::{Action, DocResult, RefreshPolicy, WriteOp, hidden_index};
use crate::{Config, Engine};
use millrace_runtime::{Error, SystemClock};

/// A document of `.notes`.
#[derive(Clone, Debug, PartialEq)]
struct Note {
    id: String,
    text: String,
    version: Option<DocumentVersion>,
}

impl Note {
    fn new(id: &str, text: &str) -> Self {
        Self { id: id.to_owned(), text: text.to_owned(), version: None }
    }
}

impl SystemDocument for Note {
    const INDEX: &'static str = ".notes";

    fn index_body() -> Value {
        hidden_index(json!({"text": {"type": "keyword"}}))
    }

    fn encode(&self) -> Bytes {
        Bytes::from(json!({"text": self.text}).to_string())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let text = document["text"].as_str().ok_or("[text] is missing")?;
        Ok(Self::new(id, text))
    }
}

impl MirroredDocument for Note {
    fn id(&self) -> &str {
        &self.id
    }

    fn version(&self) -> Option<DocumentVersion> {
        self.version
    }

    fn set_version(&mut self, version: DocumentVersion) {
        self.version = Some(version);
    }
}

async fn open(dir: &Path) -> Arc<Engine> {
    let config = Config { data_dir: dir.to_owned(), ..Config::default() };
    Engine::open(config, Arc::new(SystemClock)).await.unwrap()
}

const NOW: RefreshPolicy = RefreshPolicy::Immediate;

#[tokio::test(flavor = "multi_thread")]
async fn writes_replace_the_version_that_they_name_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let notes = SystemDocuments::<Note>::new(&engine);
    assert!(notes.get("a").await.unwrap().is_none(), "there is no index yet");
    assert!(notes.load().await.unwrap().is_empty());

    let first = notes.put("a", &Note::new("a", "one"), Precondition::Absent, NOW).await.unwrap();
    let first = DocumentVersion::from(&first);
    let again = notes.put("a", &Note::new("a", "two"), Precondition::Absent, NOW).await;
    assert!(matches!(again, Err(Error::VersionConflict { .. })), "{again:?}");
    notes.put("a", &Note::new("a", "two"), Precondition::Version(first), NOW).await.unwrap();
    let stale = notes.put("a", &Note::new("a", "three"), Precondition::Version(first), NOW).await;
    assert!(matches!(stale, Err(Error::VersionConflict { .. })), "{stale:?}");
    let stale = notes.delete("a", Precondition::Version(first), NOW).await;
    assert!(matches!(stale, Err(Error::VersionConflict { .. })), "{stale:?}");

    let read = notes.get("a").await.unwrap().unwrap().unwrap();
    assert_eq!((read.document.text.as_str(), read.id.as_str()), ("two", "a"));
    let deleted = notes.delete("a", Precondition::Version(read.version), NOW).await.unwrap();
    assert_eq!(deleted.result, DocResult::Deleted);
    let deleted = notes.delete("a", Precondition::Any, NOW).await.unwrap();
    assert_eq!(deleted.result, DocResult::NotFound);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_has_what_the_index_has_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mirror = DocumentMirror::<Note>::load(&engine).await.unwrap();
    assert!(mirror.is_empty());
    let stored = mirror.put(Note::new("b", "one"), NOW).await.unwrap();
    mirror.put(Note::new("a", "two"), NOW).await.unwrap();
    mirror.put(Note { text: "three".to_owned(), ..Note::clone(&stored) }, NOW).await.unwrap();
    let stale = mirror.put(Note { text: "four".to_owned(), ..Note::clone(&stored) }, NOW).await;
    assert!(matches!(stale, Err(Error::VersionConflict { .. })), "{stale:?}");
    let texts = |mirror: &DocumentMirror<Note>| -> Vec<String> {
        mirror.all().iter().map(|note| note.text.clone()).collect()
    };
    assert_eq!(texts(&mirror), ["two", "three"], "in the order of ids, and as the last write left them");
    assert_eq!(mirror.find(|note| note.text == "three").unwrap().id, "b");
    drop(mirror);
    engine.shutdown().await.unwrap();
    drop(engine);

    let engine = open(dir.path()).await;
    let mirror = DocumentMirror::<Note>::load(&engine).await.unwrap();
    assert_eq!(texts(&mirror), ["two", "three"]);
    // The version that was read is the one that a write replaces.
    let read = mirror.get("a").unwrap();
    assert!(mirror.delete("a", read.version, NOW).await.unwrap());
    assert!(!mirror.delete("a", None, NOW).await.unwrap());
    assert_eq!(mirror.len(), 1);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_document_is_reported_until_it_is_mended_replaced_or_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let notes = SystemDocuments::<Note>::new(&engine);
    let ops = ["a", "b", "c", "d"].map(|id| {
        WriteOp::new(Note::INDEX, Some(id.to_owned()), Action::Index(Bytes::from_static(b"{\"other\":1}")))
    });
    notes.write(ops.into(), NOW).await.unwrap();
    let mirror = DocumentMirror::<Note>::load(&engine).await.unwrap();
    let unreadable: Vec<String> = mirror.unreadable().into_iter().map(|document| document.id).collect();
    assert_eq!((unreadable.as_slice(), mirror.len()), (&["a", "b", "c", "d"].map(String::from)[..], 0));
    assert_eq!(mirror.unreadable()[0].reason, "[text] is missing");

    // Another writer mends one and deletes one.
    notes.put("a", &Note::new("a", "mended"), Precondition::Any, NOW).await.unwrap();
    notes.delete("b", Precondition::Any, NOW).await.unwrap();
    let mended = mirror.reread_unreadable().await.unwrap();
    assert_eq!(mended.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), ["mended"]);
    assert!(mended[0].version.is_some());
    let version = mirror.unreadable_version("c");
    mirror.put(Note { version, ..Note::new("c", "replaced") }, NOW).await.unwrap();
    assert!(mirror.delete("d", mirror.unreadable_version("d"), NOW).await.unwrap());
    assert!(mirror.unreadable().is_empty());
    assert_eq!(mirror.len(), 2);
    engine.shutdown().await.unwrap();
}
