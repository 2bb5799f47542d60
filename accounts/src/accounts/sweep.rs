//! Removes records that have ended, and stores last uses.

use std::sync::Arc;
use std::time::Duration;

use super::{Accounts, Inner};
use crate::error::Result;
use crate::state::Change;

/// Time for which an API key that ended can be listed.
const KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Changes of one transaction.
const BATCH: usize = 10_000;
/// Bounds of the time between two rounds, which is a tenth of what a token may be idle.
const ROUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// Sweeps from time to time until accounts are dropped.
pub(super) fn run(inner: &Arc<Inner>) {
    let every = (inner.lifetimes.idle / 10).clamp(ROUNDS.0, ROUNDS.1);
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(inner) = inner.upgrade() else { return };
            if let Err(error) = Accounts(inner).sweep().await {
                tracing::warn!(%error, "tokens and API keys that are over could not be removed");
            }
        }
    });
}

impl Accounts {
    /// Removes login tokens that are over and API keys that have been for a week, and stores when tokens were used last.
    /// Returns how many were removed. It is done from time to time by itself.
    ///
    /// # Errors
    /// The store's.
    pub async fn sweep(&self) -> Result<usize> {
        let mut removed = 0;
        loop {
            let lifetimes = self.0.lifetimes;
            let (of_batch, more) = self
                .change(move |state, now_ms| {
                    let token = |token: &Arc<_>| {
                        let token: &Arc<crate::token::Token> = token;
                        if !token.is_active(lifetimes, now_ms) {
                            Some(Change::DeleteToken(token.hash))
                        } else if token.is_to_be_noted(lifetimes) {
                            Some(Change::NoteToken(Arc::clone(token), token.used_ms()))
                        } else {
                            None
                        }
                    };
                    let keys = state.keys.values().filter(|key| {
                        key.ended_ms(now_ms).is_some_and(|ended| now_ms.saturating_sub(ended) >= KEPT_MS)
                    });
                    let keys = keys.map(|key| Change::DeleteKey(Arc::clone(&key.id)));
                    let changes: Vec<_> =
                        state.tokens.values().filter_map(token).chain(keys).take(BATCH).collect();
                    let noted = changes.iter().filter(|change| matches!(change, Change::NoteToken(..)));
                    let done = (changes.len() - noted.count(), changes.len() == BATCH);
                    Ok((changes, done))
                })
                .await?;
            removed += of_batch;
            if !more {
                return Ok(removed);
            }
        }
    }
}
