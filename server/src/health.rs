//! `millrace health`: asks the server of a configuration whether it takes requests, for supervisors that can only run a
//! command.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_listen::{ClientCertificates, TlsFiles};
use reqwest::{Client, Identity};

use crate::cli::HealthArgs;
use crate::config::Config;
use crate::exit::Failure;

/// Path where servers answer it, without credentials.
const PATH: &str = "/_health/ready";

/// Asks, and says on stdout what the answer was.
pub(crate) fn run(args: &HealthArgs, config: &Config) -> Result<(), Failure> {
    let url = match (&args.url, config.api.listen.first()) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(address)) => {
            let scheme = if config.api.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", reachable(*address))
        }
        (None, None) => return Err(Failure::other(anyhow::anyhow!("`listen` is empty"))),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::other)?;
    let identity = identity(config).map_err(Failure::other)?;
    runtime.block_on(request(&url, identity, args.timeout)).map_err(Failure::other)?;
    crate::print(&format!("ready: {url}\n"))
}

/// Returns the certificate for a server that refuses clients without one: the server's own.
fn identity(config: &Config) -> Result<Option<Identity>> {
    let required = |tls: &&TlsFiles| tls.clients == ClientCertificates::Required;
    let Some(tls) = config.api.tls.as_ref().filter(required) else { return Ok(None) };
    let read = |file: &Path| std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    let mut pem = read(&tls.certificate)?;
    pem.push(b'\n');
    pem.extend(read(&tls.key)?);
    let identity = Identity::from_pem(&pem);
    identity.map(Some).with_context(|| format!("certificate {}", tls.certificate.display()))
}

async fn request(url: &str, identity: Option<Identity>, timeout: Duration) -> Result<()> {
    // Nothing secret is sent, and a certificate is rarely one for loopback: that the server answers is the question.
    let mut client = Client::builder().danger_accept_invalid_certs(true).no_proxy().timeout(timeout);
    if let Some(identity) = identity {
        client = client.identity(identity);
    }
    let client = client.build().context("cannot set up the HTTP client")?;
    let answer = client.get(format!("{url}{PATH}")).send().await;
    let answer =
        answer.map_err(reqwest::Error::without_url).with_context(|| format!("{url} does not answer"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("{url} is not ready: {status}");
    }
    Ok(())
}

/// Returns the address at which a listener on this machine is reached: loopback for one on all addresses.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_on_all_addresses_are_asked_on_loopback() {
        for (listener, asked) in [
            ("0.0.0.0:9200", "127.0.0.1:9200"),
            ("[::]:9201", "[::1]:9201"),
            ("10.0.0.7:9200", "10.0.0.7:9200"),
        ] {
            assert_eq!(reachable(listener.parse().unwrap()).to_string(), asked);
        }
    }
}
