//! Detects requests from web pages of another origin.
//!
//! A listener on loopback without credentials trusts everybody on the machine, and a browser there lets any page
//! send requests to it. The browser says whose they are: in `Origin`, and by the name in `Host` that the page
//! made resolve to this machine. Where credentials are asked for, a browser adds those that it keeps, certificates too, whosever
//! page it is; it says so in `Origin` and `Sec-Fetch-Site`.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};

/// A header that names another machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header [{header}] with [{value}] is not of this machine, and no credentials are asked for")]
pub struct ForeignHeader {
    /// Name of the header.
    pub header: &'static str,
    /// Its value, shortened.
    pub value: String,
}

impl ForeignHeader {
    fn new(header: &'static str, value: &str) -> Self {
        Self { header, value: value.chars().take(100).collect() }
    }
}

/// Refuses a request that is not sent to this machine by one of its names: `localhost`, names below it, and
/// addresses of loopback. No name at all passes: a browser always gives one.
///
/// # Errors
/// [`ForeignHeader`] with the name.
pub fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignHeader> {
    let named = uri.authority().map(Authority::as_str).into_iter().map(str::as_bytes);
    for name in named.chain(headers.get_all(HOST).iter().map(http::HeaderValue::as_bytes)) {
        let name = String::from_utf8_lossy(name);
        if !name.is_empty() && !is_local(&name) {
            return Err(ForeignHeader::new("Host", &name));
        }
    }
    Ok(())
}

/// Refuses a request that a browser sends for a page of another machine.
///
/// # Errors
/// [`ForeignHeader`] with the page's origin.
pub fn check_origin(headers: &HeaderMap) -> Result<(), ForeignHeader> {
    for origin in headers.get_all(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if !origin.split_once("://").is_some_and(|(_, authority)| is_local(authority)) {
            return Err(ForeignHeader::new("Origin", &origin));
        }
    }
    Ok(())
}

/// Refuses a request that a browser sends for a page of another host than the one that is asked, or for one that came without TLS where
/// the request says that it is over TLS (HTTP/2). What is no browser does not say whose it is, and passes.
///
/// # Errors
/// [`ForeignHeader`] with the page's origin, or with what the browser says of it.
pub fn check_same_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignHeader> {
    if headers.get_all("sec-fetch-site").iter().any(|site| site == "cross-site") {
        return Err(ForeignHeader::new("Sec-Fetch-Site", "cross-site"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let asked = uri.authority().map(Authority::as_str).or(host);
    for origin in headers.get_all(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        let is_weaker = uri.scheme_str() == Some("https") && !is_https(&origin);
        if is_weaker || !asked.is_some_and(|asked| is_origin_of(&origin, asked)) {
            return Err(ForeignHeader::new("Origin", &origin));
        }
    }
    Ok(())
}

/// Returns whether an origin is the one of a host, which may go without the port that its scheme has.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let usual = if is_https(origin) { 443 } else { 80 };
    let named = |authority: &str| {
        let authority = authority.trim().parse::<Authority>().ok()?;
        Some((authority.host().to_ascii_lowercase(), authority.port_u16().unwrap_or(usual)))
    };
    named(authority).is_some_and(|origin| named(host) == Some(origin))
}

fn is_https(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

fn is_local(authority: &str) -> bool {
    let Ok(authority) = authority.trim().parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        for local in [
            "localhost",
            "LOCALHOST:9200",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:9200",
            "127.9.9.9",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            let headers = HeaderMap::from_iter([(HOST, local.parse().unwrap())]);
            assert_eq!(check_host(&Uri::from_static("/"), &headers), Ok(()), "{local}");
            let origin = format!("http://{local}");
            let headers = HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]);
            assert_eq!(check_origin(&headers), Ok(()), "{local}");
        }
        for foreign in [
            "evil.example",
            "evil.example:9200",
            "localhost.evil.example",
            "notlocalhost",
            "192.168.1.1",
            "0.0.0.0:9200",
            "127.0.0.1@evil.example",
            "127.0.0.1.evil.example",
            "[2001:db8::1]:80",
            "a b",
        ] {
            let headers = HeaderMap::from_iter([(HOST, foreign.parse().unwrap())]);
            assert!(check_host(&Uri::from_static("/"), &headers).is_err(), "{foreign}");
            let origin = format!("https://{foreign}");
            let headers = HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]);
            assert!(check_origin(&headers).is_err(), "{foreign}");
        }
        let none = HeaderMap::new();
        assert_eq!((check_host(&Uri::from_static("/"), &none), check_origin(&none)), (Ok(()), Ok(())));
        // As HTTP/2 has it, and beside a good one.
        assert!(check_host(&Uri::from_static("http://evil.example/"), &none).is_err());
        let mut two = HeaderMap::new();
        two.append(HOST, "localhost".parse().unwrap());
        two.append(HOST, "evil.example".parse().unwrap());
        assert_eq!(check_host(&Uri::from_static("/"), &two).unwrap_err().value, "evil.example");
        let null = HeaderMap::from_iter([(ORIGIN, "null".parse().unwrap())]);
        assert_eq!(
            check_origin(&null).unwrap_err(),
            ForeignHeader { header: "Origin", value: "null".to_owned() }
        );
    }

    #[test]
    fn only_pages_of_the_host_that_is_asked_pass() {
        let check = |uri: &'static str, host: Option<&str>, origin: &str| {
            let mut headers: HeaderMap = HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]);
            if let Some(host) = host {
                headers.insert(HOST, host.parse().unwrap());
            }
            check_same_origin(&Uri::from_static(uri), &headers).is_ok()
        };
        for (host, origin, passes) in [
            ("logs.example:9200", "https://logs.example:9200", true),
            ("LOGS.example:9200", "https://logs.example:9200", true),
            ("logs.example", "https://logs.example", true),
            ("logs.example:443", "https://logs.example", true),
            ("logs.example", "http://logs.example:80", true),
            ("[::1]:9200", "http://[::1]:9200", true),
            ("logs.example:9200", "https://logs.example:5601", false),
            ("logs.example:9200", "https://logs.example", false),
            ("logs.example", "https://evil.example", false),
            ("logs.example", "https://logs.example.evil.example", false),
            ("logs.example", "null", false),
            ("logs.example", "", false),
        ] {
            assert_eq!(check("/", Some(host), origin), passes, "{host} {origin}");
        }
        // As HTTP/2 has it, and a host that nobody names.
        assert!(check("https://logs.example/", None, "https://logs.example"));
        assert!(!check("https://logs.example/", None, "https://evil.example"));
        // Whoever is in between may have made a page without TLS, but a proxy may have had that of the page.
        assert!(!check("https://logs.example/", None, "http://logs.example"));
        assert!(check("http://logs.example/", None, "https://logs.example"));
        assert!(!check("/", None, "https://logs.example"));
        for (site, passes) in [("cross-site", false), ("same-origin", true), ("none", true)] {
            let name = http::HeaderName::from_static("sec-fetch-site");
            let headers = HeaderMap::from_iter([(name, site.parse().unwrap())]);
            assert_eq!(check_same_origin(&Uri::from_static("/"), &headers).is_ok(), passes, "{site}");
        }
        assert_eq!(check_same_origin(&Uri::from_static("/"), &HeaderMap::new()), Ok(()));
    }
}
