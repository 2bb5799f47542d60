//! Reasons of failed shards within bounds: an answer has one for each index, and several times.

use super::ShardFailure;

/// Longest reason of a failed shard, in bytes: each of many shards may have it, and the answer has it several times.
pub const MAX_REASON_BYTES: usize = 4 << 10;
/// Bytes of the reasons of an answer above which further ones are cut short.
const MAX_REASONS_BYTES: usize = 1 << 20;
/// Bytes of a reason that is cut short.
const SHORT_REASON_BYTES: usize = 256;

/// Cuts a text behind so many bytes, and says so.
pub fn cut_short(mut text: String, most: usize) -> String {
    if text.len() > most {
        let before = text.len();
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("... [{} bytes more]", before - text.len()));
    }
    text
}

/// Cuts the reasons of failures short where all of them are long.
pub(super) fn within_bounds(failures: &[&ShardFailure]) -> Vec<ShardFailure> {
    let mut bytes = 0_usize;
    let cut = |failure: &&ShardFailure| {
        let most = if bytes > MAX_REASONS_BYTES { SHORT_REASON_BYTES } else { MAX_REASON_BYTES };
        let reason = cut_short(failure.reason.clone(), most);
        let cause = failure.caused_by.clone();
        let caused_by = cause.map(|(kind, text)| (kind, cut_short(text, most)));
        bytes += reason.len() + caused_by.as_ref().map_or(0, |(_, text)| text.len());
        ShardFailure { reason, caused_by, ..(*failure).clone() }
    };
    failures.iter().map(cut).collect()
}
