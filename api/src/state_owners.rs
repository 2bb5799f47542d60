//! Rules and AI rules as owners of system indices, which restores replace.

use futures::future::BoxFuture;
use millrace_alerting::Alerting;
use millrace_intelligence::Intelligence;
use millrace_snapshot::SystemStateOwner;

/// Alert rules, which a restore replaces.
#[derive(Debug)]
pub(crate) struct AlertRuleReloader(pub(crate) Alerting);

impl SystemStateOwner for AlertRuleReloader {
    fn index(&self) -> &'static str {
        millrace_alerting::RULES_INDEX
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.0.reload().await.map_err(|error| error.to_string()) })
    }
}

/// AI rules, which a restore replaces.
#[derive(Debug)]
pub(crate) struct AiRuleReloader(pub(crate) Intelligence);

impl SystemStateOwner for AiRuleReloader {
    fn index(&self) -> &'static str {
        millrace_intelligence::RULES_INDEX
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.0.reload().await.map_err(|error| error.to_string()) })
    }
}
