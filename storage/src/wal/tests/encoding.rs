use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::encoding::{decode, encode, encoded_len};
use super::super::record;
use super::super::{Entry, Frame, Op, PositionDelta, ShardOps, StoreStamp};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)]
}

fn op() -> impl Strategy<Value = Op> {
    (bytes(40), any::<bool>(), number(), option::of(".{0,9}"), option::of(bytes(300)))
        .prop_map(|(id, generated, version, routing, source)| Op { id, generated, version, routing, source })
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

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    assert_eq!(bytes.len(), encoded_len(frame));
    bytes
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were(entries in vec(entry(), 0..5)) {
        let frame = Frame { entries };
        prop_assert_eq!(decode(&Bytes::from(encoded(&frame))).unwrap(), frame);
    }

    #[test]
    fn the_decoder_survives_any_bytes(
        entries in vec(entry(), 0..4),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&Bytes::from(noise.clone()));
        let mut damaged = encoded(&Frame { entries });
        for (at, byte) in edits {
            if !damaged.is_empty() {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
        }
        damaged.truncate(cut.index(damaged.len() + 1));
        if let Ok(frame) = decode(&Bytes::from(damaged.clone())) {
            prop_assert!(encoded_len(&frame) <= damaged.len());
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
