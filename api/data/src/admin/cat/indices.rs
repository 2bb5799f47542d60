//! `_cat/indices`

use millrace_catalog::metadata::IndicesOptions;

use super::super::health::{self, Status};
use super::super::{options, stats};
use super::moment;
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const COLUMNS: &[Column] = &[
    column("health", "h", "current health status"),
    column("status", "s", "open/close status"),
    column("index", "i,idx", "index name"),
    column("uuid", "id,uuid", "index uuid"),
    column("pri", "p,shards.primary,shardsPrimary", "number of primary shards").right(),
    column("rep", "r,shards.replica,shardsReplica", "number of replica shards").right(),
    column("docs.count", "dc,docsCount", "available docs").right(),
    column("docs.deleted", "dd,docsDeleted", "deleted docs").right(),
    column("creation.date", "cd", "index creation date (millisecond value)").right().on_request(),
    column("creation.date.string", "cds", "index creation date (as string)").right().on_request(),
    column("store.size", "ss,storeSize", "store size of primaries & replicas").right(),
    column("pri.store.size", "", "store size of primaries").right(),
    column("flush.total", "ft,flushTotal", "number of flushes").right().on_request(),
    column("get.total", "gto,getTotal", "number of get ops").right().on_request(),
    column("indexing.delete_total", "idto,indexingDeleteTotal", "number of delete ops").right().on_request(),
    column("indexing.index_total", "iito,indexingIndexTotal", "number of indexing ops").right().on_request(),
    column("merges.total", "mt,mergesTotal", "number of completed merge ops").right().on_request(),
    column("refresh.total", "rto,refreshTotal", "total refreshes").right().on_request(),
    column("search.query_total", "sqto,searchQueryTotal", "total query phase ops").right().on_request(),
    column("segments.count", "sc,segmentsCount", "number of segments").right().on_request(),
    column("segments.memory", "sm,segmentsMemory", "memory used by segments").right().on_request(),
    column("memory.total", "tm,memoryTotal", "total used memory").right().on_request(),
    column("pri.memory.total", "", "total used memory of primaries").right().on_request(),
    column("search.throttled", "sth", "indicates if the index is search throttled").on_request(),
];

pub(crate) fn get(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let wanted = request.params.take("health").map(|health| Status::parse(&health)).transpose()?;
    // Shards have one copy here: the figures of primaries are those of all.
    options::flag(&mut request.params, "pri")?;
    options::flag(&mut request.params, "include_unloaded_segments")?;
    let options = options::indices(&mut request.params, IndicesOptions::open_and_closed())?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(COLUMNS);
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        let status = health::of_index(api, &meta).status();
        if wanted.is_some_and(|wanted| wanted != status) {
            continue;
        }
        let sums = meta.open.then(|| stats::sum(&stats::figures(api, &meta)));
        let number = |pick: fn(&millrace_engine::ShardFigures) -> u64| {
            sums.as_ref().map_or(Cell::Empty, |sums| Cell::from(pick(sums)))
        };
        let bytes = |pick: fn(&millrace_engine::ShardFigures) -> u64| {
            sums.as_ref().map_or(Cell::Empty, |sums| Cell::Bytes(pick(sums)))
        };
        table.push(vec![
            status.name().into(),
            if meta.open { "open" } else { "close" }.into(),
            (&*meta.name).into(),
            meta.uuid_text().into(),
            meta.shards.into(),
            meta.replicas.into(),
            number(|sums| sums.docs),
            number(|sums| sums.deleted),
            meta.created_ms.into(),
            moment(meta.created_ms).into(),
            bytes(|sums| sums.store_bytes),
            bytes(|sums| sums.store_bytes),
            number(|sums| sums.flush_total),
            number(|sums| sums.get_total),
            number(|sums| sums.delete_total),
            number(|sums| sums.index_total),
            number(|sums| sums.merge_total),
            number(|sums| sums.refresh_total),
            number(|sums| sums.query_total),
            number(|sums| sums.segments),
            bytes(|sums| sums.memory_bytes),
            bytes(|sums| sums.memory_bytes),
            bytes(|sums| sums.memory_bytes),
            "false".into(),
        ]);
    }
    table.render(&format)
}
