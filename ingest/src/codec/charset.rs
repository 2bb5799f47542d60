//! Character sets of what is read. What is written is UTF-8.
//!
//! [`wide`] has those of 16 and 32 bits, [`dos`] the tables of DOS; the others are of the encoding standard.

mod dos;
mod wide;

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use self::wide::Transcoder;
pub use self::wide::WideCharset;
use super::Decoder;
use crate::Options;

/// A character set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// Invalid sequences are replaced by U+FFFD.
    #[default]
    Utf8,
    /// As UTF-8, of which bytes from 128 on are replaced.
    Ascii,
    /// ISO 8859-1, with the control characters that other standards replace.
    Latin1,
    /// One of the encoding standard. Invalid sequences are replaced by U+FFFD.
    Standard(&'static Encoding),
    /// One of DOS, with its characters from 128 on. U+FFFD stands where it has none.
    Dos(&'static [char; 128]),
    /// One whose units have 16 or 32 bits.
    Wide(WideCharset),
}

/// Names whose meaning is not that of the encoding standard.
const NAMES: [(&str, Charset); 9] = [
    ("UTF-8", Charset::Utf8),
    ("CP65001", Charset::Utf8),
    ("UTF8", Charset::Utf8),
    ("US-ASCII", Charset::Ascii),
    ("ASCII", Charset::Ascii),
    ("ASCII-8BIT", Charset::Ascii),
    ("BINARY", Charset::Ascii),
    ("ISO-8859-1", Charset::Latin1),
    ("ISO8859-1", Charset::Latin1),
];

/// Names of Ruby that the encoding standard lacks.
const ALIASES: [(&str, &str); 15] = [
    ("CP932", "Shift_JIS"),
    ("CSWINDOWS31J", "Shift_JIS"),
    ("WINDOWS-31J", "Shift_JIS"),
    ("SJIS", "Shift_JIS"),
    ("EUCJP", "EUC-JP"),
    ("CP51932", "EUC-JP"),
    ("EUCKR", "EUC-KR"),
    ("CP949", "EUC-KR"),
    ("CP936", "GBK"),
    ("EUC-CN", "GBK"),
    ("CP950", "Big5"),
    ("CP874", "windows-874"),
    ("CP878", "KOI8-R"),
    ("MACCYRILLIC", "x-mac-cyrillic"),
    ("MACROMAN", "macintosh"),
];

impl Charset {
    /// The character set that a media type names (`text/plain; charset=ISO-8859-2`), where that is one that is known, and not UTF-8.
    pub(crate) fn of_media_type(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']))
        })?;
        let charset = Self::named(name)?;
        (charset != Self::Utf8).then_some(charset)
    }
}

impl Charset {
    /// Takes the option `charset`.
    pub fn take(options: &mut Options) -> Self {
        let wanted =
            "a character set such as UTF-8, UTF-16LE, ISO-8859-1, Windows-1252, CP850, Shift_JIS or GBK";
        let charset = options.read("charset", wanted, |setting| {
            let name = setting.as_text()?;
            Self::named(&name)
        });
        charset.unwrap_or_default()
    }

    /// The character set of a name, if it is one that is known.
    fn named(name: &str) -> Option<Self> {
        let own = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((_, charset)) = own {
            return Some(*charset);
        }
        if let Some(upper) = dos::find(name) {
            return Some(Self::Dos(upper));
        }
        if let Some(wide) = WideCharset::find(name) {
            return Some(Self::Wide(wide));
        }
        let alias =
            ALIASES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, label)| *label);
        let encoding = Encoding::for_label_no_replacement(alias.unwrap_or(name).as_bytes())?;
        // Other names of these are of the encoding standard only.
        let is_wide = encoding == UTF_16BE || encoding == UTF_16LE;
        (!is_wide).then_some(if encoding == UTF_8 { Self::Utf8 } else { Self::Standard(encoding) })
    }

    /// Decodes bytes.
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        let each =
            |character: fn(u8) -> char| Cow::Owned(bytes.iter().map(|byte| character(*byte)).collect());
        match self {
            Self::Utf8 => utf8(bytes),
            Self::Wide(wide) => Cow::Owned(wide.decode(bytes)),
            Self::Standard(encoding) => encoding.decode_without_bom_handling(bytes).0,
            Self::Ascii | Self::Latin1 | Self::Dos(_) if bytes.is_ascii() => utf8(bytes),
            Self::Ascii => each(|byte| if byte.is_ascii() { char::from(byte) } else { '\u{fffd}' }),
            Self::Latin1 => each(char::from),
            Self::Dos(upper) => Cow::Owned(bytes.iter().map(|byte| dos::character(upper, *byte)).collect()),
        }
    }

    /// Returns the set where its units have several bytes.
    pub(crate) fn as_wide(self) -> Option<WideCharset> {
        match self {
            Self::Wide(wide) => Some(wide),
            _ => None,
        }
    }

    /// Makes the decoder of a stream. It is given the character set in which the stream reaches it.
    pub(super) fn stream<D: Decoder + 'static>(self, decoder: impl FnOnce(Self) -> D) -> Box<dyn Decoder> {
        match self {
            Self::Wide(wide) => Box::new(Transcoder::new(wide, decoder(Self::Utf8))),
            narrow => Box::new(decoder(narrow)),
        }
    }
}

/// Reads UTF-8. What is valid is checked many bytes at a time, which the replacement of what is not does byte by byte.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
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
        for (name, bytes, text) in [
            ("Windows-31J", &b"\x83\x65\x83\x58\x83\x67"[..], "テスト"),
            ("GBK", b"\xd6\xd0", "中"),
            ("CP949", b"\xc7\xd1", "한"),
            ("big5", b"\xa4\xa4", "中"),
            ("ISO-8859-15", b"\xa4", "€"),
            ("CP1252", b"\x80", "€"),
            ("ISO-8859-1", b"\x80", "\u{80}"),
            ("CP437", b"a\x80\xe1\xff", "aÇß\u{a0}"),
            ("ibm850", b"\x9b\xd5", "øı"),
            ("CP852", b"\xa5", "ą"),
            ("CP858", b"\xd5", "€"),
            ("CP857", b"\xd5", "\u{fffd}"),
            ("UTF-16LE", b"\x05\x01", "ą"),
            ("UTF-32BE", b"\0\x01\xf6\0", "\u{1f600}"),
        ] {
            let decoded = Charset::named(name).map(|charset| charset.decode(bytes));
            assert_eq!(decoded.as_deref(), Some(text), "{name}");
        }
        for unknown in ["CP1", "IBM", "437", "UTF-64", "none", ""] {
            assert_eq!(Charset::named(unknown), None, "{unknown}");
        }
    }
}
