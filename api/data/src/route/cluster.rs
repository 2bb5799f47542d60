//! The cluster, its node, its settings and its templates.

use millrace_catalog::metadata::TemplateKind::{Component, Index, Legacy};

use super::{DataApi, Route, RouteCondition, routes};
use crate::admin::{cluster, health, hot_threads, metrics, nodes, tasks, templates};

/// One segment is a list of metrics where all of it are some, and of nodes where not.
const METRICS: RouteCondition =
    RouteCondition { words: "", holds: |path, _| path.last().is_some_and(|part| nodes::is_metrics(part)) };

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        read GET, "/_cluster/health", () Health => health::get(api, request, None).await;
        read GET, "/_cluster/health/{expression}", (expression) Health => health::get(api, request, Some(expression)).await;
        read GET, "/_cluster/settings", () ClusterSettings => cluster::get_settings(api, request);
        change PUT, "/_cluster/settings", () PutClusterSettings => cluster::put_settings(api, request).await;
        change PUT, "/_plugins|_opendistro/_query|_sql/settings", () PutClusterSettings => cluster::put_query_settings(api, request).await;
        read GET, "/_cluster/state", () State => cluster::state(served, api, request, None, None).await;
        read GET, "/_cluster/state/{metrics}", (metrics) State => cluster::state(served, api, request, Some(metrics), None).await;
        read GET, "/_cluster/state/{metrics}/{expression}", (metrics, expression) State => cluster::state(served, api, request, Some(metrics), Some(expression)).await;
        read GET, "/_cluster/stats", () ClusterStats => cluster::statistics(served, api, request, "_all");
        read GET, "/_cluster/stats/nodes/{node}", (node) ClusterStats => cluster::statistics(served, api, request, node);
        read GET, "/_cluster/pending_tasks", () Tasks => cluster::pending_tasks(request);
        read GET, "/_prometheus/metrics", () Metrics => metrics::get(served, api, request).await;
        read GET, "/_tasks", () Tasks => tasks::list(api, request).await;
        read GET, "/_tasks/{task_id}", (task_id) GetTask => tasks::get(api, request, task_id).await;
        change POST, "/_tasks/_cancel", () CancelTasks => tasks::cancel(api, request, None).await;
        change POST, "/_tasks/{task_id}/_cancel", (task_id) CancelTasks => tasks::cancel(api, request, Some(task_id)).await;

        read GET, "/_nodes/hot_threads", () HotThreads => hot_threads::get(api, request, "_all");
        read GET, "/_nodes/{nodes}/hot_threads", (nodes) HotThreads => hot_threads::get(api, request, nodes);
        read GET, "/_nodes", () NodesInfo => nodes::info(api, request, "_all", None);
        read GET, "/_nodes/{metrics}", (metrics) NodesInfo if METRICS => nodes::info(api, request, "_all", Some(metrics));
        read GET, "/_nodes/{nodes}", (nodes) NodesInfo => nodes::info(api, request, nodes, None);
        read GET, "/_nodes/{nodes}/info", (nodes) NodesInfo => nodes::info(api, request, nodes, None);
        read GET, "/_nodes/{nodes}/{parts}", (nodes, parts) NodesInfo => nodes::info(api, request, nodes, Some(parts));
        read GET, "/_nodes/{nodes}/info/{metrics}", (nodes, metrics) NodesInfo => nodes::info(api, request, nodes, Some(metrics));
        read GET, "/_nodes/stats", () NodesStats => nodes::statistics(served, api, request, "_all", None, None);
        read GET, "/_nodes/stats/{metrics}", (metrics) NodesStats => nodes::statistics(served, api, request, "_all", Some(metrics), None);
        read GET, "/_nodes/stats/{metrics}/{sections}", (metrics, sections) NodesStats => nodes::statistics(served, api, request, "_all", Some(metrics), Some(sections));
        read GET, "/_nodes/{nodes}/stats", (nodes) NodesStats => nodes::statistics(served, api, request, nodes, None, None);
        read GET, "/_nodes/{nodes}/stats/{metrics}", (nodes, metrics) NodesStats => nodes::statistics(served, api, request, nodes, Some(metrics), None);
        read GET, "/_nodes/{nodes}/stats/{metrics}/{sections}", (nodes, metrics, sections) NodesStats => nodes::statistics(served, api, request, nodes, Some(metrics), Some(sections));

        read GET, "/_template", () GetTemplates => templates::get(api, request, Legacy, None);
        read GET, "/_template/{name}", (name) GetTemplates => templates::get(api, request, Legacy, Some(name));
        read HEAD, "/_template/{name}", (name) GetTemplates => templates::exists(api, request, Legacy, name);
        change POST PUT, "/_template/{name}", (name) PutTemplates => templates::put(api, request, Legacy, name).await;
        change DELETE, "/_template/{name}", (name) DeleteTemplates => templates::delete(api, request, Legacy, name).await;

        read GET, "/_index_template", () GetIndexTemplates => templates::get(api, request, Index, None);
        read GET, "/_index_template/{name}", (name) GetIndexTemplates => templates::get(api, request, Index, Some(name));
        read HEAD, "/_index_template/{name}", (name) GetIndexTemplates => templates::exists(api, request, Index, name);
        read POST, "/_index_template/_simulate", () SimulateTemplates => templates::simulate(api, request, None);
        read POST, "/_index_template/_simulate/{name}", (name) SimulateTemplates => templates::simulate(api, request, Some(name));
        read POST, "/_index_template/_simulate_index/{name}", (name) SimulateTemplates => templates::simulate_index(api, request, name);
        change POST PUT, "/_index_template/{name}", (name) PutIndexTemplates => templates::put(api, request, Index, name).await;
        change DELETE, "/_index_template/{name}", (name) DeleteIndexTemplates => templates::delete(api, request, Index, name).await;

        read GET, "/_component_template", () GetComponentTemplates => templates::get(api, request, Component, None);
        read GET, "/_component_template/{name}", (name) GetComponentTemplates => templates::get(api, request, Component, Some(name));
        read HEAD, "/_component_template/{name}", (name) GetComponentTemplates => templates::exists(api, request, Component, name);
        change POST PUT, "/_component_template/{name}", (name) PutComponentTemplates => templates::put(api, request, Component, name).await;
        change DELETE, "/_component_template/{name}", (name) DeleteComponentTemplates => templates::delete(api, request, Component, name).await;
    }
}
