use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::build;
use crate::codec::{Codec, Events};
use crate::options::Location;
use crate::{Options, Setting};
use std::sync::Arc;

fn codec(given: &[(&str, &str)]) -> Arc<dyn Codec> {
    let given = given
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned())));
    build(Options::new("netflow", Location::default(), given)).unwrap()
}

/// Fields of the flows of packets, each with the time of its event.
fn flows(codec: &Arc<dyn Codec>, peer: u8, packets: &[&[u8]]) -> Vec<Value> {
    let mut events = Events::default();
    for packet in packets {
        let mut decoder = codec.decoder();
        decoder.set_peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, peer)));
        decoder.decode(packet, &mut events);
        decoder.finish(&mut events);
    }
    let flow = |event: &crate::Event| {
        let mut flow = event.fields()["netflow"].clone();
        flow["@timestamp"] = Value::String(event.timestamp_text());
        flow
    };
    events.iter().map(flow).collect()
}

/// Bytes of numbers, each with its length.
fn bytes(numbers: &[(u64, usize)]) -> Vec<u8> {
    numbers.iter().flat_map(|(number, length)| number.to_be_bytes()[8 - length..].to_vec()).collect()
}

fn packet_of_version_5() -> Vec<u8> {
    let header = [
        (5, 2),
        (1, 2),
        (10_000, 4),
        (1_430_591_888, 4),
        (280_328_000, 4),
        (7, 4),
        (1, 1),
        (2, 1),
        (0x4064, 2),
    ];
    let flow = [
        (0x0a00_0202, 4),
        (0x0a00_020f, 4),
        (0, 4),
        (3, 2),
        (4, 2),
        (5, 4),
        (230, 4),
        (9_000, 4),
        (10_196, 4),
        (54_435, 2),
        (22, 2),
        (0, 1),
        (16, 1),
        (6, 1),
        (0, 1),
        (0, 2),
        (0, 2),
        (24, 1),
        (0, 1),
        (0, 2),
    ];
    [bytes(&header), bytes(&flow)].concat()
}

fn set(number: u64, content: &[u8]) -> Vec<u8> {
    [bytes(&[(number, 2), (content.len() as u64 + 4, 2)]), content.to_vec()].concat()
}

fn packet_of_version_9(sets: &[Vec<u8>]) -> Vec<u8> {
    let header = [(9, 2), (1, 2), (5_000, 4), (1_400_000_000, 4), (12, 4), (77, 4)];
    [bytes(&header), sets.concat()].concat()
}

fn packet_of_ipfix(sets: &[Vec<u8>]) -> Vec<u8> {
    let length = 16 + sets.iter().map(Vec::len).sum::<usize>() as u64;
    [bytes(&[(10, 2), (length, 2), (1_400_000_000, 4), (1, 4), (5, 4)]), sets.concat()].concat()
}

#[test]
fn flows_of_version_5() {
    let found = flows(&codec(&[]), 1, &[&packet_of_version_5()]);
    let expected = json!({
        "@timestamp": "2015-05-02T18:38:08.280328Z", "version": 5, "flow_seq_num": 7, "engine_type": 1, "engine_id": 2,
        "sampling_algorithm": 1, "sampling_interval": 100, "flow_records": 1,
        "ipv4_src_addr": "10.0.2.2", "ipv4_dst_addr": "10.0.2.15", "ipv4_next_hop": "0.0.0.0",
        "input_snmp": 3, "output_snmp": 4, "in_pkts": 5, "in_bytes": 230,
        "first_switched": "2015-05-02T18:38:07.280328Z", "last_switched": "2015-05-02T18:38:08.476328Z",
        "l4_src_port": 54435, "l4_dst_port": 22, "tcp_flags": 16, "protocol": 6, "src_tos": 0,
        "src_as": 0, "dst_as": 0, "src_mask": 24, "dst_mask": 0,
    });
    assert_eq!(found, [expected]);
    let only_9 = codec(&[("versions", "9")]);
    assert_eq!(flows(&only_9, 1, &[&packet_of_version_5()]), Vec::<Value>::new());
}

#[test]
fn flows_of_version_9_need_the_template_of_their_exporter() {
    let template = set(
        0,
        &bytes(&[(256, 2), (4, 2), (8, 2), (4, 2), (1, 2), (4, 2), (22, 2), (4, 2), (60_000, 2), (2, 2)]),
    );
    let data = set(
        256,
        &bytes(&[
            (0xc000_0201, 4),
            (1_500, 4),
            (4_000, 4),
            (0xffff, 2),
            (0xc000_0202, 4),
            (9, 4),
            (0, 4),
            (0, 2),
            (0, 2),
        ]),
    );
    let codec = codec(&[]);
    assert_eq!(flows(&codec, 1, &[&packet_of_version_9(std::slice::from_ref(&data))]), Vec::<Value>::new());
    let found = flows(
        &codec,
        1,
        &[&packet_of_version_9(&[template]), &packet_of_version_9(std::slice::from_ref(&data))],
    );
    let expected = json!({
        "@timestamp": "2014-05-13T16:53:20.000Z", "version": 9, "flow_seq_num": 12, "flowset_id": 256,
        "ipv4_src_addr": "192.0.2.1", "in_bytes": 1500, "first_switched": "2014-05-13T16:53:20.000Z",
    });
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], expected);
    assert_eq!(found[1]["ipv4_src_addr"], "192.0.2.2");
    // Another exporter numbers its templates by itself.
    assert_eq!(flows(&codec, 2, &[&packet_of_version_9(&[data])]), Vec::<Value>::new());
}

#[test]
fn options_of_version_9_have_scopes() {
    let template = set(1, &bytes(&[(257, 2), (4, 2), (4, 2), (1, 2), (4, 2), (34, 2), (4, 2), (0, 2)]));
    let data = set(257, &bytes(&[(9, 4), (100, 4)]));
    let found = flows(&codec(&[]), 1, &[&packet_of_version_9(&[template, data])]);
    assert_eq!((&found[0]["scope_system"], &found[0]["sampling_interval"]), (&json!(9), &json!(100)));
}

#[test]
fn flows_of_ipfix_may_have_lengths_of_their_own() {
    let template = bytes(&[
        (300, 2),
        (4, 2),
        (82, 2),
        (65_535, 2),
        (152, 2),
        (8, 2),
        (0x8000 | 1, 2),
        (4, 2),
        (29_305, 4),
        (156, 2),
        (8, 2),
    ]);
    let mut data = bytes(&[(4, 1)]);
    data.extend_from_slice(b"eth0");
    data.extend(bytes(&[
        (1_400_000_000_192, 8),
        (7, 4),
        ((1_400_000_000 + 2_208_988_800) << 32 | 0x8000_0000, 8),
    ]));
    let found = flows(
        &codec(&[("include_flowset_id", "true")]),
        1,
        &[&packet_of_ipfix(&[set(2, &template), set(300, &data)])],
    );
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["interfaceName"], "eth0");
    assert_eq!(found[0]["flowStartMilliseconds"], "2014-05-13T16:53:20.192Z");
    assert_eq!(found[0]["flowStartNanoseconds"], "2014-05-13T16:53:20.500Z");
    assert_eq!(found[0]["reverseOctetDeltaCount"], 7);
    assert_eq!(found[0]["flowset_id"], 300);
}

#[test]
fn packets_that_are_cut_lose_no_earlier_flow() {
    let template = set(0, &bytes(&[(256, 2), (1, 2), (1, 2), (4, 2)]));
    let mut packet =
        packet_of_version_9(&[template, set(256, &bytes(&[(1, 4)])), set(256, &bytes(&[(2, 4)]))]);
    packet.truncate(packet.len() - 1);
    assert_eq!(flows(&codec(&[]), 1, &[&packet]).len(), 1);
    let empty = set(0, &bytes(&[(256, 2), (1, 2), (1, 2), (0, 2)]));
    let data = set(256, &bytes(&[(1, 4)]));
    assert_eq!(flows(&codec(&[]), 1, &[&packet_of_version_9(&[empty, data])]).len(), 0);
}

proptest! {
    #[test]
    fn nothing_panics(start in proptest::sample::select(vec![5_u8, 9, 10]), rest in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..80, byte in any::<u8>()) {
        let codec = codec(&[]);
        let mut packet = vec![0, start];
        packet.extend(rest);
        flows(&codec, 1, &[&packet]);
        let template = set(0, &bytes(&[(256, 2), (2, 2), (8, 2), (4, 2), (1, 2), (4, 2)]));
        let mut packet = packet_of_version_9(&[template, set(256, &bytes(&[(1, 4), (2, 4)]))]);
        let at = at % packet.len();
        packet[at] = byte;
        flows(&codec, 1, &[&packet, &packet]);
    }
}
