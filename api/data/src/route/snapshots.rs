//! Repositories, snapshots and recoveries, and their tables.

use super::{DataApi, Route, routes};
use crate::admin::cat::{recovery as cat_recovery, snapshots as cat};
use crate::admin::recovery;
use crate::admin::snapshots::{lifecycle, repositories, status};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        read GET, "/_snapshot", () GetRepositories => repositories::get(served, request, None);
        read GET, "/_snapshot/{repository}", (repository) GetRepositories => repositories::get(served, request, Some(repository));
        change POST PUT, "/_snapshot/{repository}", (repository) PutRepositories => repositories::put(served, request, repository).await;
        change DELETE, "/_snapshot/{repository}", (repository) DeleteRepositories => repositories::delete(served, request, repository).await;
        change POST, "/_snapshot/{repository}/_verify", (repository) PutRepositories => repositories::verify(served, api, request, repository).await;
        change POST, "/_snapshot/{repository}/_verify_integrity", (repository) PutRepositories => repositories::verify_integrity(served, api, request, repository).await;
        change POST, "/_snapshot/{repository}/_cleanup", (repository) PutRepositories => repositories::clean_up(served, request, repository).await;
        read GET, "/_snapshot/_status", () GetSnapshots => status::get(served, request, None, None).await;
        read GET, "/_snapshot/{repository}/_status", (repository) GetSnapshots => status::get(served, request, Some(repository), None).await;
        read GET, "/_snapshot/{repository}/{snapshot}/_status", (repository, snapshot) GetSnapshots => status::get(served, request, Some(repository), Some(snapshot)).await;
        read GET, "/_snapshot/{repository}/{snapshot}", (repository, snapshot) GetSnapshots => lifecycle::get(served, request, (repository, snapshot)).await;
        change POST PUT, "/_snapshot/{repository}/{snapshot}", (repository, snapshot) CreateSnapshot => lifecycle::create(served, api, request, (repository, snapshot)).await;
        change DELETE, "/_snapshot/{repository}/{snapshot}", (repository, snapshot) DeleteSnapshots => lifecycle::delete(served, request, (repository, snapshot)).await;
        change PUT, "/_snapshot/{repository}/{snapshot}/_clone/{target}", (repository, snapshot, target) CreateSnapshot => lifecycle::clone(served, request, (repository, snapshot, target)).await;
        change POST, "/_snapshot/{repository}/{snapshot}/_restore", (repository, snapshot) RestoreSnapshot => lifecycle::restore(served, api, request, (repository, snapshot)).await;
        read GET, "/_recovery", () Recovery => recovery::get(served, api, request, "_all");
        read GET, "/{index}/_recovery", (index) Recovery => recovery::get(served, api, request, index);
        read GET, "/_cat/recovery", () Recovery => cat_recovery::get(served, api, request, "_all");
        read GET, "/_cat/recovery/{expression}", (expression) Recovery => cat_recovery::get(served, api, request, expression);
        read GET, "/_cat/repositories", () GetRepositories => cat::repositories(served, request);
        read GET, "/_cat/snapshots", () GetSnapshots => cat::snapshots(served, request, None).await;
        read GET, "/_cat/snapshots/{repository}", (repository) GetSnapshots => cat::snapshots(served, request, Some(repository)).await;
    }
}
