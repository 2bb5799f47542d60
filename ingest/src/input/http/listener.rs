//! The listener of the input: it serves requests until the input is to stop.

use std::sync::Arc;
use std::time::Duration;

use millrace_listen::{Acceptor, Listener};

use super::request::{Handler, Service};
pub(super) use crate::input::sockets::ACCEPTOR;
use crate::input::sockets::PARKED;
use crate::input::{InputError, stopped};

/// Time for requests under way to end when the input is to stop.
const DRAIN: Duration = Duration::from_secs(30);

/// Serves requests until the input is to stop, then those under way.
pub(super) async fn serve(service: Arc<Service>, acceptor: &Acceptor) -> Result<(), InputError> {
    let failed = |error: std::io::Error| InputError(error.to_string());
    let (host, port) = (service.settings.host.clone(), service.settings.port);
    let tls = service.settings.tls.as_ref().map(|tls| tls.load().map_err(failed)).transpose()?;
    let with_tls = tls.is_some();
    let socket = PARKED.bind(&host, port).await.map_err(failed)?;
    let listener = Listener::of_socket("input http", socket, tls);
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, tls = with_tls, "an input listens");
    service.listens(address);
    let mut stopping = service.stopping();
    let draining = acceptor.accept(&listener, Arc::new(Handler(service)), stopped(&mut stopping)).await;
    PARKED.park(&host, port, listener.into_socket());
    if tokio::time::timeout(DRAIN, draining.done()).await.is_err() {
        tracing::warn!("requests whose events are not stored yet are cut off");
    }
    Ok(())
}
