//! Work on many files side by side.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt};

use crate::error::{Error, Result};

/// Files, segments or indices that are read or written at once.
pub(crate) const AT_ONCE: usize = 4;

/// Runs futures side by side, and returns what they made in their order. Once one has failed no other begins, and those under way come
/// to their end: none leaves half of a file behind.
pub(crate) async fn run_side_by_side<T>(
    futures: Vec<impl Future<Output = Result<T>>>,
) -> (Vec<T>, Option<Error>) {
    let stopped = AtomicBool::new(false);
    let guarded: Vec<_> = futures
        .into_iter()
        .map(|future| async {
            if stopped.load(Ordering::Relaxed) {
                return None;
            }
            let made = future.await;
            if made.is_err() {
                stopped.store(true, Ordering::Relaxed);
            }
            Some(made)
        })
        .collect();
    let (mut all, mut failed) = (Vec::with_capacity(guarded.len()), None);
    let mut running = stream::iter(guarded).buffered(AT_ONCE);
    while let Some(made) = running.next().await {
        match made {
            Some(Ok(made)) => all.push(made),
            Some(Err(error)) => failed = failed.or(Some(error)),
            None => {}
        }
    }
    (all, failed)
}

/// Runs futures as [`run_side_by_side`] does.
///
/// # Errors
/// The first failure in their order.
pub(crate) async fn try_side_by_side<T>(futures: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    match run_side_by_side(futures).await {
        (all, None) => Ok(all),
        (_, Some(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn after_a_failure_none_begins_and_none_is_dropped() {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |number: usize| {
            let (begun, ended) = (&begun, &ended);
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                for _ in 0..number {
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::Relaxed);
                if number == 1 { Err(Error::IllegalArgument("no".to_owned())) } else { Ok(number) }
            }
        };
        let (all, failed) = run_side_by_side([3, 1, 5, 7, 9].map(work).into()).await;
        assert_eq!(all, [3, 5, 7]);
        assert!(failed.is_some());
        assert_eq!((begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)), (4, 4));
        let all = try_side_by_side([2, 0, 4].map(work).into()).await.unwrap();
        assert_eq!(all, [2, 0, 4]);
    }
}
