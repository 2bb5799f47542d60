//! Indices: their description, settings, mappings and aliases, and their maintenance.

use millrace_catalog::metadata::ResizeKind::{Clone, Shrink, Split};

use super::{DataApi, Route, RouteCondition, routes};
use crate::admin::{
    aliases, analyze, data_streams, field_mapping, indices, maintenance, mappings, resize, rollover,
    segments, settings, stats,
};
use crate::error::Error;

/// Documents of `_doc` may have the id `_mapping`; a mapping of types is asked for with this parameter.
const TYPED: RouteCondition = RouteCondition {
    words: "?include_type_name",
    holds: |_, params| params.peek("include_type_name").is_some(),
};
const OF_INDEX: RouteCondition =
    RouteCondition { words: "?index", holds: |_, params| params.peek("index").is_some() };

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |_served: DataApi, api, request|
        change PUT, "/{index}", (index) CreateIndex => indices::create_index(api, request, index).await;
        change DELETE, "/{index}", (index) DeleteIndex => indices::delete_index(api, request, index).await;
        read GET, "/{index}", (index) GetIndex => indices::get_index(api, request, index);
        read HEAD, "/{index}", (index) GetIndex => indices::exists(api, request, index);
        read GET, "/_resolve/index/{expression}", (expression) ResolveIndex => indices::resolve(api, request, expression);
        change POST, "/_open", () OpenIndex => Err(Error::validation(&["index is missing"]));
        change POST, "/_close", () CloseIndex => Err(Error::validation(&["index is missing"]));
        change POST, "/{index}/_open", (index) OpenIndex => indices::open(api, request, index).await;
        change POST, "/{index}/_close", (index) CloseIndex => indices::close(api, request, index).await;

        change POST, "/_aliases", () PutAliases => aliases::update(api, request).await;
        read GET, "/_alias|_aliases", () GetAliases => aliases::get(api, request, None, None);
        read HEAD, "/_alias|_aliases", () GetAliases => aliases::exists(api, request, None, None);
        change POST, "/_alias", () PutAliases => aliases::put(api, request, None, None).await;
        change PUT, "/_alias|_aliases", () PutAliases => aliases::put(api, request, None, None).await;
        read GET, "/_alias|_aliases/{name}", (name) GetAliases => aliases::get(api, request, None, Some(name));
        read HEAD, "/_alias|_aliases/{name}", (name) GetAliases => aliases::exists(api, request, None, Some(name));
        change POST PUT, "/_alias|_aliases/{name}", (name) PutAliases => aliases::put(api, request, None, Some(name)).await;
        read GET, "/{index}/_alias|_aliases", (index) GetAliases => aliases::get(api, request, Some(index), None);
        read HEAD, "/{index}/_alias|_aliases", (index) GetAliases => aliases::exists(api, request, Some(index), None);
        change POST PUT, "/{index}/_alias|_aliases", (index) PutAliases => aliases::put(api, request, Some(index), None).await;
        read GET, "/{index}/_alias|_aliases/{name}", (index, name) GetAliases => aliases::get(api, request, Some(index), Some(name));
        read HEAD, "/{index}/_alias|_aliases/{name}", (index, name) GetAliases => aliases::exists(api, request, Some(index), Some(name));
        change POST PUT, "/{index}/_alias|_aliases/{name}", (index, name) PutAliases => aliases::put(api, request, Some(index), Some(name)).await;
        change DELETE, "/{index}/_alias|_aliases/{name}", (index, name) PutAliases => aliases::delete(api, request, index, name).await;

        read GET, "/_settings", () GetSettings => settings::get(api, request, "_all", None);
        change PUT, "/_settings", () PutSettings => settings::put(api, request, "_all").await;
        read GET, "/_settings/{name}", (name) GetSettings => settings::get(api, request, "_all", Some(name));
        read GET, "/{index}/_settings|_setting", (index) GetSettings => settings::get(api, request, index, None);
        change PUT, "/{index}/_settings|_setting", (index) PutSettings => settings::put(api, request, index).await;
        read GET, "/{index}/_settings|_setting/{name}", (index, name) GetSettings => settings::get(api, request, index, Some(name));

        read GET, "/_mapping|_mappings", () GetMappings => mappings::get(api, request, "_all", None);
        read GET, "/_mapping|_mappings/{types}", (types) GetMappings => mappings::get(api, request, "_all", Some(types));
        change POST PUT, "/_mapping|_mappings/{types}", (types) PutMapping => mappings::put(api, request, "_all", Some(types)).await;
        read GET, "/{index}/_mapping|_mappings", (index) GetMappings => mappings::get(api, request, index, None);
        read HEAD, "/{index}/_mapping|_mappings", (index) GetMappings => mappings::exists(api, request, index, None);
        change POST PUT, "/{index}/_mapping|_mappings", (index) PutMapping => mappings::put(api, request, index, None).await;
        read GET, "/{index}/_mapping|_mappings/{types}", (index, types) GetMappings => mappings::get(api, request, index, Some(types));
        read HEAD, "/{index}/_mapping|_mappings/{types}", (index, types) GetMappings => mappings::exists(api, request, index, Some(types));
        change POST PUT, "/{index}/_mapping|_mappings/{types}", (index, types) PutMapping => mappings::put(api, request, index, Some(types)).await;
        read GET, "/{index}/_doc/_mapping|_mappings", (index) GetMappings if TYPED => mappings::get(api, request, index, Some("_doc"));
        read HEAD, "/{index}/_doc/_mapping|_mappings", (index) GetMappings if TYPED => mappings::exists(api, request, index, Some("_doc"));
        change POST PUT, "/{index}/_doc/_mapping|_mappings", (index) PutMapping if TYPED => mappings::put(api, request, index, Some("_doc")).await;
        read GET, "/{index}/{any_type}/_mapping|_mappings", (index, any_type) GetMappings => mappings::get(api, request, index, Some(any_type));
        read HEAD, "/{index}/{any_type}/_mapping|_mappings", (index, any_type) GetMappings => mappings::exists(api, request, index, Some(any_type));
        change POST PUT, "/{index}/{any_type}/_mapping|_mappings", (index, any_type) PutMapping => mappings::put(api, request, index, Some(any_type)).await;
        read GET, "/_mapping|_mappings/field/{fields}", (fields) GetFieldMappings => field_mapping::get(api, request, "_all", None, fields);
        read GET, "/_mapping|_mappings/{types}/field/{fields}", (types, fields) GetFieldMappings => field_mapping::get(api, request, "_all", Some(types), fields);
        read GET, "/{index}/_mapping|_mappings/field/{fields}", (index, fields) GetFieldMappings => field_mapping::get(api, request, index, None, fields);
        read GET, "/{index}/_mapping|_mappings/{types}/field/{fields}", (index, types, fields) GetFieldMappings => field_mapping::get(api, request, index, Some(types), fields);

        read GET POST, "/_analyze", () Analyze if OF_INDEX => analyze::analyze(api, request, None).await;
        read GET POST, "/_analyze", () AnalyzeText => analyze::analyze(api, request, None).await;
        read GET POST, "/{index}/_analyze", (index) Analyze => analyze::analyze(api, request, Some(index)).await;

        change GET POST, "/_refresh", () Refresh => maintenance::refresh(api, request, "_all").await;
        change GET POST, "/{index}/_refresh", (index) Refresh => maintenance::refresh(api, request, index).await;
        change GET POST, "/_flush", () Flush => maintenance::flush(api, request, "_all").await;
        change GET POST, "/{index}/_flush", (index) Flush => maintenance::flush(api, request, index).await;
        change GET POST, "/_flush/synced", () Flush => maintenance::synced_flush(api, request, "_all").await;
        change GET POST, "/{index}/_flush/synced", (index) Flush => maintenance::synced_flush(api, request, index).await;
        change POST, "/_forcemerge", () ForceMerge => maintenance::force_merge(api, request, "_all").await;
        change POST, "/{index}/_rollover", (index) Rollover => rollover::roll_over(api, request, index, None).await;
        change POST, "/{index}/_rollover/{new_index}", (index, new_index) Rollover => rollover::roll_over(api, request, index, Some(new_index)).await;
        change POST PUT, "/{index}/_shrink/{target}", (index, target) Resize => resize::resize(api, request, Shrink, (index, target)).await;
        change POST PUT, "/{index}/_split/{target}", (index, target) Resize => resize::resize(api, request, Split, (index, target)).await;
        change POST PUT, "/{index}/_clone/{target}", (index, target) Resize => resize::resize(api, request, Clone, (index, target)).await;
        change POST, "/{index}/_forcemerge", (index) ForceMerge => maintenance::force_merge(api, request, index).await;
        change POST, "/_cache/clear", () ClearCache => maintenance::clear_cache(api, request, "_all");
        change POST, "/{index}/_cache/clear", (index) ClearCache => maintenance::clear_cache(api, request, index);

        change PUT, "/_data_stream/{name}", (name) CreateDataStream => data_streams::create(api, request, name).await;
        change DELETE, "/_data_stream/{name}", (name) DeleteDataStream => data_streams::delete(api, request, name).await;
        read GET, "/_data_stream", () GetDataStreams => data_streams::get(api, request, None);
        read GET, "/_data_stream/{name}", (name) GetDataStreams => data_streams::get(api, request, Some(name));
        read GET, "/_data_stream/_stats", () DataStreamStats => data_streams::statistics(api, request, None).await;
        read GET, "/_data_stream/{name}/_stats", (name) DataStreamStats => data_streams::statistics(api, request, Some(name)).await;

        read GET, "/_segments", () Segments => segments::get(api, request, "_all");
        read GET, "/{index}/_segments", (index) Segments => segments::get(api, request, index);
        read GET, "/_stats", () IndexStats => stats::get(api, request, "_all", None);
        read GET, "/_stats/{metrics}", (metrics) IndexStats => stats::get(api, request, "_all", Some(metrics));
        read GET, "/{index}/_stats", (index) IndexStats => stats::get(api, request, index, None);
        read GET, "/{index}/_stats/{metrics}", (index, metrics) IndexStats => stats::get(api, request, index, Some(metrics));
    }
}
