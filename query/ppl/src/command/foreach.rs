//! `foreach [mode=…] [fieldstr=…] [matchstr=…] [itemstr=…] [iterstr=…] targets [ eval … ]`: an `eval` for each field or element.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Value, visit_expressions_mut};

use crate::ast::{Expression, FieldPattern, TextSpan};
use crate::parser::{Expectation, Mismatch, ParseResult, Parser};

/// `foreach`: repeats an `eval` for each field that a pattern names, or for each element of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeachCommand {
    /// `mode`: the kind of the targets (default `multifield`).
    pub mode: ForeachMode,
    /// `fieldstr`: the word that stands for the field (default `<<FIELD>>`).
    pub fieldstr: Option<String>,
    /// `matchstr`: the word that stands for the text of `*` (default `<<MATCHSTR>>`).
    pub matchstr: Option<String>,
    /// `matchseg1` to `matchseg3`: words for the texts of single `*`s.
    pub matchsegs: [Option<String>; 3],
    /// `itemstr`: the word that stands for the element (default `<<ITEM>>`).
    pub itemstr: Option<String>,
    /// `iterstr`: the word that stands for the number of the element (default `<<ITER>>`).
    pub iterstr: Option<String>,
    /// The targets; empty only with `mode=auto_collections`, where it means all collections.
    pub targets: Vec<ForeachTarget>,
    /// The assignments of the `eval` in brackets.
    pub assignments: Vec<ForeachAssignment>,
}

/// Kind of the targets of `foreach`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeachMode {
    /// Fields by name and pattern.
    #[default]
    Multifield,
    /// Elements of an array.
    Multivalue,
    /// Elements of a text that is a JSON array.
    JsonArray,
    /// Elements of either, by the type of the field.
    AutoCollections,
}

/// A target of `foreach`.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum ForeachTarget {
    /// A field or a pattern.
    Fields(FieldPattern),
    /// A call or a text that is a collection.
    Collection(Expression),
}

/// An assignment of `foreach`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeachAssignment {
    /// The name of the column, with placeholders such as `<<FIELD>>_total`.
    pub target: String,
    /// The position of the name.
    pub target_span: TextSpan,
    /// The value, with placeholders.
    pub value: Expression,
}

/// The modes by name.
const MODES: [(&str, ForeachMode); 4] = [
    ("multifield", ForeachMode::Multifield),
    ("multivalue", ForeachMode::Multivalue),
    ("json_array", ForeachMode::JsonArray),
    ("auto_collections", ForeachMode::AutoCollections),
];

impl Parser<'_> {
    pub(crate) fn foreach_command(&mut self) -> ParseResult<ForeachCommand> {
        let mut command = ForeachCommand {
            mode: ForeachMode::default(),
            fieldstr: None,
            matchstr: None,
            matchsegs: [None, None, None],
            itemstr: None,
            iterstr: None,
            targets: Vec::new(),
            assignments: Vec::new(),
        };
        loop {
            if self.foreach_option(&mut command)? {
                continue;
            }
            // Targets can be left out where the mode finds collections itself.
            let may_end = !command.targets.is_empty() || command.mode == ForeachMode::AutoCollections;
            if may_end && self.peek_bracket() {
                break;
            }
            let start = self.start();
            let target = self.foreach_target()?;
            command.targets.push(target);
            self.check_count(start, command.targets.len())?;
            self.symbol(",");
        }
        command.assignments = self.nest(|parser| {
            parser.expect_symbol("[")?;
            parser.expect_keyword("eval")?;
            let assignments = parser.foreach_assignments()?;
            parser.expect_symbol("]")?;
            Ok(assignments)
        })?;
        Ok(command)
    }

    fn foreach_option(&mut self, command: &mut ForeachCommand) -> ParseResult<bool> {
        let [first, second, third] = &mut command.matchsegs;
        let words = [
            ("fieldstr", &mut command.fieldstr),
            ("matchstr", &mut command.matchstr),
            ("matchseg1", first),
            ("matchseg2", second),
            ("matchseg3", third),
            ("itemstr", &mut command.itemstr),
            ("iterstr", &mut command.iterstr),
        ];
        if self.option("mode") {
            command.mode = self.one_of(&MODES).ok_or(Mismatch)?;
            return Ok(true);
        }
        for (name, word) in words {
            if self.option(name) {
                *word = Some(self.foreach_word()?);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn foreach_word(&mut self) -> ParseResult<String> {
        if self.peek_symbol("<<") {
            return self.placeholder_text();
        }
        Ok(self.field()?.path)
    }

    fn foreach_target(&mut self) -> ParseResult<ForeachTarget> {
        if self.peek_string() {
            return self.value_expression().map(ForeachTarget::Collection);
        }
        let place = self.checkpoint();
        let pattern = self.field_pattern()?;
        if !self.peek_symbol("(") {
            return Ok(ForeachTarget::Fields(pattern));
        }
        self.back_to(place);
        self.value_expression().map(ForeachTarget::Collection)
    }

    fn foreach_assignments(&mut self) -> ParseResult<Vec<ForeachAssignment>> {
        let mut assignments = Vec::new();
        loop {
            let start = self.start();
            let target = self.foreach_name()?;
            let target_span = self.span_from(start);
            self.expect_symbol("=")?;
            assignments.push(ForeachAssignment { target, target_span, value: self.expression()? });
            self.check_count(start, assignments.len())?;
            if !self.symbol(",") {
                return Ok(assignments);
            }
        }
    }

    /// Reads a name that may hold placeholders.
    fn foreach_name(&mut self) -> ParseResult<String> {
        self.note(Expectation::Alias);
        let mut name = String::new();
        loop {
            if self.rest().starts_with("<<") {
                name.push_str(&self.placeholder_text()?);
            } else if self.rest().starts_with('`') {
                name.push_str(&self.quoted('`')?);
            } else {
                let length = self.rest().find(|letter: char| {
                    !(letter.is_alphanumeric() || matches!(letter, '_' | '.' | '@' | '%' | '-'))
                });
                match length {
                    Some(length @ 1..) => name.push_str(self.take(length)),
                    _ if name.is_empty() => return Err(Mismatch),
                    _ => return Ok(name),
                }
            }
        }
    }
}

/// A placeholder of `foreach`, with its meaning in one round.
#[derive(Clone, Debug)]
pub struct ForeachPlaceholder {
    /// The word, such as `<<FIELD>>`, or the word of `fieldstr` and its like.
    pub word: String,
    /// The expression that replaces the word.
    pub expr: Expr,
    /// The text that replaces the word in names and in texts.
    pub text: String,
}

impl ForeachPlaceholder {
    /// Returns whether a name is the word, or the word within angle brackets.
    fn stands_for(&self, name: &str) -> bool {
        let inner = name.strip_prefix("<<").and_then(|name| name.strip_suffix(">>"));
        name == self.word || inner.is_some_and(|inner| inner == self.word)
    }
}

impl ForeachAssignment {
    /// Returns the assignment of one round. Placeholders are replaced in the name, and in names and texts of the value.
    /// The assignment takes the bytes that are left; `None` where it is longer.
    #[must_use]
    pub fn substitute(&self, placeholders: &[ForeachPlaceholder], left: &mut usize) -> Option<Self> {
        *left = left.checked_sub(self.target.len() + self.value.text.len())?;
        let mut substituted = self.clone();
        substituted.target = replace_words(&self.target, placeholders, left)?;
        let visited = visit_expressions_mut(&mut substituted.value.expr, |expr| {
            let replaced = match expr {
                Expr::Identifier(name) if name.quote_style.is_none() => {
                    match placeholders.iter().find(|found| found.stands_for(&name.value)) {
                        Some(found) => {
                            *expr = found.expr.clone();
                            take(left, found.text.len())
                        }
                        None => Some(()),
                    }
                }
                Expr::Value(value) => match &mut value.value {
                    Value::SingleQuotedString(text) => {
                        replace_words(text, placeholders, left).map(|replaced| *text = replaced)
                    }
                    _ => Some(()),
                },
                _ => Some(()),
            };
            match replaced {
                Some(()) => ControlFlow::Continue(()),
                None => ControlFlow::Break(()),
            }
        });
        if visited.is_break() {
            return None;
        }
        substituted.value.text = replace_words(&self.value.text, placeholders, left)?;
        Some(substituted)
    }
}

/// Replaces placeholders in angle brackets. A word of `fieldstr` and its like stands there with or without them. The texts of the
/// placeholders take the bytes that are left.
fn replace_words(text: &str, placeholders: &[ForeachPlaceholder], left: &mut usize) -> Option<String> {
    placeholders.iter().try_fold(text.to_owned(), |text, placeholder| {
        let bare = placeholder.word.trim_start_matches("<<").trim_end_matches(">>");
        let word = format!("<<{bare}>>");
        take(left, text.matches(&word).count().saturating_mul(placeholder.text.len()))?;
        Some(text.replace(&word, &placeholder.text))
    })
}

fn take(left: &mut usize, bytes: usize) -> Option<()> {
    *left = left.checked_sub(bytes)?;
    Some(())
}
