//! `foreach [mode=…] [fieldstr=…] [matchstr=…] [itemstr=…] [iterstr=…] targets [ eval … ]`: an `eval` for each field or element.

use crate::ast::{Expression, FieldPattern, TextSpan};

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
