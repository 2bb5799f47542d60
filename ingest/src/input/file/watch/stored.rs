//! Stored positions: their owners, their successors, and the time of their removal.

use std::collections::HashMap;

use bytes::Bytes;
use chrono::Utc;

use super::super::Settings;
use super::super::position::{Inode, Position, partition, parts};
use super::super::steps::seconds;
use super::Watch;
use super::tracked::OpenFile;
use crate::budget::Reservation;
use crate::input::{Context, InputError, stopped};
use crate::{Ack, Batch, Move};

/// The source of all positions of files.
pub(super) const SOURCE: &str = "file";

/// Parts with a stored position, and the position, by the inode of their file.
pub(super) type UnclaimedPositions = HashMap<Inode, Vec<(String, Bytes)>>;
/// Parts and their positions by the name of their file.
pub(super) type LeftBehind = HashMap<String, (String, Position)>;

/// Lists stored positions that may be of this input's files.
pub(super) async fn list(
    settings: &Settings,
    context: &Context,
) -> Result<(UnclaimedPositions, LeftBehind), InputError> {
    let (mut unclaimed, mut left_behind) = (UnclaimedPositions::new(), LeftBehind::new());
    let listed = if settings.stored { context.positions.list(SOURCE).await? } else { Vec::new() };
    for (partition, position) in listed {
        let (file, input) = parts(&partition);
        let Some(inode) = Inode::of_file(file) else { continue };
        let own = input == Some(&*context.source);
        if !own && input.is_some_and(|input| context.siblings.iter().any(|sibling| &**sibling == input)) {
            continue;
        }
        if !own && let Some(decoded) = Position::decode(&position) {
            let newer = left_behind.get(file).is_none_or(|(_, other)| other.seconds < decoded.seconds);
            if newer {
                left_behind.insert(file.to_owned(), (partition.clone(), decoded));
            }
        }
        // Where there are others, they may be theirs.
        if own || context.siblings.is_empty() {
            unclaimed.entry(inode).or_default().push((partition, position));
        }
    }
    Ok((unclaimed, left_behind))
}

impl Watch {
    /// Claims the position of a file: an earlier owner moves it no more. Returns it, and whether another input left it behind.
    pub(super) async fn claim(
        &mut self,
        tracked: &mut OpenFile,
        name: &str,
    ) -> Result<(Option<Position>, bool), InputError> {
        let partition = partition(name, &self.context.source);
        (tracked.sent, tracked.epoch) = self.context.positions.claim(SOURCE, &partition).await?;
        let mut position = tracked.sent.as_deref().and_then(Position::decode);
        let left_behind = self.left_behind.remove(name).map(|(part, _)| part);
        let mut inherited = false;
        match (position, left_behind) {
            (None, left_behind) => {
                // Its owner may still have batches under way: they come too late from here on, and are read again.
                let former = if tracked.early { self.context.former.as_slice() } else { &[] };
                let parts = former.iter().map(|former| self::partition(name, former));
                for part in left_behind.into_iter().chain(parts) {
                    let (left, _) = self.context.positions.claim(SOURCE, &part).await?;
                    let Some(left) = left.as_deref().and_then(Position::decode) else { continue };
                    if position.is_none_or(|newest| newest.seconds < left.seconds) {
                        // It stays until this input's own position is there for sure: at the next start.
                        (position, tracked.left_behind) = (Some(left), Some(part));
                    }
                }
                inherited = position.is_some();
            }
            (Some(_), Some(part)) => forget_part(&self.context, &part).await,
            (Some(_), None) => {}
        }
        Ok((position, inherited))
    }

    /// Forgets how far a file was read.
    pub(super) async fn forget(&mut self, tracked: &mut OpenFile) {
        if let Some(previous) = tracked.sent.take() {
            let partition = partition(&tracked.name, &self.context.source);
            forget(&self.context, partition, previous, tracked.epoch).await;
        }
        if let Some(part) = tracked.left_behind.take() {
            forget_part(&self.context, &part).await;
        }
    }
}

/// Forgets positions of files that were not seen for long.
pub(super) async fn forget_old(settings: &Settings, context: &Context, parts: Vec<(String, Bytes)>) {
    let oldest = Utc::now().timestamp().saturating_sub(seconds(settings.clean_after));
    for (partition, position) in parts {
        if Position::decode(&position).is_none_or(|position| position.seconds >= oldest) {
            continue;
        }
        forget_part(context, &partition).await;
    }
}

async fn forget_part(context: &Context, partition: &str) {
    if let Ok((Some(previous), owner_epoch)) = context.positions.claim(SOURCE, partition).await {
        forget(context, partition.to_owned(), previous, owner_epoch).await;
    }
}

async fn forget(context: &Context, partition: String, previous: Bytes, owner_epoch: u64) {
    let position = Some(Move {
        source: SOURCE.to_owned(),
        partition,
        previous: Some(previous),
        new: Bytes::new(),
        owner_epoch,
    });
    let batch = Batch { events: Vec::new(), position, ack: Ack::none(), held: Reservation::default() };
    let mut stopping = context.stopping.clone();
    tokio::select! {
        biased;
        () = stopped(&mut stopping) => {}
        // What is not forgotten now is forgotten after another start.
        _ = context.batches.send(batch) => {}
    }
}
