//! The section `notifications`: where alerts may be sent, and how.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millrace_notifications::{Config, Smtp, SmtpTls};

use super::Settings;

/// Builds the section.
///
/// # Errors
///
/// Names the key that is wrong or missing.
pub(super) fn config(settings: &Settings) -> Result<Config> {
    let text = |name: &str| settings.text(&format!("notifications.{name}"));
    let allow = text("allow").unwrap_or_default();
    let per_minute = settings.number("notifications.per_minute");
    if per_minute == 0 {
        bail!("notifications.per_minute is 0: nothing would ever be sent; it must be 1 or greater");
    }
    let smtp = match (text("smtp.host"), text("smtp.from")) {
        (Some(host), Some(from)) => Some(Smtp {
            host,
            port: u16::try_from(settings.number("notifications.smtp.port"))?,
            tls: match text("smtp.tls").as_deref() {
                Some("implicit") => SmtpTls::Implicit,
                Some("none") => SmtpTls::None,
                _ => SmtpTls::StartTls,
            },
            credentials: match (text("smtp.user"), text("smtp.password")) {
                (Some(user), Some(password)) => Some((user, password)),
                (None, None) => {
                    for name in ["smtp.user", "smtp.password"] {
                        if text(name).is_some() {
                            bail!("notifications.{name} is set but notifications.smtp.host is not");
                        }
                    }
                    None
                }
                (Some(_), None) => {
                    bail!("notifications.smtp.user is set but notifications.smtp.password is not")
                }
                (None, Some(_)) => {
                    bail!("notifications.smtp.password is set but notifications.smtp.user is not")
                }
            },
            from,
        }),
        (None, None) => None,
        (Some(_), None) => {
            bail!("notifications.smtp.host is set but notifications.smtp.from is not: mails need a sender")
        }
        (None, Some(_)) => bail!("notifications.smtp.from is set but notifications.smtp.host is not"),
    };
    Ok(Config {
        allow: allow.parse().map_err(|problem| anyhow!("notifications.allow: {problem}"))?,
        secret_key: text("secret_key").map(|text| key(&text)).transpose()?,
        smtp,
        commands: text("command_directory").map(PathBuf::from),
        authorities: text("authorities").map(PathBuf::from),
        per_minute: u32::try_from(per_minute)?,
        give_up_after: Duration::from_millis(settings.number("notifications.give_up_after")),
    })
}

/// Reads a key; its text stays out of the message.
fn key(text: &str) -> Result<[u8; 32]> {
    let text = text.trim();
    let hex = || {
        let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
        digits.then(|| (0..64).step_by(2).filter_map(pair).collect::<Vec<u8>>())
    };
    let bytes = hex().or_else(|| BASE64_STANDARD.decode(text).ok());
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        anyhow!("notifications.secret_key is no key: 32 bytes in Base64 (`openssl rand -base64 32`) or 64 hexadecimal digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_base64_or_hexadecimal() {
        assert_eq!(key(&"0f".repeat(32)).unwrap(), [15; 32]);
        assert_eq!(key(&BASE64_STANDARD.encode([7; 32])).unwrap(), [7; 32]);
        for wrong in ["", "short", &"0g".repeat(32), &BASE64_STANDARD.encode([7; 31])] {
            let error = key(wrong).unwrap_err().to_string();
            assert!(error.starts_with("notifications.secret_key is no key"), "{error}");
        }
    }
}
