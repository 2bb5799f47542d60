//! The task that sends: it reads rows that are due, has lanes say which go when, and writes what became of them.
//!
//! One task ([`EventLoop`]) does all reading and writing, so a row is let go only after what became of it is durable, and is not read before. What ends within a moment is
//! written in one frame. While that cannot be written, rows that were sent stay here, and are not sent again unless the
//! server ends before: then they are, under the same key.

mod channel_queues;
mod deliver;
mod row;
mod store;

use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::{EventHandler, EventLoop, Instant, Mailbox};
use tokio::time::timeout;

use self::channel_queues::{ChannelQueues, SendStart};
pub use self::deliver::{ChannelTestReport, StandaloneMessage};
pub(crate) use self::deliver::{post, test};
pub(crate) use self::row::RowKind;
use self::row::Unit;
use self::store::{DeliveryOutcome, MAX_TOGETHER};
use crate::figures::AttemptOutcome;
use crate::{NotifierState, hash};

/// Time that outcomes wait for others, to be written with them.
const GATHERED: Duration = Duration::from_millis(20);
/// Rows that are written at once, at most.
const MAX_WRITTEN: usize = 500;
/// Interval between two checks for due rows, without a wake-up.
const LOOK: Duration = Duration::from_secs(5);
/// Wait before a local failure is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Time that a shutdown waits for deliveries in flight.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two removals of rows that were kept for a while.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval between two counts of rows that are due.
const COUNT: Duration = Duration::from_secs(15);

/// Completions that wait for the loop, at most; at the bound, deliveries that have ended wait to say so.
pub(crate) const MAILBOX_CAPACITY: usize = 256;

/// Something that was started has ended.
pub(crate) struct SendCompletion {
    unit: Unit,
    fate: DeliveryOutcome,
    took_ms: i64,
}

/// The state of the loop that sends.
struct Sender {
    shared: Arc<NotifierState>,
    lanes: ChannelQueues,
    /// Outcomes that are to be written, each with a flag for a reported delay.
    ended: Vec<(Unit, DeliveryOutcome, bool)>,
    ended_since: Option<Instant>,
    /// `true` if rows may be due that are not here.
    look: bool,
    next_look: Instant,
    next_sweep: Instant,
    next_count: Instant,
    /// When reading and writing are tried again that failed.
    retry_at: Option<Instant>,
    began_ms: i64,
}

/// Starts to send; ends as [`EventLoop::drain`] says.
pub(crate) fn spawn(shared: &Arc<NotifierState>, mailbox: Mailbox<SendCompletion>) -> EventLoop {
    let now = Instant::now();
    let sender = Sender {
        lanes: ChannelQueues::new(shared.config.per_minute),
        ended: Vec::new(),
        ended_since: None,
        look: true,
        next_look: now,
        next_sweep: now + SWEEP,
        next_count: now + COUNT,
        retry_at: None,
        began_ms: shared.engine.clock().now_ms(),
        shared: Arc::clone(shared),
    };
    EventLoop::spawn(sender, mailbox)
}

impl EventHandler for Sender {
    type Message = SendCompletion;

    async fn handle(&mut self, completion: SendCompletion) {
        self.take(completion);
    }

    async fn run_due(&mut self) -> Option<Instant> {
        if let Some(retry_at) = self.retry_at.filter(|at| Instant::now() < *at) {
            return Some(retry_at);
        }
        self.retry_at = match self.step().await {
            Ok(()) => None,
            Err(reason) => {
                let fault = format!("notifications cannot be read or written: {reason}");
                self.shared.set_fault(Some(fault));
                Some(Instant::now() + RETRY)
            }
        };
        self.retry_at.or_else(|| Some(self.wakes_at()))
    }

    fn wake(&mut self) {
        self.look = true;
    }

    fn is_stopping(&self) -> bool {
        self.shared.engine.is_stopping()
    }

    async fn drain(mut self, mailbox: &mut Mailbox<SendCompletion>) {
        let rest = async {
            while !self.lanes.is_idle() {
                match mailbox.receive().await {
                    Some(completion) => self.take(completion),
                    None => break,
                }
            }
        };
        let _ = timeout(PATIENCE, rest).await;
        if let Err(reason) = self.write().await {
            tracing::warn!(
                reason,
                "what became of the last notifications was not written: they are sent again"
            );
        }
    }
}

impl Sender {
    fn now_ms(&self) -> i64 {
        self.shared.engine.clock().now_ms()
    }

    /// Does what can be done now.
    async fn step(&mut self) -> store::Result<()> {
        let is_due = self.ended_since.is_some_and(|since| since.elapsed() >= GATHERED);
        if is_due || self.ended.len() >= MAX_WRITTEN {
            self.write().await?;
        }
        if self.look || Instant::now() >= self.next_look {
            self.read().await?;
        }
        self.start().await?;
        if Instant::now() >= self.next_count {
            self.next_count = Instant::now() + COUNT;
            store::count_due(&self.shared, self.now_ms()).await?;
        }
        if Instant::now() >= self.next_sweep {
            let more = self.give_up().await? | store::sweep(&self.shared, self.began_ms).await?;
            self.next_sweep = Instant::now() + if more { RETRY } else { SWEEP };
        }
        self.shared.set_fault(None);
        Ok(())
    }

    /// Returns when there is something to do, if nothing else happens.
    fn wakes_at(&mut self) -> Instant {
        let (now, now_ms) = (Instant::now(), self.now_ms());
        let mut until = self.next_look.min(self.next_sweep);
        if let Some(since) = self.ended_since {
            until = until.min(since + GATHERED);
        }
        if self.look {
            return now;
        }
        if let Some(at_ms) = self.lanes.wakes_at(now_ms) {
            let wait = Duration::from_millis(u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0).max(1));
            until = until.min(now + wait);
        }
        until
    }

    fn take(&mut self, ended: SendCompletion) {
        let SendCompletion { unit, fate, took_ms } = ended;
        let Some(channel) = unit.rows.first().map(|row| row.channel.clone()) else { return };
        let again = matches!(fate, DeliveryOutcome::Again(_));
        // A recipient who cannot be reached says nothing of the channel.
        let well = !matches!(&fate, DeliveryOutcome::Again(failure) if !failure.of_recipients);
        // The first failure of a row in a row of failures is told: those that follow have the same reason, mostly.
        let tell = again && !self.lanes.fails(&channel) && unit.rows.iter().all(|row| row.attempts == 0);
        let outcome = match &fate {
            DeliveryOutcome::Sent(_) => Some(AttemptOutcome::Sent),
            DeliveryOutcome::Again(_) => Some(AttemptOutcome::Retried),
            DeliveryOutcome::Lost(_) => Some(AttemptOutcome::GivenUp),
            DeliveryOutcome::Dropped => None,
        };
        if let Some(outcome) = outcome {
            self.record(&unit, outcome);
        }
        let now_ms = self.now_ms();
        self.lanes.ended(&channel, well, took_ms, now_ms);
        self.ended.push((unit, fate, tell));
        self.ended_since.get_or_insert_with(Instant::now);
    }

    /// Adds the end of an attempt to the figures.
    fn record(&self, unit: &Unit, outcome: AttemptOutcome) {
        let now_ms = self.now_ms();
        for row in &unit.rows {
            // Each retry replaces the due time; the end has the first one.
            let first_due = row.expires.saturating_sub(self.shared.give_up_ms());
            let took_ms = u64::try_from(now_ms.saturating_sub(first_due)).unwrap_or(0);
            self.shared.figures.record(row.kind, outcome, Duration::from_millis(took_ms));
        }
    }

    /// Writes what became of rows, and lets them go.
    async fn write(&mut self) -> store::Result<()> {
        while !self.ended.is_empty() {
            let mut rows = 0;
            let fits = |(unit, _, _): &&(Unit, DeliveryOutcome, bool)| {
                rows += unit.rows.len();
                rows <= MAX_WRITTEN.max(MAX_TOGETHER)
            };
            let count = self.ended.iter().take_while(fits).count().max(1);
            store::finish(&self.shared, &self.ended[..count]).await?;
            for (unit, _, _) in self.ended.drain(..count) {
                self.lanes.release(&unit);
            }
        }
        self.ended_since = None;
        self.look = true;
        Ok(())
    }

    /// Gives rows up whose time is over, and which had no turn because their channel fails; returns whether there may be more.
    async fn give_up(&mut self) -> store::Result<bool> {
        let now_ms = self.now_ms();
        if now_ms < self.began_ms.saturating_add(store::OVERDUE_MS) {
            return Ok(false);
        }
        let found = store::overdue(&self.shared, now_ms).await?;
        let more = found.len() == store::PAGE;
        let reason = "its channel failed for as long as it is tried";
        let lost = found.into_iter().filter(|row| !self.lanes.holds(&row.id));
        let lost: Vec<_> =
            lost.map(|row| (Unit::one(row), DeliveryOutcome::Lost(reason.to_owned()), false)).collect();
        store::finish(&self.shared, &lost).await?;
        lost.iter().for_each(|(unit, ..)| self.record(unit, AttemptOutcome::GivenUp));
        Ok(more)
    }

    /// Reads rows that are due, as many as can be held.
    async fn read(&mut self) -> store::Result<()> {
        self.look = false;
        self.next_look = Instant::now() + LOOK;
        if !store::refresh(&self.shared).await? {
            return Ok(());
        }
        while self.lanes.has_room() {
            let now_ms = self.now_ms();
            let (channels, held) = self.lanes.passed_over(now_ms);
            let (rows, more) = store::due(&self.shared, now_ms, channels, held).await?;
            let mut taken = 0;
            for row in rows {
                // Asked first: reading and storing what is told together with it would be for nothing.
                if self.lanes.holds(&row.id) || !self.lanes.has_room_for(&row.channel, now_ms) {
                    continue;
                }
                let unit = match row.group.is_some() || row.batch.is_some() {
                    false => Unit::one(row),
                    true => self.gathered(&row).await?,
                };
                let rows = unit.rows.len();
                if rows > 0 && self.lanes.offer(unit, now_ms) {
                    taken += rows;
                }
            }
            if !more || taken == 0 {
                break;
            }
        }
        let now_ms = self.now_ms();
        if let Some(at_ms) = store::next_due(&self.shared, now_ms).await? {
            let wait = u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0).max(1);
            self.next_look = self.next_look.min(Instant::now() + Duration::from_millis(wait));
        }
        Ok(())
    }

    /// Reads what is told together with a row, and stores that it is.
    async fn gathered(&self, row: &row::Row) -> store::Result<Unit> {
        let mut rows = store::together(&self.shared, row).await?;
        rows.retain(|row| !self.lanes.holds(&row.id));
        self.batched(rows).await
    }

    /// Makes one notification of rows. Its key is stored before it is sent, so that it is sent again under the same.
    async fn batched(&self, rows: Vec<row::Row>) -> store::Result<Unit> {
        if let Some(batch) = rows.first().and_then(|row| row.batch.clone()) {
            return Ok(Unit { batch: Some(batch), rows });
        }
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let batch = hash(&ids);
        let mut unit = Unit { batch: Some(batch.clone()), rows };
        if unit.rows.len() == 1 && unit.rows[0].group.is_none() {
            unit.batch = None;
            return Ok(unit);
        }
        store::assign(&self.shared, &unit).await?;
        for row in &mut unit.rows {
            row.batch = Some(batch.clone());
        }
        Ok(unit)
    }

    /// Starts what may be sent now.
    async fn start(&mut self) -> store::Result<()> {
        while let Some(start) = self.lanes.start(self.now_ms()) {
            let unit = match start {
                SendStart::Unit(unit) => unit,
                SendStart::Digest(rows) => {
                    let kept = Unit { batch: None, rows: rows.clone() };
                    match self.batched(rows).await {
                        Ok(unit) => unit,
                        Err(reason) => {
                            // They are in the index still.
                            self.lanes.ended(
                                &kept.rows[0].channel,
                                true,
                                0,
                                self.shared.engine.clock().now_ms(),
                            );
                            self.lanes.release(&kept);
                            self.look = true;
                            return Err(reason);
                        }
                    }
                }
            };
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                let began = Instant::now();
                let fate = deliver::deliver(&shared, &unit).await;
                let took_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
                // Nobody is there at the end only.
                let _ = shared.sender.send(SendCompletion { unit, fate, took_ms }).await;
            });
        }
        Ok(())
    }
}
