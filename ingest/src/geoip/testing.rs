//! Databases that tests write.

use std::path::Path;

use serde_json::{Value, json};

/// Appends a value of the MaxMind format.
fn encode(value: &Value, out: &mut Vec<u8>) {
    let mut control = |kind: u8, size: usize, bytes: &[u8]| {
        let size = u8::try_from(size).expect("the database of a test is small");
        let (first, more) = if size < 29 { (size, None) } else { (29, Some(size - 29)) };
        if kind < 8 {
            out.push(kind << 5 | first);
        } else {
            out.extend([first, kind - 7]);
        }
        out.extend(more);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Object(members) => {
            control(7, members.len(), &[]);
            for (name, value) in members {
                encode(&json!(name), out);
                // Metadata has numbers of a fixed width.
                match (name.as_str(), value.as_u64()) {
                    ("record_size" | "ip_version", Some(number)) => out.extend([5 << 5 | 1, number as u8]),
                    (name, Some(number)) if name.ends_with("_version") => {
                        out.extend([5 << 5 | 1, number as u8])
                    }
                    ("build_epoch", Some(number)) => out.extend([1, 2, number as u8]),
                    _ => encode(value, out),
                }
            }
        }
        Value::Array(elements) => {
            control(11, elements.len(), &[]);
            elements.iter().for_each(|element| encode(element, out));
        }
        Value::String(text) => control(2, text.len(), text.as_bytes()),
        Value::Bool(value) => control(14, usize::from(*value), &[]),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => {
                control(6, 4, &u32::try_from(whole).expect("the database of a test is small").to_be_bytes())
            }
            None => control(3, 8, &number.as_f64().expect("the database of a test is small").to_be_bytes()),
        },
        Value::Null => panic!("there is no null"),
    }
}

/// Writes a database of IPv4 with records for networks of eight bits.
pub fn write_database(path: &Path, kind: &str, records: &[(u8, Value)]) {
    let mut data = Vec::new();
    let mut nodes: Vec<[Option<usize>; 2]> = vec![[None, None]];
    let mut leaves = Vec::new();
    for (network, record) in records {
        let offset = data.len();
        encode(record, &mut data);
        let mut node = 0;
        for bit in (0..8).rev() {
            let side = usize::from(network >> bit & 1);
            if bit == 0 {
                leaves.push((node, side, offset));
            } else {
                node = match nodes[node][side] {
                    Some(next) => next,
                    None => {
                        nodes.push([None, None]);
                        let next = nodes.len() - 1;
                        nodes[node][side] = Some(next);
                        next
                    }
                };
            }
        }
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        for (side, branch) in node.iter().enumerate() {
            let leaf = leaves.iter().find(|leaf| (leaf.0, leaf.1) == (number, side));
            let value = leaf.map_or(branch.unwrap_or(count), |(_, _, offset)| count + 16 + offset);
            out.extend_from_slice(
                &u32::try_from(value).expect("the database of a test is small").to_be_bytes()[1..],
            );
        }
    }
    out.extend([0; 16]);
    out.extend(data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = json!({
        "node_count": count, "record_size": 24, "ip_version": 4, "database_type": kind, "languages": ["en"],
        "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1, "description": {"en": "test"}
    });
    encode(&metadata, &mut out);
    std::fs::write(path, out).expect("the database of a test is small");
}
