//! Argon2id hashes of passwords: 19 MB and tens of milliseconds of a core each, so only for threads that are few.

use argon2::password_hash::phc::{self, PasswordHash};
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier};
use rand::RngExt;
use rand::distr::Alphanumeric;

/// Characters of a generated password: 142 bits.
const GENERATED_CHARS: usize = 24;

/// Hashes a password into a PHC string.
///
/// # Errors
/// Those of the library.
pub(crate) fn hash(password: &str) -> Result<String, argon2::password_hash::Error> {
    Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string())
}

/// Checks a password against a PHC string.
///
/// # Errors
/// What is wrong with the string.
pub(crate) fn verify(password: &str, hash: &str) -> Result<bool, phc::Error> {
    let hash = PasswordHash::new(hash)?;
    Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Returns whether a PHC string is a hash of Argon2id that takes no more memory and time than those of [`hash`].
pub(crate) fn is_usual(hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    let (usual, Ok(params)) = (Params::default(), Params::try_from(&hash)) else { return false };
    hash.algorithm == Algorithm::Argon2id.ident()
        && hash.hash.is_some()
        && params.m_cost() <= usual.m_cost()
        && params.t_cost() <= usual.t_cost()
        && params.p_cost() <= usual.p_cost()
}

/// Makes a random password of letters and digits.
pub fn generate() -> String {
    rand::rng().sample_iter(Alphanumeric).take(GENERATED_CHARS).map(char::from).collect()
}
