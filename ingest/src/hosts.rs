//! Hosts of options that name one server or several.

/// Splits a host, which may have a port of its own behind a colon, from its port.
///
/// # Errors
/// The text behind the colon is no port.
pub(crate) fn host_and_port(host: &str, port: u16) -> Result<(String, u16), String> {
    match host.rsplit_once(':') {
        // An address of IPv6 has more colons.
        Some((name, port)) if !name.contains(':') => {
            let port = port.parse().map_err(|_| format!("[{host}] has no port behind its colon"))?;
            Ok((name.to_owned(), port))
        }
        _ => Ok((host.to_owned(), port)),
    }
}
