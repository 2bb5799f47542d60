//! Subject of a client's certificate, as text for people and rules.
//!
//! The certificate was verified before. Its subject is read here, from the DER of RFC 5280, and written as RFC 4514
//! has it. Only the few forms that DER allows are read, without recursion.

use std::fmt::Write;
use std::sync::Arc;

/// Longest subject in bytes of DER; a client with a longer one is refused.
const MAX_SUBJECT_BYTES: usize = 4 << 10;

/// The verified certificate of a request's client, an extension of each request of a connection that showed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject's distinguished name (RFC 4514), such as `CN=shipper,O=Acme`. Empty where it has none.
    pub subject: Arc<str>,
    /// The common name in it, of several the most specific one.
    pub common_name: Option<Arc<str>>,
    /// Last moment at which it is valid, in milliseconds since the epoch: a connection may outlive it.
    pub not_after_ms: i64,
}

impl ClientCertificate {
    /// Reads the subject of a certificate and its end; `None` where it is malformed or longer than 4 KiB.
    pub(crate) fn read(certificate: &[u8]) -> Option<Self> {
        let (subject, validity) = subject(certificate)?;
        if subject.len() > MAX_SUBJECT_BYTES {
            return None;
        }
        let (subject, common_name) = name(subject)?;
        Some(Self { subject, common_name, not_after_ms: not_after_ms(validity)? })
    }
}

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version of a certificate, which those of version 1 do not have.
const VERSION: u8 = 0xa0;

/// One element of DER.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// With its tag and length.
    whole: &'a [u8],
}

/// Takes the first element off.
fn next<'a>(input: &mut &'a [u8]) -> Option<Element<'a>> {
    let bytes = *input;
    let tag = *bytes.first()?;
    // Tags of several bytes do not occur here.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let first = usize::from(*bytes.get(1)?);
    let (header, length) = if first < 0x80 {
        (2, first)
    } else {
        let count = first & 0x7f;
        let digits = bytes.get(2..2 + count)?;
        // No certificate has 16 MiB; DER allows no length in more bytes than it needs.
        if !(1..=3).contains(&count) || digits[0] == 0 {
            return None;
        }
        let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        if length < 0x80 {
            return None;
        }
        (2 + count, length)
    };
    let (whole, rest) = bytes.split_at_checked(header + length)?;
    *input = rest;
    Some(Element { tag, content: &whole[header..], whole })
}

/// Takes the first element off, which is to have this tag, and returns its content.
fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(input).filter(|element| element.tag == tag).map(|element| element.content)
}

/// Finds the contents of the subject and of the validity.
fn subject(mut certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut signed = expect(&mut certificate, SEQUENCE)?;
    let mut fields = expect(&mut signed, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        next(&mut fields)?;
    }
    expect(&mut fields, INTEGER)?;
    let [_signature, _issuer, validity] =
        [expect(&mut fields, SEQUENCE)?, expect(&mut fields, SEQUENCE)?, expect(&mut fields, SEQUENCE)?];
    Some((expect(&mut fields, SEQUENCE)?, validity))
}

/// Reads the end of a validity: times in UTC and in whole seconds, with two digits of the year or with four.
fn not_after_ms(mut validity: &[u8]) -> Option<i64> {
    next(&mut validity)?;
    let Element { tag, content, .. } = next(&mut validity)?;
    let digits = content.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => digits.split_at_checked(2)?,
        (GENERALIZED_TIME, 14) => digits.split_at_checked(4)?,
        _ => return None,
    };
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let year = match (number(year), tag) {
        (year @ 50.., UTC_TIME) => 1900 + year,
        (year, UTC_TIME) => 2000 + year,
        (year, _) => year,
    };
    let mut parts = rest.chunks(2).map(number);
    let mut next = || parts.next();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

/// Counts the days from the epoch to the first of a month.
fn days_before(year: i64, month: i64) -> i64 {
    // A year that begins in March has the day that is sometimes there at its end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_years = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 306 days are from March to December, and 719,468 from the first of March of year 0 to the epoch.
    of_years + (month * 306 + 5) / 10 - 719_468
}

/// Reads the content of a name: sets of attributes, the most general first, which RFC 4514 turns round.
fn name(mut sets: &[u8]) -> Option<(Arc<str>, Option<Arc<str>>)> {
    let mut parts = Vec::new();
    let mut common_name = None;
    while !sets.is_empty() {
        let mut attributes = expect(&mut sets, SET)?;
        let mut part = String::new();
        let mut common = None;
        loop {
            let mut attribute = expect(&mut attributes, SEQUENCE)?;
            let kind = expect(&mut attribute, OBJECT_IDENTIFIER)?;
            let value = next(&mut attribute).filter(|_| attribute.is_empty())?;
            let text = add_attribute(&mut part, kind, value)?;
            if kind == COMMON_NAME {
                common = common.or(text);
            }
            if attributes.is_empty() {
                break;
            }
            part.push('+');
        }
        parts.push(part);
        common_name = common.or(common_name);
    }
    parts.reverse();
    Some((parts.join(",").into(), common_name.map(Arc::from)))
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// Returns the short name of an attribute, of those that RFC 4514 has.
fn short(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        COMMON_NAME => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        // 0.9.2342.19200300.100.1.1 and .25.
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        _ => return None,
    })
}

/// Adds `CN=shipper`; returns the value's text if it has one.
fn add_attribute(out: &mut String, kind: &[u8], value: Element<'_>) -> Option<Option<String>> {
    let named = short(kind);
    match named {
        Some(short) => out.push_str(short),
        None => add_numbers(out, kind)?,
    }
    out.push('=');
    let text = text(value);
    match &text {
        Some(text) if named.is_some() => add_escaped(out, text),
        _ => {
            out.push('#');
            add_hexadecimal(out, "", value.whole);
        }
    }
    Some(text)
}

/// Reads a value of one of the kinds of strings that say how they are encoded.
fn text(value: Element<'_>) -> Option<String> {
    const UTF8: u8 = 0x0c;
    const NUMERIC: u8 = 0x12;
    const PRINTABLE: u8 = 0x13;
    const IA5: u8 = 0x16;
    const VISIBLE: u8 = 0x1a;
    const BMP: u8 = 0x1e;
    match value.tag {
        UTF8 => std::str::from_utf8(value.content).ok().map(str::to_owned),
        NUMERIC | PRINTABLE | IA5 | VISIBLE if value.content.is_ascii() => {
            std::str::from_utf8(value.content).ok().map(str::to_owned)
        }
        BMP => {
            let (units, []) = value.content.as_chunks::<2>() else { return None };
            char::decode_utf16(units.iter().map(|unit| u16::from_be_bytes(*unit)))
                .collect::<Result<_, _>>()
                .ok()
        }
        _ => None,
    }
}

/// Adds an object identifier as numbers with dots.
fn add_numbers(out: &mut String, kind: &[u8]) -> Option<()> {
    let mut number: Option<u64> = None;
    let mut is_first = true;
    for byte in kind {
        // A leading zero, which DER does not allow.
        if number.is_none() && *byte == 0x80 {
            return None;
        }
        let so_far = number.unwrap_or(0).checked_mul(0x80)? | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            number = Some(so_far);
            continue;
        }
        number = None;
        let _ = if std::mem::take(&mut is_first) {
            let root = (so_far / 40).min(2);
            write!(out, "{root}.{}", so_far - root * 40)
        } else {
            write!(out, ".{so_far}")
        };
    }
    // Nothing at all, or the last number lacks its end.
    (!is_first && number.is_none()).then_some(())
}

fn add_hexadecimal(out: &mut String, before_each: &str, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{before_each}{byte:02x}");
    }
}

/// Adds a value so that it cannot be taken for more than one: section 2.4 of RFC 4514, and control characters,
/// which have no business in logs.
fn add_escaped(out: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', character]),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            '#' if at == 0 => out.push_str("\\#"),
            _ if character.is_control() => {
                add_hexadecimal(out, "\\", character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(attributes: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut out = match u8::try_from(length) {
            Ok(short @ ..0x80) => vec![tag, short],
            _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        out.extend_from_slice(content);
        out
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        element(SEQUENCE, &[element(OBJECT_IDENTIFIER, kind), element(tag, value)].concat())
    }

    /// Reads a name of sets of attributes.
    fn read(sets: &[&[Vec<u8>]]) -> Option<(String, Option<String>)> {
        let sets: Vec<_> = sets.iter().flat_map(|attributes| element(SET, &attributes.concat())).collect();
        let (subject, common_name) = name(&sets)?;
        Some((subject.to_string(), common_name.map(|name| name.to_string())))
    }

    fn common(value: &str) -> Vec<u8> {
        attribute(COMMON_NAME, 0x0c, value.as_bytes())
    }

    #[test]
    fn the_subject_is_read_most_specific_first() {
        let read = ClientCertificate::read(&certificate(&[
            (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
            (DnType::OrganizationName, "Acme, Inc.".into()),
            (DnType::OrganizationalUnitName, DnValue::BmpString("Küche".try_into().unwrap())),
            (DnType::CommonName, "shipper".into()),
        ]))
        .unwrap();
        assert_eq!(&*read.subject, r"CN=shipper,OU=Küche,O=Acme\, Inc.,C=DE");
        assert_eq!(read.common_name.as_deref(), Some("shipper"));
        let nobody = ClientCertificate::read(&certificate(&[])).unwrap();
        assert_eq!((&*nobody.subject, nobody.common_name), ("", None));
    }

    #[test]
    fn the_end_is_read_in_both_forms_of_time() {
        for (year, month, day, expected) in [
            (1970, 1, 1, 0),
            (2000, 2, 29, 951_782_400_000),
            (2024, 12, 31, 1_735_603_200_000),
            (2049, 12, 31, 2_524_521_600_000),
            // From here on years have four digits.
            (2050, 1, 1, 2_524_608_000_000),
            (2100, 3, 1, 4_107_542_400_000),
            (9999, 12, 31, 253_402_214_400_000),
        ] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.not_before = rcgen::date_time_ymd(1960, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let read = ClientCertificate::read(certificate.der()).unwrap();
            assert_eq!(read.not_after_ms, expected, "{year}");
        }
        let end = |tag: u8, text: &str| {
            let times = [element(UTC_TIME, b"700101000000Z"), element(tag, text.as_bytes())].concat();
            not_after_ms(&times)
        };
        assert_eq!(end(UTC_TIME, "240229235959Z"), Some(1_709_251_199_000));
        assert_eq!(end(GENERALIZED_TIME, "20240229235959Z"), end(UTC_TIME, "240229235959Z"));
        for (tag, text) in [
            (UTC_TIME, "2402292359Z"),
            (UTC_TIME, "240229235959+0100"),
            (UTC_TIME, "20240229235959Z"),
            (UTC_TIME, "241329235959Z"),
            (UTC_TIME, "240200235959Z"),
            (GENERALIZED_TIME, "20240229235959.5Z"),
            (GENERALIZED_TIME, "240229235959Z"),
            (INTEGER, "240229235959Z"),
        ] {
            assert_eq!(end(tag, text), None, "{text}");
        }
    }

    #[test]
    fn no_value_passes_for_another() {
        for (value, expected) in [
            ("a,O=Acme", r"CN=a\,O=Acme"),
            ("a+b;c", r"CN=a\+b\;c"),
            (r#"<"\>"#, r#"CN=\<\"\\\>"#),
            ("  a b ", r"CN=\  a b\ "),
            (" ", r"CN=\ "),
            ("#1#", r"CN=\#1#"),
            ("a\0b\r\n\u{85}", r"CN=a\00b\0d\0a\c2\85"),
            ("a=b", "CN=a=b"),
            ("", "CN="),
        ] {
            let (subject, name) = read(&[&[common(value)]]).unwrap();
            assert_eq!((subject.as_str(), name.as_deref()), (expected, Some(value)));
        }
    }

    #[test]
    fn attributes_of_all_kinds_are_written() {
        let organization = attribute(&[0x55, 4, 10], 0x13, b"Acme");
        let user = attribute(&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], 0x0c, b"u1");
        // Several in one set, several common names.
        let sets: &[&[Vec<u8>]] = &[&[common("old")], &[organization], &[common("new"), user]];
        let (subject, name) = read(sets).unwrap();
        assert_eq!((subject.as_str(), name.as_deref()), ("CN=new+UID=u1,O=Acme,CN=old", Some("new")));
        // Without a short name, and of a kind that does not say how it is encoded.
        let address = attribute(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], 0x16, b"a@b");
        assert_eq!(read(&[&[address]]).unwrap().0, "1.2.840.113549.1.9.1=#1603614062");
        let teletex = attribute(COMMON_NAME, 0x14, b"\xe4");
        assert_eq!(read(&[&[teletex]]).unwrap(), ("CN=#1401e4".to_owned(), None));
        assert_eq!(read(&[&[attribute(&[0x88, 0x37], 0x0c, b"")]]).unwrap().0, "2.999=#0c00");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let unended = attribute(&[0x55, 0x84], 0x0c, b"x");
        let padded = attribute(&[0x55, 0x80, 1], 0x0c, b"x");
        let enormous = attribute(&[[0x55].as_slice(), &[0xff; 10], &[0x7f]].concat(), 0x0c, b"x");
        let without_kind = attribute(&[], 0x0c, b"x");
        let more =
            element(SEQUENCE, &[element(OBJECT_IDENTIFIER, COMMON_NAME), common("x"), common("y")].concat());
        for refused in [unended, padded, enormous, without_kind, more, element(SEQUENCE, &[])] {
            assert_eq!(read(&[std::slice::from_ref(&refused)]), None, "{refused:02x?}");
        }
        assert_eq!(read(&[&[]]), None);
        for length in
            [&[0x80, 0, 0][..], &[0x81, 1, 0], &[0x82, 0, 0x80], &[0x84, 0, 0, 0, 1, 0], &[0xff], &[5, 0]]
        {
            let bytes = [&[SET], length].concat();
            assert!(next(&mut bytes.as_slice()).is_none(), "{length:02x?}");
        }
    }

    #[test]
    fn a_subject_has_its_bound() {
        let of = |length: usize| {
            let value = "x".repeat(length);
            ClientCertificate::read(&certificate(&[(DnType::CommonName, value.into())]))
        };
        assert_eq!(of(4000).unwrap().common_name.unwrap().len(), 4000);
        assert_eq!(of(5000), None);
    }

    /// Cut anywhere, and with each byte replaced by each other one, it is read or not, but without a panic.
    #[test]
    fn damaged_certificates_are_read_or_refused() {
        let whole = certificate(&[
            (DnType::OrganizationName, "Acme".into()),
            (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a@b".into()),
            (DnType::CommonName, DnValue::BmpString("shipper".try_into().unwrap())),
        ]);
        let expected = ClientCertificate::read(&whole).unwrap();
        for end in 0..whole.len() {
            assert_eq!(ClientCertificate::read(&whole[..end]), None, "{end}");
        }
        let (mut read, mut differ) = (0, 0);
        let mut damaged = whole.clone();
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                damaged[at] = byte;
                if let Some(other) = ClientCertificate::read(&damaged) {
                    read += 1;
                    differ += usize::from(other != expected);
                    assert!(other.subject.len() <= 4 * MAX_SUBJECT_BYTES);
                }
            }
            damaged[at] = whole[at];
        }
        assert!(differ > 0 && read > differ, "{read} {differ}");
    }
}
