//! Date patterns of letters (`dd/MMM/yyyy:HH:mm:ss Z`), compiled to items that read and write.
//!
//! The letters and their bounds are those of `java.time.format.DateTimeFormatterBuilder`.

use super::field::Field;
use super::named;

/// Deepest nesting of optional sections.
const MAX_OPTIONAL_DEPTH: usize = 16;
/// Most letters of one kind in a row, and the greatest width that `p` pads to.
const MAX_LETTERS: usize = 19;

/// Signs that a number may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A minus.
    Normal,
    /// A minus, and a plus where the number has more digits than its least width.
    ExceedsPad,
    Never,
}

/// Digits that a number may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digits {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) sign: Sign,
    /// Digits that numbers of fixed width behind this one take.
    pub(super) reserved: usize,
}

impl Digits {
    pub(super) const fn new(min: usize, max: usize, sign: Sign) -> Self {
        Self { min, max, sign, reserved: 0 }
    }

    pub(super) const fn exact(width: usize) -> Self {
        Self::new(width, width, Sign::Never)
    }

    /// Any number of digits.
    pub(super) const fn any() -> Self {
        Self::new(1, MAX_LETTERS, Sign::Normal)
    }

    const fn year(min: usize) -> Self {
        Self::new(min, MAX_LETTERS, if min < 4 { Sign::Normal } else { Sign::ExceedsPad })
    }

    pub(super) fn is_fixed(self) -> bool {
        self.min == self.max && self.sign == Sign::Never
    }
}

/// Width of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Short,
    Full,
    Narrow,
}

/// Presence of a part of an offset. An optional part is written unless it is zero, and may be missing where one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetPart {
    Never,
    Optional,
    Always,
}

/// Layout of an offset such as `+02:00`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OffsetLayout {
    pub(super) colon: bool,
    pub(super) minutes: OffsetPart,
    pub(super) seconds: OffsetPart,
    /// Text of UTC.
    pub(super) zero: &'static str,
}

impl OffsetLayout {
    /// `+02`, `+0230`
    pub(super) const BASIC: Self =
        Self { colon: false, minutes: OffsetPart::Optional, seconds: OffsetPart::Never, zero: "Z" };
    /// `+02:00`
    pub(super) const EXTENDED: Self =
        Self { colon: true, minutes: OffsetPart::Always, seconds: OffsetPart::Never, zero: "Z" };
    /// `+02:00`, `+02:00:30`
    pub(super) const ID: Self =
        Self { colon: true, minutes: OffsetPart::Always, seconds: OffsetPart::Optional, zero: "Z" };

    /// Layouts of one to five letters `X` and `x`.
    fn from_letters(count: usize, zero: &'static str) -> Self {
        Self {
            colon: matches!(count, 3 | 5),
            minutes: if count == 1 { OffsetPart::Optional } else { OffsetPart::Always },
            seconds: if count > 3 { OffsetPart::Optional } else { OffsetPart::Never },
            zero,
        }
    }
}

/// One element of a compiled pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Literal(Box<str>),
    Number {
        field: Field,
        digits: Digits,
    },
    /// The last two digits of a year from 2000 to 2099.
    TwoDigitYear {
        field: Field,
        digits: Digits,
    },
    /// A fraction of a second of so many digits, behind a dot where `point`.
    Fraction {
        min: usize,
        max: usize,
        point: bool,
    },
    Name {
        field: Field,
        width: Width,
    },
    Offset(OffsetLayout),
    /// `GMT`, `GMT+2`, or `GMT+02:00` in full.
    LocalizedOffset {
        full: bool,
    },
    /// An id such as `Europe/Oslo`, `Z` or `+02:00`.
    ZoneId,
    /// A name such as `CET`, or an id.
    ZoneName,
    /// The first of these that reads the rest of the text; the first one writes.
    Either(Vec<Item>),
    /// Blanks up to a width before an item.
    Pad(usize, Box<Item>),
    Optional(Vec<Item>),
}

/// Letters that a pattern is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterSet {
    /// Those of `java.time`, for everybody.
    Java,
    /// Those of [`named`].
    Named,
}

/// Compiles a pattern.
pub(super) fn compile(pattern: &str, letters: LetterSet) -> Result<Vec<Item>, String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut compiler = Compiler { chars: &chars, at: 0, letters };
    let items = compiler.section(0)?;
    if compiler.at < chars.len() {
        return Err("Pattern invalid as it contains ] without previous [".to_owned());
    }
    Ok(items)
}

struct Compiler<'p> {
    chars: &'p [char],
    at: usize,
    letters: LetterSet,
}

impl Compiler<'_> {
    fn section(&mut self, depth: usize) -> Result<Vec<Item>, String> {
        if depth > MAX_OPTIONAL_DEPTH {
            return Err(format!("more than {MAX_OPTIONAL_DEPTH} nested optional sections"));
        }
        let mut items = Items::default();
        while let Some(&c) = self.chars.get(self.at) {
            match c {
                '\'' => self.quoted(&mut items)?,
                '[' => {
                    self.at += 1;
                    let inner = self.section(depth + 1)?;
                    if self.chars.get(self.at) == Some(&']') {
                        self.at += 1;
                    }
                    items.push(Item::Optional(inner));
                }
                ']' if depth > 0 => break,
                ']' => return Err("Pattern invalid as it contains ] without previous [".to_owned()),
                '{' | '}' | '#' => return Err(format!("Pattern includes reserved character: '{c}'")),
                'p' if self.letters == LetterSet::Java => self.padded(&mut items)?,
                c if c.is_ascii_alphabetic() => {
                    let count = self.run(c)?;
                    items.push(self.letter(c, count)?);
                }
                other => {
                    self.at += 1;
                    items.literal(other);
                }
            }
        }
        Ok(items.list)
    }

    fn letter(&self, c: char, count: usize) -> Result<Item, String> {
        match self.letters {
            LetterSet::Java => letter(c, count),
            LetterSet::Named => named::letter(c, count).ok_or_else(|| format!("Unknown pattern letter: {c}")),
        }
    }

    /// Counts the letters of one kind from here on.
    fn run(&mut self, c: char) -> Result<usize, String> {
        let count = self.chars[self.at..].iter().take_while(|other| **other == c).count();
        self.at += count;
        if count > MAX_LETTERS { Err(format!("Too many pattern letters: {c}")) } else { Ok(count) }
    }

    fn quoted(&mut self, items: &mut Items) -> Result<(), String> {
        self.at += 1;
        if self.chars.get(self.at) == Some(&'\'') {
            items.literal('\'');
            self.at += 1;
            return Ok(());
        }
        loop {
            match self.chars.get(self.at) {
                None => return Err("Pattern ends with an incomplete string literal".to_owned()),
                Some('\'') if self.chars.get(self.at + 1) == Some(&'\'') => {
                    items.literal('\'');
                    self.at += 2;
                }
                Some('\'') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(&other) => {
                    items.literal(other);
                    self.at += 1;
                }
            }
        }
    }

    fn padded(&mut self, items: &mut Items) -> Result<(), String> {
        let width = self.run('p')?;
        match self.chars.get(self.at) {
            Some(&c) if c.is_ascii_alphabetic() => {
                let count = self.run(c)?;
                items.push(Item::Pad(width, Box::new(self.letter(c, count)?)));
                Ok(())
            }
            _ => {
                let pattern: String = self.chars.iter().collect();
                Err(format!("Pad letter 'p' must be followed by valid pad pattern: {pattern}"))
            }
        }
    }
}

/// Items of a section. Numbers of fixed width that follow a number at once take their digits from its end.
#[derive(Default)]
struct Items {
    list: Vec<Item>,
    /// The number at the head of the adjacent ones.
    head: Option<usize>,
}

impl Items {
    fn literal(&mut self, c: char) {
        self.head = None;
        if let Some(Item::Literal(text)) = self.list.last_mut() {
            *text = format!("{text}{c}").into();
        } else {
            self.list.push(Item::Literal(c.to_string().into()));
        }
    }

    fn push(&mut self, item: Item) {
        let width = match &item {
            Item::Number { digits, .. } | Item::TwoDigitYear { digits, .. } => {
                Some((digits.is_fixed(), digits.max))
            }
            Item::Fraction { min, max, point: false } if min == max => Some((true, *max)),
            _ => None,
        };
        let Some((fixed, width)) = width else {
            self.head = None;
            self.list.push(item);
            return;
        };
        let at = self.list.len();
        if fixed && let Some(head) = self.head {
            if let Some(Item::Number { digits, .. } | Item::TwoDigitYear { digits, .. }) =
                self.list.get_mut(head)
                && !digits.is_fixed()
            {
                digits.reserved += width;
            }
        } else {
            self.head = Some(at);
        }
        self.list.push(item);
    }
}

/// Compiles `count` letters of `java.time`.
fn letter(c: char, count: usize) -> Result<Item, String> {
    let too_many = || Err(format!("Too many pattern letters: {c}"));
    let number = |field, digits| Ok(Item::Number { field, digits });
    let short = |field: Field, widest: usize| match count {
        1 => number(field, Digits::any()),
        _ if count <= widest => number(field, Digits::exact(count)),
        _ => too_many(),
    };
    let name = |field: Field| {
        let width = match count {
            1..=3 => Width::Short,
            4 => Width::Full,
            5 => Width::Narrow,
            _ => return too_many(),
        };
        Ok(Item::Name { field, width })
    };
    let wrong_count = |which: &str| Err(format!("Pattern letter count must be {which}: {c}"));
    match c {
        'G' => name(Field::Era),
        'u' | 'y' | 'Y' => {
            let field = match c {
                'u' => Field::Year,
                'y' => Field::YearOfEra,
                _ => Field::WeekYear,
            };
            match count {
                2 => Ok(Item::TwoDigitYear { field, digits: Digits::exact(2) }),
                _ => number(field, Digits::year(count)),
            }
        }
        'M' | 'L' if count <= 2 => short(Field::Month, 2),
        'M' | 'L' => name(Field::Month),
        'Q' | 'q' if count <= 2 => short(Field::Quarter, 2),
        'q' if count <= 5 => number(Field::Quarter, Digits::any()),
        'Q' | 'q' => name(Field::Quarter),
        'c' if count == 2 => Err("Invalid pattern \"cc\"".to_owned()),
        'e' | 'c' if count <= 2 => number(Field::Weekday, Digits::exact(count)),
        'E' | 'e' | 'c' => name(Field::Weekday),
        'D' => match count {
            1 => number(Field::DayOfYear, Digits::any()),
            2 | 3 => number(Field::DayOfYear, Digits::new(count, 3, Sign::Never)),
            _ => too_many(),
        },
        'd' => short(Field::Day, 2),
        'F' => short(Field::AlignedWeekday, 1),
        'g' => number(Field::ModifiedJulianDay, Digits::new(count, MAX_LETTERS, Sign::Normal)),
        'w' if count <= 2 => number(Field::Week, Digits::new(count, 2, Sign::Never)),
        'W' if count == 1 => number(Field::WeekOfMonth, Digits::exact(1)),
        'a' if count == 1 => name(Field::HalfDay),
        'B' => match count {
            1 | 4 | 5 => name(Field::HalfDay),
            _ => Err(format!("Wrong number of pattern letters: {c}")),
        },
        'H' => short(Field::Hour, 2),
        'k' => short(Field::ClockHour, 2),
        'K' => short(Field::HourOfHalfDay, 2),
        'h' => short(Field::ClockHourOfHalfDay, 2),
        'm' => short(Field::Minute, 2),
        's' => short(Field::Second, 2),
        'S' if count <= 9 => Ok(Item::Fraction { min: count, max: count, point: false }),
        'S' => Err(format!("Minimum width must be from 0 to 9 inclusive but was {count}")),
        'n' => number(Field::Nano, Digits::new(count, MAX_LETTERS, Sign::Never)),
        'A' => number(Field::MilliOfDay, Digits::new(count, MAX_LETTERS, Sign::Never)),
        'N' => number(Field::NanoOfDay, Digits::new(count, MAX_LETTERS, Sign::Never)),
        'X' if count <= 5 => Ok(Item::Offset(OffsetLayout::from_letters(count, "Z"))),
        'x' if count <= 5 => {
            let zero = match count {
                1 => "+00",
                3 | 5 => "+00:00",
                _ => "+0000",
            };
            Ok(Item::Offset(OffsetLayout::from_letters(count, zero)))
        }
        'Z' if count <= 3 => Ok(Item::Offset(OffsetLayout::from_letters(2, "+0000"))),
        'Z' if count == 4 => Ok(Item::LocalizedOffset { full: true }),
        'Z' if count == 5 => Ok(Item::Offset(OffsetLayout::ID)),
        'O' => match count {
            1 => Ok(Item::LocalizedOffset { full: false }),
            4 => Ok(Item::LocalizedOffset { full: true }),
            _ => wrong_count("1 or 4"),
        },
        'V' if count == 2 => Ok(Item::ZoneId),
        'V' => wrong_count("2"),
        'z' if count <= 4 => Ok(Item::ZoneName),
        'v' if count == 1 || count == 4 => Ok(Item::ZoneName),
        'v' => Err(format!("Wrong number of pattern letters: {c}")),
        'w' | 'W' | 'a' | 'X' | 'x' | 'Z' | 'z' => too_many(),
        other => Err(format!("Unknown pattern letter: {other}")),
    }
}
