//! Answers that are being sent, so that they can be cancelled by what was given to fetch them with.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{AbortHandle, Abortable, Stream};
use parking_lot::Mutex;
use tonic::Status;

use crate::tickets::Id;

/// Answers under way, by the ids of their tickets. There are as many as requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<Id, Vec<AbortHandle>>>>);

impl Running {
    /// Has an answer end where its ticket is cancelled.
    pub(crate) fn watch<S: Stream>(&self, id: Id, stream: S) -> Watched<S> {
        let (handle, registration) = AbortHandle::new_pair();
        self.0.lock().entry(id).or_default().push(handle.clone());
        let place = Place { running: self.clone(), id, handle };
        Watched { stream: Abortable::new(stream, registration), told: false, _place: place }
    }

    /// Cancels the answers of a ticket. Returns whether there were any.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let handles = self.0.lock().remove(id).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
        !handles.is_empty()
    }
}

/// The place of an answer, given back on drop.
#[derive(Debug)]
struct Place {
    running: Running,
    id: Id,
    handle: AbortHandle,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Told apart by being aborted: handles cannot be compared.
        self.handle.abort();
        let mut running = self.running.0.lock();
        if let Some(handles) = running.get_mut(&self.id) {
            handles.retain(|handle| !handle.is_aborted());
            if handles.is_empty() {
                running.remove(&self.id);
            }
        }
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

    use super::*;

    #[tokio::test]
    async fn cancelled_answers_end_with_an_error_and_ended_ones_are_forgotten() {
        let running = Running::default();
        let pending = || stream::pending::<Result<(), Status>>();
        let (mut one, other) = (running.watch([1; 16], pending()), running.watch([1; 16], pending()));
        drop(other);
        assert!(!running.cancel(&[2; 16]));
        assert!(running.cancel(&[1; 16]));
        let error = one.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::Cancelled);
        assert!(one.next().await.is_none());
        let ended = running.watch([3; 16], stream::iter([Ok(())]));
        assert_eq!(ended.collect::<Vec<_>>().await.len(), 1);
        assert!(running.0.lock().is_empty());
    }
}
