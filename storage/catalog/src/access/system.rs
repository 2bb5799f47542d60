//! Names that are not for everybody: system indices, and indices that rules alone write.

use super::{Action, ActionSet, Grant};

/// Class of an index name, whatever roles say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClass {
    /// Anybody's, as roles say.
    Ordinary,
    /// Read as roles say, written by the server only: who could write an alert's id beforehand could suppress it.
    OfRules,
    /// A system index: only through its own API, or read by name with an explicit privilege.
    System,
}

/// Indices that rules alone write, and that of changes of agents' status.
const OF_RULES: [&str; 6] =
    ["alert", "alert_status", "alert_error", "alert_silence", "intelligence", "agent_status"];
/// System indices.
const SYSTEM: [&str; 13] = [
    ".alertrules",
    ".alert_outbox",
    ".alert_secrets",
    ".intelligence_rules",
    ".console",
    ".security",
    ".dead-letters",
    ".tasks",
    ".agents",
    ".index_policies",
    ".managed_indices",
    ".snapshot_policies",
    ".ingest-pipelines",
];
/// Prefixes of further system indices.
const SYSTEM_PREFIXES: [&str; 3] = [".audit-", ".security-", ".dead-letters-"];

/// Actions that roles may grant on a system index: it is changed through its own API alone.
const READ_BY_NAME: ActionSet = ActionSet::new(&[
    Action::Search,
    Action::MultiSearch,
    Action::Sql,
    Action::Get,
    Action::MultiGet,
    Action::Explain,
    Action::FieldCaps,
    Action::OpenPointInTime,
    Action::ValidateQuery,
    Action::GetIndex,
    Action::ResolveIndex,
    Action::GetMappings,
    Action::GetFieldMappings,
    Action::GetSettings,
    Action::GetAliases,
    Action::IndexStats,
    Action::Segments,
    Action::Recovery,
    Action::Refresh,
]);

/// Actions that remove documents from an index that rules write. They are granted by its name, or by a grant that reaches system
/// indices, never by a wildcard alone. These actions put no document in their place.
pub(super) const REMOVES: ActionSet =
    ActionSet::new(&[Action::DeleteByQuery, Action::DeleteDocument, Action::Bulk]);

/// Actions that roles may grant on an index that rules write: all but changing documents or their meaning.
const OF_RULES_GRANTED: ActionSet = READ_BY_NAME
    .or(ActionSet::new(&[Action::Flush, Action::ForceMerge, Action::ClearCache, Action::Analyze]))
    .or(REMOVES);

impl NameClass {
    /// Classifies a name.
    pub fn new(index: &str) -> Self {
        let system = |name: &str| SYSTEM.contains(&name);
        let prefixed = |name: &str| SYSTEM_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        match index.as_bytes().first() {
            Some(b'.') if system(index) || prefixed(index) => Self::System,
            Some(b'a' | b'i') if OF_RULES.contains(&index) => Self::OfRules,
            _ => Self::Ordinary,
        }
    }

    /// Returns what a grant that matches an index of this name grants on it.
    pub(super) fn granted(self, grant: &Grant, index: &str) -> ActionSet {
        let names = || grant.names.iter().any(|name| name.as_str() == index);
        match self == Self::OfRules && !grant.system && !names() {
            true => grant.actions.and(self.grantable()).without(REMOVES),
            false => grant.actions.and(self.grantable()),
        }
    }

    /// Returns what roles may grant on such an index.
    pub(super) fn grantable(self) -> ActionSet {
        match self {
            Self::Ordinary => ActionSet::ALL,
            Self::OfRules => OF_RULES_GRANTED,
            Self::System => READ_BY_NAME,
        }
    }
}

/// Returns the data stream that the name of a backing index names: `.ds-<stream>-<six digits at least>`.
pub fn backed_stream(index: &str) -> Option<&str> {
    let (stream, generation) = index.strip_prefix(".ds-")?.rsplit_once('-')?;
    let is_number = generation.len() >= 6 && generation.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !stream.is_empty() && NameClass::new(stream) == NameClass::Ordinary).then_some(stream)
}

/// Returns whether an index is written until the disk is full: what it tells cannot be told later.
pub(crate) fn is_written_last(index: &str) -> bool {
    index.starts_with(".audit-") || index == ".alert_outbox"
}

/// Returns whether a pattern asks for system indices by name: what is before its first wildcard begins the name of some.
pub(crate) fn names_system(pattern: &str) -> bool {
    let literal = pattern.split(['*', '?']).next().unwrap_or_default();
    SYSTEM_PREFIXES.iter().any(|prefix| literal.starts_with(prefix)) || SYSTEM.contains(&literal)
}
