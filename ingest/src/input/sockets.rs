//! Sockets of inputs that listen.
//!
//! All inputs of the process share the bounds on connections, and the sockets that wait for the next input when a pipeline is
//! reloaded.

use std::sync::LazyLock;

use millrace_listen::{Acceptor, Config, ReservedSockets};
use tokio::net::UdpSocket;

/// Accepts the connections of all inputs.
pub(super) static ACCEPTOR: LazyLock<Acceptor> =
    LazyLock::new(|| Acceptor::new(Config::default().within(open_files())));

/// Listening sockets that wait for the next input of their address.
pub(super) static PARKED: LazyLock<ReservedSockets> = LazyLock::new(ReservedSockets::default);

/// Sockets for datagrams that wait for the next input of their address. The system keeps what comes meanwhile.
pub(super) static PARKED_DATAGRAMS: LazyLock<ReservedSockets<UdpSocket>> =
    LazyLock::new(ReservedSockets::default);

/// Files that the process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}
