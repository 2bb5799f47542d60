//! Internet addresses as text.

use std::fmt;
use std::io::Write;
use std::net::Ipv6Addr;
use std::ops::Deref;

/// The longest text: eight groups of four digits, or six and an IPv4 address.
const MAX_BYTES: usize = 45;

/// The text of an address, IPv4 where it is mapped. It takes no memory of its own: whole columns are written.
#[derive(Clone, Copy, Debug)]
pub struct AddressText {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl AddressText {
    /// Writes an address in network order.
    pub fn new(address: [u8; 16]) -> Self {
        let mut text = Self { bytes: [0; MAX_BYTES], length: 0 };
        let address = Ipv6Addr::from(address);
        match address.to_ipv4_mapped() {
            Some(short) => {
                for (at, octet) in short.octets().into_iter().enumerate() {
                    if at > 0 {
                        text.push(b'.');
                    }
                    text.push_decimal(octet);
                }
            }
            None => {
                let mut rest = text.bytes.as_mut_slice();
                // The longest has room.
                let _ = write!(rest, "{address}");
                text.length = MAX_BYTES - rest.len();
            }
        }
        text
    }

    fn push_decimal(&mut self, octet: u8) {
        if octet >= 100 {
            self.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            self.push(b'0' + octet / 10 % 10);
        }
        self.push(b'0' + octet % 10);
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

impl Deref for AddressText {
    type Target = str;

    fn deref(&self) -> &str {
        // All of it is ASCII.
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl fmt::Display for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        let texts = [
            "0.0.0.0",
            "1.20.255.9",
            "255.255.255.255",
            "::",
            "::1",
            "2001:db8::8a2e:370:7334",
            "fe80:1111:2222:3333:4444:5555:6666:7777",
        ];
        for text in texts {
            let address = match text.parse().unwrap() {
                IpAddr::V4(short) => short.to_ipv6_mapped(),
                IpAddr::V6(long) => long,
            };
            assert_eq!(&*AddressText::new(address.octets()), text);
            assert_eq!(AddressText::new(address.octets()).to_string(), text);
        }
    }
}
