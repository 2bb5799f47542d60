//! The dead letters of an engine: their index, listings of them by page, and replays of what they hold.

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::operation::{DeadLetter, OnReject, SourceWrite};
use millrace_engine::{Engine, SystemDocuments};
use millrace_ingest::dead_letter::{
    Cursor, DeadLetterFilter, INDEX, Page, ReplayReport, StoredDeadLetter, WRITE_TIMEOUT,
};
use millrace_runtime::{Error, Kind, Result};
use millrace_segment::RowParts;
use serde_json::json;

use crate::heads::{Listing, UnreadDeadLetter};

/// Bytes of letters that are read at once, where their lengths are known; others are read one by one.
const READ_BYTES: u64 = 1 << 20;
/// Bytes of letters of a page; only the last one may be beyond.
const PAGE_BYTES: u64 = 16 << 20;

/// Creates the index where it is missing. Letters that are written without are stored as well, but with a
/// mapping made of them.
///
/// # Errors
/// The store's.
pub async fn create_index(engine: &Arc<Engine>) -> Result<()> {
    SystemDocuments::<StoredDeadLetter>::new(engine).ensure_index().await?;
    if engine.index(INDEX)?.mapping().field("bytes").is_none() {
        // Of an earlier version, whose letters do not say how long they are.
        let body = json!({"properties": {"bytes": {"type": "long"}}});
        engine.put_mapping(&Principal::system(), INDEX, &body).await?;
    }
    Ok(())
}

/// Reads letters, the oldest first, about 16 MiB at most. Which ones is known before any is read.
///
/// # Errors
/// The store's.
pub async fn list(engine: &Engine, wanted: DeadLetterFilter<'_>) -> Result<Page> {
    let Some(listing) = Listing::take(engine).await? else { return Ok(Page::default()) };
    let pipeline: Option<Arc<str>> = wanted.pipeline.map(Arc::from);
    let after_ms = wanted.after.map(Cursor::time_ms);
    let chosen = Candidates { cap: wanted.most.saturating_add(1), ..Candidates::default() };
    let chosen = listing.fold(engine, chosen, move |chosen, head| {
        let other = matches!((&pipeline, &head.pipeline), (Some(wanted), Some(of)) if wanted != of);
        if !other && after_ms.is_none_or(|after| after <= head.time_ms) {
            chosen.add(head, after_ms);
        }
    });
    let chosen = chosen.await?;
    let mut is_cut = chosen.is_cut;
    let heads: Vec<UnreadDeadLetter> = chosen.ties.into_iter().chain(chosen.later).collect();
    let ids = listing.ids(&heads).await?;
    let mut all: Vec<(Cursor, UnreadDeadLetter)> =
        heads.into_iter().zip(ids).map(|(head, id)| (Cursor::new(head.time_ms, id), head)).collect();
    all.retain(|(at, _)| wanted.after.is_none_or(|after| after < at));
    all.sort_by(|(a, _), (b, _)| a.cmp(b));

    let mut page = Page::default();
    let (mut bytes, mut at) = (0, 0);
    while let Some((_, first)) = all.get(at) {
        let known = first.bytes.unwrap_or_default();
        if page.letters.len() >= wanted.most || (bytes + known > PAGE_BYTES && bytes > 0) {
            is_cut = true;
            break;
        }
        // Those behind it that can be read with it.
        let mut sum = first.bytes.unwrap_or(READ_BYTES);
        let most = wanted.most - page.letters.len();
        let more = all.iter().skip(at + 1).take(most - 1).take_while(|(_, next)| {
            sum = sum.saturating_add(next.bytes.unwrap_or(READ_BYTES));
            next.at.0 == first.at.0 && sum <= READ_BYTES
        });
        let end = at + 1 + more.count();
        let some = all.get(at..end).unwrap_or_default();
        let rows: Vec<u32> = some.iter().map(|(_, head)| head.at.1).collect();
        let Some(view) = listing.segments.get(first.at.0) else { break };
        for ((cursor, _), row) in some.iter().zip(view.segment.fetch(&rows, RowParts::ALL).await?) {
            bytes += row.source.len() as u64;
            page.next = Some(cursor.clone());
            let Some(letter) = StoredDeadLetter::from_source(row.id, &row.source, cursor.time_ms()) else {
                continue;
            };
            if wanted.pipeline.is_none_or(|pipeline| letter.pipeline == pipeline) {
                page.letters.push(letter);
            }
        }
        at = end;
    }
    page.next = page.next.filter(|_| is_cut);
    Ok(page)
}

/// The oldest letters of those that were looked at, with all that are as old as the last of them.
#[derive(Debug, Default)]
struct Candidates {
    cap: usize,
    /// As old as the letter behind which the listing begins: only their ids tell.
    ties: Vec<UnreadDeadLetter>,
    later: Vec<UnreadDeadLetter>,
    /// `true` if there were more.
    is_cut: bool,
}

impl Candidates {
    fn add(&mut self, head: UnreadDeadLetter, after_ms: Option<i64>) {
        if after_ms == Some(head.time_ms) {
            return self.ties.push(head);
        }
        self.later.push(head);
        // Letters of one time stay together: what is left is looked at again when it has doubled.
        if self.later.len() < self.cap.saturating_mul(2).max(1024) || !self.later.len().is_power_of_two() {
            return;
        }
        let last = self.cap.saturating_sub(1).min(self.later.len() - 1);
        let (_, last, _) = self.later.select_nth_unstable_by_key(last, |head| head.time_ms);
        let last = last.time_ms;
        let before = self.later.len();
        self.later.retain(|head| head.time_ms <= last);
        self.is_cut |= self.later.len() < before;
    }
}

/// Stores what letters hold with the rights of a principal, each in one frame with the removal of its letter.
///
/// # Errors
/// What passes by itself, or the end of the server: the letters not looked at stay as well.
pub async fn replay(
    engine: &Engine,
    principal: &Principal,
    letters: &[StoredDeadLetter],
) -> Result<ReplayReport> {
    let mut replayed = ReplayReport::default();
    for letter in letters {
        let op = match letter.operation() {
            Ok(op) => op,
            Err(reason) => {
                replayed.left.push((letter.id.clone(), reason));
                continue;
            }
        };
        let remove = letter.removal();
        // Refused again, it stays a letter. What lost against another version is there, and its letter goes.
        let stays: DeadLetter = Arc::new(|_, error| match error.kind() {
            Kind::Conflict => OnReject::Skip,
            _ => OnReject::Abort,
        });
        let write = SourceWrite { ops: vec![op], own: vec![remove], moves: Vec::new() };
        match engine.write_from_source(principal, write, stays, WRITE_TIMEOUT).await {
            Ok(_) => replayed.stored += 1,
            Err(Error::DeadLetterRefused(reason)) => replayed.left.push((letter.id.clone(), reason)),
            Err(error) => return Err(error),
        }
    }
    Ok(replayed)
}
