//! Deployments of Elastic's cloud: `cloud_id` stands for the address of a server, `cloud_auth` for a user and a password.
//! Outputs, inputs and filters of the name `elasticsearch` share this.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::{Options, Setting};

/// Port where a deployment names none.
const PORT: u16 = 443;
/// Longest id, in bytes.
const MAX_ID: usize = 4 << 10;

/// Puts `hosts`, `user` and `password` in place of `cloud_id` and `cloud_auth`.
pub fn resolve_cloud_options(options: &mut Options) {
    let has_hosts = options.given().any(|(name, _)| name == "hosts");
    if let Some((at, setting)) = options.take("cloud_id") {
        let host = setting.as_text().ok_or_else(|| "it is no text".to_owned()).and_then(|id| host_of(&id));
        match host {
            Ok(_) if has_hosts => options.fault(at, "give [hosts] or [cloud_id], not both"),
            Ok(host) => options.set_missing("hosts", Setting::Text(host)),
            Err(reason) => options.fault(at, format!("option [cloud_id] cannot be read: {reason}")),
        }
    }
    if let Some((at, setting)) = options.take("cloud_auth") {
        let text = setting.as_text().unwrap_or_default();
        let has_login = options.given().any(|(name, _)| matches!(name, "user" | "password"));
        match text.split_once(':') {
            _ if has_login => options.fault(at, "give [user] and [password], or [cloud_auth], not both"),
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                options.set_missing("user", Setting::Text(user.to_owned()));
                options.set_missing("password", Setting::Text(password.to_owned()));
            }
            _ => options.fault(at, "option [cloud_auth] must be a user and a password with a colon between"),
        }
    }
}

/// Returns the address of the server of a deployment. Its id is a label, a colon, and the base64 of the domain, the server and the
/// console, with `$` between. The server may have a port of its own.
///
/// # Errors
/// The reason why the id has no address.
fn host_of(id: &str) -> Result<String, String> {
    if id.len() > MAX_ID {
        return Err(format!("it has more than {MAX_ID} bytes"));
    }
    let encoded = id.rsplit_once(':').map_or(id, |(_, encoded)| encoded);
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient)
        .decode(encoded.trim())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| "the part behind the label is not base64".to_owned())?;
    let mut parts = decoded.split('$');
    let (domain, server) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if server.is_empty() || server == "undefined" || domain.is_empty() || domain == "undefined" {
        return Err("it names no domain or no server".to_owned());
    }
    let (domain, port) = split_port(domain, PORT)?;
    let (server, port) = split_port(server, port)?;
    let is_name =
        |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    if !is_name(domain) || !is_name(server) {
        return Err("its domain or server is no name".to_owned());
    }
    Ok(format!("https://{server}.{domain}:{port}"))
}

/// Splits a name from its port.
fn split_port(name: &str, default: u16) -> Result<(&str, u16), String> {
    match name.split_once(':') {
        None => Ok((name, default)),
        Some((name, port)) => match port.parse() {
            Ok(port) => Ok((name, port)),
            Err(_) => Err("it has no port behind a colon".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn resolved(given: &[(&str, OptionValue)]) -> Result<Vec<Option<String>>, String> {
        let mut options = options("elasticsearch", given);
        resolve_cloud_options(&mut options);
        let texts = ["hosts", "user", "password"].map(|name| options.text(name)).to_vec();
        match options.finish() {
            Ok(()) => Ok(texts),
            Err(faults) => Err(faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("\n")),
        }
    }

    #[test]
    fn an_id_stands_for_an_address() {
        for (decoded, address) in [
            ("eu.example.org$abc$def", "https://abc.eu.example.org:443"),
            ("eu.example.org:9243$abc", "https://abc.eu.example.org:9243"),
            ("eu.example.org$abc:9244$def:9245", "https://abc.eu.example.org:9244"),
        ] {
            for id in [format!("my:logs:{}", STANDARD.encode(decoded)), STANDARD.encode(decoded)] {
                let id = id.trim_end_matches('=');
                assert_eq!(resolved(&[("cloud_id", id.into())]).unwrap()[0].as_deref(), Some(address));
            }
        }
        let login = resolved(&[("cloud_auth", "elastic:a:b".into())]).unwrap();
        assert_eq!(login[1..], [Some("elastic".to_owned()), Some("a:b".to_owned())]);
    }

    #[test]
    fn options_are_checked() {
        let id = format!("logs:{}", STANDARD.encode("eu.example.org$abc"));
        for (given, reason) in [
            (vec![("cloud_id", OptionValue::from("logs:%%%"))], "is not base64"),
            (vec![("cloud_id", STANDARD.encode("eu.example.org$").into())], "no server"),
            (vec![("cloud_id", STANDARD.encode("eu.example.org$a/b").into())], "is no name"),
            (vec![("cloud_id", STANDARD.encode("eu.example.org:x$a").into())], "no port"),
            (vec![("cloud_id", id.into()), ("hosts", "a".into())], "[hosts] or [cloud_id]"),
            (vec![("cloud_auth", "elastic".into())], "a user and a password"),
            (vec![("cloud_auth", "a:b".into()), ("user", "c".into())], "or [cloud_auth]"),
        ] {
            let faults = resolved(&given).unwrap_err();
            assert!(faults.contains(reason), "{reason}: {faults}");
        }
    }
}
