//! Errors of the grammar: the position, and the tokens that could have stood there.
//!
//! The wording, and the order of what is listed, is that of Lucene's generated parser.

use std::fmt::Write;

use super::SyntaxError;
use super::lexer::{Kind, Token};

/// Tokens that could still have followed a clause beside other clauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClauseFollow {
    /// `^`.
    pub caret: bool,
    /// `~`.
    pub tilde: bool,
}

/// A place of the grammar.
#[derive(Clone, Copy, Debug)]
pub(super) enum GrammarPosition {
    /// The first clause of a group.
    FirstClause,
    /// Another clause of a group.
    NextClause,
    /// A clause behind a sign.
    SignedClause,
    /// A clause behind a field and a colon.
    FieldClause,
    /// Another clause or the end of the group.
    Clause { after: ClauseFollow, nested: bool },
    /// A number behind `^`.
    Number,
    /// A bound of a range.
    Bound,
    /// `TO`.
    RangeTo,
    /// The closing bracket of a range.
    RangeEnd,
}

/// Tokens that a clause may begin with.
const CLAUSE: [Kind; 11] = [
    Kind::BareSign,
    Kind::OpenGroup,
    Kind::Star,
    Kind::Quoted,
    Kind::Term,
    Kind::Prefix,
    Kind::Wildcard,
    Kind::Regexp,
    Kind::OpenIncluded,
    Kind::OpenExcluded,
    Kind::Number,
];
const SIGNS: [Kind; 3] = [Kind::Not, Kind::Plus, Kind::Minus];

impl GrammarPosition {
    /// Words the error of a token that does not fit.
    pub(super) fn refuse(self, token: &Token<'_>, text: &str) -> SyntaxError {
        let column = |byte: usize| text[..byte].encode_utf16().count();
        if token.kind == Kind::Invalid {
            return lexical(token, text, column(token.start + token.image.len()));
        }
        let mut reason = match token.kind {
            Kind::End => format!("Encountered \"<EOF>\" at line 1, column {}.", column(token.start)),
            kind => format!(
                "Encountered \" {} \"{} \"\" at line 1, column {}.",
                name(kind),
                escaped(token.image),
                column(token.start)
            ),
        };
        let kinds = self.kinds();
        reason.push_str(if kinds.len() == 1 { "\nWas expecting:\n" } else { "\nWas expecting one of:\n" });
        for kind in kinds {
            let dots = if kind == Kind::End { "" } else { "..." };
            let _ = writeln!(reason, "    {} {dots}", name(kind));
        }
        reason.push_str("    ");
        SyntaxError(reason)
    }

    /// Lists the tokens that could stand at the place.
    fn kinds(self) -> Vec<Kind> {
        match self {
            Self::FirstClause => [&SIGNS[..], &CLAUSE, &[Kind::Term]].concat(),
            Self::NextClause => [&SIGNS[..], &CLAUSE, &[Kind::Term, Kind::Star]].concat(),
            Self::SignedClause => [&CLAUSE[..], &[Kind::Term, Kind::Star]].concat(),
            Self::FieldClause => CLAUSE.to_vec(),
            Self::Clause { after, nested } => {
                let mut kinds = if nested { Vec::new() } else { vec![Kind::End] };
                kinds.extend([Kind::And, Kind::Or]);
                kinds.extend(SIGNS);
                for kind in CLAUSE {
                    match kind {
                        Kind::Star if nested => kinds.push(Kind::CloseGroup),
                        Kind::Quoted if after.caret => kinds.push(Kind::Caret),
                        Kind::Prefix if after.tilde => kinds.push(Kind::Tilde),
                        _ => {}
                    }
                    kinds.push(kind);
                }
                kinds
            }
            Self::Number => vec![Kind::Number],
            Self::Bound => vec![Kind::RangeTo, Kind::RangeQuoted, Kind::RangeWord],
            Self::RangeTo => vec![Kind::RangeTo],
            Self::RangeEnd => vec![Kind::CloseIncluded, Kind::CloseExcluded],
        }
    }
}

/// Words the error of a place where no token fits; `read` counts what was read to see that.
fn lexical(token: &Token<'_>, text: &str, read: usize) -> SyntaxError {
    let state = if token.boost { "" } else { " (in lexical state 2)" };
    let rest = &text[token.start + token.image.len()..];
    let last = token.image.chars().next_back().map_or(0, u32::from);
    let one = token.image.chars().nth(1).is_none();
    let reason = match (rest.is_empty(), one) {
        (false, _) => {
            format!("Lexical error at line 1, column {read}.  Encountered: '{last}' ({last}),{state}")
        }
        (true, true) => format!("Lexical error at line 1, column {}.  Encountered: <EOF>{state}", read + 1),
        (true, false) => format!(
            "Lexical error at line 1, column {}.  Encountered: <EOF> after prefix \"{}\"{state}",
            read + 1,
            escaped(token.image)
        ),
    };
    SyntaxError(reason)
}

/// Escapes a text as a string of Java.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for unit in text.encode_utf16() {
        match unit {
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0a => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            0x0d => out.push_str("\\r"),
            0x22 => out.push_str("\\\""),
            0x27 => out.push_str("\\'"),
            0x5c => out.push_str("\\\\"),
            0x20..=0x7e => out.extend(char::from_u32(unit.into())),
            _ => {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Names a kind of token as the grammar writes it.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::And => "<AND>",
        Kind::Or => "<OR>",
        Kind::Not => "<NOT>",
        Kind::Plus => "\"+\"",
        Kind::Minus => "\"-\"",
        Kind::BareSign => "<BAREOPER>",
        Kind::OpenGroup => "\"(\"",
        Kind::CloseGroup => "\")\"",
        Kind::Colon => "\":\"",
        Kind::Star => "\"*\"",
        Kind::Caret => "\"^\"",
        Kind::Quoted => "<QUOTED>",
        Kind::Term => "<TERM>",
        Kind::Tilde => "<FUZZY_SLOP>",
        Kind::Prefix => "<PREFIXTERM>",
        Kind::Wildcard => "<WILDTERM>",
        Kind::Regexp => "<REGEXPTERM>",
        Kind::OpenIncluded => "\"[\"",
        Kind::OpenExcluded => "\"{\"",
        Kind::Number => "<NUMBER>",
        Kind::RangeTo => "\"TO\"",
        Kind::CloseIncluded => "\"]\"",
        Kind::CloseExcluded => "\"}\"",
        Kind::RangeQuoted => "<RANGE_QUOTED>",
        Kind::RangeWord => "<RANGE_GOOP>",
        Kind::End | Kind::Invalid => "<EOF>",
    }
}
