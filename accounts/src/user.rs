//! Users, and roles that are mapped to them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::{
    MAX_PASSWORD_BYTES, check_count, check_metadata, check_name, check_names, check_text, too_long,
};

/// Attribute of a user that holds the subject of its certificates.
pub const CERTIFICATE_SUBJECT: &str = "certificate_subject";

/// Least characters of a password.
const MIN_PASSWORD_CHARS: usize = 6;

/// A user, but for its password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Names of its roles. One that is not there grants nothing.
    pub roles: Vec<String>,
    /// The role that the console shows it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_role: Option<String>,
    /// Groups of the user elsewhere, for role mappings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backend_roles: Vec<String>,
    /// Mail address of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Name among people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// Purpose of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Notes of its manager.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Further facts; [`CERTIFICATE_SUBJECT`] among them is looked at.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// `true` if it may come in.
    pub enabled: bool,
}

impl Default for User {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            default_role: None,
            backend_roles: Vec::new(),
            email: None,
            full_name: None,
            description: None,
            metadata: Map::new(),
            attributes: BTreeMap::new(),
            enabled: true,
        }
    }
}

impl User {
    /// Checks that it can be put.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`].
    pub fn check(&self) -> Result<()> {
        check_names("roles of a user", "role", &self.roles)?;
        check_names("backend roles", "backend role", &self.backend_roles)?;
        let texts = [
            ("default role", &self.default_role),
            ("email", &self.email),
            ("full name", &self.full_name),
            ("description", &self.description),
        ];
        for (what, text) in texts {
            check_text(what, text.as_deref().unwrap_or_default())?;
        }
        if let Some(role) = self.default_role.as_ref().filter(|role| !self.roles.contains(role)) {
            return Err(Error::Invalid(format!("default role [{role}] is not one of the user's roles")));
        }
        check_metadata("metadata", &self.metadata)?;
        check_count("attributes of a user", self.attributes.len())?;
        check_metadata("attributes", &self.attributes)
    }

    /// Returns the subject of its certificates.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.attributes.get(CERTIFICATE_SUBJECT).map(String::as_str).filter(|subject| !subject.is_empty())
    }
}

/// Checks a password that somebody chose.
///
/// # Errors
/// [`Error::Invalid`] that says what it must be.
pub fn check_password(password: &str) -> Result<()> {
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(too_long("password", password.len(), MAX_PASSWORD_BYTES));
    }
    if password.chars().count() < MIN_PASSWORD_CHARS {
        return Err(Error::Invalid(format!(
            "passwords must be at least [{MIN_PASSWORD_CHARS}] characters long"
        )));
    }
    Ok(())
}

/// Users that have a role beside those whose record says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapping {
    /// Purpose of the mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Users, by names with wildcards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Users of one of these backend roles, with wildcards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backend_roles: Vec<String>,
    /// Users of all of these backend roles, with wildcards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub and_backend_roles: Vec<String>,
    /// Addresses, with wildcards, whose users have the role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl Mapping {
    /// Checks that it can be put.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`].
    pub fn check(&self) -> Result<()> {
        check_text("description", self.description.as_deref().unwrap_or_default())?;
        check_names("users", "user", &self.users)?;
        check_names("backend roles", "backend role", &self.backend_roles)?;
        check_names("backend roles", "backend role", &self.and_backend_roles)?;
        check_count("hosts", self.hosts.len())?;
        self.hosts.iter().try_for_each(|host| {
            check_name("host", host)?;
            if host.contains('*') || host.parse::<IpAddr>().is_ok() {
                return Ok(());
            }
            Err(Error::Invalid(format!("host [{host}] must be an address, which may have wildcards")))
        })
    }

    /// Writes hosts as they are compared.
    pub(crate) fn canonical(mut self) -> Self {
        self.hosts = self.hosts.iter().map(|host| canonical_host(host)).collect();
        self
    }

    /// Returns whether a user has the role by this, wherever it comes from.
    pub(crate) fn takes(&self, name: &str, user: &User) -> bool {
        let has = |pattern: &String| user.backend_roles.iter().any(|role| matches(pattern, role));
        self.users.iter().any(|pattern| matches(pattern, name))
            || self.backend_roles.iter().any(has)
            || (!self.and_backend_roles.is_empty() && self.and_backend_roles.iter().all(has))
    }

    /// Returns the number of its entries.
    pub(crate) fn entries(&self) -> usize {
        self.users.len() + self.backend_roles.len() + self.and_backend_roles.len() + self.hosts.len()
    }
}

/// Writes a host of a role mapping as addresses are: an IPv4 address within IPv6 as the former, in lower case, and without zeros
/// that lead a group.
pub(crate) fn canonical_host(host: &str) -> String {
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("::ffff:") {
        // Without a dot it is no pattern of IPv4 addresses alone.
        Some(rest) if rest.contains('.') => rest.to_owned(),
        _ if host.contains(':') => {
            let group = |group: &str| match group.trim_start_matches('0') {
                "" if !group.is_empty() => "0".to_owned(),
                short if short.starts_with('*') => group.to_owned(),
                short => short.to_owned(),
            };
            host.split(':').map(group).collect::<Vec<_>>().join(":")
        }
        _ => host,
    }
}

/// Writes an address in each form that hosts of role mappings are compared with: an IPv6 address with its zeros, too, which
/// patterns may name.
pub(crate) fn texts_of(address: IpAddr) -> Vec<String> {
    let address = address.to_canonical();
    let mut texts = vec![address.to_string()];
    if let IpAddr::V6(address) = address {
        texts.push(address.segments().map(|group| format!("{group:x}")).join(":"));
    }
    texts
}

pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    millrace_mapping::pattern::matches(pattern, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn mappings_take_by_name_or_by_backend_roles() {
        let user = User { backend_roles: list(&["ops", "eu-west"]), ..User::default() };
        let takes = |mapping: Mapping| mapping.takes("ann", &user);
        assert!(takes(Mapping { users: list(&["ben", "a*"]), ..Mapping::default() }));
        assert!(takes(Mapping { backend_roles: list(&["x", "eu-*"]), ..Mapping::default() }));
        assert!(takes(Mapping { and_backend_roles: list(&["ops", "eu-*"]), ..Mapping::default() }));
        assert!(!takes(Mapping { and_backend_roles: list(&["ops", "us-*"]), ..Mapping::default() }));
        assert!(!takes(Mapping { users: list(&["an"]), hosts: list(&["*"]), ..Mapping::default() }));
    }

    #[test]
    fn hosts_are_compared_whatever_their_spelling() {
        for (host, canonical) in [
            ("::FFFF:10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.*", "10.0.*"),
            ("::ffff:*", "::ffff:*"),
            ("2001:DB8:0:0::0001", "2001:db8::1"),
            ("2001:0DB8:0000:*", "2001:db8:0:*"),
            ("FE80::*", "fe80::*"),
            ("*", "*"),
        ] {
            assert_eq!(canonical_host(host), canonical, "{host}");
            assert_eq!(canonical_host(canonical), canonical);
        }
        let takes = |host: &str, address: &str| {
            let texts = texts_of(address.parse().unwrap());
            texts.iter().any(|text| matches(&canonical_host(host), text))
        };
        assert!(takes("10.0.*", "::ffff:10.0.0.1") && takes("::FFFF:10.0.0.1", "10.0.0.1"));
        assert!(takes("2001:0db8:0:0:*", "2001:db8::1") && takes("2001:DB8::*", "2001:db8::1"));
        assert!(!takes("::ffff:*", "2001:db8::1") && !takes("10.0.*", "10.1.0.1"));
    }

    #[test]
    fn users_that_cannot_be_are_refused() {
        User { roles: list(&["a"]), default_role: Some("a".to_owned()), ..User::default() }.check().unwrap();
        for user in [
            User { default_role: Some("a".to_owned()), ..User::default() },
            User { roles: list(&["a\n"]), ..User::default() },
            User { roles: vec!["a".to_owned(); 1001], ..User::default() },
            User { email: Some("x".repeat(5000)), ..User::default() },
            User { attributes: [("a".to_owned(), "x".repeat(70_000))].into(), ..User::default() },
        ] {
            user.check().unwrap_err();
        }
        assert!(Mapping { hosts: list(&["example.org"]), ..Mapping::default() }.check().is_err());
        assert!(check_password("12345").is_err() && check_password("päßword").is_ok());
    }
}
