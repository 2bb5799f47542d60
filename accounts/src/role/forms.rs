//! Roles in the forms that Elasticsearch and OpenSearch have for them.

use serde_json::{Map, Value, json};

use super::{FieldSecurity, IndexGrant, Role, unknown_member};
use crate::error::{Error, Result};

impl Role {
    /// Reads the body that Elasticsearch puts a role with, which is also that of a descriptor of an API key's.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is malformed or not known, and for what this server has not: other users' names to run
    /// as, and clusters elsewhere.
    pub fn from_elasticsearch(body: &Value) -> Result<Self> {
        let mut role = Self::default();
        for (member, value) in object("role", body)? {
            match member.as_str() {
                "description" => role.description = text(member, value)?,
                "cluster" => role.cluster = texts(member, value)?,
                "index" | "indices" => {
                    let grants = array(member, value)?.iter().map(elasticsearch_grant);
                    role.indices.extend(grants.collect::<Result<Vec<_>>>()?);
                }
                "applications" => role.applications = array(member, value)?.clone(),
                "metadata" => role.metadata = object(member, value)?.clone(),
                "transient_metadata" => {}
                "run_as" | "remote_indices" | "remote_cluster" | "global" | "restriction" => {
                    absent(member, value)?
                }
                _ => return Err(unknown_member("role", member)),
            }
        }
        Ok(role)
    }

    /// Writes it as Elasticsearch answers with it.
    pub fn to_elasticsearch(&self) -> Value {
        let grant = |grant: &IndexGrant| {
            let mut body = json!({"names": grant.names, "privileges": grant.privileges});
            if let Some(fields) = &grant.field_security {
                body["field_security"] = match fields.except.is_empty() {
                    true => json!({"grant": fields.grant}),
                    false => json!({"grant": fields.grant, "except": fields.except}),
                };
            }
            if let Some(query) = &grant.query {
                body["query"] = json!(query);
            }
            body["allow_restricted_indices"] = json!(grant.allow_restricted_indices);
            body
        };
        let mut metadata = self.metadata.clone();
        if self.reserved {
            metadata.insert("_reserved".to_owned(), json!(true));
        }
        let mut body = json!({
            "cluster": self.cluster,
            "indices": self.indices.iter().map(grant).collect::<Vec<_>>(),
            "applications": self.applications,
            "run_as": [],
            "metadata": metadata,
            "transient_metadata": {"enabled": true},
        });
        if !self.description.is_empty() {
            body["description"] = json!(self.description);
        }
        body
    }

    /// Reads the body that OpenSearch puts a role with.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is malformed or not known, and for masked fields, which this server has not.
    pub fn from_opensearch(body: &Value) -> Result<Self> {
        let mut role = Self::default();
        for (member, value) in object("role", body)? {
            match member.as_str() {
                "description" => role.description = text(member, value)?,
                "cluster_permissions" => role.cluster = texts(member, value)?,
                "index_permissions" => {
                    let grants = array(member, value)?.iter().map(opensearch_grant);
                    role.indices = grants.collect::<Result<_>>()?;
                }
                "tenant_permissions" => role.tenants = array(member, value)?.clone(),
                // As it is answered with.
                "reserved" | "hidden" | "static" => {}
                _ => return Err(unknown_member("role", member)),
            }
        }
        Ok(role)
    }

    /// Takes over of the role before what OpenSearch's form has no words for: applications, metadata, and that an entry reaches
    /// system indices. That is kept only by an entry that is said again exactly as it was, privileges, documents and fields
    /// included; one that says anything else never comes to it unsaid.
    #[must_use]
    pub fn said_again(mut self, before: &Self) -> Self {
        // As the form says it.
        let known: Vec<_> = match Self::from_opensearch(&before.to_opensearch()) {
            Ok(written) => written.indices.into_iter().zip(&before.indices).collect(),
            Err(_) => Vec::new(),
        };
        for grant in &mut self.indices {
            let mut same = known.iter().filter(|(written, _)| written == grant).peekable();
            let is_known = same.peek().is_some();
            let reaches = is_known && same.all(|(_, known)| known.allow_restricted_indices);
            grant.allow_restricted_indices = reaches;
        }
        Self { applications: before.applications.clone(), metadata: before.metadata.clone(), ..self }
    }

    /// Writes it as OpenSearch answers with it.
    pub fn to_opensearch(&self) -> Value {
        let grant = |grant: &IndexGrant| {
            let fields = grant.field_security.iter().flat_map(|fields| {
                if fields.grant.is_empty() {
                    // An empty list would show all.
                    return vec!["~*".to_owned()];
                }
                let except = fields.except.iter().map(|field| format!("~{field}"));
                // All of them is what it means without one.
                let grant = fields.grant.iter().filter(|field| *field != "*" || fields.except.is_empty());
                grant.cloned().chain(except).collect()
            });
            json!({
                "index_patterns": grant.names,
                "dls": grant.query,
                "fls": fields.collect::<Vec<_>>(),
                "masked_fields": [],
                "allowed_actions": grant.privileges,
            })
        };
        json!({
            "reserved": self.reserved,
            "hidden": false,
            "static": self.reserved,
            "description": self.description,
            "cluster_permissions": self.cluster,
            "index_permissions": self.indices.iter().map(grant).collect::<Vec<_>>(),
            "tenant_permissions": self.tenants,
        })
    }
}

fn elasticsearch_grant(body: &Value) -> Result<IndexGrant> {
    let mut grant = IndexGrant::default();
    for (member, value) in object("indices", body)? {
        match member.as_str() {
            "names" => grant.names = texts(member, value)?,
            "privileges" => grant.privileges = texts(member, value)?,
            "allow_restricted_indices" => {
                grant.allow_restricted_indices =
                    value.as_bool().ok_or_else(|| expected(member, "a boolean", value))?;
            }
            "query" => grant.query = query(member, value)?,
            "field_security" if value.is_null() => {}
            "field_security" => grant.field_security = Some(field_security(value)?),
            _ => return Err(unknown_member("indices", member)),
        }
    }
    Ok(grant)
}

fn field_security(body: &Value) -> Result<FieldSecurity> {
    let (mut grant, mut except) = (None, Vec::new());
    for (member, value) in object("field_security", body)? {
        match member.as_str() {
            "grant" => grant = Some(texts(member, value)?),
            "except" if value.is_null() => {}
            "except" => except = texts(member, value)?,
            _ => return Err(unknown_member("field_security", member)),
        }
    }
    match grant {
        Some(grant) => Ok(FieldSecurity { grant, except }),
        None => Err(Error::Invalid("field_security requires [grant], which may be [\"*\"]".to_owned())),
    }
}

fn opensearch_grant(body: &Value) -> Result<IndexGrant> {
    let mut grant = IndexGrant::default();
    for (member, value) in object("index_permissions", body)? {
        match member.as_str() {
            "index_patterns" => grant.names = texts(member, value)?,
            "allowed_actions" => grant.privileges = texts(member, value)?,
            "dls" => grant.query = query(member, value)?,
            "fls" if value.is_null() => {}
            "fls" => {
                let (except, granted): (Vec<_>, Vec<_>) =
                    texts(member, value)?.into_iter().partition(|field| field.starts_with(['~', '!']));
                let except: Vec<_> = except.iter().map(|field| field[1..].to_owned()).collect();
                grant.field_security = match (granted.is_empty(), except.is_empty()) {
                    (true, true) => None,
                    (true, false) => Some(FieldSecurity { grant: vec!["*".to_owned()], except }),
                    _ => Some(FieldSecurity { grant: granted, except }),
                };
            }
            "masked_fields" => absent(member, value)?,
            _ => return Err(unknown_member("index_permissions", member)),
        }
    }
    Ok(grant)
}

/// A query, as an object or as its text; a text without anything is none.
fn query(member: &str, value: &Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Object(_) => Ok(Some(value.to_string())),
        _ => Err(expected(member, "an object or its text", value)),
    }
}

/// Takes a member for what this server has not, where it asks for nothing.
fn absent(member: &str, value: &Value) -> Result<()> {
    let is_empty = match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    match is_empty {
        true => Ok(()),
        false => Err(Error::Invalid(format!("[{member}] is not available on this server"))),
    }
}

fn object<'a>(member: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| expected(member, "an object", value))
}

fn array<'a>(member: &str, value: &'a Value) -> Result<&'a Vec<Value>> {
    value.as_array().ok_or_else(|| expected(member, "an array", value))
}

fn text(member: &str, value: &Value) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(expected(member, "a string", value)),
    }
}

/// Strings, of which one may stand alone.
fn texts(member: &str, value: &Value) -> Result<Vec<String>> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(values) => {
            let text = |value: &Value| match value {
                Value::String(text) => Ok(text.clone()),
                other => Err(expected(member, "strings", other)),
            };
            values.iter().map(text).collect()
        }
        _ => Err(expected(member, "an array of strings", value)),
    }
}

fn expected(member: &str, what: &str, value: &Value) -> Error {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Error::Invalid(format!("[{member}] must be {what}, found {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::AnyQuery;

    #[test]
    fn forms_are_read_and_written() {
        let body = json!({
            "cluster": ["monitor"],
            "indices": [{
                "names": "logs-*",
                "privileges": ["read"],
                "query": {"term": {"a": 1}},
                "field_security": {"grant": ["*"], "except": ["secret"]},
            }],
            "run_as": [],
            "metadata": {"a": 1},
        });
        let role = Role::from_elasticsearch(&body).unwrap();
        role.check(&AnyQuery).unwrap();
        assert_eq!(role.indices[0].query.as_deref(), Some(r#"{"term":{"a":1}}"#));
        assert_eq!(Role::from_elasticsearch(&role.to_elasticsearch()).unwrap(), role);
        let opensearch = role.to_opensearch();
        assert_eq!(opensearch["index_permissions"][0]["fls"], json!(["~secret"]));
        let again = Role::from_opensearch(&opensearch).unwrap();
        assert_eq!((again.indices, again.cluster), (role.indices, role.cluster));
    }

    #[test]
    fn system_indices_are_reached_on_by_entries_that_stay_as_they_are() {
        let entry = |names: &[&str], privileges: &[&str], reaches: bool| json!({"names": names, "privileges": privileges, "allow_restricted_indices": reaches});
        let before = |indices: Value| Role::from_elasticsearch(&json!({ "indices": indices })).unwrap();
        let say = |before: &Role, change: &dyn Fn(&mut Value)| {
            let mut body = before.to_opensearch();
            change(&mut body);
            let said = Role::from_opensearch(&body).unwrap().said_again(before);
            said.indices.iter().map(|grant| grant.allow_restricted_indices).collect::<Vec<_>>()
        };
        let audit = before(json!([entry(&[".audit-*"], &["read"], true), entry(&["logs"], &["all"], false)]));
        assert_eq!(say(&audit, &|_| {}), [true, false]);
        let description = |body: &mut Value| body["description"] = json!("another");
        assert_eq!(say(&audit, &description), [true, false]);
        for (path, value) in [
            ("/index_permissions/0/index_patterns", json!([".audit-*", "*"])),
            ("/index_permissions/0/allowed_actions", json!(["all"])),
            ("/index_permissions/0/dls", json!("{\"match_all\":{}}")),
            ("/index_permissions/0/fls", json!(["~user"])),
        ] {
            let change = |body: &mut Value| *body.pointer_mut(path).unwrap() = value.clone();
            assert_eq!(say(&audit, &change), [false, false], "{path}");
        }
        // Of equal patterns the one does not lend to the other.
        let two = before(json!([entry(&["*"], &["read"], true), entry(&["*"], &["all"], false)]));
        assert_eq!(say(&two, &|_| {}), [true, false]);
        let twice = before(json!([entry(&["*"], &["read"], true), entry(&["*"], &["read"], false)]));
        assert_eq!(say(&twice, &|_| {}), [false, false], "it cannot be told which is which");
    }

    #[test]
    fn no_fields_stay_none() {
        let none =
            json!({"indices": [{"names": "a", "privileges": "read", "field_security": {"grant": []}}]});
        let role = Role::from_elasticsearch(&none).unwrap();
        let again = Role::from_opensearch(&role.to_opensearch()).unwrap();
        for role in [role, again] {
            let fields = role.indices[0].field_security.as_ref().unwrap();
            let rules = millrace_mapping::fields::FieldRules::new(&fields.grant, &fields.except);
            assert!(!rules.shows("a"), "{fields:?}");
        }
    }

    #[test]
    fn what_is_not_available_is_named() {
        for (body, reason) in [
            (json!({"run_as": ["x"]}), "[run_as] is not available on this server"),
            (json!({"remote_indices": [{}]}), "[remote_indices] is not available on this server"),
            (json!({"clusters": []}), "unexpected member [clusters] in role"),
            (json!({"cluster": 1}), "[cluster] must be an array of strings, found a number"),
            (json!({"indices": [{"names": [1]}]}), "[names] must be strings, found a number"),
            (
                json!({"indices": [{"field_security": {"except": ["a"]}}]}),
                "field_security requires [grant], which may be [\"*\"]",
            ),
            (json!([]), "[role] must be an object, found an array"),
        ] {
            assert_eq!(Role::from_elasticsearch(&body).unwrap_err().to_string(), reason, "{body}");
        }
        let body = json!({"index_permissions": [{"masked_fields": ["a"]}]});
        let error = Role::from_opensearch(&body).unwrap_err().to_string();
        assert_eq!(error, "[masked_fields] is not available on this server");
    }
}
