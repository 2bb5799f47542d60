//! API keys.
//!
//! A user makes them with its own credentials; a key or a login token makes none, so that what was stolen ends with it. Who may not
//! manage the keys of all sees and revokes its own: a user those that act for it, a key itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_accounts::{ApiKey, ApiKeyChange, ApiKeyQuery, NewApiKey, Role, Scheme, limits};
use millrace_catalog::access::{Action, Caller};
use serde_json::{Map, Value, json};

use super::SecurityCaller;
use super::form::{BodyMembers, expected, text};
use super::users::{metadata, take_refresh};
use crate::Api;
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{Request, Response, offload, parse_time};

/// Name of the one realm that users are in.
const REALM: &str = "native";
/// Most API keys of a page of a query, with those before it.
const MAX_WINDOW: usize = 10_000;
/// Warnings that are told of a key.
const MOST_WARNINGS: usize = 10;

/// Makes an API key for who asks.
pub(crate) async fn create(api: &Api, request: &mut Request) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    check_scheme(api, "created")?;
    let mut form = BodyMembers::read("API key", request)?;
    let new = NewApiKey {
        name: form.required("name")?,
        roles: offload(request.body.len(), || descriptors(&mut form))?.unwrap_or_default(),
        expires_in: expiration(&mut form)?,
        metadata: metadata(form.object("metadata")?)?,
    };
    form.finish()?;
    let warnings = warnings(&new.roles);
    let created = api.accounts.create_api_key(api.session.principal(), new).await?;
    let mut body = json!({
        "id": &*created.key.id,
        "name": &*created.key.name,
        "api_key": created.secret,
        "encoded": created.encoded,
    });
    if let Some(expires_ms) = created.key.expires_ms {
        body["expiration"] = json!(expires_ms);
    }
    Ok(Response::json(200, body).warning(&warnings))
}

/// Says which queries of the descriptors do not limit what they seem to.
fn warnings(roles: &BTreeMap<String, Role>) -> Vec<String> {
    roles.values().flat_map(Role::warnings).take(MOST_WARNINGS).collect()
}

/// Changes an API key of who asks.
pub(crate) async fn update(api: &Api, request: &mut Request, id: &str) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    check_scheme(api, "changed")?;
    let mut form = BodyMembers::read_optional("API key", request)?;
    let change = ApiKeyChange {
        roles: offload(request.body.len(), || descriptors(&mut form))?,
        metadata: form.object("metadata")?.map(|given| metadata(Some(given))).transpose()?,
        expires_in: expiration(&mut form)?,
    };
    form.finish()?;
    let warnings = change.roles.as_ref().map(warnings).unwrap_or_default();
    let updated = api.accounts.update_api_key(api.session.principal().name(), id, change).await?;
    api.noted.unchanged.store(!updated, Ordering::Relaxed);
    Ok(Response::json(200, json!({ "updated": updated })).warning(&warnings))
}

/// Refuses what was derived from a user's credentials.
fn check_scheme(api: &Api, what: &str) -> Result<(), Error> {
    match api.scheme {
        Some(Scheme::Basic | Scheme::Certificate | Scheme::Insecure) => Ok(()),
        scheme => {
            let shown = if scheme == Some(Scheme::Token) { "a login token" } else { "an API key" };
            let caller = api.session.principal().caller();
            let reason = format!(
                "action [{}] is unauthorized for {caller}: API keys are {what} with Basic authentication, not with {shown}",
                Action::CreateApiKey
            );
            Err(Error::new(403, "security_exception", reason))
        }
    }
}

fn descriptors(form: &mut BodyMembers) -> Result<Option<BTreeMap<String, Role>>, Error> {
    let Some(given) = form.object("role_descriptors")? else { return Ok(None) };
    let read = |(name, body): (String, Value)| {
        let role = Role::from_elasticsearch(&body).map_err(|error| {
            let name: String = name.chars().take(100).collect();
            Error::illegal_argument(format!("role descriptor [{name}]: {error}"))
        })?;
        Ok((name, role))
    };
    given.into_iter().map(read).collect::<Result<_, Error>>().map(Some)
}

fn expiration(form: &mut BodyMembers) -> Result<Option<Duration>, Error> {
    form.text("expiration")?.map(|text| parse_time("expiration", &text)).transpose()
}

/// Selection of API keys.
#[derive(Debug, Default)]
struct ApiKeySelection {
    ids: Option<Vec<String>>,
    name: Option<String>,
    owner: bool,
    username: Option<String>,
    realm: Option<String>,
}

impl ApiKeySelection {
    /// Makes the query that the caller may ask.
    ///
    /// # Errors
    /// 403 for keys that are not the caller's, unless it may manage those of all.
    fn query(self, api: &Api) -> Result<ApiKeyQuery, Error> {
        let Self { mut ids, name, owner, username, realm } = self;
        let principal = api.session.principal();
        if owner && (username.is_some() || realm.is_some()) {
            return Err(Error::validation(&[
                "neither username nor realm name may be given where [owner] flag is true",
            ]));
        }
        // There is one realm: another has no keys.
        if realm.is_some_and(|realm| realm != REALM) {
            ids = Some(Vec::new());
        }
        let username = username.or_else(|| owner.then(|| principal.name().to_owned()));
        let by_manager = api.may(Action::ManageApiKeys);
        if !by_manager {
            match principal.caller() {
                Caller::ApiKey { id, .. } => {
                    let means_itself = ids.as_ref().is_some_and(|ids| *ids == [&**id]);
                    if !means_itself && !owner {
                        api.need(Action::ManageApiKeys)?;
                    }
                    let is_meant = ids.as_ref().is_none_or(|ids| ids.iter().any(|other| **other == **id));
                    ids = Some(if is_meant { vec![id.to_string()] } else { Vec::new() });
                }
                _ if username.as_deref() == Some(principal.name()) => {}
                _ => api.need(Action::ManageApiKeys)?,
            }
        }
        Ok(ApiKeyQuery { ids, name, owner: username, active_only: false, by_manager })
    }
}

/// Lists API keys.
pub(crate) async fn get(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let params = &mut request.params;
    let id = params.take("id");
    let asked = ApiKeySelection {
        ids: id.clone().map(|id| vec![id]),
        name: params.take("name"),
        owner: params.take_bool("owner")?.unwrap_or(false),
        username: params.take("username"),
        realm: params.take("realm_name"),
    };
    let active_only = params.take_bool("active_only")?.unwrap_or(false);
    for absent in ["with_limited_by", "with_profile_uid"] {
        if params.take_bool(absent)? == Some(true) {
            return Err(Error::illegal_argument(format!("[{absent}] is not available on this server")));
        }
    }
    request.finish()?;
    let keys = api.accounts.api_keys(ApiKeyQuery { active_only, ..asked.query(api)? }).await?;
    let status = if id.is_some() && keys.is_empty() { 404 } else { 200 };
    let mut body = br#"{"api_keys":"#.to_vec();
    body.extend(items(&request.allowance, &keys, |key| write(key))?);
    body.push(b'}');
    Ok(Response::raw_json(status, body))
}

fn write(key: &ApiKey) -> Value {
    let roles: Map<String, Value> =
        key.roles.iter().map(|(name, role)| (name.clone(), role.to_elasticsearch())).collect();
    let mut body = json!({
        "id": &*key.id,
        "name": &*key.name,
        "type": "rest",
        "creation": key.created_ms,
        "invalidated": key.invalidated_ms.is_some(),
        "username": &*key.owner,
        "realm": REALM,
        "realm_type": REALM,
        "metadata": key.metadata,
        "role_descriptors": roles,
    });
    if let Some(expires_ms) = key.expires_ms {
        body["expiration"] = json!(expires_ms);
    }
    if let Some(invalidated_ms) = key.invalidated_ms {
        body["invalidation"] = json!(invalidated_ms);
    }
    body
}

/// Revokes API keys.
pub(crate) async fn invalidate(api: &Api, request: &mut Request) -> Result<Response, Error> {
    take_refresh(request)?;
    request.finish()?;
    let mut form = BodyMembers::read("API keys to invalidate", request)?;
    let mut ids = form.texts("ids")?;
    if let Some(id) = form.text("id")?
        && ids.replace(vec![id]).is_some()
    {
        return Err(Error::validation(&["only one of [id, ids] may be given"]));
    }
    if ids.as_ref().is_some_and(|ids| ids.len() > limits::MAX_LISTED) {
        let limit = limits::MAX_LISTED;
        return Err(Error::illegal_argument(format!(
            "[ids] has more than [{limit}] entries, send them in parts"
        )));
    }
    let asked = ApiKeySelection {
        ids,
        name: form.text("name")?,
        owner: form.boolean("owner")?.unwrap_or(false),
        username: form.text("username")?,
        realm: form.text("realm_name")?,
    };
    form.finish()?;
    if asked.ids.is_none()
        && asked.name.is_none()
        && asked.username.is_none()
        && asked.realm.is_none()
        && !asked.owner
    {
        return Err(Error::validation(&[
            "One of [api key id(s), api key name, username, realm name] must be specified if [owner] flag is false",
        ]));
    }
    // A client that is gone waits for no search; what was found is revoked all the same.
    let found = api.client.waits_for(api.accounts.api_keys(asked.query(api)?)).await??;
    let done = api.accounts.revoke_api_keys(found).await?;
    api.noted.unchanged.store(done.invalidated.is_empty(), Ordering::Relaxed);
    let list = |ids: &[Arc<str>]| ids.iter().map(|id| json!(&**id)).collect::<Vec<_>>();
    Ok(Response::json(
        200,
        json!({
            "invalidated_api_keys": list(&done.invalidated),
            "previously_invalidated_api_keys": list(&done.previously),
            "error_count": 0,
        }),
    ))
}

/// Lists API keys page by page, by one of a few queries.
pub(crate) async fn query(api: &Api, request: &mut Request) -> Result<Response, Error> {
    for absent in ["with_limited_by", "with_profile_uid", "typed_keys"] {
        if request.params.take_bool(absent)? == Some(true) {
            return Err(Error::illegal_argument(format!("[{absent}] is not available on this server")));
        }
    }
    request.finish()?;
    let mut form = BodyMembers::read_optional("query of API keys", request)?;
    let (from, size) = (form.number("from")?.unwrap_or(0), form.number("size")?.unwrap_or(10));
    if from.saturating_add(size) > MAX_WINDOW {
        return Err(Error::illegal_argument(format!(
            "[from] and [size] are more than [{MAX_WINDOW}] together"
        )));
    }
    let query = form.object("query")?;
    form.absent(&["sort", "search_after", "aggs", "aggregations"])?;
    form.finish()?;
    let mut asked = ApiKeySelection { owner: !api.may(Action::ManageApiKeys), ..ApiKeySelection::default() };
    let is_meant = match query {
        None => None,
        Some(query) => condition(query, &mut asked)?,
    };
    let mut keys = api.accounts.api_keys(asked.query(api)?).await?;
    if let Some(is_meant) = is_meant {
        offload(keys.len() * size_of::<ApiKey>(), || keys.retain(|key| is_meant.holds(key)));
    }
    let page = &keys[from.min(keys.len())..from.saturating_add(size).min(keys.len())];
    let mut body = format!(r#"{{"total":{},"count":{},"api_keys":"#, keys.len(), page.len()).into_bytes();
    body.extend(items(&request.allowance, page, |key| write(key))?);
    body.push(b'}');
    Ok(Response::raw_json(200, body))
}

/// A condition of a query.
enum Condition {
    Id(String),
    Name(String),
    Username(String),
    Invalidated(bool),
}

impl Condition {
    fn holds(&self, key: &ApiKey) -> bool {
        match self {
            Self::Id(id) => **id == *key.id,
            Self::Name(name) => **name == *key.name,
            Self::Username(name) => **name == *key.owner,
            Self::Invalidated(invalidated) => *invalidated == key.invalidated_ms.is_some(),
        }
    }
}

/// Reads a query: its selective part goes to `asked`, the rest is a condition.
fn condition(query: Map<String, Value>, asked: &mut ApiKeySelection) -> Result<Option<Condition>, Error> {
    const ONLY: &str =
        "one of [match_all], [ids], [term] of id, name, username or invalidated, and [wildcard] of name";
    let refuse = |what: &str| {
        let what: String = what.chars().take(100).collect();
        Err(Error::illegal_argument(format!(
            "[{what}] is not available in a query of API keys: it may be {ONLY}"
        )))
    };
    let mut clauses = query.into_iter();
    let (Some((kind, body)), None) = (clauses.next(), clauses.next()) else { return refuse("query") };
    let Value::Object(body) = body else { return Err(expected(&kind, "an object", &body)) };
    if kind == "match_all" {
        return Ok(None);
    }
    let mut members = body.into_iter();
    let (Some((field, value)), None) = (members.next(), members.next()) else { return refuse(&kind) };
    let value = match value {
        Value::Object(mut value) if kind != "ids" && value.len() == 1 => {
            value.remove("value").unwrap_or_default()
        }
        value => value,
    };
    Ok(match (kind.as_str(), field.as_str()) {
        ("ids", "values") => {
            let ids = super::form::texts("values", value)?;
            if ids.len() > limits::MAX_LISTED {
                return Err(Error::illegal_argument(format!(
                    "[values] has more than [{}] entries",
                    limits::MAX_LISTED
                )));
            }
            asked.ids = Some(ids);
            None
        }
        ("wildcard", "name") => {
            asked.name = Some(text("name", value)?);
            None
        }
        ("term", "id") => Some(Condition::Id(text("id", value)?)),
        ("term", "name") => Some(Condition::Name(text("name", value)?)),
        ("term", "username") => Some(Condition::Username(text("username", value)?)),
        ("term", "invalidated") => {
            let value = value.as_bool().ok_or_else(|| expected("invalidated", "a boolean", &value))?;
            Some(Condition::Invalidated(value))
        }
        _ => return refuse(&format!("{kind}.{field}")),
    })
}
