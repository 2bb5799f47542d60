//! Messages in a stream: ended by a line feed, or counted (RFC 6587).

use crate::codec::{Decoder, Events};

/// Longest message in bytes. A longer line is cut, a longer count ends the framing.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// Digits of the longest count.
const MAX_DIGITS: usize = 7;

/// Decoder of messages, each of them in one call.
pub(super) trait ChunkDecoder: Decoder {
    /// Says that the messages of another chunk follow.
    fn begin_chunk(&mut self) {}
}

/// Cuts a stream into messages and hands each to a decoder.
pub(super) struct MessageStream<D> {
    messages: D,
    kept: Vec<u8>,
}

/// Beginning of a stream.
enum Frame {
    /// A message: where it begins, where it ends, and where the next one begins.
    Message(usize, usize, usize),
    Incomplete,
}

impl<D> MessageStream<D> {
    /// Begins a stream.
    pub(super) fn new(messages: D) -> Self {
        Self { messages, kept: Vec::new() }
    }
}

/// Finds the message that bytes begin with.
fn frame(bytes: &[u8]) -> Frame {
    let digits = bytes.iter().take(MAX_DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && digits <= MAX_DIGITS && bytes.first() != Some(&b'0') {
        match bytes.get(digits) {
            None => return Frame::Incomplete,
            Some(b' ') => {
                let count =
                    bytes.iter().take(digits).fold(0, |count, digit| count * 10 + usize::from(digit - b'0'));
                let (begin, end) = (digits + 1, digits + 1 + count);
                // A count is followed by a priority; a line may begin with a number as well.
                let is_counted = bytes.get(begin).is_none_or(|first| *first == b'<') && count <= MAX_MESSAGE;
                if is_counted {
                    return if bytes.len() < end {
                        Frame::Incomplete
                    } else {
                        Frame::Message(begin, end, end)
                    };
                }
            }
            Some(_) => {}
        }
    }
    match memchr::memchr2(b'\n', 0, bytes) {
        Some(end) => Frame::Message(0, end, end + 1),
        None if bytes.len() > MAX_MESSAGE => Frame::Message(0, MAX_MESSAGE, MAX_MESSAGE),
        None => Frame::Incomplete,
    }
}

impl<D: ChunkDecoder> Decoder for MessageStream<D> {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.messages.begin_chunk();
        self.kept.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(rest) = self.kept.get(begin..).filter(|rest| !rest.is_empty()) {
            let Frame::Message(from, to, next) = frame(rest) else { break };
            let message = rest.get(from..to).unwrap_or_default();
            let message = message.strip_suffix(b"\r").unwrap_or(message);
            if !message.is_empty() {
                self.messages.decode(message, events);
            }
            begin += next;
        }
        self.kept.drain(..begin);
        events.end_block();
    }

    fn finish(&mut self, events: &mut Events) {
        self.messages.begin_chunk();
        let kept = std::mem::take(&mut self.kept);
        let message = kept.strip_suffix(b"\r").unwrap_or(&kept);
        if !message.is_empty() {
            self.messages.decode(message, events);
        }
        self.messages.finish(events);
        events.end_block();
    }

    fn holds(&self) -> bool {
        !self.kept.is_empty() || self.messages.holds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::options::Location;

    impl ChunkDecoder for Box<dyn Decoder> {}

    impl Decoder for Box<dyn Decoder> {
        fn decode(&mut self, bytes: &[u8], events: &mut Events) {
            (**self).decode(bytes, events);
        }

        fn finish(&mut self, events: &mut Events) {
            (**self).finish(events);
        }

        fn holds(&self) -> bool {
            (**self).holds()
        }
    }

    fn messages(stream: &[u8], chunk: usize) -> Vec<String> {
        let codec = crate::codec::build(Options::new("plain", Location::default(), [])).unwrap();
        let mut decoder = MessageStream::new(codec.line_decoder());
        let mut events = Events::default();
        stream.chunks(chunk).for_each(|chunk| decoder.decode(chunk, &mut events));
        decoder.finish(&mut events);
        assert!(!decoder.holds());
        events.iter().map(|event| event.fields()["message"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn counted_and_ended_messages_are_told_apart() {
        let stream = b"<1>one\r\n8 <2>two\nx5 <3>ab\n\n12 monkeys\n3 <4>rest";
        for chunk in [1, 3, 7, 100] {
            assert_eq!(
                messages(stream, chunk),
                ["<1>one", "<2>two\nx", "<3>ab", "12 monkeys", "<4>", "rest"]
            );
        }
        let long = vec![b'x'; MAX_MESSAGE + 5];
        let lengths: Vec<usize> = messages(&long, 1 << 16).iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_MESSAGE, 5]);
    }
}
