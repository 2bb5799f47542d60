//! Roles in Elasticsearch's form.

use std::sync::Arc;

use millrace_accounts::Role;
use serde_json::json;

use super::users::{found, metadata, names, take_refresh};
use crate::Api;
use crate::error::Error;
use crate::http::listing::members;
use crate::http::{Request, Response};

/// Lists roles, all or those of the path.
pub(crate) async fn get(api: &Api, request: &mut Request, asked: Option<&str>) -> Result<Response, Error> {
    request.finish()?;
    let roles: Vec<(Arc<str>, Arc<Role>)> = match asked {
        None => api.accounts.roles(),
        Some(asked) => {
            names(asked).filter_map(|name| Some((name.into(), api.accounts.role(name)?))).collect()
        }
    };
    let status = if asked.is_some() && roles.is_empty() { 404 } else { 200 };
    let roles =
        members(&request.allowance, &roles, |(name, role)| (Arc::clone(name), role.to_elasticsearch()))?;
    Ok(Response::raw_json(status, roles))
}

/// Makes or replaces a role.
pub(crate) async fn put(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let body = request.json()?.ok_or_else(|| Error::parsing("request body of role is required"))?;
    let mut said = Role::from_elasticsearch(&body)?;
    said.metadata = metadata(Some(said.metadata))?;
    let _one = api.changing.lock().await;
    let warnings = said.warnings();
    let tenants = api.accounts.role(name).map(|role| role.tenants.clone()).unwrap_or_default();
    let created = api.accounts.put_role(name, Role { tenants, ..said }).await?;
    Ok(Response::json(200, json!({ "role": { "created": created } })).warning(&warnings))
}

/// Deletes a role.
pub(crate) async fn delete(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let _one = api.changing.lock().await;
    found(api.accounts.delete_role(name).await)
}
