//! Syntax trees of scripts.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use millrace_ingest::pattern::Expression;

/// A place in a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Line, from 1.
    pub(super) line: u32,
    /// Column in characters, from 1.
    pub(super) column: u32,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A refusal of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxFault {
    pub(super) at: Position,
    pub(super) message: String,
}

/// A script with the number of its local variables.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) body: Expr,
    pub(super) slots: usize,
    /// `true` if it has instance, class or global variables, which outlive an event.
    pub(super) has_state: bool,
    pub(super) globals: Globals,
    /// Functions by the numbers of their calls; `None` for one whose definition was not read.
    pub(super) functions: Vec<Option<Arc<Function>>>,
}

/// A function that a script defines.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// Number of parameters, which are in the first slots.
    pub(super) parameters: usize,
    pub(super) slots: usize,
    pub(super) body: Expr,
}

/// Global variables of a script.
#[derive(Debug, Default)]
pub(super) struct Globals {
    /// All, with their places.
    pub(super) named: Vec<(Arc<str>, Position)>,
    /// Those that the script assigns.
    pub(super) assigned: BTreeSet<Arc<str>>,
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Nil,
    True,
    False,
    Int(i64),
    Float(f64),
    Text(Vec<TextItem>),
    Symbol(Arc<str>),
    Regex {
        items: Vec<TextItem>,
        flags: RegexFlags,
        at: Position,
        /// The expression, once it is compiled; stays empty with interpolation.
        compiled: OnceLock<Arc<Expression>>,
    },
    Array(Vec<Expr>),
    Hash(Vec<(Expr, Expr)>),
    Range {
        from: Option<Box<Expr>>,
        to: Option<Box<Expr>>,
        exclusive: bool,
    },
    /// `*array` among arguments and elements.
    Splat(Box<Expr>),
    Local(usize),
    /// A variable that outlives an event, with its sigil.
    State(Arc<str>),
    /// `$~` as 0, `$1` and so on.
    Group(usize),
    Constant(&'static str),
    Assign(Target, Box<Expr>),
    AssignOp {
        target: Target,
        op: AssignOp,
        value: Box<Expr>,
        at: Position,
    },
    AssignMany(Vec<Target>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Defined(Box<Expr>),
    Call(Box<Call>),
    /// A call of a function of the script, by its number.
    CallFunction {
        function: usize,
        args: Vec<Expr>,
        at: Position,
    },
    Sequence(Vec<Expr>),
    If {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    While {
        condition: Box<Expr>,
        body: Box<Expr>,
        until: bool,
    },
    For {
        target: Target,
        over: Box<Expr>,
        body: Box<Expr>,
        at: Position,
    },
    Case {
        subject: Option<Box<Expr>>,
        arms: Vec<(Vec<Expr>, Expr)>,
        otherwise: Box<Expr>,
    },
    Begin {
        body: Box<Expr>,
        rescues: Vec<Rescue>,
        otherwise: Option<Box<Expr>>,
        ensure: Option<Box<Expr>>,
    },
    Return(Box<Expr>),
    Next(Box<Expr>),
    Break(Box<Expr>),
}

/// A part of a text: literal, or an expression whose text stands there.
#[derive(Debug)]
pub(super) enum TextItem {
    Literal(Arc<str>),
    Interpolated(Expr),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RegexFlags {
    pub(super) ignore_case: bool,
    pub(super) dot_all: bool,
    pub(super) extended: bool,
}

/// A call of a method.
#[derive(Debug)]
pub(super) struct Call {
    /// `None` for a function.
    pub(super) receiver: Option<Expr>,
    pub(super) name: &'static str,
    pub(super) args: Vec<Expr>,
    pub(super) block: Option<Block>,
    /// `&.`: a receiver that is nil is the result.
    pub(super) safe: bool,
    pub(super) at: Position,
}

/// A block of a call.
#[derive(Debug)]
pub(super) enum Block {
    Code {
        params: Vec<Target>,
        body: Expr,
        /// Variables of the block, which are new in each run.
        own: Vec<usize>,
    },
    /// `&:name`.
    Method(&'static str, Position),
}

/// Destination of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Local(usize),
    State(Arc<str>),
    /// `receiver[index]`.
    Element {
        receiver: Box<Expr>,
        index: Vec<Expr>,
        at: Position,
    },
    /// `receiver.name = value`.
    Attribute {
        receiver: Box<Expr>,
        name: &'static str,
        at: Position,
    },
    /// `(a, b)`.
    Nested(Vec<Target>),
    /// `*rest`; without a name, the rest is dropped.
    Rest(Option<Box<Target>>),
}

/// Operator of an assignment such as `+=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignOp {
    Or,
    And,
    Method(&'static str),
}

/// A `rescue` of a `begin`.
#[derive(Debug)]
pub(super) struct Rescue {
    /// Classes of errors; empty for all.
    pub(super) classes: Vec<&'static str>,
    pub(super) variable: Option<usize>,
    pub(super) body: Expr,
}
