//! A client that asks name servers over UDP, and over TCP where an answer is truncated.
//!
//! The configuration is that of the machine (`/etc/resolv.conf`, `/etc/hosts`) where the filter gives none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::super::refresh::read_text;
use super::message::{Answer, MessageError, RecordType, answer, question, reverse_name};

/// Port of name servers.
const PORT: u16 = 53;
/// Largest answer over UDP.
const MAX_DATAGRAM: usize = 4_096;
/// Largest file of names that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// File with the name servers of the machine.
const RESOLVER_FILE: &str = "/etc/resolv.conf";
/// File with the names of the machine.
pub(super) const HOSTS_FILE: &str = "/etc/hosts";

/// Name servers and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolverConfig {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains that names with few dots are tried in.
    pub(super) search: Vec<String>,
    /// Dots from which on a name is tried by itself first.
    pub(super) ndots: usize,
    /// Time for one question.
    pub(super) timeout: Duration,
    /// Further attempts where no answer comes.
    pub(super) retries: u32,
}

/// Names and addresses of files in the form of `/etc/hosts`.
#[derive(Debug, Default)]
pub(super) struct HostsFile {
    addresses: HashMap<String, String>,
    names: HashMap<IpAddr, String>,
}

/// Reason why a lookup has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupError {
    /// There is no such name, or no such record.
    NotFound,
    /// No server answers in time.
    TimedOut,
}

impl ResolverConfig {
    /// Reads the configuration of the machine.
    pub(super) fn of_machine() -> Self {
        let text = std::fs::read_to_string(RESOLVER_FILE).unwrap_or_default();
        let (mut servers, mut search, mut ndots) = (Vec::new(), Vec::new(), 1);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => servers.extend(words.next().and_then(parse_server)),
                Some("search" | "domain") => search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let given = words.find_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    ndots = given.unwrap_or(ndots);
                }
                _ => {}
            }
        }
        if servers.is_empty() {
            servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
        }
        Self { servers, search, ndots, timeout: Duration::from_millis(500), retries: 2 }
    }
}

/// Parses the address of a name server, with or without a port.
pub(super) fn parse_server(text: &str) -> Option<SocketAddr> {
    let address = text.split('%').next().unwrap_or(text);
    let plain = address.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    plain.ok().or_else(|| text.parse().ok())
}

impl HostsFile {
    /// Adds the names of a file; earlier files have precedence.
    ///
    /// # Errors
    /// The file cannot be read, or is too large.
    pub(super) fn load(&mut self, path: &Path) -> Result<(), String> {
        let text = read_text(path, MAX_FILE_BYTES)?;
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
            for name in words {
                self.addresses.entry(name.to_ascii_lowercase()).or_insert_with(|| address.to_string());
                self.names.entry(address).or_insert_with(|| name.to_owned());
            }
        }
        Ok(())
    }

    /// Returns the address of a name.
    pub(super) fn address(&self, name: &str) -> Option<&str> {
        self.addresses.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// Returns the name of an address.
    pub(super) fn name(&self, address: IpAddr) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }
}

/// Finds the first address of a name.
///
/// # Errors
/// There is none, or no server answers in time.
pub(super) async fn address_of(config: &ResolverConfig, name: &str) -> Result<String, LookupError> {
    let mut outcome = LookupError::NotFound;
    for candidate in candidates(config, name) {
        for kind in [RecordType::A, RecordType::Aaaa] {
            match lookup(config, &candidate, kind).await {
                Ok(address) => return Ok(address),
                Err(LookupError::TimedOut) => outcome = LookupError::TimedOut,
                Err(LookupError::NotFound) => {}
            }
            if outcome == LookupError::TimedOut {
                return Err(outcome);
            }
        }
    }
    Err(outcome)
}

/// Finds the name of an address.
///
/// # Errors
/// There is none, or no server answers in time.
pub(super) async fn name_of(config: &ResolverConfig, address: IpAddr) -> Result<String, LookupError> {
    lookup(config, &reverse_name(address), RecordType::Ptr).await
}

/// Returns the names that a name may stand for, in the order of their trial.
fn candidates(config: &ResolverConfig, name: &str) -> Vec<String> {
    let mut names: Vec<String> = match name.ends_with('.') {
        true => Vec::new(),
        false => config.search.iter().map(|domain| format!("{name}.{domain}")).collect(),
    };
    let own = if name.matches('.').count() >= config.ndots { 0 } else { names.len() };
    names.insert(own, name.to_owned());
    names
}

async fn lookup(config: &ResolverConfig, name: &str, kind: RecordType) -> Result<String, LookupError> {
    for _ in 0..=config.retries {
        for server in &config.servers {
            let Some(asked) = question(rand::random(), name, kind) else {
                return Err(LookupError::NotFound);
            };
            let answered = tokio::time::timeout(config.timeout, ask(*server, &asked, kind)).await;
            match answered {
                Ok(Ok(Answer::Record(value))) => return Ok(value),
                Ok(Ok(Answer::Nothing | Answer::Truncated)) => return Err(LookupError::NotFound),
                // Another server may be better.
                Ok(Err(reason)) => tracing::debug!(reason, %server, "a name server did not answer"),
                Err(_) => tracing::debug!(%server, "a name server did not answer in time"),
            }
        }
    }
    Err(LookupError::TimedOut)
}

async fn ask(server: SocketAddr, asked: &[u8], kind: RecordType) -> Result<Answer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port by chance, as the number of the question, keeps others from guessing an answer.
    let socket = UdpSocket::bind((any, 0)).await.map_err(failed)?;
    socket.connect(server).await.map_err(failed)?;
    socket.send(asked).await.map_err(failed)?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(failed)?;
        match answer(buffer.get(..length).unwrap_or_default(), asked, kind) {
            Ok(Answer::Truncated) => return ask_over_tcp(server, asked, kind).await,
            Ok(answer) => return Ok(answer),
            Err(MessageError::OtherQuestion) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn ask_over_tcp(server: SocketAddr, asked: &[u8], kind: RecordType) -> Result<Answer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let length = u16::try_from(asked.len()).map_err(|error| error.to_string())?;
    stream.write_all(&[&length.to_be_bytes(), asked].concat()).await.map_err(failed)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await.map_err(failed)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).await.map_err(failed)?;
    answer(&message, asked, kind).map_err(|error| error.to_string())
}
