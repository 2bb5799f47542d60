//! Searches, points in time, scrolls and statements.

use super::{DataApi, Route, routes};
use crate::search;
use crate::sql::{self, StatementAction};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |_served: DataApi, api, request|
        read GET POST, "/_search", () Search => search::search(api, request, "").await;
        read GET POST, "/{index}/_search", (index) Search => search::search(api, request, index).await;
        read GET POST, "/{index}/{any_type}/_search", (index) Search => search::search(api, request, index).await;
        read GET POST, "/_count", () Search => search::count(api, request, "").await;
        read GET POST, "/{index}/_count", (index) Search => search::count(api, request, index).await;
        read GET POST, "/{index}/{any_type}/_count", (index) Search => search::count(api, request, index).await;
        read GET POST, "/_msearch", () MultiSearch => search::multi_search(api, request, "").await;
        read GET POST, "/{index}/_msearch", (index) MultiSearch => search::multi_search(api, request, index).await;
        read GET POST, "/{index}/{any_type}/_msearch", (index) MultiSearch => search::multi_search(api, request, index).await;
        read GET POST, "/_field_caps", () FieldCaps => search::field_caps(api, request, "").await;
        read GET POST, "/{index}/_field_caps", (index) FieldCaps => search::field_caps(api, request, index).await;
        read GET POST, "/_validate/query", () ValidateQuery => search::validate_query(api, request, "").await;
        read GET POST, "/{index}/_validate/query", (index) ValidateQuery => search::validate_query(api, request, index).await;
        read GET POST, "/{index}/{any_type}/_validate/query", (index) ValidateQuery => search::validate_query(api, request, index).await;
        read GET POST, "/{index}/_explain/{id}", (index, id) Explain => search::explain(api, request, index, None, id).await;
        read GET POST, "/{index}/_doc/{id}/_explain", (index, id) Explain => search::explain(api, request, index, None, id).await;
        read GET POST, "/{index}/{any_type}/{id}/_explain", (index, any_type, id) Explain => search::explain(api, request, index, Some(any_type), id).await;
        change POST, "/{index}/_delete_by_query", (index) DeleteByQuery => search::delete_by_query(api, request, index).await;
        change POST, "/{index}/{any_type}/_delete_by_query", (index) DeleteByQuery => search::delete_by_query(api, request, index).await;

        change POST, "/{index}/_search/point_in_time", (index) OpenPointInTime => search::open_point_in_time(api, request, index).await;
        change DELETE, "/_search/point_in_time", () ClosePointInTime => search::close_points_in_time(api, request, false).await;
        read GET, "/_search/point_in_time/_all", () AllPointsInTime => search::list_points_in_time(api, request).await;
        change DELETE, "/_search/point_in_time/_all", () AllPointsInTime => search::close_points_in_time(api, request, true).await;
        read GET, "/_search/scroll", () Scroll => search::scroll(api, request, None).await;
        change POST, "/_search/scroll", () Scroll => search::scroll(api, request, None).await;
        change DELETE, "/_search/scroll", () Scroll => search::clear_scroll(api, request, None).await;
        read GET, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => search::scroll(api, request, Some(scroll_id)).await;
        change POST, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => search::scroll(api, request, Some(scroll_id)).await;
        change DELETE, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => search::clear_scroll(api, request, Some(scroll_id)).await;

        read POST, "/_plugins|_opendistro/_sql", () Sql => sql::run(api, request, StatementAction::Rows).await;
        read POST, "/_plugins|_opendistro/_sql/_explain", () Sql => sql::run(api, request, StatementAction::Explanation).await;
        change POST, "/_plugins|_opendistro/_sql/close", () SqlCursor => sql::run(api, request, StatementAction::Close).await;
        read POST, "/_plugins|_opendistro/_ppl", () Sql => sql::run(api, request, StatementAction::PipelineRows).await;
        read POST, "/_plugins|_opendistro/_ppl/_explain", () Sql => sql::run(api, request, StatementAction::PipelineExplanation).await;
        read GET, "/_plugins|_opendistro/_ppl/stats", () NodesStats => { request.finish()?; Ok(sql::pipeline_stats(api)) };
        read GET, "/_plugins|_opendistro/_ppl/_grammar", () NodesStats => { request.finish()?; Err(sql::no_grammar()) };
        read GET POST, "/_sql", () Sql => sql::run(api, request, StatementAction::ElasticsearchRows).await;
        read GET POST, "/_sql/translate", () Sql => sql::run(api, request, StatementAction::Translation).await;
        change POST, "/_sql/close", () SqlCursor => sql::run(api, request, StatementAction::ElasticsearchClose).await;
    }
}
