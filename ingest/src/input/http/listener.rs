//! Sockets and connections of the input.
//!
//! All inputs of the process share the bounds on connections, and the sockets that wait for the next input when a pipeline is
//! reloaded.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use millrace_listen::{Acceptor, Config, Listener, ReservedSockets};

use super::request::{Handler, Service};
use crate::input::{InputError, stopped};

/// Time for requests under way to end when the input is to stop.
const DRAIN: Duration = Duration::from_secs(30);

/// Accepts the connections of all inputs.
pub(super) static ACCEPTOR: LazyLock<Acceptor> =
    LazyLock::new(|| Acceptor::new(Config::default().within(open_files())));

/// Files that the process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

static PARKED: LazyLock<ReservedSockets> = LazyLock::new(ReservedSockets::default);

/// Serves requests until the input is to stop, then those under way.
pub(super) async fn serve(service: Arc<Service>, acceptor: &Acceptor) -> Result<(), InputError> {
    let failed = |error: std::io::Error| InputError(error.to_string());
    let (host, port) = (service.settings.host.clone(), service.settings.port);
    let tls = service.settings.tls.as_ref().map(|tls| tls.load().map_err(failed)).transpose()?;
    let with_tls = tls.is_some();
    let socket = PARKED.bind(&host, port).await.map_err(failed)?;
    let listener = Listener::of_socket("input http", socket, tls);
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, tls = with_tls, "input http listens");
    service.listens(address);
    let mut stopping = service.stopping();
    let draining = acceptor.accept(&listener, Arc::new(Handler(service)), stopped(&mut stopping)).await;
    PARKED.park(&host, port, listener.into_socket());
    if tokio::time::timeout(DRAIN, draining.done()).await.is_err() {
        tracing::warn!("requests whose events are not stored yet are cut off");
    }
    Ok(())
}
