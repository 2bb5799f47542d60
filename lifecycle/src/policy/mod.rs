//! Policies of indices: states with actions, and transitions between these.
//!
//! - [`IndexPolicy`]: a parsed policy; `body` is the form that is stored and shown
//! - [`ActionSpec`]: an action with its parameters
//! - [`TransitionCondition`]: the condition of a way to another state
//! - [`ShrinkTarget`], [`PolicyNotification`]: parameters of the actions `shrink` and `notification`
//! - `parse`: reads the bodies of `_plugins/_ism/policies`; `ilm`: those of `_ilm/policy`

mod ilm;
mod notification;
mod parse;
mod shrink;
#[cfg(test)]
mod tests;
mod text_template;

use std::time::Duration;

use millrace_mapping::pattern;
use millrace_schedule::Schedule;
use serde_json::Value;

pub use ilm::parse_ilm;
pub(crate) use notification::{PolicyNotification, parse_destination, refuse_channel};
pub(crate) use parse::{MAX_BYTES, duration, invalid, members, number, parse_cron};
pub(crate) use shrink::ShrinkTarget;
pub(crate) use text_template::TemplateContext;

/// A policy of indices.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPolicy {
    /// Its parts as they are shown, with defaults.
    pub body: Value,
    /// Name of the state that an index begins in.
    pub default_state: String,
    /// States; one at least.
    pub states: Vec<PolicyState>,
    /// Patterns of the indices that it is for, each list with its priority.
    pub templates: Vec<PolicyTemplate>,
    /// Message about an action that has failed for the last time.
    pub error_notification: Option<Box<PolicyNotification>>,
    /// User whose rights its snapshots and shrunken indices have; `None` where nobody has put it.
    pub owner: Option<String>,
}

/// A state of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyState {
    /// Name.
    pub name: String,
    /// Actions in order.
    pub actions: Vec<PolicyAction>,
    /// Ways to other states; the first whose condition holds is taken.
    pub transitions: Vec<StateTransition>,
}

/// Patterns of new indices that a policy is for.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTemplate {
    /// Patterns of names.
    pub patterns: Vec<String>,
    /// The policy with the greatest priority takes an index.
    pub priority: i64,
}

impl PolicyTemplate {
    /// Lists the patterns that are no exclusions.
    fn included(&self) -> impl Iterator<Item = &String> {
        self.patterns.iter().filter(|glob| !glob.starts_with('-'))
    }

    /// Returns whether some name is of patterns of both, which have the same priority.
    fn overlaps(&self, other: &Self) -> bool {
        self.priority == other.priority
            && self.included().any(|ours| other.included().any(|theirs| pattern::overlap(ours, theirs)))
    }
}

/// An action with what becomes of its failures.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyAction {
    /// The action.
    pub spec: ActionSpec,
    /// Time after which an action that is not done has failed.
    pub timeout: Option<Duration>,
    /// Repetition of a failed action.
    pub retry: ActionRetry,
}

/// Repetition of a failed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRetry {
    /// Tries behind the first.
    pub count: u32,
    /// Growth of the delay.
    pub backoff: RetryBackoff,
    /// Time before the next try.
    pub delay: Duration,
}

/// Growth of the delay between tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryBackoff {
    /// It stays.
    Constant,
    /// It grows by itself.
    Linear,
    /// It doubles.
    Exponential,
}

impl ActionRetry {
    /// Returns the time before the next try, after so many failed ones.
    pub fn delay_after(&self, tries: u32) -> Duration {
        let factor = match self.backoff {
            RetryBackoff::Constant => 1,
            RetryBackoff::Linear => tries.max(1),
            RetryBackoff::Exponential => 1 << tries.saturating_sub(1).min(16),
        };
        self.delay.saturating_mul(factor)
    }
}

/// An action on an index.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpec {
    /// The write index of the stream or alias becomes a new one.
    Rollover(RolloverConditions),
    /// No document is written any more.
    ReadOnly,
    /// Documents are written again.
    ReadWrite,
    /// Shards are merged to at most so many segments.
    ForceMerge(usize),
    /// The index is deleted.
    Delete,
    /// The index is closed.
    Close,
    /// The index is opened.
    Open,
    /// The setting `index.priority`.
    IndexPriority(u64),
    /// The setting `index.number_of_replicas`.
    ReplicaCount(u64),
    /// Aliases are added and removed, as `_aliases` does.
    Alias(Vec<Value>),
    /// A snapshot of the index.
    Snapshot {
        /// Repository.
        repository: String,
        /// Beginning of the snapshot's name.
        snapshot: String,
    },
    /// An index with fewer shards and the same documents.
    Shrink(Box<ShrinkTarget>),
    /// A message is sent.
    Notification(Box<PolicyNotification>),
}

impl ActionSpec {
    /// Returns whether it lasts: its index does not keep others from their passes meanwhile.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Self::ForceMerge(_) | Self::Snapshot { .. } | Self::Shrink(_) | Self::Notification(_))
    }

    /// Returns its name in policies.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rollover(_) => "rollover",
            Self::ReadOnly => "read_only",
            Self::ReadWrite => "read_write",
            Self::ForceMerge(_) => "force_merge",
            Self::Delete => "delete",
            Self::Close => "close",
            Self::Open => "open",
            Self::IndexPriority(_) => "index_priority",
            Self::ReplicaCount(_) => "replica_count",
            Self::Alias(_) => "alias",
            Self::Snapshot { .. } => "snapshot",
            Self::Shrink(_) => "shrink",
            Self::Notification(_) => "notification",
        }
    }
}

/// Conditions of a rollover, of which one has to hold. Without any it is done at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloverConditions {
    /// Age of the index.
    pub min_index_age: Option<Duration>,
    /// Documents.
    pub min_doc_count: Option<u64>,
    /// Bytes of the index.
    pub min_size: Option<u64>,
    /// Bytes of the largest shard.
    pub min_primary_shard_size: Option<u64>,
    /// `true` if an index without documents is never rolled over.
    pub prevent_empty: bool,
    /// `true` if the new index gets the other aliases, too.
    pub copy_alias: bool,
}

/// A way to another state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTransition {
    /// Name of that state.
    pub state: String,
    /// Condition of the way; `None`: it is taken at once.
    pub condition: Option<TransitionCondition>,
}

/// Condition of a way to another state.
#[derive(Clone, Debug, PartialEq)]
pub enum TransitionCondition {
    /// Age of the index.
    IndexAge(Duration),
    /// Documents.
    DocCount(u64),
    /// Bytes.
    Size(u64),
    /// Time since the rollover.
    RolloverAge(Duration),
    /// Time in the state.
    StateAge(Duration),
    /// A time of a schedule has come since the state began.
    Cron(Box<Schedule>),
}

impl IndexPolicy {
    /// Returns a state by its name.
    pub fn state(&self, name: &str) -> Option<&PolicyState> {
        self.states.iter().find(|state| state.name == name)
    }

    /// Finds another policy, or another template of this one, that takes indices of its patterns with the same priority, and describes
    /// the conflict. Exclusions of patterns do not end one.
    pub(crate) fn find_conflict<'a>(
        &'a self,
        id: &'a str,
        others: impl Iterator<Item = (&'a str, &'a Self)>,
    ) -> Option<String> {
        let rivals: Vec<(&str, &PolicyTemplate)> = others
            .flat_map(|(id, other)| other.templates.iter().map(move |template| (id, template)))
            .collect();
        for (at, template) in self.templates.iter().enumerate() {
            let own = self.templates[..at].iter().map(|template| (id, template));
            let conflict = own.chain(rivals.iter().copied()).find(|(_, rival)| template.overlaps(rival));
            if let Some((rival_id, rival)) = conflict {
                return Some(format!(
                    "New policy {id} has an ISM template with index pattern [{}] matching existing policy templates, policy \
                     [{rival_id}] => [{}], please use a different priority than {}",
                    template.patterns.join(", "),
                    rival.patterns.join(", "),
                    template.priority
                ));
            }
        }
        None
    }

    /// Returns the priority with which the policy takes indices of a name; `None` where it does not.
    pub fn priority_for(&self, name: &str) -> Option<i64> {
        let matching = self.templates.iter().filter(|template| {
            let excluded =
                |glob: &String| glob.strip_prefix('-').is_some_and(|glob| pattern::matches(glob, name));
            template.patterns.iter().any(|glob| pattern::matches(glob, name))
                && !template.patterns.iter().any(excluded)
        });
        matching.map(|template| template.priority).max()
    }
}
