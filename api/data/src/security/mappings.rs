//! Role mappings in Elasticsearch's form, as far as it says what a mapping can be here: one role, which has the name of the
//! mapping, for users of some names, or of one or all of some groups, which are backend roles.

use std::sync::Arc;

use millrace_accounts::Mapping;
use serde_json::{Map, Value, json};

use super::form::{self, BodyMembers};
use super::users::{found, names, take_refresh};
use crate::Api;
use crate::error::Error;
use crate::http::listing::members;
use crate::http::{Request, Response};

/// Depth of rules: any of fields and of alls of fields.
const ONLY: &str = "rules may be a field, or `any` of fields and at most one `all` of fields groups; a field is username or groups";

fn write(role: &str, mapping: &Mapping) -> Value {
    let field =
        |name: &str, values: &[String]| (!values.is_empty()).then(|| json!({ "field": { name: values } }));
    let mut any: Vec<Value> = [field("username", &mapping.users), field("groups", &mapping.backend_roles)]
        .into_iter()
        .flatten()
        .collect();
    if !mapping.and_backend_roles.is_empty() {
        let all = mapping.and_backend_roles.iter().map(|group| json!({ "field": { "groups": group } }));
        any.push(json!({ "all": all.collect::<Vec<_>>() }));
    }
    json!({ "enabled": true, "roles": [role], "rules": { "any": any }, "metadata": {} })
}

/// Lists role mappings, all or those of the path.
pub(crate) async fn get(api: &Api, request: &mut Request, asked: Option<&str>) -> Result<Response, Error> {
    request.finish()?;
    let mappings: Vec<(Arc<str>, Arc<Mapping>)> = match asked {
        None => api.accounts.mappings(),
        Some(asked) => {
            names(asked).filter_map(|name| Some((name.into(), api.accounts.mapping(name)?))).collect()
        }
    };
    let status = if asked.is_some() && mappings.is_empty() { 404 } else { 200 };
    let mappings =
        members(&request.allowance, &mappings, |(role, mapping)| (Arc::clone(role), write(role, mapping)))?;
    Ok(Response::raw_json(status, mappings))
}

/// Makes or replaces a role mapping.
pub(crate) async fn put(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let mut form = BodyMembers::read("role mapping", request)?;
    if form.boolean("enabled")? == Some(false) {
        return Err(Error::illegal_argument(
            "[enabled] must be true: delete a role mapping that is not wanted",
        ));
    }
    form.absent(&["role_templates", "metadata"])?;
    let roles = form.texts("roles")?.ok_or_else(|| Error::validation(&["role mapping roles are missing"]))?;
    if roles != [name] {
        return Err(Error::illegal_argument(format!(
            "[roles] of role mapping [{name}] must be [\"{name}\"]: a role mapping has the name of the one role that it gives"
        )));
    }
    let rules =
        form.object("rules")?.ok_or_else(|| Error::validation(&["role mapping rules are missing"]))?;
    form.finish()?;
    let said = read(rules)?;
    let _one = api.changing.lock().await;
    let before = api.accounts.mapping(name);
    let before = before.as_deref().cloned().unwrap_or_default();
    let mapping = Mapping { description: before.description, hosts: before.hosts, ..said };
    let created = api.accounts.put_mapping(name, mapping).await?;
    Ok(Response::json(200, json!({ "role_mapping": { "created": created } })))
}

/// Deletes a role mapping.
pub(crate) async fn delete(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let _one = api.changing.lock().await;
    found(api.accounts.delete_mapping(name).await)
}

fn read(rules: Map<String, Value>) -> Result<Mapping, Error> {
    let mut mapping = Mapping::default();
    let (kind, value) = only(rules)?;
    match (kind.as_str(), value) {
        ("any", Value::Array(rules)) => {
            for rule in rules {
                let Value::Object(rule) = rule else { return Err(refused("rules")) };
                let (kind, value) = only(rule)?;
                rule_of(&mut mapping, &kind, value)?;
            }
        }
        (_, value) => rule_of(&mut mapping, &kind, value)?,
    }
    Ok(mapping)
}

fn rule_of(mapping: &mut Mapping, kind: &str, value: Value) -> Result<(), Error> {
    match (kind, value) {
        ("field", Value::Object(field)) => {
            let (name, values) = only(field)?;
            let values = patterns(&name, values)?;
            match name.as_str() {
                "username" => mapping.users.extend(values),
                "groups" => mapping.backend_roles.extend(values),
                _ => return Err(refused(&name)),
            }
        }
        ("all", Value::Array(rules)) if mapping.and_backend_roles.is_empty() => {
            for rule in rules {
                let Value::Object(rule) = rule else { return Err(refused("all")) };
                let (kind, value) = only(rule)?;
                let ("field", Value::Object(field)) = (kind.as_str(), value) else {
                    return Err(refused(&kind));
                };
                match only(field)? {
                    (name, Value::String(group)) if name == "groups" => {
                        mapping.and_backend_roles.extend(patterns(&name, Value::String(group))?);
                    }
                    (name, _) => return Err(refused(&name)),
                }
            }
        }
        (kind, _) => return Err(refused(kind)),
    }
    Ok(())
}

fn patterns(name: &str, values: Value) -> Result<Vec<String>, Error> {
    let values = form::texts(name, values)?;
    match values.iter().find(|value| value.starts_with('/')) {
        None => Ok(values),
        Some(_) => Err(Error::illegal_argument(format!(
            "[{name}]: regular expressions are not available in role mappings, use wildcards"
        ))),
    }
}

/// Takes the one member of an object.
fn only(object: Map<String, Value>) -> Result<(String, Value), Error> {
    let mut members = object.into_iter();
    match (members.next(), members.next()) {
        (Some(member), None) => Ok(member),
        _ => Err(Error::illegal_argument(format!(
            "an object of role mapping rules must have one member; {ONLY}"
        ))),
    }
}

fn refused(found: &str) -> Error {
    let found: String = found.chars().take(100).collect();
    Error::illegal_argument(format!("[{found}] is not available like that in role mapping rules: {ONLY}"))
}
