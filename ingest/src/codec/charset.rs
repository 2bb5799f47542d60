//! Character sets of what is read. What is written is UTF-8.

use std::borrow::Cow;

use crate::Options;

/// A character set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Charset {
    /// Invalid sequences are replaced by U+FFFD.
    #[default]
    Utf8,
    /// As UTF-8, of which bytes from 128 on are replaced.
    Ascii,
    Latin1,
    Latin9,
    Windows1252,
    /// ASCII, and characters for the bytes from 128 on.
    Table(&'static str),
    /// By its mark; without one, with the greater byte first.
    Utf16,
    Utf16Be,
    Utf16Le,
}

/// Names of those whose characters have 16 bits: bodies may have them, lines may not.
const WIDE: [(&str, Charset); 3] =
    [("UTF-16", Charset::Utf16), ("UTF-16BE", Charset::Utf16Be), ("UTF-16LE", Charset::Utf16Le)];

/// Names and what they stand for.
const NAMES: [(&str, Charset); 18] = [
    ("UTF-8", Charset::Utf8),
    ("CP65001", Charset::Utf8),
    ("UTF8", Charset::Utf8),
    ("US-ASCII", Charset::Ascii),
    ("ASCII", Charset::Ascii),
    ("ASCII-8BIT", Charset::Ascii),
    ("BINARY", Charset::Ascii),
    ("ISO-8859-1", Charset::Latin1),
    ("ISO8859-1", Charset::Latin1),
    ("ISO-8859-15", Charset::Latin9),
    ("WINDOWS-1252", Charset::Windows1252),
    ("CP1252", Charset::Windows1252),
    ("ISO-8859-2", Charset::Table(LATIN_2)),
    ("WINDOWS-1250", Charset::Table(WINDOWS_1250)),
    ("CP1250", Charset::Table(WINDOWS_1250)),
    ("WINDOWS-1251", Charset::Table(WINDOWS_1251)),
    ("CP1251", Charset::Table(WINDOWS_1251)),
    ("KOI8-R", Charset::Table(KOI8_R)),
];

/// Characters of Windows-1252 from 0x80 to 0x9f.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž', '\u{fffd}',
    '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}', 'ž', 'Ÿ',
];

/// Characters of ISO-8859-2 from 128 on.
const LATIN_2: &str = "\u{80}\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}\u{89}\u{8a}\u{8b}\u{8c}\u{8d}\u{8e}\u{8f}\u{90}\u{91}\u{92}\u{93}\u{94}\u{95}\u{96}\u{97}\u{98}\u{99}\u{9a}\u{9b}\u{9c}\u{9d}\u{9e}\u{9f}\
    \u{a0}Ą˘Ł¤ĽŚ§¨ŠŞŤŹ\u{ad}ŽŻ°ą˛ł´ľśˇ¸šşťź˝žż\
    ŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ×ŘŮÚŰÜÝŢß\
    ŕáâăäĺćçčéęëěíîďđńňóôőö÷řůúűüýţ˙";
/// Characters of Windows-1250 from 128 on.
const WINDOWS_1250: &str = "€�‚�„…†‡�‰Š‹ŚŤŽŹ�‘’“”•–—�™š›śťžź\
    \u{a0}ˇ˘Ł¤Ą¦§¨©Ş«¬\u{ad}®Ż°±˛ł´µ¶·¸ąş»Ľ˝ľż\
    ŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ×ŘŮÚŰÜÝŢß\
    ŕáâăäĺćçčéęëěíîďđńňóôőö÷řůúűüýţ˙";
/// Characters of Windows-1251 from 128 on.
const WINDOWS_1251: &str = "ЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–—�™љ›њќћџ\
    \u{a0}ЎўЈ¤Ґ¦§Ё©Є«¬\u{ad}®Ї°±Ііґµ¶·ё№є»јЅѕї\
    АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ\
    абвгдежзийклмнопрстуфхцчшщъыьэюя";
/// Characters of KOI8-R from 128 on.
const KOI8_R: &str = "─│┌┐└┘├┤┬┴┼▀▄█▌▐░▒▓⌠■∙√≈≤≥\u{a0}⌡°²·÷\
    ═║╒ё╓╔╕╖╗╘╙╚╛╜╝╞╟╠╡Ё╢╣╤╥╦╧╨╩╪╫╬©\
    юабцдефгхийклмнопярстужвьызшэщчъ\
    ЮАБЦДЕФГХИЙКЛМНОПЯРСТУЖВЬЫЗШЭЩЧЪ";

impl Charset {
    /// The character set that a media type names (`text/plain; charset=ISO-8859-2`), where that is one that is known, and not UTF-8.
    pub(crate) fn of_media_type(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']))
        })?;
        let wide = WIDE.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let charset = wide.map(|(_, charset)| *charset).or_else(|| Self::named(name))?;
        (charset != Self::Utf8).then_some(charset)
    }
}

impl Charset {
    /// Takes the option `charset`.
    pub(super) fn take(options: &mut Options) -> Self {
        let wanted = "UTF-8, US-ASCII, ISO-8859-1, ISO-8859-2, ISO-8859-15, Windows-1250, Windows-1251, Windows-1252 or KOI8-R; others are not supported";
        let charset = options.read("charset", wanted, |setting| {
            let name = setting.as_text()?;
            Self::named(&name)
        });
        charset.unwrap_or_default()
    }

    /// The character set of a name, if it is one that is known.
    fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, charset)| *charset)
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        let each =
            |character: fn(u8) -> char| Cow::Owned(bytes.iter().map(|byte| character(*byte)).collect());
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes),
            Self::Utf16 => Cow::Owned(match bytes {
                [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
                [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
                _ => wide(bytes, u16::from_be_bytes),
            }),
            Self::Utf16Be => Cow::Owned(wide(bytes, u16::from_be_bytes)),
            Self::Utf16Le => Cow::Owned(wide(bytes, u16::from_le_bytes)),
            _ if bytes.is_ascii() => String::from_utf8_lossy(bytes),
            Self::Ascii => each(|byte| if byte.is_ascii() { char::from(byte) } else { '\u{fffd}' }),
            Self::Latin1 => each(char::from),
            Self::Latin9 => each(|byte| match byte {
                0xa4 => '€',
                0xa6 => 'Š',
                0xa8 => 'š',
                0xb4 => 'Ž',
                0xb8 => 'ž',
                0xbc => 'Œ',
                0xbd => 'œ',
                0xbe => 'Ÿ',
                other => char::from(other),
            }),
            Self::Table(characters) => {
                let characters: Vec<char> = characters.chars().collect();
                let character = |byte: &u8| match byte.checked_sub(128) {
                    Some(at) => characters.get(usize::from(at)).copied().unwrap_or('\u{fffd}'),
                    None => char::from(*byte),
                };
                Cow::Owned(bytes.iter().map(character).collect())
            }
            Self::Windows1252 => each(|byte| match byte {
                0x80..=0x9f => WINDOWS_1252.get(usize::from(byte - 0x80)).copied().unwrap_or('\u{fffd}'),
                other => char::from(other),
            }),
        }
    }
}

/// Reads units of 16 bits; invalid ones are replaced.
fn wide(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, rest) = bytes.as_chunks::<2>();
    let characters = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    let mut text: String =
        characters.map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if !rest.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Charset;

    #[test]
    fn bodies_are_read_by_the_character_set_of_their_media_type() {
        for (media_type, body, text) in [
            ("text/plain", &b"a\xe9"[..], None),
            ("text/plain; charset=utf-8", b"a", None),
            ("text/plain; charset=none-such", b"a", None),
            ("text/plain; charset=ISO-8859-1", b"a\xe9\x80", Some("a\u{e9}\u{80}")),
            ("text/plain;format=flowed;Charset=\"windows-1252\"", b"\x80", Some("\u{20ac}")),
            ("text/plain; charset=iso-8859-2", b"\xb1", Some("\u{105}")),
            ("text/plain; charset=windows-1250", b"\x9c\xff", Some("\u{15b}\u{2d9}")),
            ("text/plain; charset=windows-1251", b"\xe0", Some("\u{430}")),
            ("text/plain; charset=KOI8-R", b"\xc1", Some("\u{430}")),
            ("application/json; charset=UTF-16", b"\0a\x01\x05", Some("a\u{105}")),
            ("application/json; charset=UTF-16", b"\xff\xfea\0", Some("a")),
            ("text/plain; charset=UTF-16LE", b"a\0\x3d\xd8\0\xdeb", Some("a\u{1f600}\u{fffd}")),
        ] {
            let decoded = Charset::of_media_type(media_type).map(|charset| charset.decode(body));
            assert_eq!(decoded.as_deref(), text, "{media_type}");
        }
        for table in [super::LATIN_2, super::WINDOWS_1250, super::WINDOWS_1251, super::KOI8_R] {
            assert_eq!(table.chars().count(), 128);
        }
    }
}
