//! Finds files, reads them in turns, and follows what becomes of their batches.
//!
//! One task does it all; what touches files runs on blocking threads. A file's batches go to the pipeline in order,
//! a few ahead of what is stored; where one is not stored, the file is read again from its stored position.
//!
//! `discovery` finds files and opens them, `room` closes some where others wait, `tracked` says what is known of one, `turn` reads it, `delivery` hands its batches
//! on and hears of them, `stored` has the positions that are kept.

mod delivery;
mod discovery;
mod room;
mod stored;
pub(super) mod tracked;
mod turn;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use millrace_runtime::Instant;
use tokio::sync::watch;

use self::delivery::AcknowledgedBatch;
use self::stored::{LeftBehind, UnclaimedPositions};
use self::tracked::{Candidate, ClosedFile, OpenFile};
use self::turn::NextAction;
use super::Settings;
use super::position::Inode;
use crate::input::{Context, InputError, stopped};

/// The running input.
pub(super) struct Watch {
    settings: Arc<Settings>,
    context: Context,
    stopping: watch::Receiver<bool>,
    files: BTreeMap<Inode, OpenFile>,
    /// Files that are not open.
    closed: HashMap<Inode, ClosedFile>,
    /// Files that are to be opened once there is room, those first that waited longest.
    waiting: VecDeque<Candidate>,
    /// Files that were closed, counted.
    closings: u64,
    acks: FuturesUnordered<BoxFuture<'static, AcknowledgedBatch>>,
    /// Parts with a stored position that no file was found for yet.
    unclaimed: UnclaimedPositions,
    /// Parts by the name of their file that belong to no input of the pipeline: positions of an earlier version, or of an
    /// input that was written otherwise. Who finds the file goes on from there.
    left_behind: LeftBehind,
    discovered: Option<Instant>,
    /// `true` if files are looked for the first time.
    looks_first: bool,
    generations: u64,
}

impl Watch {
    pub(super) async fn begin(settings: Arc<Settings>, context: Context) -> Result<Self, InputError> {
        let (unclaimed, left_behind) = stored::list(&settings, &context).await?;
        let stopping = context.stopping.clone();
        Ok(Self {
            settings,
            context,
            stopping,
            files: BTreeMap::new(),
            closed: HashMap::new(),
            waiting: VecDeque::new(),
            closings: 0,
            acks: FuturesUnordered::new(),
            unclaimed,
            left_behind,
            discovered: None,
            looks_first: true,
            generations: 0,
        })
    }

    pub(super) async fn run(mut self) -> Result<(), InputError> {
        loop {
            if *self.stopping.borrow() {
                return Ok(());
            }
            if self.discovered.is_none_or(|last| last.elapsed() >= self.settings.discover_interval) {
                self.discover().await?;
            }
            let mut progress = false;
            let inodes: Vec<Inode> = self.files.keys().copied().collect();
            for inode in inodes {
                while let Some(acked) = futures::FutureExt::now_or_never(self.acks.next()).flatten() {
                    self.acked(acked);
                }
                let Some(mut tracked) = self.files.remove(&inode) else { continue };
                match self.read_some(inode, &mut tracked).await? {
                    NextAction::Stop => return Ok(()),
                    NextAction::Close => self.close(inode, tracked, false).await,
                    NextAction::More => {
                        progress = true;
                        self.files.insert(inode, tracked);
                    }
                    NextAction::Wait => {
                        self.files.insert(inode, tracked);
                    }
                }
            }
            if !self.waiting.is_empty() {
                self.make_room().await;
                progress |= self.open_waiting().await > 0;
            }
            let has_looked = self.discovered.is_some() && self.waiting.is_empty();
            if self.settings.exit_after_read && has_looked && self.files.is_empty() && self.acks.is_empty() {
                return Ok(());
            }
            if progress {
                tokio::task::yield_now().await;
                continue;
            }
            self.pause().await;
        }
    }

    /// Waits until there may be something to do.
    async fn pause(&mut self) {
        let (acks, stopping) = (&mut self.acks, &mut self.stopping);
        let acked = async {
            match acks.next().await {
                Some(acked) => acked,
                None => std::future::pending().await,
            }
        };
        let acked = tokio::select! {
            biased;
            () = stopped(stopping) => None,
            acked = acked => Some(acked),
            () = tokio::time::sleep(self.settings.stat_interval) => None,
        };
        match acked {
            Some(acked) => self.acked(acked),
            None => {
                if self.was_rotated() {
                    self.discovered = None;
                }
            }
        }
    }

    fn generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }
}
