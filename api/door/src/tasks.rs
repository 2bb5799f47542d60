//! Requests as tasks of the node: their descriptions, their form in answers, and work that goes on behind an answer.
//!
//! The dispatcher makes a task of each request ([`request_task`]). A handler whose caller does not wait for the end hands its work to
//! [`Api::detach`]: the answer names a task, whose result [`TaskResults`] stores. Each user has a share of these tasks (`permits`).

mod permits;
mod results;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use http::request::Parts;
use millrace_catalog::access::{Action, ActionSet};
use millrace_engine::Session;
use millrace_runtime::tasks::{TaskCancelled, TaskDescription, TaskSnapshot, TaskSpec};
use serde_json::{Map, Value, json};

pub use self::results::TaskResults;
use crate::dispatch::panicked;
use crate::error::Error;
use crate::http::Response;
use crate::node::Api;
use crate::route::{PathParams, Spec};

/// Actions whose tasks show the body of their request. No other body is shown: it may have a password.
const SHOW_SOURCE: ActionSet =
    ActionSet::new(&[Action::Search, Action::MultiSearch, Action::Sql, Action::DeleteByQuery]);

/// Longest body that a description shares; of a longer one it has a copy of the beginning.
const SHARED_BYTES: usize = 4 << 10;

/// Longest `X-Opaque-Id` of a task in bytes; the rest of a longer one is left out.
const MAX_OPAQUE_ID_BYTES: usize = 512;

/// Describes the task of a request.
pub(crate) fn request_task(head: &Parts, route: &Spec, captured: &PathParams, body: &Bytes) -> TaskSpec {
    let indices = captured.find("index").or_else(|| captured.find("expression")).unwrap_or_default();
    let description = match (SHOW_SOURCE.contains(route.action), indices) {
        (true, indices) => {
            let whole = TaskDescription::Request { indices: indices.into(), source: body.clone() };
            // A task may outlive the body's reservation: while an answer is sent, or a deletion goes on for days.
            let is_small = route.reads && body.len() <= SHARED_BYTES;
            if is_small { whole } else { TaskDescription::text(&whole.to_string()) }
        }
        (false, "") => TaskDescription::Empty,
        (false, indices) => TaskDescription::text(&format!("indices[{indices}]")),
    };
    TaskSpec {
        action: route.action.name(),
        description,
        parent: None,
        opaque_id: opaque_id(&head.headers),
        is_cancellable: route.reads,
    }
}

/// Reads the header `X-Opaque-Id`.
pub(crate) fn opaque_id(headers: &HeaderMap) -> Option<Arc<str>> {
    let id = headers.get("x-opaque-id")?.to_str().ok()?;
    Some(Arc::from(&id[..id.floor_char_boundary(MAX_OPAQUE_ID_BYTES)]))
}

/// Renders a task as `_tasks` lists it; its description and progress where `detailed` asks for them.
pub fn task_json(node: &str, task: &TaskSnapshot, detailed: bool) -> Value {
    let mut shown = Map::new();
    shown.insert("node".into(), node.into());
    shown.insert("id".into(), task.id.into());
    shown.insert("type".into(), "transport".into());
    shown.insert("action".into(), task.action.into());
    if detailed {
        // Other texts of progress than JSON are none.
        if let Some(progress) = task.progress.as_deref().and_then(|text| serde_json::from_str(text).ok()) {
            let progress: Value = progress;
            shown.insert("status".into(), progress);
        }
        shown.insert("description".into(), task.description.to_string().into());
    }
    shown.insert("start_time_in_millis".into(), task.started_ms.into());
    let nanos = u64::try_from(task.running.as_nanos()).unwrap_or(u64::MAX);
    shown.insert("running_time_in_nanos".into(), nanos.into());
    shown.insert("cancellable".into(), task.is_cancellable.into());
    shown.insert("cancelled".into(), task.is_cancelled.into());
    if let Some(parent) = task.parent {
        shown.insert("parent_task_id".into(), format!("{node}:{parent}").into());
    }
    let headers = match &task.opaque_id {
        Some(id) => json!({ "X-Opaque-Id": &**id }),
        None => json!({}),
    };
    shown.insert("headers".into(), headers);
    shown.into()
}

impl From<TaskCancelled> for Error {
    fn from(cancelled: TaskCancelled) -> Self {
        Self::new(400, "task_cancelled_exception", cancelled.to_string())
    }
}

impl Api {
    /// Answers with a task that does the work behind the answer. The task's result is stored. `work` gets the session of that task.
    ///
    /// # Errors
    /// 429 where too many tasks run behind their answers, of the user or of all.
    pub fn detach<F, W>(&self, work: F) -> Result<Response, Error>
    where
        F: FnOnce(Session) -> W,
        W: Future<Output = Result<Response, Error>> + Send + 'static,
    {
        let permit = self.task_results.permit(self.session.principal())?;
        let spec = match self.session.task() {
            Some(task) => task.spec().clone(),
            None => TaskSpec::new(self.session.action().name()),
        };
        let task = self.session.tasks().start(TaskSpec { is_cancellable: true, ..spec });
        let answer = json!({ "task": format!("{}:{}", self.identity.cluster_uuid, task.id()) });
        let work = work(self.session.clone().in_task(task.handle()));
        let results = self.task_results.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let ended = AssertUnwindSafe(task.scope(work)).catch_unwind().await;
            let ended = ended.unwrap_or_else(|panic| Err(panicked(&*panic)));
            // Stored before the task ends: at any time the task runs, or its result is there.
            results.store(&task.snapshot(), ended).await;
        });
        Ok(Response::json(200, answer))
    }
}
