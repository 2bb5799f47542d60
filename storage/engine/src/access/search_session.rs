//! The engine's sessions and indices as searches and statements ask them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::{Action, Principal, Refusals};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_catalog::operation::{RefreshPolicy, WriteOp, WriteOutcome};
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{Result, SharedClock};
use millrace_session::{SearchIndex, SearchSession, Snapshot, StoredDoc};
use serde_json::Value;

use crate::{Index, Session};

impl SearchSession for Session {
    fn to_shared(&self) -> Arc<dyn SearchSession> {
        Arc::new(self.clone())
    }

    fn doing(&self, action: Action) -> Result<Arc<dyn SearchSession>> {
        Ok(Arc::new(Session::doing(self, action)?))
    }

    fn again(&self) -> BoxFuture<'_, Result<Arc<dyn SearchSession>>> {
        Box::pin(async move {
            let session: Arc<dyn SearchSession> = Arc::new(Session::again(self).await?);
            Ok(session)
        })
    }

    fn principal(&self) -> &Principal {
        Session::principal(self)
    }

    fn action(&self) -> Action {
        Session::action(self)
    }

    fn refusals(&self) -> &Refusals {
        Session::refusals(self)
    }

    fn task(&self) -> Option<&TaskHandle> {
        Session::task(self)
    }

    fn clock(&self) -> &SharedClock {
        Session::clock(self)
    }

    fn metadata(&self) -> Arc<Metadata> {
        Session::metadata(self)
    }

    fn index(&self, name: &str) -> Result<Arc<dyn SearchIndex>> {
        Ok(Session::index(self, name)?)
    }

    fn resolve(&self, expression: &str, options: &IndicesOptions) -> Result<Vec<Arc<dyn SearchIndex>>> {
        let indices = Session::resolve(self, expression, options)?;
        Ok(indices.into_iter().map(|index| index as Arc<dyn SearchIndex>).collect())
    }

    fn view(&self, mapping: &Arc<Mapping>, rules: Vec<Arc<FieldRules>>) -> Arc<Mapping> {
        Session::view(self, mapping, rules)
    }

    fn get<'a>(
        &'a self,
        index: &'a str,
        id: &'a str,
        routing: Option<&'a str>,
        realtime: bool,
    ) -> BoxFuture<'a, Result<Option<StoredDoc>>> {
        Box::pin(Session::get(self, index, id, routing, realtime))
    }

    fn write(
        &self,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Vec<Result<WriteOutcome>>>> {
        Session::write(self, ops, refresh, timeout)
    }

    fn refresh_by_name<'a>(&'a self, names: &'a BTreeSet<Arc<str>>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let indices: Vec<_> = names.iter().filter_map(|name| Session::index(self, name).ok()).collect();
            Session::refresh(self, &indices).await
        })
    }
}

impl SearchIndex for Index {
    fn meta(&self) -> Arc<IndexMeta> {
        Index::meta(self)
    }

    fn mapping(&self) -> Arc<Mapping> {
        Index::mapping(self)
    }

    fn check_supported(&self) -> Result<()> {
        Index::check_supported(self)
    }

    fn unsupported_body(&self) -> Option<Value> {
        Index::unsupported_body(self)
    }

    fn snapshot(self: Arc<Self>) -> BoxFuture<'static, Result<Snapshot>> {
        Box::pin(async move { Index::snapshot(&self).await })
    }
}
