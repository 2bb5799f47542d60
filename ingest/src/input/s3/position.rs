//! The position of an `s3` input: the objects that are read, and how far the one is that is being read.
//!
//! Objects are read in the order of their times and, where these are equal, of hashes of their keys. The position remembers the
//! last [`MAX_OBJECTS`] of them; all objects in that order before these count as read. So objects that appear a
//! little late are read, and the position is bounded.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use object_store::ObjectMeta;
use xxhash_rust::xxh3::xxh3_64;

/// Objects that a position remembers.
pub(super) const MAX_OBJECTS: usize = 2_000;
/// Version of the form in bytes.
const VERSION: u8 = 1;
/// Bytes of a place and of a number.
const PLACE_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;

/// Place of an object in the order of reading: its time in milliseconds, and the hash of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectOrder {
    pub(super) time_ms: i64,
    pub(super) hash: u64,
}

impl ObjectOrder {
    /// Place of a listed object. One that is written anew has another place.
    pub(super) fn of(object: &ObjectMeta) -> Self {
        let hash = xxh3_64(object.location.as_ref().as_bytes());
        Self { time_ms: object.last_modified.timestamp_millis(), hash }
    }
}

/// The position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadObjects {
    /// Objects up to this one count as read.
    floor: Option<ObjectOrder>,
    read: BTreeSet<ObjectOrder>,
    /// The object that is being read, and the number of its events that are stored.
    pub(super) current: Option<(ObjectOrder, u64)>,
}

impl ReadObjects {
    /// Returns whether an object is read.
    pub(super) fn contains(&self, object: ObjectOrder) -> bool {
        self.floor.is_some_and(|floor| object <= floor) || self.read.contains(&object)
    }

    /// Returns how many events of an object are stored already.
    pub(super) fn stored_events(&self, object: ObjectOrder) -> u64 {
        self.current.filter(|(current, _)| *current == object).map_or(0, |(_, events)| events)
    }

    /// Takes note that an object is read.
    pub(super) fn insert(&mut self, object: ObjectOrder) {
        self.current = None;
        self.read.insert(object);
        while self.read.len() > MAX_OBJECTS {
            self.floor = self.read.pop_first().max(self.floor);
        }
    }

    /// Writes the position.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.read.len() * PLACE_BYTES);
        let mut put = |place: ObjectOrder| {
            out.put_i64(place.time_ms);
            out.put_u64(place.hash);
        };
        let none = ObjectOrder { time_ms: i64::MIN, hash: 0 };
        put(self.floor.unwrap_or(none));
        let (current, events) = self.current.unwrap_or((none, 0));
        put(current);
        self.read.iter().for_each(|place| put(*place));
        let mut bytes = BytesMut::with_capacity(1 + NUMBER_BYTES + out.len());
        bytes.put_u8(VERSION);
        bytes.put_u64(events);
        bytes.put(out);
        bytes.freeze()
    }

    /// Reads a position.
    ///
    /// # Errors
    /// It is none of this version.
    pub(super) fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let length = bytes.len();
        let wrong = || format!("a stored position of {length} bytes is none of an input s3");
        if bytes.try_get_u8() != Ok(VERSION)
            || length < 1 + NUMBER_BYTES + 2 * PLACE_BYTES
            || !(length - 1 - NUMBER_BYTES).is_multiple_of(PLACE_BYTES)
        {
            return Err(wrong());
        }
        let events = bytes.get_u64();
        let mut places = Vec::with_capacity(bytes.len() / PLACE_BYTES);
        while bytes.has_remaining() {
            places.push(ObjectOrder { time_ms: bytes.get_i64(), hash: bytes.get_u64() });
        }
        let [floor, current, read @ ..] = places.as_slice() else { return Err(wrong()) };
        let some = |place: &ObjectOrder| Some(*place).filter(|place| place.time_ms != i64::MIN);
        Ok(Self {
            floor: some(floor),
            read: read.iter().copied().collect(),
            current: some(current).map(|current| (current, events)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(time_ms: i64, hash: u64) -> ObjectOrder {
        ObjectOrder { time_ms, hash }
    }

    #[test]
    fn positions_are_bounded_and_lose_no_object_of_the_same_time() {
        let mut position = ReadObjects::default();
        let count = MAX_OBJECTS as u64 + 500;
        // All objects have one time, as after a copy of a bucket.
        for hash in 0..count {
            assert!(!position.contains(place(7, hash)), "{hash}");
            position.insert(place(7, hash));
        }
        assert!((0..count).all(|hash| position.contains(place(7, hash))));
        assert!(!position.contains(place(7, count)) && position.contains(place(6, count)));
        assert!(position.encode().len() < (MAX_OBJECTS + 4) * PLACE_BYTES);
        // One that appears late, within what is remembered.
        let mut position = ReadObjects::default();
        position.insert(place(9, 1));
        assert!(!position.contains(place(8, 1)));
    }

    #[test]
    fn positions_are_read_as_they_were_written() {
        let mut position = ReadObjects::default();
        assert_eq!(ReadObjects::decode(&position.encode()), Ok(position.clone()));
        for hash in 0..MAX_OBJECTS as u64 + 3 {
            position.insert(place(5, hash));
        }
        position.current = Some((place(6, 1), 42));
        let decoded = ReadObjects::decode(&position.encode()).unwrap();
        assert_eq!(decoded, position);
        assert_eq!((decoded.stored_events(place(6, 1)), decoded.stored_events(place(6, 2))), (42, 0));
        for wrong in [&b""[..], b"\x01", b"\x02abcdefgh", &position.encode()[..50]] {
            assert!(ReadObjects::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
