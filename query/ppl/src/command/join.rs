//! `[kind] join [options] [left=alias] [right=alias] [on condition | fields] source`: rows of two relations side by side.

use crate::ast::{Expression, FieldName, SourceRelation};
use crate::parser::{Expectation, Mismatch, Parser, Parsing};

/// `join`: combines the input with another relation.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinCommand {
    /// The kind (default inner).
    pub kind: JoinKind,
    /// `left`: an alias for the input.
    pub left_alias: Option<FieldName>,
    /// `right`: an alias for the other relation.
    pub right_alias: Option<FieldName>,
    /// The rows that belong together.
    pub criteria: JoinCriteria,
    /// The other relation.
    pub right: SourceRelation,
    /// `overwrite`: whether columns of the right replace those of the same name (default true; for fields as criteria).
    pub overwrite: bool,
    /// `max`: the most rows of the right for each of the left; 0 and `None` mean all.
    pub max: Option<u64>,
    /// `hint.left.…` and `hint.right.…`, which change no answer.
    pub hints: Vec<JoinHint>,
}

/// A kind of join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// Rows with a partner.
    #[default]
    Inner,
    /// All rows of the left: `left`, `outer`.
    Left,
    /// All rows of the right.
    Right,
    /// All rows of both.
    Full,
    /// Rows of the left with a partner.
    Semi,
    /// Rows of the left without a partner.
    Anti,
    /// All pairs.
    Cross,
}

/// The rows of a join that belong together.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum JoinCriteria {
    /// `on` or `where` with a condition over both sides.
    On(Expression),
    /// Fields that are equal on both sides. They stand once in the answer.
    Fields(Vec<FieldName>),
    /// Nothing is said: all fields that both sides have (for `cross`, all pairs).
    Common,
}

/// A hint of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinHint {
    /// `true` for `hint.left`.
    pub is_left: bool,
    /// The name behind the side.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Signs that go on with the name of an index, and not with that of a field.
const INDEX_SIGNS: &[char] = &['*', '.', '-', '+', '%', '<', '{', ':'];

/// The kinds by name, for `type=`.
const KINDS: [(&str, JoinKind); 8] = [
    ("inner", JoinKind::Inner),
    ("left", JoinKind::Left),
    ("outer", JoinKind::Left),
    ("right", JoinKind::Right),
    ("full", JoinKind::Full),
    ("semi", JoinKind::Semi),
    ("anti", JoinKind::Anti),
    ("cross", JoinKind::Cross),
];

impl Parser<'_> {
    pub(crate) fn join_command(&mut self, kind: JoinKind) -> Parsing<JoinCommand> {
        let start = self.start();
        let mut command = JoinCommand {
            kind,
            left_alias: None,
            right_alias: None,
            criteria: JoinCriteria::Common,
            right: SourceRelation::Indices { indices: Vec::new(), alias: None },
            overwrite: true,
            max: None,
            hints: Vec::new(),
        };
        loop {
            if self.option("type") {
                command.kind = self.one_of(&KINDS).ok_or(Mismatch)?;
            } else if self.option("overwrite") {
                command.overwrite = self.boolean()?;
            } else if self.option("max") {
                command.max = Some(self.count("max")?);
            } else if self.option("left") {
                command.left_alias = Some(self.field()?);
            } else if self.option("right") {
                command.right_alias = Some(self.field()?);
            } else if let Some(hint) = self.join_hint()? {
                command.hints.push(hint);
                self.check_count(start, command.hints.len())?;
            } else {
                break;
            }
            self.symbol(",");
        }
        if self.keyword("on") || self.keyword("where") {
            command.criteria = JoinCriteria::On(self.expression()?);
            command.right = self.source_relation()?;
            return Ok(command);
        }
        self.join_fields(&mut command)?;
        Ok(command)
    }

    /// Reads fields and the other relation: the last name is the index.
    fn join_fields(&mut self, command: &mut JoinCommand) -> Parsing<()> {
        self.note(Expectation::Field);
        let mut fields = Vec::new();
        loop {
            let start = self.start();
            let place = self.checkpoint();
            if self.peek_symbol("[") {
                break;
            }
            // The characters behind a name tell an index such as `logs-*`.
            let is_field = self.peek_name() && self.field().is_ok() && !self.is_followed_by(INDEX_SIGNS);
            self.symbol(",");
            let is_last = !is_field || !(self.peek_pattern() || self.peek_symbol("["));
            let is_alias = self.peek_word().eq_ignore_ascii_case("as");
            self.back_to(place);
            if is_last || is_alias {
                break;
            }
            fields.push(self.field()?);
            self.symbol(",");
            self.check_count(start, fields.len())?;
        }
        command.right = self.source_relation()?;
        if !fields.is_empty() {
            command.criteria = JoinCriteria::Fields(fields);
        }
        Ok(())
    }

    /// Reads `hint.left.name = value`, if it is next.
    fn join_hint(&mut self) -> Parsing<Option<JoinHint>> {
        let place = self.checkpoint();
        if !self.peek_name() {
            return Ok(None);
        }
        let name = self.field()?.path;
        let parts: Vec<&str> = name.splitn(3, '.').collect();
        let [hint, side, option] = parts.as_slice() else {
            self.back_to(place);
            return Ok(None);
        };
        let is_left = side.eq_ignore_ascii_case("left");
        let is_side = is_left || side.eq_ignore_ascii_case("right");
        if !hint.eq_ignore_ascii_case("hint") || !is_side || !self.peek_symbol("=") {
            self.back_to(place);
            return Ok(None);
        }
        self.expect_symbol("=")?;
        let value = self.field()?.path;
        Ok(Some(JoinHint { is_left, name: (*option).to_owned(), value }))
    }
}
