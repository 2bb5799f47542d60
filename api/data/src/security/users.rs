//! Users in Elasticsearch's form, and who asks.

use std::sync::Arc;

use millrace_accounts::{Account, Edit, Scheme, User};
use millrace_catalog::access::{Action, Caller};
use serde_json::{Map, Value, json};

use super::SecurityCaller;
use super::form::BodyMembers;
use crate::Api;
use crate::error::Error;
use crate::http::listing::members;
use crate::http::{Request, Response};

/// Takes the parameter by which writers say when others are to see it: that is at once here.
pub(crate) fn take_refresh(request: &mut Request) -> Result<(), Error> {
    match request.params.take("refresh").as_deref() {
        None | Some("" | "true" | "false" | "wait_for") => Ok(()),
        Some(other) => Err(Error::illegal_argument(format!("unknown value for refresh [{other}]"))),
    }
}

/// Splits the names that a path has.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|name| !name.is_empty())
}

fn write(account: &Account) -> Value {
    let User { roles, email, full_name, metadata, enabled, .. } = &account.user;
    let mut metadata = metadata.clone();
    if account.is_reserved() {
        metadata.insert("_reserved".to_owned(), json!(true));
    }
    json!({
        "username": &*account.name,
        "roles": roles,
        "full_name": full_name,
        "email": email,
        "metadata": metadata,
        "enabled": enabled,
    })
}

/// Lists users, all or those of the path.
pub(crate) async fn get(api: &Api, request: &mut Request, asked: Option<&str>) -> Result<Response, Error> {
    if request.params.take_bool("with_profile_uid")? == Some(true) {
        return Err(Error::illegal_argument("[with_profile_uid] is not available on this server"));
    }
    request.finish()?;
    let found: Vec<Arc<Account>> = match asked {
        None => api.accounts.users(),
        Some(asked) => names(asked).filter_map(|name| api.accounts.user(name)).collect(),
    };
    let status = if asked.is_some() && found.is_empty() { 404 } else { 200 };
    let users = members(&request.allowance, &found, |account| (Arc::clone(&account.name), write(account)))?;
    Ok(Response::raw_json(status, users))
}

/// Makes or replaces a user.
pub(crate) async fn put(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let mut form = BodyMembers::read("user", request)?;
    if form.text("username")?.is_some_and(|username| username != name) {
        return Err(Error::illegal_argument(format!("[username] is another than [{name}] of the path")));
    }
    form.absent(&["password_hash"])?;
    let password = form.text("password")?;
    let said = User {
        roles: form.texts("roles")?.ok_or_else(|| Error::validation(&["roles are missing"]))?,
        full_name: form.text("full_name")?,
        email: form.text("email")?,
        metadata: metadata(form.object("metadata")?)?,
        enabled: form.boolean("enabled")?.unwrap_or(true),
        ..User::default()
    };
    form.finish()?;
    let password = api.hash_some(password).await?;
    let _one = api.changing.lock().await;
    api.still(Action::PutSecurity).await?;
    let before = api.accounts.user(name).map(|account| account.user.clone()).unwrap_or_default();
    let user = User {
        default_role: before.default_role.filter(|role| said.roles.contains(role)),
        backend_roles: before.backend_roles,
        description: before.description,
        attributes: before.attributes,
        ..said
    };
    let created = api.accounts.edit_one(Edit::PutUser { name: name.to_owned(), user, password }).await?;
    Ok(Response::json(200, json!({ "created": created })))
}

/// Checks metadata: names that begin with `_` are the server's.
pub(crate) fn metadata(given: Option<Map<String, Value>>) -> Result<Map<String, Value>, Error> {
    let mut given = given.unwrap_or_default();
    // As it is answered with.
    given.remove("_reserved");
    match given.keys().find(|name| name.starts_with('_')) {
        None => Ok(given),
        Some(name) => {
            let name: String = name.chars().take(100).collect();
            Err(Error::illegal_argument(format!(
                "[metadata] may not have [{name}]: names with _ are reserved"
            )))
        }
    }
}

/// Deletes a user.
pub(crate) async fn delete(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let _one = api.changing.lock().await;
    found(api.accounts.delete_user(name).await)
}

/// Makes Elasticsearch's answer to a deletion.
pub(crate) fn found(deleted: millrace_accounts::Result<()>) -> Result<Response, Error> {
    match deleted {
        Ok(()) => Ok(Response::json(200, json!({ "found": true }))),
        Err(millrace_accounts::Error::NotFound { .. }) => Ok(Response::json(404, json!({ "found": false }))),
        Err(error) => Err(error.into()),
    }
}

/// Lets a user in or keeps it out.
pub(crate) async fn enable(
    api: &Api,
    request: &mut Request,
    name: &str,
    enabled: bool,
) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let _one = api.changing.lock().await;
    api.accounts.enable_user(name, enabled).await?;
    Ok(Response::json(200, json!({})))
}

/// Sets a password. One's own needs nothing but one's own: who has stolen a token or a key has not.
pub(crate) async fn put_password(
    api: &Api,
    request: &mut Request,
    name: Option<&str>,
) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let mut form = BodyMembers::read("password", request)?;
    form.absent(&["password_hash"])?;
    let password = form.required("password")?;
    form.finish()?;
    let principal = api.session.principal();
    let own = api.user().filter(|own| name.is_none_or(|name| name == *own));
    let action = match (own, api.scheme) {
        (Some(_), Some(Scheme::Basic)) => Action::Own,
        _ => Action::PutSecurity,
    };
    let own = own.and_then(|own| api.accounts.user(own));
    api.need(action)?;
    api.set_password(name.unwrap_or(principal.name()), password, action, own).await?;
    Ok(Response::json(200, json!({})))
}

/// Describes the caller.
pub(crate) async fn authenticate(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let principal = api.session.principal();
    let account = api.accounts.user(principal.name());
    let user = account.as_ref().map(|account| &account.user);
    let (realm, kind) = match api.scheme {
        Some(Scheme::Certificate) => ("pki", "realm"),
        Some(Scheme::ApiKey) => ("_es_api_key", "api_key"),
        Some(Scheme::Token) => ("native", "token"),
        _ => ("native", "realm"),
    };
    let realm = json!({ "name": realm, "type": realm });
    let mut body = json!({
        "username": principal.name(),
        "roles": principal.roles(),
        "full_name": user.and_then(|user| user.full_name.as_ref()),
        "email": user.and_then(|user| user.email.as_ref()),
        "metadata": user.map(|user| &user.metadata),
        "enabled": user.is_none_or(|user| user.enabled),
        "authentication_realm": realm,
        "lookup_realm": realm,
        "authentication_type": kind,
    });
    if let Caller::ApiKey { id, name, .. } = principal.caller() {
        body["api_key"] = json!({ "id": &**id, "name": &**name });
    }
    Ok(Response::json(200, body))
}
