use millrace_runtime::disk::SimulatedDisk;
use proptest::prelude::*;

use super::*;
use crate::wal;

fn delta(partition: &str, previous: &str, new: &str, owner_epoch: u64) -> PositionDelta {
    PositionDelta {
        pipeline: "p".to_owned(),
        source: "s".to_owned(),
        partition: partition.to_owned(),
        previous: Some(Bytes::copy_from_slice(previous.as_bytes())).filter(|previous| !previous.is_empty()),
        new: Bytes::copy_from_slice(new.as_bytes()),
        owner_epoch,
    }
}

fn open(disk: &SimulatedDisk, positions: &Positions) -> Wal {
    let options = wal::Options { file_bytes: 1 << 20, recent_bytes: 1 << 20 };
    let dir = std::path::Path::new("/data/wal");
    Wal::open_with(Arc::new(disk.clone()), dir, options, &mut |number, frame| {
        for entry in frame.entries {
            if let Entry::Position(delta) = entry {
                positions.replay(number, &delta);
            }
        }
        Ok(())
    })
    .unwrap()
}

fn key(partition: &str) -> Key {
    Key { pipeline: "p".to_owned(), source: "s".to_owned(), partition: partition.to_owned() }
}

#[derive(Clone, Debug)]
enum Step {
    /// Moves parts, each from where it is or from somewhere else, as its owner or as somebody else.
    Move(Vec<(u8, bool, bool, u8)>),
    Claim(u8),
    Save,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = (0..3u8, prop::bool::weighted(0.9), prop::bool::weighted(0.9), 0..6u8);
    let step = prop_oneof![
        6 => prop::collection::vec(one, 1..4).prop_map(Step::Move),
        2 => (0..3u8).prop_map(Step::Claim),
        1 => Just(Step::Save),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

/// Model of positions: the value of a part and its owner.
type Model = BTreeMap<String, (String, u64)>;

fn listed(positions: &Positions) -> Vec<(String, String)> {
    let text = |(name, at): (String, Bytes)| (name, String::from_utf8(at.to_vec()).unwrap());
    positions.list("p", "s").into_iter().map(text).collect()
}

proptest! {
    #[test]
    fn moves_are_applied_exactly_where_they_come_from_what_is_there(steps in steps()) {
        let mut disk = SimulatedDisk::new(1);
        let mut positions = Positions::default();
        let mut wal = open(&disk, &positions);
        let mut catalog: Vec<Position> = Vec::new();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Move(moves) => {
                    let mut after = model.clone();
                    let mut deltas = Vec::new();
                    let mut right = true;
                    for (part, from_there, as_owner, to) in moves {
                        let part = part.to_string();
                        let (at, epoch) = after.get(&part).cloned().unwrap_or_default();
                        let from = if from_there { at.clone() } else { "elsewhere".to_owned() };
                        // 0 forgets the part.
                        let to = if to == 0 { String::new() } else { to.to_string() };
                        let owner = if as_owner { epoch } else { epoch + 1 };
                        right &= from_there && as_owner && !(from.is_empty() && to.is_empty());
                        deltas.push(delta(&part, &from, &to, owner));
                        match to.as_str() {
                            "" => after.remove(&part),
                            _ => after.insert(part, (to, epoch)),
                        };
                    }
                    let written = positions.append(&wal, &mut Frame::default(), &deltas);
                    prop_assert_eq!(written.is_ok(), right);
                    if right {
                        model = after;
                    }
                }
                Step::Claim(part) => {
                    let part = part.to_string();
                    let (_, at, epoch) = positions.claim(&wal, key(&part), 0).unwrap();
                    let known = model.entry(part).or_default();
                    known.1 += 1;
                    prop_assert_eq!(at.unwrap_or_default(), known.0.as_bytes());
                    prop_assert_eq!(epoch, known.1);
                }
                Step::Save => {
                    if let Some(unsaved) = positions.unsaved() {
                        let same = |stored: &Position, parts: &(String, String, String)| {
                            (&stored.pipeline, &stored.source, &stored.partition) == (&parts.0, &parts.1, &parts.2)
                        };
                        for put in &unsaved.put {
                            let parts = (put.pipeline.clone(), put.source.clone(), put.partition.clone());
                            catalog.retain(|stored| !same(stored, &parts));
                            catalog.push(put.clone());
                        }
                        catalog.retain(|stored| !unsaved.forgotten.iter().any(|parts| same(stored, parts)));
                        positions.saved(&unsaved);
                        prop_assert!(!positions.has_unsaved());
                    }
                }
                Step::Restart => {
                    wal.close().unwrap();
                    drop(wal);
                    disk = disk.power_loss();
                    positions = Positions::load(catalog.clone());
                    wal = open(&disk, &positions);
                }
            }
            let expected: Vec<_> = model
                .iter()
                .filter(|(_, (at, _))| !at.is_empty())
                .map(|(part, (at, _))| (part.clone(), at.clone()))
                .collect();
            prop_assert_eq!(listed(&positions), expected);
        }
    }
}

#[test]
fn what_moves_while_the_catalog_is_told_stays_unsaved() {
    let disk = SimulatedDisk::new(1);
    let positions = Positions::default();
    let wal = open(&disk, &positions);
    positions
        .append(&wal, &mut Frame::default(), &[delta("0", "", "a", 0), delta("1", "", "a", 0)])
        .unwrap()
        .applied();
    let unsaved = positions.unsaved().unwrap();
    assert_eq!(unsaved.put.len(), 2);
    positions.append(&wal, &mut Frame::default(), &[delta("0", "a", "b", 0)]).unwrap().applied();
    positions.saved(&unsaved);
    let rest = positions.unsaved().unwrap();
    assert_eq!(rest.put.len(), 1);
    assert_eq!((rest.put[0].position.as_slice(), rest.put[0].frame), (b"b".as_slice(), 2));
}

#[test]
fn positions_that_are_too_large_are_refused() {
    let disk = SimulatedDisk::new(1);
    let positions = Positions::default();
    let wal = open(&disk, &positions);
    let mut large = delta("0", "", "a", 0);
    large.new = Bytes::from(vec![1; MAX_POSITION_BYTES + 1]);
    let refused = positions.append(&wal, &mut Frame::default(), &[large]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let long = delta(&"x".repeat(MAX_NAME_BYTES), "", "a", 0);
    let refused = positions.append(&wal, &mut Frame::default(), &[long]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
}
