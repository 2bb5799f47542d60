//! Hashing passwords on two threads of their own, to check them and to set them, within bounds that do not depend on requests
//! staying.
//!
//! A job is one hash. Its place, its part of the bounds and its outcome are the job's, not the request's: requests
//! that go away leave at most the jobs that run, for those that nobody waits for any more are dropped unhashed. Requests with the
//! same credentials share a job, and who was right or wrong lately needs none.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::SharedClock;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::buckets::Buckets;
use super::hash;
use super::memory::{CameIn, Digest, Digests, RejectedCredentials, VerifiedCredentials};

/// Hashes made at a time.
const THREADS: usize = 2;
/// Jobs that wait; beyond it attempts are refused for now.
const MAX_QUEUED: usize = 128;
/// Jobs of one client address, waiting and under way.
const MAX_OF_ADDRESS: usize = 8;
/// Attempts of one address for one account with credentials that turn out wrong, at once and in the long run. Who guesses one password
/// keeps nobody else behind the address out.
const PAIR_TOKENS: (u32, Duration) = (32, Duration::from_secs(1));
/// The same of one address for all accounts.
const ADDRESS_TOKENS: (u32, Duration) = (64, Duration::from_millis(200));
/// The same for one account, from all addresses.
const ACCOUNT_TOKENS: (u32, Duration) = (128, Duration::from_millis(50));
/// Attempts of one address for an account where others have used up what the account has, or where the account came in lately and
/// others have used up what the address has. Who has the right password there is not kept out by those who guess.
const RESERVE_TOKENS: (u32, Duration) = (4, Duration::from_secs(10));
/// Jobs that make hashes for one user or for one address, waiting and under way: those who set passwords are few, and leave
/// places to those who come in and to one another.
const MAX_MADE_FOR_ONE: usize = 12;
/// The same of all of them together: however many set passwords, most places are those of who comes in.
const MAX_MADE: usize = 48;
/// Time after which to come back if there is no place.
const RETRY: Duration = Duration::from_secs(1);

/// Checks passwords; see the module.
pub(crate) struct Verifier(Arc<VerifierState>);

/// Credentials, and the account that they name.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    /// The client, as [`millrace_listen::client`] has it.
    pub(crate) address: IpAddr,
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
    /// Hash to check against. An unknown name has one, too, so that it costs the same.
    pub(crate) hash: &'a Arc<str>,
    /// `true` if there is such an account, and it may come in.
    pub(crate) known: bool,
}

/// Requester of a new password.
#[derive(Clone, Copy, Debug)]
pub struct Setter<'a> {
    /// The user.
    pub name: &'a str,
    /// Address of the request.
    pub address: IpAddr,
}

/// Why an attempt fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptRefusal {
    /// The credentials are wrong.
    Wrong,
    /// There is no telling now.
    Later {
        /// Exhausted resource.
        reason: &'static str,
        /// Time after which to try again.
        after: Duration,
    },
    /// The check itself failed.
    Failed(String),
}

/// The hash that was checked or made.
type Outcome = Result<Arc<str>, AttemptRefusal>;
type HashReplySender = watch::Receiver<Option<Outcome>>;

struct VerifierState {
    clock: SharedClock,
    digests: Digests,
    verified: VerifiedCredentials,
    state: Mutex<State>,
    /// Told of each job, and of the end.
    changed: Condvar,
}

struct State {
    queue: VecDeque<Job>,
    /// Senders of the outcome of each job, waiting and in flight.
    jobs: HashMap<Digest, watch::Sender<Option<Outcome>>>,
    of_address: HashMap<IpAddr, usize>,
    /// Those that make hashes, by who wants them.
    made_for: HashMap<HashPurpose, usize>,
    /// Number of jobs that make hashes.
    made: usize,
    refused: RejectedCredentials,
    addresses: Buckets<IpAddr>,
    pairs: Buckets<(IpAddr, Digest)>,
    /// Verified credentials and the addresses that they came from.
    came_in: CameIn,
    accounts: Buckets<Digest>,
    /// Reserves of addresses beside the account's.
    reserves: Buckets<(IpAddr, Digest)>,
    ended: bool,
    #[cfg(test)]
    hashed: usize,
}

/// Whom a hash is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HashPurpose {
    User(Digest),
    Address(IpAddr),
}

struct Job {
    digest: Digest,
    password: String,
    work: HashJob,
}

enum HashJob {
    Check { address: IpAddr, account: Digest, charged: ChargedShares, hash: Arc<str>, known: bool },
    Make([HashPurpose; 2]),
}

/// Buckets that an attempt is charged to, beside the pair of its address and account.
#[derive(Clone, Copy, Debug)]
struct ChargedShares {
    address: bool,
    account: bool,
}

impl ChargedShares {
    fn reserve(self) -> bool {
        !self.address || !self.account
    }
}

impl Verifier {
    /// Starts the threads, which end with it.
    ///
    /// # Errors
    /// Where the system has none.
    pub(crate) fn start(clock: SharedClock) -> io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            jobs: HashMap::new(),
            of_address: HashMap::new(),
            made_for: HashMap::new(),
            made: 0,
            refused: RejectedCredentials::default(),
            addresses: Buckets::new(ADDRESS_TOKENS.0, ADDRESS_TOKENS.1),
            pairs: Buckets::new(PAIR_TOKENS.0, PAIR_TOKENS.1),
            came_in: CameIn::default(),
            accounts: Buckets::new(ACCOUNT_TOKENS.0, ACCOUNT_TOKENS.1),
            reserves: Buckets::new(RESERVE_TOKENS.0, RESERVE_TOKENS.1),
            ended: false,
            #[cfg(test)]
            hashed: 0,
        };
        let (digests, verified) = (Digests::new(), VerifiedCredentials::default());
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let this = Self(Arc::new(VerifierState { clock, digests, verified, state, changed }));
        for number in 0..THREADS {
            let shared = Arc::clone(&this.0);
            let thread = std::thread::Builder::new().name(format!("password-{number}"));
            thread.spawn(move || shared.work())?;
        }
        Ok(this)
    }

    /// Checks credentials.
    ///
    /// # Errors
    /// See [`AttemptRefusal`]. Dropping the future gives up the job if nobody else waits for it and it has not begun.
    pub(crate) async fn verify(&self, attempt: Attempt<'_>) -> Result<(), AttemptRefusal> {
        let shared = &*self.0;
        // An account that is let in again is not the one that was refused.
        let known = if attempt.known { "known" } else { "" };
        let digest = shared.digests.digest(&[attempt.hash, attempt.name, attempt.password, known]);
        if shared.verified.contains(&digest, shared.clock.now_ms()) {
            return Ok(());
        }
        let told = shared.enlist(digest, &attempt)?;
        outcome(told).await.map(drop)
    }

    /// Hashes a password that is to be set.
    ///
    /// # Errors
    /// [`AttemptRefusal::Later`], [`AttemptRefusal::Failed`]. Dropping the future gives up the job if it has not begun.
    pub(crate) async fn make(&self, password: String, setter: Setter<'_>) -> Outcome {
        let told = self.0.enlist_making(password, setter)?;
        outcome(told).await
    }

    #[cfg(test)]
    pub(crate) fn hashed(&self) -> usize {
        self.0.state.lock().hashed
    }
}

async fn outcome(mut told: HashReplySender) -> Outcome {
    let ended = || AttemptRefusal::Failed("the threads that hash passwords have ended".to_owned());
    let outcome = told.wait_for(Option::is_some).await.map_err(|_| ended())?.clone();
    outcome.unwrap_or_else(|| Err(ended()))
}

impl VerifierState {
    /// Finds the outcome, or a job that will tell it.
    fn enlist(&self, digest: Digest, attempt: &Attempt<'_>) -> Result<HashReplySender, AttemptRefusal> {
        let later = |reason, after| Err(AttemptRefusal::Later { reason, after });
        let mut state = self.state.lock();
        let now_ms = self.clock.now_ms();
        // A job may have ended since the caller looked.
        if self.verified.contains(&digest, now_ms) {
            return Ok(watch::channel(Some(Ok(Arc::clone(attempt.hash)))).1);
        }
        if state.refused.contains(&digest, now_ms) {
            return Err(AttemptRefusal::Wrong);
        }
        if let Some(job) = state.jobs.get(&digest) {
            return Ok(job.subscribe());
        }
        let is_full = |state: &State| {
            let of_address = state.of_address.get(&attempt.address).copied().unwrap_or_default();
            (state.queue.len() >= MAX_QUEUED, of_address >= MAX_OF_ADDRESS)
        };
        if is_full(&state) != (false, false) {
            state.drop_abandoned();
        }
        match is_full(&state) {
            (_, true) => return later("too many credentials of this address are being verified", RETRY),
            (true, false) => return later("too many credentials are being verified", RETRY),
            (false, false) => {}
        }
        let account = self.digests.digest(&[attempt.name]);
        let pair = (attempt.address, account);
        let wait = state.pairs.wait(&pair, now_ms);
        if !wait.is_zero() {
            return later("too many wrong passwords for this user came from this address", wait);
        }
        let of_address = state.addresses.wait(&attempt.address, now_ms);
        let of_account = state.accounts.wait(&account, now_ms);
        let charged = ChargedShares { address: of_address.is_zero(), account: of_account.is_zero() };
        if charged.reserve() {
            let has_reserve = state.reserves.wait(&pair, now_ms).is_zero();
            let may_use_reserve = charged.address || (has_reserve && state.came_in.contains(&pair));
            if !may_use_reserve {
                return later("too many wrong credentials came from this address", of_address);
            }
            if !has_reserve {
                return later("too many wrong passwords were given for this user", of_account);
            }
            state.reserves.take(&pair, now_ms);
        }
        state.pairs.take(&pair, now_ms);
        if charged.address {
            state.addresses.take(&attempt.address, now_ms);
        }
        if charged.account {
            state.accounts.take(&account, now_ms);
        }
        let (told, outcome) = watch::channel(None);
        state.jobs.insert(digest, told);
        *state.of_address.entry(attempt.address).or_default() += 1;
        let (address, hash, known) = (attempt.address, Arc::clone(attempt.hash), attempt.known);
        let work = HashJob::Check { address, account, charged, hash, known };
        state.queue.push_back(Job { digest, password: attempt.password.to_owned(), work });
        drop(state);
        self.changed.notify_one();
        Ok(outcome)
    }

    /// Finds a place for a hash that is to be made.
    fn enlist_making(&self, password: String, setter: Setter<'_>) -> Result<HashReplySender, AttemptRefusal> {
        let later = |reason| Err(AttemptRefusal::Later { reason, after: RETRY });
        let client = millrace_listen::client(setter.address);
        let whom = [HashPurpose::User(self.digests.digest(&[setter.name])), HashPurpose::Address(client)];
        let mut state = self.state.lock();
        let is_full = |state: &State| {
            let of = |whom| state.made_for.get(whom).copied().unwrap_or_default() >= MAX_MADE_FOR_ONE;
            (state.made >= MAX_MADE || state.queue.len() >= MAX_QUEUED, whom.iter().any(of))
        };
        if is_full(&state) != (false, false) {
            state.drop_abandoned();
        }
        match is_full(&state) {
            (_, true) => return later("too many passwords are being set by this user or from this address"),
            (true, false) => return later("too many passwords are being set"),
            (false, false) => {}
        }
        // Each has a job of its own: equal passwords have different hashes.
        let digest = Digest::random();
        let (told, outcome) = watch::channel(None);
        state.jobs.insert(digest, told);
        for whom in whom {
            *state.made_for.entry(whom).or_default() += 1;
        }
        state.made += 1;
        state.queue.push_back(Job { digest, password, work: HashJob::Make(whom) });
        drop(state);
        self.changed.notify_one();
        Ok(outcome)
    }

    /// Works on jobs until the end.
    fn work(&self) {
        while let Some(job) = self.next() {
            let outcome = job.run();
            let mut state = self.state.lock();
            let now_ms = self.clock.now_ms();
            match (&outcome, &job.work) {
                (_, HashJob::Make(_)) => {}
                (Ok(_), HashJob::Check { address, account, .. }) => {
                    self.verified.remember(job.digest, now_ms);
                    state.came_in.remember((*address, *account));
                    state.give_back(&job);
                }
                (Err(AttemptRefusal::Wrong), _) => state.refused.remember(job.digest, now_ms),
                (Err(_), _) => {}
            }
            #[cfg(test)]
            {
                state.hashed += 1;
            }
            let told = state.end(&job);
            drop(state);
            if let Some(told) = told {
                told.send_replace(Some(outcome));
            }
        }
    }

    /// Waits for a job; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            match state.queue.pop_front() {
                Some(job) if state.is_abandoned(&job) => state.drop_unhashed(&job),
                Some(job) => return Some(job),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl Job {
    fn run(&self) -> Outcome {
        let failed = |error: &dyn std::fmt::Display| AttemptRefusal::Failed(error.to_string());
        match &self.work {
            HashJob::Make(_) => hash::hash(&self.password).map(Arc::from).map_err(|error| failed(&error)),
            HashJob::Check { hash, known, .. } => match hash::verify(&self.password, hash) {
                Ok(true) if *known => Ok(Arc::clone(hash)),
                Ok(_) => Err(AttemptRefusal::Wrong),
                Err(error) => Err(failed(&error)),
            },
        }
    }
}

impl State {
    /// Returns whether nobody waits for a job.
    fn is_abandoned(&self, job: &Job) -> bool {
        self.jobs.get(&job.digest).is_none_or(|told| told.receiver_count() == 0)
    }

    fn drop_abandoned(&mut self) {
        for job in std::mem::take(&mut self.queue) {
            if self.is_abandoned(&job) {
                self.drop_unhashed(&job);
            } else {
                self.queue.push_back(job);
            }
        }
    }

    fn drop_unhashed(&mut self, job: &Job) {
        self.give_back(job);
        drop(self.end(job));
    }

    /// Gives back what an attempt cost that told nobody that it was wrong.
    fn give_back(&mut self, job: &Job) {
        let HashJob::Check { address, account, charged, .. } = &job.work else { return };
        let pair = (*address, *account);
        self.pairs.give_back(&pair);
        if charged.reserve() {
            self.reserves.give_back(&pair);
        }
        if charged.address {
            self.addresses.give_back(address);
        }
        if charged.account {
            self.accounts.give_back(account);
        }
    }

    /// Lets go of what a job had.
    fn end(&mut self, job: &Job) -> Option<watch::Sender<Option<Outcome>>> {
        match &job.work {
            HashJob::Check { address, .. } => count_down(&mut self.of_address, *address),
            HashJob::Make(whom) => {
                whom.iter().for_each(|whom| count_down(&mut self.made_for, *whom));
                self.made -= 1;
            }
        }
        self.jobs.remove(&job.digest)
    }
}

fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}
