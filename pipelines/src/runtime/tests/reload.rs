//! Events in flight while another graph takes the place of the running one.

use super::*;

/// Returns the target of numbers, down until it is opened.
fn elsewhere(down: bool) -> Arc<Elsewhere> {
    Arc::new(Elsewhere { seen: Mutex::default(), down: watch::Sender::new(down) })
}

fn sink(id: &str, sink: &Arc<Elsewhere>) -> Node<Arc<OutputNode>> {
    output(id, Output::Sink(Arc::clone(sink) as Arc<dyn Sink>))
}

fn numbers_seen(sink: &Elsewhere) -> Vec<u64> {
    sink.seen.lock().iter().map(|(n, _)| *n).collect()
}

/// Numbers that are read on while they are not stored.
fn source(total: u64) -> Arc<InputNode> {
    input(Numbers { name: "numbers", partitions: vec!["a"], total, ends: false })
}

/// Returns every number but 13, which [`Elsewhere`] refuses.
fn all_but_unlucky(total: u64) -> Vec<u64> {
    (0..total).filter(|n| *n != 13).collect()
}

async fn until_filtered(pipeline: &Pipeline, events: u64) {
    while pipeline.figures().filtered < events {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_wait_for_a_wrong_output_go_to_the_corrected_one() {
    for workers in [1, 4] {
        let store = Arc::new(Memory::default());
        let (wrong, right) = (elsewhere(true), elsewhere(true));
        let (batch, mut told) = batch((0..5).map(|n| json!({"n": n})).collect());
        let hand = ManualBatch::from_batches(vec![batch]);
        let outputs = vec![sink("wrong", &wrong), local("docs")];
        let pipeline = start(graph(vec![Arc::clone(&hand)], vec![], outputs), settings(workers), &store);
        until_filtered(&pipeline, 5).await;
        let outputs = vec![sink("right", &right), local("docs")];
        pipeline.reload(graph(vec![hand], vec![], outputs), Duration::ZERO).await;
        while right.down.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!((&mut told).now_or_never().is_none(), "they are nowhere yet");
        assert_eq!(store.state.lock().docs.len(), 0);
        right.down.send_replace(false);
        assert_eq!(told.await.unwrap(), Ok(()));
        assert_eq!(numbers_seen(&wrong), Vec::<u64>::new());
        assert_eq!(numbers_seen(&right), [0, 1, 2, 3, 4]);
        assert_eq!(store.state.lock().docs.len(), 5);
        pipeline.stop(Duration::from_secs(30)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_keep_their_order_over_reloads_while_an_output_is_down() {
    const TOTAL: u64 = 400;
    for workers in [1, 4] {
        let store = Arc::new(Memory { refuse_one_in: 7, ..Memory::default() });
        let (first, second, third) = (elsewhere(true), elsewhere(true), elsewhere(false));
        let make = |id: &str, to: &Arc<Elsewhere>| {
            graph(vec![source(TOTAL)], vec![], vec![sink(id, to), local("docs")])
        };
        let pipeline = start(make("first", &first), Settings { batch_size: 5, ..settings(workers) }, &store);
        until_filtered(&pipeline, 10).await;
        pipeline.reload(make("second", &second), Duration::ZERO).await;
        while second.down.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.state.lock().docs.len(), 0, "positions wait for the output");
        pipeline.reload(make("third", &third), Duration::ZERO).await;
        store.until(|state| state.docs.len() as u64 == TOTAL).await;
        pipeline.stop(Duration::from_secs(30)).await;
        assert_eq!(store.numbers("a"), (0..TOTAL).collect::<Vec<_>>(), "{workers} workers");
        assert_eq!(numbers_seen(&third), all_but_unlucky(TOTAL), "{workers} workers");
        assert_eq!(numbers_seen(&first).len() + numbers_seen(&second).len(), 0);
        assert_eq!(store.state.lock().letters.len(), 1, "each refusal is told once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_has_events_does_not_get_them_again() {
    let store = Arc::new(Memory::default());
    let (stays, wrong, right) = (elsewhere(false), elsewhere(true), elsewhere(false));
    let make = |id: &str, to: &Arc<Elsewhere>| {
        graph(vec![source(60)], vec![], vec![sink("stays", &stays), sink(id, to), local("docs")])
    };
    let pipeline = start(make("wrong", &wrong), settings(1), &store);
    while numbers_seen(&stays).is_empty() {
        tokio::task::yield_now().await;
    }
    pipeline.reload(make("right", &right), Duration::ZERO).await;
    store.until(|state| state.docs.len() == 60).await;
    pipeline.stop(Duration::from_secs(30)).await;
    assert_eq!(numbers_seen(&stays), all_but_unlucky(60));
    assert_eq!(numbers_seen(&right), all_but_unlucky(60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_ignores_its_end_holds_nothing_up() {
    #[derive(Debug)]
    struct Hangs;
    #[async_trait]
    impl Sink for Hangs {
        async fn send(
            &self,
            _: &[(Arc<Event>, Option<String>)],
            _: watch::Receiver<bool>,
            _: OrderTicket,
        ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
            std::future::pending().await
        }
    }
    let store = Arc::new(Memory::default());
    let outputs = vec![output("hangs", Output::Sink(Arc::new(Hangs)))];
    let pipeline = start(graph(vec![source(60)], vec![], outputs), settings(2), &store);
    until_filtered(&pipeline, 1).await;
    pipeline.reload(graph(vec![source(60)], vec![], vec![local("docs")]), Duration::ZERO).await;
    store.until(|state| state.docs.len() == 60).await;
    pipeline.stop(Duration::from_secs(30)).await;
    assert_eq!(store.numbers("a"), (0..60).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_wait_for_an_index_of_this_server_go_to_another_one() {
    let store = Arc::new(Memory::default());
    let pipeline = start(graph(vec![source(60)], vec![], vec![local("blocked")]), settings(2), &store);
    while pipeline.trouble().is_none() {
        tokio::task::yield_now().await;
    }
    pipeline.reload(graph(vec![source(60)], vec![], vec![local("docs")]), Duration::ZERO).await;
    store.until(|state| state.docs.len() == 60).await;
    pipeline.stop(Duration::from_secs(30)).await;
    assert_eq!(store.numbers("a"), (0..60).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_queue_goes_through_the_new_filters() {
    let store = Arc::new(Memory::default());
    let (batches, told): (Vec<_>, Vec<_>) = (0..50).map(|n| batch(vec![json!({"n": n})])).unzip();
    let hand = ManualBatch::from_batches(batches);
    let wrong = elsewhere(true);
    let pipeline = start(
        graph(vec![Arc::clone(&hand)], vec![], vec![sink("wrong", &wrong)]),
        Settings { batch_size: 1, ..settings(1) },
        &store,
    );
    pipeline.ended().await;
    until_filtered(&pipeline, 5).await;
    let tags = filter("tags", |event, _| {
        event.tag("new");
        Outcome::Matched
    });
    pipeline.reload(graph(vec![hand], vec![tags], vec![local("docs")]), Duration::ZERO).await;
    for told in told {
        assert_eq!(told.await.unwrap(), Ok(()));
    }
    let state = store.state.lock();
    let numbers: Vec<u64> = state.docs.iter().map(|(_, doc)| doc["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>(), "the order is kept");
    let is_new = |at: usize| state.docs[at].1.get("tags").is_some();
    assert!(!is_new(0), "what was filtered is not filtered again");
    assert!(is_new(49));
    drop(state);
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_portion_that_was_divided_is_redelivered_too() {
    let store = Arc::new(Memory::default());
    store.held.send_replace(true);
    let (first, first_told) = batch(vec![json!({"n": 0})]);
    let (one, one_told) = batch(vec![json!({"n": 1}), json!({"n": 2, "unfit": true})]);
    let (mut two, two_told) = batch(vec![json!({"n": 3})]);
    two.position = Some(Move {
        source: "other".to_owned(),
        partition: "0".to_owned(),
        previous: Some(Bytes::from_static(b"gone")),
        new: Bytes::from_static(b"new"),
        owner_epoch: 1,
    });
    let (three, three_told) = batch(vec![json!({"n": 4})]);
    let hand = ManualBatch::from_batches(vec![first, one, two, three]);
    let pipeline = start(graph(vec![Arc::clone(&hand)], vec![], vec![local("blocked")]), settings(1), &store);
    pipeline.ended().await;
    store.held.send_replace(false);
    while pipeline.trouble().is_none() {
        tokio::task::yield_now().await;
    }
    pipeline.reload(graph(vec![hand], vec![], vec![local("docs")]), Duration::ZERO).await;
    assert_eq!(first_told.await.unwrap(), Ok(()));
    assert_eq!(one_told.await.unwrap(), Ok(()));
    assert_eq!(two_told.await.unwrap(), Err(NotStored::Moved));
    assert_eq!(three_told.await.unwrap(), Ok(()));
    let state = store.state.lock();
    let docs: Vec<Value> = state.docs.iter().map(|(_, doc)| doc["n"].clone()).collect();
    assert_eq!(docs, [json!(0), json!(1), json!(4)]);
    assert_eq!(state.letters.len(), 1);
    drop(state);
    drop(pipeline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_right_after_a_reload_tells_sources_that_nothing_was_stored() {
    let store = Arc::new(Memory::default());
    let (batch, told) = batch(vec![json!({"n": 1})]);
    let hand = ManualBatch::from_batches(vec![batch]);
    let (wrong, right) = (elsewhere(true), elsewhere(true));
    let pipeline = start(
        graph(vec![Arc::clone(&hand)], vec![], vec![sink("wrong", &wrong), local("docs")]),
        settings(1),
        &store,
    );
    until_filtered(&pipeline, 1).await;
    let outputs = vec![sink("right", &right), local("docs")];
    pipeline.reload(graph(vec![hand], vec![], outputs), Duration::from_secs(600)).await;
    pipeline.stop(Duration::ZERO).await;
    assert_eq!(told.await.unwrap_or(Err(NotStored::Ended)), Err(NotStored::Ended));
    assert_eq!(store.state.lock().docs.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_with_a_wrong_host_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    // One that nobody listens at, and one that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address)).unwrap();
    for host in ["127.0.0.1:1".to_owned(), silent.1.to_string()] {
        let out = dir.path().join(host.replace(':', "-"));
        let define = |output: &str| {
            let text = format!("input {{ generator {{ count => 5 }} }} output {{ {output} }}");
            crate::check(&text, &Default::default()).unwrap()
        };
        let wrong = define(&format!("elasticsearch {{ hosts => \"http://{host}\" }}"));
        let pipeline = start(wrong, settings(1), &Arc::default());
        until_filtered(&pipeline, 5).await;
        let right = define(&format!("file {{ path => \"{}\" codec => json_lines }}", out.display()));
        pipeline.reload(right, Duration::ZERO).await;
        let lines = || std::fs::read_to_string(&out).map_or(0, |text| text.lines().count());
        while lines() < 5 {
            tokio::task::yield_now().await;
        }
        pipeline.stop(Duration::from_secs(30)).await;
        assert_eq!(lines(), 5);
    }
}
