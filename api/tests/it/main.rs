//! The data API driven through its service, in process, over a store in a temporary directory; and the
//! server over real sockets.

mod bulk;
mod documents;
mod protocol;
mod server;
mod support;
