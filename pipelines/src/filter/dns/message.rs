//! Messages of DNS (RFC 1035): questions for one record type, and the first record of that type in an answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name on the wire, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Longest label of a name, in bytes.
const MAX_LABEL_BYTES: usize = 63;
/// Most jumps of a compressed name.
const MAX_JUMPS: usize = 32;
/// Bytes of the header.
const HEADER_BYTES: usize = 12;
/// Class of the Internet.
const INTERNET: u16 = 1;
/// Flag of a truncated answer.
const TRUNCATED: u16 = 0x0200;
/// Flag of an answer.
const RESPONSE: u16 = 0x8000;
/// Flag of a question that the server is to follow.
const RECURSION_DESIRED: u16 = 0x0100;
/// Code of an answer about a name that does not exist.
const NAME_ERROR: u16 = 3;

/// Type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordType {
    A,
    Aaaa,
    Ptr,
}

/// Content of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The first record: an address, or a name.
    Record(String),
    /// The name does not exist, or has no such record.
    Nothing,
    /// The answer does not fit into a datagram.
    Truncated,
}

/// Reason why a message is no answer to a question.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("the message answers another question")]
    OtherQuestion,
    #[error("the message is malformed")]
    Malformed,
    #[error("the server refuses with code [{0}]")]
    Refused(u16),
}

impl RecordType {
    fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ptr => 12,
            Self::Aaaa => 28,
        }
    }
}

/// Returns the name whose record is the host of an address.
pub(super) fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let mut name = String::with_capacity(72);
            for byte in address.octets().iter().rev() {
                name.push_str(&format!("{:x}.{:x}.", byte & 0x0f, byte >> 4));
            }
            name + "ip6.arpa"
        }
    }
}

/// Writes a question; `None` for a text that is no name.
pub(super) fn question(id: u16, name: &str, kind: RecordType) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + 6);
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() + 2 > MAX_NAME_BYTES || !name.is_ascii() {
        return None;
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=MAX_LABEL_BYTES).contains(&usize::from(*length)))?;
        message.push(length);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.code().to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    Some(message)
}

/// Reads the answer to a question.
///
/// # Errors
/// The message is none, or the server refuses.
pub(super) fn answer(message: &[u8], question: &[u8], kind: RecordType) -> Result<Answer, MessageError> {
    let word = |at: usize| word_at(message, at).ok_or(MessageError::Malformed);
    let flags = word(2)?;
    if word(0)? != word_at(question, 0).unwrap_or_default() || flags & RESPONSE == 0 || word(4)? != 1 {
        return Err(MessageError::OtherQuestion);
    }
    // Whoever does not know the question, in its letters, did not get it.
    let asked = question.get(HEADER_BYTES..).unwrap_or_default();
    let echoed = message.get(HEADER_BYTES..HEADER_BYTES + asked.len()).unwrap_or_default();
    if !echoed.eq_ignore_ascii_case(asked) {
        return Err(MessageError::OtherQuestion);
    }
    match flags & 0x000f {
        0 => {}
        NAME_ERROR => return Ok(Answer::Nothing),
        code => return Err(MessageError::Refused(code)),
    }
    if flags & TRUNCATED != 0 {
        return Ok(Answer::Truncated);
    }
    let mut at = HEADER_BYTES + asked.len();
    for _ in 0..word(6)? {
        at = skip_name(message, at).ok_or(MessageError::Malformed)?;
        let (found, class, length) = (word(at)?, word(at + 2)?, usize::from(word(at + 8)?));
        let data = at + 10;
        if found == kind.code() && class == INTERNET {
            let value = record(message, data, length, kind).ok_or(MessageError::Malformed)?;
            return Ok(Answer::Record(value));
        }
        at = data + length;
    }
    Ok(Answer::Nothing)
}

fn word_at(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_be_bytes)
}

fn record(message: &[u8], at: usize, length: usize, kind: RecordType) -> Option<String> {
    let data = message.get(at..at.checked_add(length)?)?;
    match kind {
        RecordType::A => <[u8; 4]>::try_from(data).ok().map(|octets| Ipv4Addr::from(octets).to_string()),
        RecordType::Aaaa => <[u8; 16]>::try_from(data).ok().map(|octets| Ipv6Addr::from(octets).to_string()),
        RecordType::Ptr => name(message, at),
    }
}

/// Returns the place behind a name.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

/// Reads a name that may be compressed.
fn name(message: &[u8], mut at: usize) -> Option<String> {
    let mut name = String::new();
    let mut jumps = 0;
    loop {
        match *message.get(at)? {
            0 => return Some(name),
            length if length & 0xc0 == 0xc0 => {
                jumps += 1;
                if jumps > MAX_JUMPS {
                    return None;
                }
                at = usize::from(word_at(message, at)? & 0x3fff);
            }
            length if usize::from(length) <= MAX_LABEL_BYTES => {
                let label = message.get(at + 1..at + 1 + usize::from(length))?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(&String::from_utf8_lossy(label));
                if name.len() > MAX_NAME_BYTES {
                    return None;
                }
                at += usize::from(length) + 1;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An answer with one record, whose name is that of the question.
    pub(super) fn reply(question: &[u8], flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
        let mut message = question.to_vec();
        message[2..4].copy_from_slice(&(RESPONSE | flags).to_be_bytes());
        message[6..8].copy_from_slice(&1_u16.to_be_bytes());
        message.extend([0xc0, 12]);
        for word in [kind, INTERNET, 0, 60, data.len() as u16] {
            message.extend(word.to_be_bytes());
        }
        message.extend(data);
        message
    }

    #[test]
    fn answers_are_read() {
        let asked = question(7, "www.example.com", RecordType::A).unwrap();
        let found = |message: &[u8]| answer(message, &asked, RecordType::A);
        assert_eq!(found(&reply(&asked, 0, 1, &[192, 0, 2, 1])), Ok(Answer::Record("192.0.2.1".to_owned())));
        assert_eq!(found(&reply(&asked, 0, 5, &[0])), Ok(Answer::Nothing));
        assert_eq!(found(&reply(&asked, NAME_ERROR, 1, &[192, 0, 2, 1])), Ok(Answer::Nothing));
        assert_eq!(found(&reply(&asked, 2, 1, &[])), Err(MessageError::Refused(2)));
        assert_eq!(found(&reply(&asked, TRUNCATED, 1, &[])), Ok(Answer::Truncated));
        let other = question(8, "www.example.com", RecordType::A).unwrap();
        assert_eq!(found(&reply(&other, 0, 1, &[192, 0, 2, 1])), Err(MessageError::OtherQuestion));
        let other = question(7, "www.example.org", RecordType::A).unwrap();
        assert_eq!(found(&reply(&other, 0, 1, &[192, 0, 2, 1])), Err(MessageError::OtherQuestion));
    }

    #[test]
    fn names_may_be_compressed() {
        let asked = question(7, &reverse_name("192.0.2.1".parse().unwrap()), RecordType::Ptr).unwrap();
        let mut data = b"\x04host\x07example".to_vec();
        data.push(0);
        let found = answer(&reply(&asked, 0, 12, &data), &asked, RecordType::Ptr);
        assert_eq!(found, Ok(Answer::Record("host.example".to_owned())));
        let looping = reply(&asked, 0, 12, &[0xc0, (asked.len() + 12) as u8]);
        assert_eq!(answer(&looping, &asked, RecordType::Ptr), Err(MessageError::Malformed));
        assert!(reverse_name("2001:db8::1".parse().unwrap()).starts_with("1.0.0.0."));
        for wrong in ["", "a..b", "ä.example", &"a".repeat(64)] {
            assert_eq!(question(1, wrong, RecordType::A), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0_usize..60, byte in any::<u8>()) {
            let asked = question(7, "a.example", RecordType::Ptr).unwrap();
            let _ = answer(&bytes, &asked, RecordType::Ptr);
            let mut message = reply(&asked, 0, 12, b"\x01a\xc0\x0c");
            let at = at % message.len();
            message[at] = byte;
            let _ = answer(&message, &asked, RecordType::Ptr);
        }
    }
}
