//! The table of configuration keys: the one place where a key's name, kind, default and meaning
//! are written. Flags, environment, files, `millrace config` and the error messages all read it.

use super::value::Kind;

/// One configuration key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Dotted name, as in the file.
    pub(crate) name: &'static str,
    /// Kind of its value.
    pub(crate) kind: Kind,
    /// Its value where nothing else is said; `None` for keys that may stay unset.
    pub(crate) default: Option<&'static str>,
    /// `true` if it is shown masked.
    pub(crate) secret: bool,
    /// Part of the memory that the process may have, such as 4 for a quarter, that its default does not go beyond.
    pub(crate) share: Option<u64>,
    /// One line that says what it does.
    pub(crate) about: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default: Some(default), secret: false, share: None, about }
}

const fn unset(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, default: None, secret: false, share: None, about }
}

const fn secret(name: &'static str, about: &'static str) -> Key {
    Key { name, kind: Kind::Text, default: None, secret: true, share: None, about }
}

/// A key for bytes of memory.
const fn memory(
    name: &'static str,
    least: u64,
    default: &'static str,
    share: u64,
    about: &'static str,
) -> Key {
    Key { name, kind: Kind::Bytes(least), default: Some(default), secret: false, share: Some(share), about }
}

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// Every key, in the order in which `millrace config` prints them: top level first, then by table.
pub(crate) static KEYS: &[Key] = &[
    key("data", Kind::Text, "data", "directory of log, catalog, cache and local segments"),
    key("listen", Kind::Addresses, "127.0.0.1:9200", "addresses of the data API"),
    key("insecure", Kind::Bool, "false", "serve without credentials; every listener must be on loopback"),
    secret(
        "admin_password",
        "password of the user admin at the first start, six characters or more; generated when unset",
    ),
    key(
        "drain_timeout",
        Kind::Span(0),
        "30s",
        "how long the end after SIGTERM may take: requests and flushes that take longer are cut",
    ),
    key("threads", Kind::Count(1024), "0", "threads that serve requests; 0 is one a core"),
    key("auth.token_idle", Kind::Span(1_000), "12h", "how long a login token counts after its last use"),
    key(
        "auth.token_lifetime",
        Kind::Span(1_000),
        "30d",
        "how long a login token counts at most after the login",
    ),
    key(
        "audit.reads",
        Kind::Bool,
        "false",
        "whether the audit tells what is read, beside logins, refusals and changes",
    ),
    key("audit.retention", Kind::Span(86_400_000), "90d", "how long the audit keeps a day"),
    unset("tls.certificate", Kind::Text, "PEM file with the certificate chain; HTTPS needs it and tls.key"),
    unset("tls.key", Kind::Text, "PEM file with the private key"),
    key(
        "tls.client_authentication",
        Kind::Word(&["none", "optional", "required"]),
        "none",
        "whether clients are asked for certificates: `optional` verifies those that are sent, `required` refuses clients without",
    ),
    unset(
        "tls.client_authorities",
        Kind::Text,
        "PEM file with the certificates of those who certify clients",
    ),
    key(
        "log.level",
        Kind::Text,
        "info",
        "error, warn, info, debug, trace, or a filter such as info,millrace_engine=debug",
    ),
    key("log.format", Kind::Word(&["text", "json"]), "text", "text or json, a line an event, on stderr"),
    key(
        "log.access",
        Kind::Bool,
        "false",
        "whether each request is a line of the log, with the target `access`",
    ),
    unset(
        "telemetry.otlp_endpoint",
        Kind::Text,
        "collector that spans are sent to over OTLP (HTTP), such as http://localhost:4318; nowhere when unset",
    ),
    key(
        "metrics.max_indices",
        Kind::Count(10_000),
        "100",
        "how many indices, the largest ones, have metrics of their own; the others are summed",
    ),
    unset(
        "license.public_key",
        Kind::Text,
        "Ed25519 key of the issuer of licences, 32 bytes in Base64; without one none can be installed",
    ),
    key("http.max_content_length", Kind::Bytes(KB), "100MB", "greatest request body, after decompression"),
    key(
        "console.listen",
        Kind::AddressesOrNone,
        "127.0.0.1:5601",
        "addresses of the console, for the users of the data API; `off` for none",
    ),
    key(
        "flight.listen",
        Kind::AddressesOrNone,
        "127.0.0.1:9401",
        "addresses of Arrow Flight SQL, for the users of the data API; `off` for none",
    ),
    key(
        "agents.enroll_listen",
        Kind::AddressesOrNone,
        "off",
        "addresses on which agents enrol, by convention port 1515; `off` for none",
    ),
    key(
        "agents.listen",
        Kind::AddressesOrNone,
        "off",
        "addresses on which agents send keep-alives and users list them, by convention port 55000; `off` for none",
    ),
    secret(
        "agents.enroll_secret",
        "secret that enrolment asks for, eight bytes or more; needed beyond loopback unless certificates are",
    ),
    key(
        "agents.enroll_certificate",
        Kind::Bool,
        "false",
        "whether a client certificate that tls.client_authorities verify enrols an agent, in place of the secret",
    ),
    key(
        "agents.enroll_per_minute",
        Kind::Count(1_000_000),
        "120",
        "requests for enrolment of one address in a minute; further ones are refused with 429",
    ),
    key("agents.max", Kind::Count(1_000_000), "50000", "how many agents there may be"),
    key(
        "agents.pending_after",
        Kind::Span(1_000),
        "1m",
        "age of the last keep-alive from which on an agent is pending",
    ),
    key(
        "agents.disconnected_after",
        Kind::Span(1_000),
        "10m",
        "age of the last keep-alive from which on an agent is disconnected",
    ),
    key(
        "otlp.listen",
        Kind::AddressesOrNone,
        "off",
        "addresses for OpenTelemetry's logs alone, usually port 4318; the data API takes them at /v1/logs as well",
    ),
    key(
        "otlp.grpc_listen",
        Kind::AddressesOrNone,
        "off",
        "addresses for OpenTelemetry's logs over gRPC, usually port 4317; flight.listen takes them as well",
    ),
    key(
        "otlp.mapping",
        Kind::Word(&["otel", "ecs"]),
        "otel",
        "form of the documents of OpenTelemetry's logs: its own model, or names of the Elastic Common Schema",
    ),
    unset(
        "otlp.index",
        Kind::Text,
        "index of all of OpenTelemetry's logs; when unset, logs-<dataset>-<namespace>",
    ),
    unset(
        "notifications.allow",
        Kind::Text,
        "where notifications of alerts may go, joined by commas: hosts (hooks.example.com, *.example.com), `*` for any public one, addresses and networks (127.0.0.1, 10.1.0.0/16); nowhere when unset",
    ),
    secret(
        "notifications.secret_key",
        "key that secrets of notifications are encrypted with: 32 bytes in Base64 or 64 hexadecimal digits; without one there are none",
    ),
    key(
        "notifications.per_minute",
        Kind::Count(100_000),
        "60",
        "notifications a minute of a channel, beyond which a digest tells of the rest",
    ),
    key(
        "notifications.give_up_after",
        Kind::Span(60_000),
        "2d",
        "how long a notification is tried again before alert_error tells that it was not sent",
    ),
    unset(
        "notifications.command_directory",
        Kind::Text,
        "directory of the programs that the method command may start; it starts none when unset",
    ),
    unset(
        "notifications.authorities",
        Kind::Text,
        "PEM file with certificates of authorities that notifications trust beside those of the system",
    ),
    unset("notifications.smtp.host", Kind::Text, "server of mail, by whose name its certificate is verified"),
    key("notifications.smtp.port", Kind::Count(65_535), "587", "port of the server of mail"),
    key(
        "notifications.smtp.tls",
        Kind::Word(&["starttls", "implicit", "none"]),
        "starttls",
        "how the connection is encrypted: from STARTTLS on, from the first byte on (port 465), or not at all (on this machine only)",
    ),
    unset("notifications.smtp.user", Kind::Text, "name at the server of mail"),
    secret("notifications.smtp.password", "password at the server of mail"),
    unset(
        "notifications.smtp.from",
        Kind::Text,
        "address that mails come from, such as Millrace <alerts@example.com>",
    ),
    unset(
        "pipelines.dir",
        Kind::Text,
        "directory of pipelines: *.conf and pipelines.yml; `pipelines` in the data directory when unset",
    ),
    key(
        "pipelines.exec",
        Kind::Bool,
        "false",
        "whether the input exec may run programs, as the server's user and for whoever may write pipelines",
    ),
    key(
        "pipelines.listen",
        Kind::Addresses,
        "127.0.0.1:9600",
        "addresses on which pipelines are managed, by the users of the data API",
    ),
    memory(
        "pipelines.memory_bytes",
        MB,
        "512MB",
        8,
        "memory of events in all pipelines together; one pipeline has half of it at most. Beyond, inputs wait and http answers 429",
    ),
    key(
        "pipelines.reload_interval",
        Kind::Span(0),
        "3s",
        "time between looks for changed pipelines; 0 looks only at the start",
    ),
    memory(
        "query.memory_bytes",
        MB,
        "512MB",
        4,
        "memory of all searches and statements together; statements go to disk beyond, aggregations are refused with 429",
    ),
    key(
        "query.spill_bytes",
        Kind::Bytes(MB),
        "4GB",
        "disk of all statements together, for sorts and joins beyond the memory and rows behind cursors; an eighth for one cursor. Refused with 429 beyond",
    ),
    memory(
        "storage.memtable_max_bytes",
        MB,
        "128MB",
        8,
        "unflushed documents over all shards; beyond it writers wait, then are refused with 429",
    ),
    memory("storage.flush_bytes", KB, "32MB", 32, "documents in one shard's memtable that start a flush"),
    key(
        "storage.flush_age",
        Kind::Span(1_000),
        "10m",
        "age of the oldest unflushed document that starts a flush",
    ),
    key(
        "storage.wal_max_bytes",
        Kind::Bytes(MB),
        "512MB",
        "log size beyond which the oldest memtables are flushed",
    ),
    key(
        "storage.cache_bytes",
        Kind::Bytes(MB),
        "8GB",
        "local copies of index bundles of a remote object store",
    ),
    key(
        "storage.compute_threads",
        Kind::Count(1024),
        "0",
        "threads that parse, search, flush and compact; 0 is one a core",
    ),
    key(
        "storage.disk_threshold_enabled",
        Kind::Bool,
        "true",
        "whether indices are read-only while the disk is at cluster.routing.allocation.disk.watermark.flood_stage",
    ),
    key(
        "storage.object_store.kind",
        Kind::Word(&["local", "s3"]),
        "local",
        "where segments live: `local` is below the data directory, `s3` an S3-compatible service",
    ),
    unset("storage.object_store.bucket", Kind::Text, "bucket; required with kind s3"),
    unset("storage.object_store.prefix", Kind::Text, "key prefix within the bucket"),
    unset("storage.object_store.endpoint", Kind::Text, "URL of the service; AWS's own when unset"),
    unset("storage.object_store.region", Kind::Text, "region; us-east-1 when unset"),
    unset(
        "storage.object_store.access_key_id",
        Kind::Text,
        "access key id; the machine's credentials when unset",
    ),
    secret("storage.object_store.secret_access_key", "secret access key"),
    key("storage.object_store.allow_http", Kind::Bool, "false", "allow an endpoint without TLS"),
    unset(
        "snapshot.path_repo",
        Kind::Text,
        "directories below which snapshot repositories of type fs may lie, separated by commas; none when unset",
    ),
    unset(
        "snapshot.s3.endpoint",
        Kind::Text,
        "URL of the service of repositories of type s3; AWS's own when unset",
    ),
    unset("snapshot.s3.region", Kind::Text, "region; us-east-1 when unset"),
    unset("snapshot.s3.access_key_id", Kind::Text, "access key id; the machine's credentials when unset"),
    secret("snapshot.s3.secret_access_key", "secret access key"),
    key("snapshot.s3.allow_http", Kind::Bool, "false", "allow an endpoint without TLS"),
];

impl Key {
    /// Finds a key by its dotted name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Returns the environment variable that sets the key.
    pub(crate) fn variable(&self) -> String {
        format!("{}{}", super::PREFIX, self.name.replace('.', "__").to_ascii_uppercase())
    }

    /// Returns table and last part of the name; the table is empty at the top level.
    pub(crate) fn split(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

/// Returns the candidate nearest to a misspelt name, if any is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = name.rsplit('.').next().unwrap_or(name);
    candidates
        .map(|candidate| {
            let whole = distance(name, candidate);
            // A key in the wrong table: the last part decides.
            let tail = candidate.rsplit('.').next().unwrap_or(candidate);
            (whole.min(distance(last, tail) + 1), whole, candidate)
        })
        .filter(|(distance, _, _)| *distance <= (name.len() / 3).clamp(2, 4))
        .min()
        .map(|(_, _, candidate)| candidate)
}

/// Counts insertions, deletions, replacements and swaps of neighbours between two names (optimal
/// string alignment). Both are cut at 128 bytes, which bounds the work on hostile input.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let a = &a.as_bytes()[..a.len().min(128)];
    let b = &b.as_bytes()[..b.len().min(128)];
    let mut older: Vec<usize> = Vec::new();
    let mut old: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut new = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = old[j - 1] + usize::from(!a[i - 1].eq_ignore_ascii_case(&b[j - 1]));
            new[j] = replaced.min(old[j] + 1).min(new[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                new[j] = new[j].min(older[j - 2] + 1);
            }
        }
        older = std::mem::replace(&mut old, new);
    }
    old[b.len()]
}
