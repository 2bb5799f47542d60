//! Notifies the supervisor of the process's state by systemd's protocol (`sd_notify(3)`): datagrams of `NAME=value` lines to the
//! socket that `NOTIFY_SOCKET` names.
//!
//! Without the variable nothing is sent. What cannot be sent is logged and given up: the supervisor is no reason not to
//! serve.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

/// Longest time that a message waits for a supervisor that does not read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Name of the variable with the socket's address.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The way to the supervisor, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Message that was sent when requests began to be taken.
    serving: OnceLock<String>,
}

impl Supervisor {
    /// Finds the supervisor that the environment names.
    pub(crate) fn of_environment() -> Self {
        std::env::var_os(VARIABLE).map_or_else(Self::default, |address| Self::at(&address))
    }

    fn at(address: &OsStr) -> Self {
        match open(address) {
            Ok(socket) => Self { socket: Some(socket), serving: OnceLock::new() },
            Err(error) => {
                tracing::warn!(address = %address.display(), %error, "{VARIABLE} names no socket of a supervisor");
                Self::default()
            }
        }
    }

    /// Reports the state of the process.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    /// Tells that requests are taken.
    pub(crate) fn ready(&self, status: &str) {
        let status = self.serving.get_or_init(|| status.to_owned());
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Tells that files are read again. While the process starts this is left out: its end would be taken for readiness.
    pub(crate) fn reloading(&self) {
        if self.serving.get().is_some() {
            self.send("RELOADING=1\nSTATUS=reading certificates again");
        }
    }

    /// Tells that files have been read again.
    pub(crate) fn reloaded(&self) {
        if let Some(status) = self.serving.get() {
            self.ready(status);
        }
    }

    /// Tells that the shutdown has begun.
    pub(crate) fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={status}"));
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "the supervisor cannot be told of the state");
        }
    }
}

/// Opens a socket to a path, or to an abstract name, which begins with `@`.
fn open(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_are_datagrams() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(path.as_os_str());
        supervisor.status("replaying the log");
        supervisor.reloading();
        supervisor.reloaded();
        supervisor.ready("serving");
        supervisor.reloading();
        supervisor.reloaded();
        supervisor.stopping("draining");
        assert_eq!(received(&socket), "STATUS=replaying the log");
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving");
        assert_eq!(received(&socket), "RELOADING=1\nSTATUS=reading certificates again");
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=draining");
    }

    #[test]
    fn names_may_be_abstract() {
        let name = format!("millrace-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Supervisor::at(OsStr::new(&format!("@{name}"))).ready("serving");
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving");
    }

    #[test]
    fn a_supervisor_that_is_not_there_is_no_failure() {
        for address in ["", "notify", "vsock:2:1234", "/nowhere/notify"] {
            Supervisor::at(OsStr::new(address)).ready("serving");
        }
        assert!(Supervisor::at(OsStr::new("vsock:2:1234")).socket.is_none());
    }
}
