//! `_service`: logins, accounts in one step, passwords, and reading again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use millrace_accounts::{Credentials, Edit};
use millrace_catalog::access::Action;
use serde_json::{Value, json};

use super::SecurityCaller;
use super::form::BodyMembers;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Answers a login: a token for a name and a password.
pub(crate) async fn login(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut form = BodyMembers::read("login", request)?;
    let (username, password) = (form.required("username")?, form.required("password")?);
    form.finish()?;
    let _ = api.noted.login.set(username.clone());
    let checking = api.accounts.check_login(&username, &password, api.address);
    let login = match api.client.waits_for(checking).await? {
        Ok(checked) => api.accounts.give_token(checked).await,
        Err(refusal) => Err(refusal),
    };
    match login {
        Ok(login) => {
            let roles = login.principal.roles();
            Ok(Response::json(
                200,
                json!({
                    "status": 200,
                    "username": &*login.account.name,
                    "roles": roles,
                    "apps": applications(api, roles),
                    "token": login.token,
                }),
            ))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Lists the applications that roles name.
fn applications(api: &Api, roles: &[String]) -> BTreeSet<String> {
    let of_role = |role: &String| {
        let role = api.accounts.role(role)?;
        let name = |entry: &Value| entry.get("application").and_then(Value::as_str).map(str::to_owned);
        Some(role.applications.iter().filter_map(name).collect::<Vec<_>>())
    };
    roles.iter().filter_map(of_role).flatten().collect()
}

/// Ends the token in use.
pub(crate) async fn logout(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let Some(Credentials::Token(token)) = &api.token else {
        return Err(Error::illegal_argument("the request shows no login token that could be ended"));
    };
    api.accounts.logout(token).await?;
    Ok(Response::json(200, json!({ "status": 200, "username": api.session.principal().name() })))
}

/// Makes a user, or changes what is said of one.
pub(crate) async fn put_account(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut form = BodyMembers::read("account", request)?;
    let username = form.required("username")?;
    let password = form.text("password")?;
    let (roles, default_role) = (form.texts("roles")?, form.text("defaultrole")?);
    let email = form.text("email")?;
    form.finish()?;
    let password = api.hash_some(password).await?;
    let _one = api.changing.lock().await;
    api.still(Action::PutSecurity).await?;
    let mut user = api.accounts.user(&username).map(|account| account.user.clone()).unwrap_or_default();
    if let Some(roles) = roles {
        user.roles = roles;
        // One that was taken away is no default any more.
        user.default_role = user.default_role.filter(|role| user.roles.contains(role));
    }
    user.default_role = default_role.filter(|role| !role.is_empty()).or(user.default_role);
    user.email = email.or(user.email);
    let answered = json!({
        "roles": user.roles,
        "defaultrole": user.default_role,
        "email": user.email,
    });
    let created = api.accounts.edit_one(Edit::PutUser { name: username.clone(), user, password }).await?;
    let mut answer = json!({ "status": 200, "username": username, "created": created });
    if let (Value::Object(answer), Value::Object(answered)) = (&mut answer, answered) {
        answer.extend(answered);
    }
    Ok(Response::json(200, answer))
}

/// Sets a password: one's own, with the one before, or anybody's for who may manage users.
pub(crate) async fn put_password(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut form = BodyMembers::read("password", request)?;
    let username = form.text("username")?;
    let (old, new) = (form.text("old_password")?, form.required("password")?);
    form.finish()?;
    let own = api.user().filter(|own| username.as_ref().is_none_or(|name| name == own));
    let before = own.and_then(|own| api.accounts.user(own));
    let (username, action) = match (own, &old) {
        (Some(own), Some(old)) => {
            verify(api, own, old).await?;
            (own.to_owned(), Action::Own)
        }
        (Some(own), None) if !api.may(Action::PutSecurity) => {
            let reason = format!("[old_password] of user [{own}] is missing");
            return Err(Error::validation(&[reason]));
        }
        _ => {
            api.need(Action::PutSecurity)?;
            let username = username.unwrap_or_else(|| api.session.principal().name().to_owned());
            (username, Action::PutSecurity)
        }
    };
    api.set_password(&username, new, action, before).await?;
    Ok(Response::json(200, json!({ "status": 200, "username": username })))
}

/// Checks the password that somebody wants to replace.
///
/// # Errors
/// 403 for a wrong one: 401 would have clients drop credentials that are good.
pub(crate) async fn verify(api: &Api, user: &str, password: &str) -> Result<(), Error> {
    let verifying = api.accounts.verify_password(user, password, api.address);
    let verified = api.client.waits_for(verifying).await?.map_err(Error::from);
    verified.map_err(|error| match error.status() {
        401 => Error::new(403, "security_exception", format!("the old password of user [{user}] is wrong")),
        429 => {
            api.noted.too_many.store(true, Ordering::Relaxed);
            error
        }
        _ => error,
    })
}

/// Reads certificate and key again, and makes privileges anew.
pub(crate) async fn reload(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut reloaded = vec!["privileges"];
    api.accounts.forget_privileges();
    if let Some(tls) = api.tls.clone() {
        let read = tokio::task::spawn_blocking(move || tls.reload()).await;
        let read = read.map_err(|error| Error::concealed(500, "illegal_state_exception", &error))?;
        read.map_err(|error| {
            tracing::error!(%error, "certificate and key could not be read again");
            let reason = format!("certificate and key stay as they were: {error}");
            Error::new(500, "illegal_state_exception", reason)
        })?;
        reloaded.push("tls");
    }
    Ok(Response::json(200, json!({ "status": 200, "acknowledged": true, "reloaded": reloaded })))
}
