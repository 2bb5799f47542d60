//! Answers that are being sent: how many there may be, and how they are cancelled by what was given to fetch them with.
//!
//! One whose reader takes its time holds a batch or two, which count as memory of queries.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{Either, Shared, select};
use futures::stream::Stream;
use futures::task::AtomicWaker;
use futures::{FutureExt, StreamExt};
use millrace_runtime::tasks::TaskGuard;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tonic::Status;

use crate::tickets::{Id, User};

/// Answers under way of one user, and of all.
const MOST_OF_USER: usize = 128;
const MOST: usize = 256;

/// Answers under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveAnswers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By their numbers.
    answers: HashMap<u64, Answer>,
}

#[derive(Debug)]
struct Answer {
    id: Id,
    user: User,
    /// Returns the job that still makes the answer.
    cancel: Option<oneshot::Sender<()>>,
    /// The answer once it is being sent.
    sent: Option<Arc<dyn Cancel>>,
}

/// An answer that is let go of from elsewhere: its sender may wait for a reader that never comes.
trait Cancel: std::fmt::Debug + Send + Sync {
    fn cancel(&self);
}

#[derive(Debug)]
struct Slot<S> {
    /// None where it was cancelled.
    stream: Mutex<Option<S>>,
    sender: AtomicWaker,
}

impl<S: std::fmt::Debug + Send> Cancel for Slot<S> {
    fn cancel(&self) {
        drop(self.stream.lock().take());
        self.sender.wake();
    }
}

/// The place of an answer, given back on drop.
#[derive(Debug)]
pub(crate) struct AnswerSlotGuard {
    running: ActiveAnswers,
    number: u64,
    cancelled: Shared<oneshot::Receiver<()>>,
    /// The task of making and sending the answer.
    task: Option<TaskGuard>,
}

impl ActiveAnswers {
    /// Takes a place for the answer to a ticket.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there are too many.
    pub(crate) fn begin(&self, id: Id, user: User) -> Result<AnswerSlotGuard, Status> {
        let mut state = self.0.lock();
        let of_user = state.answers.values().filter(|answer| answer.user == user).count();
        if of_user >= MOST_OF_USER || state.answers.len() >= MOST {
            return Err(Status::resource_exhausted(format!(
                "too many answers are being fetched: [{of_user}] by this user, [{}] by all; read some of them to their end",
                state.answers.len()
            )));
        }
        let (cancel, cancelled) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.answers.insert(number, Answer { id, user, cancel: Some(cancel), sent: None });
        Ok(AnswerSlotGuard { running: self.clone(), number, cancelled: cancelled.shared(), task: None })
    }

    /// Cancels the answers to a ticket. Returns whether there were any.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        self.cancel_where(|_, answer| answer.id == *id)
    }

    /// Cancels the answers that a predicate over numbers and answers holds for. Returns whether there were any.
    fn cancel_where(&self, predicate: impl Fn(u64, &Answer) -> bool) -> bool {
        let mut state = self.0.lock();
        let (mut any, mut sent) = (false, Vec::new());
        for (_, answer) in state.answers.iter_mut().filter(|(number, answer)| predicate(**number, answer)) {
            if let Some(cancel) = answer.cancel.take() {
                // Nobody is there to be told once it is being sent.
                let _ = cancel.send(());
            }
            sent.extend(answer.sent.take());
            any = true;
        }
        drop(state);
        sent.iter().for_each(|sent| sent.cancel());
        any
    }
}

impl AnswerSlotGuard {
    /// Has the answer belong to a task, which ends with it. A cancellation of the task cancels the answer.
    pub(crate) fn in_task(mut self, task: TaskGuard) -> Self {
        let (running, number, handle) = (self.running.clone(), self.number, task.handle());
        tokio::spawn(async move {
            tokio::select! {
                _ = handle.cancelled() => drop(running.cancel_where(|other, _| other == number)),
                () = handle.ended() => {}
            }
        });
        self.task = Some(task);
        self
    }

    /// Waits for an answer to be made, or for its ticket to be cancelled: then what makes it is dropped.
    ///
    /// # Errors
    /// `CANCELLED`; that of the answer.
    pub(crate) async fn make<T>(&self, answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let answer = async {
            match &self.task {
                Some(task) => task.scope(answer).await,
                None => answer.await,
            }
        };
        match select(std::pin::pin!(answer), self.cancelled.clone()).await {
            Either::Left((made, _)) => made,
            Either::Right(_) => Err(cancelled()),
        }
    }

    /// Has a stream end, and be dropped, where its ticket is cancelled.
    pub(crate) fn watch<S: Stream + Send + 'static>(self, stream: S) -> CancellableAnswer<S> {
        let slot =
            Arc::new(Slot { stream: Mutex::new(Some(OpaqueStream(stream))), sender: AtomicWaker::new() });
        if let Some(answer) = self.running.0.lock().answers.get_mut(&self.number) {
            match answer.cancel {
                Some(_) => answer.sent = Some(Arc::<Slot<OpaqueStream<S>>>::clone(&slot)),
                None => *slot.stream.lock() = None,
            }
        }
        CancellableAnswer { slot, is_reported: false, ended: false, _place: self }
    }
}

impl Drop for AnswerSlotGuard {
    fn drop(&mut self) {
        self.running.0.lock().answers.remove(&self.number);
    }
}

/// An answer that can be cancelled.
#[derive(Debug)]
pub(crate) struct CancellableAnswer<S> {
    slot: Arc<Slot<OpaqueStream<S>>>,
    is_reported: bool,
    ended: bool,
    _place: AnswerSlotGuard,
}

/// A stream, of which there is nothing to be shown.
struct OpaqueStream<S>(S);

impl<S> std::fmt::Debug for OpaqueStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hidden").finish_non_exhaustive()
    }
}

fn cancelled() -> Status {
    Status::cancelled("the statement was cancelled")
}

impl<T, S: Stream<Item = Result<T, Status>> + Unpin> Stream for CancellableAnswer<S> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.slot.sender.register(context.waker());
        let polled = match this.slot.stream.lock().as_mut() {
            Some(OpaqueStream(stream)) => stream.poll_next_unpin(context),
            None if this.is_reported || this.ended => Poll::Ready(None),
            None => {
                this.is_reported = true;
                Poll::Ready(Some(Err(cancelled())))
            }
        };
        this.ended = this.ended || matches!(polled, Poll::Ready(None));
        polled
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use millrace_catalog::access::Principal;
    use millrace_catalog::access::{ActionSet, Caller, Privileges};

    use super::*;

    fn user(name: &str) -> User {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        User::new(&Principal::new(Caller::User(name.into()), Vec::new(), nothing))
    }

    #[tokio::test]
    async fn cancelled_answers_end_with_an_error_and_ended_ones_are_forgotten() {
        let running = ActiveAnswers::default();
        let pending = || stream::pending::<Result<(), Status>>();
        let begin = |id| running.begin([id; 16], user("ann")).unwrap();
        let (mut one, other) = (begin(1).watch(pending()), begin(1).watch(pending()));
        drop(other);
        assert!(!running.cancel(&[2; 16]));
        assert!(running.cancel(&[1; 16]));
        let error = one.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::Cancelled);
        assert!(one.next().await.is_none());
        drop(one);
        let ended = begin(3).watch(stream::iter([Ok(())]));
        assert_eq!(ended.collect::<Vec<_>>().await.len(), 1);
        assert!(!running.cancel(&[1; 16]) && running.0.lock().answers.is_empty());
    }

    #[tokio::test]
    async fn what_is_cancelled_is_dropped_before_it_answers_and_where_nobody_reads_it() {
        let running = ActiveAnswers::default();
        let (held, gone) = oneshot::channel::<()>();
        let place = running.begin([1; 16], user("ann")).unwrap();
        let making = place.make::<()>(async move {
            let _held = held;
            std::future::pending().await
        });
        let (made, any) = tokio::join!(making, async { running.cancel(&[1; 16]) });
        assert_eq!((made.unwrap_err().code(), any), (tonic::Code::Cancelled, true));
        assert!(gone.await.is_err());
        // Nobody polls this one.
        let (held, gone) = oneshot::channel::<()>();
        let unread = stream::pending::<Result<(), Status>>().map(move |item| {
            let _ = &held;
            item
        });
        let unread = running.begin([2; 16], user("ann")).unwrap().watch(unread);
        assert!(running.cancel(&[2; 16]));
        assert!(gone.await.is_err());
        drop(unread);
    }

    #[test]
    fn there_are_bounds_for_each_user_and_for_all() {
        let running = ActiveAnswers::default();
        let mut places = Vec::new();
        for name in ["ann", "bob", "cid"] {
            places.extend((0..1_000).map_while(|_| running.begin([0; 16], user(name)).ok()));
        }
        assert_eq!(places.len(), MOST);
        assert!(places.len() < 3 * MOST_OF_USER);
        places.pop();
        assert!(running.begin([0; 16], user("ann")).is_err());
        assert!(running.begin([0; 16], user("cid")).is_ok());
    }
}
