//! Destinations that notifications may have.
//!
//! An entry of the list is a host (`hooks.example.com`), all hosts below one (`*.example.com`), any public host (`*`), or an address
//! or network (`10.1.0.0/16`, `127.0.0.1`); each may have a port behind it (`[::1]:8080`), and `http://` before it where the
//! connection need not be encrypted. What a name resolves to is checked as well, for each connection, and the connection goes to an address that
//! was checked. One entry has to allow all of it, scheme, host, port and address ([`Allow::permits`]): loopback, link-local and metadata addresses are reached only where an entry names the address; private ones only by a host or address that is
//! named, never by `*`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Destinations that notifications may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Arc<Vec<Entry>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    target: Target,
    port: Option<u16>,
    plain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Any,
    Host(String),
    Below(String),
    Network(IpAddr, u8),
}

/// Class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressClass {
    Public,
    Private,
    /// Reached only by its address: this machine, its link, metadata services of clouds, and addresses of no host.
    Guarded,
}

impl FromStr for Allow {
    type Err = String;

    /// Reads entries that are joined by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(Entry::read).collect::<Result<Vec<_>, _>>().map(|entries| Self(Arc::new(entries)))
    }
}

impl Entry {
    fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no host, address or network, such as hooks.example.com, *.example.com, 10.1.0.0/16 or *"
            )
        };
        // An address is reached without TLS as well, unless it says `https://`.
        let (plain, of_address, rest) = match text.split_once("://") {
            Some(("http", rest)) => (true, true, rest),
            Some(("https", rest)) => (false, false, rest),
            Some(_) => return Err(wrong()),
            None => (false, true, text),
        };
        let rest = rest.trim_end_matches('/').to_ascii_lowercase();
        if let Ok(address) = rest.parse::<SocketAddr>() {
            return Ok(Self {
                target: network(address.ip(), None)?,
                port: Some(address.port()),
                plain: of_address,
            });
        }
        if let Ok(ip) = rest.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Self { target: network(ip, None)?, port: None, plain: of_address });
        }
        if let Some((ip, length)) = rest.split_once('/') {
            let (ip, length) = (ip.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
            return Ok(Self { target: network(ip, Some(length))?, port: None, plain: of_address });
        }
        let (host, port) = match rest.rsplit_once(':') {
            None => (rest.as_str(), None),
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong())?)),
        };
        let is_host = |host: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !host.is_empty() && host.len() <= 253 && host.chars().all(fits)
        };
        let target = match host.strip_prefix("*.") {
            _ if host == "*" => Target::Any,
            Some(parent) if is_host(parent) => Target::Below(format!(".{parent}")),
            None if is_host(host) => Target::Host(host.to_owned()),
            _ => return Err(wrong()),
        };
        Ok(Self { target, port, plain })
    }

    /// Returns whether it is for a host by its name, port and scheme; an address or network may be, by what the name resolves to.
    fn may_be_for(&self, scheme: &str, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|allowed| allowed != port) || (scheme == "http" && !self.plain) {
            return false;
        }
        match &self.target {
            Target::Any | Target::Network(..) => true,
            Target::Host(name) => name == host,
            Target::Below(parent) => host.ends_with(parent),
        }
    }

    /// Returns whether it is for a host at an address.
    fn is_for(&self, scheme: &str, host: &str, port: u16, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.may_be_for(scheme, host, port)
            && match self.target {
                Target::Network(network, length) => within(network, length, ip),
                Target::Any => reach(ip) == AddressClass::Public,
                Target::Host(_) | Target::Below(_) => reach(ip) != AddressClass::Guarded,
            }
    }
}

fn network(ip: IpAddr, length: Option<u8>) -> Result<Target, String> {
    let most = if ip.is_ipv4() { 32 } else { 128 };
    match length.unwrap_or(most) {
        length if length <= most => Ok(Target::Network(ip.to_canonical(), length)),
        length => Err(format!("`{ip}/{length}` is no network: at most {most} bits can be fixed")),
    }
}

fn within(network: IpAddr, length: u8, ip: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((one, one_of), (other, other_of)) = (bits(network), bits(ip));
    one_of == other_of && (length == 0 || (one ^ other) >> (128 - u32::from(length)) == 0)
}

fn reach(ip: IpAddr) -> AddressClass {
    match ip.to_canonical() {
        IpAddr::V4(ip) => reach_v4(ip),
        IpAddr::V6(ip) => reach_v6(ip),
    }
}

fn reach_v4(ip: Ipv4Addr) -> AddressClass {
    let [a, b, c, _] = ip.octets();
    let guarded = ip.is_loopback()
        || ip.is_link_local()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_broadcast()
        || a == 0
        || a >= 240
        // Alibaba's and Oracle's metadata.
        || ip.octets() == [100, 100, 100, 200]
        || (a, b, c) == (192, 0, 0);
    // 100.64.0.0/10 is shared by those behind a provider.
    let private =
        ip.is_private() || (a == 100 && (64..128).contains(&b)) || (a == 198 && (18..20).contains(&b));
    match (guarded, private) {
        (true, _) => AddressClass::Guarded,
        (false, true) => AddressClass::Private,
        (false, false) => AddressClass::Public,
    }
}

fn reach_v6(ip: Ipv6Addr) -> AddressClass {
    let segments = ip.segments();
    // Addresses of version 4 within: translated (64:ff9b::/96) and 6to4.
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., a, b] = segments;
        return reach_v4(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b)));
    }
    if segments[0] == 0x2002 {
        return reach_v4(Ipv4Addr::from((u32::from(segments[1]) << 16) | u32::from(segments[2])));
    }
    // Those of a network of its own translation (RFC 8215), of Teredo, and of sites, which were given up (RFC 3879), lead to
    // addresses that are not seen here.
    let elsewhere =
        segments[..3] == [0x64, 0xff9b, 1] || segments[..2] == [0x2001, 0] || segments[0] & 0xffc0 == 0xfec0;
    let metadata = segments == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254];
    let compatible = segments[..6] == [0; 6];
    if ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unicast_link_local()
        || metadata
        || compatible
        || elsewhere
    {
        return AddressClass::Guarded;
    }
    if ip.is_unique_local() { AddressClass::Private } else { AddressClass::Public }
}

impl Allow {
    /// Returns whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a URL, as far as that is known before its host is resolved.
    ///
    /// # Errors
    /// Why nothing may be sent there.
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let scheme = url.scheme();
        if !matches!(scheme, "http" | "https") {
            return Err(format!("[{scheme}] is neither https nor http"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the address has a user in it: send it in a header".to_owned());
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("the address has no host".to_owned());
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let address = host.parse::<IpAddr>();
        let allowed = |scheme: &str| match address {
            Ok(ip) => self.permits(scheme, host, port, ip),
            // Whether it is at an address that is allowed is seen when it is resolved.
            Err(_) => self.0.iter().any(|entry| entry.may_be_for(scheme, host, port)),
        };
        match allowed(scheme) {
            true => Ok(()),
            false if scheme == "http" && allowed("https") => Err(format!(
                "[{host}] is not asked without TLS: write http:// before it in notifications.allow"
            )),
            false => Err(format!("[{host}:{port}] is not allowed: notifications.allow does not name it")),
        }
    }

    /// Returns whether one entry allows a connection: all of its scheme, its host as the URL has it, its port and its address.
    fn permits(&self, scheme: &str, host: &str, port: u16, ip: IpAddr) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        self.0.iter().any(|entry| entry.is_for(scheme, host, port, ip))
    }
}

/// Resolves names to addresses that may be reached by a scheme at a port, and to no others.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) allow: Allow,
    pub(crate) scheme: String,
    pub(crate) port: u16,
}

/// Why a name has no address that may be reached.
#[derive(Debug, thiserror::Error)]
#[error(
    "[{host}:{port}] is at {address}, which is not allowed by {scheme}: no entry of notifications.allow is for host, port and address"
)]
pub(crate) struct AddressRefusal {
    scheme: String,
    host: String,
    port: u16,
    address: IpAddr,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (allow, scheme, host, port) =
            (self.allow.clone(), self.scheme.clone(), name.as_str().to_owned(), self.port);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), port)).await?.collect();
            let first = found.first().map(SocketAddr::ip);
            let permits = |address: &SocketAddr| allow.permits(&scheme, &host, port, address.ip());
            let permitted: Vec<SocketAddr> = found.into_iter().filter(permits).collect();
            match (permitted.is_empty(), first) {
                (true, Some(address)) => Err(AddressRefusal { scheme, host, port, address }.into()),
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(text: &str) -> Allow {
        text.parse().unwrap()
    }

    #[test]
    fn entries_are_hosts_networks_and_patterns() {
        for wrong in ["ftp://a", "a b", "*.", "a:port", "10.0.0.0/33", "10.0.0.0/x", "a/b", "**"] {
            assert!(wrong.parse::<Allow>().is_err(), "{wrong}");
        }
        let allow = allow(
            "hooks.example.com, *.intern:8443, http://plain.example.com, 10.1.0.0/16, [::1]:8080, 127.0.0.1:9999",
        );
        let ok = |url: &str| allow.check(&url.parse().unwrap());
        for url in [
            "https://hooks.example.com/a",
            "https://HOOKS.example.com./a",
            "https://a.b.intern:8443/",
            "http://plain.example.com/",
            "http://10.1.2.3/",
            "http://[::1]:8080/",
            "http://127.0.0.1:9999/",
            "http://2130706433:9999/",
            "http://0x7f.1:9999/",
        ] {
            assert_eq!(ok(url), Ok(()), "{url}");
        }
        for url in [
            "https://user@hooks.example.com/",
            "ftp://hooks.example.com/",
            "https://10.2.0.1/",
            "http://127.0.0.1/",
            "http://127.0.0.1:9998/",
            "https://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/",
            "https://8.8.8.8/",
        ] {
            assert!(ok(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_name_is_reached_only_where_its_address_may_be() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let named = allow("hooks.example.com, *.below.example.com");
        for (host, address, expected) in [
            ("hooks.example.com", "93.184.216.34", true),
            ("HOOKS.example.com.", "10.0.0.1", true),
            ("hooks.example.com", "127.0.0.1", false),
            ("hooks.example.com", "::1", false),
            ("hooks.example.com", "::ffff:127.0.0.1", false),
            ("hooks.example.com", "169.254.169.254", false),
            ("hooks.example.com", "fd00:ec2::254", false),
            ("hooks.example.com", "0.0.0.0", false),
            ("hooks.example.com", "64:ff9b::7f00:1", false),
            ("hooks.example.com", "2002:7f00:1::", false),
            ("hooks.example.com", "fe80::1", false),
            ("a.below.example.com", "93.184.216.34", true),
            ("below.example.com", "93.184.216.34", false),
            ("other.example.com", "93.184.216.34", false),
        ] {
            assert_eq!(named.permits("https", host, 443, ip(address)), expected, "{host} {address}");
        }
        let any = allow("*");
        assert!(
            any.permits("https", "a", 443, ip("93.184.216.34"))
                && any.permits("https", "a", 443, ip("2606:4700::1"))
        );
        for address in [
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "100.64.0.1",
            "fd12::1",
            "127.0.0.1",
            "100.100.100.200",
            "255.255.255.255",
            "64:ff9b:1::7f00:1",
            "fec0::1",
            "2001:0:4136:e378::1",
        ] {
            assert!(!any.permits("https", "a", 443, ip(address)), "{address}");
        }
        assert!(allow("127.0.0.0/8").permits("http", "localhost", 80, ip("127.0.0.1")));
        assert!(!allow("").permits("https", "localhost", 443, ip("93.184.216.34")));
    }

    #[test]
    fn one_entry_has_to_allow_all_of_a_connection() {
        let permits = |list: &str, url: &str, ip: &str| {
            let (list, url): (Allow, Url) = (allow(list), url.parse().unwrap());
            list.check(&url).is_ok()
                && list.permits(
                    url.scheme(),
                    url.host_str().unwrap(),
                    url.port_or_known_default().unwrap(),
                    ip.parse().unwrap(),
                )
        };
        for (list, url, ip, expected) in [
            ("*, 127.0.0.1:8080", "http://a.example.com:8080/", "127.0.0.1", true),
            ("*, 127.0.0.1:8080", "https://a.example.com/", "127.0.0.1", false),
            ("*, 127.0.0.1:8080", "https://a.example.com:6379/", "127.0.0.1", false),
            ("*, 127.0.0.1:8080", "http://a.example.com:8080/", "93.184.216.34", false),
            ("hooks.example.com:443, 10.0.0.0/8", "https://hooks.example.com/", "93.184.216.34", true),
            ("hooks.example.com:443, 10.0.0.0/8", "https://hooks.example.com:22/", "93.184.216.34", false),
            ("hooks.example.com:443, 10.0.0.0/8", "http://hooks.example.com:443/", "93.184.216.34", false),
            ("hooks.example.com:443, 10.0.0.0/8", "http://other.example.com:22/", "10.0.0.1", true),
            ("https://10.0.0.0/8", "http://10.0.0.1/", "10.0.0.1", false),
            ("http://*.a.com, b.com", "http://b.com/", "93.184.216.34", false),
        ] {
            assert_eq!(permits(list, url, ip), expected, "{list} {url} {ip}");
        }
    }

    #[tokio::test]
    async fn the_resolver_answers_addresses_that_may_be_reached() {
        let resolver = |list: &str| Resolver { allow: allow(list), scheme: "http".to_owned(), port: 8080 };
        let refused = resolver("http://localhost").resolve("localhost".parse().unwrap()).await;
        assert!(refused.err().unwrap().to_string().contains("not allowed"));
        assert!(resolver("127.0.0.1:8081").resolve("localhost".parse().unwrap()).await.is_err());
        let found = resolver("127.0.0.1").resolve("localhost".parse().unwrap()).await.unwrap();
        assert!(found.into_iter().all(|address| address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
