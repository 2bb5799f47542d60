//! Users, roles and role mappings in OpenSearch's form, under `_plugins/_security` and `_opendistro/_security`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use millrace_accounts::{
    Account, Edit, Mapping, NewPassword, PrivilegeScope, Role, User, privilege, privilege_names,
};
use millrace_catalog::access::Action;
use serde_json::{Map, Value, json};

use super::form::{BodyMembers, text};
use super::{SearchQueryParser, SecurityCaller, login, patch};
use crate::Api;
use crate::error::Error;
use crate::http::listing::members;
use crate::http::{MemoryAllowance, Request, Response};

/// Most that a request changes.
const MAX_EDITS: usize = 1_000;
/// Warnings that are told of a change.
const MOST_WARNINGS: usize = 10;

/// Something that has a name, in OpenSearch's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Users,
    Roles,
    Mappings,
}

/// Statement of a request about an object.
enum Statement {
    User(Box<User>, Option<String>),
    Role(Role),
    Mapping(Mapping),
}

impl Kind {
    pub(crate) fn new(segment: &str) -> Option<Self> {
        match segment {
            "internalusers" => Some(Self::Users),
            "roles" => Some(Self::Roles),
            "rolesmapping" => Some(Self::Mappings),
            _ => None,
        }
    }

    /// Returns the kind of a path that has a route, which only these have.
    fn routed(segment: &str) -> Result<Self, Error> {
        Self::new(segment).ok_or_else(|| Error::resource_not_found(format!("[{segment}] is not served")))
    }

    fn one(self, api: &Api, name: &str) -> Option<Value> {
        match self {
            Self::Users => api.accounts.user(name).map(|account| write_user(&account)),
            Self::Roles => api.accounts.role(name).map(|role| role.to_opensearch()),
            Self::Mappings => api.accounts.mapping(name).map(|mapping| write_mapping(&mapping)),
        }
    }

    /// Writes all that there are.
    fn all(self, api: &Api, allowance: &MemoryAllowance) -> Result<Vec<u8>, Error> {
        match self {
            Self::Users => members(allowance, &api.accounts.users(), |account| {
                (Arc::clone(&account.name), write_user(account))
            }),
            Self::Roles => members(allowance, &api.accounts.roles(), |(name, role)| {
                (Arc::clone(name), role.to_opensearch())
            }),
            Self::Mappings => members(allowance, &api.accounts.mappings(), |(name, mapping)| {
                (Arc::clone(name), write_mapping(mapping))
            }),
        }
    }

    /// Reads what a body says, with what it has no words for as it was.
    fn read(self, api: &Api, name: &str, body: Value) -> Result<Statement, Error> {
        match self {
            Self::Users => {
                let before = api.accounts.user(name).map(|account| account.user.clone()).unwrap_or_default();
                let (user, password) = read_user(body, before)?;
                Ok(Statement::User(Box::new(user), password))
            }
            Self::Roles => {
                let before = api.accounts.role(name);
                let before = before.as_deref().cloned().unwrap_or_default();
                Ok(Statement::Role(Role::from_opensearch(&body)?.said_again(&before)))
            }
            Self::Mappings => read_mapping(body).map(Statement::Mapping),
        }
    }

    /// Refuses what is built in. A user that is may be changed.
    fn check_reserved(self, api: &Api, name: &str, is_deleted: bool) -> Result<(), Error> {
        let is_reserved = match self {
            Self::Users => is_deleted && api.accounts.user(name).is_some_and(|account| account.is_reserved()),
            Self::Roles => api.accounts.role(name).is_some_and(|role| role.reserved),
            Self::Mappings => false,
        };
        match is_reserved {
            true => Err(Error::new(403, "security_exception", format!("Resource '{name}' is reserved."))),
            false => Ok(()),
        }
    }

    fn delete(self, name: String) -> Edit {
        match self {
            Self::Users => Edit::DeleteUser(name),
            Self::Roles => Edit::DeleteRole(name),
            Self::Mappings => Edit::DeleteMapping(name),
        }
    }
}

impl Statement {
    /// Checks that it can be put, as far as it says by itself.
    fn check(&self) -> Result<(), Error> {
        let checked = match self {
            Self::User(user, _) => user.check(),
            Self::Role(role) => role.check(&SearchQueryParser),
            Self::Mapping(mapping) => mapping.check(),
        };
        Ok(checked?)
    }

    /// Reports statements with another meaning than they seem to have.
    fn warnings(&self) -> Vec<String> {
        match self {
            Self::Role(role) => role.warnings(),
            Self::User(..) | Self::Mapping(_) => Vec::new(),
        }
    }

    /// Makes the change that puts it, with the password as it was hashed before.
    fn put(self, name: String, hashed: &HashedPasswords) -> Result<Edit, Error> {
        Ok(match self {
            Self::User(user, password) => {
                let password = password.map(|password| hashed.get(&name, &password)).transpose()?;
                Edit::PutUser { name, user: *user, password }
            }
            Self::Role(role) => Edit::PutRole(name, role),
            Self::Mapping(mapping) => Edit::PutMapping(name, mapping),
        })
    }
}

/// Passwords that are to be set, hashed, by user: that takes its time, in which others change what they want to.
#[derive(Default)]
struct HashedPasswords(HashMap<String, (String, NewPassword)>);

impl HashedPasswords {
    async fn new(api: &Api, plan: Plan) -> Result<Self, Error> {
        let mut hashed = HashMap::new();
        for (name, one) in plan.said {
            if let Statement::User(_, Some(password)) = one {
                let hash = api.hash(password.clone()).await?;
                hashed.insert(name, (password, hash));
            }
        }
        Ok(Self(hashed))
    }

    fn get(&self, name: &str, password: &str) -> Result<NewPassword, Error> {
        match self.0.get(name) {
            Some((known, hash)) if known == password => Ok(hash.clone()),
            _ => Err(Error::new(
                409,
                "security_exception",
                "users have changed while their passwords were hashed, try again",
            )),
        }
    }
}

fn write_user(account: &Account) -> Value {
    let User { roles, backend_roles, attributes, description, .. } = &account.user;
    let mut body = json!({
        // Hashes are not told.
        "hash": "",
        "reserved": account.is_reserved(),
        "hidden": false,
        "static": false,
        "backend_roles": backend_roles,
        "attributes": attributes,
        "opendistro_security_roles": roles,
    });
    if let Some(description) = description {
        body["description"] = json!(description);
    }
    body
}

fn read_user(body: Value, before: User) -> Result<(User, Option<String>), Error> {
    let mut form = BodyMembers::new("user", body)?;
    form.ignore(&["reserved", "hidden", "static"]);
    form.absent(&["hash"])?;
    let password = form.text("password")?.filter(|password| !password.is_empty());
    let attributes = form.object("attributes")?.unwrap_or_default();
    let attributes = attributes.into_iter().map(|(name, value)| {
        let value = text(&name, value)?;
        Ok((name, value))
    });
    let user = User {
        backend_roles: form.texts("backend_roles")?.unwrap_or_default(),
        attributes: attributes.collect::<Result<_, Error>>()?,
        roles: form.texts("opendistro_security_roles")?.unwrap_or_default(),
        description: form.text("description")?,
        ..before
    };
    form.finish()?;
    let default_role = user.default_role.clone().filter(|role| user.roles.contains(role));
    Ok((User { default_role, ..user }, password))
}

fn write_mapping(mapping: &Mapping) -> Value {
    let mut body = json!({
        "reserved": false,
        "hidden": false,
        "users": mapping.users,
        "backend_roles": mapping.backend_roles,
        "and_backend_roles": mapping.and_backend_roles,
        "hosts": mapping.hosts,
    });
    if let Some(description) = &mapping.description {
        body["description"] = json!(description);
    }
    body
}

fn read_mapping(body: Value) -> Result<Mapping, Error> {
    let mut form = BodyMembers::new("role mapping", body)?;
    form.ignore(&["reserved", "hidden", "static"]);
    let mapping = Mapping {
        description: form.text("description")?,
        users: form.texts("users")?.unwrap_or_default(),
        backend_roles: form.texts("backend_roles")?.unwrap_or_default(),
        and_backend_roles: form.texts("and_backend_roles")?.unwrap_or_default(),
        hosts: form.texts("hosts")?.unwrap_or_default(),
    };
    form.finish()?;
    Ok(mapping)
}

/// Makes the answer of an error as OpenSearch has it here.
fn shaped(answer: Result<Response, Error>) -> Result<Response, Error> {
    answer.map_err(|error| {
        let status = match error.status() {
            400 => "BAD_REQUEST",
            401 => "UNAUTHORIZED",
            403 => "FORBIDDEN",
            404 => "NOT_FOUND",
            409 => "CONFLICT",
            413 => "REQUEST_ENTITY_TOO_LARGE",
            429 => "TOO_MANY_REQUESTS",
            503 => "SERVICE_UNAVAILABLE",
            _ => "INTERNAL_SERVER_ERROR",
        };
        let message = error.reason().to_owned();
        error.rendered(json!({ "status": status, "message": message }))
    })
}

fn done(status: u16, message: String) -> Response {
    let word = if status == 201 { "CREATED" } else { "OK" };
    Response::json(status, json!({ "status": word, "message": message }))
}

fn missing(name: &str) -> Error {
    let name: String = name.chars().take(100).collect();
    Error::resource_not_found(format!("Resource '{name}' not found."))
}

/// Lists the objects of a kind, all or the one of the path.
pub(crate) async fn get(
    api: &Api,
    request: &mut Request,
    kind: &str,
    name: Option<&str>,
) -> Result<Response, Error> {
    request.finish()?;
    let kind = Kind::routed(kind)?;
    shaped(match name {
        None => kind.all(api, &request.allowance).map(|all| Response::raw_json(200, all)),
        Some(name) => match kind.one(api, name) {
            Some(one) => Ok(Response::json(200, json!({ name: one }))),
            None => Err(missing(name)),
        },
    })
}

/// Plan for the objects of a kind.
#[derive(Default)]
struct Plan {
    said: Vec<(String, Statement)>,
    gone: Vec<String>,
}

impl Plan {
    fn check(&self, api: &Api, kind: Kind) -> Result<(), Error> {
        let count = self.said.len() + self.gone.len();
        if count > MAX_EDITS {
            return Err(Error::illegal_argument(format!(
                "at most [{MAX_EDITS}] can be changed at once, found [{count}]"
            )));
        }
        for (name, one) in &self.said {
            one.check()?;
            kind.check_reserved(api, name, false)?;
        }
        self.gone.iter().try_for_each(|name| kind.check_reserved(api, name, true))
    }
}

/// Outcome of a change.
struct Changed {
    /// Of each that was said whether it is new.
    made: Vec<bool>,
    /// Warnings about entries that do not mean what they seem to say.
    warnings: Vec<String>,
}

/// Changes what there is of a kind by a body: `plan` says how, on what there is. It is asked twice: for the passwords, which are
/// hashed first, and again when nobody else changes anything. All is checked first, and changed as one, or not at all.
async fn change(
    api: &Api,
    request: &mut Request,
    kind: Kind,
    plan: impl Fn(Value) -> Result<Plan, Error>,
) -> Result<Changed, Error> {
    let body = request.json()?.ok_or_else(|| Error::parsing("request body is required"))?;
    let mut hashed = HashedPasswords::default();
    if kind == Kind::Users {
        let first = plan(body.clone())?;
        first.check(api, kind)?;
        hashed = HashedPasswords::new(api, first).await?;
    }
    let _one = api.changing.lock().await;
    api.still(Action::PutSecurity).await?;
    let planned = plan(body)?;
    planned.check(api, kind)?;
    let Plan { said, gone } = planned;
    let warnings = said.iter().flat_map(|(_, one)| one.warnings()).take(MOST_WARNINGS).collect();
    // What goes makes room for what comes.
    let gone = gone.into_iter().map(|name| Ok(kind.delete(name)));
    let said = said.into_iter().map(|(name, one)| one.put(name, &hashed));
    let edits = gone.chain(said).collect::<Result<Vec<_>, Error>>()?;
    Ok(Changed { made: api.accounts.edit(edits).await?, warnings })
}

/// Makes or replaces one.
pub(crate) async fn put(api: &Api, request: &mut Request, kind: &str, name: &str) -> Result<Response, Error> {
    request.finish()?;
    let kind = Kind::routed(kind)?;
    let put = change(api, request, kind, |body| {
        let one = kind.read(api, name, body)?;
        Ok(Plan { said: vec![(name.to_owned(), one)], gone: Vec::new() })
    });
    shaped(put.await.map(|Changed { made, warnings }| {
        let done = match made.contains(&true) {
            true => done(201, format!("'{name}' created.")),
            false => done(200, format!("'{name}' updated.")),
        };
        done.warning(&warnings)
    }))
}

/// Deletes one.
pub(crate) async fn delete(
    api: &Api,
    request: &mut Request,
    kind: &str,
    name: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let kind = Kind::routed(kind)?;
    let _one = api.changing.lock().await;
    let deleted = api.accounts.edit_one(kind.delete(name.to_owned())).await.map_err(Error::from);
    shaped(deleted.map(|_| done(200, format!("'{name}' deleted."))))
}

/// Changes parts of one, or some of all.
pub(crate) async fn patch(
    api: &Api,
    request: &mut Request,
    kind: &str,
    name: Option<&str>,
) -> Result<Response, Error> {
    request.finish()?;
    let kind = Kind::routed(kind)?;
    let patch = change(api, request, kind, |body| patched(api, kind, name, patch::read(body)?));
    shaped(patch.await.map(|Changed { warnings, .. }| {
        let done = match name {
            Some(name) => done(200, format!("'{name}' updated.")),
            None => done(200, "Resource updated.".to_owned()),
        };
        done.warning(&warnings)
    }))
}

/// Plans the result for one object, or for those that a patch names.
fn patched(
    api: &Api,
    kind: Kind,
    name: Option<&str>,
    operations: Vec<patch::Operation>,
) -> Result<Plan, Error> {
    // Those that are named, as they are.
    let (mut patched, mut gone) = (Map::new(), Vec::new());
    match name {
        Some(name) => {
            let Some(Value::Object(mut one)) = kind.one(api, name) else { return Err(missing(name)) };
            operations.into_iter().try_for_each(|operation| patch::apply(operation, &mut one))?;
            patched.insert(name.to_owned(), Value::Object(one));
        }
        None => {
            let names = operations.iter().filter_map(|operation| operation.path.first());
            patched.extend(names.filter_map(|name| Some((name.clone(), kind.one(api, name)?))));
            let before: Vec<String> = patched.keys().cloned().collect();
            operations.into_iter().try_for_each(|operation| patch::apply(operation, &mut patched))?;
            gone.extend(before.into_iter().filter(|name| !patched.contains_key(name)));
        }
    }
    let said = patched.into_iter().map(|(name, body)| {
        let one = kind.read(api, &name, body)?;
        Ok((name, one))
    });
    Ok(Plan { said: said.collect::<Result<_, Error>>()?, gone })
}

/// Says that there is an answer.
pub(crate) async fn health(request: &mut Request) -> Result<Response, Error> {
    request.params.take("mode");
    request.finish()?;
    Ok(Response::json(200, json!({ "message": null, "mode": "strict", "status": "UP" })))
}

/// Describes the caller.
pub(crate) async fn authinfo(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.params.take("auth_type");
    request.finish()?;
    let principal = api.session.principal();
    let account = api.accounts.user(principal.name());
    let user = account.as_ref().map(|account| account.user.clone()).unwrap_or_default();
    let mut shown = String::new();
    let _ = write!(
        shown,
        "User [name={}, backend_roles=[{}], requestedTenant=null]",
        principal.name(),
        user.backend_roles.join(", ")
    );
    Ok(Response::json(
        200,
        json!({
            "user": shown,
            "user_name": principal.name(),
            "user_requested_tenant": null,
            "remote_address": api.address.to_string(),
            "backend_roles": user.backend_roles,
            "custom_attribute_names": attribute_names(&user),
            "roles": principal.roles(),
            "tenants": { principal.name(): true },
            "principal": null,
            "peer_certificates": "0",
            "sso_logout_url": null,
        }),
    ))
}

fn attribute_names(user: &User) -> Vec<String> {
    user.attributes.keys().map(|name| format!("attr.internal.{name}")).collect()
}

/// Answers with the caller's account.
pub(crate) async fn account(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let principal = api.session.principal();
    let account = api.accounts.user(principal.name());
    let user = account.as_ref().map(|account| account.user.clone()).unwrap_or_default();
    Ok(Response::json(
        200,
        json!({
            "user_name": principal.name(),
            "is_reserved": account.is_some_and(|account| account.is_reserved()),
            "is_hidden": false,
            "is_internal_user": true,
            "user_requested_tenant": null,
            "backend_roles": user.backend_roles,
            "custom_attribute_names": attribute_names(&user),
            "tenants": { principal.name(): true },
            "roles": principal.roles(),
        }),
    ))
}

/// Sets the caller's own password.
pub(crate) async fn put_account(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let put = async {
        let mut form = BodyMembers::read("account", request)?;
        let (old, new) = (form.required("current_password")?, form.required("password")?);
        form.finish()?;
        let Some(user) = api.user() else {
            return Err(Error::new(403, "security_exception", "an API key has no password"));
        };
        let own = api.accounts.user(user);
        login::verify(api, user, &old).await?;
        api.set_password(user, new, Action::Own, own).await?;
        Ok(done(200, format!("'{user}' updated.")))
    };
    shaped(put.await)
}

/// Makes privileges anew.
pub(crate) async fn flush_cache(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    api.accounts.forget_privileges();
    Ok(done(200, "Cache flushed successfully.".to_owned()))
}

/// Lists the actions of privilege names.
pub(crate) async fn action_groups(request: &mut Request, name: Option<&str>) -> Result<Response, Error> {
    request.finish()?;
    let mut groups = Map::new();
    for (over, kind) in [(PrivilegeScope::Cluster, "cluster"), (PrivilegeScope::Indices, "index")] {
        for group in privilege_names(over).filter(|group| name.is_none_or(|name| name == *group)) {
            let actions = privilege(over, group)?.iter().map(|action| json!(action.name()));
            let actions: Vec<Value> = actions.collect();
            // One name may mean something over both.
            let known =
                groups.get(group).and_then(|known: &Value| known["allowed_actions"].as_array().cloned());
            let kind = if known.is_some() { "all" } else { kind };
            let actions: Vec<Value> = known.unwrap_or_default().into_iter().chain(actions).collect();
            let body = json!({
                "reserved": true,
                "hidden": false,
                "static": true,
                "type": kind,
                "allowed_actions": actions,
            });
            groups.insert(group.to_owned(), body);
        }
    }
    shaped(match name.filter(|_| groups.is_empty()) {
        Some(name) => Err(missing(name)),
        None => Ok(Response::json(200, Value::Object(groups))),
    })
}
