//! Results of tasks whose callers do not wait, as documents of the system index `.tasks`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Engine, Precondition, RefreshPolicy, SystemDocument, SystemDocuments, hidden_index};
use millrace_runtime::tasks::TaskSnapshot;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::permits::{DetachedPermit, DetachedPermits};
use super::task_json;
use crate::error::Error;
use crate::http::{Body, Response};

/// Results that are stored; the oldest one makes room for one more.
const MAX_RESULTS: usize = 1_000;

/// The result of a task, in the form that `GET /_tasks/<id>` answers.
#[derive(Clone, Debug)]
struct TaskResult(Value);

impl SystemDocument for TaskResult {
    const INDEX: &'static str = ".tasks";

    fn index_body() -> Value {
        hidden_index(json!({
            "completed": { "type": "boolean" },
            "task": { "properties": {
                "action": { "type": "keyword" },
                "cancellable": { "type": "boolean" },
                "cancelled": { "type": "boolean" },
                "description": { "type": "text" },
                "id": { "type": "long" },
                "node": { "type": "keyword" },
                "parent_task_id": { "type": "keyword" },
                "running_time_in_nanos": { "type": "long" },
                "start_time_in_millis": { "type": "long" },
                "type": { "type": "keyword" },
            } },
        }))
    }

    fn encode(&self) -> Bytes {
        self.0.to_string().into()
    }

    fn decode(_: &str, source: &Bytes) -> Result<Self, String> {
        serde_json::from_slice(source).map(Self).map_err(|error| error.to_string())
    }
}

/// The stored results of tasks. Cheap to clone: clones are the same.
#[derive(Clone, Debug)]
pub struct TaskResults(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    documents: SystemDocuments<TaskResult>,
    node: String,
    permits: DetachedPermits,
    /// Ids of the stored results, the oldest first; `None` before they are read.
    stored: Mutex<Option<VecDeque<String>>>,
}

impl TaskResults {
    /// Makes the results of a node's tasks.
    pub(crate) fn new(engine: &Arc<Engine>, node: &str) -> Self {
        Self(Arc::new(Inner {
            documents: SystemDocuments::new(engine),
            node: node.to_owned(),
            permits: DetachedPermits::default(),
            stored: Mutex::default(),
        }))
    }

    /// Takes the permit of a detached task.
    ///
    /// # Errors
    /// 429 where the user, or all users together, have as many as there may be.
    pub(super) fn permit(&self, principal: &Principal) -> Result<DetachedPermit, Error> {
        self.0.permits.acquire(principal)
    }

    /// Reads the result of a task by the whole id of the task. `None`: there is none.
    ///
    /// # Errors
    /// The store fails.
    pub async fn get(&self, id: &str) -> Result<Option<Value>, Error> {
        match self.0.documents.get(id).await? {
            Some(Ok(stored)) => Ok(Some(stored.document.0)),
            Some(Err(unreadable)) => {
                Err(Error::concealed(500, "illegal_state_exception", &unreadable.reason))
            }
            None => Ok(None),
        }
    }

    /// Stores the result of a task, before the task ends; the log tells of a failure.
    pub async fn store(&self, task: &TaskSnapshot, ended: Result<Response, Error>) {
        let mut result = json!({ "completed": true, "task": task_json(&self.0.node, task, true) });
        match ended.map(|response| response.body) {
            Ok(Body::Json(answer)) => result["response"] = answer,
            Ok(Body::RawJson(text) | Body::HeldJson(text)) => {
                result["response"] = serde_json::from_slice(&text).unwrap_or_default();
            }
            Ok(_) => result["response"] = json!({}),
            Err(error) => result["error"] = error.exception(false),
        }
        let id = format!("{}:{}", self.0.node, task.id);
        if let Err(error) = self.put(id.clone(), TaskResult(result)).await {
            tracing::error!(task = id, %error, "the result of a task cannot be stored");
        }
    }

    async fn put(&self, id: String, result: TaskResult) -> millrace_runtime::Result<()> {
        let Inner { documents, stored, .. } = &*self.0;
        let mut stored = stored.lock().await;
        let ids = match &mut *stored {
            Some(ids) => ids,
            unread => {
                let read = documents.load().await?.into_iter();
                unread.insert(read.map(|decoded| decoded.map_or_else(|bad| bad.id, |good| good.id)).collect())
            }
        };
        documents.put(&id, &result, Precondition::Any, RefreshPolicy::None).await?;
        ids.push_back(id);
        while ids.len() > MAX_RESULTS
            && let Some(oldest) = ids.pop_front()
        {
            documents.delete(&oldest, Precondition::Any, RefreshPolicy::None).await?;
        }
        Ok(())
    }
}
