//! Cache of verified and refused credentials, as digests with a key of this process. A memory dump shows nothing that can be
//! checked against guesses elsewhere.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::RwLock;
use ring::hmac;

/// Time that a verification counts after its last use.
const VERIFIED_MS: i64 = 60 * 60 * 1000;
/// Most verified credentials; beyond it those unused longest are forgotten.
const MAX_VERIFIED: usize = 4096;
/// Time that a refusal counts.
const REFUSED_MS: i64 = 30 * 1000;
/// Most refused credentials; beyond it the oldest are forgotten.
const MAX_REFUSED: usize = 4096;

/// Most accounts with the addresses that they came in from; beyond it the oldest are forgotten.
const MAX_CAME_IN: usize = 4096;

/// Digest of credentials together with what they are checked against: where an account changes, another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// Makes one that no credentials have.
    pub(super) fn random() -> Self {
        Self(rand::random())
    }
}

/// Makes digests.
#[derive(Debug)]
pub(super) struct Digests(hmac::Key);

impl Digests {
    pub(super) fn new() -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>()))
    }

    /// Returns the digest of some parts, each for itself.
    pub(super) fn digest(&self, parts: &[&str]) -> Digest {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        Digest(digest)
    }
}

/// Credentials that were right.
#[derive(Debug, Default)]
pub(super) struct VerifiedCredentials(RwLock<HashMap<Digest, AtomicI64>>);

impl VerifiedCredentials {
    /// Returns whether these are among them, which makes them count for longer.
    pub(super) fn contains(&self, digest: &Digest, now_ms: i64) -> bool {
        let ends_ms = self.0.read();
        let end = ends_ms.get(digest).filter(|end| now_ms < end.load(Ordering::Relaxed));
        if let Some(end) = end {
            end.store(now_ms.saturating_add(VERIFIED_MS), Ordering::Relaxed);
        }
        end.is_some()
    }

    pub(super) fn remember(&self, digest: Digest, now_ms: i64) {
        let mut ends_ms = self.0.write();
        if ends_ms.len() >= MAX_VERIFIED && !ends_ms.contains_key(&digest) {
            let unused = ends_ms.iter().min_by_key(|(_, end)| end.load(Ordering::Relaxed));
            if let Some(unused) = unused.map(|(digest, _)| *digest) {
                ends_ms.remove(&unused);
            }
        }
        ends_ms.insert(digest, AtomicI64::new(now_ms.saturating_add(VERIFIED_MS)));
    }
}

/// Accounts, as digests, that came in from addresses.
#[derive(Debug, Default)]
pub(super) struct CameIn {
    known: HashSet<(IpAddr, Digest)>,
    /// The same, the oldest first.
    order: VecDeque<(IpAddr, Digest)>,
}

impl CameIn {
    pub(super) fn contains(&self, pair: &(IpAddr, Digest)) -> bool {
        self.known.contains(pair)
    }

    pub(super) fn remember(&mut self, pair: (IpAddr, Digest)) {
        if !self.known.insert(pair) {
            return;
        }
        self.order.push_back(pair);
        if self.order.len() > MAX_CAME_IN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Credentials that were wrong.
#[derive(Debug, Default)]
pub(super) struct RejectedCredentials {
    known: HashSet<Digest>,
    /// The same with their ends, the oldest first.
    ends_ms: VecDeque<(i64, Digest)>,
}

impl RejectedCredentials {
    pub(super) fn contains(&mut self, digest: &Digest, now_ms: i64) -> bool {
        // A time further away than that is one from before the clock was set back.
        while self.ends_ms.front().is_some_and(|(end, _)| *end <= now_ms || *end > now_ms + REFUSED_MS) {
            self.forget_oldest();
        }
        self.known.contains(digest)
    }

    pub(super) fn remember(&mut self, digest: Digest, now_ms: i64) {
        if self.known.insert(digest) {
            if self.known.len() > MAX_REFUSED {
                self.forget_oldest();
            }
            self.ends_ms.push_back((now_ms.saturating_add(REFUSED_MS), digest));
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.ends_ms.pop_front() {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_parts_apart() {
        let digests = Digests::new();
        assert_eq!(digests.digest(&["a", "bc"]), digests.digest(&["a", "bc"]));
        assert_ne!(digests.digest(&["a", "bc"]), digests.digest(&["ab", "c"]));
        assert_ne!(digests.digest(&["a"]), Digests::new().digest(&["a"]));
    }

    #[test]
    fn verified_ones_count_while_they_are_used() {
        let (digests, verified) = (Digests::new(), VerifiedCredentials::default());
        let right = digests.digest(&["right"]);
        verified.remember(right, 0);
        assert!(!verified.contains(&digests.digest(&["wrong"]), 0));
        for uses in 1..10 {
            assert!(verified.contains(&right, uses * (VERIFIED_MS - 1)));
        }
        assert!(!verified.contains(&right, 10 * VERIFIED_MS));
        for number in 0..MAX_VERIFIED as i64 * 2 {
            verified.remember(digests.digest(&[&number.to_string()]), number);
        }
        assert_eq!(verified.0.read().len(), MAX_VERIFIED);
        assert!(
            verified.contains(&digests.digest(&["8191"]), 8192)
                && !verified.contains(&digests.digest(&["0"]), 1)
        );
    }

    #[test]
    fn refused_ones_count_for_a_while() {
        let (digests, mut refused) = (Digests::new(), RejectedCredentials::default());
        let wrong = digests.digest(&["wrong"]);
        refused.remember(wrong, 0);
        assert!(refused.contains(&wrong, REFUSED_MS - 1));
        assert!(!refused.contains(&wrong, REFUSED_MS));
        for number in 0..MAX_REFUSED * 2 {
            refused.remember(digests.digest(&[&number.to_string()]), 0);
        }
        assert_eq!((refused.known.len(), refused.ends_ms.len()), (MAX_REFUSED, MAX_REFUSED));
        assert!(
            !refused.contains(&digests.digest(&["0"]), 0) && refused.contains(&digests.digest(&["8191"]), 0)
        );
        // The clock is set back.
        assert!(!refused.contains(&digests.digest(&["8191"]), -1));
    }
}
