//! The tokens that the parser looked for at the furthest place that it reached. They make the text of errors and the list of
//! completions.

/// A token, or a kind of token, that can stand at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The name of a command.
    Command(&'static str),
    /// A word of the language.
    Keyword(&'static str),
    /// An option, with `=` behind it.
    Choice(&'static str),
    /// A sign.
    Symbol(&'static str),
    /// The name of a field.
    Field,
    /// The name of a new column.
    Alias,
    /// The name of an index.
    Index,
    /// A function of expressions.
    Function,
    /// A function behind `stats` and its like.
    Aggregate,
    /// A text in quotes.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A length such as `5m`.
    Span,
    /// A point in time such as `-7d@d`.
    Time,
    /// A word of free text.
    Term,
    /// Another kind of token.
    Other(&'static str),
}

impl Expectation {
    /// Returns the token in the form of error texts.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Command(word) | Self::Keyword(word) | Self::Choice(word) => {
                format!("'{}'", word.to_ascii_uppercase())
            }
            Self::Symbol(sign) => format!("'{sign}'"),
            Self::Field => "a field".to_owned(),
            Self::Alias => "a name".to_owned(),
            Self::Index => "an index".to_owned(),
            Self::Function => "a function".to_owned(),
            Self::Aggregate => "an aggregate function".to_owned(),
            // The names of the grammar, which clients know.
            Self::Text => "DQUOTA_STRING, SQUOTA_STRING".to_owned(),
            Self::Integer => "INTEGER_LITERAL".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::Boolean => "'TRUE', 'FALSE'".to_owned(),
            Self::Span => "a span such as 5m".to_owned(),
            Self::Time => "a time such as -7d@d".to_owned(),
            Self::Term => "a search term".to_owned(),
            Self::Other(kind) => kind.to_owned(),
        }
    }

    /// Returns the word, where the expectation is one.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Command(word) | Self::Keyword(word) | Self::Choice(word) => Some(word),
            _ => None,
        }
    }
}

/// Expectations at the furthest offset.
#[derive(Debug, Default)]
pub(crate) struct ExpectedTokens {
    offset: usize,
    tokens: Vec<Expectation>,
}

/// Most tokens that are remembered at one place. No place of the syntax has more.
const MAX_TOKENS: usize = 256;

impl ExpectedTokens {
    /// Notes that a token was looked for at an offset.
    pub(crate) fn note(&mut self, offset: usize, token: Expectation) {
        if offset < self.offset {
            return;
        }
        if offset > self.offset {
            self.offset = offset;
            self.tokens.clear();
        }
        if self.tokens.len() < MAX_TOKENS && !self.tokens.contains(&token) {
            self.tokens.push(token);
        }
    }

    /// Returns the furthest offset.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the tokens there, in the order in which they were looked for.
    pub(crate) fn tokens(&self) -> &[Expectation] {
        &self.tokens
    }
}
