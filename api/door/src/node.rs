//! The services that all requests share ([`Node`]), and those that the handler of one request gets ([`Api`]).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use millrace_accounts::{Accounts, Credentials, Scheme};
use millrace_catalog::access::{Action, ActionSet, Caller, Principal, Privileges};
use millrace_engine::{Engine, Session};
use millrace_listen::Tls;
use millrace_query::SearchService;
use millrace_runtime::metrics::MetricSources;

use crate::audit::{Audit, Config as AuditConfig, HandlerNotes};
use crate::client::ClientConnection;
use crate::config::OperationConfig;
use crate::error::Error;
use crate::identity::Identity;
use crate::license::LicenseStore;
use crate::request_timings::RequestTimings;
use crate::tasks::TaskResults;
use crate::write_pipelines::WritePipelines;

/// Faults of what works beside the store, which the health of the cluster shows.
pub trait FaultSource: fmt::Debug + Send + Sync {
    /// Lists the faults of now, a sentence each; none where all is well.
    fn faults(&self) -> Vec<String>;
}

/// The services that all requests share.
#[derive(Debug)]
pub struct Node {
    /// The store.
    pub engine: Arc<Engine>,
    /// Searches.
    pub search: Arc<SearchService>,
    /// Accounts of the callers.
    pub accounts: Accounts,
    /// Identity that the server presents.
    pub identity: Arc<Identity>,
    /// Audit of requests.
    pub(crate) audit: Audit,
    /// Faults of what works beside the store, such as rules.
    faults: Option<Arc<dyn FaultSource>>,
    /// True if a principal in the extensions of a request stands for its credentials.
    #[cfg(feature = "testing")]
    takes_principals: bool,
    /// Certificate and key, which can be read again.
    tls: Option<Tls>,
    /// Held by a change of users, roles or mappings from the reading of one to its writing.
    changing: Arc<tokio::sync::Mutex<()>>,
    task_results: TaskResults,
    /// Parts of the server with metrics of their own.
    metrics: MetricSources,
    /// Durations of requests by listener, route and status.
    pub requests: Arc<RequestTimings>,
    pub(crate) operation: OperationConfig,
    license: Arc<LicenseStore>,
    /// Ingest pipelines for requests that name none.
    pub(crate) pipelines: Option<Arc<dyn WritePipelines>>,
}

impl Node {
    /// Puts the parts together.
    pub fn new(
        engine: Arc<Engine>,
        search: Arc<SearchService>,
        accounts: Accounts,
        identity: Identity,
    ) -> Self {
        let (identity, audit, changing) = (Arc::new(identity), Audit::default(), Arc::default());
        let (faults, tls) = (None, None);
        let task_results = TaskResults::new(&engine, &identity.cluster_uuid);
        let license = LicenseStore::new(&identity.data_dir, None, Arc::clone(engine.clock()));
        Self {
            engine,
            search,
            accounts,
            identity,
            audit,
            faults,
            #[cfg(feature = "testing")]
            takes_principals: false,
            tls,
            changing,
            task_results,
            metrics: MetricSources::default(),
            requests: Arc::default(),
            operation: OperationConfig::default(),
            license: Arc::new(license),
            pipelines: None,
        }
    }

    /// Tells of its work as a configuration says, under the licence of the data directory.
    #[must_use]
    pub fn with_operation(self, operation: OperationConfig) -> Self {
        let clock = Arc::clone(self.engine.clock());
        let license = LicenseStore::new(&self.identity.data_dir, operation.license_key, clock);
        Self { operation, license: Arc::new(license), ..self }
    }

    /// Takes documents of listeners whose requests name no pipeline through those of their indices.
    #[must_use]
    pub fn with_write_pipelines(self, pipelines: Arc<dyn WritePipelines>) -> Self {
        Self { pipelines: Some(pipelines), ..self }
    }

    /// Returns the ingest pipelines for requests that name none.
    pub fn write_pipelines(&self) -> Option<&Arc<dyn WritePipelines>> {
        self.pipelines.as_ref()
    }

    /// Returns the parts of the server with metrics of their own. Further ones may be added at any time.
    pub fn metrics(&self) -> &MetricSources {
        &self.metrics
    }

    /// Returns the licence.
    pub fn license(&self) -> &LicenseStore {
        &self.license
    }

    /// Adds the faults of what works beside the store to those that the health of the cluster shows.
    #[must_use]
    pub fn with_faults(self, source: Arc<dyn FaultSource>) -> Self {
        Self { faults: Some(source), ..self }
    }

    /// Takes a [`Principal`] that an in-process caller puts into the extensions of a request in place of credentials.
    /// For tests of rights alone: the feature `testing` is not part of a server.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_principals_of_requests(self) -> Self {
        Self { takes_principals: true, ..self }
    }

    /// Returns the principal that a test puts into a request.
    #[cfg(feature = "testing")]
    pub(crate) fn injected(&self, parts: &Parts) -> Option<Principal> {
        if self.takes_principals { parts.extensions.get().cloned() } else { None }
    }

    /// Returns no principal: a server reads credentials.
    #[cfg(not(feature = "testing"))]
    pub(crate) fn injected(&self, _parts: &Parts) -> Option<Principal> {
        None
    }

    /// Tells requests to an audit.
    #[must_use]
    pub fn with_audit(self, config: AuditConfig) -> Self {
        let audit = Audit::new(Arc::clone(&self.engine), Arc::clone(&self.identity), config);
        Self { audit, ..self }
    }

    /// Returns the audit.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Serves with TLS.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Makes the [`Api`] of the handler of a principal's request. Notes that only the handler can make go to `noted`.
    ///
    /// # Errors
    /// 403 where the action is not allowed on anything.
    pub fn api(&self, asker: Requester, action: Action, noted: Arc<HandlerNotes>) -> Result<Api, Error> {
        let Requester { principal, scheme, token, address } = asker;
        let session = Session::new(&self.engine, principal, action)?;
        Ok(Api {
            session,
            search: Arc::clone(&self.search),
            identity: Arc::clone(&self.identity),
            accounts: self.accounts.clone(),
            faults: self.faults.clone(),
            scheme,
            token,
            address,
            noted,
            client: ClientConnection::default(),
            audit: self.audit.clone(),
            tls: self.tls.clone(),
            changing: Arc::clone(&self.changing),
            task_results: self.task_results.clone(),
            metrics: self.metrics.clone(),
            requests: Arc::clone(&self.requests),
            license: Arc::clone(&self.license),
            max_metric_indices: self.operation.max_metric_indices,
            pipelines: self.pipelines.clone(),
        })
    }
}

/// Authenticated sender of a request, and the scheme of its credentials.
#[derive(Debug)]
pub struct Requester {
    /// Its name, roles and rights.
    pub principal: Principal,
    /// Scheme of the credentials; nothing on a route that is open to all.
    pub scheme: Option<Scheme>,
    /// The login token, if that is what was shown.
    pub token: Option<Credentials>,
    /// Address of the client.
    pub address: IpAddr,
}

impl Requester {
    /// Makes the caller that shows no credentials: it may do nothing but what is open.
    pub(crate) fn anonymous(address: IpAddr) -> Self {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        let principal = Principal::new(Caller::User("_anonymous".into()), Vec::new(), nothing);
        Self { principal, scheme: None, token: None, address }
    }
}

/// State that a handler gets: the store as the principal sees it, never the store itself.
#[derive(Debug)]
pub struct Api {
    /// The store, for this principal and action.
    pub session: Session,
    /// Searches.
    pub search: Arc<SearchService>,
    /// Identity that the server presents.
    pub identity: Arc<Identity>,
    /// Accounts of the callers.
    pub accounts: Accounts,
    /// Faults of what works beside the store.
    pub faults: Option<Arc<dyn FaultSource>>,
    /// Scheme of the caller's credentials.
    pub scheme: Option<Scheme>,
    /// The login token in use.
    pub token: Option<Credentials>,
    /// Address of the request.
    pub address: IpAddr,
    /// Notes for the audit.
    pub noted: Arc<HandlerNotes>,
    /// Client of the request, which may have gone.
    pub client: ClientConnection,
    /// Audit of requests.
    pub audit: Audit,
    /// Certificate and key.
    pub tls: Option<Tls>,
    /// Held by a change of users, roles or mappings.
    pub changing: Arc<tokio::sync::Mutex<()>>,
    /// Results of tasks whose callers do not wait.
    pub task_results: TaskResults,
    /// Parts of the server with metrics of their own.
    pub metrics: MetricSources,
    /// Durations of requests.
    pub requests: Arc<RequestTimings>,
    /// Licence of the server.
    pub license: Arc<LicenseStore>,
    /// Indices that have metrics of their own.
    pub max_metric_indices: usize,
    /// Ingest pipelines for requests that name none.
    pub pipelines: Option<Arc<dyn WritePipelines>>,
}
