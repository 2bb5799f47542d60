//! Users of a running server, over `_security`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::{NewUser, UserRow, Users, missing};
use crate::cli::PlaceArgs;
use crate::remote::{Remote, refusal};

/// Time to wait for an answer: as long as a server has to sync its catalog.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Members of a user that a request keeps beside its roles.
const KEPT: [&str; 4] = ["email", "full_name", "metadata", "enabled"];

/// A server that is asked.
#[derive(Debug)]
pub(super) struct Online(Remote);

impl Online {
    pub(super) fn new(place: &PlaceArgs) -> Result<Self> {
        Remote::new(&place.url, place.user.as_deref(), place.insecure_tls, TIMEOUT).map(Self)
    }

    /// Asks `_security/user` and what is below; nothing where the server does not find it.
    async fn ask(
        &self,
        method: Method,
        below: &[&str],
        body: Option<Value>,
    ) -> Result<Option<Map<String, Value>>> {
        self.ask_about("user", method, below, body).await
    }

    async fn ask_about(
        &self,
        kind: &str,
        method: Method,
        below: &[&str],
        body: Option<Value>,
    ) -> Result<Option<Map<String, Value>>> {
        let Remote { url: server, .. } = &self.0;
        let not_a_url = || format!("`{server}` is not a URL of a server");
        let mut url = Url::parse(server).with_context(not_a_url)?;
        // Whatever a name has in it is encoded here.
        let mut path = url.path_segments_mut().map_err(|()| anyhow!(not_a_url()))?;
        path.pop_if_empty().extend(["_security", kind]).extend(below);
        drop(path);
        let mut request = self.0.request(method, url);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| format!("cannot reach {server}"))?;
        let status = response.status();
        let text = response.text().await.context("cannot read the answer")?;
        let answer = serde_json::from_str::<Map<String, Value>>(&text).ok();
        match answer {
            Some(answer) if status.is_success() => Ok(Some(answer)),
            // A path that the server does not have is an error of another form.
            Some(answer) if status.as_u16() == 404 && !answer.contains_key("error") => Ok(None),
            _ => Err(anyhow!("{}", refusal(&text).unwrap_or_else(|| format!("{status}: {text}")))),
        }
    }

    /// Reads the record of a user.
    async fn record(&self, name: &str) -> Result<Option<Value>> {
        let answer = self.ask(Method::GET, &[name], None).await?;
        Ok(answer.and_then(|mut answer| answer.remove(name)))
    }
}

impl Users for Online {
    async fn list(&self) -> Result<Vec<UserRow>> {
        let answer = self.ask(Method::GET, &[], None).await?.unwrap_or_default();
        let mut users: Vec<_> = answer.iter().map(|(name, record)| listed(name, record)).collect();
        users.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(users)
    }

    async fn find(&self, name: &str) -> Result<Option<UserRow>> {
        Ok(self.record(name).await?.map(|record| listed(name, &record)))
    }

    async fn add(&self, name: &str, user: NewUser<'_>, password: &str) -> Result<()> {
        let mut body = json!({ "password": password, "roles": user.roles });
        for (member, text) in [("email", user.email), ("full_name", user.full_name)] {
            if let Some(text) = text {
                body[member] = text.into();
            }
        }
        self.ask(Method::PUT, &[name], Some(body)).await?.map(drop).ok_or_else(|| missing(name))
    }

    async fn set_password(&self, name: &str, password: &str) -> Result<()> {
        let body = json!({ "password": password });
        let answer = self.ask(Method::POST, &[name, "_password"], Some(body)).await?;
        answer.map(drop).ok_or_else(|| missing(name))
    }

    async fn set_roles(&self, name: &str, roles: Vec<String>) -> Result<()> {
        let record = self.record(name).await?.ok_or_else(|| missing(name))?;
        // What is put replaces all but the password.
        let mut body = json!({ "roles": roles });
        for member in KEPT {
            if let Some(value) = record.get(member).filter(|value| !value.is_null()) {
                body[member] = value.clone();
            }
        }
        self.ask(Method::PUT, &[name], Some(body)).await?.map(drop).ok_or_else(|| missing(name))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.ask(Method::DELETE, &[name], None).await?.map(drop).ok_or_else(|| missing(name))
    }

    async fn has_role(&self, role: &str) -> Result<bool> {
        Ok(self.ask_about("role", Method::GET, &[role], None).await?.is_some())
    }
}

fn listed(name: &str, record: &Value) -> UserRow {
    let roles = record.get("roles").and_then(Value::as_array);
    UserRow {
        name: name.to_owned(),
        roles: roles.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        enabled: record.get("enabled").and_then(Value::as_bool).unwrap_or(true),
        email: record.get("email").and_then(Value::as_str).map(str::to_owned),
    }
}
