//! An object store that misbehaves as services and networks do, for tests, by a seed.
//!
//! A request may fail, be carried out although its answer is lost, be carried out late or twice, hang, or take a while; a
//! read may be answered with other bytes, with a part, or with "not found". What is late happens at some later
//! request, in any order, also after the process that asked has ended.

#![allow(clippy::unwrap_used, reason = "a fault of the simulation fails its test")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::local::StoreResult;

/// Turns of others that a request hangs for before its client gives up.
const HANGS: usize = 300;
/// Requests that wait to be carried out late, at most: one more has the first carried out.
const LATE: usize = 16;

/// See the [module](self). Clones share it.
#[derive(Clone, Debug)]
pub struct Unreliable {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
    /// Set once the process has ended: it makes no more requests.
    ended: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    rng: SmallRng,
    /// Requests in a thousand that go wrong.
    faults: u32,
    late: Vec<DelayedRequest>,
    /// Objects whose name ends so: their reads are answered with "not found".
    hidden: Option<String>,
    /// Objects whose name ends so: their next write is kept, though it is answered with a failure.
    held: Option<String>,
    /// Objects whose name ends so: their writes fail.
    refused: Option<String>,
    kept: Vec<DelayedRequest>,
    /// Objects whose name ends so: requests that change them hang until the fault ends.
    hung: Option<String>,
}

/// A request that is to be carried out.
#[derive(Clone, Debug)]
enum DelayedRequest {
    Put(Path, PutPayload, PutOptions),
    Delete(Path),
}

/// Fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Nothing happens, and an error is answered.
    Failed,
    /// It is carried out, and an error is answered.
    LostAnswer,
    /// It is carried out later, and an error is answered.
    Late,
    /// It is carried out now and once more later.
    Doubled,
    /// It hangs, and an error is answered.
    Hung,
    /// It takes a while.
    Slow,
}

/// Fault of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerFault {
    Missing,
    Flipped,
    Truncated,
    Html,
}

fn failed() -> Error {
    Error::Generic { store: "Unreliable", source: "told to fail".into() }
}

fn missing(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "told to miss it".into() }
}

impl Unreliable {
    /// Makes an empty store whose faults follow from the seed.
    pub fn new(seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        let state = State {
            rng,
            faults: 0,
            late: Vec::new(),
            kept: Vec::new(),
            hidden: None,
            held: None,
            refused: None,
            hung: None,
        };
        Self { objects: Arc::default(), state: Arc::new(Mutex::new(state)), ended: Arc::default() }
    }

    /// Ends the process that has this: its tasks may go on for a moment, but reach the service no more. What was
    /// requested before may still be carried out. Returns the same service for the next process.
    pub fn kill(&self) -> Self {
        self.ended.store(true, Ordering::SeqCst);
        Self { ended: Arc::default(), ..self.clone() }
    }

    /// Has so many requests in a thousand go wrong.
    pub fn set_faults(&self, in_a_thousand: u32) {
        self.state.lock().faults = in_a_thousand;
    }

    /// Has reads of objects whose name ends so be answered with "not found".
    pub fn hide(&self, end: Option<&str>) {
        self.state.lock().hidden = end.map(str::to_owned);
    }

    /// Has the next write of an object whose name ends so fail, and be carried out by [`Unreliable::carry_out_late`].
    pub fn hold(&self, end: &str) {
        self.state.lock().held = Some(end.to_owned());
    }

    /// Has writes of objects whose name ends so fail.
    pub fn refuse(&self, end: Option<&str>) {
        self.state.lock().refused = end.map(str::to_owned);
    }

    /// Has changes of objects whose name ends so hang.
    pub fn hang(&self, end: Option<&str>) {
        self.state.lock().hung = end.map(str::to_owned);
    }

    /// Carries out what is late and what was kept.
    pub async fn carry_out_late(&self) {
        let late = {
            let state = &mut *self.state.lock();
            std::mem::take(&mut state.late).into_iter().chain(std::mem::take(&mut state.kept))
        };
        for request in late {
            self.carry_out(request).await;
        }
    }

    /// The names of all objects.
    pub async fn paths(&self) -> Vec<String> {
        let listed: Vec<ObjectMeta> = self.objects.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|object| object.location.to_string()).collect()
    }

    async fn carry_out(&self, request: DelayedRequest) {
        // Nobody hears how it ends.
        match request {
            DelayedRequest::Put(path, payload, options) => {
                drop(self.objects.put_opts(&path, payload, options).await)
            }
            DelayedRequest::Delete(path) => drop(self.objects.delete(&path).await),
        }
    }

    /// Decides how a request goes, and carries out one that is late.
    async fn request(&self) -> Fault {
        let fault = self.request_of_process().await;
        // Asked behind what the request takes: a process may end meanwhile.
        if self.ended.load(Ordering::SeqCst) { Fault::Failed } else { fault }
    }

    async fn request_of_process(&self) -> Fault {
        if self.ended.load(Ordering::SeqCst) {
            return Fault::Failed;
        }
        let (fault, late) = {
            let state = &mut *self.state.lock();
            let wrong = state.rng.random_range(0..1000) < state.faults;
            let fault = match state.rng.random_range(0..12) {
                _ if !wrong => Fault::None,
                0..3 => Fault::Failed,
                3..5 => Fault::LostAnswer,
                5..8 => Fault::Late,
                8..10 => Fault::Doubled,
                10 => Fault::Hung,
                _ => Fault::Slow,
            };
            let due =
                state.late.len() > LATE || (!state.late.is_empty() && state.rng.random_range(0..8) == 0);
            let late = due.then(|| {
                let at = state.rng.random_range(0..state.late.len());
                state.late.swap_remove(at)
            });
            (fault, late)
        };
        if let Some(late) = late {
            self.carry_out(late).await;
        }
        // Not by the clock: a replay waits for objects on a thread that keeps simulated time from going on.
        let turns = match fault {
            Fault::Hung => HANGS,
            Fault::Slow => HANGS / 10,
            _ => 0,
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        fault
    }

    fn wrong_answer(&self) -> Option<AnswerFault> {
        let mut state = self.state.lock();
        if state.rng.random_range(0..1000) >= state.faults {
            return None;
        }
        let all = [AnswerFault::Missing, AnswerFault::Flipped, AnswerFault::Truncated, AnswerFault::Html];
        Some(all[state.rng.random_range(0..all.len())])
    }

    fn spoil(&self, wrong: AnswerFault, bytes: &Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes.clone();
        }
        let at = self.state.lock().rng.random_range(0..bytes.len());
        match wrong {
            AnswerFault::Missing => Bytes::new(),
            AnswerFault::Flipped => {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 0x20;
                flipped.into()
            }
            AnswerFault::Truncated => bytes.slice(..at),
            AnswerFault::Html => Bytes::from_static(b"<html><body>Sign in to the network</body></html>"),
        }
    }

    fn ends_with(path: &Path, end: &Option<String>) -> bool {
        end.as_ref().is_some_and(|end| path.as_ref().ends_with(end.as_str()))
    }

    async fn wait_while_hung(&self, path: &Path) {
        while Self::ends_with(path, &self.state.lock().hung) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn delete_one(&self, path: Path) -> StoreResult<Path> {
        self.wait_while_hung(&path).await;
        let fault = self.request().await;
        if matches!(fault, Fault::Late | Fault::Doubled) {
            self.state.lock().late.push(DelayedRequest::Delete(path.clone()));
        }
        if !matches!(fault, Fault::Failed | Fault::Late | Fault::Hung) {
            self.objects.delete(&path).await?;
        }
        match fault {
            Fault::None | Fault::Doubled | Fault::Slow => Ok(path),
            _ => Err(failed()),
        }
    }
}

impl fmt::Display for Unreliable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unreliable")
    }
}

#[async_trait]
impl ObjectStore for Unreliable {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.wait_while_hung(path).await;
        let fault = self.request().await;
        {
            let mut state = self.state.lock();
            let late = DelayedRequest::Put(path.clone(), payload.clone(), options.clone());
            if Self::ends_with(path, &state.held) {
                state.held = None;
                state.kept.push(late);
                return Err(failed());
            }
            if Self::ends_with(path, &state.refused) {
                return Err(failed());
            }
            if matches!(fault, Fault::Late | Fault::Doubled) {
                state.late.push(late);
            }
        }
        if matches!(fault, Fault::Failed | Fault::Late | Fault::Hung) {
            return Err(failed());
        }
        let put = self.objects.put_opts(path, payload, options).await?;
        if fault == Fault::LostAnswer { Err(failed()) } else { Ok(put) }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let fault = self.request().await;
        if !matches!(fault, Fault::None | Fault::Doubled | Fault::Slow) {
            return Err(failed());
        }
        if Self::ends_with(path, &self.state.lock().hidden) {
            return Err(missing(path));
        }
        let wrong = self.wrong_answer();
        if wrong == Some(AnswerFault::Missing) {
            return Err(missing(path));
        }
        let head = options.head;
        let mut found = self.objects.get_opts(path, options).await?;
        if let Some(wrong) = wrong.filter(|_| !head) {
            let (meta, range, attributes) =
                (found.meta.clone(), found.range.clone(), found.attributes.clone());
            let bytes = self.spoil(wrong, &found.bytes().await?);
            let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
            found = GetResult { payload, meta, range, attributes };
        }
        Ok(found)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            found.push(self.get_range(path, range.clone()).await?);
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        let this = self.clone();
        paths
            .then(move |path| {
                let this = this.clone();
                async move { this.delete_one(path?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let fault = this.request().await;
            match fault {
                Fault::None | Fault::Doubled | Fault::Slow => Ok(this.objects.list(prefix.as_ref())),
                _ => Err(failed()),
            }
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
