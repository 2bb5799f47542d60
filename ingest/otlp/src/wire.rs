//! Fields of protobuf, read in place: texts and bytes are borrowed from the request.

use std::borrow::Cow;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Levels of messages within a record, at most.
const MAX_DEPTH: usize = 100;

/// A field's value as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireValue<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Eight bytes.
    Fixed64(u64),
    /// What has a length: text, bytes or a message.
    Bytes(&'a [u8]),
}

/// A message that is built field by field.
pub(crate) trait Message<'a>: Default {
    /// Takes a field; unknown ones have no effect. `depth` is the level of the message, 0 for the outermost.
    fn take(&mut self, tag: u32, value: WireValue<'a>, depth: usize) -> Result<(), String>;
}

/// Decodes a message.
pub(crate) fn decode<'a, M: Message<'a>>(mut bytes: &'a [u8], depth: usize) -> Result<M, String> {
    if depth > MAX_DEPTH {
        return Err(format!("values are nested more than [{MAX_DEPTH}] levels deep"));
    }
    let mut message = M::default();
    while let Some((tag, value)) = next_field(&mut bytes)? {
        message.take(tag, value, depth)?;
    }
    Ok(message)
}

/// Takes the next field off.
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, WireValue<'a>)>, String> {
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(rest).map_err(|error| error.to_string())?;
        let value = match wire_type {
            WireType::Varint => WireValue::Varint(decode_varint(rest).map_err(|error| error.to_string())?),
            WireType::SixtyFourBit => WireValue::Fixed64(u64::from_le_bytes(take_array(rest)?)),
            WireType::ThirtyTwoBit => WireValue::Fixed32(u32::from_le_bytes(take_array(rest)?)),
            WireType::LengthDelimited => {
                let length = decode_varint(rest).map_err(|error| error.to_string())?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (content, behind) = rest.split_at_checked(length).ok_or_else(cut_off)?;
                *rest = behind;
                WireValue::Bytes(content)
            }
            WireType::StartGroup | WireType::EndGroup => {
                let skipped = skip_field(wire_type, tag, rest, DecodeContext::default());
                skipped.map_err(|error| error.to_string())?;
                continue;
            }
        };
        return Ok(Some((tag, value)));
    }
    Ok(None)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (array, behind) = rest.split_first_chunk().ok_or_else(cut_off)?;
    *rest = behind;
    Ok(*array)
}

fn cut_off() -> String {
    "a message is cut off".to_owned()
}

impl<'a> WireValue<'a> {
    pub(crate) fn varint(self) -> Result<u64, String> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.unexpected("a number")),
        }
    }

    pub(crate) fn fixed32(self) -> Result<u32, String> {
        match self {
            Self::Fixed32(number) => Ok(number),
            other => Err(other.unexpected("a number of four bytes")),
        }
    }

    pub(crate) fn fixed64(self) -> Result<u64, String> {
        match self {
            Self::Fixed64(number) => Ok(number),
            other => Err(other.unexpected("a number of eight bytes")),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.unexpected("what has a length")),
        }
    }

    pub(crate) fn text(self) -> Result<Cow<'a, str>, String> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| "a text is no UTF-8".to_owned())?;
        Ok(Cow::Borrowed(text))
    }

    /// Reads the message of a field of a message at this depth.
    pub(crate) fn message<M: Message<'a>>(self, depth: usize) -> Result<M, String> {
        decode(self.bytes()?, depth + 1)
    }

    fn unexpected(self, expected: &str) -> String {
        let found = match self {
            Self::Varint(_) => "a number of variable length",
            Self::Fixed32(_) => "four bytes",
            Self::Fixed64(_) => "eight bytes",
            Self::Bytes(_) => "bytes with a length",
        };
        format!("a field has {found} instead of {expected}")
    }
}
