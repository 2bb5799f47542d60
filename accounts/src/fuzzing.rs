//! Entry points of fuzzers: bytes go through a parser of this crate, and its result is used as a request would use it.

use http::{HeaderMap, HeaderValue};

use crate::privileges::{AnyQuery, CompiledRole};
use crate::{Credentials, Role};

/// The value of an authorization header.
pub fn credentials(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    for name in ["authorization", "token"] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.clone());
        let _ = Credentials::read(&headers);
    }
}

/// The body of a role, in either form.
pub fn role(data: &[u8]) {
    let Ok(body) = serde_json::from_slice(data) else { return };
    for role in [Role::from_elasticsearch(&body), Role::from_opensearch(&body)].into_iter().flatten() {
        if role.check(&AnyQuery).is_err() {
            continue;
        }
        assert!(CompiledRole::new(&role).is_ok(), "a role that passes is not understood: {role:?}");
        let again = Role::from_elasticsearch(&role.to_elasticsearch());
        assert!(again.is_ok(), "what a role is answered with is not read: {role:?}");
    }
}
