//! A socket that knows whether its peer takes what is sent.
//!
//! Writes that wait fail once the peer has acknowledged too little for too long. That a write does not get
//! through tells nothing by itself: a socket whose buffer holds megabytes takes the next bytes only when a third
//! of it is free, which over a slow line takes minutes. So the system is asked how much of the buffer is left.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::activity::Activity;

/// Bytes that the peer must acknowledge in each period.
const PROGRESS_BYTES: u64 = 1 << 10;
/// Bytes that HTTP/2 without TLS begins with.
const PREFACE: &[u8] = b"PRI";

/// The socket of a connection; see the module.
#[derive(Debug)]
pub(crate) struct MonitoredSocket {
    socket: TcpStream,
    activity: Arc<Activity>,
    tls: bool,
    patience: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that were not acknowledged when the period began, while a write waits.
    unacknowledged: Option<u64>,
}

impl MonitoredSocket {
    /// Wraps a socket; writes fail without progress for as long as `patience`.
    pub(crate) fn new(socket: TcpStream, activity: Arc<Activity>, tls: bool, patience: Duration) -> Self {
        Self { socket, activity, tls, patience, timer: None, unacknowledged: None }
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Poll::Pending = written else {
            self.unacknowledged = None;
            if let Poll::Ready(Ok(bytes)) = written {
                self.activity.has_written(bytes);
            }
            return written;
        };
        let due = || Instant::now() + self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due())));
        let before = match self.unacknowledged {
            Some(before) => before,
            None => {
                self.activity.blocks();
                timer.as_mut().reset(due());
                *self.unacknowledged.insert(unacknowledged(&self.socket))
            }
        };
        let mut before = before;
        while timer.as_mut().poll(context).is_ready() {
            let left = unacknowledged(&self.socket);
            if left.saturating_add(PROGRESS_BYTES) > before {
                let reason = "the client does not take its answer";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)));
            }
            before = left;
            self.unacknowledged = Some(left);
            timer.as_mut().reset(due());
        }
        Poll::Pending
    }
}

/// Returns how many bytes of a socket's buffer the peer has not acknowledged; 0 where the system cannot tell,
/// which counts as no progress.
#[cfg(target_os = "linux")]
fn unacknowledged(socket: &TcpStream) -> u64 {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while `socket` is borrowed, and TIOCOUTQ (that is SIOCOUTQ) writes one int.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { u64::try_from(bytes).unwrap_or_default() } else { 0 }
}

#[cfg(not(target_os = "linux"))]
fn unacknowledged(_socket: &TcpStream) -> u64 {
    0
}

impl AsyncRead for MonitoredSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        let new = &buffer.filled()[before..];
        if !self.tls && new.starts_with(PREFACE) && !self.activity.has_begun_a_head() {
            self.activity.speaks_http2();
        }
        if !new.is_empty() {
            self.activity.has_read(new.len());
        }
        read
    }
}

impl AsyncWrite for MonitoredSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
