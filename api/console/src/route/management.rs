//! The management of pipelines, on its own listener.

use super::{Route, routes};
use crate::pipelines::{Management, how, stats};

pub(super) fn routes() -> Vec<Route<Management>> {
    routes! { |management: Management, api, request|
        read GET HEAD, "/", () Main => management.info(api, request);
        read GET HEAD, "/_node", () Main => management.info(api, request);
        read GET HEAD, "/_node/pipelines", () GetPipelines => management.list(api, request, how);
        read GET HEAD, "/_node/pipelines/{name}", (name) GetPipelines => management.get(api, request, name, how);
        change PUT, "/_node/pipelines/{name}", (name) PutPipelines => management.change(api, request, name).await;
        read GET HEAD, "/_node/stats/pipelines", () GetPipelines => management.list(api, request, stats);
        read GET HEAD, "/_node/stats/pipelines/{name}", (name) GetPipelines => management.get(api, request, name, stats);
        read GET HEAD, "/_node/dead_letters", () GetDeadLetters => management.dead_letters(request).await;
        change POST, "/_node/dead_letters/_replay", () PutDeadLetters => management.replay(request).await;
    }
}
