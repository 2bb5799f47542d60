//! Frames of the lumberjack protocol, versions 1 and 2, which Beats and the output `lumberjack` speak.
//!
//! A frame is a version, a type, and its content: `W` announces how many events follow before the sender waits, `J` is an event
//! in JSON, `D` an event of names and values, `C` compressed frames. The receiver answers `A` with the number of the last event
//! that is stored.

use std::io::{self, Read};

use serde_json::{Map, Value};

/// Greatest window.
pub(super) const MAX_WINDOW: u32 = 1 << 20;
/// Longest event in bytes.
pub(super) const MAX_EVENT: usize = 16 << 20;
/// Most names and values of an event of version 1, and bytes of one of them.
const MAX_PAIRS: u32 = 4_096;

/// A frame that is not compressed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// Number of events that come before the sender waits for an answer.
    Window(u32),
    /// An event in JSON.
    Json {
        /// Number of the event.
        sequence: u32,
        /// Text of the event.
        text: Vec<u8>,
    },
    /// An event of names and values.
    Data {
        /// Number of the event.
        sequence: u32,
        /// Names and values.
        fields: Map<String, Value>,
    },
    /// Length of compressed frames, which follow.
    Compressed(u32),
}

/// Makes the error of a stream that is not of this protocol.
pub(super) fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// Reads the next frame with its version. `None` at the end of the input.
pub(super) fn read_frame(reader: &mut impl Read) -> io::Result<Option<(u8, Frame)>> {
    let mut version = [0; 1];
    if reader.read(&mut version)? == 0 {
        return Ok(None);
    }
    let [version] = version;
    if !matches!(version, b'1' | b'2') {
        return Err(invalid(format!("a frame of version [{version:#04x}], where 1 or 2 is expected")));
    }
    let mut kind = [0; 1];
    reader.read_exact(&mut kind)?;
    let frame = match kind {
        [b'W'] => Frame::Window(number(reader)?),
        [b'C'] => Frame::Compressed(number(reader)?),
        [b'J'] => {
            let sequence = number(reader)?;
            Frame::Json { sequence, text: content(reader)? }
        }
        [b'D'] => {
            let sequence = number(reader)?;
            let pairs = number(reader)?;
            if pairs > MAX_PAIRS {
                return Err(invalid(format!("an event of [{pairs}] fields exceeds the bound [{MAX_PAIRS}]")));
            }
            let mut fields = Map::new();
            let mut bytes = 0;
            for _ in 0..pairs {
                let (name, value) = (content(reader)?, content(reader)?);
                bytes += name.len() + value.len();
                if bytes > MAX_EVENT {
                    return Err(invalid(format!("an event exceeds [{MAX_EVENT}] bytes")));
                }
                let name = String::from_utf8_lossy(&name).into_owned();
                fields.insert(name, Value::String(String::from_utf8_lossy(&value).into_owned()));
            }
            Frame::Data { sequence, fields }
        }
        [other] => return Err(invalid(format!("a frame of the unknown type [{other:#04x}]"))),
    };
    Ok(Some((version, frame)))
}

/// Returns version, number and text of a whole frame with an event in JSON; `None` for any other.
pub(super) fn json_frame(frame: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (head, text) = frame.split_first_chunk::<10>()?;
    let [version @ (b'1' | b'2'), b'J', a, b, c, d, length @ ..] = *head else { return None };
    let is_whole = u32::from_be_bytes(length) as usize == text.len();
    is_whole.then_some((version, u32::from_be_bytes([a, b, c, d]), text))
}

fn number(reader: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

/// Reads bytes behind their length. Memory grows with what really comes.
fn content(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = number(reader)? as usize;
    if length > MAX_EVENT {
        return Err(invalid(format!("an event of [{length}] bytes exceeds the bound [{MAX_EVENT}]")));
    }
    let mut bytes = Vec::new();
    if reader.take(length as u64).read_to_end(&mut bytes)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Bytes of a frame that begins a buffer, where its head is there: the whole frame without what `C` announces.
///
/// # Errors
/// Bytes that no frame begins with, or a frame that exceeds the bounds.
pub(super) fn frame_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    match bytes {
        [] | [b'1' | b'2'] => Ok(None),
        [b'1' | b'2', b'W' | b'C', ..] => Ok((bytes.len() >= 6).then_some(6)),
        [b'1' | b'2', b'J', ..] => {
            let Some(length) = bytes.get(6..10).and_then(|length| length.try_into().ok()) else {
                return Ok(None);
            };
            let length = u32::from_be_bytes(length) as usize;
            if length > MAX_EVENT {
                return Err(invalid(format!("an event of [{length}] bytes exceeds the bound [{MAX_EVENT}]")));
            }
            Ok((bytes.len() >= 10 + length).then_some(10 + length))
        }
        [b'1' | b'2', b'D', ..] => data_length(bytes),
        [b'1' | b'2', kind, ..] => Err(invalid(format!("a frame of the unknown type [{kind:#04x}]"))),
        [version, ..] => {
            Err(invalid(format!("a frame of version [{version:#04x}], where 1 or 2 is expected")))
        }
    }
}

fn data_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let number =
        |at: usize| -> Option<u32> { Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let Some(pairs) = number(6) else { return Ok(None) };
    if pairs > MAX_PAIRS {
        return Err(invalid(format!("an event of [{pairs}] fields exceeds the bound [{MAX_PAIRS}]")));
    }
    let mut at = 10;
    for _ in 0..2 * pairs {
        let Some(length) = number(at) else { return Ok(None) };
        at += 4 + length as usize;
        if at > MAX_EVENT {
            return Err(invalid(format!("an event exceeds [{MAX_EVENT}] bytes")));
        }
    }
    Ok((bytes.len() >= at).then_some(at))
}

/// Returns the answer to an event.
pub(super) fn acknowledgement(version: u8, sequence: u32) -> [u8; 6] {
    let [a, b, c, d] = sequence.to_be_bytes();
    [version, b'A', a, b, c, d]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(sequence: u32, text: &str) -> Vec<u8> {
        let mut bytes = b"2J".to_vec();
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn frames_are_cut_and_read() {
        let mut data = b"1D\0\0\0\x07\0\0\0\x02".to_vec();
        for text in ["line", "hello", "host", "web"] {
            data.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            data.extend(text.as_bytes());
        }
        let fields = serde_json::json!({"line": "hello", "host": "web"});
        let Value::Object(fields) = fields else { panic!() };
        for (bytes, version, frame) in [
            (b"2W\0\0\x08\0".to_vec(), b'2', Frame::Window(2048)),
            (json(3, "{}"), b'2', Frame::Json { sequence: 3, text: b"{}".to_vec() }),
            (data, b'1', Frame::Data { sequence: 7, fields }),
            (b"2C\0\0\0\x09".to_vec(), b'2', Frame::Compressed(9)),
        ] {
            for end in 0..bytes.len() {
                assert_eq!(frame_length(&bytes[..end]).unwrap(), None, "{end}");
                assert!(end == 0 || read_frame(&mut &bytes[..end]).is_err());
            }
            assert_eq!(frame_length(&bytes).unwrap(), Some(bytes.len()));
            let json = json_frame(&bytes)
                .map(|(version, sequence, text)| (version, Frame::Json { sequence, text: text.to_vec() }));
            assert_eq!(json, (bytes[1] == b'J').then(|| (version, frame.clone())));
            assert_eq!(read_frame(&mut &bytes[..]).unwrap(), Some((version, frame)));
        }
        assert_eq!(read_frame(&mut &b""[..]).unwrap(), None);
        for wrong in [
            &b"GET /"[..],
            b"3W\0\0\0\0",
            b"2X\0\0\0\0",
            b"2J\0\0\0\x01\xff\xff\xff\xff",
            b"1D\0\0\0\x01\xff\0\0\0",
        ] {
            assert!(frame_length(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(acknowledgement(b'2', 258), *b"2A\0\0\x01\x02");
    }

    proptest! {
        #[test]
        fn a_frame_is_as_long_as_it_is_read(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in "[12][WCJD]") {
            let bytes = [kind.as_bytes(), &bytes].concat();
            if let Ok(Some(length)) = frame_length(&bytes) {
                let mut rest = &bytes[..];
                prop_assert!(read_frame(&mut rest).unwrap().is_some());
                prop_assert_eq!(bytes.len() - rest.len(), length);
            }
        }
    }
}
