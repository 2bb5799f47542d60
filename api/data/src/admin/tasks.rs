//! `_tasks`: the tasks that run now, the result of one that has ended, and cancellation.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use millrace_catalog::access::Action;
use millrace_gateway::task_json;
use millrace_mapping::pattern::matches;
use millrace_runtime::tasks::{CancelOutcome, TaskSnapshot};
use serde_json::{Map, Value, json};

use super::{node, options};
use crate::Api;
use crate::error::Error;
use crate::http::{Params, Request, Response};

/// Longest wait for tasks where a request does not say.
const WAIT: Duration = Duration::from_secs(30);
/// Longest wait for tasks that a request may ask for.
const MAX_WAIT: Duration = Duration::from_secs(3_600);
/// Reason of cancellations that callers ask for.
const REASON: &str = "by user request";

/// Filter of tasks, as parameters have it.
#[derive(Debug, Default)]
pub(super) struct TaskFilter {
    nodes: Option<String>,
    actions: Vec<String>,
    parent: Option<TaskId>,
}

/// Id of a task: its node and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TaskId {
    node: String,
    number: u64,
}

impl TaskId {
    /// Reads an id such as `node:12`.
    fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || {
            let shown: String = text.chars().take(100).collect();
            Error::illegal_argument(format!("malformed task id {shown}"))
        };
        let (node, number) = text.rsplit_once(':').ok_or_else(malformed)?;
        let number = number.parse().map_err(|_| malformed())?;
        if node.is_empty() { Err(malformed()) } else { Ok(Self { node: node.to_owned(), number }) }
    }

    /// Returns whether the task may run on this node.
    fn is_local(&self, api: &Api) -> bool {
        self.node == node::id(api)
    }
}

impl TaskFilter {
    /// Takes `nodes` (or `node_id`), `actions` and `parent_task_id`.
    pub(super) fn take(params: &mut Params) -> Result<Self, Error> {
        let nodes = params.take("nodes").or_else(|| params.take("node_id"));
        let actions = params.take("actions").unwrap_or_default();
        let actions = actions.split(',').filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect();
        let parent = params.take("parent_task_id").filter(|text| !text.is_empty());
        Ok(Self { nodes, actions, parent: parent.as_deref().map(TaskId::parse).transpose()? })
    }

    /// Lists the tasks that fit, in the order of their numbers.
    pub(super) fn list(&self, api: &Api) -> Vec<TaskSnapshot> {
        if !self.nodes.as_deref().is_none_or(|nodes| node::selected(api, nodes)) {
            return Vec::new();
        }
        let mut tasks = api.session.tasks().list();
        tasks.retain(|task| self.fits(api, task));
        tasks
    }

    fn fits(&self, api: &Api, task: &TaskSnapshot) -> bool {
        let is_named = self.actions.is_empty() || self.actions.iter().any(|name| matches(name, task.action));
        let is_child = |parent: &TaskId| parent.is_local(api) && task.parent == Some(parent.number);
        is_named && self.parent.as_ref().is_none_or(is_child)
    }
}

/// Grouping of a list of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grouping {
    Nodes,
    Parents,
    None,
}

impl Grouping {
    fn take(params: &mut Params) -> Result<Self, Error> {
        match params.take("group_by").as_deref() {
            None | Some("nodes") => Ok(Self::Nodes),
            Some("parents") => Ok(Self::Parents),
            Some("none") => Ok(Self::None),
            Some(other) => Err(Error::illegal_argument(format!(
                "[group_by] must be one of [nodes, parents, none] but was [{other}]"
            ))),
        }
    }

    /// Renders tasks in this grouping.
    fn render(self, api: &Api, tasks: &[TaskSnapshot], detailed: bool) -> Map<String, Value> {
        let shown = |task: &TaskSnapshot| task_json(node::id(api), task, detailed);
        let mut answer = Map::new();
        match self {
            Self::Nodes => {
                let mut nodes = Map::new();
                if !tasks.is_empty() {
                    let mut of_node = node::face(api);
                    let listed: Map<String, Value> =
                        tasks.iter().map(|task| (id_text(api, task.id), shown(task))).collect();
                    of_node["tasks"] = listed.into();
                    nodes.insert(node::id(api).to_owned(), of_node);
                }
                answer.insert("nodes".into(), nodes.into());
            }
            Self::Parents => {
                answer.insert("tasks".into(), nested(api, tasks, &shown).into());
            }
            Self::None => {
                answer.insert("tasks".into(), tasks.iter().map(shown).collect());
            }
        }
        answer
    }
}

/// Puts children below their parents; a task whose parent is not listed stands at the top.
fn nested(api: &Api, tasks: &[TaskSnapshot], shown: &dyn Fn(&TaskSnapshot) -> Value) -> Map<String, Value> {
    let mut rendered: BTreeMap<u64, Value> = tasks.iter().map(|task| (task.id, shown(task))).collect();
    let parents: HashMap<u64, u64> = tasks.iter().filter_map(|task| Some((task.id, task.parent?))).collect();
    // Children are younger than their parents: a task has all of its own before it goes below its parent.
    for id in tasks.iter().rev().map(|task| task.id) {
        let Some(parent) = parents.get(&id).filter(|parent| rendered.contains_key(parent)) else { continue };
        let Some(child) = rendered.remove(&id) else { continue };
        if let Some(Value::Object(members)) = rendered.get_mut(parent) {
            let children = members.entry("children").or_insert_with(|| json!([]));
            if let Value::Array(children) = children {
                children.insert(0, child);
            }
        }
    }
    rendered.into_iter().map(|(id, task)| (id_text(api, id), task)).collect()
}

/// Returns the whole id of a task of this node.
pub(super) fn id_text(api: &Api, number: u64) -> String {
    format!("{}:{number}", node::id(api))
}

/// Takes `timeout`, the longest wait for tasks.
fn take_timeout(params: &mut Params) -> Result<Duration, Error> {
    Ok(params.take_time("timeout")?.unwrap_or(WAIT).min(MAX_WAIT))
}

/// `GET /_tasks`
pub(crate) async fn list(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let filter = TaskFilter::take(&mut request.params)?;
    let grouping = Grouping::take(&mut request.params)?;
    let detailed = options::flag(&mut request.params, "detailed")?;
    let waits = options::flag(&mut request.params, "wait_for_completion")?;
    let timeout = take_timeout(&mut request.params)?;
    request.finish()?;
    if waits {
        wait_for_all(api, &filter, timeout).await;
    }
    let tasks = filter.list(api);
    Ok(Response::json(200, grouping.render(api, &tasks, detailed).into()))
}

/// Waits until the tasks of now that fit have ended, but for listings.
async fn wait_for_all(api: &Api, filter: &TaskFilter, timeout: Duration) {
    // Two listings that wait for each other would never end.
    let is_listing = |task: &TaskSnapshot| task.action == Action::Tasks.name();
    let waited = async {
        for task in filter.list(api).into_iter().filter(|task| !is_listing(task)) {
            if let Some(task) = api.session.tasks().get(task.id) {
                task.ended().await;
            }
        }
    };
    // The list that follows shows what still runs.
    let _ = tokio::time::timeout(timeout, waited).await;
}

/// `GET /_tasks/<id>`
pub(crate) async fn get(api: &Api, request: &mut Request, id: &str) -> Result<Response, Error> {
    let waits = options::flag(&mut request.params, "wait_for_completion")?;
    let timeout = take_timeout(&mut request.params)?;
    request.finish()?;
    let parsed = TaskId::parse(id)?;
    let running = || parsed.is_local(api).then(|| api.session.tasks().get(parsed.number)).flatten();
    if let Some(task) = running().filter(|_| waits)
        && tokio::time::timeout(timeout, task.ended()).await.is_err()
    {
        return Err(Error::new(
            408,
            "timeout_exception",
            format!("Timed out waiting for completion of task [{id}]"),
        ));
    }
    if let Some(task) = running() {
        let task = task_json(node::id(api), &task.snapshot(), true);
        return Ok(Response::json(200, json!({ "completed": false, "task": task })));
    }
    match api.task_results.get(id).await? {
        Some(result) => Ok(Response::json(200, result)),
        None if parsed.is_local(api) => {
            Err(Error::resource_not_found(format!("task [{id}] isn't running and hasn't stored its results")))
        }
        None => Err(Error::resource_not_found(format!(
            "task [{id}] belongs to the node [{}] which isn't part of the cluster and there is no record of the task",
            parsed.node
        ))),
    }
}

/// `POST /_tasks/_cancel` and `POST /_tasks/<id>/_cancel`
pub(crate) async fn cancel(api: &Api, request: &mut Request, id: Option<&str>) -> Result<Response, Error> {
    let filter = TaskFilter::take(&mut request.params)?;
    let grouping = Grouping::take(&mut request.params)?;
    let waits = options::flag(&mut request.params, "wait_for_completion")?;
    let timeout = take_timeout(&mut request.params)?;
    request.finish()?;
    let tasks = api.session.tasks();
    let mut failures = Vec::new();
    let wanted: Vec<u64> = match id {
        None => filter.list(api).into_iter().filter(|task| task.is_cancellable).map(|task| task.id).collect(),
        Some(text) => {
            let parsed = TaskId::parse(text)?;
            if !parsed.is_local(api) {
                let reason = format!(
                    "task [{text}] belongs to the node [{}] which isn't part of the cluster and there is no record of the task",
                    parsed.node
                );
                return Err(Error::resource_not_found(reason));
            }
            vec![parsed.number]
        }
    };
    let (mut cancelled, mut handles) = (Vec::new(), Vec::new());
    let found: Vec<_> = wanted.iter().map(|number| tasks.get(*number)).collect();
    for (task, outcome) in found.into_iter().zip(tasks.cancel_all(&wanted, REASON)) {
        match (outcome, id) {
            (CancelOutcome::Cancelled, _) => {
                cancelled.extend(task.as_ref().map(|task| task.snapshot()));
                handles.extend(task);
            }
            (CancelOutcome::NotCancellable, Some(id)) => failures.push(failure(
                api,
                "illegal_argument_exception",
                format!("task [{id}] doesn't support cancellation"),
            )),
            (CancelOutcome::NotFound, Some(id)) => {
                failures.push(failure(
                    api,
                    "resource_not_found_exception",
                    format!("task [{id}] is not found"),
                ));
            }
            // It has ended between the listing and the cancellation.
            (_, None) => {}
        }
    }
    if waits {
        let ended = futures::future::join_all(handles.iter().map(|task| task.ended()));
        let _ = tokio::time::timeout(timeout, ended).await;
    }
    let mut answer = Map::new();
    if !failures.is_empty() {
        answer.insert("node_failures".into(), failures.into());
    }
    answer.extend(grouping.render(api, &cancelled, false));
    Ok(Response::json(200, answer.into()))
}

/// Tells why this node cancels nothing, as answers of several nodes do.
fn failure(api: &Api, kind: &str, reason: String) -> Value {
    let id = node::id(api);
    json!({
        "type": "failed_node_exception",
        "reason": format!("Failed node [{id}]"),
        "node_id": id,
        "caused_by": { "type": kind, "reason": reason },
    })
}
