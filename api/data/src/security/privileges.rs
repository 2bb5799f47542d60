//! Privileges of callers and users, in Elasticsearch's form.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use millrace_accounts::{
    Accounts, ApiKeyQuery, IndexGrant, PrivilegeScope, Role, privilege, privilege_names,
};
use millrace_catalog::access::{Action, ActionSet, Caller, Principal};
use millrace_runtime::Priority;
use serde_json::{Map, Value, json};

use super::SecurityCaller;
use super::form::{BodyMembers, texts};
use crate::Api;
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{MemoryAllowance, Request, Response};

/// Longest name of a privilege, an index, an application or a resource, in bytes.
const MAX_TEXT: usize = 512;
/// Most answers to one question of what is allowed.
const MAX_ASKED: usize = 10_000;

/// Samples for a wildcard of a pattern, to find whether all that it stands for is allowed: nothing, itself, and an unlikely name.
const STANDS_FOR: [&str; 3] = ["", "*", "zq0_7-x.k9"];

/// Lists the grants of the caller's roles.
pub(crate) async fn of_caller(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let principal = api.session.principal();
    if let Caller::ApiKey { id, .. } = principal.caller() {
        let ids = Some(vec![id.to_string()]);
        let keys = api.accounts.api_keys(ApiKeyQuery { ids, ..ApiKeyQuery::default() }).await?;
        if keys.first().is_some_and(|key| !key.roles.is_empty()) {
            return Err(Error::illegal_argument(
                "cannot list the privileges of an API key with role descriptors, ask for the API key itself",
            ));
        }
    }
    let roles: Vec<Arc<Role>> = principal.roles().iter().filter_map(|role| api.accounts.role(role)).collect();
    let allowance = request.allowance.clone();
    // Each may have a great many grants.
    let written = move || Ok(granted(&roles, &allowance));
    let written = api.session.compute().run(Priority::Foreground, written).await??;
    Ok(Response::raw_json(200, written))
}

/// Writes what roles grant, all of it once.
fn granted(roles: &[Arc<Role>], allowance: &MemoryAllowance) -> Result<Vec<u8>, Error> {
    let cluster: BTreeSet<&str> = roles.iter().flat_map(|role| &role.cluster).map(String::as_str).collect();
    let cluster: Vec<&str> = cluster.into_iter().collect();
    let mut known = HashSet::new();
    let indices = roles.iter().flat_map(|role| &role.indices).filter(|grant| known.insert(*grant));
    let indices: Vec<&IndexGrant> = indices.collect();
    let applications: Vec<&Value> = roles.iter().flat_map(|role| &role.applications).collect();
    let mut body = br#"{"cluster":"#.to_vec();
    body.extend(items(allowance, &cluster, |name| json!(name))?);
    body.extend_from_slice(br#","global":[],"indices":"#);
    body.extend(items(allowance, &indices, |grant| entry(grant))?);
    body.extend_from_slice(br#","applications":"#);
    body.extend(items(allowance, &applications, |application| Value::clone(application))?);
    body.extend_from_slice(br#","run_as":[]}"#);
    Ok(body)
}

fn entry(grant: &IndexGrant) -> Value {
    let mut entry = json!({
        "names": grant.names,
        "privileges": grant.privileges,
        "allow_restricted_indices": grant.allow_restricted_indices,
    });
    if let Some(fields) = &grant.field_security {
        entry["field_security"] = json!([{ "grant": fields.grant, "except": fields.except }]);
    }
    if let Some(query) = &grant.query {
        entry["query"] = json!([query]);
    }
    entry
}

/// Lists the names of privileges.
pub(crate) async fn builtin(request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let names = |over| privilege_names(over).collect::<BTreeSet<_>>();
    Ok(Response::json(
        200,
        json!({ "cluster": names(PrivilegeScope::Cluster), "index": names(PrivilegeScope::Indices) }),
    ))
}

/// Says whether the caller, or a user, has privileges.
pub(crate) async fn has(api: &Api, request: &mut Request, user: Option<&str>) -> Result<Response, Error> {
    request.finish()?;
    let mut form = BodyMembers::read("privileges", request)?;
    let (cluster, index) = (form.texts("cluster")?, entries("index", form.take("index"))?);
    let applications = entries("application", form.take("application"))?;
    form.finish()?;
    if cluster.is_none() && index.is_empty() && applications.is_empty() {
        return Err(Error::validation(&["at least one of [cluster, index, application] is required"]));
    }
    let principal = match user.filter(|user| Some(*user) != api.user()) {
        None => api.session.principal().clone(),
        Some(user) => {
            api.need(Action::GetSecurity)?;
            let unknown = || Error::resource_not_found(format!("user [{user}] not found"));
            api.accounts.find_principal(user).await?.ok_or_else(unknown)?
        }
    };
    let mut questions =
        Questions { cluster: bounded("cluster", cluster.unwrap_or_default())?, ..Questions::default() };
    for mut entry in index {
        let (names, privileges) = (required(&mut entry, "names")?, required(&mut entry, "privileges")?);
        // What is asked of a name is what it says, restricted or not.
        entry.boolean("allow_restricted_indices")?;
        entry.finish()?;
        questions.indices.push((names, privileges));
    }
    for mut entry in applications {
        let application = bounded("application", vec![entry.required("application")?])?.remove(0);
        let (privileges, resources) =
            (required(&mut entry, "privileges")?, required(&mut entry, "resources")?);
        entry.finish()?;
        questions.applications.push((application, privileges, resources));
    }
    let asked = PrivilegeCheck { principal, accounts: api.accounts.clone(), left: MAX_ASKED, all: true };
    // Each is asked of all that roles grant.
    let answers = move || Ok(asked.answers(questions));
    Ok(Response::json(200, api.session.compute().run(Priority::Foreground, answers).await??))
}

/// Questions about privileges, each with its privileges.
#[derive(Default)]
struct Questions {
    /// Privileges of the cluster.
    cluster: Vec<String>,
    /// Names of indices.
    indices: Vec<(Vec<String>, Vec<String>)>,
    /// Applications, and at the end their resources.
    applications: Vec<(String, Vec<String>, Vec<String>)>,
}

fn entries(name: &'static str, value: Option<Value>) -> Result<Vec<BodyMembers>, Error> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(entries)) => {
            entries.into_iter().map(|entry| BodyMembers::new(name, entry)).collect()
        }
        Some(other) => Err(super::form::expected(name, "an array", &other)),
    }
}

/// Refuses texts that are longer than what they name can be: each is answered with, and asked for, many times.
fn bounded(name: &str, texts: Vec<String>) -> Result<Vec<String>, Error> {
    match texts.iter().any(|text| text.len() > MAX_TEXT) {
        true => Err(Error::illegal_argument(format!("[{name}] has a text of more than [{MAX_TEXT}] bytes"))),
        false => Ok(texts),
    }
}

fn required(entry: &mut BodyMembers, name: &str) -> Result<Vec<String>, Error> {
    match entry.take(name) {
        Some(value) => bounded(name, texts(name, value)?),
        None => Err(Error::validation(&[format!("[{name}] is missing")])),
    }
}

/// Adds answers to those for the same name.
fn merge(to: &mut Map<String, Value>, name: String, answers: Map<String, Value>) {
    match to.get_mut(&name) {
        Some(Value::Object(known)) => known.extend(answers),
        _ => {
            to.insert(name, Value::Object(answers));
        }
    }
}

/// Answers questions about a principal's privileges.
struct PrivilegeCheck {
    principal: Principal,
    accounts: Accounts,
    /// Number of questions that may follow.
    left: usize,
    /// `true` if the answer was yes so far.
    all: bool,
}

impl PrivilegeCheck {
    fn answers(mut self, questions: Questions) -> Result<Value, Error> {
        let mut of_cluster = Map::new();
        for name in questions.cluster {
            let held = self.cluster(&name)?;
            of_cluster.insert(name, json!(held));
        }
        let mut of_indices = Map::new();
        for (names, privileges) in questions.indices {
            for name in names {
                let held: Result<Map<_, _>, Error> = privileges
                    .iter()
                    .map(|privilege| Ok((privilege.clone(), json!(self.index(&name, privilege)?))))
                    .collect();
                merge(&mut of_indices, name, held?);
            }
        }
        let mut of_applications = Map::new();
        for (application, privileges, resources) in questions.applications {
            let mut of_resources = Map::new();
            for resource in resources {
                let held: Result<Map<_, _>, Error> = privileges
                    .iter()
                    .map(|privilege| {
                        let held = self.application(&application, privilege, &resource)?;
                        Ok((privilege.clone(), json!(held)))
                    })
                    .collect();
                merge(&mut of_resources, resource, held?);
            }
            merge(&mut of_applications, application, of_resources);
        }
        Ok(json!({
            "username": self.principal.name(),
            "has_all_requested": self.all,
            "cluster": of_cluster,
            "index": of_indices,
            "application": of_applications,
        }))
    }

    fn cluster(&mut self, name: &str) -> Result<bool, Error> {
        let set = requested_actions(PrivilegeScope::Cluster, name)?;
        let privileges = self.principal.privileges();
        self.answer(set.iter().all(|action| privileges.allows(action)))
    }

    fn index(&mut self, name: &str, privilege: &str) -> Result<bool, Error> {
        let set = requested_actions(PrivilegeScope::Indices, privilege)?;
        let privileges = self.principal.privileges();
        let on = |name: &str| {
            let allowed = privileges.on(name);
            set.iter().all(|action| allowed.allows(action))
        };
        let held = match name.contains('*') {
            false => on(name),
            true => STANDS_FOR.iter().all(|text| on(&name.replace('*', text))),
        };
        self.answer(held)
    }

    /// Privileges of applications are kept for them: a user with all of the cluster has them all.
    fn application(&mut self, application: &str, privilege: &str, resource: &str) -> Result<bool, Error> {
        let all = requested_actions(PrivilegeScope::Cluster, "all")?;
        let privileges = self.principal.privileges();
        let held = all.iter().all(|action| privileges.allows(action))
            || self.principal.roles().iter().filter_map(|role| self.accounts.role(role)).any(|role| {
                role.applications.iter().any(|entry| {
                    let one = |member: &str, text: &str| {
                        let value = entry.get(member);
                        let takes = |value: &Value| {
                            value
                                .as_str()
                                .is_some_and(|pattern| millrace_mapping::pattern::matches(pattern, text))
                        };
                        match value {
                            Some(Value::Array(values)) => values.iter().any(takes),
                            Some(value) => takes(value),
                            None => false,
                        }
                    };
                    one("application", application)
                        && (one("privileges", privilege) || one("privileges", "all"))
                        && one("resources", resource)
                })
            });
        self.answer(held)
    }

    fn answer(&mut self, held: bool) -> Result<bool, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(Error::illegal_argument(format!("more than [{MAX_ASKED}] privileges are asked for")));
        };
        (self.left, self.all) = (left, self.all && held);
        Ok(held)
    }
}

/// Returns the actions of a privilege. One for what this server has not is had by who has all.
fn requested_actions(over: PrivilegeScope, name: &str) -> Result<ActionSet, Error> {
    let set = privilege(over, name)?;
    if set.is_empty() && name != "none" { Ok(privilege(over, "all")?) } else { Ok(set) }
}
