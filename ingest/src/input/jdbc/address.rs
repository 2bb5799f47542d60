//! Connection strings, as JDBC writes them and as URLs.

use std::fmt;

use crate::Secret;

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    Sqlite,
}

impl Kind {
    /// Name of its JDBC drivers' classes.
    fn classes(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["org.postgresql.Driver"],
            Self::MySql => &["com.mysql.cj.jdbc.Driver", "com.mysql.jdbc.Driver", "org.mariadb.jdbc.Driver"],
            Self::Sqlite => &["org.sqlite.JDBC"],
        }
    }

    /// Checks that a driver class is one of this kind of database.
    ///
    /// # Errors
    /// What to write.
    pub(super) fn check_class(self, class: &str) -> Result<(), String> {
        let name = class.strip_prefix("Java::").unwrap_or(class);
        if self.classes().contains(&name) {
            return Ok(());
        }
        let other = [Self::Postgres, Self::MySql, Self::Sqlite]
            .into_iter()
            .find(|kind| kind.classes().contains(&name));
        Err(match other {
            Some(other) => {
                format!("[{class}] is the driver of {other}, but the connection string is one of {self}")
            }
            None => format!(
                "there is no driver [{class}]: PostgreSQL, MySQL, MariaDB and SQLite are supported, here [{}], and the option may be left out",
                self.classes().join("] or [")
            ),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL or MariaDB",
            Self::Sqlite => "SQLite",
        })
    }
}

/// TLS modes of a connection, the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tls {
    /// Not at all.
    Off,
    /// TLS where the server says that it can: a host in between may deny that.
    #[default]
    Preferred,
    /// Encrypted, the certificate unchecked.
    Required,
    /// The certificate's issuer is checked.
    VerifyIssuer,
    /// Issuer and host name are checked.
    VerifyFull,
}

/// Address of a database.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: Kind,
    /// Empty for SQLite.
    pub(super) host: String,
    pub(super) port: u16,
    /// Name of the database; path of the file for SQLite.
    pub(super) database: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) tls: Tls,
    /// Certificate authorities, PEM.
    pub(super) authorities: Option<String>,
    /// Certificate and key of the client, PEM.
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
    /// Schemas to search, PostgreSQL only.
    pub(super) schema: Option<String>,
}

/// TLS parameters, in whatever order.
#[derive(Debug, Default)]
struct TlsParameters {
    mode: Option<Tls>,
    /// `ssl`, `useSSL`.
    enabled: Option<bool>,
    /// `requireSSL`.
    required: Option<bool>,
    /// `verifyServerCertificate`.
    verify: Option<bool>,
    /// `trustServerCertificate`.
    trust: Option<bool>,
}

impl TlsParameters {
    /// As the drivers decide it: a mode counts before all else.
    fn decide(&self, scheme: &str) -> Tls {
        let on = |wish: Option<bool>| wish == Some(true);
        match (self.mode, scheme) {
            (Some(mode), _) => mode,
            (None, "postgres" | "postgresql") if on(self.enabled) => Tls::VerifyFull,
            (None, "postgres" | "postgresql") => Tls::default(),
            (None, _) if on(self.verify) => Tls::VerifyIssuer,
            (None, "mariadb") if on(self.enabled) && !on(self.trust) => Tls::VerifyFull,
            (None, _) if on(self.enabled) || on(self.required) => Tls::Required,
            (None, _) if self.enabled == Some(false) => Tls::Off,
            (None, _) => Tls::default(),
        }
    }
}

/// Parameters of JDBC drivers that steer what is no question here.
const WITHOUT_EFFECT: &[&str] = &[
    "allowMultiQueries",
    "allowPublicKeyRetrieval",
    "applicationName",
    "ApplicationName",
    "autoReconnect",
    "binaryTransfer",
    "cachePrepStmts",
    "characterEncoding",
    "characterSetResults",
    "charset",
    "connectTimeout",
    "connectionCollation",
    "defaultFetchSize",
    "defaultRowFetchSize",
    "failOverReadOnly",
    "loginTimeout",
    "logUnclosedConnections",
    "maxReconnects",
    "preferQueryMode",
    "prepareThreshold",
    "readOnly",
    "reWriteBatchedInserts",
    "rewriteBatchedStatements",
    "socketTimeout",
    "stringtype",
    "targetServerType",
    "tcpKeepAlive",
    "useCompression",
    "useCursorFetch",
    "useLegacyDatetimeCode",
    "useServerPrepStmts",
    "useUnicode",
];

impl Address {
    /// Reads a connection string.
    ///
    /// # Errors
    /// What is wrong with it. Passwords are not in the text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = text.trim();
        let url = url.strip_prefix("jdbc:").unwrap_or(url);
        let (scheme, rest) = url.split_once(':').ok_or_else(|| {
            "the connection string must begin with jdbc:postgresql://, jdbc:mysql://, jdbc:mariadb:// or jdbc:sqlite:".to_owned()
        })?;
        let (kind, port) = match scheme {
            "postgresql" | "postgres" => (Kind::Postgres, 5432),
            "mysql" | "mariadb" => (Kind::MySql, 3306),
            "sqlite" => return Self::file(rest),
            other => {
                return Err(format!(
                    "databases of kind [{other}] are not supported: jdbc:postgresql://, jdbc:mysql://, jdbc:mariadb:// and jdbc:sqlite: are"
                ));
            }
        };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Self::empty(kind);
        address.port = port;
        // PostgreSQL's driver takes a bare database name too.
        let (authority, database) = match place.strip_prefix("//") {
            Some(place) => place.split_once('/').unwrap_or((place, "")),
            None if kind == Kind::Postgres => ("", place.trim_start_matches('/')),
            None => return Err(format!("[{scheme}:] must be followed by //host/database")),
        };
        if database.contains('@') {
            return Err("the connection string has an @ behind the address; write a / in a password as %2F and an @ as %40, or give [jdbc_user] and [jdbc_password]".to_owned());
        }
        address.database = decode(database)?;
        let host = match authority.rsplit_once('@') {
            None => authority,
            Some((account, host)) => {
                let (user, password) = match account.split_once(':') {
                    None => (account, None),
                    Some((user, password)) => (user, Some(Secret::new(decode(password)?))),
                };
                address.user = Some(decode(user)?).filter(|user| !user.is_empty());
                address.password = password;
                host
            }
        };
        if host.contains(',') {
            return Err("the address names several hosts: one is supported".to_owned());
        }
        address.set_host(host)?;
        let mut wishes = TlsParameters::default();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let Some((name, value)) = parameter.split_once('=') else {
                address.parameter(parameter, "", &mut wishes).map_err(|_| unknown_parameter(""))?;
                continue;
            };
            address.parameter(name, &decode(value)?, &mut wishes)?;
        }
        address.tls = wishes.decide(scheme);
        if address.authorities.is_some() && address.tls < Tls::VerifyIssuer {
            return Err("the certificate authorities that are given would not be used: write sslmode=verify-full, which also checks the name of the host, or verify-ca".to_owned());
        }
        if address.database.is_empty() && kind == Kind::Postgres {
            address.database = address.user.clone().unwrap_or_default();
        }
        Ok(address)
    }

    fn empty(kind: Kind) -> Self {
        Self {
            kind,
            host: String::new(),
            port: 0,
            database: String::new(),
            user: None,
            password: None,
            tls: Tls::default(),
            authorities: None,
            certificate: None,
            key: None,
            schema: None,
        }
    }

    fn file(rest: &str) -> Result<Self, String> {
        let path = rest.split_once('?').map_or(rest, |(path, _)| path);
        let path = path.strip_prefix("file:").unwrap_or(path);
        // The URL form: sqlite:///path.
        let path = if path.starts_with("///") { path.trim_start_matches("//") } else { path };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path == ":memory:" {
            return Err(
                "a SQLite database needs the path of its file, as in jdbc:sqlite:/var/lib/app.db".to_owned()
            );
        }
        Ok(Self { database: path.to_owned(), ..Self::empty(Kind::Sqlite) })
    }

    fn set_host(&mut self, host: &str) -> Result<(), String> {
        let (name, port) = match host.strip_prefix('[') {
            Some(bracketed) => {
                let (name, rest) =
                    bracketed.split_once(']').ok_or_else(|| format!("[{host}] has an open bracket"))?;
                (name, rest.strip_prefix(':'))
            }
            None => match host.rsplit_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (host, None),
            },
        };
        if let Some(port) = port.filter(|port| !port.is_empty()) {
            // What stands there may be part of a password that is not encoded.
            self.port = port.parse().map_err(|_| {
                "what stands behind the host is not a port; write special characters of a password as %2F and the like".to_owned()
            })?;
        }
        self.host = if name.is_empty() { "localhost".to_owned() } else { decode(name)? };
        Ok(())
    }

    fn parameter(&mut self, name: &str, value: &str, wishes: &mut TlsParameters) -> Result<(), String> {
        let boolean = || match value.to_ascii_lowercase().as_str() {
            "" | "true" | "yes" | "1" => Ok(Some(true)),
            "false" | "no" | "0" => Ok(Some(false)),
            _ => Err(format!("[{name}] has a value that is not known: true or false")),
        };
        let only = |values: &[&str], instead: &str| {
            let known = values.iter().any(|known| known.eq_ignore_ascii_case(value));
            if known { Ok(()) } else { Err(format!("[{name}] has a value that is not supported: {instead}")) }
        };
        match name {
            "user" | "username" => self.user = Some(value.to_owned()),
            "password" => self.password = Some(Secret::new(value)),
            "currentSchema" if self.kind == Kind::Postgres => self.schema = Some(value.to_owned()),
            "sslmode" | "sslMode" | "ssl-mode" => {
                wishes.mode = Some(match value.to_ascii_lowercase().replace('_', "-").as_str() {
                    "disable" | "disabled" => Tls::Off,
                    "allow" | "prefer" | "preferred" => Tls::Preferred,
                    "require" | "required" | "trust" => Tls::Required,
                    "verify-ca" => Tls::VerifyIssuer,
                    "verify-full" | "verify-identity" => Tls::VerifyFull,
                    _ => {
                        return Err(format!(
                            "[{name}] has a value that is not known: disable, prefer, require, verify-ca or verify-full"
                        ));
                    }
                });
            }
            "ssl" | "useSSL" | "useSsl" => wishes.enabled = boolean()?,
            "requireSSL" => wishes.required = boolean()?,
            "verifyServerCertificate" => wishes.verify = boolean()?,
            "trustServerCertificate" => wishes.trust = boolean()?,
            // What would change values is refused where it is not what happens here.
            "serverTimezone" | "connectionTimeZone" => {
                only(&["UTC", "GMT", "Z", "+00:00", "Etc/UTC"], "give the zone as [jdbc_default_timezone]")?;
            }
            "zeroDateTimeBehavior" => only(&["convertToNull", "CONVERT_TO_NULL"], "dates of zeros are null")?,
            "tinyInt1isBit" => only(&["true"], "TINYINT(1) is a boolean; cast it in the statement")?,
            "yearIsDateType" => only(&["false"], "a YEAR is a number; leave it out")?,
            "sslrootcert" | "serverSslCert" | "ssl-ca" => self.authorities = Some(value.to_owned()),
            "sslcert" | "ssl-cert" => self.certificate = Some(value.to_owned()),
            "sslkey" | "ssl-key" => self.key = Some(value.to_owned()),
            known if WITHOUT_EFFECT.contains(&known) => {}
            unknown => return Err(unknown_parameter(unknown)),
        }
        Ok(())
    }

    /// The address without user and password, as an identity.
    pub(super) fn identity(&self) -> String {
        match self.kind {
            Kind::Postgres => format!("postgresql://{}:{}/{}", self.host, self.port, self.database),
            Kind::MySql => format!("mysql://{}:{}/{}", self.host, self.port, self.database),
            Kind::Sqlite => format!("sqlite:{}", self.database),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("at", &self.identity())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || {
        "a percent sign in the connection string must be followed by two hexadecimal digits; write a percent sign itself as %25".to_owned()
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
            let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Names an unknown parameter where it looks like a name: it may be the rest of a password that has an `&`.
fn unknown_parameter(name: &str) -> String {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_name =
        begins && name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match is_name {
        true => format!("the connection string has a parameter [{name}] that is not supported: remove it"),
        false => "the connection string has a parameter that is not supported: remove it, or write an & in a password as %26".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        for (text, identity, user) in [
            (
                "jdbc:postgresql://db:5433/logs?user=joe&password=p%40",
                "postgresql://db:5433/logs",
                Some("joe"),
            ),
            ("postgres://joe:p%40@db/logs", "postgresql://db:5432/logs", Some("joe")),
            ("jdbc:postgresql:logs", "postgresql://localhost:5432/logs", None),
            (
                "jdbc:mysql://127.0.0.1/app?useSSL=false&serverTimezone=UTC",
                "mysql://127.0.0.1:3306/app",
                None,
            ),
            ("jdbc:mariadb://[::1]:3307/app", "mysql://::1:3307/app", None),
            ("jdbc:sqlite:/var/lib/app.db", "sqlite:/var/lib/app.db", None),
            ("jdbc:sqlite:data/app.db", "sqlite:data/app.db", None),
            ("sqlite:///var/lib/app.db?mode=ro", "sqlite:/var/lib/app.db", None),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!(address.identity(), identity, "{text}");
            assert_eq!(address.user.as_deref(), user, "{text}");
        }
        let tls = |text: &str| Address::parse(text).expect(text).tls;
        assert_eq!(tls("jdbc:postgresql://db/logs"), Tls::Preferred);
        assert_eq!(tls("jdbc:postgresql://db/logs?ssl=true"), Tls::VerifyFull);
        assert_eq!(tls("jdbc:postgresql://db/logs?sslmode=verify-ca"), Tls::VerifyIssuer);
        assert_eq!(tls("jdbc:mysql://db/logs?useSSL=true"), Tls::Required);
        assert_eq!(tls("jdbc:mysql://db/logs?sslMode=VERIFY_IDENTITY"), Tls::VerifyFull);
        // A mode counts wherever it stands.
        assert_eq!(tls("jdbc:mysql://db/logs?sslMode=VERIFY_IDENTITY&useSSL=false"), Tls::VerifyFull);
        assert_eq!(tls("jdbc:mysql://db/logs?verifyServerCertificate=true&useSSL=true"), Tls::VerifyIssuer);
        assert_eq!(tls("jdbc:mysql://db/logs?useSSL=false"), Tls::Off);
        assert_eq!(tls("jdbc:mysql://db/logs?requireSSL=false"), Tls::Preferred);
        assert_eq!(tls("jdbc:mariadb://db/logs?useSsl=true"), Tls::VerifyFull);
        assert_eq!(tls("jdbc:mariadb://db/logs?useSsl=true&trustServerCertificate=true"), Tls::Required);
        assert_eq!(tls("jdbc:postgresql://db/logs?sslmode=verify-full&sslrootcert=/ca.pem"), Tls::VerifyFull);
    }

    #[test]
    fn what_is_wrong_is_named_without_secrets() {
        for (text, part) in [
            ("jdbc:oracle:thin:@db:1521:x", "[oracle]"),
            ("nothing", "jdbc:postgresql://"),
            ("jdbc:mysql:app", "//host/database"),
            ("jdbc:mysql://db/app?what=1", "[what]"),
            ("jdbc:postgresql://a,b/logs", "several hosts"),
            ("jdbc:sqlite:", "path"),
            ("postgres://joe:secret%4@db:no/logs", "percent"),
            ("postgres://joe:secret/x@db/logs", "%2F"),
            ("postgres://joe:12/secret@db/logs", "%2F"),
            ("jdbc:postgresql://db/logs?sslmode=verify", "verify-full"),
            ("jdbc:postgresql://db/logs?ssl=ture", "true or false"),
            ("jdbc:mysql://db/logs?sslMode=VERIFY", "verify-full"),
            ("jdbc:mysql://db/logs?useSSL=maybe", "true or false"),
            ("jdbc:postgresql://db/logs?sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("jdbc:postgresql://db/logs?sslmode=require&sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("jdbc:mysql://db/logs?serverTimezone=Europe/Berlin", "[jdbc_default_timezone]"),
            ("jdbc:mysql://db/logs?zeroDateTimeBehavior=round", "null"),
            // The rest of a password that is not encoded.
            ("jdbc:postgresql://db/logs?user=joe&password=my&secret", "%26"),
            ("jdbc:postgresql://db/logs?user=joe&password=my&5secret!=x", "%26"),
            ("jdbc:postgresql://db/logs?user=joe&password=my&ssl=secret", "true or false"),
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
        let address = Address::parse("postgres://joe:secret@db/logs").expect("an address");
        assert!(!format!("{address:?}").contains("secret"));
    }

    #[test]
    fn drivers_belong_to_their_database() {
        assert!(Kind::MySql.check_class("com.mysql.cj.jdbc.Driver").is_ok());
        assert!(Kind::Postgres.check_class("Java::org.postgresql.Driver").is_ok());
        assert!(Kind::Postgres.check_class("org.sqlite.JDBC").is_err_and(|error| error.contains("SQLite")));
        assert!(
            Kind::Postgres
                .check_class("oracle.jdbc.OracleDriver")
                .is_err_and(|error| error.contains("supported"))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(jdbc:)?(mysql|postgresql|sqlite)?[:/@?&=%a-z0-9\\[\\]]{0,40}") {
            let _ = Address::parse(&text);
        }
    }
}
