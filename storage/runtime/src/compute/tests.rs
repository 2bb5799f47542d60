//! Tests of the pool: parts of jobs, jobs that wait, and threads without jobs.

use super::*;

#[test]
fn parts_are_done_once_in_order_also_where_no_thread_is_free() {
    let compute = Compute::start(2).unwrap();
    let (hold, held) = mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    for busy in [false, true] {
        if busy {
            for _ in 0..2 {
                let held = Arc::clone(&held);
                compute.spawn(Priority::Follow, move || assert!(held.lock().unwrap().recv().is_err()));
            }
        }
        let squares = compute.each(Priority::Follow, 100, |at| at * at);
        let expected: Vec<Option<usize>> = (0..100).map(|at| Some(at * at)).collect();
        assert_eq!(squares, expected);
    }
    drop(hold);
    assert!(compute.each(Priority::Follow, 0, |at| at).is_empty());
    let some = compute.each(Priority::Follow, 3, |at| assert_ne!(at, 1));
    assert_eq!(some, [Some(()), None, Some(())]);
}

#[test]
fn a_core_is_wanted_only_where_a_thread_is_free_for_a_job() {
    let queue = Queue::default();
    queue.push(Job::new(|| {}));
    assert!(!queue.wants_core(), "all threads are busy: no core would help");
    queue.idle.fetch_add(1, Ordering::Relaxed);
    assert!(queue.wants_core());
    queue.idle.fetch_sub(1, Ordering::Relaxed);
    queue.jobs.lock().1 = true;
    queue.run(|| false, &JobSlot::default(), &OnceLock::new());
    assert_eq!(queue.queued.load(Ordering::Relaxed), 0);
    assert!(!queue.wants_core());
}

#[test]
fn a_job_that_waits_for_the_network_holds_no_thread() {
    let compute = Compute::start(2).unwrap();
    let (answers, network) = mpsc::channel::<()>();
    let network = Arc::new(std::sync::Mutex::new(network));
    let (waits, waiting) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let wait = |waits: mpsc::Sender<()>, ends: mpsc::Sender<Result<()>>| {
        let network = Arc::clone(&network);
        compute.spawn(Priority::Foreground, move || {
            let waited = wait_for_network(|| {
                waits.send(()).unwrap();
                network.lock().unwrap().recv().unwrap();
            });
            ends.send(waited).unwrap();
        });
    };
    for round in 0..3 {
        for _ in 0..20 {
            wait(waits.clone(), ends.clone());
            waiting.recv().unwrap();
        }
        // Others are run beside them.
        let (sender, receiver) = mpsc::channel();
        for at in 0..10 {
            let sender = sender.clone();
            compute.spawn(Priority::Foreground, move || sender.send(at).unwrap());
        }
        assert_eq!(receiver.iter().take(10).sum::<usize>(), 45, "round {round}");
        for _ in 0..20 {
            answers.send(()).unwrap();
            ended.recv().unwrap().unwrap();
        }
    }
    // Beyond the bound a read is refused, and does not wait.
    for _ in 0..MAX_WAITING {
        wait(waits.clone(), ends.clone());
        waiting.recv().unwrap();
    }
    wait(waits.clone(), ends.clone());
    assert!(matches!(ended.recv().unwrap(), Err(Error::Rejected(_))));
    for _ in 0..MAX_WAITING {
        answers.send(()).unwrap();
        ended.recv().unwrap().unwrap();
    }
}

#[test]
fn threads_that_took_the_place_of_others_end() {
    let queue = Arc::new(Queue::default());
    let set = Set::new((0, "test", &queue, 2));
    set.threads.lock().living = 5;
    let left = (0..4).filter(|_| set.leaves()).count();
    assert_eq!((left, set.threads.lock().living), (3, 2));
    set.threads.lock().living = 4;
    let waiting = NetworkWaitJob(Arc::clone(&set));
    set.threads.lock().waiting = 1;
    assert!(set.leaves() && !set.leaves());
    drop(waiting);
    assert!(set.leaves() && !set.leaves());
}

#[test]
fn threads_without_jobs_call_the_hook_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let compute = Compute::start(1).unwrap();
    let threads: usize = compute.pools().iter().map(|pool| pool.threads).sum();
    compute.set_idle_hook(|| {
        CALLS.fetch_add(1, Ordering::Relaxed);
    });
    while CALLS.load(Ordering::Relaxed) < threads {
        thread::yield_now();
    }
    // A job begins another time without jobs.
    let (sender, receiver) = mpsc::channel();
    compute.spawn(Priority::Spare, move || sender.send(()).unwrap());
    receiver.recv().unwrap();
    while CALLS.load(Ordering::Relaxed) < threads + 1 {
        thread::yield_now();
    }
    // The others had no job meanwhile.
    assert_eq!(CALLS.load(Ordering::Relaxed), threads + 1);
}
