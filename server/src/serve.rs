//! Start-up order and shutdown.
//!
//! Up: store, then search, then rules, then listeners, then pipelines, then the ready line; a supervisor is told of each
//! ([`Supervisor`]). Down, at SIGTERM or SIGINT: pipelines stop
//! reading and bring to an end what they have read while no new connections are taken and requests in flight end,
//! then rules stop where they are, then notifications that are on their way, then the store flushes and lets go of its
//! directory; all of it within `drain_timeout`, of which the last seconds are the store's: what hangs is cut, and the log has
//! what was not flushed. [`RunningServer`] is that sequence without the process around it; `demo` uses it too.
//! SIGHUP has all certificates read again; those that change are so within ten seconds by themselves.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use millrace_agents::{AgentListener, Agents, ListenerKind};
use millrace_alerting::Alerting;
use millrace_api::{Server, StartError};
use millrace_engine::{Engine, ReplayProgress};
use millrace_flight::{Flight, LogsService};
use millrace_intelligence::Intelligence;
use millrace_listen::{Listener, Tls};
use millrace_pipeline_store::EngineStore;
use millrace_pipelines::{Environment, Manager, manager};
use millrace_query::SearchService;
use millrace_runtime::Instant;
use millrace_runtime::SystemClock;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::config::{AgentsSection, Config, Listen};
use crate::exit::Failure;
use crate::notify::Supervisor;
use crate::telemetry::SpanExport;
use crate::{logging, memory};

/// Runs the server until a signal ends it.
pub(crate) fn run(mut config: Config) -> Result<(), Failure> {
    let runtime = runtime(config.threads)?;
    let export = config.otlp_endpoint.as_deref().map(|endpoint| SpanExport::new(endpoint, runtime.handle()));
    let export = export.transpose().map_err(Failure::other)?;
    logging::install_with_export(&config.log_level, config.log_json, export.as_ref());
    memory::return_freed().map_err(Failure::other)?;
    raise_open_files();
    for variable in &config.strangers {
        tracing::warn!(
            variable,
            "environment variable sets nothing; `millrace config --keys` lists those that do"
        );
    }
    let ended = runtime.block_on(async {
        let mut stop = Box::pin(on_signal()?);
        let supervisor = Arc::new(Supervisor::of_environment());
        reload_at_hangup(Arc::clone(&supervisor))?;
        tokio::spawn(Tls::reload_changed());
        let https = config.api.tls.is_some();
        // What a terminal shows is gone with it; what a supervisor reads it keeps, for whoever may read its logs.
        let password_file =
            (!io::stdout().is_terminal()).then(|| config.storage.data_dir.join(PASSWORD_FILE));
        config.api.password_file.clone_from(&password_file);
        let running = tokio::select! {
            started = RunningServer::start(config, Arc::clone(&supervisor)) => started?,
            () = &mut stop => end_start(&supervisor),
        };
        announce(&running, https, password_file);
        running.until(stop).await
    });
    if let Some(export) = export {
        export.finish();
    }
    ended
}

/// Raises the number of files that the process may have open to what the system allows it: connections, segments and files that
/// pipelines read are many, and most systems begin with 1024.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(?current, ?maximum, "raised the number of open files"),
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "cannot raise the number of open files");
        }
    }
}

/// Ends the process while it starts. The replay cannot be stopped half-way, and need not be: what was acknowledged is in
/// the log still.
fn end_start(supervisor: &Supervisor) -> ! {
    supervisor.stopping("stopped while starting");
    tracing::info!("stopped while starting");
    process::exit(0)
}

/// Opens the store; the supervisor is told how far it is.
async fn open(storage: millrace_engine::Config, supervisor: &Supervisor) -> Result<Arc<Engine>, Failure> {
    let progress = Arc::new(ReplayProgress::default());
    let opening = Engine::open_watched(storage, Arc::new(SystemClock), Arc::clone(&progress));
    tokio::pin!(opening);
    let mut look = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            opened = &mut opening => {
                let engine = opened.map_err(Failure::open)?;
                engine.compute().set_idle_hook(memory::collect_thread);
                return Ok(engine);
            }
            _ = look.tick() => supervisor.status(&describe(&progress)),
        }
    }
}

/// Says how far the opening of the store is.
fn describe(progress: &ReplayProgress) -> String {
    let (replayed, total) = progress.bytes();
    match (replayed * 100).checked_div(total) {
        None => "opening the store".to_owned(),
        Some(percent) => format!("replaying the log: {percent} % of {} MB", total >> 20),
    }
}

/// Stack of a thread that serves requests: queries are trees, planned by functions that call themselves.
const STACK_BYTES: usize = 16 << 20;

/// Builds the runtime that requests are served on; 0 threads means one a core.
pub(crate) fn runtime(threads: usize) -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    builder
        .thread_name("millrace")
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(millrace_runtime::run_promptly)
        .enable_all()
        .build()
        .map_err(Failure::other)
}

/// File in the data directory with the generated password.
pub(crate) const PASSWORD_FILE: &str = "admin-password";
/// The part of `drain_timeout` that the store has for its flushes at least, where a quarter of it is not less.
const FLUSH_TIME: Duration = Duration::from_secs(5);
/// Time between messages to the supervisor while the store is opened.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Name of the listeners of Arrow Flight SQL.
const FLIGHT: &str = "Arrow Flight SQL";
/// Name of the listeners of OpenTelemetry's logs over gRPC.
const OTLP_GRPC: &str = "OTLP over gRPC";
/// File in the data directory that keeps what the management API has set.
const PIPELINE_SETTINGS: &str = "pipelines-settings.json";
/// Directory in the data directory with the queues of pipelines that have one on disk.
const PIPELINE_QUEUES: &str = "pipelines-queues";
/// Directory in the data directory for files of outputs, such as what will be objects of `s3`.
pub(crate) const PIPELINE_OUTPUTS: &str = "pipelines-outputs";
/// Ports behind the default one that are tried where nobody named one.
const PORTS_BEHIND: u16 = 100;

/// Listens on the addresses that are named, or where nobody named any on the first free port from the default one on, as several
/// servers on a machine need.
async fn listen_at(
    listen: &Listen,
    mut open: impl AsyncFnMut(Vec<SocketAddr>) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let mut behind = 0;
    loop {
        let moved =
            |address: &SocketAddr| SocketAddr::new(address.ip(), address.port().saturating_add(behind));
        match open(listen.addresses.iter().map(moved).collect()).await {
            Err(StartError::Listen(error))
                if listen.anywhere && error.kind() == io::ErrorKind::AddrInUse && behind < PORTS_BEHIND =>
            {
                behind += 1;
            }
            done => return done,
        }
    }
}

/// Opens the listeners of agents, where some are configured.
async fn start_agents(
    server: &mut Server,
    engine: &Arc<Engine>,
    section: AgentsSection,
) -> Result<Option<Agents>, StartError> {
    if !section.is_enabled() {
        return Ok(None);
    }
    let agents = Agents::start(engine, section.config).await;
    let agents = agents.map_err(|error| StartError::Agents(error.to_string()))?;
    server.metrics().add(Arc::new(agents.clone()));
    let serve = |kind| {
        let agents = &agents;
        move |context| AgentListener::new(kind, context, agents)
    };
    let (enrolment, management) = (ListenerKind::Enrolment, ListenerKind::Management);
    server.serve_also(enrolment.name(), section.enrolment.addresses, serve(enrolment)).await?;
    // Keep-alives are many, and cost less than a change of threads.
    server.serve_on_threads(management.name(), section.management.addresses, serve(management)).await?;
    Ok(Some(agents))
}

/// A server whose listeners are open.
#[derive(Debug)]
pub(crate) struct RunningServer {
    engine: Arc<Engine>,
    pipelines: Arc<Manager>,
    alerting: Alerting,
    intelligence: Intelligence,
    agents: Option<Agents>,
    server: Server,
    drain_timeout: Duration,
    supervisor: Arc<Supervisor>,
}

impl RunningServer {
    /// Opens store and listeners.
    pub(crate) async fn start(config: Config, supervisor: Arc<Supervisor>) -> Result<Self, Failure> {
        let Config {
            storage,
            query_memory_bytes,
            query_spill_bytes,
            api,
            console,
            flight,
            agents,
            otlp,
            otlp_grpc,
            pipelines,
            drain_timeout,
            ..
        } = config;
        // Tried before the data directory is made: an address in use is to leave nothing behind.
        let listens =
            [&console, &flight, &otlp, &otlp_grpc, &pipelines.listen, &agents.enrolment, &agents.management];
        let named = listens.into_iter().filter(|listen| !listen.anywhere);
        let named = named.flat_map(|listen| &listen.addresses);
        let listen = |error| Failure::listen(StartError::Listen(error));
        drop(api.tls.clone().map(Tls::load).transpose().map_err(listen)?);
        for address in api.listen.iter().chain(named) {
            drop(Listener::bind("start", *address, None).await.map_err(listen)?);
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), data = %storage.data_dir.display(), "starting");
        let engine = open(storage, &supervisor).await?;
        let queries = millrace_query::Config {
            memory_bytes: query_memory_bytes,
            spill_bytes: query_spill_bytes,
            ..millrace_query::Config::default()
        };
        let search = SearchService::new(Arc::clone(&engine), queries);
        if pipelines.exec {
            millrace_ingest::input::allow_programs();
        }
        let config = manager::Config {
            directory: pipelines.dir,
            reload_interval: pipelines.reload_interval,
            memory_bytes: pipelines.memory_bytes,
            settings_file: Some(engine.data_dir().join(PIPELINE_SETTINGS)),
            queues: Some(engine.data_dir().join(PIPELINE_QUEUES)),
            outputs: Some(engine.data_dir().join(PIPELINE_OUTPUTS)),
            environment: crate::environment().into_iter().collect::<Environment>(),
        };
        let otlp_config = api.otlp.clone();
        let opened = async {
            let mut server = Server::bind(api, Arc::clone(&engine), Arc::new(search)).await?;
            let pipelines_of_ingest = millrace_api::output_pipelines(server.ingest().clone());
            let store = EngineStore::new(Arc::clone(&engine)).with_output_pipelines(pipelines_of_ingest);
            // What is about to be read is to have somewhere to be managed.
            let manager = Manager::new(config, Arc::new(store), engine.compute().clone());
            listen_at(&pipelines.listen, async |listen| server.manage(listen, Arc::clone(&manager)).await)
                .await?;
            listen_at(&console, async |listen| server.console(listen).await).await?;
            let of_flight = |listener| Flight::with_otlp(listener, otlp_config.clone());
            listen_at(&flight, async |listen| server.serve_also(FLIGHT, listen, of_flight).await).await?;
            if !otlp.addresses.is_empty() {
                listen_at(&otlp, async |listen| server.otlp(listen).await).await?;
            }
            if !otlp_grpc.addresses.is_empty() {
                let of_logs = |listener| LogsService::new(listener, otlp_config.clone());
                let open = async |listen| server.serve_also(OTLP_GRPC, listen, of_logs).await;
                listen_at(&otlp_grpc, open).await?;
            }
            let agents = start_agents(&mut server, &engine, agents).await?;
            Ok::<_, StartError>((server, manager, agents))
        };
        match opened.await {
            Ok((server, pipelines, agents)) => {
                pipelines.start().await;
                let (alerting, intelligence) = (server.alerting().clone(), server.intelligence().clone());
                Ok(Self {
                    engine,
                    pipelines,
                    alerting,
                    intelligence,
                    agents,
                    server,
                    drain_timeout,
                    supervisor,
                })
            }
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

    /// Returns the addresses on which pipelines are managed.
    pub(crate) fn management_addresses(&self) -> Vec<SocketAddr> {
        self.server.management_addr()
    }

    /// Returns the pipelines.
    pub(crate) fn pipelines(&self) -> &Manager {
        &self.pipelines
    }

    /// Returns the addresses of the console.
    pub(crate) fn console_addresses(&self) -> Vec<SocketAddr> {
        self.server.console_addr()
    }

    /// Returns the addresses of Arrow Flight SQL.
    pub(crate) fn flight_addresses(&self) -> Vec<SocketAddr> {
        self.server.addresses_of(FLIGHT)
    }

    /// Returns the addresses of a listener of agents.
    pub(crate) fn agent_addresses(&self, kind: ListenerKind) -> Vec<SocketAddr> {
        self.server.addresses_of(kind.name())
    }

    /// Returns the addresses of OpenTelemetry's logs.
    pub(crate) fn otlp_addresses(&self) -> Vec<SocketAddr> {
        self.server.otlp_addr()
    }

    /// Returns the addresses of OpenTelemetry's logs over gRPC.
    pub(crate) fn otlp_grpc_addresses(&self) -> Vec<SocketAddr> {
        self.server.addresses_of(OTLP_GRPC)
    }

    /// Returns the administrator's password if this start generated it.
    pub(crate) fn generated_password(&self) -> Option<String> {
        self.server.generated_password().map(str::to_owned)
    }

    /// Serves until `stop` completes, then drains, flushes and closes.
    pub(crate) async fn until(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        let (stopping, stopped) = watch::channel(false);
        let stopping = Arc::new(stopping);
        let by_signal = Arc::clone(&stopping);
        let supervisor = self.supervisor;
        tokio::spawn(async move {
            stop.await;
            supervisor.stopping("ending requests and flushing");
            let _ = by_signal.send(true);
        });
        let flush_time = (self.drain_timeout / 4).min(FLUSH_TIME);
        let request_time = self.drain_timeout - flush_time;
        let wait = |mut stopped: watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let draining = tokio::spawn({
            let (pipelines, stopped) = (self.pipelines, wait(stopped.clone()));
            async move {
                stopped.await;
                pipelines.stop(request_time).await;
            }
        });
        let begun = tokio::spawn({
            let stopped = wait(stopped.clone());
            async move {
                stopped.await;
                Instant::now()
            }
        });
        let serving = self.server.run(wait(stopped.clone()));
        let overdue = async {
            wait(stopped).await;
            tracing::info!("stopping: draining requests");
            tokio::time::sleep(request_time).await;
        };
        tokio::select! {
            () = serving => {}
            () = overdue => tracing::warn!("requests were cut: they took longer than drain_timeout"),
        }
        // Also where serving ended by itself.
        let _ = stopping.send(true);
        let begun = begun.await.map_err(Failure::other)?;
        let deadline = begun + self.drain_timeout;
        let companions_end = begun + request_time + flush_time / 2;
        let companions = async {
            draining.await.map_err(Failure::other)?;
            self.alerting.stop().await;
            if let Some(notifications) = self.alerting.notifications() {
                notifications.stop().await;
            }
            self.intelligence.stop().await;
            if let Some(agents) = &self.agents {
                agents.stop().await;
            }
            Ok(())
        };
        match timeout_at(companions_end, companions).await {
            Ok(ended) => ended?,
            Err(_) => tracing::warn!(
                "pipelines, rules or notifications were cut: they took longer than drain_timeout"
            ),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.engine.shutdown_within(left).await.map_err(Failure::other)?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Prints the password, if new, or where it is, and the ready line that scripts wait for; tells the supervisor.
fn announce(running: &RunningServer, https: bool, password_file: Option<PathBuf>) {
    let mut out = io::stdout().lock();
    if let Some(password) = running.generated_password() {
        let _ = match password_file {
            None => {
                writeln!(out, "first start: user admin has the password {password} (it is not shown again)")
            }
            Some(file) => {
                let file = std::path::absolute(&file).unwrap_or(file);
                let file = file.display();
                writeln!(
                    out,
                    "first start: the password of user admin is in {file} (remove it once you have it)"
                )
            }
        };
    }
    let scheme = if https { "https" } else { "http" };
    for address in running.management_addresses() {
        let _ = writeln!(out, "pipelines are managed on {scheme}://{address}");
    }
    for address in running.console_addresses() {
        let _ = writeln!(out, "the console is on {scheme}://{address}");
    }
    for address in running.flight_addresses() {
        let scheme = if https { "grpc+tls" } else { "grpc" };
        let _ = writeln!(out, "Arrow Flight SQL is on {scheme}://{address}");
    }
    for (kind, what) in
        [(ListenerKind::Enrolment, "agents enrol on"), (ListenerKind::Management, "agents are managed on")]
    {
        for address in running.agent_addresses(kind) {
            let _ = writeln!(out, "{what} {scheme}://{address}");
        }
    }
    for address in running.otlp_addresses() {
        let _ = writeln!(out, "OpenTelemetry's logs are taken on {scheme}://{address}");
    }
    for address in running.otlp_grpc_addresses() {
        let scheme = if https { "grpc+tls" } else { "grpc" };
        let _ = writeln!(out, "OpenTelemetry's logs are taken on {scheme}://{address}");
    }
    let mut urls = Vec::new();
    for address in running.addresses() {
        let url = format!("{scheme}://{address}");
        let _ = writeln!(out, "listening on {url}");
        tracing::info!(%address, scheme, "listening");
        urls.push(url);
    }
    let _ = out.flush();
    running.supervisor.ready(&format!("listening on {}", urls.join(", ")));
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

/// Reads the certificates of all listeners again at each SIGHUP.
fn reload_at_hangup(supervisor: Arc<Supervisor>) -> Result<(), Failure> {
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::other)?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            supervisor.reloading();
            let _ = tokio::task::spawn_blocking(Tls::reload_all).await;
            supervisor.reloaded();
        }
    });
    Ok(())
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
