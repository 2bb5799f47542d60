//! Targets of writes: the index that each name of a request means, created where it is missing and may be.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use millrace_catalog::access::{self, DocumentRules, Guard, IndexAccess, Principal, refusal};
use millrace_catalog::metadata::{self, BlockLevel, IndexMeta};
use millrace_catalog::operation::{Action, WriteOp};
use millrace_runtime::{Error, Result};
use serde_json::Value;

use super::Engine;
use super::index::Index;

/// Facts about a request's operations that are needed before they are executed.
pub(super) struct RequestSummary {
    pub(super) bytes: u64,
    pub(super) has_updates: bool,
    /// In the order of the operations, each once.
    pub(super) names: Vec<TargetName>,
}

/// A name that operations go to.
pub(super) struct TargetName {
    index: Arc<str>,
    require_alias: bool,
    /// `true` if a missing index is created.
    create: bool,
}

impl RequestSummary {
    pub(super) fn new<'a>(ops: impl IntoIterator<Item = &'a WriteOp>) -> Self {
        let mut survey = Self { bytes: 0, has_updates: false, names: Vec::new() };
        let mut seen: HashSet<(Arc<str>, bool)> = HashSet::new();
        // An index comes into being by an operation that can leave something in it, wherever that
        // operation stands in the request and whatever it requires; mere deletions do not create one.
        let mut creating: HashSet<Arc<str>> = HashSet::new();
        let mut last: Option<(&WriteOp, bool)> = None;
        for op in ops {
            survey.bytes += op_bytes(op) as u64;
            survey.has_updates |= matches!(op.action, Action::Update(_));
            let creates = may_create(op);
            let same = |(last, created): (&WriteOp, bool)| {
                Arc::ptr_eq(&last.index, &op.index)
                    && last.require_alias == op.require_alias
                    && created == creates
            };
            if last.replace((op, creates)).is_some_and(same) {
                continue;
            }
            if creates {
                creating.insert(Arc::clone(&op.index));
            }
            let (index, require_alias) = (Arc::clone(&op.index), op.require_alias);
            if seen.insert((Arc::clone(&index), require_alias)) {
                survey.names.push(TargetName { index, require_alias, create: false });
            }
        }
        for named in &mut survey.names {
            named.create = creating.contains(&named.index);
        }
        survey
    }
}

/// Targets of writes, by the name given and whether it must be an alias.
pub(super) type Targets = HashMap<(Arc<str>, bool), Result<Target>, RandomState>;

/// Target of writes to a name.
pub(super) struct Target {
    index: Arc<Index>,
    /// The alias and the routing that it gives to every write.
    routing: Option<(Arc<str>, String)>,
    /// Access of the writer to the index.
    access: Arc<IndexAccess>,
    writer: Arc<Writer>,
    /// Rules that hide documents from the writer, if any do.
    documents: Option<Arc<DocumentRules>>,
    /// `true` if the writer sees all fields.
    sees_fields: bool,
    route: StreamRoute,
    /// Metadata by which the index takes operations; `None` where it takes none.
    writable: Option<Arc<IndexMeta>>,
}

/// Way of a write to a data stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamRoute {
    /// The index backs no data stream.
    None,
    /// By the name of the stream.
    Stream,
    /// By the name of a backing index.
    Backing,
}

/// Writer to a name.
#[derive(Debug)]
struct Writer {
    principal: Principal,
    name: Arc<str>,
}

/// Limits of the writer of an operation; most have none.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    writer: Arc<Writer>,
    action: access::Action,
    /// `true` if the document may bring fields that the mapping lacks.
    pub(super) maps: bool,
}

impl Limits {
    fn refusal(&self, action: access::Action) -> Error {
        refusal(&self.writer.principal, action, &self.writer.name)
    }

    /// Refuses a document that the mapping lacks fields of.
    pub(super) fn mapped(&self, mapped: bool) -> Result<()> {
        if mapped { Ok(()) } else { Err(self.refusal(access::Action::AutoPutMapping)) }
    }

    /// Makes the refusal of a document that is hidden from the writer.
    pub(super) fn hidden(limits: Option<&Self>) -> Error {
        match limits {
            Some(limits) => limits.refusal(limits.action),
            None => Error::Internal("a document is hidden from nobody".to_owned()),
        }
    }
}

/// An operation that may go on to an index.
pub(super) struct AdmittedOperation {
    pub(super) index: Arc<Index>,
    pub(super) limits: Option<Limits>,
}

impl Target {
    /// `resolved` is the name without date math.
    fn new(index: Arc<Index>, name: &Arc<str>, resolved: &str, principal: &Principal) -> Self {
        let meta = index.meta();
        let access = principal.privileges().written(resolved, &meta.name);
        let routing = meta.aliases.get(&**name).and_then(|alias| alias["index_routing"].as_str());
        let routing = routing.map(|routing| (Arc::clone(name), routing.to_owned()));
        let documents = access.documents(access::Action::Get);
        let route = match meta.data_stream() {
            None => StreamRoute::None,
            Some(stream) if stream == resolved => StreamRoute::Stream,
            Some(_) => StreamRoute::Backing,
        };
        Self {
            route,
            writable: check_writable(&meta).is_ok().then(|| Arc::clone(&meta)),
            documents: (!documents.is_empty()).then(|| Arc::new(documents)),
            sees_fields: access.fields(access::Action::Get).is_empty(),
            index,
            routing,
            access,
            writer: Arc::new(Writer { principal: principal.clone(), name: Arc::clone(name) }),
        }
    }

    /// Checks that the writer may do this.
    fn check(&self, op: &WriteOp) -> Result<()> {
        let action = op.needs();
        if !self.access.allows(action) {
            return Err(refusal(&self.writer.principal, action, &op.index));
        }
        if matches!(op.action, Action::Update(_)) && !self.sees_fields {
            return Err(Error::IllegalArgument(format!(
                "[{}] cannot be updated in part by {}, who may not see all fields of it: index the whole document",
                self.index.meta().name,
                self.writer.principal.caller()
            )));
        }
        Ok(())
    }

    /// Checks that a data stream takes the operation: new documents by its name, changes of old ones by that of their index.
    fn check_stream(&self, op: &WriteOp) -> Result<()> {
        let refuse = |reason: &str| Err(Error::IllegalArgument(reason.to_owned()));
        // A document whose id is generated replaces none.
        let creates = match &op.action {
            Action::Create(_) => true,
            Action::Index(_) => op.id.is_none(),
            _ => false,
        };
        match self.route {
            StreamRoute::None => Ok(()),
            StreamRoute::Stream if creates => Ok(()),
            StreamRoute::Stream => {
                refuse("only write ops with an op_type of create are allowed in data streams")
            }
            StreamRoute::Backing if creates => {
                refuse("index request with op_type=create targeting backing indices is disallowed")
            }
            StreamRoute::Backing if matches!(op.action, Action::Index(_)) && op.if_seq_no.is_none() => {
                refuse(
                    "index request with op_type=index and no if_primary_term and if_seq_no set targeting backing indices \
                 is disallowed",
                )
            }
            StreamRoute::Backing => Ok(()),
        }
    }

    /// Checks that the index takes the operation. Settings are looked at once for all operations, unless they change meanwhile.
    fn check_index(&self, op: &WriteOp, routing: Option<&String>) -> Result<()> {
        let meta = self.index.meta();
        if !self.writable.as_ref().is_some_and(|writable| Arc::ptr_eq(writable, &meta)) {
            check_writable(&meta)?;
        }
        // Before the mapping may grow.
        self.index.check_supported()?;
        if routing.is_none() && self.index.mapping().routing_required() {
            return Err(Error::RoutingMissing {
                index: meta.name.to_string(),
                id: op.id.clone().unwrap_or_default(),
            });
        }
        Ok(())
    }

    /// Says what the writer may not do.
    fn limits(&self, op: &WriteOp) -> Option<Limits> {
        // Who may change the mapping may do it by documents, too.
        let maps = self.access.allows(access::Action::AutoPutMapping)
            || self.access.allows(access::Action::PutMapping);
        let limited = !maps || self.documents.is_some();
        limited.then(|| Limits { writer: Arc::clone(&self.writer), action: op.needs(), maps })
    }

    /// Returns the routing of an operation: its own, or that of the alias.
    fn route<'o>(&'o self, op: &'o WriteOp) -> Result<Option<&'o String>> {
        match (&self.routing, &op.routing) {
            (Some((alias, routing)), Some(given)) if given != routing => {
                Err(Error::IllegalArgument(format!(
                    "Alias [{alias}] has index routing associated with it [{routing}], and was provided with routing \
                     value [{given}], rejecting operation"
                )))
            }
            (_, Some(given)) => Ok(Some(given)),
            (alias, None) => Ok(alias.as_ref().map(|(_, routing)| routing)),
        }
    }
}

/// Returns whether an operation creates the index that it names: a deletion leaves something only by an external version.
fn may_create(op: &WriteOp) -> bool {
    !matches!(op.action, Action::Delete) || op.version.is_some()
}

fn op_bytes(op: &WriteOp) -> usize {
    match &op.action {
        Action::Index(source) | Action::Create(source) => source.len(),
        Action::Delete => 64,
        // The merged document is charged when it is made.
        Action::Update(update) => {
            128 + update.doc.iter().chain(&update.upsert).map(|text| text.text().len()).sum::<usize>()
        }
    }
}

impl Engine {
    /// Finds the indices that operations name and creates those that are missing, where asked.
    pub(super) async fn targets(&self, principal: &Principal, names: Vec<TargetName>) -> Targets {
        let mut targets = Targets::default();
        for TargetName { index, require_alias, create } in names {
            // There may be as many names as operations.
            tokio::task::consume_budget().await;
            let target = self.target(principal, &index, require_alias, create).await;
            targets.insert((index, require_alias), target);
        }
        targets
    }

    /// Finds the index that writes to a name go to; `create`: a missing one is created.
    async fn target(
        &self,
        principal: &Principal,
        name: &Arc<str>,
        require_alias: bool,
        create: bool,
    ) -> Result<Target> {
        let now_ms = self.inner.clock.now_ms();
        // Where rights go through aliases, they are asked for when it is known what the name stands for.
        let guard = match principal.privileges().are_through_aliases() {
            true => None,
            false => Guard::of_writes(principal),
        };
        let resolved = metadata::resolve_date_math(name, now_ms)?;
        let metadata = self.metadata().guarded(guard);
        metadata.check_flood(name, now_ms)?;
        if require_alias && (metadata.index(name).is_some() || metadata.data_stream(name).is_some()) {
            return Err(Error::IndexNotFound {
                index: format!(
                    "{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
                ),
            });
        }
        if let Some(meta) = metadata.write_index(name, now_ms)? {
            return Ok(Target::new(self.index(&meta.name)?, name, &resolved, principal));
        }
        if require_alias {
            return Err(Error::IndexNotFound {
                index: format!(
                    "{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
                ),
            });
        }
        if !create {
            return Err(Error::IndexNotFound { index: name.to_string() });
        }
        metadata.auto_create_allowed(name)?;
        let access = principal.privileges().on(&resolved);
        if !access.allows(access::Action::AutoCreate) {
            return Err(refusal(principal, access::Action::AutoCreate, name));
        }
        let created = self
            .change(principal, |metadata| {
                // Another request may have been first.
                if metadata.write_index(name, now_ms)?.is_some() {
                    return Ok(Vec::new());
                }
                let guarded = metadata.guarded(Guard::new(principal, access::Action::AutoCreate));
                match guarded.stream_template(&resolved) {
                    Some(_) => guarded.create_data_stream(&resolved, now_ms, uuid::Uuid::new_v4()),
                    None => guarded.create_index(name, &Value::Null, now_ms, uuid::Uuid::new_v4()),
                }
            })
            .await;
        match created {
            // Another request was first.
            Ok(()) | Err(Error::IndexAlreadyExists { .. } | Error::DataStreamAlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.metadata().write_index(name, now_ms)? {
            Some(meta) => Ok(Target::new(self.index(&meta.name)?, name, &resolved, principal)),
            None => Err(Error::IndexNotFound { index: name.to_string() }),
        }
    }
}

/// Finds the index of an operation, which may refuse it.
pub(super) fn admit(targets: &Targets, op: &mut WriteOp) -> Result<AdmittedOperation> {
    let (admitted, routing) = admit_shared(targets, op)?;
    if op.routing.is_none() {
        op.routing = routing.cloned();
    }
    Ok(admitted)
}

/// Finds the index of an operation that stays as it is, which may refuse it; returns the operation's routing, too.
pub(super) fn admit_shared<'o>(
    targets: &'o Targets,
    op: &'o WriteOp,
) -> Result<(AdmittedOperation, Option<&'o String>)> {
    let target = match targets.get(&(Arc::clone(&op.index), op.require_alias)) {
        Some(Ok(target)) => target,
        Some(Err(error)) => return Err(again(error)),
        None => return Err(Error::Internal(format!("no target for [{}]", op.index))),
    };
    target.check(op)?;
    target.check_stream(op)?;
    let routing = target.route(op)?;
    target.check_index(op, routing)?;
    Ok((AdmittedOperation { index: Arc::clone(&target.index), limits: target.limits(op) }, routing))
}

/// Finds the index of an operation that rules hide documents of, with the rules and the routing of the operation.
pub(super) fn under_rules<'a>(
    targets: &'a Targets,
    op: &'a WriteOp,
) -> Option<(&'a Arc<Index>, &'a Arc<DocumentRules>, Option<&'a str>)> {
    let target = targets.get(&(Arc::clone(&op.index), op.require_alias))?.as_ref().ok()?;
    let of_alias = target.routing.as_ref().map(|(_, routing)| routing.as_str());
    Some((&target.index, target.documents.as_ref()?, op.routing.as_deref().or(of_alias)))
}

/// Checks that an index with this metadata is open and not blocked.
fn check_writable(meta: &IndexMeta) -> Result<()> {
    if !meta.open {
        return Err(Error::IndexClosed { index: meta.name.to_string() });
    }
    millrace_catalog::metadata::check_block(meta, BlockLevel::Write)
}

/// Makes an error anew for each operation that it concerns.
pub(super) fn again(error: &Error) -> Error {
    match error {
        Error::IndexNotFound { index } => Error::IndexNotFound { index: index.clone() },
        Error::IndexClosed { index } => Error::IndexClosed { index: index.clone() },
        Error::InvalidIndexName { index, reason } => {
            Error::InvalidIndexName { index: index.clone(), reason: reason.clone() }
        }
        Error::AutoCreateRefused { index, reason } => {
            Error::AutoCreateRefused { index: index.clone(), reason: reason.clone() }
        }
        Error::InvalidAliasName { alias, reason } => {
            Error::InvalidAliasName { alias: alias.clone(), reason: reason.clone() }
        }
        Error::Unauthorized { action, caller, index } => {
            Error::Unauthorized { action, caller: caller.clone(), index: index.clone() }
        }
        Error::Blocked { index, reason } => Error::Blocked { index: index.clone(), reason: reason.clone() },
        Error::MapperParsing { reason, caused_by } => {
            Error::MapperParsing { reason: reason.clone(), caused_by: caused_by.clone() }
        }
        Error::Validation(text) => Error::Validation(text.clone()),
        Error::IllegalArgument(text) => Error::IllegalArgument(text.clone()),
        Error::Rejected(text) => Error::Rejected(text.clone()),
        Error::Stopped(text) => Error::Stopped(text.clone()),
        other => Error::Internal(other.to_string()),
    }
}
