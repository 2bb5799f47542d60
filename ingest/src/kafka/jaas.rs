//! Logins as Java writes them: `…PlainLoginModule required username="a" password="b";`.
//!
//! [`login`] reads a user and a password, [`client_credentials`] the credentials of a client of OAuth.

/// User and password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Reads the login of a module for user and password.
///
/// # Errors
/// What is missing, without secrets.
pub(super) fn login(text: &str) -> Result<Login, String> {
    let wanted = "[sasl_jaas_config] must read org.apache.kafka.common.security.scram.ScramLoginModule required username=\"…\" password=\"…\";";
    let module = text.split_whitespace().find(|word| word.ends_with("LoginModule"));
    if let Some(module) = module.filter(|module| !module.contains("Plain") && !module.contains("Scram")) {
        return Err(format!("the login module [{module}] is not supported; {wanted}"));
    }
    let members = members(text).ok_or_else(|| format!("a quote is not closed; {wanted}"))?;
    match (member(&members, "username"), member(&members, "password")) {
        (Some(username), Some(password)) => Ok(Login { username, password }),
        (None, _) => Err(format!("there is no username; {wanted}")),
        (_, None) => Err(format!("there is no password; {wanted}")),
    }
}

/// Credentials of a client of OAuth.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ClientCredentials {
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scope: Option<String>,
}

/// Reads the login of a module for tokens.
///
/// # Errors
/// The missing member, without secrets.
pub(super) fn client_credentials(text: &str) -> Result<ClientCredentials, String> {
    let wanted = "[sasl_jaas_config] must read org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=\"…\" clientSecret=\"…\" scope=\"…\";";
    let module = text.split_whitespace().find(|word| word.ends_with("LoginModule"));
    if let Some(module) = module.filter(|module| !module.contains("OAuthBearer")) {
        return Err(format!("the login module [{module}] has no tokens; {wanted}"));
    }
    let members = members(text).ok_or_else(|| format!("a quote is not closed; {wanted}"))?;
    if let Some((name, _)) = members.iter().find(|(name, _)| name.starts_with("extension_")) {
        return Err(format!("SASL extensions such as [{name}] are not supported"));
    }
    match (member(&members, "clientId"), member(&members, "clientSecret")) {
        (Some(client_id), Some(client_secret)) => {
            Ok(ClientCredentials { client_id, client_secret, scope: member(&members, "scope") })
        }
        (None, _) => Err(format!("there is no clientId; {wanted}")),
        (_, None) => Err(format!("there is no clientSecret; {wanted}")),
    }
}

/// Returns the last value of a name.
fn member(members: &[(String, String)], name: &str) -> Option<String> {
    members.iter().rev().find(|(have, _)| have == name).map(|(_, value)| value.clone())
}

/// Reads names and values up to the end of the first module; `None` where a quote is not closed.
fn members(text: &str) -> Option<Vec<(String, String)>> {
    let mut members = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.trim_end().rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let (value, length) = value(after.trim_start())?;
        members.push((name.to_owned(), value));
        rest = after.trim_start().get(length..).unwrap_or("");
        // The end of the module; another may follow.
        if rest.trim_start().starts_with(';') {
            break;
        }
    }
    Some(members)
}

/// A quoted or bare value and its length in the text.
fn value(text: &str) -> Option<(String, usize)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
        return Some((text.get(..end)?.to_owned(), end));
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.push(chars.next()?.1),
            c if c == quote => return Some((value, at + 1)),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_and_password_are_found() {
        for (text, username, password) in [
            (
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";",
                "a",
                "b",
            ),
            (
                "org.apache.kafka.common.security.scram.ScramLoginModule required\n username='a b'\n password = \"q\\\"=;\" ;",
                "a b",
                "q\"=;",
            ),
            ("x.PlainLoginModule required serviceName=\"kafka\" username=a password=b;", "a", "b"),
            (
                " { x.PlainLoginModule required username=\"a\" password=\"b\"; }; Client { y required username=\"c\" password=\"d\"; };",
                "a",
                "b",
            ),
        ] {
            let login = login(text).expect(text);
            assert_eq!((login.username.as_str(), login.password.as_str()), (username, password));
        }
    }

    #[test]
    fn what_is_missing_is_named_without_secrets() {
        for text in [
            "",
            "x.PlainLoginModule required password=\"secret\";",
            "x.PlainLoginModule required username=\"u\" password=\"secret",
            "com.sun.security.auth.module.Krb5LoginModule required username=\"u\" password=\"secret\";",
        ] {
            let error = login(text).expect_err(text);
            assert!(!error.contains("secret") && error.contains("sasl_jaas_config"), "{error}");
        }
    }

    #[test]
    fn credentials_of_a_client_are_found() {
        let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";
        let found = client_credentials(&format!("{module} clientId=\"a\" clientSecret='b' scope=\"c d\";"))
            .unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((found.client_id.as_str(), found.client_secret.as_str()), ("a", "b"));
        assert_eq!(found.scope.as_deref(), Some("c d"));
        for (members, fault) in [
            ("clientId=a", "no clientSecret"),
            ("clientSecret=secret", "no clientId"),
            ("clientId=a clientSecret=secret extension_cluster=x", "[extension_cluster]"),
        ] {
            let told = client_credentials(&format!("{module} {members};")).err().unwrap_or_default();
            assert!(told.contains(fault) && !told.contains("secret "), "{told}");
        }
        assert!(client_credentials("x.PlainLoginModule required clientId=a clientSecret=b;").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z =\"'\\\\;.é]{0,60}") {
            let _ = login(&text);
        }
    }
}
