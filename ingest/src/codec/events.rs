//! Events of decoders: a list that counts its bytes, and ends where there is no memory for them.
//!
//! The decoder of a stream may write documents to a block ([`Events::push_document`], or [`Events::begin_block`] for what readers of JSON
//! scan). Their events get them when the block ends, so a decoder ends its block before it returns ([`Events::end_block`]).
//!
//! The list of an input that decodes all of its source in one call hands its events on in chunks ([`Events::in_chunks`]): as soon as
//! they take the memory of one. Decoders need not know: they only find fewer events in the list than they have added.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::budget::{Reservation, ShareExceeded};
use crate::event::{Additions, BlockEvent, DocumentBlockBuilder, DocumentRange, Scratch};
use crate::{Event, Provenance};

/// Bytes that are reserved ahead of the events, so that not each of them asks.
const STEP: u64 = 256 << 10;

/// Most events for which there is room before they come.
const MAX_EXPECTED: usize = 8_192;

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
    /// Number of events that were handed on.
    handed_on: usize,
    /// `true` once nobody takes events any more.
    is_closed: bool,
    /// Members and metadata that the input gives each event.
    additions: Additions,
    block: DocumentBlockBuilder,
    /// Numbers of events that get documents of the block.
    pending: Vec<(usize, DocumentRange)>,
    /// Events of the last list that was handed over: the next one has room for as many from its first event on.
    expected: usize,
    /// `true` if events may be in blocks.
    has_blocks: bool,
    /// `true` while what is scanned goes to the block.
    is_scanned_to_block: bool,
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
    /// They are handed on before they take more bytes than `most`, but for a single one, which may have `most_of_one`.
    Chunks { most: u64, most_of_one: u64, sink: ChunkSink },
}

/// Takes a chunk of events, with `true` for the last one, and returns once there is memory for another; `false` where no more are taken.
pub(crate) struct ChunkSink(Box<dyn FnMut(Vec<Event>, bool) -> bool + Send>);

impl ChunkSink {
    /// Makes a sink of a function.
    pub(crate) fn new(take: impl FnMut(Vec<Event>, bool) -> bool + Send + 'static) -> Self {
        Self(Box::new(take))
    }
}

impl fmt::Debug for ChunkSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkSink").finish_non_exhaustive()
    }
}

impl Events {
    /// Makes a list whose events grow a reservation, beside the bytes that it has; `each` is what will be added to every
    /// event. Where it cannot grow, events are dropped ([`Self::is_full`]).
    pub fn within(reservation: Reservation, each: u64) -> Self {
        let taken = reservation.bytes();
        Self { each, bound: Bound::Room(reservation, taken), ..Self::default() }
    }

    /// Makes a list that hands its events on before they take more than `most` bytes. There is no room for a value of more than
    /// `most_of_one`, and others go on behind it. `each` is the number of bytes that will be added to every event. Events that were
    /// handed on are not taken back: a value of JSON that turns out to be none then keeps the events before the fault.
    pub(crate) fn in_chunks((most, most_of_one): (u64, u64), each: u64, sink: ChunkSink) -> Self {
        Self { each, bound: Bound::Chunks { most, most_of_one, sink }, ..Self::default() }
    }

    /// Returns whether events are handed on while others are decoded.
    pub(super) fn is_handed_on_in_chunks(&self) -> bool {
        matches!(self.bound, Bound::Chunks { .. })
    }

    /// Returns the number of all events so far, with those that were handed on.
    pub(super) fn total(&self) -> usize {
        self.handed_on + self.list.len()
    }

    /// Hands on the events that are there as the last chunk, which may be empty.
    pub(crate) fn end_chunks(&mut self) {
        self.hand_on(true);
    }

    fn hand_on(&mut self, is_last: bool) {
        let list = self.take_list();
        self.handed_on += list.len();
        if let Bound::Chunks { sink: ChunkSink(take), .. } = &mut self.bound
            && (is_last || !list.is_empty())
            && !take(list, is_last)
        {
            self.is_closed = true;
        }
    }

    /// Sets the bytes that will be added to each event from here on.
    pub(crate) fn set_each(&mut self, bytes: u64) {
        self.each = bytes;
    }

    /// Sets the members and metadata that each event gets from here on. Nothing else changes most of them, so that they may be in blocks.
    pub(crate) fn set_additions(&mut self, additions: Additions) {
        self.additions = additions;
        self.has_blocks = true;
    }

    /// Takes the members and metadata back that each event got.
    pub(crate) fn take_additions(&mut self) -> Additions {
        std::mem::take(&mut self.additions)
    }

    /// Begins a block for the events of scanned objects, where the input adds nothing to them by itself.
    pub(crate) fn begin_block(&mut self) {
        self.is_scanned_to_block = self.has_blocks;
        self.additions.renew();
    }

    /// Ends the block: its events get their documents.
    pub(crate) fn end_block(&mut self) {
        self.is_scanned_to_block = false;
        if self.pending.is_empty() {
            return self.block.clear();
        }
        let block = self.block.finish();
        for (at, range) in self.pending.drain(..) {
            if let Some(event) = self.list.get_mut(at) {
                event.set_document(&block, range);
            }
        }
    }

    /// Has the events that are there so far get their documents; what is scanned goes where it went before.
    fn settle_block(&mut self) {
        let is_scanned_to_block = self.is_scanned_to_block;
        self.end_block();
        self.is_scanned_to_block = is_scanned_to_block;
    }

    /// Returns the block that documents may be written to, for [`Self::push_document`].
    pub(crate) fn block(&mut self) -> &mut DocumentBlockBuilder {
        &mut self.block
    }

    /// Scans the object that a text begins with and adds its event; returns its length. `None` where it is none that can be scanned.
    pub(super) fn push_scanned(&mut self, text: &str, scratch: &mut Scratch) -> Option<usize> {
        let now = chrono::Utc::now;
        if !self.is_scanned_to_block {
            let (event, length) = Event::scan(text, scratch, now)?;
            self.push(event);
            return Some(length);
        }
        let (block, additions) = (&mut self.block, &mut self.additions);
        let (event, length) = Event::scan_to_block(text, scratch, now, block, additions)?;
        self.push_document(event);
        Some(length)
    }

    /// Adds an event that has what its input adds, and perhaps a document in the block.
    pub(crate) fn push_document(&mut self, event: BlockEvent) {
        let BlockEvent { event, document } = event;
        let (range, bytes) = document.unzip();
        if self.append(event, bytes)
            && let Some(range) = range
        {
            self.pending.push((self.list.len() - 1, range));
        }
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
        self.additions.add_to(&mut event);
        self.append(event, None);
    }

    /// Appends an event that takes so many bytes, if there is room; returns whether it did.
    fn append(&mut self, mut event: Event, bytes: Option<u64>) -> bool {
        if event.provenance().is_none() {
            event.set_provenance(self.here());
        }
        let bytes = bytes.unwrap_or_else(|| event.bytes()) + self.each;
        // An event that is there already takes its memory, whatever is done with it.
        let alone = match &self.bound {
            Bound::Piece { first, .. } => *first == self.list.len(),
            Bound::Chunks { most, .. } => bytes > *most,
            Bound::None | Bound::Room(..) => false,
        };
        if alone && self.is_handed_on_in_chunks() && !self.list.is_empty() {
            self.hand_on(false);
        }
        let has_room = (alone && !self.is_full()) || self.has_room(bytes);
        if has_room {
            self.bytes += bytes;
            if self.list.capacity() == 0 {
                self.list.reserve(self.expected);
            }
            self.list.push(event);
        }
        has_room
    }

    /// Counts the bytes of the events from a number on anew: they were counted as `before`, and changed since.
    pub(crate) fn recount(&mut self, from: usize, before: u64) {
        let changed = self.list.get(from..).unwrap_or_default();
        let bytes: u64 = changed.iter().map(|event| event.bytes() + self.each).sum();
        self.bytes = before.saturating_add(bytes);
    }

    /// Changes the last event. It is dropped where it grows by more than there is room for.
    pub(crate) fn change_last(&mut self, change: impl FnOnce(&mut Event)) {
        self.settle_block();
        let Some(mut event) = self.list.pop() else { return };
        self.bytes = self.bytes.saturating_sub(event.bytes() + self.each);
        change(&mut event);
        self.append(event, None);
    }

    /// Returns whether there is room for so many bytes more; if not, events are dropped from now on.
    pub(crate) fn has_room(&mut self, bytes: u64) -> bool {
        if self.is_full() {
            return false;
        }
        let all = self.bytes.saturating_add(bytes);
        let outcome = match &mut self.bound {
            Bound::None => Ok(()),
            Bound::Chunks { most, most_of_one, .. } => {
                let is_within = bytes <= *most_of_one;
                if all > *most {
                    self.hand_on(false);
                }
                return is_within && !self.is_closed;
            }
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
        self.exceeded.is_some() || self.is_closed
    }

    /// Drops the events behind the first so many. In a list that hands them on they stay: how many of them are left in it depends on
    /// the memory, and a source that is read again must give the same events.
    pub(crate) fn truncate(&mut self, length: usize) {
        if self.is_handed_on_in_chunks() {
            return;
        }
        self.settle_block();
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
    pub fn into_vec(mut self) -> Vec<Event> {
        self.take_list()
    }

    /// Hands the events over that are there so far.
    pub(crate) fn take_list(&mut self) -> Vec<Event> {
        self.end_block();
        self.bytes = 0;
        self.expected = self.list.len().min(MAX_EXPECTED);
        std::mem::take(&mut self.list)
    }

    /// Puts back events that were handed over and take so many bytes, in front of none, and makes room for so many.
    pub(crate) fn put_back(&mut self, mut list: Vec<Event>, bytes: u64, capacity: usize) {
        debug_assert!(self.list.is_empty(), "they are the first");
        list.reserve(capacity.saturating_sub(list.len()));
        (self.list, self.bytes) = (list, bytes);
    }

    /// Hands the events over, with a reservation for them and nothing else.
    ///
    /// # Errors
    /// Why some were dropped.
    pub fn into_parts(mut self) -> Result<(Vec<Event>, Reservation), ShareExceeded> {
        self.end_block();
        if let Some(exceeded) = self.exceeded {
            return Err(exceeded);
        }
        let mut reservation = match self.bound {
            Bound::Room(reservation, _) => reservation,
            Bound::None | Bound::Piece { .. } | Bound::Chunks { .. } => Reservation::default(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, Decoder, build};
    use crate::input::testing::options;
    use std::sync::Arc;

    fn decoder() -> Box<dyn Decoder> {
        let codec: Arc<dyn Codec> = build(options("json_lines", &[])).unwrap();
        codec.decoder()
    }

    fn numbers(events: &Events) -> Vec<i64> {
        events.iter().map(|event| event.fields()["n"].as_i64().unwrap()).collect()
    }

    #[test]
    fn events_of_blocks_are_counted_and_dropped_as_others() {
        let mut events = Events::default();
        events.set_additions(Additions::default().member("host", "web"));
        // An element that is scanned, one that only the parser of values takes, and one that is no object: the array is no event.
        let lines =
            "{\"n\":1}\n[{\"n\":2},{\"n\":3},{\"a\":1,\"a\":2},{\"n\":4}\n{\"n\":5,\"n\":6}\n{\"n\":7}\n";
        decoder().decode(lines.as_bytes(), &mut events);
        assert_eq!(events.len(), 4);
        assert_eq!(events[1].fields()["tags"], serde_json::json!(["_jsonparsefailure"]));
        assert!(events.iter().all(|event| event.fields()["host"] == "web"));
        assert_eq!(events[2].fields()["n"], 6);
        let bytes: u64 = events.iter().map(Event::bytes).sum();
        assert_eq!(events.bytes(), bytes);
        let documents: Vec<bool> = events.iter().map(|event| event.document().is_some()).collect();
        assert_eq!(documents, [true, false, false, true]);
        events.truncate(1);
        assert_eq!((numbers(&events), events.bytes()), (vec![1], events[0].bytes()));
    }

    #[test]
    fn events_of_blocks_are_changed_as_others() {
        let mut events = Events::default();
        events.set_additions(Additions::default().member("host", "web").at(&["event", "kind"], "log"));
        events.begin_block();
        for text in ["{\"n\":1}", "{\"n\":2,\"event\":{\"code\":7}}", "{\"n\":3}"] {
            assert_eq!(events.push_scanned(text, &mut Scratch::default()), Some(text.len()));
            events.change_last(|event| event.set_text("other", "text"));
        }
        events.push_scanned("{\"n\":4}", &mut Scratch::default());
        events.end_block();
        assert_eq!(numbers(&events), [1, 2, 3, 4]);
        assert_eq!(events[1].fields()["event"], serde_json::json!({"code": 7, "kind": "log"}));
        assert!(events.iter().all(|event| event.fields()["host"] == "web"));
        assert_eq!(events.iter().filter(|event| event.fields().get("other").is_some()).count(), 3);
        assert_eq!(events.bytes(), events.iter().map(Event::bytes).sum::<u64>());
        assert!(events[3].document().is_some());
    }

    #[test]
    fn events_are_handed_on_in_chunks() {
        let (sender, chunks) = std::sync::mpsc::channel();
        let mut left = 50;
        let sink = ChunkSink::new(move |list: Vec<Event>, _| {
            let bytes: u64 = list.iter().map(Event::bytes).sum();
            assert!(bytes <= 10_000 || list.len() == 1, "{bytes}");
            left -= 1;
            sender.send(list).is_ok() && left > 0
        });
        let mut events = Events::in_chunks((10_000, 100_000), 0, sink);
        let codec: Arc<dyn Codec> = build(options("json", &[("ecs_compatibility", "v8".into())])).unwrap();
        let mut decoder = codec.decoder();
        // An array is read element by element; a large object is an event; an array that is none is an event with its text.
        let array = |count: usize| format!("[{}{{\"n\":0}}]", "{\"n\":1},".repeat(count));
        let broken = format!("[{}", "{\"n\":1},".repeat(9));
        let text = format!("{}{{\"t\":\"{}\"}}{broken}", array(99), "x".repeat(20_000));
        decoder.decode(text.as_bytes(), &mut events);
        decoder.finish(&mut events);
        let all: Vec<Event> = chunks.try_iter().flatten().chain(events.take_list()).collect();
        assert_eq!(all.len(), 100 + 1 + 1);
        assert!(all[..100].iter().all(|event| event.fields()["n"].is_i64()));
        assert!(all[100].fields()["event"]["original"].is_string(), "an object keeps its text");
        assert_eq!(all[101].fields()["message"], broken);
        // Nothing is decoded for nobody.
        decoder.decode(array(100_000).as_bytes(), &mut events);
        assert!(events.is_full());
        assert!(chunks.try_iter().flatten().count() < 10_000);
    }

    #[test]
    fn a_piece_that_exceeds_its_bound_leaves_nothing_in_the_block() {
        let mut events = Events::default();
        events.set_additions(Additions::default());
        let mut decoder = decoder();
        events.begin_piece(1 << 20);
        decoder.decode(b"{\"n\":1}\n", &mut events);
        assert!(events.end_piece());
        events.begin_piece(1_500);
        decoder.decode(b"{\"n\":2}\n{\"n\":3}\n", &mut events);
        assert!(!events.end_piece());
        events.begin_piece(1 << 20);
        decoder.decode(b"{\"n\":4}\n{\"n\"", &mut events);
        assert!(events.end_piece());
        decoder.decode(b":5}\n", &mut events);
        assert_eq!(numbers(&events), [1, 4, 5]);
        assert_eq!(events.bytes(), events.iter().map(Event::bytes).sum::<u64>());
        let (first, rest) = (events.bytes() - events[2].bytes(), events[2].bytes());
        let mut list = events.take_list();
        assert_eq!((events.len(), events.bytes()), (0, 0));
        let last = list.split_off(2);
        events.put_back(last, rest, 8);
        decoder.decode(b"{\"n\":6}\n", &mut events);
        assert_eq!((numbers(&events), first > rest), (vec![5, 6], true));
    }
}
