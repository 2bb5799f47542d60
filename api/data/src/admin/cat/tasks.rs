//! `_cat/tasks`.

use super::super::tasks::{TaskFilter, id_text};
use super::super::{node, options};
use super::table::{Cell, Column, Format, Table, column};
use super::time_of_day;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const TASKS: &[Column] = &[
    column("id", "id", "id of the task with the node").on_request(),
    column("action", "ac", "task action"),
    column("task_id", "ti", "unique task id"),
    column("parent_task_id", "pti", "parent task id"),
    column("type", "ty", "task type"),
    column("start_time", "start", "start time in ms").right(),
    column("timestamp", "ts,hms,hhmmss", "start time in HH:MM:SS"),
    column("running_time_ns", "time", "running time ns").right().on_request(),
    column("running_time", "rt", "running time").right(),
    column("node_id", "ni", "unique node id").on_request(),
    column("ip", "i", "ip address"),
    column("port", "po", "bound port of the data API").right().on_request(),
    column("node", "n", "node name"),
    column("version", "v", "version of the data API").on_request(),
    column("x_opaque_id", "x", "X-Opaque-ID header").on_request(),
    column("description", "desc", "task description").on_request(),
];

/// `_cat/tasks`
pub(crate) fn get(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let filter = TaskFilter::take(&mut request.params)?;
    let detailed = options::flag(&mut request.params, "detailed")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let port = node::address(api).rsplit_once(':').map_or("", |(_, port)| port);
    let mut table = Table::new(TASKS);
    for task in filter.list(api) {
        let id = id_text(api, task.id);
        let nanos = u64::try_from(task.running.as_nanos()).unwrap_or(u64::MAX);
        table.push(vec![
            id.as_str().into(),
            task.action.into(),
            id.as_str().into(),
            task.parent.map_or_else(|| "-".into(), |parent| id_text(api, parent).into()),
            "transport".into(),
            task.started_ms.into(),
            time_of_day(task.started_ms).into(),
            nanos.into(),
            Cell::Millis(nanos / 1_000_000),
            node::id(api).into(),
            node::ip(api).into(),
            port.into(),
            api.identity.node.as_str().into(),
            node::VERSION.into(),
            task.opaque_id.as_deref().map_or_else(|| "-".into(), Cell::from),
            if detailed { task.description.to_string().into() } else { Cell::Empty },
        ]);
    }
    table.render(&format)
}
