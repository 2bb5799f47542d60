//! Character sets whose units have 16 or 32 bits, and streams of text in them.
//!
//! A stream reaches its decoder as UTF-8 ([`Transcoder`]), so its lines are cut at characters, not at bytes within a unit.

use std::net::IpAddr;

use crate::codec::{Decoder, Events};

/// Mark of the byte order: U+FEFF at the begin of a text.
const MARK: u32 = 0xfeff;

/// A character set of wide units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideCharset {
    width: UnitWidth,
    /// `None`: by the mark of a text; without one, the greatest byte is first.
    order: Option<ByteOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitWidth {
    Two,
    Four,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Big,
    Little,
}

impl WideCharset {
    /// Finds a set by its name.
    pub(super) fn find(name: &str) -> Option<Self> {
        use {ByteOrder::*, UnitWidth::*};
        let (width, order) = match name.to_ascii_uppercase().as_str() {
            "UTF-16" => (Two, None),
            "UTF-16BE" | "UCS-2" | "UCS-2BE" => (Two, Some(Big)),
            "UTF-16LE" | "UCS-2LE" => (Two, Some(Little)),
            "UTF-32" => (Four, None),
            "UTF-32BE" | "UCS-4" | "UCS-4BE" => (Four, Some(Big)),
            "UTF-32LE" | "UCS-4LE" => (Four, Some(Little)),
            _ => return None,
        };
        Some(Self { width, order })
    }

    /// Returns the bytes of a unit.
    pub(crate) fn unit_bytes(self) -> usize {
        match self.width {
            UnitWidth::Two => 2,
            UnitWidth::Four => 4,
        }
    }

    /// Returns whether a text says by a mark in which order its bytes are.
    pub(crate) fn needs_mark(self) -> bool {
        self.order.is_none()
    }

    /// Writes a text, without a mark.
    pub(crate) fn encode(self, text: &str) -> Vec<u8> {
        let order = self.order.unwrap_or(ByteOrder::Big);
        let write = |unit: u32| {
            let bytes = unit.to_be_bytes();
            let mut bytes = bytes.get(4 - self.unit_bytes()..).unwrap_or_default().to_vec();
            if order == ByteOrder::Little {
                bytes.reverse();
            }
            bytes
        };
        match self.width {
            UnitWidth::Two => text.encode_utf16().flat_map(|unit| write(u32::from(unit))).collect(),
            UnitWidth::Four => text.chars().flat_map(|character| write(u32::from(character))).collect(),
        }
    }

    /// Reads a whole text. A mark at its begin is no part of it.
    pub(super) fn decode(self, bytes: &[u8]) -> String {
        let mut stream = TextStream::new(self);
        let mut text = stream.decode(bytes);
        text.push_str(&stream.finish());
        text
    }
}

/// Reads a text whose bytes come in chunks. Units that are no characters are replaced by U+FFFD.
#[derive(Debug)]
struct TextStream {
    charset: WideCharset,
    is_begun: bool,
    /// Bytes that are no character yet: at most a unit and a part of the next.
    pending: Vec<u8>,
}

impl TextStream {
    fn new(charset: WideCharset) -> Self {
        Self { charset, is_begun: false, pending: Vec::new() }
    }

    /// Reads the characters that further bytes complete.
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let width = self.charset.unit_bytes();
        if !self.is_begun {
            if self.pending.len() < width {
                return String::new();
            }
            self.begin();
        }
        let mut length = self.pending.len() / width * width;
        let last = length.checked_sub(width).and_then(|at| self.pending.get(at..length));
        let is_half = |unit: &[u8]| width == 2 && (0xd800..0xdc00).contains(&self.unit(unit));
        if last.is_some_and(is_half) {
            length -= width;
        }
        let text = self.characters(self.pending.get(..length).unwrap_or_default());
        self.pending.drain(..length);
        text
    }

    /// Reads the rest: what is not complete is replaced.
    fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }

    /// Reads the mark. It settles the order where that is open, and is no part of the text.
    fn begin(&mut self) {
        self.is_begun = true;
        let width = self.charset.unit_bytes();
        let first = self.pending.get(..width).unwrap_or_default().to_vec();
        let orders = match self.charset.order {
            Some(order) => vec![order],
            None => vec![ByteOrder::Little, ByteOrder::Big],
        };
        for order in orders {
            self.charset.order = Some(order);
            if self.unit(&first) == MARK {
                self.pending.drain(..width);
                return;
            }
        }
    }

    fn unit(&self, bytes: &[u8]) -> u32 {
        let append = |unit: u32, byte: &u8| unit << 8 | u32::from(*byte);
        match self.charset.order {
            Some(ByteOrder::Little) => bytes.iter().rev().fold(0, append),
            Some(ByteOrder::Big) | None => bytes.iter().fold(0, append),
        }
    }

    fn characters(&self, bytes: &[u8]) -> String {
        let units = bytes.chunks_exact(self.charset.unit_bytes()).map(|bytes| self.unit(bytes));
        match self.charset.width {
            UnitWidth::Two => {
                // Two bytes are at most 16 bits.
                let units = units.map(|unit| unit as u16);
                let characters = char::decode_utf16(units);
                characters.map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            UnitWidth::Four => {
                units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
        }
    }
}

/// Hands a stream to a decoder of UTF-8.
pub(super) struct Transcoder<D> {
    charset: WideCharset,
    text: TextStream,
    decoder: D,
}

impl<D: Decoder> Transcoder<D> {
    /// Makes one for a stream in a character set.
    pub(super) fn new(charset: WideCharset, decoder: D) -> Self {
        Self { charset, text: TextStream::new(charset), decoder }
    }
}

impl<D: Decoder> Decoder for Transcoder<D> {
    fn set_peer(&mut self, peer: IpAddr) {
        self.decoder.set_peer(peer);
    }

    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let text = self.text.decode(bytes);
        self.decoder.decode(text.as_bytes(), events);
    }

    /// Keeps the bytes of a character that is not complete, and the order of bytes: the stream goes on.
    fn pause(&mut self, events: &mut Events) {
        self.decoder.pause(events);
    }

    fn finish(&mut self, events: &mut Events) {
        let rest = self.text.finish();
        if !rest.is_empty() {
            self.decoder.decode(rest.as_bytes(), events);
        }
        self.decoder.finish(events);
        // Another stream may follow, with a mark of its own.
        self.text = TextStream::new(self.charset);
    }

    fn holds(&self) -> bool {
        !self.text.pending.is_empty() || self.decoder.holds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\u{e9}\u{105}\n\u{10a}\u{1f600}\u{a0a}z";

    #[test]
    fn texts_are_read_whatever_their_chunks() {
        for name in ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE"] {
            let charset = WideCharset::find(name).unwrap();
            for order in [ByteOrder::Big, ByteOrder::Little] {
                if charset.order.is_some_and(|own| own != order) {
                    continue;
                }
                let written = WideCharset { order: Some(order), ..charset };
                for mark in ["", "\u{feff}"] {
                    if charset.needs_mark() && mark.is_empty() && order == ByteOrder::Little {
                        continue;
                    }
                    let bytes = written.encode(&format!("{mark}{TEXT}"));
                    assert_eq!(charset.decode(&bytes), TEXT, "{name} {order:?}");
                    for length in 1..=5 {
                        let mut stream = TextStream::new(charset);
                        let mut text: String =
                            bytes.chunks(length).map(|chunk| stream.decode(chunk)).collect();
                        text.push_str(&stream.finish());
                        assert_eq!(text, TEXT, "{name} {order:?} in chunks of {length}");
                    }
                }
            }
        }
    }

    /// Each call of `decode` to an event.
    struct Texts;

    impl Decoder for Texts {
        fn decode(&mut self, bytes: &[u8], events: &mut Events) {
            if !bytes.is_empty() {
                events.push(crate::codec::decode_text(std::str::from_utf8(bytes).unwrap()));
            }
        }

        fn finish(&mut self, _: &mut Events) {}
    }

    #[test]
    fn streams_that_follow_one_another_have_marks_of_their_own() {
        let mut transcoder = Transcoder::new(WideCharset::find("UTF-16").unwrap(), Texts);
        let mut events = Events::default();
        for record in [&b"\0a"[..], b"\xff\xfeb\0", b"\xfe\xff\0c"] {
            transcoder.decode(record, &mut events);
            transcoder.finish(&mut events);
        }
        // A pause within a character is no end.
        transcoder.decode(b"\xff\xfed\0e", &mut events);
        transcoder.pause(&mut events);
        transcoder.decode(b"\0", &mut events);
        let texts: Vec<_> = events.iter().map(|event| event.fields()["message"].clone()).collect();
        assert_eq!(texts, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn what_is_no_character_is_replaced() {
        let decode = |name: &str, bytes: &[u8]| WideCharset::find(name).unwrap().decode(bytes);
        assert_eq!(decode("UTF-16LE", b"a\0\x3d\xd8b\0"), "a\u{fffd}b");
        assert_eq!(decode("UTF-16LE", b"a\0\x3d\xd8"), "a\u{fffd}");
        assert_eq!(decode("UTF-16", b"\0a\x01"), "a\u{fffd}");
        assert_eq!(decode("UTF-32BE", b"\0\x11\0\0\0\0\0a\0"), "\u{fffd}a\u{fffd}");
        assert_eq!(decode("UTF-16", b""), "");
    }
}
