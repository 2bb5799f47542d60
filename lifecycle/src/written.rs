//! Names that write to an index.
//!
//! An index that a name writes to is not at the end of its writes, whatever rollovers it records. Policies and retention ask here.

use millrace_catalog::metadata::{IndexMeta, Metadata};

/// Returns an alias or a data stream that writes to an index: one that names it as its write index, or that has no other index.
pub(crate) fn name_that_writes<'a>(metadata: &Metadata, meta: &'a IndexMeta, now_ms: i64) -> Option<&'a str> {
    find(metadata, meta, now_ms, |_| true)
}

/// Returns an alias or a data stream that writes to an index beyond doubt: an alias that names it as its write index, or that it was rolled
/// over by. An alias of one index that says neither may be there for searches.
pub(crate) fn name_that_surely_writes<'a>(
    metadata: &Metadata,
    meta: &'a IndexMeta,
    rollover_alias: Option<&str>,
    now_ms: i64,
) -> Option<&'a str> {
    find(metadata, meta, now_ms, |alias| {
        meta.aliases[alias]["is_write_index"] == true
            || rollover_alias == Some(alias)
            || meta.rollover_ms(alias).is_some()
    })
}

fn find<'a>(
    metadata: &Metadata,
    meta: &'a IndexMeta,
    now_ms: i64,
    counts: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    if metadata.stream_written_to(meta).is_some() {
        return meta.data_stream();
    }
    let writes = |alias: &&str| {
        let written = metadata.write_index(alias, now_ms);
        written.is_ok_and(|written| written.is_some_and(|written| written.uuid == meta.uuid))
    };
    meta.aliases.keys().map(String::as_str).filter(|alias| counts(alias)).find(writes)
}
