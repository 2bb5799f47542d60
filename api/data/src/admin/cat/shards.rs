//! `_cat/shards`

use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::ShardFault;

use super::super::{health, node, options, stats};
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// All columns of OpenSearch, so that clients find theirs; those that nobody measures stay empty.
#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    column("index", "i,idx", "index name"),
    column("shard", "s,sh", "shard name"),
    column("prirep", "p,pr,primaryOrReplica", "primary or replica"),
    column("state", "st", "shard state"),
    column("docs", "d,dc", "number of docs in shard").right(),
    column("store", "sto", "store size of shard (how much disk it uses)").right(),
    column("ip", "ip", "ip of node where it lives"),
    column("id", "id", "unique id of node where it lives").on_request(),
    column("node", "n", "name of node where it lives"),
    column("sync_id", "sync_id", "sync id").on_request(),
    column("unassigned.reason", "ur", "reason shard is unassigned").on_request(),
    column("unassigned.at", "ua", "time shard became unassigned (UTC)").on_request(),
    column("unassigned.for", "uf", "time has been unassigned").right().on_request(),
    column("unassigned.details", "ud", "additional details as to why the shard became unassigned").on_request(),
    column("recoverysource.type", "rs", "recovery source type").on_request(),
    column("completion.size", "cs,completionSize", "size of completion").right().on_request(),
    column("fielddata.memory_size", "fm,fielddataMemory", "used fielddata cache").right().on_request(),
    column("fielddata.evictions", "fe,fielddataEvictions", "fielddata evictions").right().on_request(),
    column("query_cache.memory_size", "qcm,queryCacheMemory", "used query cache").right().on_request(),
    column("query_cache.evictions", "qce,queryCacheEvictions", "query cache evictions").right().on_request(),
    column("flush.total", "ft,flushTotal", "number of flushes").right().on_request(),
    column("flush.total_time", "ftt,flushTotalTime", "time spent in flush").right().on_request(),
    column("get.current", "gc,getCurrent", "number of current get ops").right().on_request(),
    column("get.time", "gti,getTime", "time spent in get").right().on_request(),
    column("get.total", "gto,getTotal", "number of get ops").right().on_request(),
    column("get.exists_time", "geti,getExistsTime", "time spent in successful gets").right().on_request(),
    column("get.exists_total", "geto,getExistsTotal", "number of successful gets").right().on_request(),
    column("get.missing_time", "gmti,getMissingTime", "time spent in failed gets").right().on_request(),
    column("get.missing_total", "gmto,getMissingTotal", "number of failed gets").right().on_request(),
    column("indexing.delete_current", "idc,indexingDeleteCurrent", "number of current deletions").right().on_request(),
    column("indexing.delete_time", "idti,indexingDeleteTime", "time spent in deletions").right().on_request(),
    column("indexing.delete_total", "idto,indexingDeleteTotal", "number of delete ops").right().on_request(),
    column("indexing.index_current", "iic,indexingIndexCurrent", "number of current indexing ops").right().on_request(),
    column("indexing.index_time", "iiti,indexingIndexTime", "time spent in indexing").right().on_request(),
    column("indexing.index_total", "iito,indexingIndexTotal", "number of indexing ops").right().on_request(),
    column("indexing.index_failed", "iif,indexingIndexFailed", "number of failed indexing ops").right().on_request(),
    column("merges.current", "mc,mergesCurrent", "number of current merges").right().on_request(),
    column("merges.current_docs", "mcd,mergesCurrentDocs", "number of current merging docs").right().on_request(),
    column("merges.current_size", "mcs,mergesCurrentSize", "size of current merges").right().on_request(),
    column("merges.total", "mt,mergesTotal", "number of completed merge ops").right().on_request(),
    column("merges.total_docs", "mtd,mergesTotalDocs", "docs merged").right().on_request(),
    column("merges.total_size", "mts,mergesTotalSize", "size merged").right().on_request(),
    column("merges.total_time", "mtt,mergesTotalTime", "time spent in merges").right().on_request(),
    column("refresh.total", "rto,refreshTotal", "total refreshes").right().on_request(),
    column("refresh.time", "rti,refreshTime", "time spent in refreshes").right().on_request(),
    column("refresh.external_total", "rto,refreshTotal", "total external refreshes").right().on_request(),
    column("refresh.external_time", "rti,refreshTime", "time spent in external refreshes").right().on_request(),
    column("refresh.listeners", "rli,refreshListeners", "number of pending refresh listeners").right().on_request(),
    column("search.fetch_current", "sfc,searchFetchCurrent", "current fetch phase ops").right().on_request(),
    column("search.fetch_time", "sfti,searchFetchTime", "time spent in fetch phase").right().on_request(),
    column("search.fetch_total", "sfto,searchFetchTotal", "total fetch ops").right().on_request(),
    column("search.open_contexts", "so,searchOpenContexts", "open search contexts").right().on_request(),
    column("search.query_current", "sqc,searchQueryCurrent", "current query phase ops").right().on_request(),
    column("search.query_time", "sqti,searchQueryTime", "time spent in query phase").right().on_request(),
    column("search.query_total", "sqto,searchQueryTotal", "total query phase ops").right().on_request(),
    column("search.scroll_current", "scc,searchScrollCurrent", "open scroll contexts").right().on_request(),
    column("search.scroll_time", "scti,searchScrollTime", "time scroll contexts held open").right().on_request(),
    column("search.scroll_total", "scto,searchScrollTotal", "completed scroll contexts").right().on_request(),
    column("segments.count", "sc,segmentsCount", "number of segments").right().on_request(),
    column("segments.memory", "sm,segmentsMemory", "memory used by segments").right().on_request(),
    column("segments.index_writer_memory", "siwm,segmentsIndexWriterMemory", "memory used by index writer").right().on_request(),
    column("segments.version_map_memory", "svmm,segmentsVersionMapMemory", "memory used by version map").right().on_request(),
    column("segments.fixed_bitset_memory", "sfbm,fixedBitsetMemory", "memory used by fixed bit sets").right().on_request(),
    column("seq_no.max", "sqm,maxSeqNo", "max sequence number").right().on_request(),
    column("seq_no.local_checkpoint", "sql,localCheckpoint", "local checkpoint").right().on_request(),
    column("seq_no.global_checkpoint", "sqg,globalCheckpoint", "global checkpoint").right().on_request(),
    column("warmer.current", "wc,warmerCurrent", "current warmer ops").right().on_request(),
    column("warmer.total", "wto,warmerTotal", "total warmer ops").right().on_request(),
    column("warmer.total_time", "wtt,warmerTotalTime", "time spent in warmers").right().on_request(),
    column("path.data", "pd,dataPath", "shard data path").on_request(),
    column("path.state", "ps,statsPath", "shard state path").on_request(),
];

pub(crate) fn get(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let options = options::indices(&mut request.params, IndicesOptions::open_and_closed())?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(COLUMNS);
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        let faults = health::faults(api, &meta);
        for (number, shard) in stats::figures(api, &meta).iter().enumerate() {
            let lost = faults.get(number).copied().flatten().is_some_and(ShardFault::is_out_of_use);
            let row = COLUMNS
                .iter()
                .map(|column| match column.name {
                    "index" => (&*meta.name).into(),
                    "shard" => Cell::from(number as u64),
                    "prirep" => "p".into(),
                    "state" if lost => "UNASSIGNED".into(),
                    "unassigned.reason" if lost => "ALLOCATION_FAILED".into(),
                    _ if lost => Cell::Empty,
                    "state" => "STARTED".into(),
                    "ip" => node::ip(api).into(),
                    "id" => node::id(api).into(),
                    "node" => api.identity.node.as_str().into(),
                    _ if !meta.open => Cell::Empty,
                    "docs" => shard.docs.into(),
                    "store" => Cell::Bytes(shard.store_bytes),
                    "flush.total" => shard.flush_total.into(),
                    "get.total" => shard.get_total.into(),
                    "indexing.delete_total" => shard.delete_total.into(),
                    "indexing.index_total" => shard.index_total.into(),
                    "merges.total" => shard.merge_total.into(),
                    "refresh.total" => shard.refresh_total.into(),
                    "search.open_contexts" => stats::open_contexts(shard).into(),
                    "search.query_total" => shard.query_total.into(),
                    "search.scroll_current" => shard.scrolls.current.into(),
                    "search.scroll_total" => shard.scrolls.total.into(),
                    "segments.count" => shard.segments.into(),
                    "segments.memory" => Cell::Bytes(shard.memory_bytes),
                    "seq_no.max" => shard.max_seq_no.into(),
                    "seq_no.local_checkpoint" | "seq_no.global_checkpoint" => shard.local_checkpoint.into(),
                    _ => Cell::Empty,
                })
                .collect();
            table.push(row);
        }
    }
    table.render(&format)
}
