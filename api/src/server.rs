//! The server: the data API, the console and the management of pipelines on their listeners.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use millrace_accounts::{Accounts, TokenLifetimes};
use millrace_alerting::Alerting;
use millrace_catalog::access::{Action, Principal};
use millrace_console::Console;
use millrace_data_api::{DataApi, IngestService, OtlpApi, SearchQueryParser, SnapshotAccounts, memory_limit};
use millrace_engine::{Engine, Session};
use millrace_gateway::otlp::OtlpConfig;
use millrace_gateway::{
    Audit, AuditConfig, AuditWriter, BoundListeners, HttpConfig, Identity, ListenError, ListenerConfig,
    ListenerContext, NAME, Node, OperationConfig, Service,
};
use millrace_intelligence::Intelligence;
use millrace_lifecycle::{
    DocumentDeleter, Lifecycle, LifecycleAudit, LifecycleHooks, PolicyMessage, PolicyNotifier, PolicyOwners,
};
use millrace_listen::{Config, Tls, TlsFiles};
use millrace_management::Management;
use millrace_notifications::{Notifications, StandaloneMessage};
use millrace_pipelines::Manager;
use millrace_query::{OutcomeBody, SearchService};
use millrace_runtime::metrics::MetricSources;
use millrace_runtime::run_promptly;
use millrace_snapshot::SnapshotService;
use serde_json::{Value, json};

use crate::metrics::{CertificateMetrics, PipelineMetrics, RuleMetrics, SnapshotMetrics};
use crate::state_owners::{AiRuleReloader, AlertRuleReloader};

/// Configuration of the listeners and their users.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses of the data API.
    pub listen: Vec<SocketAddr>,
    /// `true` if requests need no credentials; for loopback only.
    pub insecure: bool,
    /// Certificate and key for HTTPS, and who certifies clients.
    pub tls: Option<TlsFiles>,
    /// Password of `admin` at the first start; generated when absent.
    pub admin_password: Option<String>,
    /// File that a generated password is written to before it is valid.
    pub password_file: Option<PathBuf>,
    /// Lifetimes of login tokens.
    pub tokens: TokenLifetimes,
    /// Scope and retention of the audit.
    pub audit: AuditConfig,
    /// Destinations and channels of notifications.
    pub notifications: millrace_notifications::Config,
    /// Places of snapshot repositories, and their credentials.
    pub snapshots: millrace_snapshot::Config,
    /// Greatest body accepted, in bytes.
    pub max_content_length: u64,
    /// Access log, metrics and licence.
    pub operation: OperationConfig,
    /// Form of the documents that OpenTelemetry's logs become, and their index.
    pub otlp: OtlpConfig,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener cannot be opened.
    #[error("{0}")]
    Listen(io::Error),
    /// Listeners without authentication must be on loopback.
    #[error("insecure is refused: the listener {0} is not on loopback")]
    Insecure(SocketAddr),
    /// Accounts or the cluster's identity cannot be read or written.
    #[error("accounts: {0}")]
    Accounts(String),
    /// The rules that are stored cannot be read.
    #[error("rules: {0}")]
    Rules(millrace_alerting::Error),
    /// The configuration of notifications cannot be used.
    #[error("{0}")]
    Notifications(millrace_notifications::Error),
    /// The registered snapshot repositories cannot be read.
    #[error("snapshots: {0}")]
    Snapshots(millrace_snapshot::Error),
    /// The agents that are stored cannot be read.
    #[error("agents: {0}")]
    Agents(String),
    /// The policies that are stored cannot be read.
    #[error("policies: {0}")]
    Lifecycle(millrace_lifecycle::Error),
    /// The AI rules that are stored cannot be read.
    #[error("AI rules: {0}")]
    Intelligence(millrace_intelligence::Error),
}

/// Tells the audit what policies do.
#[derive(Debug)]
struct PolicyAuditor(Audit);

/// Deletes documents of the server's own indices by searches for the old ones.
#[derive(Debug)]
struct QueryDeleter {
    engine: Arc<Engine>,
    search: Arc<SearchService>,
}

impl DocumentDeleter for QueryDeleter {
    fn delete_before<'a>(
        &'a self,
        index: &'a str,
        field: &'a str,
        before_ms: i64,
    ) -> BoxFuture<'a, Result<u64, millrace_runtime::Error>> {
        Box::pin(async move {
            let session = Session::system(&self.engine);
            let body = json!({ "query": { "range": { field: { "lt": before_ms } } } });
            let params = vec![("conflicts".to_owned(), "proceed".to_owned())];
            let failed = |reason: String| millrace_runtime::Error::Internal(reason);
            let deleted =
                self.search.delete_by_query(&session, index, params, Some(body), Box::new(())).await;
            let outcome = deleted.map_err(|error| failed(error.to_string()))?;
            let OutcomeBody::Raw(text) = outcome.body else { return Ok(0) };
            let answer: Value = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
            Ok(answer["deleted"].as_u64().unwrap_or(0))
        })
    }
}

impl LifecycleAudit for PolicyAuditor {
    fn record(&self, action: Action, method: &'static str, path: &[&str]) {
        let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::POST);
        self.0.server_changed(action, method, path);
    }
}

/// Sends messages of policies through the webhooks of notifications.
#[derive(Debug)]
struct PolicySender(Notifications);

impl PolicyNotifier for PolicySender {
    fn send<'a>(&'a self, message: &'a PolicyMessage) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let PolicyMessage { key, policy_id, subject, text, webhook } = message;
            let posted = StandaloneMessage {
                key: key.clone(),
                sender: policy_id.clone(),
                subject: subject.clone(),
                text: text.clone(),
            };
            self.0.post(&posted, webhook).await
        })
    }
}

/// Finds the rights of the owners of policies among the accounts.
#[derive(Debug)]
struct AccountOwners(Arc<Accounts>);

impl PolicyOwners for AccountOwners {
    fn find_principal<'a>(
        &'a self,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Option<Principal>, millrace_runtime::Error>> {
        Box::pin(async move {
            // Every caller is the administrator then.
            if self.0.is_insecure() {
                return Ok(Some(Principal::system()));
            }
            let found = self.0.find_principal(owner).await;
            found.map_err(|error| millrace_runtime::Error::Internal(error.to_string()))
        })
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Io(error) => Self::Listen(error),
            ListenError::Insecure(address) => Self::Insecure(address),
        }
    }
}

/// The data API on its listeners, the console and the management of pipelines on theirs.
#[derive(Debug)]
pub struct Server {
    serving: millrace_listen::Server,
    /// Those really listened on, by the name of what is listened for.
    addresses: Vec<(&'static str, Vec<SocketAddr>)>,
    data: Service,
    otlp: OtlpConfig,
    ingest: IngestService,
    console: Arc<Console>,
    alerting: Alerting,
    intelligence: Intelligence,
    lifecycle: Lifecycle,
    insecure: bool,
    generated_password: Option<String>,
    tls: Option<Tls>,
    audit: AuditWriter,
    metrics: MetricSources,
}

/// Name of the data API's listeners.
const DATA: &str = "data API";
/// Name of those of the management of pipelines.
const MANAGEMENT: &str = "management of pipelines";
/// Name of those of the console.
const CONSOLE: &str = "console";
/// Name of those of OpenTelemetry's logs.
const OTLP: &str = "OTLP";

impl Server {
    /// Opens accounts and listeners, and has rules go on where they were.
    ///
    /// # Errors
    /// An address in use or not this machine's; bad certificate or key; a failing store.
    pub async fn bind(
        config: ServerConfig,
        engine: Arc<Engine>,
        search: Arc<SearchService>,
    ) -> Result<Self, StartError> {
        let insecure = config.insecure;
        let tls = config.tls.map(Tls::load).transpose().map_err(StartError::Listen)?;
        let listening = ListenerConfig { name: DATA, addresses: &config.listen, tls: tls.as_ref(), insecure };
        let bound = listening.bind().await?;
        let of_accounts = millrace_accounts::Config {
            admin_password: config.admin_password,
            password_file: config.password_file,
            insecure,
            lifetimes: config.tokens,
        };
        let (accounts, generated_password) =
            Accounts::open(engine.clone(), of_accounts, engine.clock().clone(), Arc::new(SearchQueryParser))
                .await
                .map_err(|error| StartError::Accounts(error.to_string()))?;
        let data_dir = engine.data_dir().to_owned();
        let mut identity = Identity::open(&*engine, NAME, NAME, data_dir, bound.address())
            .await
            .map_err(|error| StartError::Accounts(error.to_string()))?;
        identity.max_content_length = config.max_content_length;
        let users = Arc::new(accounts.clone());
        let notifications = Notifications::start(&engine, &search, &users, config.notifications)
            .await
            .map_err(StartError::Notifications)?;
        let alerting = Alerting::start_with(&engine, &users, Some(notifications.clone()))
            .await
            .map_err(StartError::Rules)?;
        let intelligence =
            Intelligence::start(&engine, &search, &users).await.map_err(StartError::Intelligence)?;
        let console = Console::new(&engine, &search);
        let console = console.with_alerting(alerting.clone()).with_intelligence(intelligence.clone());
        let console = Arc::new(console);
        let snapshots = SnapshotService::open(Arc::clone(&engine), config.snapshots)
            .await
            .map_err(StartError::Snapshots)?;
        snapshots.set_accounts(Arc::new(SnapshotAccounts::new(Arc::clone(&users))));
        snapshots.add_state_owner(Arc::new(AlertRuleReloader(alerting.clone())));
        snapshots.add_state_owner(Arc::new(AiRuleReloader(intelligence.clone())));
        let ingest = IngestService::open(&engine, &search).await;
        let node = Node::new(engine, search, accounts, identity).with_tls(tls.clone());
        let node = node
            .with_faults(Arc::clone(&console) as _)
            .with_audit(config.audit)
            .with_operation(config.operation)
            .with_write_pipelines(Arc::new(ingest.clone()));
        if let Err(error) = node.license().reload().await {
            tracing::warn!(%error, "the installed licence is not used: the community licence counts");
        }
        let metrics = node.metrics().clone();
        metrics.add(Arc::new(RuleMetrics(alerting.clone())));
        metrics.add(Arc::new(SnapshotMetrics(snapshots.clone())));
        if let Some(tls) = &tls {
            metrics.add(Arc::new(CertificateMetrics(tls.clone())));
        }
        let node = Arc::new(node);
        let audit = AuditWriter::start(node.audit().clone()).await;
        let (engine, search) = (Arc::clone(&node.engine), Arc::clone(&node.search));
        let deleter = Arc::new(QueryDeleter { engine, search });
        let auditor = Arc::new(PolicyAuditor(node.audit().clone()));
        let hooks = LifecycleHooks {
            auditor: Some(auditor),
            deleter: Some(deleter),
            notifier: Some(Arc::new(PolicySender(notifications))),
            owners: Some(Arc::new(AccountOwners(users))),
        };
        let lifecycle =
            Lifecycle::start(&node.engine, snapshots.clone(), hooks).await.map_err(StartError::Lifecycle)?;
        let bounds = HttpConfig::within(memory_limit());
        let http = HttpConfig { max_content_length: config.max_content_length, ..bounds };
        let api = DataApi::default().with_snapshots(snapshots).with_lifecycle(lifecycle.clone());
        let api = api.with_otlp(config.otlp.clone()).with_ingest(ingest.clone());
        let data = Service::new(node, &http, Arc::new(api));
        let serving = millrace_listen::Server::new(Config::default().within(open_files()));
        let mut server = Self {
            serving,
            addresses: Vec::new(),
            data: data.clone(),
            otlp: config.otlp,
            ingest,
            console,
            alerting,
            intelligence,
            lifecycle,
            insecure,
            generated_password,
            tls,
            audit,
            metrics,
        };
        server.serve(bound, data);
        Ok(server)
    }

    /// Opens listeners for the management of pipelines, with the certificate and the users of the data API.
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn manage(
        &mut self,
        listen: Vec<SocketAddr>,
        pipelines: Arc<Manager>,
    ) -> Result<(), StartError> {
        let (tls, insecure) = (self.tls.as_ref(), self.insecure);
        let bound = ListenerConfig { name: MANAGEMENT, addresses: &listen, tls, insecure }.bind().await?;
        self.metrics.add(Arc::new(PipelineMetrics::new(Arc::clone(&pipelines))));
        let management = Management::new(pipelines, bound.address());
        let service = self.data.clone().with_router(Arc::new(management));
        self.serve(bound, service);
        Ok(())
    }

    /// Opens listeners for the console, with the certificate and the users of the data API.
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn console(&mut self, listen: Vec<SocketAddr>) -> Result<(), StartError> {
        let (tls, insecure) = (self.tls.as_ref(), self.insecure);
        let bound = ListenerConfig { name: CONSOLE, addresses: &listen, tls, insecure }.bind().await?;
        let service = self.data.clone().with_router(Arc::clone(&self.console) as _);
        self.serve(bound, service);
        Ok(())
    }

    /// Opens listeners for OpenTelemetry's logs, with the certificate and the users of the data API.
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn otlp(&mut self, listen: Vec<SocketAddr>) -> Result<(), StartError> {
        let (tls, insecure) = (self.tls.as_ref(), self.insecure);
        let bound = ListenerConfig { name: OTLP, addresses: &listen, tls, insecure }.bind().await?;
        let service = self.data.clone().with_router(Arc::new(OtlpApi::new(self.otlp.clone())));
        self.serve(bound, service);
        Ok(())
    }

    /// Opens listeners of another protocol, with the certificate and the users of the data API. `name` is for logs and for
    /// [`Server::addresses_of`].
    ///
    /// # Errors
    /// An address in use, not this machine's, or without authentication and not on loopback.
    pub async fn serve_also<S: millrace_listen::Service>(
        &mut self,
        name: &'static str,
        listen: Vec<SocketAddr>,
        service: impl FnOnce(ListenerContext) -> S,
    ) -> Result<(), StartError> {
        let (tls, insecure) = (self.tls.as_ref(), self.insecure);
        let bound = ListenerConfig { name, addresses: &listen, tls, insecure }.bind().await?;
        let service = service(self.data.listener_context());
        self.serve(bound, service);
        Ok(())
    }

    /// Opens listeners as [`Server::serve_also`] does, each with a thread of its own for its connections: for many short
    /// requests. With TLS they share the threads of all, as handshakes compute for long.
    ///
    /// # Errors
    /// As [`Server::serve_also`]; a thread that the system refuses.
    pub async fn serve_on_threads<S: millrace_listen::Service>(
        &mut self,
        name: &'static str,
        listen: Vec<SocketAddr>,
        service: impl FnOnce(ListenerContext) -> S,
    ) -> Result<(), StartError> {
        if self.tls.is_some() {
            return self.serve_also(name, listen, service).await;
        }
        let config = ListenerConfig { name, addresses: &listen, tls: None, insecure: self.insecure };
        let bound = config.bind().await?;
        let service = Arc::new(service(self.data.listener_context()));
        for listener in bound.listeners {
            let added = self.serving.add_on_thread(listener, Arc::clone(&service), run_promptly);
            added.map_err(StartError::Listen)?;
        }
        self.addresses.push((bound.name, bound.addresses));
        Ok(())
    }

    /// Has a service answer on listeners from the start of [`Server::run`] on.
    fn serve(&mut self, bound: BoundListeners, service: impl millrace_listen::Service) {
        let service = Arc::new(service);
        for listener in bound.listeners {
            self.serving.add(listener, Arc::clone(&service));
        }
        self.addresses.push((bound.name, bound.addresses));
    }

    /// Returns the addresses really listened on under a name.
    pub fn addresses_of(&self, name: &str) -> Vec<SocketAddr> {
        let of_name = self.addresses.iter().filter(|(of, _)| *of == name);
        of_name.flat_map(|(_, addresses)| addresses).copied().collect()
    }

    /// Returns the addresses on which pipelines are managed.
    pub fn management_addr(&self) -> Vec<SocketAddr> {
        self.addresses_of(MANAGEMENT)
    }

    /// Returns the addresses of the console.
    pub fn console_addr(&self) -> Vec<SocketAddr> {
        self.addresses_of(CONSOLE)
    }

    /// Returns the addresses of OpenTelemetry's logs.
    pub fn otlp_addr(&self) -> Vec<SocketAddr> {
        self.addresses_of(OTLP)
    }

    /// Returns the addresses really listened on.
    pub fn local_addr(&self) -> Vec<SocketAddr> {
        self.addresses_of(DATA)
    }

    /// Returns the ingest pipelines.
    pub fn ingest(&self) -> &IngestService {
        &self.ingest
    }

    /// Returns the parts of the server with metrics of their own. Further ones may be added at any time.
    pub fn metrics(&self) -> &MetricSources {
        &self.metrics
    }

    /// Returns the rules at work. They go on when the server has ended, until they are told to stop.
    pub fn alerting(&self) -> &Alerting {
        &self.alerting
    }

    /// Returns the AI rules at work, as [`Server::alerting`] does.
    pub fn intelligence(&self) -> &Intelligence {
        &self.intelligence
    }

    /// Returns the administrator's password if this start generated it.
    pub fn generated_password(&self) -> Option<&str> {
        self.generated_password.as_deref()
    }

    /// Serves until `shutdown` completes, then what is under way; dropping it cuts that off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let ending = self.data.ending();
        // From here on probes tell load balancers to send no more.
        let ends = async {
            shutdown.await;
            ending.send_replace(true);
        };
        self.serving.run(ends).await;
        self.lifecycle.stop().await;
        self.audit.finish().await;
    }
}

/// Files that the process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}
