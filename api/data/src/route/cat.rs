//! `_cat`: tables for people.

use super::{DataApi, Route, routes};
use crate::admin::cat::{cluster, help, indices, names, nodes, segments, shards, tasks};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |_served: DataApi, api, request|
        read GET, "/_cat", () Main => help(request);
        read GET, "/_cat/indices", () IndexStats => indices::get(api, request, "_all");
        read GET, "/_cat/indices/{expression}", (expression) IndexStats => indices::get(api, request, expression);
        read GET, "/_cat/count", () Search => cluster::count(api, request, "_all").await;
        read GET, "/_cat/count/{expression}", (expression) Search => cluster::count(api, request, expression).await;
        read GET, "/_cat/shards", () IndexStats => shards::get(api, request, "_all");
        read GET, "/_cat/shards/{expression}", (expression) IndexStats => shards::get(api, request, expression);
        read GET, "/_cat/segments", () Segments => segments::get(api, request, "_all");
        read GET, "/_cat/segments/{expression}", (expression) Segments => segments::get(api, request, expression);
        read GET, "/_cat/aliases", () GetAliases => names::aliases(api, request, None);
        read GET, "/_cat/aliases/{name}", (name) GetAliases => names::aliases(api, request, Some(name));
        read GET, "/_cat/templates", () GetTemplates => names::templates(api, request, None);
        read GET, "/_cat/templates/{name}", (name) GetTemplates => names::templates(api, request, Some(name));
        read GET, "/_cat/health", () Health => cluster::health(api, request);
        read GET, "/_cat/master|cluster_manager", () State => nodes::master(api, request);
        read GET, "/_cat/nodes", () NodesStats => nodes::get(api, request);
        read GET, "/_cat/allocation", () NodesStats => nodes::allocation(api, request, "_all");
        read GET, "/_cat/allocation/{node}", (node) NodesStats => nodes::allocation(api, request, node);
        read GET, "/_cat/fielddata", () NodesStats => cluster::fielddata(request);
        read GET, "/_cat/fielddata/{fields}", () NodesStats => cluster::fielddata(request);
        read GET, "/_cat/plugins", () NodesInfo => nodes::plugins(api, request);
        read GET, "/_cat/nodeattrs", () NodesInfo => nodes::attributes(request);
        read GET, "/_cat/pending_tasks", () Tasks => cluster::pending_tasks(request);
        read GET, "/_cat/tasks", () Tasks => tasks::get(api, request);
    }
}
