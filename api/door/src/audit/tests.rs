//! Bounds of what waits, and days of indices over a real store.

use std::net::SocketAddr;

use millrace_catalog::access::Refusals;
use millrace_catalog::metadata::{ClusterSettingsUpdate, IndicesOptions};
use millrace_engine::{Config as StorageConfig, Session};
use millrace_listen::Peer;
use millrace_runtime::{ManualClock, SharedClock};
use serde_json::json;

use super::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const START_MS: i64 = 1_700_000_000_000;

fn trail(address: &str, user: &str, path: &str) -> AuditTrail {
    let authorization = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:hidden"))
    };
    let request =
        http::Request::builder().uri(path).header("authorization", format!("Basic {authorization}"));
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    parts.extensions.insert(Peer(SocketAddr::new(address.parse().unwrap(), 1)));
    let mut trail = AuditTrail::new(&parts, "data");
    trail.set_anonymous(&parts.headers);
    trail
}

fn refused(address: &str, user: &str, time_ms: i64) -> Event {
    trail(address, user, "/").event(event::Outcome::AuthenticationFailed, 401, false, time_ms)
}

#[test]
fn a_flood_of_refusals_is_few_documents_and_is_counted() {
    let mut queue = Queue::default();
    for _ in 0..1_000 {
        queue.add(refused("10.0.0.1", "ann", START_MS));
    }
    for attempt in 0..1_000 {
        queue.add(refused("10.0.0.2", &format!("user-{attempt}"), START_MS));
        // Networks of 64 bits are one client each.
        queue.add(refused(&format!("fd00:0:0:{attempt:x}::1"), "ann", START_MS));
    }
    queue.add(refused("10.0.0.1", "ann", START_MS + 1_000));
    let (events, lost) = queue.take();
    assert_eq!(events[0].count, 1_000);
    let told: u64 = events.iter().map(|event| event.count + event.others).sum();
    assert_eq!(told + lost, 3_001, "none is told twice or not at all");
    assert_eq!(events.len(), 51, "fifty of the first second, and one of the next");
    let of_second =
        events.iter().filter(|event| event.address == "10.0.0.2".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(of_second.count(), 5);
    assert_eq!(queue.take().1, 0);
}

#[test]
fn what_waits_is_bounded_and_no_user_has_all_of_it() {
    let change = |user: &str, path: &str, time_ms: i64| {
        trail("10.0.0.1", user, path).event(event::Outcome::Changed, 200, false, time_ms)
    };
    let mut queue = Queue::default();
    for _ in 0..9_000 {
        queue.add(change("ann", "/a", START_MS));
    }
    queue.add(change("bob", "/a", START_MS));
    let (events, lost) = queue.take();
    assert_eq!((events.iter().map(|event| event.count).collect::<Vec<_>>(), lost), (vec![9_000, 1], 0));

    for number in 0..9_000 {
        queue.add(change("ann", &format!("/{number}"), START_MS));
    }
    queue.add(change("bob", "/a", START_MS));
    let (events, lost) = queue.take();
    assert_eq!((events.len(), lost), (4_096 + 1, 9_000 - 4_096));
    assert_eq!(events[4_096].user(), "bob");

    for number in 0..10_000 {
        queue.add(change(&format!("user-{}", number % 100), &format!("/{number}"), START_MS));
    }
    let waiting = queue.figures();
    assert!(waiting.bytes > 0 && waiting.bytes <= waiting.limit);
    // Each has 81 or 82, and as many places are left for others.
    let (events, more) = queue.take();
    assert_eq!((events.len() as u64 + more, events.len()), (10_000, 8_192 - 81));
    // Taken, they still were lost.
    assert_eq!((queue.figures().lost, queue.figures().bytes), (lost + more, 0));

    let (name, long) = ("é".repeat(1_000), format!("/{}", "x".repeat(60_000)));
    let event = change(&name, &long, START_MS);
    assert!(event.bytes() < 2_048);
    for second in 0..8_192 {
        let mut event = event.clone();
        event.time_ms += second * 1_000;
        queue.add(event);
    }
    let (events, lost) = queue.take();
    assert!(lost > 0 && events.iter().map(Event::bytes).sum::<usize>() <= 4 << 20);
}

#[test]
fn refusals_leave_room_to_what_else_is_told() {
    let mut queue = Queue::default();
    for second in 0..200 {
        for client in 0..50 {
            queue.add(refused(&format!("10.0.0.{client}"), "ann", START_MS + second * 1_000));
        }
    }
    queue.add(trail("10.0.0.1", "bob", "/").event(event::Outcome::Changed, 200, false, START_MS));
    let (events, lost) = queue.take();
    assert_eq!((events.len(), lost), (4_096 + 1, 0));
    assert_eq!((events[4_095].others, events[4_096].user()), (10_000 - 4_096, "bob"));
    queue.add(refused("10.0.0.1", "ann", START_MS));
    assert_eq!(queue.take().0[0].others, 0);
}

#[test]
fn what_was_read_while_parts_were_refused_is_told_of_each_request() {
    let mut trail = trail("10.0.0.1", "ann", "/logs,secret/_search");
    trail.reads();
    let refusals = Refusals::default();
    refusals.note_of("indices:data/read/search", Some("secret"));
    trail.may_be_refused_in_parts(&refusals);
    let told = |reads: bool, status: u16| {
        let outcome = trail.outcome(status, false, reads).unwrap();
        assert_eq!(outcome, event::Outcome::AccessDenied);
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.add(trail.event(outcome, status, reads, START_MS));
        }
        let (events, lost) = queue.take();
        assert_eq!((lost, events.iter().map(|event| event.count).sum()), (0, 100u64));
        events.len()
    };
    assert_eq!([told(true, 200), told(true, 403), told(false, 200)], [100, 1, 1]);
}

#[test]
fn of_what_is_refused_for_now_passwords_alone_are_told() {
    let request = http::Request::builder().method(Method::PUT).uri("/_security/user/ann/_password").body(());
    let (head, ()) = request.unwrap().into_parts();
    let mut trail = AuditTrail::new(&head, "data");
    trail.came_from(&Principal::system());
    trail.changes_security();
    // As where the disk is full.
    assert_eq!(trail.outcome(429, false, false), None);
    trail.noted().too_many.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(trail.outcome(429, false, false), Some(event::Outcome::AccessDenied));
}

#[test]
fn days_are_kept_for_their_time() {
    let day = Duration::from_secs(DAY_MS as u64 / 1_000);
    assert_eq!(index::name(START_MS), ".audit-2023.11.14");
    for (index, retention, expected) in [
        (".audit-2023.11.14", day, false),
        (".audit-2023.11.13", day, false),
        (".audit-2023.11.12", day, true),
        (".audit-2023.11.12", 2 * day, false),
        (".audit-2024.11.12", day, false),
        (".audit-mine", day, false),
        ("audit-2023.01.01", day, false),
        (".audit-2023.01.01", Duration::MAX, false),
    ] {
        assert_eq!(index::is_expired(index, START_MS, retention), expected, "{index} {retention:?}");
    }
}

struct Site {
    audit: Arc<AuditState>,
    session: Session,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

impl Site {
    async fn start(retention: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let config = StorageConfig { data_dir: directory.path().to_owned(), ..StorageConfig::default() };
        let engine = Engine::open(config, Arc::clone(&clock) as SharedClock).await.unwrap();
        let data_dir = directory.path().to_owned();
        let identity = Identity::open(&*engine, "node-1", "millrace", data_dir, String::new()).await.unwrap();
        let config = Config { reads: false, retention };
        let audit = Audit::new(Arc::clone(&engine), Arc::new(identity), config).0.unwrap();
        Self { audit, session: Session::system(&engine), clock, _directory: directory }
    }

    fn record(&self, user: &str) {
        let now_ms = self.session.clock().now_ms();
        self.audit.record(trail("10.0.0.1", user, "/").event(event::Outcome::Changed, 200, false, now_ms));
    }

    fn days(&self) -> Vec<String> {
        self.session.metadata().indices().map(|meta| meta.name.to_string()).collect()
    }

    async fn documents(&self, day: &str) -> u64 {
        let index = self.session.index(day).unwrap();
        self.session.refresh(&[Arc::clone(&index)]).await.unwrap();
        let snapshot = index.snapshot().await.unwrap();
        let views = snapshot.shards.iter().flat_map(|shard| &shard.segments);
        views.map(|view| u64::from(view.segment.rows())).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_day_has_an_index_until_its_time_is_over() {
    let site = Site::start(Duration::from_secs(2 * DAY_MS as u64 / 1_000)).await;
    site.audit.flush().await.unwrap();
    assert!(site.days().is_empty(), "nothing was told");
    for day in 0..5 {
        site.record("ann");
        if day == 0 {
            site.clock.advance_ms(DAY_MS);
            site.record("ann");
        }
        site.audit.flush().await.unwrap();
        site.clock.advance_ms(DAY_MS);
    }
    assert_eq!(site.days(), [".audit-2023.11.17", ".audit-2023.11.18", ".audit-2023.11.19"]);
    let meta = Arc::clone(site.session.metadata().index(".audit-2023.11.19").unwrap());
    assert!(site.session.index(&meta.name).unwrap().mapping().field("address").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_day_stays() {
    let site = Site::start(Duration::ZERO).await;
    site.record("ann");
    site.audit.flush().await.unwrap();
    // As an administrator does, who may not change the settings of these indices.
    let day = ".audit-2023.11.14";
    let hold = json!({"persistent": {"retention.hold": format!("alert, {day}")}});
    let update = ClusterSettingsUpdate::parse(&hold).unwrap();
    site.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    for _ in 0..2 {
        site.clock.advance_ms(5 * DAY_MS);
        site.record("ann");
        site.audit.flush().await.unwrap();
    }
    assert_eq!(site.days(), [day, ".audit-2023.11.24"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_cluster_do_not_end_the_audit() {
    let site = Site::start(Duration::MAX).await;
    site.record("ann");
    site.audit.flush().await.unwrap();
    let settings = json!({"persistent": {"cluster.max_shards_per_node": 1}});
    let update = ClusterSettingsUpdate::parse(&settings).unwrap();
    site.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    site.clock.advance_ms(DAY_MS);
    site.record("ann");
    site.audit.flush().await.unwrap();
    assert_eq!(site.documents(".audit-2023.11.15").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_refuses_is_written_later_and_once() {
    let site = Site::start(Duration::MAX).await;
    site.record("ann");
    site.audit.flush().await.unwrap();
    let day = ".audit-2023.11.14";
    let block = async |blocked: bool| {
        let settings = json!({"index.blocks.write": blocked});
        let options = IndicesOptions::open_only();
        let change = site.session.change(|state| state.update_settings(day, &options, &settings, false, 0));
        change.await.unwrap();
    };
    block(true).await;
    site.record("bob");
    site.audit.queue.lock().lose(3);
    assert!(matches!(site.audit.flush().await, Err(StoreError::Blocked { .. })));
    site.record("eve");
    assert!(site.audit.flush().await.is_err());
    assert_eq!(site.documents(day).await, 1);
    block(false).await;
    site.audit.flush().await.unwrap();
    assert_eq!(site.documents(day).await, 3);
    // Written before, and not known to be.
    let event = trail("10.0.0.1", "ann", "/").event(event::Outcome::Changed, 200, false, START_MS);
    for _ in 0..2 {
        site.audit.record(event.clone());
        site.audit.flush().await.unwrap();
    }
    assert_eq!(site.documents(day).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_written_as_they_come_once_that_is_asked_for() {
    let site = Site::start(Duration::MAX).await;
    site.record("ann");
    let audit = Audit(Some(Arc::clone(&site.audit)));
    audit.start_writing().await;
    for (user, documents) in [("bob", 2), ("eve", 3)] {
        site.record(user);
        // The index is there once the first event is.
        while site.days().is_empty() || site.documents(".audit-2023.11.14").await < documents {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(audit.figures().bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_tells_what_it_changes_and_removes_no_day() {
    let site = Site::start(Duration::ZERO).await;
    site.record("ann");
    site.audit.flush().await.unwrap();
    site.clock.advance_ms(5 * DAY_MS);
    let command = Audit::of_command(&site.audit.engine).await.unwrap();
    command.command_changed(Method::PUT, &["_security", "user", "a/b"]);
    command.flush().await.unwrap();
    assert_eq!(site.days(), [".audit-2023.11.14", ".audit-2023.11.19"]);
    assert_eq!(site.documents(".audit-2023.11.19").await, 1);
}
