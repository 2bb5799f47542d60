//! Tokens to a tree, by recursive descent of bounded depth.

use millrace_work::error::{Error, Result};

use super::lexer::{Token, tokens};
use super::{Binary, Function, Language, Node, Val, compile_error};
use crate::expression::moving;

/// Deepest nesting of parentheses, calls, conditionals and unary operators.
const MAX_DEPTH: usize = 64;

/// Binary operators by how tightly they bind, loosest first.
const LEVELS: &[&[(&str, Binary)]] = &[
    &[("||", Binary::Or)],
    &[("&&", Binary::And)],
    &[("==", Binary::Equal), ("===", Binary::Equal), ("!=", Binary::NotEqual), ("!==", Binary::NotEqual)],
    &[
        ("<", Binary::Less),
        ("<=", Binary::LessOrEqual),
        (">", Binary::Greater),
        (">=", Binary::GreaterOrEqual),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
];

/// Most binary operators in a row, which make a tree as deep.
const MAX_CHAIN: usize = 512;

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    chained: usize,
    language: Language,
}

/// Parses a source.
pub(super) fn parse(source: &str, language: Language) -> Result<Node> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, chained: 0, language };
    let node = parser.statements()?;
    match parser.tokens.get(parser.at) {
        None => Ok(node),
        Some(token) => Err(unexpected(Some(token))),
    }
}

fn unexpected(token: Option<&Token>) -> Error {
    compile_error(&match token {
        None => "unexpected end of script.".to_owned(),
        Some(Token::Int(number)) => format!("unexpected token ['{number}']."),
        Some(Token::Double(number)) => format!("unexpected token ['{number}']."),
        Some(Token::Name(name)) => format!("unexpected token ['{name}']."),
        Some(Token::Text(text)) => format!("unexpected token [''{text}'']."),
        Some(Token::Symbol(symbol)) => format!("unexpected token ['{symbol}']."),
    })
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if found == name)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.take(symbol) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            other => Err(unexpected(other)),
        }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(compile_error(&format!("expression is nested deeper than {MAX_DEPTH} levels.")));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// One statement, or an `if` followed by what holds otherwise.
    fn statements(&mut self) -> Result<Node> {
        self.deeper(|parser| {
            if !parser.is_name("if") {
                return parser.statement();
            }
            parser.at += 1;
            parser.expect("(")?;
            let condition = parser.expression()?;
            parser.expect(")")?;
            let then = parser.block()?;
            let otherwise = if parser.is_name("else") {
                parser.at += 1;
                if parser.is_name("if") { parser.statements()? } else { parser.block()? }
            } else if parser.peek().is_none() || parser.is("}") {
                Node::Val(Val::Null)
            } else {
                parser.statements()?
            };
            Ok(Node::Conditional(Box::new(condition), Box::new(then), Box::new(otherwise)))
        })
    }

    fn block(&mut self) -> Result<Node> {
        if self.take("{") {
            let node = self.statements()?;
            self.expect("}")?;
            Ok(node)
        } else {
            self.statement()
        }
    }

    fn statement(&mut self) -> Result<Node> {
        if self.is_name("return") {
            self.at += 1;
        }
        let node = self.expression()?;
        while self.take(";") {}
        Ok(node)
    }

    fn expression(&mut self) -> Result<Node> {
        self.deeper(|parser| {
            let condition = parser.binary(0)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let then = parser.expression()?;
            parser.expect(":")?;
            let otherwise = parser.expression()?;
            Ok(Node::Conditional(Box::new(condition), Box::new(then), Box::new(otherwise)))
        })
    }

    fn binary(&mut self, level: usize) -> Result<Node> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let found = operators.iter().find(|(symbol, _)| self.is(symbol));
            let Some((_, operator)) = found else { return Ok(left) };
            self.at += 1;
            self.chained += 1;
            if self.chained > MAX_CHAIN {
                return Err(compile_error(&format!("expression has more than {MAX_CHAIN} operators.")));
            }
            let right = self.binary(level + 1)?;
            left = Node::Binary(*operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Node> {
        self.deeper(|parser| {
            if parser.take("!") {
                return Ok(Node::Not(Box::new(parser.unary()?)));
            }
            if parser.take("-") {
                return Ok(Node::Minus(Box::new(parser.unary()?)));
            }
            if parser.take("+") {
                return parser.unary();
            }
            parser.primary()
        })
    }

    fn primary(&mut self) -> Result<Node> {
        if self.is("(") {
            self.at += 1;
            // Casts change nothing but the kind of number.
            if let (Some(Token::Name(kind)), Some(Token::Symbol(")"))) =
                (self.peek(), self.tokens.get(self.at + 1))
                && matches!(kind.as_str(), "double" | "float")
            {
                self.at += 2;
                let number = self.unary()?;
                let one = Box::new(Node::Val(Val::Double(1.0)));
                return Ok(Node::Binary(Binary::Multiply, Box::new(number), one));
            }
            let node = self.expression()?;
            self.expect(")")?;
            return Ok(node);
        }
        match self.peek().cloned() {
            Some(Token::Int(number)) => {
                self.at += 1;
                Ok(Node::Val(match self.language {
                    Language::Painless => Val::Int(number),
                    // Lucene's numbers are all doubles.
                    Language::Lucene => Val::Double(number as f64),
                }))
            }
            Some(Token::Double(number)) => {
                self.at += 1;
                Ok(Node::Val(Val::Double(number)))
            }
            Some(Token::Name(name)) => {
                self.at += 1;
                match self.language {
                    Language::Painless => self.named(&name),
                    Language::Lucene => self.bare(&name),
                }
            }
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn named(&mut self, name: &str) -> Result<Node> {
        match name {
            "true" => Ok(Node::Val(Val::Bool(true))),
            "false" => Ok(Node::Val(Val::Bool(false))),
            "null" => Ok(Node::Val(Val::Null)),
            "params" => self.param(),
            "values" if self.take(".") => match self.name()?.as_str() {
                "length" => Ok(Node::Length),
                other => Err(compile_error(&format!("Cannot resolve symbol [values.{other}]."))),
            },
            "values" => Ok(Node::Values),
            "Double" if self.take(".") => match self.name()?.as_str() {
                "NaN" => Ok(Node::Val(Val::Double(f64::NAN))),
                "POSITIVE_INFINITY" => Ok(Node::Val(Val::Double(f64::INFINITY))),
                "NEGATIVE_INFINITY" => Ok(Node::Val(Val::Double(f64::NEG_INFINITY))),
                "MAX_VALUE" => Ok(Node::Val(Val::Double(f64::MAX))),
                "isNaN" => {
                    let mut arguments = self.arguments()?;
                    match (arguments.pop(), arguments.is_empty()) {
                        // Only what is not a number differs from itself.
                        (Some(number), true) => {
                            Ok(Node::Binary(Binary::NotEqual, Box::new(number.clone()), Box::new(number)))
                        }
                        _ => Err(compile_error("Double.isNaN takes one argument.")),
                    }
                }
                other => Err(compile_error(&format!("Cannot resolve symbol [Double.{other}]."))),
            },
            "Math" | "MovingFunctions" if self.take(".") => {
                let function = self.name()?;
                if name == "Math" && !self.is("(") {
                    return match function.as_str() {
                        "PI" => Ok(Node::Val(Val::Double(std::f64::consts::PI))),
                        "E" => Ok(Node::Val(Val::Double(std::f64::consts::E))),
                        other => Err(compile_error(&format!("Cannot resolve symbol [Math.{other}]."))),
                    };
                }
                let arguments = self.arguments()?;
                let found = if name == "Math" {
                    math(&function)
                } else {
                    moving::Function::find(&function)
                        .map(|found| (Function::Moving(found), found.arguments()))
                };
                match found {
                    Some((found, number)) if number == arguments.len() => Ok(Node::Call(found, arguments)),
                    _ => Err(compile_error(&format!(
                        "Unknown call [{name}.{function}] with [{}] arguments.",
                        arguments.len()
                    ))),
                }
            }
            other if self.is(".") || self.is("(") => Err(compile_error(&format!(
                "Cannot resolve symbol [{other}]: only expressions over [params], [Math] and [MovingFunctions] are supported."
            ))),
            other => Err(compile_error(&format!("Cannot resolve symbol [{other}]."))),
        }
    }

    /// Parses what a name of Lucene's language begins: a call, or the value of that name.
    fn bare(&mut self, name: &str) -> Result<Node> {
        if self.is(".") {
            return Err(compile_error(&format!(
                "Unknown variable [{name}]: expressions know the names of [buckets_path] and [params]."
            )));
        }
        if !self.is("(") {
            return Ok(Node::Param(name.to_owned()));
        }
        let arguments = self.arguments()?;
        match lucene_function(name) {
            Some((found, number)) if number == arguments.len() => Ok(Node::Call(found, arguments)),
            _ => Err(compile_error(&format!("Unknown call [{name}] with [{}] arguments.", arguments.len()))),
        }
    }

    /// Parses the member behind `params`.
    fn param(&mut self) -> Result<Node> {
        if self.take(".") {
            let mut name = self.name()?;
            if name == "get" && self.take("(") {
                name = self.text()?;
                self.expect(")")?;
            }
            return Ok(Node::Param(name));
        }
        self.expect("[")?;
        let name = self.text()?;
        self.expect("]")?;
        Ok(Node::Param(name))
    }

    fn text(&mut self) -> Result<String> {
        match self.peek().cloned() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(text)
            }
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Node>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if self.take(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }
}

/// Finds a function of `Math`, with the number of its arguments.
/// Finds a function of Lucene's expressions, with the number of its arguments
/// (<https://lucene.apache.org/core/8_7_0/expressions/org/apache/lucene/expressions/js/package-summary.html>).
fn lucene_function(name: &str) -> Option<(Function, usize)> {
    match name {
        "acosh" => Some((Function::One(f64::acosh), 1)),
        "asinh" => Some((Function::One(f64::asinh), 1)),
        "atanh" => Some((Function::One(f64::atanh), 1)),
        "ln" => Some((Function::One(f64::ln), 1)),
        "logn" => Some((Function::Two(|base, x| x.ln() / base.ln()), 2)),
        "abs" | "acos" | "asin" | "atan" | "atan2" | "ceil" | "cos" | "cosh" | "exp" | "floor" | "log10"
        | "max" | "min" | "pow" | "sin" | "sinh" | "sqrt" | "tan" | "tanh" => math(name),
        _ => None,
    }
}

fn math(name: &str) -> Option<(Function, usize)> {
    let one = |function: fn(f64) -> f64| Some((Function::One(function), 1));
    let two = |function: fn(f64, f64) -> f64| Some((Function::Two(function), 2));
    match name {
        "abs" => Some((Function::Abs, 1)),
        "max" => Some((Function::Max, 2)),
        "min" => Some((Function::Min, 2)),
        "round" => Some((Function::Round, 1)),
        "acos" => one(f64::acos),
        "asin" => one(f64::asin),
        "atan" => one(f64::atan),
        "atan2" => two(f64::atan2),
        "cbrt" => one(f64::cbrt),
        "ceil" => one(f64::ceil),
        "cos" => one(f64::cos),
        "cosh" => one(f64::cosh),
        "exp" => one(f64::exp),
        "expm1" => one(f64::exp_m1),
        "floor" => one(f64::floor),
        "hypot" => two(f64::hypot),
        "log" => one(f64::ln),
        "log10" => one(f64::log10),
        "log1p" => one(f64::ln_1p),
        "pow" => two(f64::powf),
        "rint" => one(f64::round_ties_even),
        "signum" => one(|x| if x == 0.0 { x } else { x.signum() }),
        "sin" => one(f64::sin),
        "sinh" => one(f64::sinh),
        "sqrt" => one(f64::sqrt),
        "tan" => one(f64::tan),
        "tanh" => one(f64::tanh),
        "toDegrees" => one(f64::to_degrees),
        "toRadians" => one(f64::to_radians),
        _ => None,
    }
}
