//! Users, roles, role mappings, API keys and logins over HTTP.
//!
//! There is one store, [`Accounts`](millrace_accounts::Accounts), and two ways to write what is in it: Elasticsearch's under
//! `_security` and OpenSearch's under `_plugins/_security` ([`opensearch`]); `_service` has logins and what goes with them
//! ([`login`]). What one way has no words for stays as it was when something is replaced by it: backend roles and attributes of
//! a user are OpenSearch's, its metadata and full name Elasticsearch's.
//!
//! Whoever may change users, roles or mappings can have every right, by giving it to itself: the action
//! [`Action::PutSecurity`] is that of an administrator. What is built in cannot be changed even so.
//!
//! - [`users`], [`roles`], [`mappings`], [`api_keys`], [`privileges`]: Elasticsearch's forms, each its own file
//! - [`form`], [`listing`]: bodies, read strictly and written within bounds
//! - [`patch`]: changes of parts, for OpenSearch's
//! - [`query`]: what queries of roles may be

mod api_keys;
mod form;
mod listing;
mod login;
mod mappings;
mod opensearch;
mod patch;
mod privileges;
mod query;
mod roles;
mod users;

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use millrace_storage::Principal;
use millrace_storage::access::{Action, ActionSet, Caller, Privileges};

pub use query::Meaning;

use crate::error::Error;
use crate::http::{Request, Response};
use crate::{Api, Asker};

type Handler = for<'a> fn(&'a Api, &'a mut Request, &'a Captured) -> BoxFuture<'a, Result<Response, Error>>;

/// What stands in a path for parameters, by their names.
type Captured = Vec<(&'static str, String)>;

/// Returns what stands for a parameter of the route's path.
fn get<'a>(captured: &'a Captured, name: &str) -> &'a str {
    captured.iter().find(|(known, _)| *known == name).map_or("", |(_, segment)| segment)
}

/// A route of this room.
struct Route {
    /// Whether it is open to who shows no credentials.
    open: bool,
    methods: &'static [Method],
    path: &'static str,
    action: Action,
    handler: Handler,
}

/// Lists routes, one a line: `read`, `change`, or `open` for those that need no credentials; methods, path, the parameters of
/// the path that the handler takes, in their order; action, handler.
macro_rules! routes {
    (@open open) => { true };
    (@open $kind:ident) => { false };
    (|$api:ident, $request:ident|
        $($kind:ident $($method:ident)+, $path:literal, ($($taken:ident),*) $action:ident => $answer:expr;)*) => {
        &[$({
            fn handler<'a>(
                $api: &'a Api,
                $request: &'a mut Request,
                captured: &'a Captured,
            ) -> BoxFuture<'a, Result<Response, Error>> {
                Box::pin(async move {
                    // Not every handler needs all.
                    let _ = (&$api, &captured);
                    $(let $taken = get(captured, stringify!($taken));)*
                    $answer
                })
            }
            Route {
                open: routes!(@open $kind),
                methods: &[$(Method::$method),+],
                path: $path,
                action: Action::$action,
                handler,
            }
        }),*]
    };
}

/// Words come before parameters that would take them.
const ROUTES: &[Route] = routes! { |api, request|
    open PUT POST, "/_service/login", () Own => login::login(api, request).await;
    change DELETE, "/_service/login", () Own => login::logout(api, request).await;
    change PUT POST, "/_service/accounts", () PutSecurity => login::put_account(api, request).await;
    change PUT POST, "/_service/user/password", () Own => login::put_password(api, request).await;
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
};

impl Route {
    /// Returns what stands for the parameters of its path; `None` where it has another path.
    fn captures(&self, path: &[String]) -> Option<Captured> {
        let segments = self.path.split('/').skip(1);
        if segments.clone().count() != path.len() {
            return None;
        }
        let mut captured = Vec::new();
        for (word, segment) in segments.zip(path) {
            match word {
                // Kinds are words of OpenSearch's that share their handlers.
                "{kind}" if opensearch::Kind::of(segment).is_none() => return None,
                _ if word.starts_with('{') => {
                    captured.push((word.trim_matches(['{', '}']), segment.clone()));
                }
                _ if word.split('|').any(|word| word == segment) => {}
                _ => return None,
            }
        }
        Some(captured)
    }
}

/// Finds and runs the handler of a request; `None` where the path is none of these. `uri` is the request's own spelling.
pub(crate) async fn route(api: &Api, request: &mut Request, uri: &str) -> Option<Result<Response, Error>> {
    let first = request.path.first()?;
    if !matches!(first.as_str(), "_service" | "_security" | "_plugins" | "_opendistro") {
        return None;
    }
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(captured) = route.captures(&request.path) else { continue };
        if !route.methods.contains(&request.method) {
            allowed.extend_from_slice(route.methods);
            continue;
        }
        let doing = match api.doing(route.action) {
            Ok(doing) => doing,
            Err(error) => return Some(Err(error)),
        };
        return Some((route.handler)(&doing, request, &captured).await);
    }
    if allowed.is_empty() {
        return None;
    }
    if request.method == Method::OPTIONS {
        let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(",");
        let mut response = Response::empty(200);
        response.headers.push(("allow", list));
        return Some(Ok(response));
    }
    Some(Err(Error::method_not_allowed(uri, &request.method, &allowed)))
}

/// Whether a request needs no credentials.
pub(crate) fn is_open(method: &Method, path: &str) -> bool {
    let is_path = |route: &&Route| {
        // As paths are split elsewhere.
        route.path.split('/').skip(1).eq(path.split('/').filter(|segment| !segment.is_empty()))
    };
    ROUTES.iter().filter(|route| route.open && route.methods.contains(method)).any(|route| is_path(&route))
}

/// Makes whoever shows no credentials: it may do nothing but what is open.
pub(crate) fn anybody(address: IpAddr) -> Asker {
    let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
    let principal = Principal::new(Caller::User("_anonymous".into()), Vec::new(), nothing);
    Asker { principal, scheme: None, token: None, address }
}

/// Makes an asker that may do everything, of one who may by its roles: the routes elsewhere do not say which action they are.
///
/// # Errors
/// 403 for who may not.
pub(crate) fn everything(asker: Asker, path: &[String]) -> Result<Asker, Error> {
    let mut segments = path.iter().map(String::as_str);
    let is_here = match segments.next() {
        Some("_service" | "_security") => true,
        Some("_plugins" | "_opendistro") => segments.next() == Some("_security"),
        _ => false,
    };
    if is_here {
        return Ok(asker);
    }
    let caller = asker.principal.caller().clone();
    let roles = asker.principal.roles();
    if !roles.iter().any(|role| ["admin", "superuser", "all_access"].contains(&role.as_str())) {
        return Err(Error::new(403, "security_exception", format!("{caller} has not the role [admin]")));
    }
    let principal = Principal::new(caller, roles, Arc::new(Privileges::unrestricted()));
    Ok(Asker { principal, ..asker })
}

impl Api {
    /// Returns the same for another action of the same caller.
    ///
    /// # Errors
    /// 403 where that is not allowed.
    pub(crate) fn doing(&self, action: Action) -> Result<Self, Error> {
        Ok(Self {
            session: self.session.doing(action)?,
            search: Arc::clone(&self.search),
            identity: Arc::clone(&self.identity),
            accounts: self.accounts.clone(),
            scheme: self.scheme,
            token: self.token.clone(),
            address: self.address,
            tls: self.tls.clone(),
            changing: Arc::clone(&self.changing),
        })
    }

    /// Returns the user who asks; `None` for an API key.
    fn user(&self) -> Option<&str> {
        match self.session.principal().caller() {
            Caller::User(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the caller is allowed an action of the cluster's.
    fn may(&self, action: Action) -> bool {
        self.session.principal().privileges().allows(action)
    }

    /// Refuses what the caller is not allowed.
    fn need(&self, action: Action) -> Result<(), Error> {
        self.session.doing(action).map(drop).map_err(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_login_is_open() {
        for (method, path, open) in [
            (Method::PUT, "/_service/login", true),
            (Method::POST, "//_service/login/", true),
            (Method::DELETE, "/_service/login", false),
            (Method::PUT, "/_service/login/x", false),
            (Method::PUT, "/_service/accounts", false),
            (Method::PUT, "/_service/%6cogin", false),
        ] {
            assert_eq!(is_open(&method, path), open, "{method} {path}");
        }
        assert_eq!(ROUTES.iter().filter(|route| route.open).count(), 1);
    }

    #[test]
    fn words_come_before_parameters() {
        let of = |path: &str| {
            let path = crate::http::path::segments(path).unwrap();
            let found = ROUTES.iter().find_map(|route| Some((route.path, route.captures(&path)?)));
            found.map(|(route, captured)| {
                let captured: Vec<String> = captured.into_iter().map(|(_, segment)| segment).collect();
                format!("{route} {}", captured.join(","))
            })
        };
        for (path, expected) in [
            ("/_security/user/_privileges", Some("/_security/user/_privileges ")),
            ("/_security/user/ann", Some("/_security/user/{names} ann")),
            ("/_security/user/_password", Some("/_security/user/_password ")),
            (
                "/_opendistro/_security/api/roles/a%2Fb",
                Some("/_plugins|_opendistro/_security/api/{kind}/{name} roles,a/b"),
            ),
            ("/_plugins/_security/api/tenants", None),
            ("/_security/user/ann/x", None),
        ] {
            assert_eq!(of(path).as_deref(), expected, "{path}");
        }
    }
}
