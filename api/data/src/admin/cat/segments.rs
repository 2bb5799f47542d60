//! `_cat/segments`

use millrace_catalog::metadata::IndicesOptions;

use super::super::{node, options, segments};
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    column("index", "i,idx", "index name"),
    column("shard", "s,sh", "shard name"),
    column("prirep", "p,pr,primaryOrReplica", "primary or replica"),
    column("ip", "ip", "ip of node where it lives"),
    column("id", "id", "unique id of node where it lives").on_request(),
    column("segment", "seg", "segment name"),
    column("generation", "g,gen", "segment generation").right(),
    column("docs.count", "dc,docsCount", "number of docs in segment").right(),
    column("docs.deleted", "dd,docsDeleted", "number of deleted docs in segment").right(),
    column("size", "si", "segment size in bytes").right(),
    column("size.memory", "sm,sizeMemory", "segment memory in bytes").right(),
    column("committed", "ic,isCommitted", "is segment committed"),
    column("searchable", "is,isSearchable", "is segment searched"),
    column("version", "v,ver", "version"),
    column("compound", "ico,isCompound", "is segment compound"),
];

pub(crate) fn get(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(COLUMNS);
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        for (number, shard) in segments::list_by_shard(api, &meta).iter().enumerate() {
            for segment in shard {
                let row = COLUMNS
                    .iter()
                    .map(|column| match column.name {
                        "index" => (&*meta.name).into(),
                        "shard" => Cell::from(number as u64),
                        "prirep" => "p".into(),
                        "ip" => node::ip(api).into(),
                        "id" => node::id(api).into(),
                        "segment" => segments::name(segment).into(),
                        "generation" => segment.number.into(),
                        "docs.count" => segment.docs.into(),
                        "docs.deleted" => segment.deleted.into(),
                        "size" => Cell::Bytes(segments::bytes(segment)),
                        // A count of bytes without a unit, as OpenSearch has it.
                        "size.memory" => segment.memory_bytes.into(),
                        "committed" => segment.committed.to_string().into(),
                        "searchable" => "true".into(),
                        "version" => segments::VERSION.into(),
                        "compound" => "false".into(),
                        _ => Cell::Empty,
                    })
                    .collect();
                table.push(row);
            }
        }
    }
    table.render(&format)
}
