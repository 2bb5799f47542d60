//! Masks of log lines: numbers, addresses and ids become one word each, so that lines of one template are alike.
//!
//! A line is runs of ASCII letters and digits with other characters between them. Each run tries the masks in this order:
//!
//! - `<ID>`: a UUID, which is runs of 8, 4, 4, 4 and 12 hexadecimal digits with `-` between
//! - `<MAC>`: six runs of two hexadecimal digits with `:` between, or with `-`
//! - `<IP>`: eight runs of one to four hexadecimal digits with `:` between, or four runs of one to three digits with `.` between
//! - `<ID>`: a run of 16 or more hexadecimal digits
//! - `<NUM>`: a run of digits
//! - `<HEX>`: a run `0x…` of hexadecimal digits

/// Writes a line with its masks.
pub(crate) fn mask_line(line: &str, masked: &mut String) {
    masked.clear();
    let bytes = line.as_bytes();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let end = run_end(bytes, at);
        let (mask, mask_end) = match_mask(bytes, at, end);
        if let Some(mask) = mask {
            masked.push_str(&line[copied..at]);
            masked.push_str(mask);
            copied = mask_end;
        }
        at = mask_end;
    }
    masked.push_str(&line[copied..]);
}

/// Returns the mask at a run, and the end of what it covers.
fn match_mask(bytes: &[u8], at: usize, end: usize) -> (Option<&'static str>, usize) {
    let run = &bytes[at..end];
    let all = |test: fn(&u8) -> bool| run.iter().all(test);
    if all(u8::is_ascii_hexdigit) {
        let hex = |end| match_runs(bytes, at, end, u8::is_ascii_hexdigit);
        let chains: [(&str, RunLengths<'_>, u8); 4] = [
            ("<ID>", &[(8, 8), (4, 4), (4, 4), (4, 4), (12, 12)], b'-'),
            ("<MAC>", &[(2, 2); 6], b':'),
            ("<MAC>", &[(2, 2); 6], b'-'),
            ("<IP>", &[(1, 4); 8], b':'),
        ];
        for (mask, lengths, separator) in chains {
            if let Some(end) = hex((lengths, separator)) {
                return (Some(mask), end);
            }
        }
        if let Some(end) = match_runs(bytes, at, (&[(1, 3); 4], b'.'), u8::is_ascii_digit) {
            return (Some("<IP>"), end);
        }
        if run.len() >= 16 {
            return (Some("<ID>"), end);
        }
        if all(u8::is_ascii_digit) {
            return (Some("<NUM>"), end);
        }
    }
    let is_hex = run.len() > 2 && run.starts_with(b"0x") && run[2..].iter().all(u8::is_ascii_hexdigit);
    (is_hex.then_some("<HEX>"), end)
}

/// Least and most characters of each run of a chain.
type RunLengths<'a> = &'a [(usize, usize)];

/// Returns the end of runs of given lengths with a separator between them.
fn match_runs(
    bytes: &[u8],
    mut at: usize,
    (lengths, separator): (RunLengths<'_>, u8),
    test: fn(&u8) -> bool,
) -> Option<usize> {
    for (number, (least, most)) in lengths.iter().enumerate() {
        if number > 0 {
            if bytes.get(at) != Some(&separator) {
                return None;
            }
            at += 1;
        }
        let end = run_end(bytes, at);
        if !(*least..=*most).contains(&(end - at)) || !bytes[at..end].iter().all(test) {
            return None;
        }
        at = end;
    }
    Some(at)
}

fn run_end(bytes: &[u8], at: usize) -> usize {
    let length = bytes[at..].iter().position(|byte| !byte.is_ascii_alphanumeric());
    length.map_or(bytes.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_addresses_and_ids_are_masked() {
        let cases = [
            ("", ""),
            ("from 10.0.0.1:443 in 1.5s", "from <IP>:<NUM> in <NUM>.5s"),
            ("user alice2 took 17 ms", "user alice2 took <NUM> ms"),
            ("id 123e4567-e89b-12d3-a456-426614174000.", "id <ID>."),
            ("mac 00:1b:44:11:3a:b7 at 0xDEADbeef", "mac <MAC> at <HEX>"),
            ("commit 0123456789abcdef0123 face", "commit <ID> face"),
            ("2001:0db8:85a3:0000:0000:8a2e:0370:7334 up", "<IP> up"),
            ("blk_-16 żółć 7", "blk_-<NUM> żółć <NUM>"),
            ("12:34:56 [x]", "<NUM>:<NUM>:<NUM> [x]"),
        ];
        let mut masked = String::new();
        for (line, expected) in cases {
            mask_line(line, &mut masked);
            assert_eq!(masked, expected);
        }
    }
}
