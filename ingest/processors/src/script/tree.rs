//! The tree of a script.

use std::sync::Arc;

use serde_json::Value;

use super::pattern::ScriptPattern;
use super::static_function::StaticFunction;

/// A function that a script declares. Its parameters have the first slots of its variables.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// Types of its variables.
    pub(super) types: Vec<ValueType>,
    /// Type of its result.
    pub(super) result: ValueType,
    pub(super) body: Vec<Statement>,
}

/// A function without a name, as an argument of a method. Its parameters are variables of the function around it.
#[derive(Clone, Debug)]
pub(super) struct Lambda {
    pub(super) parameters: Vec<usize>,
    pub(super) body: Vec<Statement>,
}

/// A `catch` with the variable of its exception.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    /// Kinds of the exceptions that it takes; all where they are absent.
    pub(super) kinds: Option<Vec<String>>,
    pub(super) slot: usize,
    pub(super) body: Vec<Statement>,
}

/// A statement.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Block(Vec<Statement>),
    /// Several variables of one declaration.
    Declarations(Vec<Statement>),
    Declare(usize, Option<Node>),
    Expression(Node),
    If(Node, Vec<Statement>, Vec<Statement>),
    Loop {
        init: Option<Box<Statement>>,
        condition: Option<Node>,
        update: Option<Node>,
        body: Vec<Statement>,
    },
    ForEach(usize, Node, Vec<Statement>),
    Return(Option<Node>),
    Break,
    Continue,
    Try(Vec<Statement>, Vec<Handler>),
    /// Kind and message of an exception.
    Throw(&'static str, Node),
}

/// A class whose objects scripts make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    List,
    Map,
    Set,
    StringBuilder,
    StringTokenizer,
}

impl Class {
    /// Reads the name of a class.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ArrayList" => Self::List,
            "HashMap" | "LinkedHashMap" => Self::Map,
            "HashSet" | "LinkedHashSet" => Self::Set,
            "StringBuilder" => Self::StringBuilder,
            "StringTokenizer" => Self::StringTokenizer,
            _ => return None,
        })
    }
}

/// An expression with its offset in the source.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) offset: usize,
    /// Nodes on the longest way down.
    pub(super) height: usize,
    pub(super) expression: Expression,
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Literal(Literal),
    Variable(usize),
    Context,
    Params,
    Member {
        target: Box<Node>,
        name: String,
        null_safe: bool,
    },
    Index(Box<Node>, Box<Node>),
    Call {
        target: Box<Node>,
        name: String,
        arguments: Vec<Node>,
        null_safe: bool,
    },
    Static(StaticFunction, Vec<Node>),
    /// A function of the script by its number.
    Function(usize, Vec<Node>),
    Lambda(Box<Lambda>),
    Pattern(Arc<ScriptPattern>),
    New(Class, Vec<Node>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Not(Box<Node>),
    Minus(Box<Node>),
    Complement(Box<Node>),
    /// Operators of one precedence, from left to right. A long chain is evaluated without recursion.
    Chain(Box<Node>, Vec<Link>),
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Elvis(Box<Node>, Box<Node>),
    Assign(Assignment, Box<Node>, Box<Node>),
    Increment(Box<Node>, i64, bool),
    InstanceOf(Box<Node>, ValueType),
    Cast(ValueType, Box<Node>),
}

impl Expression {
    /// Lists the expressions right below.
    fn children(&self) -> Vec<&Node> {
        match self {
            Self::Literal(_) | Self::Variable(_) | Self::Context | Self::Params => Vec::new(),
            // What a lambda holds is bounded when it runs.
            Self::Lambda(_) | Self::Pattern(_) => Vec::new(),
            Self::Member { target, .. } => vec![&**target],
            Self::Call { target, arguments, .. } => std::iter::once(&**target).chain(arguments).collect(),
            Self::Static(_, nodes) | Self::List(nodes) | Self::Function(_, nodes) | Self::New(_, nodes) => {
                nodes.iter().collect()
            }
            Self::Map(members) => members.iter().flat_map(|(key, member)| [key, member]).collect(),
            Self::Not(inner)
            | Self::Minus(inner)
            | Self::Complement(inner)
            | Self::Increment(inner, ..)
            | Self::InstanceOf(inner, _)
            | Self::Cast(_, inner) => vec![&**inner],
            Self::Chain(first, links) => {
                std::iter::once(&**first).chain(links.iter().map(|link| &link.operand)).collect()
            }
            Self::Conditional(condition, then, otherwise) => vec![&**condition, &**then, &**otherwise],
            Self::Index(left, right) | Self::Elvis(left, right) | Self::Assign(_, left, right) => {
                vec![&**left, &**right]
            }
        }
    }
}

/// An operator with its right operand.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) offset: usize,
    pub(super) operator: Binary,
    pub(super) operand: Node,
}

/// A literal.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    /// A part of the text matches a pattern.
    Find,
    /// The whole text matches a pattern.
    Match,
}

impl Binary {
    /// Returns the operator as it is written.
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::ShiftRightUnsigned => ">>>",
            Self::Find => "=~",
            Self::Match => "==~",
        }
    }
}

/// An operator of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    Set,
    Compute(Binary),
}

/// A type of `instanceof` and of casts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Any,
    Text,
    Character,
    Integer,
    Long,
    Double,
    Number,
    Bool,
    List,
    Map,
    Collection,
    /// Others, of which variables may be declared.
    Other,
}

/// Names of the types that declare variables and parameters, or name the result of a function.
const TYPES: [(&str, ValueType); 43] = [
    ("def", ValueType::Any),
    ("Object", ValueType::Any),
    ("String", ValueType::Text),
    ("CharSequence", ValueType::Text),
    ("char", ValueType::Character),
    ("Character", ValueType::Character),
    ("int", ValueType::Integer),
    ("Integer", ValueType::Integer),
    ("short", ValueType::Integer),
    ("Short", ValueType::Integer),
    ("byte", ValueType::Integer),
    ("Byte", ValueType::Integer),
    ("long", ValueType::Long),
    ("Long", ValueType::Long),
    ("double", ValueType::Double),
    ("Double", ValueType::Double),
    ("float", ValueType::Double),
    ("Float", ValueType::Double),
    ("Number", ValueType::Number),
    ("boolean", ValueType::Bool),
    ("Boolean", ValueType::Bool),
    ("List", ValueType::List),
    ("ArrayList", ValueType::List),
    ("AbstractList", ValueType::List),
    ("Set", ValueType::List),
    ("HashSet", ValueType::List),
    ("Map", ValueType::Map),
    ("HashMap", ValueType::Map),
    ("LinkedHashMap", ValueType::Map),
    ("TreeMap", ValueType::Map),
    ("Collection", ValueType::Collection),
    ("Iterable", ValueType::Collection),
    ("Map.Entry", ValueType::Other),
    ("Iterator", ValueType::Other),
    ("StringBuilder", ValueType::Other),
    ("StringTokenizer", ValueType::Other),
    ("Pattern", ValueType::Other),
    ("Matcher", ValueType::Other),
    ("Stream", ValueType::Other),
    ("Instant", ValueType::Other),
    ("ZonedDateTime", ValueType::Other),
    ("Duration", ValueType::Other),
    ("ChronoUnit", ValueType::Other),
];

impl ValueType {
    /// Finds a type by its name.
    pub(super) fn find(name: &str) -> Option<Self> {
        TYPES.iter().find(|(known, _)| *known == name).map(|(_, found)| *found)
    }

    /// Reads the name of a type that a value can be cast to or compared with.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::find(name).filter(|found| *found != Self::Other)
    }

    /// Returns whether a JSON value is of the type.
    pub(super) fn holds(self, value: &Value) -> bool {
        match self {
            Self::Any => !value.is_null(),
            Self::Text => value.is_string(),
            Self::Integer => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Long => value.as_i64().is_some_and(|number| i32::try_from(number).is_err()),
            Self::Double => value.is_f64(),
            Self::Number => value.is_number(),
            Self::Bool => value.is_boolean(),
            Self::List | Self::Collection => value.is_array(),
            Self::Map => value.is_object(),
            Self::Character | Self::Other => false,
        }
    }
}

impl Node {
    /// Makes an expression at an offset.
    pub(super) fn new(offset: usize, expression: Expression) -> Self {
        let height = 1 + expression.children().iter().map(|child| child.height).max().unwrap_or(0);
        Self { offset, height, expression }
    }

    /// Returns whether a value can be assigned to it.
    pub(super) fn is_assignable(&self) -> bool {
        matches!(
            self.expression,
            Expression::Variable(_) | Expression::Member { null_safe: false, .. } | Expression::Index(..)
        )
    }
}
