use bytes::Bytes;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame, Op, PositionDelta, ShardOps, StoreStamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::encoding::{decode, encode, encoded_len};
use super::super::record;

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)]
}

fn op() -> impl Strategy<Value = Op> {
    (bytes(40), any::<[bool; 2]>(), number(), option::of(".{0,9}"), option::of(bytes(300))).prop_map(
        |(id, [generated, created], version, routing, source)| Op {
            id,
            generated,
            created,
            version,
            routing,
            source,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let index = || any::<u128>().prop_map(Uuid::from_u128);
    prop_oneof![
        (index(), bytes(100)).prop_map(|(index, mapping)| Entry::Mapping { index, mapping }),
        (index(), any::<u32>(), number(), number(), vec(op(), 0..8)).prop_map(
            |(index, shard, primary_term, first_seq_no, ops)| Entry::Ops(ShardOps {
                index,
                shard,
                primary_term,
                first_seq_no,
                ops
            })
        ),
        (".{0,9}", ".{0,9}", ".{0,9}", option::of(bytes(20)), bytes(20), number()).prop_map(
            |(pipeline, source, partition, previous, new, owner_epoch)| Entry::Position(PositionDelta {
                pipeline,
                source,
                partition,
                previous,
                new,
                owner_epoch
            })
        ),
        (index(), number()).prop_map(|(store, generation)| Entry::Store(StoreStamp { store, generation })),
    ]
}

fn frame(entries: usize) -> impl Strategy<Value = Frame> {
    let origin = (0..6_u8).prop_map(|code| Origin::of_code(code).unwrap());
    (any::<i64>(), origin, vec(entry(), 0..entries)).prop_map(|(time_ms, origin, entries)| Frame {
        time_ms,
        origin,
        entries,
    })
}

/// Bytes of the entry that a frame of the version before lacks.
const CONTEXT: usize = 14;

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    assert_eq!(bytes.len(), encoded_len(frame));
    bytes
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were(frame in frame(5)) {
        prop_assert_eq!(decode(&Bytes::from(encoded(&frame))).unwrap(), frame);
    }

    #[test]
    fn frames_of_the_version_before_have_no_time_and_version_1_created(mut frame in frame(5)) {
        // What that version wrote: no flag that a document was made, and no context behind the entries.
        let ops = |frame: &mut Frame, created: &dyn Fn(&Op) -> bool| {
            for entry in &mut frame.entries {
                if let Entry::Ops(ops) = entry {
                    ops.ops.iter_mut().for_each(|op| op.created = created(op));
                }
            }
        };
        ops(&mut frame, &|_| false);
        let mut before = encoded(&frame);
        before.truncate(before.len() - CONTEXT);
        ops(&mut frame, &|op| op.source.is_some() && op.version == 1);
        let expected = Frame { time_ms: 0, origin: Origin::Unknown, entries: frame.entries };
        prop_assert_eq!(decode(&Bytes::from(before)).unwrap(), expected);
    }

    #[test]
    fn the_decoder_survives_any_bytes(
        frame in frame(4),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&Bytes::from(noise.clone()));
        let mut damaged = encoded(&frame);
        for (at, byte) in edits {
            if !damaged.is_empty() {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
        }
        damaged.truncate(cut.index(damaged.len() + 1));
        if let Ok(frame) = decode(&Bytes::from(damaged.clone())) {
            prop_assert!(encoded_len(&frame) <= damaged.len() + CONTEXT);
        }
        let _ = record::read_record(&[&noise[..], &damaged].concat(), 1);
        let _ = record::FileHeader::decode(&noise);
        let _ = record::proof_of_damage(&noise, 0, 1);
    }
}

#[test]
fn counts_are_checked_before_memory_is_taken() {
    let mut body = vec![0; 16];
    body.extend_from_slice(&[0, 0, 0]);
    body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let mut payload = vec![2];
    payload.extend_from_slice(&(body.len() as u32).to_le_bytes());
    payload.extend_from_slice(&body);
    let refused = decode(&Bytes::from(payload)).unwrap_err();
    assert!(refused.contains("operations in 0 bytes"), "{refused}");
}

#[test]
fn an_entry_of_a_later_version_is_named() {
    let refused = decode(&Bytes::from_static(&[9, 0, 0, 0, 0])).unwrap_err();
    assert!(refused.contains("unknown entry kind 9"), "{refused}");
}

#[test]
fn an_origin_of_a_later_version_is_named_and_nothing_follows_the_context() {
    let context = [&[5, 9, 0, 0, 0, 77][..], &[0; 8]].concat();
    let refused = decode(&Bytes::from(context)).unwrap_err();
    assert!(refused.contains("unknown origin 77"), "{refused}");
    let twice = encoded(&Frame::default()).repeat(2);
    let refused = decode(&Bytes::from(twice)).unwrap_err();
    assert!(refused.contains("behind the frame's context"), "{refused}");
}
