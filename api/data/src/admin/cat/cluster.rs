//! `_cat/health`, `_cat/count`, `_cat/pending_tasks`, `_cat/fielddata`.

use millrace_catalog::metadata::IndicesOptions;
use millrace_query::OutcomeBody;

use super::super::{health as cluster_health, options, stats};
use super::table::{Cell, Column, Format, Table, column};
use super::time_of_day;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const HEALTH: &[Column] = &[
    column("epoch", "t,time", "seconds since 1970-01-01 00:00:00"),
    column("timestamp", "ts,hms,hhmmss", "time in HH:MM:SS"),
    column("cluster", "cl", "cluster name"),
    column("status", "st", "health status"),
    column("node.total", "nt,nodeTotal", "total number of nodes").right(),
    column("node.data", "nd,nodeData", "number of nodes that can store data").right(),
    column("discovered_master", "dm", "cluster manager is discovered or not").right(),
    column("shards", "t,sh,shards.total,shardsTotal", "total number of shards").right(),
    column("pri", "p,shards.primary,shardsPrimary", "number of primary shards").right(),
    column("relo", "r,shards.relocating,shardsRelocating", "number of relocating nodes").right(),
    column("init", "i,shards.initializing,shardsInitializing", "number of initializing nodes").right(),
    column("unassign", "u,shards.unassigned,shardsUnassigned", "number of unassigned shards").right(),
    column("pending_tasks", "pt,pendingTasks", "number of pending tasks").right(),
    column("max_task_wait_time", "mtwt,maxTaskWaitTime", "wait time of longest task pending").right(),
    column("active_shards_percent", "asp,activeShardsPercent", "active number of shards in percent").right(),
];

const HEALTH_WITHOUT_TIME: &[Column] = HEALTH.split_at(2).1;

pub(crate) fn health(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let with_time = request.params.take_bool("ts")?.unwrap_or(true);
    options::manager(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    let health = cluster_health::of_all(api, &api.session.metadata());
    let mut row: Vec<Cell> =
        if with_time { vec![now.div_euclid(1000).into(), time_of_day(now).into()] } else { Vec::new() };
    row.extend([
        api.identity.cluster.as_str().into(),
        cluster_health::of_node(api, health.status()).name().into(),
        Cell::Number(1),
        Cell::Number(1),
        "true".into(),
        health.active().into(),
        health.active().into(),
        Cell::Number(0),
        Cell::Number(0),
        health.lost.into(),
        Cell::Number(0),
        "-".into(),
        format!("{:.1}%", health.active_percent()).into(),
    ]);
    let mut table = Table::new(if with_time { HEALTH } else { HEALTH_WITHOUT_TIME });
    table.push(row);
    table.render(&format)
}

const COUNT: &[Column] = &[
    column("epoch", "t,time", "seconds since 1970-01-01 00:00:00"),
    column("timestamp", "ts,hms,hhmmss", "time in HH:MM:SS"),
    column("count", "dc,docs.count,docsCount", "the document count"),
];

/// `_cat/count`
pub(crate) async fn count(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    let mut docs = 0;
    for meta in api.session.metadata().resolve(index, &options, now)? {
        docs += if api.session.access(&meta.name).sees_all(api.session.action()) {
            stats::sum(&stats::figures(api, &meta)).docs
        } else {
            count_visible(api, &meta.name).await?
        };
    }
    let mut table = Table::new(COUNT);
    table.push(vec![now.div_euclid(1000).into(), time_of_day(now).into(), docs.into()]);
    table.render(&format)
}

/// Counts the documents of an index that may be seen.
async fn count_visible(api: &Api, index: &str) -> Result<u64, Error> {
    let outcome = api.search.count(&api.session, index, Vec::new(), None).await?;
    let count = match &outcome.body {
        OutcomeBody::Json(body) => body["count"].as_u64(),
        _ => None,
    };
    count.ok_or_else(|| Error::concealed(500, "illegal_state_exception", &"a count without its number"))
}

const PENDING: &[Column] = &[
    column("insertOrder", "o", "task insertion order").right(),
    column("timeInQueue", "t", "how long task has been in queue").right(),
    column("priority", "p", "task priority"),
    column("source", "s", "task source"),
];

/// `_cat/pending_tasks`: changes of metadata are made at once, none is ever pending.
pub(crate) fn pending_tasks(request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    Table::new(PENDING).render(&format)
}

const FIELDDATA: &[Column] = &[
    column("id", "", "node id"),
    column("host", "h", "host name"),
    column("ip", "", "ip address"),
    column("node", "n", "node name"),
    column("field", "f", "field name"),
    column("size", "", "field data usage").right(),
];

/// `_cat/fielddata`: no field is loaded into such a cache.
pub(crate) fn fielddata(request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    request.params.take("fields");
    request.finish()?;
    Table::new(FIELDDATA).render(&format)
}
