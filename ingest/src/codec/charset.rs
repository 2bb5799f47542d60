//! Character sets of what is read. What is written is UTF-8.

use std::borrow::Cow;

use crate::Options;

/// A character set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Charset {
    /// What is none is replaced by U+FFFD.
    #[default]
    Utf8,
    /// As UTF-8, of which bytes from 128 on are replaced.
    Ascii,
    Latin1,
    Latin9,
    Windows1252,
}

/// Names and what they stand for.
const NAMES: [(&str, Charset); 12] = [
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
];

/// Characters of Windows-1252 from 0x80 to 0x9f.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž', '\u{fffd}',
    '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}', 'ž', 'Ÿ',
];

impl Charset {
    /// Takes the option `charset`.
    pub(super) fn take(options: &mut Options) -> Self {
        let wanted = "UTF-8, US-ASCII, ISO-8859-1, ISO-8859-15 or Windows-1252; others are not supported";
        let charset = options.read("charset", wanted, |setting| {
            let name = setting.as_text()?;
            NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)).map(|(_, charset)| *charset)
        });
        charset.unwrap_or_default()
    }

    pub(super) fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        let each =
            |character: fn(u8) -> char| Cow::Owned(bytes.iter().map(|byte| character(*byte)).collect());
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes),
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
            Self::Windows1252 => each(|byte| match byte {
                0x80..=0x9f => WINDOWS_1252.get(usize::from(byte - 0x80)).copied().unwrap_or('\u{fffd}'),
                other => char::from(other),
            }),
        }
    }
}
