//! Policies of indices and of snapshots.

use super::{DataApi, Route, routes};
use crate::admin::lifecycle::{ilm, managed, policies, snapshot_policies as snapshots};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        read GET, "/_plugins|_opendistro/_ism/policies", () GetIndexPolicies => policies::list(served, request);
        change PUT, "/_plugins|_opendistro/_ism/policies", () PutIndexPolicies => policies::put(served, api, request, None).await;
        read GET, "/_plugins|_opendistro/_ism/policies/{policy}", (policy) GetIndexPolicies => policies::get(served, request, policy);
        read HEAD, "/_plugins|_opendistro/_ism/policies/{policy}", (policy) GetIndexPolicies => policies::exists(served, request, policy);
        change PUT, "/_plugins|_opendistro/_ism/policies/{policy}", (policy) PutIndexPolicies => policies::put(served, api, request, Some(policy)).await;
        change DELETE, "/_plugins|_opendistro/_ism/policies/{policy}", (policy) DeleteIndexPolicies => policies::delete(served, request, policy).await;
        change POST, "/_plugins|_opendistro/_ism/add", () ManageIndex => managed::add(served, api, request, None).await;
        change POST, "/_plugins|_opendistro/_ism/add/{index}", (index) ManageIndex => managed::add(served, api, request, Some(index)).await;
        change POST, "/_plugins|_opendistro/_ism/remove", () ManageIndex => managed::remove(served, api, request, None).await;
        change POST, "/_plugins|_opendistro/_ism/remove/{index}", (index) ManageIndex => managed::remove(served, api, request, Some(index)).await;
        change POST, "/_plugins|_opendistro/_ism/change_policy", () ManageIndex => managed::change_policy(served, api, request, None).await;
        change POST, "/_plugins|_opendistro/_ism/change_policy/{index}", (index) ManageIndex => managed::change_policy(served, api, request, Some(index)).await;
        change POST, "/_plugins|_opendistro/_ism/retry", () ManageIndex => managed::retry(served, api, request, None).await;
        change POST, "/_plugins|_opendistro/_ism/retry/{index}", (index) ManageIndex => managed::retry(served, api, request, Some(index)).await;
        read GET POST, "/_plugins|_opendistro/_ism/explain", () ExplainManagedIndex => managed::explain(served, api, request, None).await;
        read GET POST, "/_plugins|_opendistro/_ism/explain/{index}", (index) ExplainManagedIndex => managed::explain(served, api, request, Some(index)).await;

        read GET, "/_ilm/policy", () GetIndexPolicies => ilm::get(served, request, None);
        read GET, "/_ilm/policy/{policy}", (policy) GetIndexPolicies => ilm::get(served, request, Some(policy));
        change PUT, "/_ilm/policy/{policy}", (policy) PutIndexPolicies => ilm::put(served, api, request, policy).await;
        change DELETE, "/_ilm/policy/{policy}", (policy) DeleteIndexPolicies => ilm::delete(served, request, policy).await;

        read GET, "/_plugins/_sm/policies", () GetSnapshotPolicies => snapshots::list(served, request);
        read GET, "/_plugins/_sm/policies/{policy}", (policy) GetSnapshotPolicies => snapshots::get(served, request, policy);
        change POST, "/_plugins/_sm/policies/{policy}", (policy) PutSnapshotPolicies => snapshots::create(served, api, request, policy).await;
        change PUT, "/_plugins/_sm/policies/{policy}", (policy) PutSnapshotPolicies => snapshots::update(served, api, request, policy).await;
        change DELETE, "/_plugins/_sm/policies/{policy}", (policy) DeleteSnapshotPolicies => snapshots::delete(served, request, policy).await;
        read GET, "/_plugins/_sm/policies/{policy}/_explain", (policy) GetSnapshotPolicies => snapshots::explain(served, request, policy);
        change POST, "/_plugins/_sm/policies/{policy}/_start", (policy) PutSnapshotPolicies => snapshots::enable(served, request, policy, true).await;
        change POST, "/_plugins/_sm/policies/{policy}/_stop", (policy) PutSnapshotPolicies => snapshots::enable(served, request, policy, false).await;
    }
}
