//! Answers that are being sent: how many there may be, and how they are cancelled by what was given to fetch them with.
//!
//! One whose reader takes its time holds a batch or two, for which there is no other bound than their number.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{AbortHandle, AbortRegistration, Abortable, Stream};
use parking_lot::Mutex;
use tonic::Status;

use crate::tickets::{Id, Owner};

/// Answers under way of one owner, and of all.
const MOST_OF_OWNER: usize = 128;
const MOST: usize = 256;

/// Answers under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By their numbers.
    answers: HashMap<u64, Answer>,
}

#[derive(Debug)]
struct Answer {
    id: Id,
    owner: Owner,
    handle: AbortHandle,
}

/// The place of an answer, given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    running: Running,
    number: u64,
    registration: Option<AbortRegistration>,
}

impl Running {
    /// Takes a place for the answer to a ticket.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there are too many.
    pub(crate) fn begin(&self, id: Id, owner: Owner) -> Result<Place, Status> {
        let mut state = self.0.lock();
        let of_owner = state.answers.values().filter(|answer| answer.owner == owner).count();
        if of_owner >= MOST_OF_OWNER || state.answers.len() >= MOST {
            return Err(Status::resource_exhausted(format!(
                "too many answers are being fetched: [{of_owner}] by this caller, [{}] by all; read some of them to their end",
                state.answers.len()
            )));
        }
        let (handle, registration) = AbortHandle::new_pair();
        let number = state.next;
        state.next += 1;
        state.answers.insert(number, Answer { id, owner, handle });
        Ok(Place { running: self.clone(), number, registration: Some(registration) })
    }

    /// Cancels the answers to a ticket. Returns whether there were any.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let state = self.0.lock();
        let mut any = false;
        for answer in state.answers.values().filter(|answer| answer.id == *id) {
            answer.handle.abort();
            any = true;
        }
        any
    }
}

impl Place {
    /// Has a stream end where its ticket is cancelled.
    pub(crate) fn watch<S: Stream>(mut self, stream: S) -> Watched<S> {
        let registration = self.registration.take().unwrap_or_else(|| AbortHandle::new_pair().1);
        Watched { stream: Abortable::new(stream, registration), told: false, _place: self }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.0.lock().answers.remove(&self.number);
    }
}

/// An answer that can be cancelled.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: Abortable<S>,
    told: bool,
    _place: Place,
}

impl<T, S: Stream<Item = Result<T, Status>> + Unpin> Stream for Watched<S> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.stream).poll_next(context) {
            Poll::Ready(None) if self.stream.is_aborted() && !self.told => {
                self.told = true;
                Poll::Ready(Some(Err(Status::cancelled("the statement was cancelled"))))
            }
            polled => polled,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use millrace_storage::Principal;
    use millrace_storage::access::{ActionSet, Caller, Privileges};

    use super::*;

    fn owner(name: &str) -> Owner {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        Owner::of(&Principal::new(Caller::User(name.into()), Vec::new(), nothing))
    }

    #[tokio::test]
    async fn cancelled_answers_end_with_an_error_and_ended_ones_are_forgotten() {
        let running = Running::default();
        let pending = || stream::pending::<Result<(), Status>>();
        let begin = |id| running.begin([id; 16], owner("ann")).unwrap();
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

    #[test]
    fn there_are_bounds_for_each_owner_and_for_all() {
        let running = Running::default();
        let mut places = Vec::new();
        for name in ["ann", "bob", "cid"] {
            places.extend((0..1_000).map_while(|_| running.begin([0; 16], owner(name)).ok()));
        }
        assert_eq!(places.len(), MOST);
        assert!(places.len() < 3 * MOST_OF_OWNER);
        places.pop();
        assert!(running.begin([0; 16], owner("ann")).is_err());
        assert!(running.begin([0; 16], owner("cid")).is_ok());
    }
}
