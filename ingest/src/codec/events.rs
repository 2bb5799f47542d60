//! Events of decoders: a list that counts its bytes, and ends where there is no memory for them.

use std::ops::{Deref, DerefMut};

use crate::budget::{Reservation, ShareExceeded};
use crate::{Event, Provenance};

/// Bytes that are reserved ahead of the events, so that not each of them asks.
const STEP: u64 = 256 << 10;

/// Events that were decoded.
#[derive(Debug, Default)]
pub struct Events {
    list: Vec<Event>,
    /// Bytes of all of them ([`Event::bytes`]), with those that their input adds.
    bytes: u64,
    /// Bytes that their input adds to each.
    each: u64,
    bound: Bound,
    /// Provenance of the next event, where the source can tell.
    next: Option<Provenance>,
    /// Why events were dropped.
    exceeded: Option<ShareExceeded>,
}

/// Bound of the events.
#[derive(Debug, Default)]
enum Bound {
    /// The decoder watches [`Events::bytes`] by itself.
    #[default]
    None,
    /// A reservation that grows with them, and the bytes of it that are for something else.
    Room(Reservation, u64),
    /// They may come to so many bytes, but for the one with this number.
    Piece { until: u64, first: usize },
}

impl Events {
    /// Makes a list whose events grow a reservation, beside the bytes that it has; `each` is what will be added to every
    /// event. Where it cannot grow, events are dropped ([`Self::is_full`]).
    pub fn within(reservation: Reservation, each: u64) -> Self {
        let taken = reservation.bytes();
        Self { each, bound: Bound::Room(reservation, taken), ..Self::default() }
    }

    /// Sets the bytes that will be added to each event from here on.
    pub(crate) fn set_each(&mut self, bytes: u64) {
        self.each = bytes;
    }

    /// Begins a record of the source: events are from there until the next one begins.
    pub fn begin_record(&mut self, record: u128, incarnation: u64) {
        self.next = Some(Provenance::new(record, incarnation));
    }

    /// Returns the provenance of an event that begins now.
    pub(super) fn here(&mut self) -> Option<Provenance> {
        let here = self.next;
        self.next = here.map(Provenance::next);
        here
    }

    /// Begins a piece whose events may take so many bytes more, a single one any number.
    pub(crate) fn begin_piece(&mut self, most: u64) {
        self.bound = Bound::Piece { until: self.bytes.saturating_add(most), first: self.list.len() };
    }

    /// Ends a piece; whether all of its events are there. Otherwise none of them is.
    pub(crate) fn end_piece(&mut self) -> bool {
        let bound = std::mem::take(&mut self.bound);
        match (self.exceeded.take(), bound) {
            (Some(_), Bound::Piece { first, .. }) => {
                self.truncate(first);
                false
            }
            _ => true,
        }
    }

    /// Adds an event. It is from the record that was begun last, unless it says where it is from.
    pub fn push(&mut self, mut event: Event) {
        if event.provenance().is_none() {
            event.set_provenance(self.here());
        }
        let bytes = event.bytes() + self.each;
        let alone = matches!(self.bound, Bound::Piece { first, .. } if first == self.list.len());
        if (alone && !self.is_full()) || self.has_room(bytes) {
            self.bytes += bytes;
            self.list.push(event);
        }
    }

    /// Changes the last event. It is dropped where it grows by more than there is room for.
    pub(crate) fn change_last(&mut self, change: impl FnOnce(&mut Event)) {
        let Some(mut event) = self.list.pop() else { return };
        self.bytes = self.bytes.saturating_sub(event.bytes() + self.each);
        change(&mut event);
        self.push(event);
    }

    /// Returns whether there is room for so many bytes more; if not, events are dropped from now on.
    pub(crate) fn has_room(&mut self, bytes: u64) -> bool {
        if self.exceeded.is_some() {
            return false;
        }
        let all = self.bytes.saturating_add(bytes);
        let outcome = match &mut self.bound {
            Bound::None => Ok(()),
            Bound::Piece { until, .. } if all > *until => Err(ShareExceeded::Never(*until)),
            Bound::Piece { .. } => Ok(()),
            Bound::Room(reservation, taken) => {
                match taken.saturating_add(all).saturating_sub(reservation.bytes()) {
                    0 => Ok(()),
                    missing => reservation.grow(missing.max(STEP)).or_else(|_| reservation.grow(missing)),
                }
            }
        };
        self.exceeded = outcome.err();
        self.exceeded.is_none()
    }

    /// Returns whether events were dropped for want of memory: further decoded events are dropped too.
    pub fn is_full(&self) -> bool {
        self.exceeded.is_some()
    }

    /// Drops the events behind the first so many.
    pub(crate) fn truncate(&mut self, length: usize) {
        for event in self.list.get(length..).unwrap_or_default() {
            self.bytes = self.bytes.saturating_sub(event.bytes() + self.each);
        }
        let first = self.list.get(length).and_then(Event::provenance);
        if let (Some(first), Some(next)) = (first, self.next)
            && (first.record, first.incarnation) == (next.record, next.incarnation)
        {
            self.next = Some(first);
        }
        self.list.truncate(length);
    }

    /// Bytes that the events take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands the events over.
    pub fn into_vec(self) -> Vec<Event> {
        self.list
    }

    /// Hands the events over, with a reservation for them and nothing else.
    ///
    /// # Errors
    /// Why some were dropped.
    pub fn into_parts(self) -> Result<(Vec<Event>, Reservation), ShareExceeded> {
        if let Some(exceeded) = self.exceeded {
            return Err(exceeded);
        }
        let mut reservation = match self.bound {
            Bound::Room(reservation, _) => reservation,
            Bound::None | Bound::Piece { .. } => Reservation::default(),
        };
        reservation.set(self.bytes);
        Ok((self.list, reservation))
    }
}

impl Deref for Events {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.list
    }
}

impl DerefMut for Events {
    fn deref_mut(&mut self) -> &mut [Event] {
        &mut self.list
    }
}
