//! Messages of gRPC within a body, as their bytes arrive: where each begins and ends, and how long its descriptor is.
//!
//! A name of a descriptor's path takes two bytes as it is sent, and more than ten times as much once the message is read, which nobody
//! counts: a message of the greatest length would become hundreds of megabytes before anybody could refuse it. So descriptors are
//! bounded while they arrive, wherever in a message they are. Its other fields are bytes, which are not copied.

use std::time::Duration;

use tonic::Status;

use crate::limits::{MAX_STATEMENT, MAX_TAKEN};

/// Time that a message may take once it has begun, and the bytes that have to arrive in each second beyond.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES_A_SECOND: u64 = 256 << 10;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Longest descriptor: a command, and what says that it is one.
const MAX_DESCRIPTOR: u64 = (MAX_STATEMENT + (1 << 10)) as u64;
/// Number of the field that is the descriptor, of the messages of batches.
const DESCRIPTOR: u64 = 1;

/// Progress of the batch message that is arriving.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that are there.
    begun: usize,
    /// Bytes that are to come behind a whole prefix.
    left: u64,
    /// Time that it may still take.
    patience: Duration,
    fields: Fields,
}

/// Field of a message that is arriving.
#[derive(Debug, Default)]
struct Fields {
    at: FrameState,
    /// The number that is arriving, where that is one.
    number: Varint,
    /// Bytes of descriptors so far: several of them are one.
    descriptors: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum FrameState {
    /// A number: which field comes, and of what kind.
    #[default]
    Key,
    /// A number that is the field.
    Number,
    /// A number: how long the field is.
    Length { is_descriptor: bool },
    /// A field of which so many bytes are to come.
    Within(u64),
}

/// A number of which the lower bits come first, seven with each byte.
#[derive(Debug, Default)]
struct Varint {
    value: u64,
    bits: u32,
}

impl Progress {
    /// Returns how long the message that has begun may be waited for, beyond what it was already; `None` between messages.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.begun > 0).then_some(self.patience)
    }

    /// Takes note for how long the next bytes were waited for.
    pub(crate) fn waited(&mut self, wait: Duration) {
        self.patience = self.patience.saturating_sub(wait);
    }

    /// Takes note of the next bytes.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for a descriptor that is too long; `INVALID_ARGUMENT` for what is no message.
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while let Some(first) = bytes.first() {
            if self.begun < PREFIX {
                if self.begun == 0 {
                    self.patience = PATIENCE;
                }
                self.prefix[self.begun] = *first;
                self.begun += 1;
                bytes = &bytes[1..];
                if self.begun == PREFIX {
                    let [_, length @ ..] = self.prefix;
                    // One that is longer is refused by who reads it.
                    self.left = u64::from(u32::from_be_bytes(length)).min(MAX_TAKEN as u64 + 1);
                    self.patience += Duration::from_secs(self.left / BYTES_A_SECOND);
                    self.fields = Fields::default();
                }
            } else {
                let some = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                let (of_message, rest) = bytes.split_at(some);
                // So is one that is compressed.
                if self.prefix[0] == 0 {
                    self.fields.advance(of_message)?;
                }
                bytes = rest;
                self.left -= some as u64;
            }
            if self.begun == PREFIX && self.left == 0 {
                self.begun = 0;
            }
        }
        Ok(())
    }
}

impl Fields {
    fn advance(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while let Some((first, rest)) = bytes.split_first() {
            if let FrameState::Within(left) = self.at {
                let some = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = &bytes[some..];
                self.at = FrameState::within(left - some as u64);
                continue;
            }
            bytes = rest;
            if let Some(number) = self.number.add(*first)? {
                self.at = self.behind(number)?;
            }
        }
        Ok(())
    }

    /// Returns the value behind a number.
    fn behind(&mut self, number: u64) -> Result<FrameState, Status> {
        match self.at {
            FrameState::Key => match number & 7 {
                0 => Ok(FrameState::Number),
                1 => Ok(FrameState::Within(8)),
                2 => Ok(FrameState::Length { is_descriptor: number >> 3 == DESCRIPTOR }),
                5 => Ok(FrameState::Within(4)),
                // Groups are no longer sent by anybody: they are not looked into, and so not taken.
                _ => Err(no_message()),
            },
            FrameState::Length { is_descriptor } => {
                if is_descriptor {
                    self.descriptors = self.descriptors.saturating_add(number);
                }
                if self.descriptors > MAX_DESCRIPTOR {
                    return Err(Status::resource_exhausted(format!(
                        "the descriptor of a message is longer than [{MAX_DESCRIPTOR}] bytes: a command has no more than \
                         [{MAX_STATEMENT}]"
                    )));
                }
                Ok(FrameState::within(number))
            }
            FrameState::Number | FrameState::Within(_) => Ok(FrameState::Key),
        }
    }
}

impl FrameState {
    fn within(bytes: u64) -> Self {
        match bytes {
            0 => Self::Key,
            left => Self::Within(left),
        }
    }
}

impl Varint {
    /// Takes note of a byte. Returns the number with its last one.
    fn add(&mut self, byte: u8) -> Result<Option<u64>, Status> {
        self.value |= u64::from(byte & 0x7f) << self.bits;
        self.bits += 7;
        match byte & 0x80 {
            0 => Ok(Some(std::mem::take(self).value)),
            // There is room for ten bytes.
            _ if self.bits > u64::BITS => Err(no_message()),
            _ => Ok(None),
        }
    }
}

fn no_message() -> Status {
    Status::invalid_argument("a message cannot be read: it is none of Flight")
}

#[cfg(test)]
mod tests {
    use arrow_flight::{FlightData, FlightDescriptor};
    use prost::Message;
    use tonic::Code;

    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend(message);
        bytes
    }

    fn message(descriptor: Option<FlightDescriptor>, body: &[u8]) -> Vec<u8> {
        FlightData {
            flight_descriptor: descriptor,
            data_header: body.to_vec().into(),
            app_metadata: body.to_vec().into(),
            data_body: body.to_vec().into(),
        }
        .encode_to_vec()
    }

    /// Has the messages arrive in parts of so many bytes.
    fn arrive(messages: &[&[u8]], part: usize) -> Result<(), Code> {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
        let mut progress = Progress::default();
        bytes.chunks(part).try_for_each(|part| progress.advance(part)).map_err(|error| error.code())?;
        assert_eq!(progress.patience(), None, "the last one has ended");
        Ok(())
    }

    #[test]
    fn a_message_has_time_for_its_length() {
        let mut progress = Progress::default();
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(2 * BYTES_A_SECOND).unwrap().to_be_bytes());
        progress.advance(&bytes[..3]).unwrap();
        assert_eq!(progress.patience(), Some(PATIENCE));
        progress.waited(Duration::from_secs(1));
        progress.advance(&bytes[3..]).unwrap();
        assert_eq!(progress.patience(), Some(PATIENCE + Duration::from_secs(1)));
        progress.advance(&vec![0; usize::try_from(2 * BYTES_A_SECOND).unwrap() - 1]).unwrap();
        assert!(progress.patience().is_some());
        progress.advance(&[0]).unwrap();
        assert_eq!(progress.patience(), None);
    }

    #[test]
    fn descriptors_are_bounded_before_they_are_read_wherever_they_are() {
        let names = |count| Some(FlightDescriptor::new_path(vec![String::new(); count]));
        // Two bytes a name, and two for the type.
        let most = usize::try_from(MAX_DESCRIPTOR).unwrap() / 2 - 1;
        let (longest, longer) = (message(names(most), b"x"), message(names(most + 1), b"x"));
        let command = message(Some(FlightDescriptor::new_cmd(vec![1; MAX_STATEMENT])), &[0xff; 1 << 16]);
        // Fields may come in any order, and more than once.
        let behind = [message(None, b"body"), longer.clone()].concat();
        let twice = [longest.clone(), message(names(1), b"")].concat();
        let plain = message(None, b"body");
        for part in [1, 7, usize::MAX] {
            assert_eq!(arrive(&[&longest, &plain, &command, &longest, b""], part), Ok(()));
            for long in [&longer, &behind, &twice] {
                assert_eq!(arrive(&[&plain, long], part), Err(Code::ResourceExhausted));
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused_and_what_is_unknown_is_not() {
        // A group, a kind that there is not, and a number without end.
        for wrong in [&[0x0b][..], &[0x0e], &[0xff; 11]] {
            assert_eq!(arrive(&[wrong], 1), Err(Code::InvalidArgument));
        }
        // A number, eight bytes, four bytes, and a text, of fields that there are not.
        let mut unknown: Vec<u8> = vec![0xf8, 0x01, 0xff, 0x01];
        unknown.extend([0xf9, 0x01, 9, 9, 9, 9, 9, 9, 9, 9]);
        unknown.extend([0xfd, 0x01, 9, 9, 9, 9]);
        unknown.extend([0xfa, 0x01, 1, 9]);
        assert_eq!(arrive(&[&unknown], 1), Ok(()));
        assert_eq!(FlightData::decode(&unknown[..]), Ok(FlightData::default()));
    }
}
