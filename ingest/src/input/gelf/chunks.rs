//! Messages in chunks: parts of a message come as datagrams, in any order.
//!
//! Messages that stay incomplete are dropped after five seconds, and the oldest of them beyond the bounds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_runtime::Instant;

/// Bytes that a chunk begins with.
const MAGIC: [u8; 2] = [0x1e, 0x0f];
/// Bytes of a chunk before its part of the message.
const HEAD: usize = 12;
/// Most chunks of a message.
const MAX_CHUNKS: u8 = 128;
/// Time within which all chunks of a message have to come.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most messages that wait for chunks.
const MAX_MESSAGES: usize = 1_024;
/// Most bytes of messages that wait for chunks.
const MAX_BYTES: usize = 16 << 20;

/// Message of a client: its address and the id that the client chose.
type MessageKey = (IpAddr, [u8; 8]);

/// Messages that wait for chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkBuffer {
    messages: HashMap<MessageKey, IncompleteMessage>,
    bytes: usize,
}

#[derive(Debug)]
struct IncompleteMessage {
    begun: Instant,
    chunks: Vec<Option<Vec<u8>>>,
    missing: usize,
    bytes: usize,
}

/// Outcome of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Assembly {
    /// The datagram is no chunk, but a message.
    NotChunked,
    /// Further chunks are missing, or the chunk is of no use.
    Incomplete,
    /// The message is complete.
    Message(Vec<u8>),
}

impl ChunkBuffer {
    /// Takes a datagram of a client.
    pub(super) fn add(&mut self, client: IpAddr, datagram: &[u8], now: Instant) -> Assembly {
        let Some(rest) = datagram.strip_prefix(&MAGIC) else { return Assembly::NotChunked };
        let Some((id, rest)) = rest.split_first_chunk::<8>() else { return Assembly::Incomplete };
        let &[number, count, ref part @ ..] = rest else { return Assembly::Incomplete };
        debug_assert_eq!(datagram.len() - part.len(), HEAD);
        if count == 0 || count > MAX_CHUNKS || number >= count {
            return Assembly::Incomplete;
        }
        self.forget(now);
        let key = (client, *id);
        let message = self.messages.entry(key).or_insert_with(|| IncompleteMessage {
            begun: now,
            chunks: vec![None; usize::from(count)],
            missing: usize::from(count),
            bytes: 0,
        });
        // A chunk of another count, or one that is sent twice, changes nothing.
        if let Some(chunk @ None) = message.chunks.get_mut(usize::from(number)) {
            *chunk = Some(part.to_vec());
            message.missing -= 1;
            message.bytes += part.len();
            self.bytes += part.len();
        }
        if message.missing > 0 {
            self.make_room();
            return Assembly::Incomplete;
        }
        let chunks = self.remove(&key).map(|message| message.chunks).unwrap_or_default();
        Assembly::Message(chunks.into_iter().flatten().flatten().collect())
    }

    fn remove(&mut self, key: &MessageKey) -> Option<IncompleteMessage> {
        let message = self.messages.remove(key)?;
        self.bytes -= message.bytes;
        Some(message)
    }

    /// Drops messages whose chunks did not come in time.
    fn forget(&mut self, now: Instant) {
        let bytes = &mut self.bytes;
        self.messages.retain(|_, message| {
            let stays = now.saturating_duration_since(message.begun) < TIMEOUT;
            if !stays {
                *bytes -= message.bytes;
            }
            stays
        });
    }

    /// Drops the oldest messages beyond the bounds.
    fn make_room(&mut self) {
        while self.messages.len() > MAX_MESSAGES || self.bytes > MAX_BYTES {
            let oldest = self.messages.iter().min_by_key(|(_, message)| message.begun).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(id: u64, number: u8, count: u8, part: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &id.to_be_bytes(), &[number, count], part].concat()
    }

    #[test]
    fn chunks_in_any_order_make_a_message() {
        let (mut buffer, now) = (ChunkBuffer::default(), Instant::now());
        let client = IpAddr::from([10, 0, 0, 1]);
        let mut add = |bytes: &[u8]| buffer.add(client, bytes, now);
        assert_eq!(add(b"{}"), Assembly::NotChunked);
        for useless in [&MAGIC[..], &chunk(1, 0, 0, b"x"), &chunk(1, 2, 2, b"x"), &chunk(1, 0, 129, b"x")] {
            assert_eq!(add(useless), Assembly::Incomplete);
        }
        assert_eq!(add(&chunk(1, 1, 2, b"b")), Assembly::Incomplete);
        assert_eq!(add(&chunk(2, 0, 2, b"other")), Assembly::Incomplete);
        assert_eq!(add(&chunk(1, 1, 2, b"again")), Assembly::Incomplete);
        assert_eq!(add(&chunk(1, 0, 2, b"a")), Assembly::Message(b"ab".to_vec()));
        // What is too old is forgotten, and its chunk begins anew.
        let late = buffer.add(client, &chunk(2, 1, 2, b"late"), now + TIMEOUT);
        assert_eq!((late, buffer.messages.len(), buffer.bytes), (Assembly::Incomplete, 1, 4));
    }

    #[test]
    fn the_oldest_messages_go_beyond_the_bounds() {
        let (mut buffer, now) = (ChunkBuffer::default(), Instant::now());
        let part = vec![0; 60_000];
        for id in 0..3_000 {
            let client = IpAddr::from([10, 0, 0, 1]);
            buffer.add(client, &chunk(id, 0, 2, &part), now + Duration::from_micros(id));
            assert!(buffer.messages.len() <= MAX_MESSAGES && buffer.bytes <= MAX_BYTES);
        }
        assert_eq!(buffer.bytes, buffer.messages.values().map(|message| message.bytes).sum::<usize>());
    }
}
