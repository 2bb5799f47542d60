//! The configuration: one value a key, from the strongest source that gives it.
//!
//! Sources, strongest first: command-line flag, `MILLRACE_…` environment variable, TOML file,
//! default. [`Settings::load`] merges them and knows where each value came from; [`Settings::print`]
//! shows that; [`Config`] is the typed result that `serve` hands out, a section to each part.

mod agents;
mod environment;
mod keys;
mod notifications;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use millrace_api::TokenLifetimes;
use millrace_listen::{ClientCertificates, TlsFiles};
use millrace_segment::objects::ObjectStoreConfig;

pub(crate) use agents::AgentsSection;
use keys::{KEYS, Key, nearest};
pub(crate) use value::parse_span;
use value::{Kind, Value};

/// Prefix of our environment variables.
const PREFIX: &str = "MILLRACE_";
/// Text that stands for a secret.
const MASK: &str = "********";
/// Greatest configuration file read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nothing was said.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Values of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// Keys with the flag and the text that it was given.
    pub(crate) keys: Vec<(&'static str, &'static str, String)>,
}

/// Every key with its value and source.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (Value, Source)>,
    /// Environment variables that begin like ours and are close to no key.
    strangers: Vec<String>,
}

/// The typed configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Section of the store.
    pub(crate) storage: millrace_engine::Config,
    /// Bytes that all running queries may hold together.
    pub(crate) query_memory_bytes: usize,
    /// Bytes that all running statements may have on disk together.
    pub(crate) query_spill_bytes: u64,
    /// Section of the protocols.
    pub(crate) api: millrace_api::ServerConfig,
    /// Listener of the console.
    pub(crate) console: Listen,
    /// Listener of Arrow Flight SQL.
    pub(crate) flight: Listen,
    /// Section of the agents.
    pub(crate) agents: AgentsSection,
    /// Listener of OpenTelemetry's logs.
    pub(crate) otlp: Listen,
    /// Listener of OpenTelemetry's logs over gRPC.
    pub(crate) otlp_grpc: Listen,
    /// Section of the pipelines.
    pub(crate) pipelines: PipelinesConfig,
    /// Threads of the request runtime, 0 for one a core.
    pub(crate) threads: usize,
    /// Time that a drain may take.
    pub(crate) drain_timeout: Duration,
    /// Log filter.
    pub(crate) log_level: String,
    /// `true` if log lines are JSON.
    pub(crate) log_json: bool,
    /// Collector of traces.
    pub(crate) otlp_endpoint: Option<String>,
    /// Environment variables that begin like ours and set nothing.
    pub(crate) strangers: Vec<String>,
}

/// Addresses of a listener beside the data API's.
#[derive(Clone, Debug)]
pub(crate) struct Listen {
    /// The addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// `true` if nobody named those: then a port behind them will do as well.
    pub(crate) anywhere: bool,
}

/// Configuration of pipelines: their directory and their management.
#[derive(Clone, Debug)]
pub(crate) struct PipelinesConfig {
    /// Directory of definitions.
    pub(crate) dir: PathBuf,
    /// `true` if inputs may run programs.
    pub(crate) exec: bool,
    /// Listener of their management.
    pub(crate) listen: Listen,
    /// Bytes of events in memory.
    pub(crate) memory_bytes: u64,
    /// Time between looks at the directory.
    pub(crate) reload_interval: Duration,
}

impl Settings {
    /// Merges defaults, file, environment and flags.
    ///
    /// # Errors
    ///
    /// One line that names the file, variable or flag, the key, what is wrong, and the nearest key
    /// where a name is unknown. A variable that is close to no key is no error: [`Config::strangers`] names it.
    pub(crate) fn load(
        flags: &Flags,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        Self::load_within(millrace_api::memory_limit(), flags, environment)
    }

    /// Merges them for a process that may have so many bytes of memory, 0 for any.
    fn load_within(
        memory: u64,
        flags: &Flags,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let mut settings = Self { values: BTreeMap::new(), strangers: Vec::new() };
        for key in KEYS {
            if let Some(default) = key.default {
                let mut value =
                    key.kind.parse(default).map_err(|problem| anyhow!("{}: {problem}", key.name))?;
                if let (Value::Bytes(bytes), Kind::Bytes(least), Some(share)) =
                    (&mut value, key.kind, key.share)
                    && memory > 0
                {
                    *bytes = (*bytes).min((memory / share).max(least));
                }
                settings.values.insert(key.name, (value, Source::Default));
            }
        }
        let mut environment: BTreeMap<String, String> =
            environment.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let file = environment.remove("MILLRACE_CONFIG").map(PathBuf::from);
        if let Some(path) = flags.config.clone().or(file) {
            settings.add_file(&path)?;
        }
        settings.add_environment(environment)?;
        for (flag, name, text) in &flags.keys {
            settings.add_text(name, text, Source::Flag(flag))?;
        }
        Ok(settings)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let shown = path.display();
        let unreadable = |error| anyhow!("cannot read configuration file {shown}: {error}");
        if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE_BYTES {
            bail!("configuration file {shown} is larger than {}", value::format_bytes(MAX_FILE_BYTES));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            anyhow!("configuration file {shown} line {line}: {}", error.message().replace('\n', ", "))
        })?;
        self.add_table(path, "", &table)
    }

    fn add_table(&mut self, path: &Path, prefix: &str, table: &toml::Table) -> Result<()> {
        for (part, value) in table {
            let name = if prefix.is_empty() { part.clone() } else { format!("{prefix}.{part}") };
            if let Some(key) = Key::find(&name) {
                let refused = |problem| anyhow!("configuration file {}: {name}: {problem}", path.display());
                self.add(key, key.kind.take(value).map_err(refused)?, Source::File(path.to_owned()))?;
                continue;
            }
            let inner = format!("{name}.");
            match value {
                toml::Value::Table(table) if KEYS.iter().any(|key| key.name.starts_with(&inner)) => {
                    self.add_table(path, &name, table)?;
                }
                _ => {
                    let tables = KEYS.iter().flat_map(|key| [key.name, key.split().0]);
                    let hint = suggestion(nearest(&name, tables.filter(|name| !name.is_empty())));
                    bail!("configuration file {}: unknown key `{name}`{hint}", path.display());
                }
            }
        }
        Ok(())
    }

    fn add_environment(&mut self, environment: BTreeMap<String, String>) -> Result<()> {
        for (variable, text) in environment {
            let Some(key) = KEYS.iter().find(|key| key.variable() == variable) else {
                let name = &variable[PREFIX.len()..];
                if environment::is_foreign(name) {
                    continue;
                }
                if let Some(key) = environment::close_to(name) {
                    let meant = key.variable();
                    bail!("unknown environment variable `{variable}`, did you mean `{meant}`?");
                }
                self.strangers.push(variable);
                continue;
            };
            self.add_text(key.name, &text, Source::Environment(variable))?;
        }
        Ok(())
    }

    fn add_text(&mut self, name: &str, text: &str, source: Source) -> Result<()> {
        let key = Key::find(name).ok_or_else(|| anyhow!("unknown key `{name}`"))?;
        // A secret's text stays out of the message, whatever is wrong with it.
        let value = key.kind.parse(text).map_err(|problem| anyhow!("{source}: {problem}"))?;
        self.add(key, value, source)
    }

    fn add(&mut self, key: &'static Key, value: Value, source: Source) -> Result<()> {
        if key.secret && matches!(&value, Value::Text(text) if text == MASK) {
            bail!("{source}: {} is a mask, not a value: it was printed by `millrace config`", key.name);
        }
        self.values.insert(key.name, (value, source));
        Ok(())
    }

    /// Renders the settings as TOML, with the source of each value behind it and secrets masked.
    pub(crate) fn print(&self) -> String {
        let mut out = String::from("# flag > environment > file > default\n");
        let mut table = "";
        for key in KEYS {
            let (section, part) = key.split();
            if section != table {
                out.push_str(&format!("\n[{section}]\n"));
                table = section;
            }
            match self.values.get(key.name) {
                None => out.push_str(&format!("# {part} is not set: {}\n", key.about)),
                Some((value, source)) => {
                    let shown =
                        if key.secret { Value::Text(MASK.to_owned()).to_toml() } else { value.to_toml() };
                    let line = format!("{part} = {shown}");
                    out.push_str(&format!("{line:<40} # {source}\n"));
                }
            }
        }
        out
    }

    /// Builds the typed configuration and checks what concerns several keys at once.
    ///
    /// # Errors
    ///
    /// A combination of keys that cannot work.
    pub(crate) fn config(&self) -> Result<Config> {
        let listen = self.addresses("listen");
        let insecure = self.flag("insecure");
        if let Some(address) = listen.iter().find(|address| insecure && !address.ip().is_loopback()) {
            bail!(
                "insecure is refused: the listener {address} is not on loopback; listen on 127.0.0.1 or drop it"
            );
        }
        for key in [
            "console.listen",
            "flight.listen",
            "otlp.listen",
            "otlp.grpc_listen",
            "pipelines.listen",
            "agents.enroll_listen",
            "agents.listen",
        ] {
            let addresses = self.addresses(key);
            if let Some(address) = addresses.iter().find(|address| insecure && !address.ip().is_loopback()) {
                bail!(
                    "insecure is refused: {key} {address} is not on loopback; listen on 127.0.0.1 or drop it"
                );
            }
        }
        let tls = self.tls()?;
        let storage = millrace_engine::Config {
            data_dir: self.text("data").unwrap_or_default().into(),
            object_store: self.object_store()?,
            memtable_max_bytes: self.number("storage.memtable_max_bytes"),
            flush_bytes: self.number("storage.flush_bytes"),
            flush_age_secs: self.number("storage.flush_age").div_ceil(1_000),
            wal_max_bytes: self.number("storage.wal_max_bytes"),
            cache_bytes: self.number("storage.cache_bytes"),
            compute_threads: usize::try_from(self.number("storage.compute_threads"))?,
            disk_threshold_enabled: self.flag("storage.disk_threshold_enabled"),
        };
        if storage.flush_bytes > storage.memtable_max_bytes {
            bail!(
                "storage.flush_bytes is greater than storage.memtable_max_bytes: no flush would ever start"
            );
        }
        let log_level = self.text("log.level").unwrap_or_default();
        if let Err(error) = log_level.parse::<tracing_subscriber::filter::Targets>() {
            bail!("log.level: `{log_level}` is not a level or filter: {error}");
        }
        // A word alone would be taken for a module of which everything is logged, and nothing else.
        for word in log_level.split(',').map(str::trim).filter(|word| !word.is_empty() && !word.contains('='))
        {
            if word.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
                bail!(
                    "log.level: `{word}` is no level; use one of error, warn, info, debug, trace and off, or MODULE=LEVEL"
                );
            }
        }
        let dir =
            self.text("pipelines.dir").map_or_else(|| storage.data_dir.join("pipelines"), PathBuf::from);
        Ok(Config {
            console: self.listen("console.listen"),
            flight: self.listen("flight.listen"),
            agents: agents::section(self)?,
            otlp: self.listen("otlp.listen"),
            otlp_grpc: self.listen("otlp.grpc_listen"),
            pipelines: PipelinesConfig {
                dir,
                exec: self.flag("pipelines.exec"),
                listen: self.listen("pipelines.listen"),
                memory_bytes: self.number("pipelines.memory_bytes"),
                reload_interval: Duration::from_millis(self.number("pipelines.reload_interval")),
            },
            query_memory_bytes: usize::try_from(self.number("query.memory_bytes"))?,
            query_spill_bytes: self.number("query.spill_bytes"),
            storage,
            api: millrace_api::ServerConfig {
                listen,
                insecure,
                tls,
                admin_password: self.admin_password()?,
                password_file: None,
                tokens: self.tokens()?,
                audit: millrace_api::AuditConfig {
                    reads: self.flag("audit.reads"),
                    retention: Duration::from_millis(self.number("audit.retention")),
                },
                notifications: notifications::config(self)?,
                snapshots: self.snapshots()?,
                max_content_length: self.number("http.max_content_length"),
                operation: millrace_api::OperationConfig {
                    access_log: self.flag("log.access"),
                    max_metric_indices: usize::try_from(self.number("metrics.max_indices"))?,
                    license_key: self.license_key()?,
                },
                otlp: self.otlp()?,
            },
            threads: usize::try_from(self.number("threads"))?,
            drain_timeout: Duration::from_millis(self.number("drain_timeout")),
            log_level,
            log_json: self.text("log.format").as_deref() == Some("json"),
            otlp_endpoint: self.otlp_endpoint()?,
            strangers: self.strangers.clone(),
        })
    }

    fn otlp(&self) -> Result<millrace_api::OtlpConfig> {
        let mapping = self.text("otlp.mapping");
        let mapping = mapping.and_then(|name| millrace_api::DocumentMapping::find(&name)).unwrap_or_default();
        let index = self.text("otlp.index").filter(|index| !index.is_empty());
        let is_valid = |index: &&String| {
            !index.starts_with('.') && millrace_catalog::metadata::check_index_name(index).is_ok()
        };
        if let Some(index) = index.as_ref().filter(|index| !is_valid(index)) {
            bail!(
                "otlp.index: `{index}` is no name of an index; leave it unset for logs-<dataset>-<namespace>"
            );
        }
        Ok(millrace_api::OtlpConfig { mapping, index: index.map(Into::into) })
    }

    fn license_key(&self) -> Result<Option<[u8; millrace_api::license::LICENSE_KEY_BYTES]>> {
        let key = self.text("license.public_key");
        let read = key.as_deref().map(millrace_api::license::read_license_key).transpose();
        read.map_err(|error| anyhow!("license.public_key: {error}"))
    }

    fn otlp_endpoint(&self) -> Result<Option<String>> {
        let endpoint = self.text("telemetry.otlp_endpoint");
        if let Some(Err(error)) = endpoint.as_deref().map(crate::telemetry::traces_url) {
            bail!("telemetry.otlp_endpoint: {error}");
        }
        Ok(endpoint)
    }

    fn admin_password(&self) -> Result<Option<String>> {
        let password = self.text("admin_password");
        if let Some(Err(error)) = password.as_deref().map(millrace_accounts::check_password) {
            bail!(
                "admin_password (MILLRACE_ADMIN_PASSWORD): {error}; set another one, or none to keep the one that is stored or \
                 have one made"
            );
        }
        Ok(password)
    }

    fn tokens(&self) -> Result<TokenLifetimes> {
        let span = |name: &str| Duration::from_millis(self.number(name));
        let lifetimes =
            TokenLifetimes { idle: span("auth.token_idle"), absolute: span("auth.token_lifetime") };
        if lifetimes.idle > lifetimes.absolute {
            bail!(
                "auth.token_idle is greater than auth.token_lifetime: no token would ever be idle for so long"
            );
        }
        Ok(lifetimes)
    }

    fn tls(&self) -> Result<Option<TlsFiles>> {
        let clients = match self.text("tls.client_authentication").as_deref() {
            Some("optional") => ClientCertificates::Optional,
            Some("required") => ClientCertificates::Required,
            _ => ClientCertificates::None,
        };
        let authorities = self.text("tls.client_authorities").map(PathBuf::from);
        // A client that is believed to be verified is worse than a server that does not start.
        match (clients, &authorities) {
            (ClientCertificates::None, Some(_)) => bail!(
                "tls.client_authorities is set but tls.client_authentication is `none`: set it to `optional` or `required`"
            ),
            (ClientCertificates::Optional | ClientCertificates::Required, None) => {
                bail!("tls.client_authorities is not set: tls.client_authentication needs it")
            }
            _ => {}
        }
        match (self.text("tls.certificate"), self.text("tls.key")) {
            (Some(certificate), Some(key)) => {
                let authorities = authorities.into_iter().collect();
                Ok(Some(TlsFiles { authorities, clients, ..TlsFiles::new(certificate, key) }))
            }
            (None, None) if authorities.is_some() => {
                bail!(
                    "tls.client_authorities is set but tls.certificate is not: clients are verified over HTTPS only"
                )
            }
            (None, None) => Ok(None),
            (Some(_), None) => bail!("tls.certificate is set but tls.key is not: HTTPS needs both"),
            (None, Some(_)) => bail!("tls.key is set but tls.certificate is not: HTTPS needs both"),
        }
    }

    fn object_store(&self) -> Result<ObjectStoreConfig> {
        let name = |part: &str| format!("storage.object_store.{part}");
        let text = |part: &str| self.text(&name(part));
        if text("kind").as_deref() != Some("s3") {
            let stray = ["bucket", "prefix", "endpoint", "region", "access_key_id", "secret_access_key"];
            if let Some(part) = stray.iter().find(|part| text(part).is_some()) {
                bail!("{} is set but storage.object_store.kind is `local`: set the kind to `s3`", name(part));
            }
            return Ok(ObjectStoreConfig::Local);
        }
        let bucket = text("bucket")
            .ok_or_else(|| anyhow!("storage.object_store.bucket is not set: kind `s3` needs it"))?;
        Ok(ObjectStoreConfig::S3 {
            bucket,
            prefix: text("prefix").unwrap_or_default(),
            endpoint: text("endpoint"),
            region: text("region"),
            access_key_id: text("access_key_id"),
            secret_access_key: text("secret_access_key"),
            allow_http: self.flag("storage.object_store.allow_http"),
        })
    }

    fn snapshots(&self) -> Result<millrace_snapshot::Config> {
        let text = |part: &str| self.text(&format!("snapshot.{part}"));
        let paths = text("path_repo").unwrap_or_default();
        let paths = paths.split(',').map(str::trim).filter(|path| !path.is_empty());
        let path_repo: Vec<PathBuf> = paths.map(PathBuf::from).collect();
        if let Some(relative) = path_repo.iter().find(|path| !path.is_absolute()) {
            bail!("snapshot.path_repo: `{}` is not an absolute path", relative.display());
        }
        let s3 = millrace_snapshot::S3Client {
            endpoint: text("s3.endpoint"),
            region: text("s3.region"),
            access_key_id: text("s3.access_key_id"),
            secret_access_key: text("s3.secret_access_key"),
            allow_http: self.flag("snapshot.s3.allow_http"),
        };
        if s3.access_key_id.is_some() != s3.secret_access_key.is_some() {
            bail!("snapshot.s3 needs both access_key_id and secret_access_key, or neither");
        }
        Ok(millrace_snapshot::Config { path_repo, s3 })
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Bool(true)))
    }

    /// Returns a count, bytes, or milliseconds.
    fn number(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(value) | Value::Bytes(value)) => *value,
            Some(Value::Span(span)) => u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
            _ => 0,
        }
    }

    fn is_default(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some((_, Source::Default)))
    }

    fn listen(&self, name: &str) -> Listen {
        Listen { addresses: self.addresses(name), anywhere: self.is_default(name) }
    }

    fn addresses(&self, name: &str) -> Vec<SocketAddr> {
        match self.get(name) {
            Some(Value::Addresses(addresses)) => addresses.clone(),
            _ => Vec::new(),
        }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `millrace config` prints every key".to_owned(),
        |name| format!(", did you mean `{name}`?"),
    )
}

/// Prints every key with its meaning, variable and default: the reference that `--help` points to.
pub(crate) fn describe() -> String {
    let mut out = String::new();
    for key in KEYS {
        out.push_str(&format!(
            "{}\n    {}\n    {}; {}; default {}{}\n",
            key.name,
            key.about,
            key.kind,
            key.variable(),
            key.default.unwrap_or("unset"),
            key.share.map_or_else(String::new, |share| format!(", at most 1/{share} of the memory")),
        ));
    }
    out
}
