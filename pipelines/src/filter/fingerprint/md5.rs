//! MD5 (RFC 1321) and its HMAC (RFC 2104): for fingerprints that others made so, not for security.

/// Bytes of a block.
const BLOCK: usize = 64;
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of a message.
pub(super) fn digest(message: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(BLOCK), 0);
    if padded.len() - message.len() < 9 {
        padded.resize(padded.len() + BLOCK, 0);
    }
    padded.truncate(padded.len() - 8);
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in padded.chunks_exact(BLOCK) {
        state = step(state, block);
    }
    let mut out = [0; 16];
    for (four, word) in out.chunks_exact_mut(4).zip(state) {
        four.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// The authentication code of a message.
pub(super) fn hmac(key: &[u8], message: &[u8]) -> [u8; 16] {
    let mut block = if key.len() > BLOCK { digest(key).to_vec() } else { key.to_vec() };
    block.resize(BLOCK, 0);
    let padded = |pad: u8| block.iter().map(move |byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = digest(&[padded(0x36).as_slice(), message].concat());
    digest(&[padded(0x5c).as_slice(), &inner].concat())
}

fn step(state: [u32; 4], block: &[u8]) -> [u32; 4] {
    let mut words = [0_u32; 16];
    for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = four.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d] = state;
    for round in 0..64_usize {
        let (mix, at) = match round / 16 {
            0 => ((b & c) | (!b & d), round),
            1 => ((d & b) | (!d & c), 5 * round + 1),
            2 => (b ^ c ^ d, 3 * round + 5),
            _ => (c ^ (b | !d), 7 * round),
        };
        // The table is defined as these values of the sine.
        let constant = (((round + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let word = words.get(at % 16).copied().unwrap_or_default();
        let shift =
            SHIFTS.get(round / 16).and_then(|shifts| shifts.get(round % 4)).copied().unwrap_or_default();
        let sum = a.wrapping_add(mix).wrapping_add(constant).wrapping_add(word);
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(shift)));
    }
    let mut out = state;
    for (word, more) in out.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{digest, hmac};

    fn hex(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        for (message, expected) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(digest(message.as_bytes())), expected, "{message}");
        }
        assert_eq!(hex(hmac(b"Jefe", b"what do ya want for nothing?")), "750c783e6ab0b503eaa86e310a5db738");
        assert_eq!(
            hex(hmac(&[0xaa; 80], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"
        );
    }
}
