//! Parts of the server that policies use, as the server hands them over: the audit, notifications, accounts.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_catalog::access::{Action, Principal};
use serde_json::{Map, Value};

use crate::document_retention::DocumentDeleter;

/// Audit of what policies do.
pub trait LifecycleAudit: fmt::Debug + Send + Sync {
    /// Records that the server made the change that a request of this method and path makes.
    fn record(&self, action: Action, method: &'static str, path: &[&str]);
}

/// Sender of the action `notification`.
pub trait PolicyNotifier: fmt::Debug + Send + Sync {
    /// Sends a message; the error says why it was not sent.
    fn send<'a>(&'a self, message: &'a PolicyMessage) -> BoxFuture<'a, Result<(), String>>;
}

/// Rights of the owners of policies.
pub trait PolicyOwners: fmt::Debug + Send + Sync {
    /// Finds a user with what it may do now; `None` where it is gone or disabled.
    fn find_principal<'a>(
        &'a self,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Option<Principal>, millrace_runtime::Error>>;
}

/// Message of the action `notification`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyMessage {
    /// Identity of the message, the same in each try.
    pub key: String,
    /// Id of the policy.
    pub policy_id: String,
    /// Subject.
    pub subject: String,
    /// Text.
    pub text: String,
    /// Options of the webhook, by their names in rules; secrets are `{"secret": "name"}`.
    pub webhook: Map<String, Value>,
}

/// Parts of the server that policies use. Without one, an action that needs it fails and says so.
#[derive(Clone, Debug, Default)]
pub struct LifecycleHooks {
    /// Audit of changes.
    pub auditor: Option<Arc<dyn LifecycleAudit>>,
    /// Deletion of the server's own documents by their age.
    pub deleter: Option<Arc<dyn DocumentDeleter>>,
    /// Sender of notifications.
    pub notifier: Option<Arc<dyn PolicyNotifier>>,
    /// Rights of owners. Without it there are no accounts, and policies have all rights.
    pub owners: Option<Arc<dyn PolicyOwners>>,
}
