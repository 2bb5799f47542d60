//! Actions, by the names that OpenSearch and Elasticsearch give them.
//!
//! Every route of the server declares one [`Action`]; roles grant sets of them ([`ActionSet`]). The list is closed: a
//! pattern of a role is a set of these when the role is read, so that asking costs a bit.

use std::fmt;

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $scope:ident $text:literal,)*) => {
        /// Something that a principal may be allowed to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Action { $($(#[$doc])* $name,)* }

        impl Action {
            /// Every action, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name in OpenSearch's vocabulary.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Says what it is done to.
            pub fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }
        }
    };
}

/// Scope of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every authenticated caller may: the action concerns the caller alone.
    Own,
    /// The node and the cluster: granted as a cluster privilege.
    Cluster,
    /// Indices: granted for names of indices.
    Index,
}

actions! {
    /// Own identity and privileges; logging out; changing one's own password.
    Own = Own "cluster:admin/opensearch/security/own",
    /// The root.
    Main = Cluster "cluster:monitor/main",
    /// Health.
    Health = Cluster "cluster:monitor/health",
    /// State of the cluster.
    State = Cluster "cluster:monitor/state",
    /// Statistics of the cluster.
    ClusterStats = Cluster "cluster:monitor/stats",
    /// Settings, plugins and figures of nodes.
    NodesInfo = Cluster "cluster:monitor/nodes/info",
    /// Figures of nodes.
    NodesStats = Cluster "cluster:monitor/nodes/stats",
    /// Tasks.
    Tasks = Cluster "cluster:monitor/tasks/lists",
    /// A task, and its result once it has ended.
    GetTask = Cluster "cluster:monitor/task/get",
    /// Cancellation of tasks.
    CancelTasks = Cluster "cluster:admin/tasks/cancel",
    /// Work of the compute threads.
    HotThreads = Cluster "cluster:monitor/nodes/hot_threads",
    /// Reading the licence.
    GetLicense = Cluster "cluster:monitor/xpack/license/get",
    /// Changing the licence.
    PutLicense = Cluster "cluster:admin/xpack/license/put",
    /// Metrics for scrapers.
    Metrics = Cluster "cluster:monitor/prometheus/metrics",
    /// Reading cluster settings.
    ClusterSettings = Cluster "cluster:monitor/settings",
    /// Changing cluster settings.
    PutClusterSettings = Cluster "cluster:admin/settings/update",
    /// Reading legacy templates.
    GetTemplates = Cluster "indices:admin/template/get",
    /// Changing legacy templates.
    PutTemplates = Cluster "indices:admin/template/put",
    /// Deleting legacy templates.
    DeleteTemplates = Cluster "indices:admin/template/delete",
    /// Reading index templates.
    GetIndexTemplates = Cluster "indices:admin/index_template/get",
    /// Changing index templates.
    PutIndexTemplates = Cluster "indices:admin/index_template/put",
    /// Deleting index templates.
    DeleteIndexTemplates = Cluster "indices:admin/index_template/delete",
    /// Simulation of templates for an index.
    SimulateTemplates = Cluster "indices:admin/index_template/simulate",
    /// Reading component templates.
    GetComponentTemplates = Cluster "cluster:admin/component_template/get",
    /// Changing component templates.
    PutComponentTemplates = Cluster "cluster:admin/component_template/put",
    /// Deleting component templates.
    DeleteComponentTemplates = Cluster "cluster:admin/component_template/delete",
    /// Continuing and clearing scrolls; the scroll belongs to who opened it.
    Scroll = Own "indices:data/read/scroll",
    /// Closing one's points in time.
    ClosePointInTime = Own "indices:data/read/point_in_time/delete",
    /// Listing and closing the points in time of all.
    AllPointsInTime = Cluster "indices:data/read/point_in_time/readall",
    /// Next pages of statements, and closing their cursors.
    SqlCursor = Own "indices:data/read/sql/cursor",
    /// Analysis without an index.
    AnalyzeText = Cluster "cluster:monitor/analyze",
    /// Reading definitions of pipelines.
    GetPipelines = Cluster "cluster:admin/pipelines/get",
    /// Changing pipelines.
    PutPipelines = Cluster "cluster:admin/pipelines/put",
    /// Reading ingest pipelines.
    GetIngestPipelines = Cluster "cluster:admin/ingest/pipeline/get",
    /// Changing ingest pipelines.
    PutIngestPipelines = Cluster "cluster:admin/ingest/pipeline/put",
    /// Deleting ingest pipelines.
    DeleteIngestPipelines = Cluster "cluster:admin/ingest/pipeline/delete",
    /// Trying ingest pipelines on documents that are not stored.
    SimulateIngestPipelines = Cluster "cluster:admin/ingest/pipeline/simulate",
    /// Reading the patterns of grok processors.
    GetGrokPatterns = Cluster "cluster:admin/ingest/processor/grok/get",
    /// Reading dead letters.
    GetDeadLetters = Cluster "cluster:admin/dead_letters/get",
    /// Sending dead letters again and removing them.
    PutDeadLetters = Cluster "cluster:admin/dead_letters/put",
    /// Reading users, roles and mappings.
    GetSecurity = Cluster "cluster:admin/opensearch/security/get",
    /// Changing users, roles and mappings.
    PutSecurity = Cluster "cluster:admin/opensearch/security/put",
    /// Making an API key for oneself.
    CreateApiKey = Cluster "cluster:admin/xpack/security/api_key/create",
    /// Reading one's API keys.
    GetOwnApiKeys = Own "cluster:admin/xpack/security/api_key/get",
    /// Revoking one's API keys.
    InvalidateOwnApiKeys = Own "cluster:admin/xpack/security/api_key/invalidate",
    /// Reading and revoking the API keys of all.
    ManageApiKeys = Cluster "cluster:admin/xpack/security/api_key/manage",
    /// Reading saved objects of the console.
    GetSavedObjects = Cluster "cluster:console/saved_objects/get",
    /// Changing saved objects of the console.
    PutSavedObjects = Cluster "cluster:console/saved_objects/put",
    /// Reading alert rules and alerts' status.
    GetAlerts = Cluster "cluster:console/alert/get",
    /// Changing alert rules and alerts' status.
    PutAlerts = Cluster "cluster:console/alert/put",
    /// Reading AI rules.
    GetIntelligence = Cluster "cluster:console/intelligence/get",
    /// Changing AI rules.
    PutIntelligence = Cluster "cluster:console/intelligence/put",
    /// Reading the audit.
    GetAudit = Cluster "cluster:admin/opensearch/security/audit/get",
    /// Reading registrations of snapshot repositories.
    GetRepositories = Cluster "cluster:admin/repository/get",
    /// Registering, verifying and cleaning up snapshot repositories.
    PutRepositories = Cluster "cluster:admin/repository/put",
    /// Removing registrations of snapshot repositories.
    DeleteRepositories = Cluster "cluster:admin/repository/delete",
    /// Creating snapshots.
    CreateSnapshot = Cluster "cluster:admin/snapshot/create",
    /// Reading snapshots and their status.
    GetSnapshots = Cluster "cluster:admin/snapshot/get",
    /// Deleting snapshots.
    DeleteSnapshots = Cluster "cluster:admin/snapshot/delete",
    /// Restoring snapshots.
    RestoreSnapshot = Cluster "cluster:admin/snapshot/restore",
    /// Reading agents and their status.
    GetAgents = Cluster "cluster:monitor/agents/get",
    /// Enrolling agents again and deleting them.
    PutAgents = Cluster "cluster:admin/agents/put",
    /// Reading policies of indices.
    GetIndexPolicies = Cluster "cluster:admin/opendistro/ism/policy/get",
    /// Changing policies of indices.
    PutIndexPolicies = Cluster "cluster:admin/opendistro/ism/policy/write",
    /// Deleting policies of indices.
    DeleteIndexPolicies = Cluster "cluster:admin/opendistro/ism/policy/delete",
    /// Reading policies of snapshots and their state.
    GetSnapshotPolicies = Cluster "cluster:admin/opensearch/snapshot_management/policy/get",
    /// Changing, starting and stopping policies of snapshots.
    PutSnapshotPolicies = Cluster "cluster:admin/opensearch/snapshot_management/policy/write",
    /// Deleting policies of snapshots.
    DeleteSnapshotPolicies = Cluster "cluster:admin/opensearch/snapshot_management/policy/delete",

    /// Searches, counts, aggregations, suggestions; opening scrolls.
    Search = Index "indices:data/read/search",
    /// Many searches.
    MultiSearch = Index "indices:data/read/msearch",
    /// Statements of SQL and PPL.
    Sql = Index "indices:data/read/sql",
    /// A document.
    Get = Index "indices:data/read/get",
    /// Many documents.
    MultiGet = Index "indices:data/read/mget",
    /// Explanation of a score.
    Explain = Index "indices:data/read/explain",
    /// Fields and what can be done with them.
    FieldCaps = Index "indices:data/read/field_caps",
    /// Opening points in time.
    OpenPointInTime = Index "indices:data/read/point_in_time/create",
    /// Checking a query.
    ValidateQuery = Index "indices:admin/validate/query",
    /// Several documents in one request; each is asked for by its own action.
    Bulk = Index "indices:data/write/bulk",
    /// Creating or replacing a document.
    IndexDocument = Index "indices:data/write/index",
    /// Creating a document that is not there.
    CreateDocument = Index "indices:data/write/index:op_type/create",
    /// Partial updates.
    UpdateDocument = Index "indices:data/write/update",
    /// Deleting a document.
    DeleteDocument = Index "indices:data/write/delete",
    /// Deleting what a query finds.
    DeleteByQuery = Index "indices:data/write/delete/byquery",
    /// Adding fields by writing documents.
    AutoPutMapping = Index "indices:admin/mapping/auto_put",
    /// Creating an index by writing into it.
    AutoCreate = Index "indices:admin/auto_create",
    /// Creating an index.
    CreateIndex = Index "indices:admin/create",
    /// Deleting an index.
    DeleteIndex = Index "indices:admin/delete",
    /// Reading an index's settings, mapping and aliases at once.
    GetIndex = Index "indices:admin/get",
    /// Resolution of an index expression.
    ResolveIndex = Index "indices:admin/resolve/index",
    /// Opening an index.
    OpenIndex = Index "indices:admin/open",
    /// Closing an index.
    CloseIndex = Index "indices:admin/close",
    /// Reading mappings.
    GetMappings = Index "indices:admin/mappings/get",
    /// Reading mappings of fields.
    GetFieldMappings = Index "indices:admin/mappings/fields/get",
    /// Changing mappings.
    PutMapping = Index "indices:admin/mapping/put",
    /// Reading settings.
    GetSettings = Index "indices:monitor/settings/get",
    /// Changing settings.
    PutSettings = Index "indices:admin/settings/update",
    /// Reading aliases.
    GetAliases = Index "indices:admin/aliases/get",
    /// Changing aliases.
    PutAliases = Index "indices:admin/aliases",
    /// Making what was written visible.
    Refresh = Index "indices:admin/refresh",
    /// Writing segments.
    Flush = Index "indices:admin/flush",
    /// Merging segments.
    ForceMerge = Index "indices:admin/forcemerge",
    /// Clearing caches.
    ClearCache = Index "indices:admin/cache/clear",
    /// Analysis by the settings of an index.
    Analyze = Index "indices:admin/analyze",
    /// Figures of indices.
    IndexStats = Index "indices:monitor/stats",
    /// Segments of indices.
    Segments = Index "indices:monitor/segments",
    /// Recoveries of shards.
    Recovery = Index "indices:monitor/recovery",
    /// Rolling an alias or a data stream over to a new index.
    Rollover = Index "indices:admin/rollover",
    /// Making an index of the documents of another one, with more, fewer or as many shards.
    Resize = Index "indices:admin/resize",
    /// Creating a data stream.
    CreateDataStream = Index "indices:admin/data_stream/create",
    /// Reading data streams.
    GetDataStreams = Index "indices:admin/data_stream/get",
    /// Deleting a data stream with its indices.
    DeleteDataStream = Index "indices:admin/data_stream/delete",
    /// Figures of data streams.
    DataStreamStats = Index "indices:monitor/data_stream/stats",
    /// Putting indices under a policy, taking them from it, and trying failed actions again.
    ManageIndex = Index "indices:admin/opensearch/ism/managedindex",
    /// Reading the state of managed indices.
    ExplainManagedIndex = Index "indices:admin/opensearch/ism/managedindex/explain",
}

impl Action {
    /// Returns whether it changes documents that its request names.
    pub fn writes(self) -> bool {
        ActionSet::WRITES.contains(self)
    }

    /// Returns whether it may go on for long, so that it is asked on the way who sends it by then.
    pub fn lasts(self) -> bool {
        ActionSet::LASTING.contains(self)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActionSet(u128);

const _: () = assert!(Action::ALL.len() <= 128, "a set has a bit an action");

impl ActionSet {
    /// None.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self(u128::MAX >> (128 - Action::ALL.len()));

    /// Those that change documents.
    pub const WRITES: Self = Self::new(&[
        Action::Bulk,
        Action::IndexDocument,
        Action::CreateDocument,
        Action::UpdateDocument,
        Action::DeleteDocument,
    ]);

    /// Those that may go on for long. Their sessions know their sender (`Session::again`); for most others,
    /// which are over at once, nothing is kept of the request.
    pub const LASTING: Self = Self::new(&[Action::Sql, Action::DeleteByQuery]);

    /// Makes the set of these actions.
    pub const fn new(actions: &[Action]) -> Self {
        let (mut bits, mut place) = (0, 0);
        while place < actions.len() {
            bits |= 1 << (actions[place] as u8);
            place += 1;
        }
        Self(bits)
    }

    /// Makes the set of the actions whose name a predicate takes.
    pub fn named(mut takes: impl FnMut(&str) -> bool) -> Self {
        let named = Action::ALL.iter().filter(|action| takes(action.name()));
        named.fold(Self::NONE, |set, action| set.with(*action))
    }

    /// Adds an action.
    #[must_use]
    pub const fn with(self, action: Action) -> Self {
        Self(self.0 | 1 << (action as u8))
    }

    /// Returns the actions of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the actions of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns those that are not among others.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether an action is among them.
    pub const fn contains(self, action: Action) -> bool {
        self.0 >> (action as u8) & 1 == 1
    }

    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Lists them in the order of the enum.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.iter().copied().filter(move |action| self.contains(*action))
    }
}
