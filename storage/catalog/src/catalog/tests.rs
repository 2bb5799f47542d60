use std::sync::Arc;

use millrace_runtime::Error;
use millrace_runtime::disk::SimulatedDisk;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    AccountChange, AccountRecord, Catalog, ColumnRecord, Commit, LeaseRecord, MemoryCatalog, Position,
    SegmentRecord, ShardCheckpoint, StoreRecord, TombstoneChange, TombstoneChunk, open_sqlite,
};
use crate::metadata::{IndexMeta, MetadataChange};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn index(name: &str, uuid: u128) -> IndexMeta {
    IndexMeta {
        name: Arc::from(name),
        uuid: Uuid::from_u128(uuid),
        settings: object(json!({"index.number_of_shards": "2", "index.sort.field": ["a", "b"]})),
        aliases: [("all".to_owned(), json!({"filter": {"term": {"a": "ü"}}})), ("w".to_owned(), json!({}))]
            .into(),
        open: true,
        created_ms: 1_700_000_000_123,
        shards: 2,
        replicas: 1,
        doc_type: None,
    }
}

fn put_index(meta: &IndexMeta) -> MetadataChange {
    MetadataChange::PutIndex { meta: Arc::new(meta.clone()), mapping: None }
}

fn segment(id: u128, index: u128) -> SegmentRecord {
    SegmentRecord {
        id: Uuid::from_u128(id),
        index: Uuid::from_u128(index),
        shard: 1,
        rows: 1000,
        data_bytes: 123_456,
        bundle_bytes: 5 << 32,
        ids_bytes: 0,
        min_seq_no: id as u64 * 1000,
        max_seq_no: id as u64 * 1000 + 999,
        generated_ids: (id % 2 == 1).then(|| ("aa".to_owned(), "zz".to_owned())),
        columns: vec![ColumnRecord {
            column: 3,
            list: true,
            present: 999,
            min: json!(-1.5),
            max: json!(u64::MAX),
        }],
        delete_generation: 0,
        deleted_rows: 0,
        level: 0,
        extra: json!({"sorted": true}),
    }
}

fn checkpoint(index: u128, next_frame: u64) -> ShardCheckpoint {
    let index = Uuid::from_u128(index);
    ShardCheckpoint { index, shard: 1, primary_term: 3, next_seq_no: 2000, next_frame }
}

fn tombstones(index: &IndexMeta, shard: u32, kept: std::ops::Range<u64>, added: &[&[u8]]) -> TombstoneChange {
    let added = added.iter().map(|part| part.to_vec().into()).collect();
    TombstoneChange { index: index.uuid, shard, kept, added }
}

fn chunk(index: &IndexMeta, first_seq_no: u64, encoded: &[u8]) -> TombstoneChunk {
    TombstoneChunk { index: index.uuid, shard: 1, first_seq_no, encoded: encoded.to_vec().into() }
}

/// Tests the contract of every catalog. `reopen` closes it and opens the same one again.
async fn conforms<R, F>(catalog: Arc<dyn Catalog>, reopen: R)
where
    R: Fn(Arc<dyn Catalog>) -> F,
    F: Future<Output = Arc<dyn Catalog>>,
{
    let empty = catalog.load().await.unwrap();
    assert!(empty.metadata.is_empty() && empty.segments.is_empty());
    assert_eq!((empty.store, catalog.generation()), (StoreRecord::default(), 0));

    let (a, b) = (index("a", 1), index("b", 2));
    let template = MetadataChange::PutTemplate {
        kind: "index".to_owned(),
        name: "t".to_owned(),
        body: json!({"order": 1}),
    };
    let persistent = MetadataChange::PutPersistent(object(json!({"y.x": true, "a.b": "1"})));
    let with_body = MetadataChange::PutIndex { meta: Arc::new(b.clone()), mapping: Some(json!({"x": 1})) };
    let transient = MetadataChange::PutTransient(object(json!({"not": "stored"})));
    let changes = [put_index(&a), with_body, template.clone(), persistent.clone(), transient];
    let mappings = [(a.uuid, vec![1, 2, 3]), (b.uuid, vec![0, 255])];
    catalog.change(&changes, &mappings).await.unwrap();
    catalog.put_store(Uuid::from_u128(7), false, 0).await.unwrap();
    catalog.change(&changes, &mappings).await.unwrap();
    catalog.put_store(Uuid::from_u128(7), true, 1).await.unwrap();
    assert_eq!(catalog.generation(), 2);
    let catalog = reopen(catalog).await;
    let state = catalog.load().await.unwrap();
    let named = StoreRecord { id: Some(Uuid::from_u128(7)), claimed: true, generation: 2, unnamed: false };
    assert_eq!((state.store, catalog.generation()), (named, 2));
    assert_eq!(state.metadata, [put_index(&a), put_index(&b), template, persistent]);
    assert_eq!(state.mappings, mappings);

    // An index is replaced with its aliases; a name belongs to one index; nothing half done.
    let mut closed = a.clone();
    closed.open = false;
    closed.aliases = [("new".to_owned(), json!({"is_write_index": true}))].into();
    catalog.change(&[put_index(&closed)], &[]).await.unwrap();
    let drop_template = MetadataChange::DeleteTemplate { kind: "index".to_owned(), name: "t".to_owned() };
    let refused = catalog.change(&[drop_template.clone(), put_index(&index("a", 9))], &[]).await.unwrap_err();
    assert!(matches!(refused, Error::IndexAlreadyExists { .. }), "{refused}");
    let state = catalog.load().await.unwrap();
    assert_eq!(state.metadata[0], put_index(&closed));
    assert_eq!(state.metadata.len(), 4);
    let cleared = MetadataChange::PutPersistent(Map::new());
    catalog.change(&[drop_template, cleared], &[]).await.unwrap();
    assert_eq!(catalog.load().await.unwrap().metadata.len(), 2);
    let missing = catalog.change(&[], &[(Uuid::from_u128(9), vec![1])]).await.unwrap_err();
    assert!(matches!(missing, Error::IndexNotFound { .. }), "{missing}");
    // What was refused does not count.
    assert_eq!(catalog.generation(), 4);
    assert_eq!(catalog.load().await.unwrap().store.generation, 4);

    // A commit is one transaction and may be repeated.
    let position = |partition: &str, frame| Position {
        pipeline: "p".to_owned(),
        source: "topic/group".to_owned(),
        partition: partition.to_owned(),
        position: vec![0, 1, 255],
        owner_epoch: 7,
        frame,
    };
    let lease = |name: &str, frame| LeaseRecord { name: name.to_owned(), frame, moved_ms: -7 };
    let flush = Commit {
        put: vec![segment(1, 1), segment(2, 1), segment(3, 2)],
        checkpoints: vec![checkpoint(1, 10), checkpoint(2, 11)],
        positions: vec![position("0", 3), position("1", 4)],
        mappings: vec![(a.uuid, vec![9; 100_000])],
        leases: vec![lease("kept", 3), lease("released", 4)],
        tombstones: vec![
            tombstones(&a, 1, 0..5, &[b"1", b"2"]),
            tombstones(&a, 2, 0..0, &[b"2"]),
            tombstones(&b, 1, 0..7, &[b"3"]),
        ],
        ..Commit::default()
    };
    catalog.commit(&flush).await.unwrap();
    catalog.commit(&flush).await.unwrap();
    let mut deleted = segment(3, 2);
    (deleted.delete_generation, deleted.deleted_rows, deleted.level) = (4, 17, 1);
    let compaction = Commit {
        put: vec![segment(4, 1), deleted.clone()],
        removed: vec![Uuid::from_u128(1), Uuid::from_u128(2)],
        checkpoints: vec![checkpoint(1, 20)],
        positions: vec![position("0", 5)],
        forgotten: vec![("p".to_owned(), "topic/group".to_owned(), "1".to_owned())],
        leases: vec![lease("kept", 5)],
        released: vec!["released".to_owned()],
        tombstones: vec![tombstones(&a, 1, 2..9, &[&[0, 4]]), tombstones(&a, 2, 1..9, &[])],
        ..Commit::default()
    };
    catalog.commit(&compaction).await.unwrap();
    catalog.commit(&compaction).await.unwrap();
    let orphan = Commit { put: vec![segment(5, 1), segment(6, 77)], ..Commit::default() };
    let refused = catalog.commit(&orphan).await.unwrap_err();
    assert!(matches!(&refused, Error::IndexNotFound { index } if *index == Uuid::from_u128(77).to_string()));
    let catalog = reopen(catalog).await;
    let state = catalog.load().await.unwrap();
    assert_eq!(state.segments, [segment(4, 1), deleted.clone()]);
    assert_eq!(state.checkpoints, [checkpoint(1, 20), checkpoint(2, 11)]);
    assert_eq!(state.positions, [position("0", 5)]);
    assert_eq!(state.leases, [lease("kept", 5)]);
    let of_b = chunk(&b, 7, b"3");
    let expected = [chunk(&a, 5, b"1"), chunk(&a, 5, b"2"), chunk(&a, 9, &[0, 4]), of_b.clone()];
    assert_eq!(state.tombstones, expected);
    // A group of another number takes the place of those from it on.
    let merged = Commit { tombstones: vec![tombstones(&a, 1, 5..6, &[b"m"])], ..Commit::default() };
    catalog.commit(&merged).await.unwrap();
    let expected = [chunk(&a, 5, b"1"), chunk(&a, 5, b"2"), chunk(&a, 6, b"m"), of_b.clone()];
    assert_eq!(catalog.load().await.unwrap().tombstones, expected);
    let replaced = Commit { tombstones: vec![tombstones(&a, 1, 0..5, &[b"n"])], ..Commit::default() };
    catalog.commit(&replaced).await.unwrap();
    assert_eq!(catalog.load().await.unwrap().tombstones, [chunk(&a, 5, b"n"), of_b.clone()]);
    assert_eq!(state.mappings, [(a.uuid, vec![9; 100_000]), (b.uuid, vec![0, 255])]);

    // Deleting an index takes everything of it along, and its name is free in the same change.
    let again = index("a", 3);
    let delete = MetadataChange::DeleteIndex { name: Arc::from("a"), uuid: a.uuid };
    catalog.change(&[delete, put_index(&again)], &[(again.uuid, vec![5])]).await.unwrap();
    let state = catalog.load().await.unwrap();
    assert_eq!(state.metadata, [put_index(&again), put_index(&b)]);
    assert_eq!(state.segments, [deleted]);
    assert_eq!(state.checkpoints, [checkpoint(2, 11)]);
    assert_eq!(state.tombstones, [of_b]);
    assert_eq!(state.mappings, [(b.uuid, vec![0, 255]), (again.uuid, vec![5])]);

    assert_eq!(catalog.get("admin").await.unwrap(), None);
    catalog.put("admin", b"hash").await.unwrap();
    catalog.put("admin", b"other").await.unwrap();
    let catalog = reopen(catalog).await;
    assert_eq!(catalog.get("admin").await.unwrap().as_deref(), Some(&b"other"[..]));

    // Accounts of a name are told apart by kind; one change sees what those before it did.
    assert!(catalog.accounts().await.unwrap().is_empty());
    let account = |kind: &str, name: &str, body: &str| AccountRecord {
        kind: kind.to_owned(),
        name: name.to_owned(),
        body: body.to_owned(),
    };
    let drop_account =
        |kind: &str, name: &str| AccountChange::Delete { kind: kind.to_owned(), name: name.to_owned() };
    let (ann, role, ben) =
        (account("user", "ann", "{}"), account("role", "ann", r#"{"ü":1}"#), account("user", "ben", "{}"));
    let changes = [&ann, &role, &ben].map(|record| AccountChange::Put(record.clone()));
    catalog.put_accounts(&changes).await.unwrap();
    catalog.put_accounts(&changes).await.unwrap();
    let catalog = reopen(catalog).await;
    assert_eq!(catalog.accounts().await.unwrap(), [role.clone(), ann, ben.clone()]);
    let changed = account("user", "ann", r#"{"v":1}"#);
    let changes = [
        drop_account("user", "ann"),
        AccountChange::Put(changed.clone()),
        AccountChange::Put(account("key", "k", "{}")),
        drop_account("key", "k"),
        drop_account("user", "nobody"),
        drop_account("role", "ann"),
    ];
    catalog.put_accounts(&changes).await.unwrap();
    let catalog = reopen(catalog).await;
    assert_eq!(catalog.accounts().await.unwrap(), [changed, ben]);
    catalog.close().await;
}

#[tokio::test]
async fn the_sqlite_catalog_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let reopen = |catalog: Arc<dyn Catalog>| {
        let path = path.clone();
        async move {
            catalog.close().await;
            open_sqlite(&path).await.unwrap()
        }
    };
    conforms(open_sqlite(&path).await.unwrap(), reopen).await;
}

#[tokio::test]
async fn tombstones_of_the_version_before_are_the_first_group() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let catalog = open_sqlite(&path).await.unwrap();
    let a = index("a", 1);
    catalog.change(&[put_index(&a)], &[]).await.unwrap();
    catalog.close().await;
    // As that version left it.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let before = include_str!("../../migrations/0002_tombstones.sql");
    for statement in [
        "DROP TABLE tombstone_chunks",
        "DELETE FROM _sqlx_migrations WHERE version = 5",
        before,
        "INSERT INTO tombstones SELECT uuid, 1, x'0102' FROM indices",
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    }
    pool.close().await;
    let catalog = open_sqlite(&path).await.unwrap();
    assert_eq!(catalog.load().await.unwrap().tombstones, [chunk(&a, 0, &[1, 2])]);
    catalog.close().await;
}

/// Runs statements on a catalog's file from outside, as another program may.
async fn run_on_file(path: &std::path::Path, statements: &[&'static str]) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    for statement in statements {
        sqlx::query(*statement).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

/// Makes `cause` hold, checks that transactions fail meanwhile, ends it, and checks that they work again and that
/// nothing of those that failed is there.
async fn a_catalog_recovers_from(cause: &[&'static str], end: &[&'static str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let catalog = open_sqlite(&path).await.unwrap();
    let template = |name: &str| MetadataChange::PutTemplate {
        kind: "index".to_owned(),
        name: name.to_owned(),
        body: json!({}),
    };
    let account = |name: &str| {
        let (kind, name, body) = ("user".to_owned(), name.to_owned(), "{}".to_owned());
        [AccountChange::Put(AccountRecord { kind, name, body })]
    };
    catalog.change(&[put_index(&index("a", 1)), template("before")], &[]).await.unwrap();
    run_on_file(&path, cause).await;
    for _ in 0..3 {
        catalog.change(&[template("meanwhile")], &[]).await.unwrap_err();
        catalog.commit(&Commit { put: vec![segment(1, 1)], ..Commit::default() }).await.unwrap_err();
        catalog.put_accounts(&account("meanwhile")).await.unwrap_err();
        assert_eq!(catalog.load().await.unwrap().metadata.len(), 2);
    }
    assert_eq!(catalog.generation(), 1);
    run_on_file(&path, end).await;
    catalog.change(&[template("after")], &[]).await.unwrap();
    catalog.commit(&Commit { put: vec![segment(2, 1)], ..Commit::default() }).await.unwrap();
    catalog.put_accounts(&account("after")).await.unwrap();
    catalog.close().await;
    let catalog = open_sqlite(&path).await.unwrap();
    let state = catalog.load().await.unwrap();
    assert_eq!(state.metadata, [put_index(&index("a", 1)), template("after"), template("before")]);
    assert_eq!(state.segments, [segment(2, 1)]);
    assert_eq!(catalog.accounts().await.unwrap().len(), 1);
    assert_eq!(state.store.generation, 3);
    catalog.close().await;
}

/// As after a full disk, a failed write or a failed sync.
#[tokio::test]
async fn transactions_that_sqlite_rolls_back_by_itself_leave_the_catalog_usable() {
    let cause = [
        "CREATE TRIGGER t1 BEFORE INSERT ON templates BEGIN SELECT RAISE(ROLLBACK, 'simulated'); END",
        "CREATE TRIGGER t2 BEFORE INSERT ON segments BEGIN SELECT RAISE(ROLLBACK, 'simulated'); END",
        "CREATE TRIGGER t3 BEFORE INSERT ON accounts BEGIN SELECT RAISE(ROLLBACK, 'simulated'); END",
    ];
    a_catalog_recovers_from(&cause, &["DROP TRIGGER t1", "DROP TRIGGER t2", "DROP TRIGGER t3"]).await;
}

#[tokio::test]
async fn statements_that_fail_within_a_transaction_leave_the_catalog_usable() {
    let cause = [
        "CREATE TRIGGER t1 BEFORE INSERT ON templates BEGIN SELECT RAISE(FAIL, 'simulated'); END",
        "CREATE TRIGGER t2 BEFORE INSERT ON segments BEGIN SELECT RAISE(ABORT, 'simulated'); END",
        "CREATE TRIGGER t3 BEFORE INSERT ON accounts BEGIN SELECT RAISE(FAIL, 'simulated'); END",
    ];
    a_catalog_recovers_from(&cause, &["DROP TRIGGER t1", "DROP TRIGGER t2", "DROP TRIGGER t3"]).await;
}

#[tokio::test]
async fn commits_that_fail_leave_the_catalog_usable() {
    // What a deferred constraint refuses fails at the commit, which leaves the transaction open.
    let cause = [
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE children (parent REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TRIGGER t1 AFTER INSERT ON templates BEGIN INSERT INTO children VALUES (1); END",
        "CREATE TRIGGER t2 AFTER INSERT ON segments BEGIN INSERT INTO children VALUES (1); END",
        "CREATE TRIGGER t3 AFTER INSERT ON accounts BEGIN INSERT INTO children VALUES (1); END",
    ];
    a_catalog_recovers_from(&cause, &["DROP TRIGGER t1", "DROP TRIGGER t2", "DROP TRIGGER t3"]).await;
}

/// A caller that goes away amid a transaction.
#[tokio::test]
async fn cancelled_transactions_leave_the_catalog_usable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let catalog = open_sqlite(&path).await.unwrap();
    catalog.change(&[put_index(&index("a", 1))], &[]).await.unwrap();
    for polls in 1..12 {
        let commit = Commit { put: vec![segment(1, 1)], ..Commit::default() };
        let mut running = catalog.commit(&commit);
        for _ in 0..polls {
            if futures::poll!(&mut running).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(running);
        catalog.commit(&Commit { put: vec![segment(2, 1)], ..Commit::default() }).await.unwrap();
    }
    catalog.close().await;
}

#[tokio::test]
async fn a_catalog_tells_of_its_trouble_until_it_can_be_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let catalog = open_sqlite(&path).await.unwrap();
    let meta = index("a", 1);
    catalog.change(&[put_index(&meta)], &[]).await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let other = sqlx::SqlitePool::connect_with(options).await.unwrap();
    // SQLite ends the transaction by itself, as it does where the disk is full.
    let trigger = "CREATE TRIGGER full BEFORE UPDATE ON store BEGIN SELECT RAISE(ROLLBACK, 'no room'); END";
    sqlx::query(trigger).execute(&other).await.unwrap();
    for _ in 0..3 {
        let error = catalog.change(&[put_index(&index("b", 2))], &[]).await.unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
        catalog.probe().await.unwrap_err();
        assert!(catalog.trouble().unwrap().contains("no room"));
    }
    catalog.put("what the trigger", b"does not see").await.unwrap();
    assert_eq!(catalog.trouble(), None);
    catalog.probe().await.unwrap_err();
    sqlx::query("DROP TRIGGER full").execute(&other).await.unwrap();
    catalog.probe().await.unwrap();
    assert_eq!(catalog.trouble(), None);
    catalog.change(&[put_index(&index("b", 2))], &[]).await.unwrap();
    assert_eq!(catalog.load().await.unwrap().metadata, [put_index(&meta), put_index(&index("b", 2))]);
    other.close().await;
    catalog.close().await;
}

#[tokio::test]
async fn the_memory_catalog_conforms() {
    let catalog = Arc::new(MemoryCatalog::new(SimulatedDisk::new(1)));
    let reopen = |_| {
        let again: Arc<dyn Catalog> = Arc::new(catalog.reopen(SimulatedDisk::new(2)));
        std::future::ready(again)
    };
    conforms(Arc::clone(&catalog) as Arc<dyn Catalog>, reopen).await;
}

#[tokio::test]
async fn the_memory_catalog_fails_with_its_disk() {
    let disk = SimulatedDisk::new(1);
    let catalog = MemoryCatalog::new(disk.clone());
    disk.crash_after(1);
    catalog.put("a", b"1").await.unwrap();
    catalog.put("b", b"1").await.unwrap_err();
    catalog.put("c", b"1").await.unwrap_err();
    let again = catalog.reopen(disk.power_loss());
    assert!(again.get("a").await.unwrap().is_some() && again.get("c").await.unwrap().is_none());
}

#[tokio::test]
async fn an_unusable_catalog_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = open_sqlite(&path).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { file, .. } if *file == path.display().to_string()), "{error}");
    let error = open_sqlite(&dir.path().join("missing/catalog.sqlite")).await.unwrap_err();
    assert!(
        matches!(error, Error::Io { .. }) && error.to_string().contains("missing/catalog.sqlite"),
        "{error}"
    );
}

#[tokio::test]
async fn damage_within_the_catalog_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.sqlite");
    let catalog = open_sqlite(&path).await.unwrap();
    catalog.change(&[put_index(&index("a", 1))], &[]).await.unwrap();
    let put = (1..200).map(|id| segment(id, 1)).collect();
    catalog.commit(&Commit { put, ..Commit::default() }).await.unwrap();
    catalog.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..8].fill(0xee);
    }
    std::fs::write(&path, bytes).unwrap();
    let error = match open_sqlite(&path).await {
        Err(error) => error,
        Ok(catalog) => catalog.load().await.unwrap_err(),
    };
    assert!(matches!(&error, Error::Corrupt { file, .. } if *file == path.display().to_string()), "{error}");
}
