//! Fields of protobuf, read in place: texts and bytes are borrowed from the request.
//!
//! Functions that read a field are inlined wherever they are called. A record has some thirty fields of a few bytes each: calls, with
//! their results through memory, would take half of the time.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use prost::encoding::{DecodeContext, WireType, decode_varint, skip_field};

/// Levels of messages within a record, at most.
const MAX_DEPTH: usize = 100;
/// Attributes, elements and members within a record, at most: each takes many times its bytes.
const MAX_VALUES: usize = 16_384;

/// A field's value as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireValue<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Eight bytes.
    Fixed64(u64),
    /// Bytes with a length: text, bytes or a message.
    Bytes(&'a [u8]),
}

/// The kinds of [`WireValue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireKind {
    Varint,
    Fixed32,
    Fixed64,
    Bytes,
}

impl fmt::Display for WireKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Varint => "a number of variable length",
            Self::Fixed32 => "a number of four bytes",
            Self::Fixed64 => "a number of eight bytes",
            Self::Bytes => "bytes with a length",
        })
    }
}

/// A fault of a message. It is small, since each field that is read returns one or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("a message is cut off")]
    CutOff,
    #[error("a number of variable length is cut off or has more than 64 bits")]
    Varint,
    #[error("a field has a tag or a type that protobuf does not have")]
    Key,
    #[error("a group does not end, or not where it should")]
    Group,
    #[error("a field has {found} instead of {expected}")]
    Kind { found: WireKind, expected: WireKind },
    #[error("values are nested more than [{MAX_DEPTH}] levels deep")]
    Depth,
    #[error("there are more than [{MAX_VALUES}] attributes, elements and members")]
    Values,
}

/// Decodes a message with all that is in it.
pub(crate) fn decode<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, WireError> {
    let (mut message, values) = (M::default(), Cell::new(MAX_VALUES));
    message.merge(bytes, Level { depth: 0, values: &values })?;
    Ok(message)
}

/// Place of a message in the outermost one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level<'l> {
    depth: usize,
    /// Values that the outermost message may still have.
    values: &'l Cell<usize>,
}

impl Level<'_> {
    fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// A message that is built field by field.
pub(crate) trait Message<'a>: Default {
    /// Takes a field of a message of this level; unknown ones have no effect.
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError>;

    /// Takes the fields of an encoded message, into its place: a message is not moved when it is read.
    fn merge(&mut self, mut bytes: &'a [u8], level: Level<'_>) -> Result<(), WireError> {
        if level.depth > MAX_DEPTH {
            return Err(WireError::Depth);
        }
        while let Some((tag, value)) = next_field(&mut bytes)? {
            self.take(tag, value, level)?;
        }
        Ok(())
    }
}

/// Takes the next field off.
#[inline(always)]
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, WireValue<'a>)>, WireError> {
    while !rest.is_empty() {
        let key = u32::try_from(take_varint(rest)?).map_err(|_| WireError::Key)?;
        let tag = key >> 3;
        if tag == 0 {
            return Err(WireError::Key);
        }
        let value = match WireType::try_from(u64::from(key & 7)).map_err(|_| WireError::Key)? {
            WireType::Varint => WireValue::Varint(take_varint(rest)?),
            WireType::SixtyFourBit => WireValue::Fixed64(u64::from_le_bytes(take_array(rest)?)),
            WireType::ThirtyTwoBit => WireValue::Fixed32(u32::from_le_bytes(take_array(rest)?)),
            WireType::LengthDelimited => {
                let length = usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX);
                let (content, behind) = rest.split_at_checked(length).ok_or(WireError::CutOff)?;
                *rest = behind;
                WireValue::Bytes(content)
            }
            group @ (WireType::StartGroup | WireType::EndGroup) => {
                skip_field(group, tag, rest, DecodeContext::default()).map_err(|_| WireError::Group)?;
                continue;
            }
        };
        return Ok(Some((tag, value)));
    }
    Ok(None)
}

#[inline(always)]
fn take_varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    match *rest {
        // Most have one byte.
        [byte @ ..0x80, behind @ ..] => {
            *rest = behind;
            Ok(u64::from(*byte))
        }
        _ => decode_varint(rest).map_err(|_| WireError::Varint),
    }
}

#[inline(always)]
fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], WireError> {
    let (array, behind) = rest.split_first_chunk().ok_or(WireError::CutOff)?;
    *rest = behind;
    Ok(*array)
}

impl<'a> WireValue<'a> {
    #[inline(always)]
    pub(crate) fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.instead_of(WireKind::Varint)),
        }
    }

    #[inline(always)]
    pub(crate) fn fixed32(self) -> Result<u32, WireError> {
        match self {
            Self::Fixed32(number) => Ok(number),
            other => Err(other.instead_of(WireKind::Fixed32)),
        }
    }

    #[inline(always)]
    pub(crate) fn fixed64(self) -> Result<u64, WireError> {
        match self {
            Self::Fixed64(number) => Ok(number),
            other => Err(other.instead_of(WireKind::Fixed64)),
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.instead_of(WireKind::Bytes)),
        }
    }

    /// Reads a text. What is no UTF-8 in it is replaced: senders cut texts in the middle of characters.
    #[inline(always)]
    pub(crate) fn text(self) -> Result<Cow<'a, str>, WireError> {
        let bytes = self.bytes()?;
        Ok(std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed))
    }

    /// Reads the message of a field of a message at this level.
    #[inline(always)]
    pub(crate) fn merge_into(
        self,
        message: &mut impl Message<'a>,
        level: Level<'_>,
    ) -> Result<(), WireError> {
        message.merge(self.bytes()?, level.below())
    }

    /// Reads a message to a list, behind the others.
    #[inline(always)]
    pub(crate) fn push_to<M: Message<'a>>(
        self,
        list: &mut Vec<M>,
        level: Level<'_>,
    ) -> Result<(), WireError> {
        let bytes = self.bytes()?;
        level.values.set(level.values.get().checked_sub(1).ok_or(WireError::Values)?);
        list.push_mut(M::default()).merge(bytes, level.below())
    }

    fn instead_of(self, expected: WireKind) -> WireError {
        let found = match self {
            Self::Varint(_) => WireKind::Varint,
            Self::Fixed32(_) => WireKind::Fixed32,
            Self::Fixed64(_) => WireKind::Fixed64,
            Self::Bytes(_) => WireKind::Bytes,
        };
        WireError::Kind { found, expected }
    }
}
