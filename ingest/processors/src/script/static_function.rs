//! Functions and constants of classes.

/// A function of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaticFunction {
    ProcessorBytes,
    ProcessorLowercase,
    ProcessorUppercase,
    ProcessorJson,
    ProcessorUrlDecode,
    ParseInt,
    ParseDouble,
    ParseBoolean,
    TextValueOf,
    TextJoin,
    Abs,
    Max,
    Min,
    Floor,
    Ceil,
    Round,
    Pow,
    Sqrt,
    Log,
    Log10,
    Pi,
    Equals,
    Millis,
    CharacterDigit,
    IsDigit,
    IsLetter,
    IsLetterOrDigit,
    IsUpperCase,
    IsLowerCase,
    IsWhitespace,
    ToLowerCase,
    ToUpperCase,
    AsList,
    StreamOf,
    ToList,
    ToSet,
    ToMap,
    Joining,
    Format,
    ParseTime,
    InstantOf,
    OfEpochMilli,
    OfEpochSecond,
    Utc,
    DurationBetween,
    Nanos,
    Micros,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
}

/// Classes with their functions and constants.
const STATIC: [(&str, &str, StaticFunction); 67] = [
    ("Processors", "bytes", StaticFunction::ProcessorBytes),
    ("Processors", "lowercase", StaticFunction::ProcessorLowercase),
    ("Processors", "uppercase", StaticFunction::ProcessorUppercase),
    ("Processors", "json", StaticFunction::ProcessorJson),
    ("Processors", "urlDecode", StaticFunction::ProcessorUrlDecode),
    ("Integer", "parseInt", StaticFunction::ParseInt),
    ("Integer", "valueOf", StaticFunction::ParseInt),
    ("Long", "parseLong", StaticFunction::ParseInt),
    ("Long", "valueOf", StaticFunction::ParseInt),
    ("Double", "parseDouble", StaticFunction::ParseDouble),
    ("Double", "valueOf", StaticFunction::ParseDouble),
    ("Float", "parseFloat", StaticFunction::ParseDouble),
    ("Boolean", "parseBoolean", StaticFunction::ParseBoolean),
    ("String", "valueOf", StaticFunction::TextValueOf),
    ("Integer", "toString", StaticFunction::TextValueOf),
    ("Long", "toString", StaticFunction::TextValueOf),
    ("String", "join", StaticFunction::TextJoin),
    ("Math", "abs", StaticFunction::Abs),
    ("Math", "max", StaticFunction::Max),
    ("Math", "min", StaticFunction::Min),
    ("Math", "floor", StaticFunction::Floor),
    ("Math", "ceil", StaticFunction::Ceil),
    ("Math", "round", StaticFunction::Round),
    ("Math", "pow", StaticFunction::Pow),
    ("Math", "sqrt", StaticFunction::Sqrt),
    ("Math", "log", StaticFunction::Log),
    ("Math", "log10", StaticFunction::Log10),
    ("Math", "PI", StaticFunction::Pi),
    ("Objects", "equals", StaticFunction::Equals),
    ("System", "currentTimeMillis", StaticFunction::Millis),
    ("Integer", "parseUnsignedInt", StaticFunction::ParseInt),
    ("Long", "parseUnsignedLong", StaticFunction::ParseInt),
    ("Character", "digit", StaticFunction::CharacterDigit),
    ("Character", "isDigit", StaticFunction::IsDigit),
    ("Character", "isLetter", StaticFunction::IsLetter),
    ("Character", "isLetterOrDigit", StaticFunction::IsLetterOrDigit),
    ("Character", "isUpperCase", StaticFunction::IsUpperCase),
    ("Character", "isLowerCase", StaticFunction::IsLowerCase),
    ("Character", "isWhitespace", StaticFunction::IsWhitespace),
    ("Character", "toLowerCase", StaticFunction::ToLowerCase),
    ("Character", "toUpperCase", StaticFunction::ToUpperCase),
    ("Character", "toString", StaticFunction::TextValueOf),
    ("Double", "toString", StaticFunction::TextValueOf),
    ("Boolean", "toString", StaticFunction::TextValueOf),
    ("Objects", "toString", StaticFunction::TextValueOf),
    ("String", "format", StaticFunction::Format),
    ("Arrays", "asList", StaticFunction::AsList),
    ("Stream", "of", StaticFunction::StreamOf),
    ("Arrays", "stream", StaticFunction::StreamOf),
    ("Collectors", "toList", StaticFunction::ToList),
    ("Collectors", "toSet", StaticFunction::ToSet),
    ("Collectors", "toMap", StaticFunction::ToMap),
    ("Collectors", "joining", StaticFunction::Joining),
    ("ZonedDateTime", "parse", StaticFunction::ParseTime),
    ("Instant", "parse", StaticFunction::ParseTime),
    ("ZonedDateTime", "ofInstant", StaticFunction::InstantOf),
    ("Instant", "ofEpochMilli", StaticFunction::OfEpochMilli),
    ("Instant", "ofEpochSecond", StaticFunction::OfEpochSecond),
    ("ZoneOffset", "UTC", StaticFunction::Utc),
    ("Duration", "between", StaticFunction::DurationBetween),
    ("ChronoUnit", "NANOS", StaticFunction::Nanos),
    ("ChronoUnit", "MICROS", StaticFunction::Micros),
    ("ChronoUnit", "MILLIS", StaticFunction::Millisecond),
    ("ChronoUnit", "SECONDS", StaticFunction::Second),
    ("ChronoUnit", "MINUTES", StaticFunction::Minute),
    ("ChronoUnit", "HOURS", StaticFunction::Hour),
    ("ChronoUnit", "DAYS", StaticFunction::Day),
];

impl StaticFunction {
    /// Returns whether a name is one of a class.
    pub(super) fn is_class(name: &str) -> bool {
        name.starts_with(|letter: char| letter.is_ascii_uppercase())
    }

    /// Finds a function.
    pub(super) fn find(class: &str, name: &str) -> Option<Self> {
        STATIC.iter().find(|(of, function, _)| *of == class && *function == name).map(|(.., found)| *found)
    }

    /// Returns whether it stands without arguments.
    pub(super) fn is_constant(self) -> bool {
        matches!(self, Self::Pi | Self::Utc) || self.unit().is_some()
    }

    /// Returns whether it takes lambdas.
    pub(super) fn takes_lambdas(self) -> bool {
        self == Self::ToMap
    }

    /// Returns the nanoseconds of a unit of time.
    pub(super) fn unit(self) -> Option<i64> {
        const SECOND: i64 = 1_000_000_000;
        Some(match self {
            Self::Nanos => 1,
            Self::Micros => 1_000,
            Self::Millisecond => 1_000_000,
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            Self::Day => 86_400 * SECOND,
            _ => return None,
        })
    }
}
