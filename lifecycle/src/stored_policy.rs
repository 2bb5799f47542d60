//! Policies of indices as documents.

use std::sync::Arc;

use bytes::Bytes;
use millrace_engine::{DocumentVersion, MirroredDocument, SystemDocument, hidden_index};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::policy::IndexPolicy;

/// Name of the index of these documents.
pub const INDEX_POLICIES: &str = ".index_policies";

/// A policy with what belongs to it.
#[derive(Clone, Debug)]
pub struct StoredPolicy {
    /// Id.
    pub id: String,
    /// The policy.
    pub policy: Arc<IndexPolicy>,
    /// Counts the changes, from 1.
    pub revision: u64,
    /// Body of `_ilm/policy` that it was read from, if it was.
    pub ilm: Option<Value>,
    version: Option<DocumentVersion>,
}

impl StoredPolicy {
    /// Makes a policy that replaces `before`.
    pub fn new(id: &str, policy: IndexPolicy, ilm: Option<Value>, before: Option<&Self>) -> Self {
        Self {
            id: id.to_owned(),
            policy: Arc::new(policy),
            revision: before.map_or(1, |before| before.revision + 1),
            ilm,
            version: before.and_then(|before| before.version),
        }
    }

    /// Returns the sequence number and the primary term of the document.
    pub fn document_version(&self) -> (u64, u64) {
        self.version.map_or((0, 1), |version| (version.seq_no, version.primary_term))
    }
}

#[derive(Serialize, Deserialize)]
struct PolicyDocument {
    policy: Value,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ilm: Option<Value>,
}

impl SystemDocument for StoredPolicy {
    const INDEX: &'static str = INDEX_POLICIES;

    fn index_body() -> Value {
        hidden_index(json!({ "revision": { "type": "long" } }))
    }

    fn encode(&self) -> Bytes {
        let document = PolicyDocument {
            policy: self.policy.body.clone(),
            revision: self.revision,
            ilm: self.ilm.clone(),
        };
        Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let document: PolicyDocument = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let policy = IndexPolicy::from_stored(&document.policy).map_err(|error| error.to_string())?;
        Ok(Self {
            id: id.to_owned(),
            policy: Arc::new(policy),
            revision: document.revision,
            ilm: document.ilm,
            version: None,
        })
    }
}

impl MirroredDocument for StoredPolicy {
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
