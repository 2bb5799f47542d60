//! `millrace user`: users made, changed, listed and deleted.
//!
//! [`Online`] asks a running server, [`Offline`] opens the data directory of a stopped one; both are [`Users`]. What was
//! done is said on stderr, so that a generated password is all of stdout.

mod offline;
mod online;
mod password;

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use serde_json::json;

use crate::cli::{RolesArgs, UserCommand};
use crate::exit::Failure;
use crate::logging;
use crate::serve::runtime;
use crate::sql::table;

use offline::Offline;
use online::Online;
use password::Password;

/// A user as it is shown.
#[derive(Debug)]
struct UserRow {
    name: String,
    roles: Vec<String>,
    enabled: bool,
    email: Option<String>,
}

/// Members of a new user, but for name and password.
#[derive(Debug)]
struct NewUser<'a> {
    roles: Vec<String>,
    email: Option<&'a str>,
    full_name: Option<&'a str>,
}

/// The users of a server.
trait Users {
    /// Lists them by name.
    async fn list(&self) -> Result<Vec<UserRow>>;
    /// Finds one.
    async fn find(&self, name: &str) -> Result<Option<UserRow>>;
    /// Makes one.
    async fn add(&self, name: &str, user: NewUser<'_>, password: &str) -> Result<()>;
    /// Sets the password of one.
    async fn set_password(&self, name: &str, password: &str) -> Result<()>;
    /// Replaces the roles of one.
    async fn set_roles(&self, name: &str, roles: Vec<String>) -> Result<()>;
    /// Deletes one.
    async fn delete(&self, name: &str) -> Result<()>;
    /// Returns whether there is a role.
    async fn has_role(&self, role: &str) -> Result<bool>;
}

/// Runs the command.
pub(crate) fn run(command: &UserCommand) -> Result<(), Failure> {
    logging::install("warn", false);
    // Before a store is opened: its file may not be there.
    let password = match command {
        UserCommand::Add { password, .. } | UserCommand::Passwd { password, .. } => {
            Password::read(password).map_err(Failure::other)?
        }
        _ => Password::default(),
    };
    let place = command.place();
    runtime(0)?.block_on(async {
        let Some(data) = &place.data else {
            let users = Online::new(place).map_err(Failure::other)?;
            return carry_out(&users, command, &password).await.map_err(Failure::other);
        };
        let users = Offline::open(data).await?;
        let done = carry_out(&users, command, &password).await;
        users.close().await?;
        done.map_err(Failure::other)
    })
}

async fn carry_out(users: &impl Users, command: &UserCommand, password: &Password) -> Result<()> {
    match command {
        UserCommand::Add { name, roles, email, full_name, .. } => {
            if users.find(name).await?.is_some() {
                bail!("user [{name}] is there already; `passwd` and `roles` change it");
            }
            let (email, full_name) = (email.as_deref(), full_name.as_deref());
            let user = NewUser { roles: distinct(roles), email, full_name };
            check_roles(users, &user.roles, &[]).await?;
            users.add(name, user, &password.text).await?;
            done(format_args!("user [{name}] is made"));
            password.show();
        }
        UserCommand::Passwd { name, .. } => {
            users.set_password(name, &password.text).await?;
            done(format_args!("the password of user [{name}] is set"));
            password.show();
        }
        UserCommand::Roles { name, change, .. } => {
            let user = users.find(name).await?.ok_or_else(|| missing(name))?;
            let roles = match changed(&user, change)? {
                Some(roles) => {
                    check_roles(users, &roles, &user.roles).await?;
                    users.set_roles(name, roles.clone()).await?;
                    roles
                }
                None => user.roles,
            };
            roles.iter().for_each(|role| say(role));
        }
        UserCommand::List { .. } => say(&draw(&users.list().await?)),
        UserCommand::Delete { name, .. } => {
            users.delete(name).await?;
            done(format_args!("user [{name}] is deleted"));
        }
    }
    Ok(())
}

/// Refuses roles that nobody has made, which would grant nothing, but for those that a user has already.
async fn check_roles(users: &impl Users, roles: &[String], has: &[String]) -> Result<()> {
    for role in roles.iter().filter(|role| !has.contains(role)) {
        if !users.has_role(role).await? {
            bail!("there is no role [{role}]: make it first (PUT /_security/role), or name another one");
        }
    }
    Ok(())
}

fn missing(name: &str) -> anyhow::Error {
    anyhow!("user [{name}] not found")
}

/// Roles in the order given, each once. What is between two commas may be nothing: `--set ''` leaves no role.
fn distinct(roles: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for role in roles.iter().map(|role| role.trim()).filter(|role| !role.is_empty()) {
        if !distinct.iter().any(|known| known == role) {
            distinct.push(role.to_owned());
        }
    }
    distinct
}

/// The roles that a user is to have, where they are to change.
fn changed(user: &UserRow, change: &RolesArgs) -> Result<Option<Vec<String>>> {
    if let Some(set) = &change.set {
        return Ok(Some(distinct(set)));
    }
    if let Some(add) = &change.add {
        return Ok(Some(distinct(&[user.roles.as_slice(), add].concat())));
    }
    let Some(remove) = &change.remove else { return Ok(None) };
    let remove = distinct(remove);
    if let Some(role) = remove.iter().find(|role| !user.roles.contains(role)) {
        bail!("user [{}] does not have role [{role}]", user.name);
    }
    Ok(Some(user.roles.iter().filter(|role| !remove.contains(role)).cloned().collect()))
}

fn draw(users: &[UserRow]) -> String {
    let rows: Vec<_> = users
        .iter()
        .map(|user| {
            let email = user.email.as_deref().unwrap_or_default();
            json!([user.name, user.roles.join(", "), user.enabled, email])
        })
        .collect();
    let columns =
        ["name", "roles", "enabled", "email"].map(|name| json!({ "name": name, "type": "keyword" }));
    table::draw(&json!({ "schema": columns, "datarows": rows }))
}

/// Writes a line to stdout; a reader that has gone away is not a failure.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Reports the change.
fn done(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(roles: &[&str]) -> Vec<String> {
        roles.iter().map(|role| (*role).to_owned()).collect()
    }

    #[test]
    fn roles_are_set_added_and_removed() {
        let user = UserRow { name: "ann".to_owned(), roles: list(&["a", "b"]), enabled: true, email: None };
        let none = RolesArgs { set: None, add: None, remove: None };
        assert_eq!(changed(&user, &none).unwrap(), None);
        let set = RolesArgs { set: Some(list(&["c", " a", "c"])), ..none.clone() };
        assert_eq!(changed(&user, &set).unwrap(), Some(list(&["c", "a"])));
        let emptied = RolesArgs { set: Some(list(&[""])), ..none.clone() };
        assert_eq!(changed(&user, &emptied).unwrap(), Some(Vec::new()));
        let add = RolesArgs { add: Some(list(&["b", "c"])), ..none.clone() };
        assert_eq!(changed(&user, &add).unwrap(), Some(list(&["a", "b", "c"])));
        let remove = RolesArgs { remove: Some(list(&["a"])), ..none.clone() };
        assert_eq!(changed(&user, &remove).unwrap(), Some(list(&["b"])));
        let absent = RolesArgs { remove: Some(list(&["c"])), ..none };
        assert!(changed(&user, &absent).unwrap_err().to_string().contains("[c]"));
    }
}
