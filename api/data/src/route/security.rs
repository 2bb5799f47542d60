//! Users, roles, role mappings, API keys and logins.

use super::{DataApi, Route, routes};
use crate::admin::license;
use crate::security::{api_keys, login, mappings, opensearch, privileges, roles, users};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |_served: DataApi, api, request|
        open PUT POST, "/_service/login", () Own => login::login(api, request).await;
        change DELETE, "/_service/login", () Own => login::logout(api, request).await;
        change PUT POST, "/_service/accounts", () PutSecurity => login::put_account(api, request).await;
        change PUT POST, "/_service/user/password", () Own => login::put_password(api, request).await;
        read GET, "/_service/license", () GetLicense => license::get(api, request);
        change POST, "/_service/license", () PutLicense => license::install(api, request).await;
        change POST, "/_service/license/reload", () PutLicense => license::reload(api, request).await;
        read GET, "/_license", () GetLicense => license::basic(api, request);
        read GET, "/_xpack", () GetLicense => license::xpack(api, request);
        change POST, "/_service/auth/reload", () PutSecurity => login::reload(api, request).await;

        read GET, "/_security/_authenticate", () Own => users::authenticate(api, request).await;
        read GET, "/_security/user/_privileges", () Own => privileges::of_caller(api, request).await;
        read GET POST, "/_security/user/_has_privileges", () Own => privileges::has(api, request, None).await;
        read GET POST, "/_security/_has_privileges", () Own => privileges::has(api, request, None).await;
        read GET POST, "/_security/user/{name}/_has_privileges", (name) Own => privileges::has(api, request, Some(name)).await;
        read GET, "/_security/privilege/_builtin", () Own => privileges::builtin(request).await;

        change PUT POST, "/_security/user/_password", () Own => users::put_password(api, request, None).await;
        change PUT POST, "/_security/user/{name}/_password", (name) Own => users::put_password(api, request, Some(name)).await;
        change PUT POST, "/_security/user/{name}/_enable", (name) PutSecurity => users::enable(api, request, name, true).await;
        change PUT POST, "/_security/user/{name}/_disable", (name) PutSecurity => users::enable(api, request, name, false).await;
        read GET, "/_security/user", () GetSecurity => users::get(api, request, None).await;
        read GET, "/_security/user/{names}", (names) GetSecurity => users::get(api, request, Some(names)).await;
        change PUT POST, "/_security/user/{name}", (name) PutSecurity => users::put(api, request, name).await;
        change DELETE, "/_security/user/{name}", (name) PutSecurity => users::delete(api, request, name).await;

        read GET, "/_security/role", () GetSecurity => roles::get(api, request, None).await;
        read GET, "/_security/role/{names}", (names) GetSecurity => roles::get(api, request, Some(names)).await;
        change PUT POST, "/_security/role/{name}", (name) PutSecurity => roles::put(api, request, name).await;
        change DELETE, "/_security/role/{name}", (name) PutSecurity => roles::delete(api, request, name).await;

        read GET, "/_security/role_mapping", () GetSecurity => mappings::get(api, request, None).await;
        read GET, "/_security/role_mapping/{names}", (names) GetSecurity => mappings::get(api, request, Some(names)).await;
        change PUT POST, "/_security/role_mapping/{name}", (name) PutSecurity => mappings::put(api, request, name).await;
        change DELETE, "/_security/role_mapping/{name}", (name) PutSecurity => mappings::delete(api, request, name).await;

        change PUT POST, "/_security/api_key", () CreateApiKey => api_keys::create(api, request).await;
        read GET, "/_security/api_key", () GetOwnApiKeys => api_keys::get(api, request).await;
        change DELETE, "/_security/api_key", () InvalidateOwnApiKeys => api_keys::invalidate(api, request).await;
        change PUT POST, "/_security/api_key/{id}", (id) CreateApiKey => api_keys::update(api, request, id).await;
        read GET POST, "/_security/_query/api_key", () GetOwnApiKeys => api_keys::query(api, request).await;

        read GET, "/_plugins|_opendistro/_security/health", () Own => opensearch::health(request).await;
        read GET, "/_plugins|_opendistro/_security/authinfo", () Own => opensearch::authinfo(api, request).await;
        read GET, "/_plugins|_opendistro/_security/api/account", () Own => opensearch::account(api, request).await;
        change PUT, "/_plugins|_opendistro/_security/api/account", () Own => opensearch::put_account(api, request).await;
        change DELETE, "/_plugins|_opendistro/_security/api/cache", () PutSecurity => opensearch::flush_cache(api, request).await;
        read GET, "/_plugins|_opendistro/_security/api/actiongroups", () GetSecurity => opensearch::action_groups(request, None).await;
        read GET, "/_plugins|_opendistro/_security/api/actiongroups/{name}", (name) GetSecurity => opensearch::action_groups(request, Some(name)).await;
        read GET, "/_plugins|_opendistro/_security/api/{kind}", (kind) GetSecurity => opensearch::get(api, request, kind, None).await;
        read GET, "/_plugins|_opendistro/_security/api/{kind}/{name}", (kind, name) GetSecurity => opensearch::get(api, request, kind, Some(name)).await;
        change PUT, "/_plugins|_opendistro/_security/api/{kind}/{name}", (kind, name) PutSecurity => opensearch::put(api, request, kind, name).await;
        change DELETE, "/_plugins|_opendistro/_security/api/{kind}/{name}", (kind, name) PutSecurity => opensearch::delete(api, request, kind, name).await;
        change PATCH, "/_plugins|_opendistro/_security/api/{kind}", (kind) PutSecurity => opensearch::patch(api, request, kind, None).await;
        change PATCH, "/_plugins|_opendistro/_security/api/{kind}/{name}", (kind, name) PutSecurity => opensearch::patch(api, request, kind, Some(name)).await;
    }
}
