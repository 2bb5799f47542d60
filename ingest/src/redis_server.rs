//! A server of Redis: its address, its login, and connections to it. The input and the output `redis` share this.

use std::time::Duration;

use millrace_runtime::install_crypto_provider;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsCertificates,
};

use crate::hosts::host_and_port;
use crate::{Options, Secret, tls};

/// Port where none is given.
const PORT: i64 = 6379;

/// A server and the login there.
#[derive(Clone, Debug)]
pub(crate) struct RedisServer {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path of a socket in place of host and port.
    pub(crate) path: Option<String>,
    pub(crate) database: i64,
    password: Option<Secret>,
    tls: Option<tls::Client>,
    /// Time that a connection, and an answer, may take.
    pub(crate) timeout: Duration,
}

impl RedisServer {
    /// Takes the options of a server but for its host.
    pub(crate) fn take(options: &mut Options, host: String) -> Self {
        let port = options.integer("port", 1..=65_535).unwrap_or(PORT);
        let path = options.text("path");
        let database = options.integer("db", 0..=i64::from(i32::MAX)).unwrap_or(0);
        let password = options.secret("password").filter(|password| !password.expose().is_empty());
        let timeout = options.integer("timeout", 1..=3_600).unwrap_or(5);
        let tls = tls::Client::take_for_stream(options);
        if tls.is_some() && path.is_some() {
            options.fault_here("[ssl_enabled] is for [host]: a socket of this machine has no TLS");
        }
        let port = u16::try_from(port).unwrap_or_default();
        let timeout = Duration::from_secs(timeout.unsigned_abs());
        Self { host, port, path, database, password, tls, timeout }
    }

    /// Returns the server of a host, which may have a port of its own behind a colon.
    ///
    /// # Errors
    /// The port is none.
    pub(crate) fn at(&self, host: &str) -> Result<Self, String> {
        let (host, port) = host_and_port(host, self.port)?;
        Ok(Self { host, port, ..self.clone() })
    }

    fn connection_info(&self) -> Result<ConnectionInfo, RedisError> {
        let (host, port) = (self.host.clone(), self.port);
        let address = match (&self.path, &self.tls) {
            (Some(path), _) => ConnectionAddr::Unix(path.into()),
            (None, None) => ConnectionAddr::Tcp(host, port),
            (None, Some(tls)) => {
                ConnectionAddr::TcpTls { host, port, insecure: tls.is_unverified(), tls_params: None }
            }
        };
        let mut redis = RedisConnectionInfo::default().set_db(self.database);
        if let Some(password) = &self.password {
            redis = redis.set_password(password.expose());
        }
        Ok(address.into_connection_info()?.set_redis_settings(redis))
    }

    /// Connects; the calling thread waits. Reads wait so much longer than the server may take.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub(crate) fn connect(&self, longer: Duration) -> Result<Connection, RedisError> {
        let info = self.connection_info()?;
        let client = match &self.tls {
            None => Client::open(info)?,
            Some(tls) => {
                install_crypto_provider();
                let unreadable = |reason: String| RedisError::from(std::io::Error::other(reason));
                let identity = tls.identity_pem().map_err(unreadable)?;
                let client_tls =
                    identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
                let root_cert = tls.authorities_pem().map_err(unreadable)?;
                Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })?
            }
        };
        let connection = client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout + longer))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }
}
