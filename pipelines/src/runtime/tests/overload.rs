//! Batches of sources that wait for the outcome, and of those that do not, while the store is full.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_full_store_loses_no_batch_that_nobody_waits_for() {
    let store = Arc::new(Memory::default());
    store.is_full.store(true, Ordering::Relaxed);
    let (first, first_told) = batch(vec![json!({"n": 0})]);
    let (mut unawaited, _) = batch(vec![json!({"n": 1})]);
    unawaited.ack = Ack::none();
    let (last, mut last_told) = batch(vec![json!({"n": 2})]);
    let inputs = ManualBatch::from_batches(vec![first, unawaited, last]);
    let pipeline = start(graph(vec![inputs], vec![], vec![local("docs")]), settings(1), &store);
    pipeline.ended().await;
    assert!(matches!(first_told.await.unwrap(), Err(NotStored::Overloaded(_))));
    // Long beyond the patience of sources that wait.
    tokio::time::sleep(Duration::from_secs(300)).await;
    // Whether it was written together with the batch before it depends on threads.
    let last_outcome = (&mut last_told).now_or_never().map(Result::unwrap);
    assert!(matches!(last_outcome, None | Some(Err(NotStored::Overloaded(_)))), "{last_outcome:?}");
    store.is_full.store(false, Ordering::Relaxed);
    let expected: Vec<Value> = if last_outcome.is_some() { vec![json!(1)] } else { vec![json!(1), json!(2)] };
    let numbers =
        || -> Vec<Value> { store.state.lock().docs.iter().map(|(_, doc)| doc["n"].clone()).collect() };
    while numbers().len() < expected.len() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(numbers(), expected);
}
