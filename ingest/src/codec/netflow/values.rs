//! Values of fields: bytes of a flow to JSON, by the kind of the field and the length in its template.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Number, Value, json};

/// Kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned,
    Signed,
    Float,
    Ipv4,
    Ipv6,
    Mac,
    Text,
    Octets,
    /// Identifier of an application, RFC 6759.
    Application,
    /// Identifier of an access list entry of Cisco ASA.
    AccessList,
    MplsLabel,
    ForwardingStatus,
    Skip,
}

/// Application identifiers of this engine hold the number of an enterprise.
const PANA_L7_PEN: u8 = 20;

impl Kind {
    /// Finds a kind by its name in tables of definitions; a number is the length of an unsigned one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ip4_addr" => Self::Ipv4,
            "ip6_addr" => Self::Ipv6,
            "mac_addr" => Self::Mac,
            "string" => Self::Text,
            "octetarray" => Self::Octets,
            "application_id" => Self::Application,
            "acl_id_asa" => Self::AccessList,
            "mpls_label_stack_octets" => Self::MplsLabel,
            "forwarding_status" => Self::ForwardingStatus,
            "skip" => Self::Skip,
            "float" | "double" => Self::Float,
            other if other.starts_with("uint") => Self::Unsigned,
            other if other.starts_with("int") => Self::Signed,
            number if number.parse::<u8>().is_ok() => Self::Unsigned,
            _ => return None,
        })
    }

    /// Reads a value. Bytes of a length that the kind cannot have become hexadecimal text.
    pub(super) fn value(self, bytes: &[u8]) -> Value {
        match self {
            Self::Unsigned => unsigned(bytes),
            Self::Signed => signed(bytes),
            Self::Float => float(bytes),
            Self::Ipv4 => match <[u8; 4]>::try_from(bytes) {
                Ok(octets) => Value::String(Ipv4Addr::from(octets).to_string()),
                Err(_) => hexadecimal(bytes, ""),
            },
            Self::Ipv6 => match <[u8; 16]>::try_from(bytes) {
                Ok(octets) => Value::String(Ipv6Addr::from(octets).to_string()),
                Err(_) => hexadecimal(bytes, ""),
            },
            Self::Mac if bytes.len() == 6 => hexadecimal(bytes, ":"),
            Self::Text => {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
                Value::String(text.into_owned())
            }
            Self::Application => application(bytes),
            Self::AccessList if bytes.len() == 12 => {
                let words: Vec<String> = bytes.chunks(4).map(hexadecimal_text).collect();
                Value::String(words.join("-"))
            }
            Self::MplsLabel => match *bytes {
                [a, b, c] => mpls_label([a, b, c], None),
                [a, b, c, ttl] => mpls_label([a, b, c], Some(ttl)),
                _ => hexadecimal(bytes, ""),
            },
            Self::ForwardingStatus => match *bytes {
                [byte] => json!({"status": byte >> 6, "reason": byte & 0x3f}),
                _ => unsigned(bytes),
            },
            Self::Mac | Self::AccessList | Self::Octets | Self::Skip => hexadecimal(bytes, ""),
        }
    }
}

/// Reads an unsigned number of at most 8 bytes.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    let fits = !bytes.is_empty() && bytes.len() <= 8;
    fits.then(|| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn unsigned(bytes: &[u8]) -> Value {
    match number(bytes) {
        Some(number) => Value::from(number),
        None => hexadecimal(bytes, ""),
    }
}

fn signed(bytes: &[u8]) -> Value {
    let Some(number) = number(bytes) else { return hexadecimal(bytes, "") };
    // The shifts carry the sign of a short number to all 64 bits.
    let unused = 64 - 8 * u32::try_from(bytes.len()).unwrap_or(8);
    Value::from((number << unused).cast_signed() >> unused)
}

fn float(bytes: &[u8]) -> Value {
    let number = if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        f64::from(f32::from_be_bytes(bytes))
    } else if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
        f64::from_be_bytes(bytes)
    } else {
        return hexadecimal(bytes, "");
    };
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

/// Writes `engine..selector`, or `20..enterprise..selector`.
fn application(bytes: &[u8]) -> Value {
    let text = match bytes.split_first() {
        Some((&PANA_L7_PEN, rest)) if rest.len() >= 6 => {
            let (enterprise, selector) = rest.split_at(4);
            number(enterprise)
                .zip(number(selector))
                .map(|(enterprise, selector)| format!("{PANA_L7_PEN}..{enterprise}..{selector}"))
        }
        Some((engine, rest)) => number(rest).map(|selector| format!("{engine}..{selector}")),
        None => None,
    };
    text.map_or_else(|| hexadecimal(bytes, ""), Value::String)
}

fn mpls_label([a, b, c]: [u8; 3], ttl: Option<u8>) -> Value {
    let label = u32::from(a) << 12 | u32::from(b) << 4 | u32::from(c >> 4);
    let mut value = json!({
        "label": label,
        "experimental": c >> 1 & 0b111,
        "bottom_of_stack": c & 1,
    });
    if let (Some(ttl), Value::Object(members)) = (ttl, &mut value) {
        members.insert("ttl".to_owned(), Value::from(ttl));
    }
    value
}

fn hexadecimal_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hexadecimal(bytes: &[u8], between: &str) -> Value {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Value::String(digits.join(between))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_kind_and_length() {
        let cases: [(&str, &[u8], Value); 15] = [
            ("uint32", &[1, 0], json!(256)),
            ("uint64", &[0xff; 8], json!(u64::MAX)),
            ("uint8", &[0; 9], json!("000000000000000000")),
            ("int8", &[0xff], json!(-1)),
            ("int32", &[0xff, 0xfe], json!(-2)),
            ("float", &[0x3f, 0x80, 0, 0], json!(1.0)),
            ("ip4_addr", &[10, 0, 2, 15], json!("10.0.2.15")),
            ("ip6_addr", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], json!("::1")),
            ("mac_addr", &[0, 1, 2, 0xa, 0xb, 0xff], json!("00:01:02:0a:0b:ff")),
            ("string", b"eth0\0\0", json!("eth0")),
            ("octetarray", &[0xca, 0xfe], json!("cafe")),
            ("application_id", &[3, 0, 0, 80], json!("3..80")),
            ("application_id", &[20, 0, 0, 0, 9, 1, 0], json!("20..9..256")),
            ("acl_id_asa", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], json!("01020304-05060708-090a0b0c")),
            ("forwarding_status", &[0b0100_0001], json!({"status": 1, "reason": 1})),
        ];
        for (kind, bytes, value) in cases {
            assert_eq!(Kind::parse(kind).unwrap().value(bytes), value, "{kind}");
        }
        let label = Kind::MplsLabel.value(&[0, 1, 0x03, 7]);
        assert_eq!(label, json!({"label": 16, "experimental": 1, "bottom_of_stack": 1, "ttl": 7}));
        assert_eq!(Kind::parse("colour"), None);
    }
}
