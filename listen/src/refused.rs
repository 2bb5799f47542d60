//! Log of failed TLS handshakes. Handshakes of strangers fail all day: they are logged at the level `debug`. A refused client
//! certificate is most likely one of a user: it is a warning, at most one a second.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use rustls::{CertificateError, Error};
use tokio::time::Instant;

/// Time between two warnings.
const PAUSE: Duration = Duration::from_secs(1);

static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Logs why a handshake failed.
pub(crate) fn tell(peer: SocketAddr, error: &io::Error) {
    match certificate_fault(error) {
        Some(fault) if is_due() => {
            tracing::warn!(%peer, fault, "a client's certificate is refused");
        }
        _ => tracing::debug!(%peer, %error, "TLS handshake failed"),
    }
}

fn is_due() -> bool {
    let now = Instant::now();
    let Ok(mut last) = LAST.lock() else { return false };
    let due = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
    if due {
        *last = Some(now);
    }
    due
}

/// Returns the fault of a certificate, if a handshake failed for one.
fn certificate_fault(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(fault) = error else { return None };
    let shown = format!("{fault:?}");
    // The verifier has no error of its own for it.
    let is_old = matches!(fault, CertificateError::Other(_) | CertificateError::BadEncoding)
        && (shown.contains("UnsupportedCertVersion") || shown.contains("BadEncoding"));
    Some(match fault {
        _ if is_old => format!(
            "it is none of X.509 version 3, or damaged ({shown}): issue it anew as version 3, with openssl x509 -req … -extfile"
        ),
        fault => format!("{fault}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_certificates_are_told_from_others() {
        let failed = |error: Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let told = |error| certificate_fault(&failed(error));
        assert!(told(Error::InvalidCertificate(CertificateError::Expired)).is_some());
        let old = told(Error::InvalidCertificate(CertificateError::BadEncoding)).unwrap();
        assert!(old.contains("version 3"), "{old}");
        assert_eq!(told(Error::DecryptError), None);
        assert_eq!(certificate_fault(&io::Error::other("x")), None);
    }
}
