//! The queue as an input: the events on disk, from the stored position on, in batches with positions.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use millrace_ingest::batch::NotStored;
use millrace_ingest::budget::Reservation;
use millrace_ingest::input::{Context, Input, InputError};
use millrace_ingest::{Ack, Batch, Event, Move, Provenance};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use super::segment::{self, Damage, Item, RecordPosition};
use super::{LONGEST_PAUSE, Spool};

/// Identity of the source. A pipeline has one queue.
const SOURCE: &str = "queue";
const PARTITION: &str = "0";
/// Batches that were sent and not acknowledged.
const IN_FLIGHT: usize = 16;
/// Bytes of records that make one batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Damaged parts that are passed over for one batch.
const MAX_LOST: usize = 64;

/// Reads a queue.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) spool: Arc<Spool>,
}

/// A batch that is under way.
struct InFlightBatch {
    after: RecordPosition,
    stored: oneshot::Receiver<Result<(), NotStored>>,
}

/// Result of one scan of the files.
struct QueueScan {
    /// None, if all that there was is damaged.
    events: Vec<Event>,
    after: RecordPosition,
    /// Records that were skipped on the way.
    lost: Vec<DamagedRecord>,
}

/// A part of a file that cannot be read.
struct DamagedRecord {
    path: PathBuf,
    segment: u64,
    damage: Damage,
}

#[async_trait]
impl Input for Source {
    fn identity(&self) -> String {
        SOURCE.to_owned()
    }

    async fn run(&self, mut context: Context) -> Result<(), InputError> {
        loop {
            match self.read_on(&mut context).await? {
                None => return Ok(()),
                // Read again from what is stored.
                Some(NotStored::Moved) => {}
                Some(ended @ NotStored::Ended) => return Err(InputError(ended.to_string())),
                Some(NotStored::Overloaded(_)) => {
                    tokio::select! {
                        () = tokio::time::sleep(LONGEST_PAUSE) => {}
                        _ = context.stopping.wait_for(|stopping| *stopping) => return Ok(()),
                    }
                }
            }
        }
    }
}

impl Source {
    /// Reads from the stored position until it is to stop (`None`) or a batch was not stored.
    async fn read_on(&self, context: &mut Context) -> Result<Option<NotStored>, InputError> {
        let (position, owner_epoch) = context.positions.claim(SOURCE, PARTITION).await?;
        let stored = match &position {
            None => RecordPosition::default(),
            Some(position) => RecordPosition::from_position(position)
                .ok_or_else(|| InputError("the stored position of the queue is none".to_owned()))?,
        };
        self.spool.stored(stored);
        let mut previous = position;
        let mut place = stored;
        let mut sent: VecDeque<InFlightBatch> = VecDeque::new();
        let mut end = self.spool.end.subscribe();
        loop {
            end.borrow_and_update();
            let mut found = None;
            let mut held = Reservation::default();
            if sent.len() < IN_FLIGHT && self.is_behind(place) {
                held = tokio::select! {
                    held = context.budget.wait_for_piece() => held,
                    _ = context.stopping.wait_for(|stopping| *stopping) => return Ok(None),
                };
                found = self.read(place, context.batch_size.get(), held.bytes()).await?;
            }
            if let Some(QueueScan { events, after, lost }) = found {
                lost.iter().for_each(|lost| self.tell(lost));
                held.set(events.iter().map(Event::bytes).sum());
                let (ack, stored) = Ack::channel();
                let position = Move {
                    source: SOURCE.to_owned(),
                    partition: PARTITION.to_owned(),
                    previous: previous.replace(after.to_position()),
                    new: after.to_position(),
                    owner_epoch,
                };
                let batch = Batch { events, position: Some(position), ack, held };
                tokio::select! {
                    room = context.batches.send(batch) => if room.is_err() {
                        return Ok(None);
                    },
                    _ = context.stopping.wait_for(|stopping| *stopping) => return Ok(None),
                }
                sent.push_back(InFlightBatch { after, stored });
                place = after;
                while let Some(first) = sent.front_mut() {
                    let Ok(outcome) = first.stored.try_recv() else { break };
                    if let Err(refused) = self.ended(&mut sent, Ok(outcome)) {
                        return Ok(Some(refused));
                    }
                }
                continue;
            }
            tokio::select! {
                outcome = first(&mut sent) => if let Err(refused) = self.ended(&mut sent, outcome) {
                    return Ok(Some(refused));
                },
                _ = end.changed(), if sent.len() < IN_FLIGHT => {}
                _ = context.stopping.wait_for(|stopping| *stopping) => return Ok(None),
            }
        }
    }

    /// Takes note of what became of the first batch that is under way.
    fn ended(
        &self,
        sent: &mut VecDeque<InFlightBatch>,
        outcome: Result<Result<(), NotStored>, RecvError>,
    ) -> Result<(), NotStored> {
        outcome.unwrap_or(Err(NotStored::Ended))?;
        if let Some(first) = sent.pop_front() {
            self.spool.stored(first.after);
        }
        Ok(())
    }

    /// Reports the loss, once: events that were not stored are read again.
    fn tell(&self, lost: &DamagedRecord) {
        let Damage { offset, length, events } = lost.damage;
        let after = RecordPosition::new(lost.segment, lost.damage.end());
        {
            let mut told = self.spool.told.lock();
            if after <= *told {
                return;
            }
            *told = after;
        }
        let path = lost.path.display();
        let events = match events {
            Some(1) => "1 event".to_owned(),
            Some(events) => format!("{events} events"),
            None => "an unknown number of events".to_owned(),
        };
        tracing::error!(%path, offset, length, events, "a part of the queue on disk is damaged: its events are lost, what is behind it is read");
        let what = format!("{length} bytes of {path} are damaged from offset {offset} on: {events} lost");
        (self.spool.note)(what);
    }

    /// Returns whether something may lie behind a place.
    fn is_behind(&self, place: RecordPosition) -> bool {
        place < *self.spool.end.borrow()
    }

    /// Reads what lies behind a place, if anything does.
    async fn read(
        &self,
        place: RecordPosition,
        most: usize,
        bytes: u64,
    ) -> Result<Option<QueueScan>, InputError> {
        let spool = Arc::clone(&self.spool);
        let found = tokio::task::spawn_blocking(move || read_at(&spool, place, most, bytes)).await;
        let found = found.map_err(|error| InputError(format!("the queue was not read: {error}")))?;
        found.map_err(|error| {
            InputError(format!("the queue in {} cannot be read: {error}", self.spool.directory.display()))
        })
    }
}

/// Awaits the outcome of the first batch in flight; never ends if there is none.
async fn first(sent: &mut VecDeque<InFlightBatch>) -> Result<Result<(), NotStored>, RecvError> {
    match sent.front_mut() {
        Some(first) => (&mut first.stored).await,
        None => std::future::pending().await,
    }
}

fn read_at(spool: &Spool, place: RecordPosition, most: usize, room: u64) -> io::Result<Option<QueueScan>> {
    let mut place = place;
    let mut taken = 0;
    loop {
        let Some((number, bytes)) = spool.segment_from(place.segment) else { return Ok(None) };
        if number > place.segment {
            place = RecordPosition::new(number, 0);
        }
        if place.offset >= bytes {
            match spool.segment_from(number + 1) {
                Some((next, _)) => {
                    place = RecordPosition::new(next, 0);
                    continue;
                }
                None => return Ok(None),
            }
        }
        let path = segment::path(&spool.directory, number);
        let file = File::open(&path)?;
        let (mut events, mut lost) = (Vec::new(), Vec::new());
        let begin = place.offset;
        while place.offset < bytes
            && (events.is_empty() || (place.offset - begin < BATCH_BYTES && taken < room))
            && lost.len() < MAX_LOST
        {
            let mut lose = |damage| lost.push(DamagedRecord { path: path.clone(), segment: number, damage });
            let (payload, length) = match segment::next(&file, place.offset, bytes)? {
                Item::Record { payload, length } => (payload, length),
                Item::Damaged(damage) => {
                    lose(damage);
                    place.offset = damage.end();
                    continue;
                }
            };
            let Some(mut more) = segment::decode(&payload) else {
                lose(Damage { offset: place.offset, length, events: None });
                place.offset += length;
                continue;
            };
            if !events.is_empty() && events.len() + more.len() > most {
                break;
            }
            let mut provenance = Provenance::new(place.offset.into(), place.segment);
            for event in &mut more {
                event.set_provenance(Some(provenance));
                provenance = provenance.next();
            }
            taken += more.iter().map(Event::bytes).sum::<u64>();
            events.extend(more);
            place.offset += length;
        }
        return Ok(Some(QueueScan { events, after: place, lost }));
    }
}
