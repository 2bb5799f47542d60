//! Searches, points in time, scrolls and statements.

use super::{Route, routes};
use crate::http::{Request, Response};
use crate::search::{self, Endpoint, run};
use crate::sql::{self, StatementAction};
use crate::{Api, Error};

/// Continues or closes the scroll of the path, if it names one.
async fn scroll(
    api: &Api,
    request: &mut Request,
    id: Option<&str>,
    endpoint: Endpoint,
) -> Result<Response, Error> {
    if let Some(id) = id {
        request.params.set("scroll_id", id);
    }
    run(api, request, endpoint, "").await
}

pub(super) fn routes() -> Vec<Route<()>> {
    use Endpoint::{
        AllPointsInTime, ClearScroll, ClosePointsInTime, Count, DeleteByQuery, FieldCaps, MultiSearch,
        OpenPointInTime, Scroll, Search, ValidateQuery,
    };
    routes! { |_served: (), api, request|
        read GET POST, "/_search", () Search => run(api, request, Search, "").await;
        read GET POST, "/{index}/_search", (index) Search => run(api, request, Search, index).await;
        read GET POST, "/{index}/{any_type}/_search", (index) Search => run(api, request, Search, index).await;
        read GET POST, "/_count", () Search => run(api, request, Count, "").await;
        read GET POST, "/{index}/_count", (index) Search => run(api, request, Count, index).await;
        read GET POST, "/{index}/{any_type}/_count", (index) Search => run(api, request, Count, index).await;
        read GET POST, "/_msearch", () MultiSearch => run(api, request, MultiSearch, "").await;
        read GET POST, "/{index}/_msearch", (index) MultiSearch => run(api, request, MultiSearch, index).await;
        read GET POST, "/{index}/{any_type}/_msearch", (index) MultiSearch => run(api, request, MultiSearch, index).await;
        read GET POST, "/_field_caps", () FieldCaps => run(api, request, FieldCaps, "").await;
        read GET POST, "/{index}/_field_caps", (index) FieldCaps => run(api, request, FieldCaps, index).await;
        read GET POST, "/_validate/query", () ValidateQuery => run(api, request, ValidateQuery, "").await;
        read GET POST, "/{index}/_validate/query", (index) ValidateQuery => run(api, request, ValidateQuery, index).await;
        read GET POST, "/{index}/{any_type}/_validate/query", (index) ValidateQuery => run(api, request, ValidateQuery, index).await;
        read GET POST, "/{index}/_explain/{id}", (index, id) Explain => search::explain(api, request, index, None, id).await;
        read GET POST, "/{index}/_doc/{id}/_explain", (index, id) Explain => search::explain(api, request, index, None, id).await;
        read GET POST, "/{index}/{any_type}/{id}/_explain", (index, any_type, id) Explain => search::explain(api, request, index, Some(any_type), id).await;
        change POST, "/{index}/_delete_by_query", (index) DeleteByQuery => run(api, request, DeleteByQuery, index).await;
        change POST, "/{index}/{any_type}/_delete_by_query", (index) DeleteByQuery => run(api, request, DeleteByQuery, index).await;

        change POST, "/{index}/_search/point_in_time", (index) OpenPointInTime => run(api, request, OpenPointInTime, index).await;
        change DELETE, "/_search/point_in_time", () ClosePointInTime => run(api, request, ClosePointsInTime, "").await;
        read GET, "/_search/point_in_time/_all", () AllPointsInTime => run(api, request, AllPointsInTime, "").await;
        change DELETE, "/_search/point_in_time/_all", () AllPointsInTime => run(api, request, AllPointsInTime, "").await;
        read GET, "/_search/scroll", () Scroll => scroll(api, request, None, Scroll).await;
        change POST, "/_search/scroll", () Scroll => scroll(api, request, None, Scroll).await;
        change DELETE, "/_search/scroll", () Scroll => scroll(api, request, None, ClearScroll).await;
        read GET, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => scroll(api, request, Some(scroll_id), Scroll).await;
        change POST, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => scroll(api, request, Some(scroll_id), Scroll).await;
        change DELETE, "/_search/scroll/{scroll_id}", (scroll_id) Scroll => scroll(api, request, Some(scroll_id), ClearScroll).await;

        read POST, "/_plugins|_opendistro/_sql", () Sql => sql::run(api, request, StatementAction::Rows).await;
        read POST, "/_plugins|_opendistro/_sql/_explain", () Sql => sql::run(api, request, StatementAction::Explanation).await;
        change POST, "/_plugins|_opendistro/_sql/close", () SqlCursor => sql::run(api, request, StatementAction::Close).await;
        read GET POST, "/_sql", () Sql => sql::run(api, request, StatementAction::ElasticsearchRows).await;
        read GET POST, "/_sql/translate", () Sql => sql::run(api, request, StatementAction::Translation).await;
        change POST, "/_sql/close", () SqlCursor => sql::run(api, request, StatementAction::ElasticsearchClose).await;
    }
}
