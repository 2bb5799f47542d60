//! The console: saved objects, and dashboards as files.

use super::{Route, routes};
use crate::console::{dashboards, saved_objects};

pub(super) fn routes() -> Vec<Route<()>> {
    routes! { |_served: (), api, request|
        read GET, "/api/saved_objects/_find", () GetSavedObjects => saved_objects::find(api, request).await;
        change POST, "/api/saved_objects/_bulk_create", () PutSavedObjects => saved_objects::bulk_create(api, request).await;
        run POST, "/api/saved_objects/_bulk_get", () GetSavedObjects => saved_objects::bulk_get(api, request).await;
        change POST, "/api/saved_objects/{name}", (name) PutSavedObjects => saved_objects::create(api, request, name, None).await;
        change POST, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::create(api, request, name, Some(id)).await;
        read GET HEAD, "/api/saved_objects/{name}/{id}", (name, id) GetSavedObjects => saved_objects::get(api, request, name, id).await;
        change PUT, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::update(api, request, name, id).await;
        change DELETE, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::delete(api, request, name, id).await;
        change POST, "/api/console-app/dashboards/import", () PutSavedObjects => dashboards::import(api, request).await;
        run GET, "/api/console-app/dashboards/export", () GetSavedObjects => dashboards::export(api, request).await;
    }
}
