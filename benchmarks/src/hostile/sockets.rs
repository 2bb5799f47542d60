//! Attacks that no HTTP library sends: connections that say nothing or little, bodies that never come, streams that are reset.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{HostileLoad, ListenerAddresses, PASSWORD, VICTIM};

/// Time that connections are held.
const HELD: Duration = Duration::from_secs(5);
/// Time that the system may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// A way to use connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Socket {
    /// Connections that send nothing, to a listener.
    Silent(Listener),
    /// Heads that come a byte at a time.
    SlowHeads,
    /// Bodies that are declared and never sent.
    DeclaredBodies,
    /// HTTP/2 requests with wrong passwords, reset at once.
    ResetStreams,
}

/// A listener of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    /// The data API.
    Api,
    /// A pipeline's `http` input.
    Input,
}

/// Lists everything.
pub(super) fn all() -> Vec<HostileLoad> {
    [
        Socket::Silent(Listener::Api),
        Socket::Silent(Listener::Input),
        Socket::SlowHeads,
        Socket::DeclaredBodies,
        Socket::ResetStreams,
    ]
    .map(HostileLoad::Socket)
    .into()
}

impl Socket {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Silent(Listener::Api) => "connections: 1,000 that say nothing",
            Self::Silent(Listener::Input) => "connections: 1,000 that say nothing to an input",
            Self::SlowHeads => "connections: 200 heads, a byte at a time",
            Self::DeclaredBodies => "connections: 64 bodies of 100 MB that never come",
            Self::ResetStreams => "connections: 5,000 streams with wrong passwords, reset",
        }
    }

    /// Does it, and tells what happened.
    ///
    /// # Errors
    /// The server is not there any more.
    pub(super) async fn play(self, doors: &ListenerAddresses) -> Result<String> {
        match self {
            Self::Silent(listener) => {
                let port = match listener {
                    Listener::Api => doors.port,
                    Listener::Input => doors.input,
                };
                let held = connections(port, 1_000).await;
                let all = held.len();
                tokio::time::sleep(HELD).await;
                alive(doors).await?;
                Ok(format!("{all} accepted, {} open after {} s", open(held).await, HELD.as_secs()))
            }
            Self::SlowHeads => {
                let mut held = connections(doors.port, 200).await;
                for byte in b"GET / HTTP/1.1\r\nhost: lo" {
                    for stream in &mut held {
                        let _ = stream.write_all(&[*byte]).await;
                    }
                    tokio::time::sleep(HELD / 25).await;
                }
                alive(doors).await?;
                Ok(format!("{} open after {} s", open(held).await, HELD.as_secs()))
            }
            Self::DeclaredBodies => {
                let mut held = connections(doors.port, 64).await;
                let head = format!(
                    "POST /{VICTIM}/_bulk HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: {}\r\n\
                     content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n{{",
                    doors.port,
                    basic(PASSWORD),
                    100 << 20
                );
                for stream in &mut held {
                    let _ = stream.write_all(head.as_bytes()).await;
                }
                tokio::time::sleep(HELD).await;
                alive(doors).await?;
                Ok(format!("{} open after {} s", open(held).await, HELD.as_secs()))
            }
            Self::ResetStreams => {
                let mut stream = TcpStream::connect(("127.0.0.1", doors.port)).await?;
                let _ = timeout(HELD * 2, stream.write_all(&reset_streams(doors.port, 5_000))).await;
                alive(doors).await?;
                Ok("answers others".to_owned())
            }
        }
    }
}

/// Opens connections, as many as are accepted.
async fn connections(port: u16, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        match timeout(CONNECT, TcpStream::connect(("127.0.0.1", port))).await {
            Ok(Ok(stream)) => open.push(stream),
            _ => break,
        }
    }
    open
}

/// Counts the connections that the server has not closed.
async fn open(streams: Vec<TcpStream>) -> usize {
    let mut open = 0;
    for mut stream in streams {
        let read = timeout(Duration::from_millis(1), stream.read(&mut [0; 64])).await;
        open += usize::from(read.is_err());
    }
    open
}

/// Asks on a new connection.
async fn alive(doors: &ListenerAddresses) -> Result<()> {
    let target = doors.target.apart()?;
    let asked = target.ask(reqwest::Method::GET, "/", &serde_json::Value::Null);
    timeout(HELD, asked).await.context("no answer on a new connection in 5 s")??;
    Ok(())
}

fn basic(password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("admin:{password}")))
}

/// Writes HTTP/2 frames (RFC 9113): the preface, settings, and streams of a head and a reset each.
fn reset_streams(port: u16, count: u32) -> Vec<u8> {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const END_STREAM_AND_HEADERS: u8 = 5;
    const CANCEL: u32 = 8;
    let frame = |out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(payload);
    };
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    for number in 0..count {
        let stream = 2 * number + 1;
        let head = head(&format!("127.0.0.1:{port}"), &basic(&format!("wrong{number}")));
        frame(&mut out, HEADERS, END_STREAM_AND_HEADERS, stream, &head);
        frame(&mut out, RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }
    out
}

/// Encodes a head by HPACK (RFC 7541) without its dynamic table: GET / with authority and authorization.
fn head(authority: &str, authorization: &str) -> Vec<u8> {
    // Indexed fields of the static table: `:method GET`, `:scheme http`, `:path /`.
    let mut head = vec![0x82, 0x86, 0x84];
    // Literals without indexing, by the names 1 (`:authority`) and 23 (`authorization`: 15 and 8 more).
    for (name, value) in [(&[0x01][..], authority), (&[0x0f, 0x08][..], authorization)] {
        head.extend_from_slice(name);
        head.push(value.len() as u8);
        head.extend_from_slice(value.as_bytes());
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_lengths() {
        let bytes = reset_streams(9200, 3);
        let mut rest = &bytes[24..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            kinds.push((rest[3], u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]])));
            rest = &rest[9 + length..];
        }
        assert_eq!(kinds, [(4, 0), (1, 1), (3, 1), (1, 3), (3, 3), (1, 5), (3, 5)]);
        assert!(basic("wrong4999").len() < 127, "lengths are one byte");
    }
}
