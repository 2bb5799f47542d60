//! Start-up order and shutdown.
//!
//! Up: store, then search, then listeners, then the ready line. Down, at SIGTERM or SIGINT: no new
//! connections, requests in flight end (at most `drain_timeout`), the store flushes and lets go of
//! its directory. [`Running`] is that sequence without the process around it; `demo` uses it too.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use millrace_api::{Listener, Server, StartError};
use millrace_query::SearchService;
use millrace_storage::{Engine, SystemClock};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::Config;
use crate::exit::Failure;
use crate::logging;

/// Runs the server until a signal ends it.
pub(crate) fn run(config: Config) -> Result<(), Failure> {
    logging::install(&config.log_level, config.log_json);
    runtime(config.threads)?.block_on(async {
        let stop = on_signal()?;
        let https = config.api.tls.is_some();
        let running = Running::start(config).await?;
        announce(&running, https);
        running.until(stop).await
    })
}

/// Stack of a thread that serves requests: queries are trees, planned by functions that call themselves.
const STACK_BYTES: usize = 8 << 20;

/// Builds the runtime that requests are served on; 0 threads means one a core.
pub(crate) fn runtime(threads: usize) -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    builder
        .thread_name("millrace")
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(millrace_storage::run_promptly)
        .enable_all()
        .build()
        .map_err(Failure::other)
}

/// A server whose listeners are open.
#[derive(Debug)]
pub(crate) struct Running {
    engine: Arc<Engine>,
    server: Server,
    drain_timeout: Duration,
}

impl Running {
    /// Opens store and listeners.
    pub(crate) async fn start(config: Config) -> Result<Self, Failure> {
        let Config { storage, api, drain_timeout, .. } = config;
        // Tried before the data directory is made: an address in use is to leave nothing behind.
        for address in &api.listen {
            let tried = Listener::bind(*address, api.tls.as_ref()).await;
            drop(tried.map_err(|error| Failure::listen(StartError::Listen(error)))?);
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), data = %storage.data_dir.display(), "starting");
        let engine = Engine::open(storage, Arc::new(SystemClock)).await.map_err(Failure::open)?;
        let search = SearchService::new(Arc::clone(&engine), millrace_query::Config::default());
        match Server::bind(api, Arc::clone(&engine), Arc::new(search)).await {
            Ok(server) => Ok(Self { engine, server, drain_timeout }),
            Err(error) => {
                // The directory was opened for nothing: leave it as found.
                if let Err(error) = engine.shutdown().await {
                    tracing::warn!(%error, "store did not shut down cleanly");
                }
                Err(Failure::listen(error))
            }
        }
    }

    /// Returns the addresses listened on.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.server.local_addr()
    }

    /// Returns the administrator's password if this start generated it.
    pub(crate) fn generated_password(&self) -> Option<String> {
        self.server.generated_password().map(str::to_owned)
    }

    /// Serves until `stop` completes, then drains, flushes and closes.
    pub(crate) async fn until(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        let (stopping, stopped) = watch::channel(false);
        tokio::spawn(async move {
            stop.await;
            let _ = stopping.send(true);
        });
        let wait = |mut stopped: watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let serving = self.server.run(wait(stopped.clone()));
        let overdue = async {
            wait(stopped).await;
            tracing::info!("stopping: draining requests");
            tokio::time::sleep(self.drain_timeout).await;
        };
        let served = tokio::select! {
            served = serving => served.map_err(Failure::other),
            () = overdue => {
                tracing::warn!("requests were cut: they took longer than drain_timeout");
                Ok(())
            }
        };
        self.engine.shutdown().await.map_err(Failure::other)?;
        tracing::info!("stopped");
        served
    }
}

/// Prints the password, if new, and the ready line that scripts wait for.
fn announce(running: &Running, https: bool) {
    let mut out = std::io::stdout().lock();
    if let Some(password) = running.generated_password() {
        let _ = writeln!(out, "first start: user admin has the password {password} (it is not shown again)");
    }
    let scheme = if https { "https" } else { "http" };
    for address in running.addresses() {
        let _ = writeln!(out, "listening on {scheme}://{address}");
        tracing::info!(%address, scheme, "listening");
    }
    let _ = out.flush();
}

/// Returns a future that completes at SIGTERM or SIGINT. From then on another one ends the
/// process at once, without a flush: the log has everything that was acknowledged.
pub(crate) fn on_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::other)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::other)?;
    Ok(async move {
        either(&mut terminate, &mut interrupt).await;
        tokio::spawn(async move {
            either(&mut terminate, &mut interrupt).await;
            let _ = writeln!(std::io::stderr(), "error: second signal, ending at once");
            process::exit(i32::from(Failure::INTERRUPTED));
        });
    })
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
