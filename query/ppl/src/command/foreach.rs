//! `foreach [mode=…] [fieldstr=…] [matchstr=…] [itemstr=…] [iterstr=…] targets [ eval … ]`: an `eval` for each field or element.

use crate::ast::{Expression, FieldPattern, TextSpan};
use crate::parser::{Expectation, Mismatch, Parser, Parsing};

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
    /// At least one target.
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
    pub(crate) fn foreach_command(&mut self) -> Parsing<ForeachCommand> {
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
            if self.peek_symbol("[") && !command.targets.is_empty() {
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

    fn foreach_option(&mut self, command: &mut ForeachCommand) -> Parsing<bool> {
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

    fn foreach_word(&mut self) -> Parsing<String> {
        if self.peek_symbol("<<") {
            return self.placeholder_text();
        }
        Ok(self.field()?.path)
    }

    fn foreach_target(&mut self) -> Parsing<ForeachTarget> {
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

    fn foreach_assignments(&mut self) -> Parsing<Vec<ForeachAssignment>> {
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
    fn foreach_name(&mut self) -> Parsing<String> {
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
