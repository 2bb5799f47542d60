//! The normalization of Indian scripts: letters that are written as several become the one that they look
//! like (Unicode 5.2, chapter 9).

/// Sequences and what stands for them, by script; of two that fit, the first counts.
#[rustfmt::skip]
const COMPOSED: [(&str, char); 110] = [
    ("\u{905}\u{93e}\u{945}", '\u{911}'), ("\u{905}\u{93e}\u{946}", '\u{912}'),
    ("\u{905}\u{93e}\u{947}", '\u{913}'), ("\u{905}\u{93e}\u{948}", '\u{914}'),
    ("\u{905}\u{93e}", '\u{906}'), ("\u{905}\u{945}", '\u{972}'), ("\u{905}\u{946}", '\u{904}'),
    ("\u{905}\u{949}", '\u{911}'), ("\u{905}\u{94a}", '\u{912}'), ("\u{905}\u{94b}", '\u{913}'),
    ("\u{905}\u{94c}", '\u{914}'), ("\u{906}\u{945}", '\u{911}'), ("\u{906}\u{946}", '\u{912}'),
    ("\u{906}\u{947}", '\u{913}'), ("\u{906}\u{948}", '\u{914}'), ("\u{909}\u{941}", '\u{90a}'),
    ("\u{90f}\u{945}", '\u{90d}'), ("\u{90f}\u{946}", '\u{90e}'), ("\u{90f}\u{947}", '\u{910}'),
    ("\u{915}\u{93c}", '\u{958}'), ("\u{916}\u{93c}", '\u{959}'), ("\u{917}\u{93c}", '\u{95a}'),
    ("\u{91c}\u{93c}", '\u{95b}'), ("\u{921}\u{93c}", '\u{95c}'), ("\u{922}\u{93c}", '\u{95d}'),
    ("\u{928}\u{93c}", '\u{929}'), ("\u{92b}\u{93c}", '\u{95e}'), ("\u{92f}\u{93c}", '\u{95f}'),
    ("\u{930}\u{93c}", '\u{931}'), ("\u{933}\u{93c}", '\u{934}'), ("\u{93e}\u{945}", '\u{949}'),
    ("\u{93e}\u{946}", '\u{94a}'), ("\u{93e}\u{947}", '\u{94b}'), ("\u{93e}\u{948}", '\u{94c}'),
    ("\u{985}\u{9be}", '\u{986}'), ("\u{9a1}\u{9bc}", '\u{9dc}'), ("\u{9a2}\u{9bc}", '\u{9dd}'),
    ("\u{9a4}\u{9cd}\u{200d}", '\u{9ce}'), ("\u{9af}\u{9bc}", '\u{9df}'), ("\u{9c7}\u{9be}", '\u{9cb}'),
    ("\u{9c7}\u{9d7}", '\u{9cc}'), ("\u{a05}\u{a3e}", '\u{a06}'), ("\u{a05}\u{a48}", '\u{a10}'),
    ("\u{a05}\u{a4c}", '\u{a14}'), ("\u{a16}\u{a3c}", '\u{a59}'), ("\u{a17}\u{a3c}", '\u{a5a}'),
    ("\u{a1c}\u{a3c}", '\u{a5b}'), ("\u{a2b}\u{a3c}", '\u{a5e}'), ("\u{a41}\u{a41}", '\u{a42}'),
    ("\u{a72}\u{a3f}", '\u{a07}'), ("\u{a72}\u{a40}", '\u{a08}'), ("\u{a72}\u{a47}", '\u{a0f}'),
    ("\u{a73}\u{a41}", '\u{a09}'), ("\u{a73}\u{a42}", '\u{a0a}'), ("\u{a73}\u{a4b}", '\u{a13}'),
    ("\u{a85}\u{abe}\u{ac5}", '\u{a91}'), ("\u{a85}\u{abe}\u{ac7}", '\u{a93}'),
    ("\u{a85}\u{abe}\u{ac8}", '\u{a94}'), ("\u{a85}\u{abe}", '\u{a86}'), ("\u{a85}\u{ac5}", '\u{a8d}'),
    ("\u{a85}\u{ac7}", '\u{a8f}'), ("\u{a85}\u{ac8}", '\u{a90}'), ("\u{a85}\u{ac9}", '\u{a91}'),
    ("\u{a85}\u{acb}", '\u{a93}'), ("\u{a85}\u{acc}", '\u{a94}'), ("\u{a86}\u{ac5}", '\u{a91}'),
    ("\u{a86}\u{ac7}", '\u{a93}'), ("\u{a86}\u{ac8}", '\u{a94}'), ("\u{abe}\u{ac5}", '\u{ac9}'),
    ("\u{abe}\u{ac7}", '\u{acb}'), ("\u{abe}\u{ac8}", '\u{acc}'), ("\u{b05}\u{b3e}", '\u{b06}'),
    ("\u{b0f}\u{b57}", '\u{b10}'), ("\u{b13}\u{b57}", '\u{b14}'), ("\u{b21}\u{b3c}", '\u{b5c}'),
    ("\u{b22}\u{b3c}", '\u{b5d}'), ("\u{b47}\u{b3e}", '\u{b4b}'), ("\u{b47}\u{b57}", '\u{b4c}'),
    ("\u{b89}\u{bd7}", '\u{b8a}'), ("\u{b92}\u{bd7}", '\u{b94}'), ("\u{bc6}\u{bbe}", '\u{bca}'),
    ("\u{bc6}\u{bd7}", '\u{bcc}'), ("\u{bc7}\u{bbe}", '\u{bcb}'), ("\u{c12}\u{c4c}", '\u{c14}'),
    ("\u{c12}\u{c55}", '\u{c13}'), ("\u{c2c}\u{c41}\u{c41}", '\u{c0b}'), ("\u{c35}\u{c41}", '\u{c2e}'),
    ("\u{c46}\u{c55}", '\u{c47}'), ("\u{c46}\u{c56}", '\u{c48}'), ("\u{c92}\u{ccc}", '\u{c94}'),
    ("\u{cbf}\u{cd5}", '\u{cc0}'), ("\u{cc6}\u{cc2}\u{cd5}", '\u{ccb}'), ("\u{cc6}\u{cc2}", '\u{cca}'),
    ("\u{cc6}\u{cd5}", '\u{cc7}'), ("\u{cc6}\u{cd6}", '\u{cc8}'), ("\u{cca}\u{cd5}", '\u{ccb}'),
    ("\u{d07}\u{d57}", '\u{d08}'), ("\u{d09}\u{d57}", '\u{d0a}'), ("\u{d0e}\u{d46}", '\u{d10}'),
    ("\u{d12}\u{d3e}", '\u{d13}'), ("\u{d12}\u{d57}", '\u{d14}'), ("\u{d23}\u{d4d}\u{200d}", '\u{d7a}'),
    ("\u{d28}\u{d4d}\u{200d}", '\u{d7b}'), ("\u{d30}\u{d4d}\u{200d}", '\u{d7c}'),
    ("\u{d32}\u{d4d}\u{200d}", '\u{d7d}'), ("\u{d33}\u{d4d}\u{200d}", '\u{d7e}'),
    ("\u{d46}\u{d3e}", '\u{d4a}'), ("\u{d46}\u{d46}", '\u{d48}'), ("\u{d46}\u{d57}", '\u{d4c}'),
    ("\u{d47}\u{d3e}", '\u{d4b}'),
];

pub(super) fn normalize(word: &mut Vec<char>) {
    if word.iter().all(|c| !('\u{900}'..='\u{d7f}').contains(c)) {
        return;
    }
    let mut out = Vec::with_capacity(word.len());
    let mut at = 0;
    while at < word.len() {
        let rest = &word[at..];
        let found = COMPOSED
            .iter()
            .find(|(parts, _)| parts.chars().enumerate().all(|(nth, c)| rest.get(nth) == Some(&c)));
        match found {
            Some((parts, composed)) => {
                out.push(*composed);
                at += parts.chars().count();
            }
            None => {
                out.push(word[at]);
                at += 1;
            }
        }
    }
    *word = out;
}
