//! Tests of tasks: their listing, their cancellation, and the ends of their work.

use std::sync::atomic::AtomicUsize;

use bytes::Bytes;

use super::*;
use crate::{Compute, ManualClock, Priority};

fn registry() -> TaskRegistry {
    TaskRegistry::new(Arc::new(ManualClock::new(1_000)))
}

#[tokio::test]
async fn tasks_are_listed_while_their_guards_live() {
    let registry = registry();
    let description = TaskDescription::Request { indices: "logs".into(), source: Bytes::from("{} ") };
    let spec = TaskSpec::cancellable("indices:data/read/search").with_description(description);
    let first = registry.start(spec);
    let second =
        registry.start(TaskSpec { opaque_id: Some("me".into()), ..TaskSpec::new("cluster:monitor/main") });
    second.set_progress("{\"total\":1}");
    let listed = registry.list();
    let shown: Vec<_> = listed
        .iter()
        .map(|task| {
            (task.id, task.action, task.description.to_string(), task.is_cancellable, task.started_ms)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (first.id(), "indices:data/read/search", "indices[logs], source[{}]".to_owned(), true, 1_000),
            (second.id(), "cluster:monitor/main", String::new(), false, 1_000),
        ]
    );
    assert_eq!(
        (listed[1].opaque_id.as_deref(), listed[1].progress.as_deref()),
        (Some("me"), Some("{\"total\":1}"))
    );
    let handle = first.handle();
    drop(first);
    handle.ended().await;
    assert!(registry.get(handle.id()).is_none() && registry.list().len() == 1);
    assert_eq!(registry.totals(), (2, 0));
}

#[tokio::test]
async fn a_cancelled_task_drops_its_work_and_cancels_its_children() {
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let registry = registry();
    let parent = registry.start(TaskSpec::cancellable("parent"));
    let child = registry.start(TaskSpec { parent: Some(parent.id()), ..TaskSpec::new("child") });
    let grandchild = registry.start(TaskSpec { parent: Some(child.id()), ..TaskSpec::new("grandchild") });
    let (dropped, other) = (Arc::new(AtomicUsize::new(0)), registry.start(TaskSpec::cancellable("other")));
    let held = DropCounter(Arc::clone(&dropped));
    let work = parent.run(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    let (ended, outcome) = tokio::join!(work, async { registry.cancel(parent.id(), "by user request") });
    assert_eq!(ended.unwrap_err().to_string(), "task cancelled [by user request]");
    assert_eq!((outcome, dropped.load(Ordering::Relaxed)), (CancelOutcome::Cancelled, 1));
    assert!(parent.check().is_err() && child.check().is_err() && grandchild.check().is_err());
    assert!(other.check().is_ok() && registry.list()[0].is_cancelled);
    // The first reason stays, and a second cancellation counts no more.
    assert_eq!(registry.cancel(parent.id(), "again"), CancelOutcome::Cancelled);
    assert_eq!(&*parent.cancelled().await.reason, "by user request");
    assert_eq!(registry.totals(), (4, 3));
}

#[tokio::test]
async fn work_that_is_done_counts_though_it_is_cancelled() {
    let registry = registry();
    let task = registry.start(TaskSpec::cancellable("a"));
    registry.cancel(task.id(), "late");
    assert_eq!(task.run(async { 1 }).await, Ok(1));
}

#[test]
fn tasks_that_do_not_end_early_are_not_cancelled() {
    let registry = registry();
    let task = registry.start(TaskSpec::new("a"));
    assert_eq!(registry.cancel(task.id(), "no"), CancelOutcome::NotCancellable);
    assert_eq!(registry.cancel(task.id() + 1, "no"), CancelOutcome::NotFound);
    task.set_cancellable();
    assert_eq!(registry.cancel(task.id(), "yes"), CancelOutcome::Cancelled);
}

#[tokio::test]
async fn work_that_checks_for_its_cancellation_is_waited_for() {
    let registry = registry();
    let task = registry.start(TaskSpec::cancellable("a"));
    let work = async {
        task.set_cancellable();
        registry.cancel(task.id(), "stop");
        tokio::task::yield_now().await;
        task.check().is_err()
    };
    assert_eq!(task.run_or_wait(work).await, Ok(true));
    let other = registry.start(TaskSpec::cancellable("b"));
    registry.cancel(other.id(), "stop");
    assert!(other.run_or_wait(std::future::pending::<()>()).await.is_err());
}

#[tokio::test]
async fn work_that_a_task_begins_is_its_child_and_is_cancelled_with_it() {
    let registry = registry();
    let (first, second) = (registry.start(TaskSpec::cancellable("a")), registry.start(TaskSpec::new("b")));
    let child = first.scope(async { registry.start(TaskSpec::new("child")) }).await;
    assert_eq!(child.spec().parent, Some(first.id()));
    let ids = [first.id(), second.id(), second.id() + 100];
    let outcomes = registry.cancel_all(&ids, "stop");
    assert_eq!(outcomes, [CancelOutcome::Cancelled, CancelOutcome::NotCancellable, CancelOutcome::NotFound]);
    assert!(child.check().is_err() && second.check().is_ok());
}

#[test]
fn long_descriptions_are_cut() {
    let long = "ä".repeat(10_000);
    assert!(TaskDescription::text(&long).to_string().len() <= 4 << 10);
    let source = Bytes::from(long.clone());
    let shown = TaskDescription::Request { indices: long.as_str().into(), source }.to_string();
    assert!(shown.ends_with("…]") && shown.len() < 10_000, "{}", shown.len());
}

#[tokio::test]
async fn jobs_of_compute_threads_belong_to_the_task_that_queues_them() {
    let (registry, compute) = (registry(), Compute::start(1).unwrap());
    let task = registry.start(TaskSpec::cancellable("a"));
    assert_eq!(current_task(), None);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let job = compute.run(Priority::Foreground, move || {
        begun.send(()).unwrap();
        receiver.recv().unwrap();
        Ok(())
    });
    let seen = async {
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
        let busy = compute.pools().into_iter().flat_map(|pool| pool.busy).collect::<Vec<_>>();
        sender.send(()).unwrap();
        busy
    };
    let (done, busy) = tokio::join!(task.scope(job), seen);
    done.unwrap();
    assert_eq!((busy.len(), busy[0].task), (1, Some(task.id())));
    let read = compute.pools().into_iter().find(|pool| pool.name == "read").unwrap();
    assert_eq!((read.threads, read.queued), (1, 0));
}
