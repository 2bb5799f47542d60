//! Headers of the PROXY protocol, versions 1 and 2, by which a proxy tells the address of its client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Time within which the header has to come.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest header of version 1, its line end included.
const MAX_LINE: usize = 107;
/// Longest header of version 2 that is read, behind its first 16 bytes.
const MAX_BLOCK: usize = 4 << 10;
/// Bytes that a header of version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::input) struct ProxyHeader {
    /// Address of the client; `None` where the proxy does not know it or speaks for itself.
    pub(in crate::input) client: Option<SocketAddr>,
}

/// Reads the header that a stream begins with. What was read behind it stays in the buffer.
///
/// # Errors
/// A stream that does not begin with a header, or not in time.
pub(in crate::input) async fn read_header<R: AsyncRead + Unpin>(
    stream: &mut R,
    buffer: &mut BytesMut,
) -> io::Result<ProxyHeader> {
    let read = async {
        loop {
            match parse(buffer)? {
                Some((header, length)) => {
                    buffer.advance(length);
                    return Ok(header);
                }
                None if stream.read_buf(buffer).await? == 0 => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended"));
                }
                None => {}
            }
        }
    };
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "no PROXY header came in time");
    tokio::time::timeout(TIMEOUT, read).await.map_err(timed_out)?
}

/// Parses the header that bytes begin with; `None` where more of them are needed.
pub(in crate::input) fn parse(bytes: &[u8]) -> io::Result<Option<(ProxyHeader, usize)>> {
    let wrong =
        || io::Error::new(io::ErrorKind::InvalidData, "the stream does not begin with a PROXY header");
    if bytes.starts_with(SIGNATURE) {
        return parse_block(bytes).ok_or_else(wrong);
    }
    if SIGNATURE.starts_with(bytes) {
        return Ok(None);
    }
    let word = b"PROXY ";
    if !bytes.starts_with(word.get(..bytes.len().min(word.len())).unwrap_or_default()) {
        return Err(wrong());
    }
    let Some(end) = memchr::memchr(b'\n', bytes.get(..bytes.len().min(MAX_LINE)).unwrap_or_default()) else {
        return if bytes.len() >= MAX_LINE { Err(wrong()) } else { Ok(None) };
    };
    let line = bytes.get(..end).unwrap_or_default();
    let text = std::str::from_utf8(line).map_err(|_| wrong())?;
    let mut words = text.trim_end_matches('\r').split(' ').skip(1);
    let client = match words.next() {
        Some("UNKNOWN") => None,
        Some("TCP4" | "TCP6") => {
            let address: IpAddr = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            let port = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            Some(SocketAddr::new(address, port))
        }
        _ => return Err(wrong()),
    };
    Ok(Some((ProxyHeader { client }, end + 1)))
}

/// Parses a header of version 2, whose signature is there; the outer `None` is for one that is wrong.
fn parse_block(bytes: &[u8]) -> Option<Option<(ProxyHeader, usize)>> {
    let Some(head) = bytes.get(12..16) else { return Some(None) };
    let &[command, family, high, low] = head else { return None };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || length > MAX_BLOCK {
        return None;
    }
    let Some(block) = bytes.get(16..16 + length) else { return Some(None) };
    let port = |at: usize| Some(u16::from_be_bytes([*block.get(at)?, *block.get(at + 1)?]));
    let client = match (command & 0xf, family >> 4) {
        (0, _) => None,
        (1, 1) => {
            let address: [u8; 4] = block.get(..4)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(address).into(), port(8)?))
        }
        (1, 2) => {
            let address: [u8; 16] = block.get(..16)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(address).into(), port(32)?))
        }
        (1, _) => None,
        _ => return None,
    };
    Some(Some((ProxyHeader { client }, 16 + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend(u16::try_from(block.len()).unwrap().to_be_bytes());
        bytes.extend(block);
        bytes
    }

    #[test]
    fn headers_of_both_versions_tell_the_client() {
        let of_v4 = v2(0x21, 0x11, &[10, 1, 2, 3, 127, 0, 0, 1, 0x12, 0x34, 0, 80]);
        for (bytes, client) in [
            (&b"PROXY TCP4 10.1.2.3 127.0.0.1 4660 80\r\nrest"[..], Some("10.1.2.3:4660")),
            (b"PROXY TCP6 2001:db8::1 ::1 4660 80\r\n", Some("[2001:db8::1]:4660")),
            (b"PROXY UNKNOWN\r\n", None),
            (&of_v4, Some("10.1.2.3:4660")),
            (&v2(0x20, 0, &[]), None),
        ] {
            let (header, length) = parse(bytes).unwrap().unwrap();
            assert_eq!(header.client, client.map(|client| client.parse().unwrap()));
            assert!(bytes.len() == length || bytes.ends_with(b"rest"));
            // The beginning of a header is one, however short.
            for end in 0..length {
                assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
            }
        }
        for wrong in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY TCP4 x y 1 2\r\n", b"PROXY UDP4 1.2.3.4\r\n"] {
            assert!(parse(wrong).is_err());
        }
        assert!(parse(&v2(0x31, 0x11, &[0; 12])).is_err());
        assert!(parse(&v2(0x21, 0x11, &[0; 4])).is_err());
        assert!(parse(format!("PROXY {}", "x".repeat(200)).as_bytes()).is_err());
    }
}
