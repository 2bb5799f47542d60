//! Credentials in the headers of a request: read here, believed elsewhere.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Longest credentials considered, in bytes of the header.
pub(crate) const MAX_BYTES: usize = 4096;
/// Header of a login token.
const TOKEN: &str = "token";

/// Base64, with or without what fills up its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Credentials of a request.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Basic`.
    Basic {
        /// Name of a user.
        name: String,
        /// The password.
        password: String,
    },
    /// `Authorization: ApiKey`.
    ApiKey {
        /// Id of the key.
        id: String,
        /// Its secret.
        secret: String,
    },
    /// `Authorization: Bearer` or `token`.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { name, .. } => write!(f, "Basic({name:?})"),
            Self::ApiKey { id, .. } => write!(f, "ApiKey({id:?})"),
            Self::Token(_) => f.write_str("Token"),
        }
    }
}

impl Credentials {
    /// Reads the credentials of a request; `None` where it has none.
    ///
    /// # Errors
    /// What is wrong with them, without any of them.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, &'static str> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (authorization, more) = (values.next(), values.next().is_some());
        let mut values = headers.get_all(TOKEN).iter();
        let (token, more_tokens) = (values.next(), values.next().is_some());
        if more || more_tokens || (authorization.is_some() && token.is_some()) {
            return Err(
                "credentials are given more than once, send one of the headers authorization and token",
            );
        }
        let Some(value) = authorization.or(token) else { return Ok(None) };
        if value.len() > MAX_BYTES {
            return Err("credentials are too long");
        }
        let text = value.to_str().map_err(|_| "credentials have characters that are not allowed")?;
        if token.is_some() {
            return Self::token(text).map(Some);
        }
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        let read = match scheme.to_ascii_lowercase().as_str() {
            "basic" => {
                let (name, password) = pair(rest).ok_or("failed to decode basic authentication header")?;
                Self::Basic { name, password }
            }
            "apikey" => {
                let (id, secret) = pair(rest).ok_or("failed to decode API key, send base64 of id:api_key")?;
                Self::ApiKey { id, secret }
            }
            "bearer" => Self::token(rest)?,
            _ => return Err("unknown authorization scheme, use Basic, ApiKey or Bearer"),
        };
        Ok(Some(read))
    }

    fn token(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let is_token = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_token { Ok(Self::Token(text.to_ascii_lowercase())) } else { Err("malformed token") }
    }
}

/// Reads base64 of two texts with a colon between; the second may have more of them.
fn pair(encoded: &str) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    let (first, second) = text.split_once(':')?;
    Some((first.to_owned(), second.to_owned()))
}

/// Writes what `Authorization: ApiKey` takes.
pub(crate) fn encode_key(id: &str, secret: &str) -> String {
    BASE64.encode(format!("{id}:{secret}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Result<Option<Credentials>, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Credentials::read(&map)
    }

    fn basic(name: &str, password: &str) -> Credentials {
        Credentials::Basic { name: name.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn each_scheme_is_read() {
        assert_eq!(read(&[]), Ok(None));
        for value in ["Basic YW5uOmE6Yg==", "basic YW5uOmE6Yg", "BASIC  YW5uOmE6Yg== "] {
            assert_eq!(read(&[("authorization", value)]), Ok(Some(basic("ann", "a:b"))), "{value}");
        }
        let key = encode_key("id", "secret");
        let expected = Credentials::ApiKey { id: "id".to_owned(), secret: "secret".to_owned() };
        assert_eq!(read(&[("authorization", &format!("ApiKey {key}"))]), Ok(Some(expected)));
        let token = "0A".repeat(32);
        let expected = Ok(Some(Credentials::Token(token.to_lowercase())));
        assert_eq!(read(&[("authorization", &format!("Bearer {token}"))]), expected);
        assert_eq!(read(&[("token", &token)]), expected);
    }

    #[test]
    fn what_is_ambiguous_or_malformed_is_refused() {
        let token = "a".repeat(64);
        let long = format!("Basic {}", "A".repeat(MAX_BYTES));
        for headers in [
            &[("authorization", "Basic YTpi"), ("authorization", "Basic YTpi")][..],
            &[("authorization", "Basic YTpi"), ("token", &token)],
            &[("token", &token), ("token", &token)],
            &[("token", "abc")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Basic")],
            &[("authorization", "Basic ***")],
            &[("authorization", "Basic bm9jb2xvbg==")],
            &[("authorization", "Basic /zpi")],
            &[("authorization", "Digest YTpi")],
            &[("authorization", "")],
            &[("authorization", &long)],
        ] {
            assert!(read(headers).is_err(), "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_read_or_refused(value in proptest::collection::vec(32u8..=255, 0..200), token in any::<bool>()) {
            let Ok(value) = http::HeaderValue::from_bytes(&value) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            headers.insert(if token { "token" } else { "authorization" }, value);
            let _ = Credentials::read(&headers);
        }

        #[test]
        fn pairs_come_back(name in "[^:\\p{Cc}]{0,20}", password in "\\PC{0,20}") {
            let value = format!("Basic {}", encode_key(&name, &password));
            prop_assert_eq!(read(&[("authorization", &value)]), Ok(Some(basic(&name, &password))));
        }
    }
}
