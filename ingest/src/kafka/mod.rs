//! Common part of the Kafka input and output: connection and authentication of a client.
//!
//! Options have the names of Logstash's, which are those of Kafka's Java client; librdkafka, which does the
//! work, has others and reads fewer formats of key stores ([`stores`] converts them).

mod jaas;
mod jks;
mod oauth;
mod stores;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

pub(crate) use self::oauth::TokenSource;
use crate::{Options, Secret};

/// Longest file with a login.
const MAX_JAAS: u64 = 64 << 10;

/// Connection settings of a client.
#[derive(Clone)]
pub(crate) struct Client {
    /// Settings of librdkafka that do not depend on files.
    fixed: Vec<(&'static str, String)>,
    servers: String,
    trust: Option<Store>,
    key: Option<Store>,
    key_password: Option<Secret>,
    tokens: Option<Arc<TokenSource>>,
}

/// A store of keys or certificates.
#[derive(Clone)]
struct Store {
    path: PathBuf,
    password: Option<Secret>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Client {
    /// Takes the options that input and output share; a wrong value is a fault.
    pub(crate) fn take(options: &mut Options) -> Self {
        let servers = options.text("bootstrap_servers").unwrap_or_else(|| "localhost:9092".to_owned());
        let mut fixed =
            vec![("client.id", options.text("client_id").unwrap_or_else(|| "logstash".to_owned()))];
        let lookups = ["default", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"];
        if let Some(lookup) =
            options.one_of("client_dns_lookup", &lookups).filter(|lookup| *lookup != "default")
        {
            fixed.push(("client.dns.lookup", lookup.to_owned()));
        }
        for (option, setting, bounds) in [
            ("connections_max_idle_ms", "connections.max.idle.ms", 0..=2_147_483_647),
            ("metadata_max_age_ms", "metadata.max.age.ms", 1..=86_400_000),
            ("reconnect_backoff_ms", "reconnect.backoff.ms", 0..=3_600_000),
            ("retry_backoff_ms", "retry.backoff.ms", 1..=300_000),
        ] {
            fixed.extend(options.integer(option, bounds).map(|value| (setting, value.to_string())));
        }
        for (option, setting) in [
            ("receive_buffer_bytes", "socket.receive.buffer.bytes"),
            ("send_buffer_bytes", "socket.send.buffer.bytes"),
        ] {
            // Java's -1 is librdkafka's 0: what the system has.
            fixed.extend(
                options.integer(option, -1..=100_000_000).map(|value| (setting, value.max(0).to_string())),
            );
        }
        let protocol =
            options.one_of("security_protocol", &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]);
        let protocol = protocol.unwrap_or("PLAINTEXT");
        fixed.push(("security.protocol", protocol.to_ascii_lowercase()));
        let tokens = take_sasl(options, protocol.starts_with("SASL"), &mut fixed).map(Arc::new);
        let encrypted = protocol.ends_with("SSL");
        let algorithm =
            options.read("ssl_endpoint_identification_algorithm", "[https] or an empty text", |setting| {
                match setting.as_text()?.as_str() {
                    "https" | "HTTPS" => Some("https"),
                    "" | "none" => Some("none"),
                    _ => None,
                }
            });
        if encrypted {
            fixed.push(("ssl.endpoint.identification.algorithm", algorithm.unwrap_or("https").to_owned()));
        }
        let trust = take_store(
            options,
            ["ssl_truststore_location", "ssl_truststore_password", "ssl_truststore_type"],
        );
        let key =
            take_store(options, ["ssl_keystore_location", "ssl_keystore_password", "ssl_keystore_type"]);
        let key_password = options.secret("ssl_key_password");
        let (trust, key) = if encrypted { (trust, key) } else { (None, None) };
        let client = Self { fixed, servers, trust, key, key_password, tokens };
        if let Err(why) = client.config() {
            options.fault_here(why);
        }
        client
    }

    /// Brokers to begin with.
    pub(crate) fn servers(&self) -> &str {
        &self.servers
    }

    /// Returns the source of tokens, where the brokers want such.
    pub(crate) fn token_source(&self) -> Option<Arc<TokenSource>> {
        self.tokens.clone()
    }

    /// Settings for a client that starts now; key stores are read anew, for certificates are renewed.
    ///
    /// # Errors
    /// A store cannot be read, told as text without secrets.
    pub(crate) fn config(&self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        for (setting, value) in &self.fixed {
            config.set(*setting, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        if let Some(store) = &self.trust {
            config.set(
                "ssl.ca.pem",
                stores::authorities(&store.path, store.password.as_ref().map(Secret::expose))?,
            );
        }
        if let Some(store) = &self.key {
            let password = store.password.as_ref().map(Secret::expose);
            let key_password = self.key_password.as_ref().map(Secret::expose);
            let identity = stores::identity(&store.path, password, key_password)?;
            config.set("ssl.certificate.pem", identity.certificates);
            config.set("ssl.key.pem", identity.key);
            if let Some(password) = identity.key_password {
                config.set("ssl.key.password", password);
            }
        }
        Ok(config)
    }
}

fn take_store(options: &mut Options, [location, password, kind]: [&'static str; 3]) -> Option<Store> {
    let path = options.text(location).filter(|path| !path.is_empty());
    let password = options.secret(password);
    // What a file is, it says itself; the option is checked all the same.
    options.read(kind, "one of [jks, pkcs12, pem]", |setting| {
        let kind = setting.as_text()?.to_ascii_lowercase();
        ["jks", "pkcs12", "pem"].contains(&kind.as_str()).then_some(())
    });
    path.map(|path| Store { path: PathBuf::from(path), password })
}

/// Takes the options of SASL; returns the source of tokens for OAUTHBEARER.
fn take_sasl(
    options: &mut Options,
    wanted: bool,
    fixed: &mut Vec<(&'static str, String)>,
) -> Option<TokenSource> {
    let mechanism = options.text("sasl_mechanism");
    let config = options.text("sasl_jaas_config");
    let path = options.text("jaas_path");
    let token_options = oauth::TokenOptions::take(options);
    for unsupported in [
        "kerberos_config",
        "sasl_kerberos_service_name",
        "sasl_client_callback_handler_class",
        "sasl_iam_jar_paths",
    ] {
        if let Some((at, _)) = options.take(unsupported) {
            options.fault(at, format!("option [{unsupported}] is not supported: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are, which need [sasl_jaas_config]"));
        }
    }
    if !wanted {
        return None;
    }
    match mechanism.as_deref() {
        Some(mechanism @ ("PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" | "OAUTHBEARER")) => {
            fixed.push(("sasl.mechanism", mechanism.to_owned()));
        }
        other => options.fault_here(format!(
            "option [sasl_mechanism] must be one of [PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER], not [{}]",
            other.unwrap_or("GSSAPI")
        )),
    }
    let login = match (config, path) {
        (Some(config), _) => Ok(config),
        (None, Some(path)) => read(Path::new(&path), MAX_JAAS).map(|file| {
            let text = String::from_utf8_lossy(&file).into_owned();
            text.split_once("KafkaClient").map_or(text.as_str(), |(_, client)| client).to_owned()
        }),
        (None, None) => Err("SASL needs the option [sasl_jaas_config] with the login".to_owned()),
    };
    if mechanism.as_deref() == Some("OAUTHBEARER") {
        let source = login.and_then(|login| TokenSource::new(token_options, &login));
        return source.map_err(|why| options.fault_here(why)).ok();
    }
    match login.and_then(|login| jaas::login(&login)) {
        Ok(login) => {
            fixed.push(("sasl.username", login.username));
            fixed.push(("sasl.password", login.password));
        }
        Err(why) => options.fault_here(why),
    }
    None
}

/// Reads a file within a bound.
fn read(path: &Path, bound: u64) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("[{}] cannot be read: {error}", path.display());
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > bound {
        return Err(format!("[{}] is longer than {bound} bytes", path.display()));
    }
    std::fs::read(path).map_err(unreadable)
}

/// Hands messages of librdkafka to the log, and gives it tokens.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) tokens: Option<Arc<TokenSource>>,
}

impl ClientContext for Log {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        token(self.tokens.as_deref())
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_error(&error, reason);
    }
}

/// Gets a token for brokers.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn token(source: Option<&TokenSource>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
    source.ok_or("there is no login for tokens")?.token()
}

/// Logs a line of librdkafka's.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::warn!(target: "millrace::kafka", facility, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::info!(target: "millrace::kafka", facility, "{message}"),
        _ => tracing::debug!(target: "millrace::kafka", facility, "{message}"),
    }
}

/// Logs an error of a client, which goes on by itself.
pub(crate) fn log_error(error: &KafkaError, reason: &str) {
    tracing::warn!(target: "millrace::kafka", %error, "{reason}");
}
