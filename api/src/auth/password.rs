//! Argon2id hashing, off the connection threads and a few at a time.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use rand::RngExt;
use rand::distr::Alphanumeric;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Verifications that run at a time: each takes 19 MB and tens of milliseconds of a core.
const CONCURRENT: usize = 2;
/// Verifications that run or wait; beyond it callers get 429.
const QUEUED: usize = 128;
/// Characters of a generated password: 142 bits.
const GENERATED_CHARS: usize = 24;

/// Makes and checks password hashes.
#[derive(Debug)]
pub(super) struct Passwords {
    running: Arc<Semaphore>,
    queue: Arc<Semaphore>,
}

/// A place among those that may run.
#[derive(Debug)]
pub(super) struct Turn {
    _queued: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(CONCURRENT)), queue: Arc::new(Semaphore::new(QUEUED)) }
    }
}

impl Passwords {
    /// Waits for a turn to verify.
    pub(super) async fn turn(&self) -> Result<Turn, Error> {
        let queued = self.queue.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                429,
                "es_rejected_execution_exception",
                "too many credentials are being verified, retry",
            )
        })?;
        let running = self.running.clone().acquire_owned().await.map_err(failed)?;
        Ok(Turn { _queued: queued, _running: running })
    }

    /// Hashes a password into a PHC string.
    pub(super) async fn hash(&self, password: String) -> Result<String, Error> {
        let hash = tokio::task::spawn_blocking(move || {
            Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string())
        });
        hash.await.map_err(failed)?.map_err(failed)
    }

    /// Checks a password against a PHC string.
    pub(super) async fn verify(&self, password: String, hash: String) -> Result<bool, Error> {
        let verified = tokio::task::spawn_blocking(move || {
            let hash = PasswordHash::new(&hash)?;
            Ok::<_, argon2::password_hash::phc::Error>(
                Argon2::default().verify_password(password.as_bytes(), &hash).is_ok(),
            )
        });
        verified.await.map_err(failed)?.map_err(failed)
    }
}

/// Makes a random password.
pub(super) fn generate() -> String {
    rand::rng().sample_iter(Alphanumeric).take(GENERATED_CHARS).map(char::from).collect()
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::concealed(500, "illegal_state_exception", &error)
}
