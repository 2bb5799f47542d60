//! Media types: the type of a request body, and the type that the client wants back.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};

use crate::error::Error;

/// A format that bodies come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One value.
    Json,
    /// Values, one a line.
    NdJson,
    /// A document of YAML.
    Yaml,
}

/// A media type that this server reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaType {
    /// The format of its values.
    pub format: Format,
    /// `compatible-with` of the vendor form, 7 to 9.
    pub(crate) compatible_with: Option<u8>,
}

impl MediaType {
    /// `application/json`.
    pub(crate) const JSON: Self = Self { format: Format::Json, compatible_with: None };

    /// Parses one media type; `None` for those that are not served.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next()?.to_ascii_lowercase();
        let mut compatible_with = None;
        for parameter in parts {
            if let Some((key, value)) = parameter.split_once('=')
                && key.trim().eq_ignore_ascii_case("compatible-with")
            {
                compatible_with =
                    Some(value.trim().trim_matches('"').parse().ok().filter(|n| (7..=9).contains(n))?);
            }
        }
        let (format, vendor) = match name.as_str() {
            "application/json" | "text/json" => (Format::Json, false),
            "application/x-ndjson" | "application/ndjson" => (Format::NdJson, false),
            "application/yaml" | "application/x-yaml" | "text/yaml" => (Format::Yaml, false),
            "application/vnd.elasticsearch+json" => (Format::Json, true),
            "application/vnd.elasticsearch+x-ndjson" => (Format::NdJson, true),
            "application/vnd.elasticsearch+yaml" => (Format::Yaml, true),
            _ => return None,
        };
        Some(Self { format, compatible_with: compatible_with.filter(|_| vendor) })
    }

    /// Returns the `Content-Type` of an answer of this type.
    pub(crate) fn content_type(self) -> String {
        let (plain, vendor) = match self.format {
            Format::Json | Format::NdJson => ("application/json; charset=UTF-8", "json"),
            Format::Yaml => ("application/yaml", "yaml"),
        };
        match self.compatible_with {
            Some(version) => format!("application/vnd.elasticsearch+{vendor};compatible-with={version}"),
            None => plain.to_owned(),
        }
    }
}

/// Determines the format of a request body.
pub(crate) fn of_request(headers: &HeaderMap) -> Result<MediaType, Error> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Err(Error::content_type("Content-Type header is missing"));
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    MediaType::parse(&text)
        .ok_or_else(|| Error::content_type(format!("Content-Type header [{text}] is not supported")))
}

/// Determines the type of the answer: the first of `Accept` among those served, else the vendor form of the request's own type,
/// else JSON.
pub(crate) fn of_response(headers: &HeaderMap) -> MediaType {
    if let Some(accepted) = accepted(headers) {
        return accepted;
    }
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).and_then(MediaType::parse);
    match sent {
        Some(MediaType { compatible_with, .. }) => MediaType { compatible_with, ..MediaType::JSON },
        None => MediaType::JSON,
    }
}

/// Parses the type that `Accept` names first; `None` where that is another than the served ones.
pub(crate) fn preferred(headers: &HeaderMap) -> Option<MediaType> {
    headers.get(ACCEPT)?.to_str().ok()?.split(',').next().and_then(MediaType::parse)
}

/// Returns the type of text that `Accept` names first: `text/csv`, `text/tab-separated-values` or `text/plain`.
pub(crate) fn preferred_text(headers: &HeaderMap) -> Option<&'static str> {
    let first = headers.get(ACCEPT)?.to_str().ok()?.split(',').next()?;
    let name = first.split(';').next()?.trim();
    ["text/csv", "text/tab-separated-values", "text/plain"]
        .into_iter()
        .find(|known| name.eq_ignore_ascii_case(known))
}

/// Finds the first served type of `Accept`.
fn accepted(headers: &HeaderMap) -> Option<MediaType> {
    headers.get(ACCEPT)?.to_str().ok()?.split(',').find_map(MediaType::parse)
}

/// Returns whether the client takes gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|text| {
        text.split(',').any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
            let refused = parts.any(|p| p.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)));
            named && !refused
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_types_are_echoed() {
        for (text, expected) in [
            ("application/json", "application/json; charset=UTF-8"),
            ("application/json; charset=utf-8", "application/json; charset=UTF-8"),
            (
                "application/vnd.elasticsearch+json; compatible-with=8",
                "application/vnd.elasticsearch+json;compatible-with=8",
            ),
            (
                "application/vnd.elasticsearch+x-ndjson;compatible-with=9",
                "application/vnd.elasticsearch+json;compatible-with=9",
            ),
            ("application/yaml", "application/yaml"),
        ] {
            assert_eq!(MediaType::parse(text).unwrap().content_type(), expected, "{text}");
        }
        assert_eq!(MediaType::parse("application/vnd.elasticsearch+json;compatible-with=3"), None);
        assert_eq!(MediaType::parse("application/x-www-form-urlencoded"), None);
    }

    #[test]
    fn unsupported_types_are_named() {
        let mut headers = HeaderMap::new();
        assert_eq!(of_request(&headers).unwrap_err().reason(), "Content-Type header is missing");
        headers.insert(CONTENT_TYPE, "application/cbor".parse().unwrap());
        let error = of_request(&headers).unwrap_err();
        assert_eq!(error.reason(), "Content-Type header [application/cbor] is not supported");
        assert_eq!(error.status(), 406);
    }

    #[test]
    fn gzip_is_negotiated() {
        let mut headers = HeaderMap::new();
        assert!(!takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, "deflate, gzip;q=1.0".parse().unwrap());
        assert!(takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, "gzip;q=0".parse().unwrap());
        assert!(!takes_gzip(&headers));
    }

    #[test]
    fn accept_wins_over_content_type() {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            "application/vnd.elasticsearch+x-ndjson;compatible-with=8".parse().unwrap(),
        );
        assert_eq!(of_response(&headers).compatible_with, Some(8));
        headers.insert(ACCEPT, "text/html, application/yaml".parse().unwrap());
        assert_eq!(of_response(&headers).format, Format::Yaml);
    }
}
