//! The cryptography of TLS: one library for the process.

/// Makes ring the library of the process, which HTTP clients ask for when they are built. Further calls change nothing.
pub fn install_crypto_provider() {
    // An error says that one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
