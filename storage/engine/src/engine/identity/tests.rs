use super::*;

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn around(owner: Option<Uuid>, segments: bool, log: Origin) -> StoreTraces {
    let (catalog, objects) = ("data/catalog.sqlite".to_owned(), "bucket".to_owned());
    StoreTraces { catalog, objects, wal: PathBuf::from("data/wal"), owner, noted: None, segments, log }
}

fn stamped(store: Uuid, generation: u64) -> Origin {
    Origin { used: true, stamp: Some(StoreStamp { store, generation }) }
}

const NOTHING: Origin = Origin { used: false, stamp: None };
const UNSTAMPED: Origin = Origin { used: true, stamp: None };
const NEW: StoreRecord = StoreRecord { id: None, claimed: false, generation: 0, unnamed: false };
const UNNAMED: StoreRecord = StoreRecord { unnamed: true, ..NEW };

fn named(claimed: bool) -> StoreRecord {
    StoreRecord { id: Some(id(1)), claimed, generation: 10, unnamed: false }
}

fn refused(around: &StoreTraces, record: &StoreRecord, said: &str) {
    match around.judge(record) {
        Err(error @ Error::Mismatch { .. }) => assert!(error.to_string().contains(said), "{error}"),
        other => panic!("{other:?} where [{said}] was expected"),
    }
}

#[test]
fn what_has_no_id_gets_one_only_where_nothing_is_at_stake() {
    assert_eq!(around(None, false, NOTHING).judge(&NEW).unwrap(), None);
    refused(&around(None, true, NOTHING), &NEW, "has segments");
    refused(&around(None, false, UNSTAMPED), &NEW, "has been written to");
    refused(&around(Some(id(1)), false, NOTHING), &NEW, "belongs to store");
    refused(&around(None, false, stamped(id(1), 0)), &NEW, "data/wal");
    // The version before.
    assert_eq!(around(None, true, UNSTAMPED).judge(&UNNAMED).unwrap(), None);
    refused(&around(Some(id(1)), true, UNSTAMPED), &UNNAMED, "older version");
    refused(&around(None, true, stamped(id(1), 0)), &UNNAMED, "older version");
}

#[test]
fn all_three_must_say_the_same() {
    let known = Some(id(1));
    for claimed in [false, true] {
        let record = named(claimed);
        assert_eq!(around(known, true, stamped(id(1), 10)).judge(&record).unwrap(), known);
        refused(
            &around(Some(id(2)), true, stamped(id(1), 9)),
            &record,
            "to store 00000000-0000-0000-0000-000000000002",
        );
        refused(&around(known, true, stamped(id(2), 9)), &record, "the log [data/wal] to store");
        refused(&around(known, true, stamped(id(1), 11)), &record, "generation 10, older than the log");
        // A log that is missing as a whole is told of by its opening, where something was in it.
        assert_eq!(around(known, true, NOTHING).judge(&record).unwrap(), known);
    }
    let written_beside = |store: Uuid, generation| StoreTraces {
        noted: Some((store, generation)),
        ..around(known, true, stamped(id(1), 9))
    };
    refused(&written_beside(id(1), 11), &named(true), "generation 10, older than the object store");
    assert_eq!(written_beside(id(1), 10).judge(&named(true)).unwrap(), known);
    assert_eq!(written_beside(id(2), 11).judge(&named(true)).unwrap(), known);
    // A start that ended before all had the id goes on.
    assert_eq!(around(None, false, UNSTAMPED).judge(&named(false)).unwrap(), known);
    refused(&around(None, false, stamped(id(1), 9)), &named(true), "has no store.json");
    refused(&around(known, true, UNSTAMPED), &named(true), "names no store");
}

#[test]
fn only_what_lies_where_segments_lie_is_taken_for_one() {
    let (index, segment) = (id(7).simple().to_string(), id(8).simple().to_string());
    let of = |path: String| segment_of(&Path::from(path));
    for file in ["data.parquet", "index.bundle", "ids", "deletes-17.roaring"] {
        assert_eq!(of(format!("{index}/3/{segment}/{file}")), Some(id(8)), "{file}");
    }
    for other in [
        format!("{index}/3/{segment}"),
        format!("{index}/3/{segment}/data.parquet/x"),
        format!("{index}/3/{segment}/readme.txt"),
        format!("{index}/3/{segment}/deletes-017.roaring"),
        format!("{index}/3/{segment}/deletes-.roaring"),
        format!("{index}/backup/{segment}/data.parquet"),
        format!("photos/3/{segment}/data.parquet"),
        format!("{}/3/{segment}/data.parquet", id(7)),
        format!("{index}/3/{}/data.parquet", id(8)),
        format!("a/b/{}/c", id(8)),
    ] {
        assert_eq!(of(other.clone()), None, "{other}");
    }
}
