//! The one way in which the server listens: accepting connections, TLS, HTTP/1.1 and HTTP/2, and the bounds on
//! what clients may hold.
//!
//! [`Server`] serves a list of [`Listener`]s, each with a [`Service`]; [`Acceptor`] is the part of it for one that
//! comes and goes, of HTTP or of another protocol ([`StreamService`]). [`Config`] has the bounds on connections. [`Tls`] can be read again while it is in use; what it
//! verified of a client is a [`ClientCertificate`] beside the [`Peer`] of each request.
//! [`Budget`] bounds the bytes that requests keep in memory; [`BodyReader`] reads and inflates bodies against it or
//! another way to [`Reserve`], and a [`TransferRate`] tells those that are too slow. [`check_host`], [`check_origin`] and
//! [`check_same_origin`] tell requests of foreign web pages.

mod activity;
mod admission;
mod body;
mod budget;
mod byte_stream;
mod certificate;
mod connection;
mod inflate;
mod origin;
mod own_thread;
mod refused;
mod request_target;
mod serve;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod transfer_rate;

pub use admission::client;
pub use body::{BodyError, BodyReader, ReservedBody, head_bytes};
pub use budget::{Budget, BudgetExceeded, Reservation, Reserve};
pub use byte_stream::{ByteStream, StreamConnection, StreamService, StreamWorkGuard};
pub use certificate::ClientCertificate;
pub use inflate::{Coding, InflateError, inflate};
pub use origin::{ForeignHeader, check_host, check_origin, check_same_origin};
pub use serve::{Acceptor, Config, DrainGuard, Listener, Peer, Server, Service};
pub use socket::ReservedSockets;
pub use tls::{ClientCertificates, Tls, TlsFiles};
pub use transfer_rate::{StallReason, TransferRate};
