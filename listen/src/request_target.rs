//! Escapes bytes of request targets that clients send unescaped.
//!
//! `curl 'http://…/_search?q=n:>3'` sends `>` as it is. OpenSearch takes it, `http::Uri` refuses it. [`TargetEscaper`]
//! percent-encodes such bytes of the request line before hyper reads them, and leaves all others alone.
//!
//! It follows heads and bodies of HTTP/1.1 by `Content-Length`. From a request on whose end it cannot tell so (HTTP/2, chunked bodies,
//! upgrades, contradictory lengths) it passes on the rest of the connection unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes at the start of a line that are kept to tell headers by.
const LINE_START_BYTES: usize = 64;
/// Request line that HTTP/2 begins with.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// Hexadecimal digits.
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Escapes request targets of a connection; see the module.
#[derive(Debug)]
pub(crate) struct TargetEscaper<T> {
    stream: T,
    scanner: Scanner,
    /// Bytes that were read and escaped, and from where on they are to be handed on.
    escaped: Vec<u8>,
    at: usize,
}

/// Part of a connection that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPart {
    RequestLine,
    Headers,
    /// So many bytes of a body are to come.
    Body(u64),
    /// A connection whose bytes are passed on unread.
    Opaque,
}

/// Follows the bytes of a connection.
#[derive(Debug)]
struct Scanner {
    part: ConnectionPart,
    line_start: Vec<u8>,
    length: Option<u64>,
    /// True if the end of the body cannot be told by its length.
    unbounded: bool,
}

impl Scanner {
    fn new() -> Self {
        Self { part: ConnectionPart::RequestLine, line_start: Vec::new(), length: None, unbounded: false }
    }

    /// Follows bytes; returns them with escapes where any is to be escaped.
    fn scan(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut escaped: Option<Vec<u8>> = None;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.part {
                ConnectionPart::Opaque => {
                    escaped.iter_mut().for_each(|out| out.extend_from_slice(&bytes[at..]));
                    break;
                }
                ConnectionPart::Body(left) => {
                    let own = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    escaped.iter_mut().for_each(|out| out.extend_from_slice(&bytes[at..at + own]));
                    at += own;
                    self.part = match left - own as u64 {
                        0 => ConnectionPart::RequestLine,
                        left => ConnectionPart::Body(left),
                    };
                    continue;
                }
                ConnectionPart::RequestLine if is_refused(*byte) => {
                    let out = escaped.get_or_insert_with(|| bytes[..at].to_vec());
                    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
                    self.byte_of_line(b'%');
                }
                ConnectionPart::RequestLine | ConnectionPart::Headers => {
                    escaped.iter_mut().for_each(|out| out.push(*byte));
                    self.byte_of_line(*byte);
                }
            }
            at += 1;
        }
        escaped
    }

    /// Takes a byte of a request line or a header.
    fn byte_of_line(&mut self, byte: u8) {
        if byte != b'\n' {
            if self.line_start.len() < LINE_START_BYTES {
                self.line_start.push(byte);
            }
            return;
        }
        let line = std::mem::take(&mut self.line_start);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        self.part = match (self.part, line.is_empty()) {
            (ConnectionPart::RequestLine, true) => ConnectionPart::RequestLine,
            (ConnectionPart::RequestLine, false) if line.starts_with(HTTP2_PREFACE) => ConnectionPart::Opaque,
            (_, false) => {
                if self.part == ConnectionPart::Headers {
                    self.header(line);
                }
                ConnectionPart::Headers
            }
            (_, true) => {
                let length = self.length.take().unwrap_or(0);
                match (std::mem::take(&mut self.unbounded), length) {
                    (true, _) => ConnectionPart::Opaque,
                    (false, 0) => ConnectionPart::RequestLine,
                    (false, length) => ConnectionPart::Body(length),
                }
            }
        };
    }

    /// Takes the start of a header.
    fn header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") || name.eq_ignore_ascii_case(b"upgrade") {
            self.unbounded = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let plain = value.iter().all(u8::is_ascii_digit) && line.len() < LINE_START_BYTES;
            let length = std::str::from_utf8(value).ok().and_then(|value| value.parse::<u64>().ok());
            let length = length.filter(|length| plain && self.length.is_none_or(|known| known == *length));
            self.unbounded |= length.is_none();
            self.length = length;
        }
    }
}

/// Returns true if a byte of a request line is one that OpenSearch takes and `http::Uri` refuses.
fn is_refused(byte: u8) -> bool {
    match byte {
        b'\t'..=b'\r' | b' ' => false,
        b'"' | b'<' | b'>' | b'`' => true,
        _ => !byte.is_ascii_graphic(),
    }
}

impl<T> TargetEscaper<T> {
    /// Wraps a connection.
    pub(crate) fn new(stream: T) -> Self {
        Self { stream, scanner: Scanner::new(), escaped: Vec::new(), at: 0 }
    }

    /// Hands on bytes that were escaped; whether there were any.
    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let left = &self.escaped[self.at..];
        if left.is_empty() {
            return false;
        }
        let own = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..own]);
        self.at += own;
        if self.at == self.escaped.len() {
            (self.escaped, self.at) = (Vec::new(), 0);
        }
        true
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TargetEscaper<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.hand_on(buffer) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(escaped) = self.scanner.scan(&buffer.filled()[before..]) {
            buffer.set_filled(before);
            self.escaped = escaped;
            self.hand_on(buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TargetEscaper<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escapes a connection that arrives in parts of some bytes.
    fn escaped(bytes: &[u8], part: usize) -> Vec<u8> {
        let mut scanner = Scanner::new();
        bytes.chunks(part).flat_map(|part| scanner.scan(part).unwrap_or_else(|| part.to_vec())).collect()
    }

    #[test]
    fn bytes_of_targets_are_escaped_and_no_others() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"GET /a?q=n:>3 HTTP/1.1\r\nX: <\"`>\r\n\r\n", b"GET /a?q=n:%3E3 HTTP/1.1\r\nX: <\"`>\r\n\r\n"),
            (b"GET /<a\"`>{}|^\\ HTTP/1.1\r\n\r\n", b"GET /%3Ca%22%60%3E{}|^\\ HTTP/1.1\r\n\r\n"),
            (b"GET /\x01\x7f\xc3\xa9\xff H\n\n", b"GET /%01%7F%C3%A9%FF H\n\n"),
            (
                b"\r\nPOST /> H\r\nContent-Length: 3\r\n\r\n<>\n>GET /> H\r\n\r\nGET /< H\r\n\r\n",
                b"\r\nPOST /%3E H\r\nContent-Length: 3\r\n\r\n<>\n%3EGET /%3E H\r\n\r\nGET /%3C H\r\n\r\n",
            ),
            (
                b"POST /> H\r\ncontent-length:0\r\n\r\nGET /> H\r\n\r\n",
                b"POST /%3E H\r\ncontent-length:0\r\n\r\nGET /%3E H\r\n\r\n",
            ),
        ];
        for (given, expected) in cases {
            for part in [1, 2, 7, 1000] {
                let found = escaped(given, part);
                assert_eq!(found, *expected, "{part}: {}", String::from_utf8_lossy(&found));
            }
        }
    }

    #[test]
    fn what_cannot_be_followed_is_passed_on() {
        let rest = "GET /> H\r\n\r\n<>";
        for head in [
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST / H\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / H\r\nupgrade: h2c\r\n\r\n",
            "POST / H\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "POST / H\r\nContent-Length: +1\r\n\r\n",
            "POST / H\r\nContent-Length: 1, 1\r\n\r\n",
            "POST / H\r\nContent-Length:\r\n\r\n",
        ] {
            let given = format!("{head}{rest}");
            for part in [1, 5, 1000] {
                assert_eq!(escaped(given.as_bytes(), part), given.as_bytes(), "{part}: {head}");
            }
        }
    }
}
