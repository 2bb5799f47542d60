//! The console: saved objects, dashboards as files, alert rules, AI rules.

use millrace_saved_objects::{self as saved_objects, dashboards};

use super::{Route, routes};
use crate::{Console, ai, alert_plot, alerts, notifications};

pub(super) fn routes() -> Vec<Route<Console>> {
    routes! { |console: Console, api, request|
        read GET, "/api/saved_objects/_find", () GetSavedObjects => saved_objects::find(&console.objects, request).await;
        change POST, "/api/saved_objects/_bulk_create", () PutSavedObjects => saved_objects::bulk_create(&console.objects, request).await;
        run POST, "/api/saved_objects/_bulk_get", () GetSavedObjects => saved_objects::bulk_get(&console.objects, request).await;
        change POST, "/api/saved_objects/{name}", (name) PutSavedObjects => saved_objects::create(&console.objects, request, name, None).await;
        change POST, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::create(&console.objects, request, name, Some(id)).await;
        read GET HEAD, "/api/saved_objects/{name}/{id}", (name, id) GetSavedObjects => saved_objects::get(&console.objects, request, name, id).await;
        change PUT, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::update(&console.objects, request, name, id).await;
        change DELETE, "/api/saved_objects/{name}/{id}", (name, id) PutSavedObjects => saved_objects::delete(&console.objects, request, name, id).await;
        change POST, "/api/console-app/dashboards/import", () PutSavedObjects => dashboards::import(&console.objects, request).await;
        run GET, "/api/console-app/dashboards/export", () GetSavedObjects => dashboards::export(&console.objects, request).await;
        read GET, "/api/alert/list", () GetAlerts => alerts::list(console, api, request);
        read GET, "/api/alert/show/{id}", (id) GetAlerts => alerts::show(console, api, request, id);
        change POST, "/api/alert/change", () PutAlerts => alerts::change(console, api, request).await;
        change DELETE, "/api/alert/delete/{id}", (id) PutAlerts => alerts::delete(console, api, request, id).await;
        change POST, "/api/alert/enable/{id}", (id) PutAlerts => alerts::enable(console, api, request, id, true).await;
        change POST, "/api/alert/disable/{id}", (id) PutAlerts => alerts::enable(console, api, request, id, false).await;
        change POST, "/api/alert/silence/{id}", (id) PutAlerts => alerts::silence(console, api, request, id).await;
        change GET, "/api/alert/run/{id}", (id) PutAlerts => alerts::run(console, api, request, id).await;
        run POST, "/api/alert/test", () GetAlerts => alerts::test(console, api, request).await;
        change POST, "/api/alert/status/{id}", (id) PutAlerts => notifications::status(console, api, request, id).await;
        change POST, "/api/alert/notify-test", () PutAlerts => notifications::test(console, api, request).await;
        read GET, "/api/alert/secret", () PutAlerts => notifications::secrets(console, request).await;
        change PUT, "/api/alert/secret/{name}", (name) PutAlerts => notifications::put_secret(console, api, request, name).await;
        change DELETE, "/api/alert/secret/{name}", (name) PutAlerts => notifications::delete_secret(console, request, name).await;
        read GET, "/api/alert/plot/{id}", (id) GetAlerts => alert_plot::plot(console, api, request, id).await;
        read GET, "/api/ai/list", () GetIntelligence => ai::list(console, api, request);
        read GET, "/api/ai/show/{id}", (id) GetIntelligence => ai::show(console, api, request, id);
        read GET, "/api/ai/plot/{id}", (id) GetIntelligence => ai::plot(console, api, request, id).await;
        read GET, "/api/ai/templates/{id}", (id) GetIntelligence => ai::templates(console, api, request, id).await;
        change PUT, "/api/ai/create", () PutIntelligence => ai::create(console, api, request).await;
        change POST, "/api/ai/update/{id}", (id) PutIntelligence => ai::update(console, api, request, id).await;
        change POST, "/api/ai/change", () PutIntelligence => ai::change(console, api, request).await;
        change DELETE, "/api/ai/delete/{id}", (id) PutIntelligence => ai::delete(console, api, request, id).await;
        change GET, "/api/ai/run/{id}", (id) GetIntelligence => ai::run(console, api, request, id).await;
    }
}
