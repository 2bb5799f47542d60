//! Brokers of RabbitMQ: their addresses, the login there, and connections to them. The input and the output `rabbitmq` share this.

mod transport;

use std::time::Duration;

use lapin::options::ExchangeDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::{AMQPAuthority, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties, ExchangeKind};

use crate::hosts::host_and_port;
use crate::tls::StreamConnector;
use crate::{Options, Secret, Setting, tls};

/// Port where none is given.
const PORT: i64 = 5672;
/// Most bytes of a name.
pub(crate) const MAX_NAME: usize = 255;
/// Milliseconds that a connection may take where nothing is said.
const CONNECTION_TIMEOUT: i64 = 30_000;

/// Brokers, of which one is used, and the login there.
#[derive(Clone, Debug)]
pub(crate) struct RabbitServer {
    addresses: Vec<(String, u16)>,
    vhost: String,
    user: String,
    password: Secret,
    tls: Option<tls::Client>,
    timeout: Duration,
    /// Seconds between heartbeats; `None` for the broker's.
    heartbeat: Option<u16>,
}

impl RabbitServer {
    /// Takes the options.
    pub(crate) fn take(options: &mut Options) -> Self {
        let hosts = options.texts("host");
        if hosts.is_empty() {
            options.fault_here("[rabbitmq] needs the option [host]");
        }
        let port = options.integer("port", 1..=65_535).unwrap_or(PORT);
        let port = u16::try_from(port).unwrap_or_default();
        let mut addresses = Vec::with_capacity(hosts.len());
        for host in &hosts {
            match host_and_port(host, port) {
                Ok(address) => addresses.push(address),
                Err(fault) => options.fault_here(fault),
            }
        }
        let heartbeat = options.integer("heartbeat", 0..=65_535);
        let timeout = options.integer("connection_timeout", 1..=3_600_000).unwrap_or(CONNECTION_TIMEOUT);
        for name in ["ssl_certificate_path", "ssl_certificate_password"] {
            if let Some((at, _)) = options.take(name) {
                let message = format!(
                    "option [{name}] is not supported: convert the store with `openssl pkcs12 -in store.p12 -out store.pem \
                     -nodes`, and give [ssl_certificate] and [ssl_key]"
                );
                options.fault(at, message);
            }
        }
        options.rename("ssl_version", "ssl_supported_protocols");
        let tls = tls::Client::take_for_stream(options);
        // The pipeline runs an input again, and the output connects again, whatever these say.
        let _ = (options.boolean("automatic_recovery"), options.float("connect_retry_interval"));
        Self {
            addresses,
            vhost: short_text(options, "vhost").unwrap_or_else(|| "/".to_owned()),
            user: options.text("user").unwrap_or_else(|| "guest".to_owned()),
            password: options.secret("password").unwrap_or_else(|| Secret::new("guest".to_owned())),
            tls,
            timeout: Duration::from_millis(timeout.unsigned_abs()),
            heartbeat: heartbeat.and_then(|seconds| u16::try_from(seconds).ok()),
        }
    }

    /// Returns the addresses and the virtual host, for the identity of an input.
    pub(crate) fn identity(&self) -> String {
        let addresses: Vec<String> =
            self.addresses.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        format!("{} {}", addresses.join(","), self.vhost)
    }

    /// Connects to the first broker that answers.
    ///
    /// # Errors
    /// The reason of the last one.
    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let mut reason = "no [host] is given".to_owned();
        for (host, port) in &self.addresses {
            let userinfo =
                AMQPUserInfo { username: self.user.clone(), password: self.password.expose().to_owned() };
            let authority = AMQPAuthority { userinfo, host: host.clone(), port: *port };
            let mut uri = AMQPUri { authority, vhost: self.vhost.clone(), ..AMQPUri::default() };
            uri.query.heartbeat = self.heartbeat;
            let properties = ConnectionProperties::default().with_connection_name("millrace".into());
            let connector = StreamConnector::new(host, *port, self.tls.as_ref())?;
            let connecting = transport::connect(uri, connector, properties);
            match tokio::time::timeout(self.timeout, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => reason = format!("[{host}:{port}]: {error}"),
                Err(_) => reason = format!("[{host}:{port}]: no answer within {:?}", self.timeout),
            }
        }
        Err(reason)
    }
}

/// Takes a text that the protocol bounds: names of queues, exchanges and keys.
pub(crate) fn short_text(options: &mut Options, name: &'static str) -> Option<String> {
    let text = options.text(name)?;
    if text.len() > MAX_NAME {
        options.fault_here(format!("[{name}] of [rabbitmq] has {} bytes, more than {MAX_NAME}", text.len()));
        return None;
    }
    Some(text)
}

/// Takes a table of names and values.
pub(crate) fn table(options: &mut Options, name: &'static str) -> FieldTable {
    let members = options.hash(name);
    field_table(&members).unwrap_or_else(|fault| {
        options.fault_here(format!("[{name}] of [rabbitmq] {fault}"));
        FieldTable::default()
    })
}

/// Makes a table of the members of a hash.
///
/// # Errors
/// A name is too long, or a value is neither text nor number.
pub(crate) fn field_table(members: &[(String, Setting)]) -> Result<FieldTable, String> {
    let mut table = FieldTable::default();
    for (name, setting) in members {
        let key =
            ShortString::try_new(name.as_str()).map_err(|_| format!("has a name of {} bytes", name.len()))?;
        let text = setting.as_text().ok_or_else(|| format!("has no text or number at [{name}]"))?;
        let value = match (setting, text.parse::<i64>(), text.parse::<bool>()) {
            (Setting::Number(_), Ok(number), _) => AMQPValue::LongLongInt(number),
            (_, _, Ok(flag)) => AMQPValue::Boolean(flag),
            _ => AMQPValue::LongString(text.into()),
        };
        table.insert(key, value);
    }
    Ok(table)
}

/// Makes the kind of an exchange from its name.
pub(crate) fn exchange_kind(name: &str) -> ExchangeKind {
    match name {
        "direct" => ExchangeKind::Direct,
        "fanout" => ExchangeKind::Fanout,
        "headers" => ExchangeKind::Headers,
        "topic" => ExchangeKind::Topic,
        other => ExchangeKind::Custom(other.to_owned()),
    }
}

/// Makes the options of an exchange.
pub(crate) fn exchange_options(durable: bool) -> ExchangeDeclareOptions {
    ExchangeDeclareOptions { durable, ..ExchangeDeclareOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn server(given: &[(&str, OptionValue)]) -> Result<RabbitServer, String> {
        let mut options = options("rabbitmq", given);
        let server = RabbitServer::take(&mut options);
        let faults = options.finish().err().unwrap_or_default();
        let messages: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
        if messages.is_empty() { Ok(server) } else { Err(messages.join("\n")) }
    }

    #[test]
    fn hosts_may_have_ports_of_their_own() {
        let given = [("host", ["one", "two:5673", "::1"].into()), ("port", "5671".into())];
        assert_eq!(server(&given).unwrap().identity(), "one:5671,two:5673,::1:5671 /");
    }

    #[test]
    fn options_are_checked() {
        let long = "v".repeat(256);
        let given = [
            ("host", "one:many".into()),
            ("vhost", long.into()),
            ("ssl_certificate_path", "/store.p12".into()),
            ("ssl_version", "TLSv1".into()),
        ];
        let faults = server(&given).unwrap_err();
        for part in [
            "[one:many] has no port",
            "[vhost] of [rabbitmq] has 256 bytes",
            "openssl pkcs12",
            "TLS version [TLSv1]",
        ] {
            assert!(faults.contains(part), "{part}: {faults}");
        }
        assert!(server(&[]).unwrap_err().contains("needs the option [host]"));
    }

    #[test]
    fn arguments_have_the_types_that_the_broker_expects() {
        let members = [
            ("x-queue-type".to_owned(), Setting::Text("quorum".to_owned())),
            ("x-single-active-consumer".to_owned(), Setting::Text("true".to_owned())),
        ];
        let table = field_table(&members).unwrap();
        assert_eq!(table.inner().get("x-queue-type"), Some(&AMQPValue::LongString("quorum".into())));
        assert_eq!(table.inner().get("x-single-active-consumer"), Some(&AMQPValue::Boolean(true)));
        let nested = [("x".to_owned(), Setting::Hash(Vec::new()))];
        assert!(field_table(&nested).unwrap_err().contains("[x]"));
    }

    #[tokio::test]
    async fn the_reason_of_a_failed_connection_names_the_broker() {
        // Nobody listens on a port that was just free.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let given = [("host", "127.0.0.1".into()), ("port", port.to_string().into())];
        let reason = server(&given).unwrap().connect().await.unwrap_err();
        assert!(reason.starts_with(&format!("[127.0.0.1:{port}]: ")), "{reason}");
    }
}
