//! The tree of a script.

use serde_json::Value;

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
    New {
        is_map: bool,
        source: Option<Box<Node>>,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Not(Box<Node>),
    Minus(Box<Node>),
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
            Self::Member { target, .. } => vec![&**target],
            Self::Call { target, arguments, .. } => std::iter::once(&**target).chain(arguments).collect(),
            Self::Static(_, nodes) | Self::List(nodes) => nodes.iter().collect(),
            Self::New { source, .. } => source.iter().map(|source| &**source).collect(),
            Self::Map(members) => members.iter().flat_map(|(key, member)| [key, member]).collect(),
            Self::Not(inner)
            | Self::Minus(inner)
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
    Text(String),
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
    Integer,
    Long,
    Double,
    Number,
    Bool,
    List,
    Map,
}

impl ValueType {
    /// Reads the name of a type.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "def" | "Object" => Self::Any,
            "String" | "CharSequence" => Self::Text,
            "int" | "Integer" | "short" | "Short" | "byte" | "Byte" => Self::Integer,
            "long" | "Long" => Self::Long,
            "double" | "Double" | "float" | "Float" => Self::Double,
            "Number" => Self::Number,
            "boolean" | "Boolean" => Self::Bool,
            "List" | "ArrayList" | "Collection" | "Iterable" => Self::List,
            "Map" | "HashMap" => Self::Map,
            _ => return None,
        })
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
            Self::List => value.is_array(),
            Self::Map => value.is_object(),
        }
    }
}

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
    IsDigit,
}

/// Classes and their functions.
const STATIC: [(&str, &str, StaticFunction); 31] = [
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
    ("Character", "isDigit", StaticFunction::IsDigit),
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
        self == Self::Pi
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
