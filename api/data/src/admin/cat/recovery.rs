//! `_cat/recovery`

use millrace_catalog::metadata::IndicesOptions;

use super::super::{node, options, recovery};
use super::moment;
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    column("index", "i,idx", "index name"),
    column("shard", "s,sh", "shard name"),
    column("start_time", "start", "recovery start time").on_request(),
    column("start_time_millis", "start_millis", "recovery start time in epoch milliseconds").on_request(),
    column("stop_time", "stop", "recovery stop time").on_request(),
    column("stop_time_millis", "stop_millis", "recovery stop time in epoch milliseconds").on_request(),
    column("time", "t,ti", "recovery time"),
    column("type", "ty", "recovery type"),
    column("stage", "st", "recovery stage"),
    column("source_host", "shost", "source host"),
    column("source_node", "snode", "source node name"),
    column("target_host", "thost", "target host"),
    column("target_node", "tnode", "target node name"),
    column("repository", "rep", "repository"),
    column("snapshot", "snap", "snapshot"),
    column("files", "f", "number of files to recover"),
    column("files_recovered", "fr", "files recovered"),
    column("files_percent", "fp", "percent of files recovered"),
    column("files_total", "tf", "total number of files"),
    column("bytes", "b", "number of bytes to recover"),
    column("bytes_recovered", "br", "bytes recovered"),
    column("bytes_percent", "bp", "percent of bytes recovered"),
    column("bytes_total", "tb", "total number of bytes"),
    column("translog_ops", "to", "number of translog ops to recover"),
    column("translog_ops_recovered", "tor", "translog ops recovered"),
    column("translog_ops_percent", "top", "percent of translog ops recovered"),
];

pub(crate) fn get(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::flag(&mut request.params, "detailed")?;
    let active_only = options::flag(&mut request.params, "active_only")?;
    let options = options::indices(&mut request.params, IndicesOptions::open_and_closed())?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(COLUMNS);
    let now_ms = api.session.clock().now_ms();
    for shard in recovery::list(served, api, expression, &options, active_only)? {
        let restore = shard.restore.as_ref();
        let row = COLUMNS
            .iter()
            .map(|column| match column.name {
                "index" => shard.index.as_str().into(),
                "shard" => Cell::from(shard.number),
                "start_time" => moment(shard.started_ms).into(),
                "start_time_millis" => shard.started_ms.into(),
                "stop_time" => shard.ended_ms.map_or(Cell::Empty, |ended_ms| moment(ended_ms).into()),
                "stop_time_millis" => shard.ended_ms.map_or(Cell::Empty, Cell::from),
                "time" => Cell::Millis(shard.total_ms(now_ms).unsigned_abs()),
                "type" => shard.source_type.to_lowercase().into(),
                "stage" => shard.stage().to_lowercase().into(),
                "source_host" | "source_node" => "n/a".into(),
                "target_host" => node::ip(api).into(),
                "target_node" => api.identity.node.as_str().into(),
                "repository" => restore.map_or("n/a", |restore| &restore.repository).into(),
                "snapshot" => restore.map_or("n/a", |restore| &restore.snapshot).into(),
                "files" => shard.copied.files.into(),
                "files_recovered" => shard.copied.recovered_files.into(),
                "files_percent" => shard.files_percent().into(),
                "files_total" => (shard.copied.files + shard.reused.0).into(),
                // Counts of bytes without a unit, as OpenSearch has them.
                "bytes" => shard.copied.bytes.into(),
                "bytes_recovered" => shard.copied.recovered_bytes.into(),
                "bytes_percent" => shard.bytes_percent().into(),
                "bytes_total" => (shard.copied.bytes + shard.reused.1).into(),
                "translog_ops" | "translog_ops_recovered" => Cell::from(0_u64),
                "translog_ops_percent" => "100.0%".into(),
                _ => Cell::Empty,
            })
            .collect();
        table.push(row);
    }
    table.render(&format)
}
