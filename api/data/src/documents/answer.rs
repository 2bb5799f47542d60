//! Members that acknowledgements of writes share, written straight as JSON text.

use millrace_engine::{DocResult, WriteOutcome};

use crate::documents::DEFAULT_TYPE;
use crate::http::json::{push_str, push_u64};

/// Format of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcknowledgementFormat<'a> {
    /// Type segment that the request named.
    pub(crate) doc_type: Option<&'a str>,
    /// `true` if a refresh was forced.
    pub(crate) forced_refresh: bool,
    /// `true` if `created` is answered: typed index and create operations.
    pub(crate) created: bool,
}

/// Returns the HTTP status of a result.
pub(crate) fn status(result: DocResult) -> u16 {
    match result {
        DocResult::Created => 201,
        DocResult::NotFound => 404,
        DocResult::Updated | DocResult::Deleted | DocResult::Noop => 200,
    }
}

fn name(result: DocResult) -> &'static [u8] {
    match result {
        DocResult::Created => b"created",
        DocResult::Updated => b"updated",
        DocResult::Deleted => b"deleted",
        DocResult::NotFound => b"not_found",
        DocResult::Noop => b"noop",
    }
}

/// Appends `"_index":..,"_type":..,"_id":..`; a missing id is null.
pub(crate) fn push_address(out: &mut Vec<u8>, index: &str, doc_type: Option<&str>, id: Option<&str>) {
    out.extend_from_slice(b"\"_index\":");
    push_str(out, index);
    out.extend_from_slice(b",\"_type\":");
    push_str(out, doc_type.unwrap_or(DEFAULT_TYPE));
    out.extend_from_slice(b",\"_id\":");
    match id {
        Some(id) => push_str(out, id),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends the members of the answer for a document that a pipeline dropped, without braces. The version says that none was asked
/// for.
pub(crate) fn push_dropped(out: &mut Vec<u8>, index: &str, doc_type: Option<&str>, id: Option<&str>) {
    push_address(out, index, doc_type, Some(id.unwrap_or("auto-generated")));
    out.extend_from_slice(
        b",\"_version\":-3,\"result\":\"noop\",\"_shards\":{\"total\":0,\"successful\":0,\"failed\":0}",
    );
}

/// Appends the members of an acknowledgement, without braces.
pub(crate) fn push_members(out: &mut Vec<u8>, outcome: &WriteOutcome, dress: AcknowledgementFormat<'_>) {
    push_address(out, &outcome.index, dress.doc_type, Some(&outcome.id));
    out.extend_from_slice(b",\"_version\":");
    push_u64(out, outcome.version);
    out.extend_from_slice(b",\"result\":\"");
    out.extend_from_slice(name(outcome.result));
    out.push(b'"');
    if dress.created {
        let created: &[u8] = if outcome.result == DocResult::Created { b"true" } else { b"false" };
        out.extend_from_slice(b",\"created\":");
        out.extend_from_slice(created);
    }
    if outcome.result == DocResult::Noop {
        out.extend_from_slice(b",\"_shards\":{\"total\":0,\"successful\":0,\"failed\":0}");
    } else {
        if dress.forced_refresh {
            out.extend_from_slice(b",\"forced_refresh\":true");
        }
        out.extend_from_slice(b",\"_shards\":{\"total\":");
        push_u64(out, u64::from(outcome.shard_copies));
        out.extend_from_slice(b",\"successful\":1,\"failed\":0}");
    }
    out.extend_from_slice(b",\"_seq_no\":");
    push_u64(out, outcome.seq_no);
    out.extend_from_slice(b",\"_primary_term\":");
    push_u64(out, outcome.primary_term);
}

#[cfg(test)]
pub(crate) fn sample(id: &str, result: DocResult) -> WriteOutcome {
    WriteOutcome {
        index: "logs".into(),
        id: id.into(),
        version: 3,
        seq_no: 7,
        primary_term: 1,
        result,
        shard_copies: 2,
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: DocResult, dress: AcknowledgementFormat<'_>) -> String {
        let mut out = Vec::new();
        push_members(&mut out, &sample("a\"b", result), dress);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn acknowledgements() {
        let plain = AcknowledgementFormat { doc_type: None, forced_refresh: false, created: false };
        assert_eq!(
            text(DocResult::Deleted, plain),
            r#""_index":"logs","_type":"_doc","_id":"a\"b","_version":3,"result":"deleted","_shards":{"total":2,"successful":1,"failed":0},"_seq_no":7,"_primary_term":1"#
        );
        let typed = AcknowledgementFormat { doc_type: Some("t"), forced_refresh: true, created: true };
        assert_eq!(
            text(DocResult::Created, typed),
            r#""_index":"logs","_type":"t","_id":"a\"b","_version":3,"result":"created","created":true,"forced_refresh":true,"_shards":{"total":2,"successful":1,"failed":0},"_seq_no":7,"_primary_term":1"#
        );
        assert!(text(DocResult::Noop, typed).contains(r#""_shards":{"total":0"#));
    }
}
