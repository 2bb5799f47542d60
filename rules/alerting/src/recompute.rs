//! Computes what rules raise of the log, at once: the check of alerts after crashes.
//!
//! The rules that there are begin with no state at a frame that the log still has, and see each frame from there once. Nothing of
//! positions, snapshots or what was written before is looked at, so what rules at work have raised, however often they were
//! interrupted, has to be the same: of the revisions that rules have now, and as long as what was not a new revision
//! (`realert`, switching, silencing) was left alone.

use std::sync::Arc;

use millrace_accounts::Accounts;
use millrace_engine::{Engine, FeedItem};
use millrace_percolator::Matching;
use millrace_rules::engine::{Engine as Rules, Operation};
use millrace_rules::{Bounds, Timing};
use millrace_runtime::{Error as StorageError, Priority};

use crate::alert_chunks::{ChunkBuffer, Matches};
use crate::error::{Error, Result};
use crate::frame_reader::Step;
use crate::recovery::last_frame;
use crate::replay::Alert;
use crate::store::Store;

/// Frames that are evaluated in one step.
const STEP: usize = 256;

/// Has every alert seen, in order, that the rules of a store raise of the frames of its log, beginning with `from`; nothing is
/// written. No rules may be at work on the store.
///
/// # Errors
/// The store's; a log that does not reach back to that frame, or was cut meanwhile.
pub async fn recompute(
    engine: &Arc<Engine>,
    accounts: &Arc<Accounts>,
    from: u64,
    mut seen: impl FnMut(Alert),
) -> Result<()> {
    let store = Store::load(engine).await?;
    let last = last_frame(engine)?;
    let (mut rules, mut matching) = (
        Rules::new(Timing::default(), Bounds::default()),
        Matching::new(engine, accounts, Priority::Background),
    );
    for kept in store.all() {
        matching.put(&kept.rule);
        rules.put(kept.rule.clone());
    }
    let mut reader = engine.follow(Some(from))?;
    let mut next = from;
    while next <= last {
        let mut frames = Vec::with_capacity(STEP);
        while next <= last && frames.len() < STEP {
            match reader.next().await? {
                FeedItem::Frame(frame) => {
                    next = frame.number + 1;
                    frames.push(frame);
                }
                FeedItem::Gap { from, to } => {
                    let reason = format!("the log has no frames {from} to {}", to.saturating_sub(1));
                    return Err(Error::Storage(StorageError::Internal(reason)));
                }
            }
        }
        let step = Step::new(frames);
        let find = move || {
            let matches = Matches::new(&mut matching, &step);
            Ok((matching, matches))
        };
        let mut matches;
        (matching, matches) = engine.compute().run(Priority::Background, find).await?;
        while !matches.is_empty() {
            let evaluate = move || {
                let mut raised = ChunkBuffer::default();
                while !raised.is_enough()
                    && let Some(part) = matches.evaluate(&mut rules)
                {
                    raised.add(part.operations);
                }
                Ok((rules, matches, raised.operations))
            };
            let operations;
            (rules, matches, operations) = engine.compute().run(Priority::Background, evaluate).await?;
            for operation in operations {
                if let Operation::Alert { id, document, .. } = operation {
                    seen(Alert { id, document });
                }
            }
        }
    }
    Ok(())
}
