//! The expressions of `bucket_script`, `bucket_selector` and `moving_fn`.
//!
//! A small language that reads as the Painless that users write there: numbers, `params.x`, arithmetic, comparisons, logic,
//! `?:`, `if` and `return`, functions of `Math`, and in `moving_fn` `values` and the functions of `MovingFunctions`. There are
//! no loops, no variables and no strings but keys, so that an expression always ends, in time proportional to its length
//! (and the window's). What else Painless has is refused by name.

mod evaluate;
mod lexer;
mod moving;
mod parser;

use std::collections::BTreeMap;

use millrace_work::error::{Error, Result};
use serde_json::Value;

pub use evaluate::Scope;

/// Longest source.
const MAX_LENGTH: usize = 65_535;

/// The language of a source, as `lang` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// `painless`: values are members of `params`.
    #[default]
    Painless,
    /// `expression`, of Lucene: values are bare names, and functions have no `Math` before them.
    Lucene,
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
    language: Language,
    params: BTreeMap<String, Val>,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Val {
    /// Nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number: of the source, or a count.
    Int(i64),
    /// A floating point number.
    Double(f64),
    /// The values of a window.
    Values,
}

/// A node of the tree.
#[derive(Clone, Debug)]
enum Node {
    Val(Val),
    /// `params.name`, or the bare name.
    Param(String),
    /// `values`.
    Values,
    /// `values.length`.
    Length,
    Not(Box<Node>),
    Minus(Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
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

/// Functions of expressions.
#[derive(Clone, Copy, Debug)]
enum Function {
    /// A function of one number.
    One(fn(f64) -> f64),
    /// A function of two numbers.
    Two(fn(f64, f64) -> f64),
    /// A function of `Math` that keeps whole numbers whole.
    Abs,
    Max,
    Min,
    Round,
    /// A function over a window.
    Moving(moving::Function),
}

impl Expression {
    /// Parses a source; `params` are the numbers and booleans that it knows beside what it is evaluated with.
    ///
    /// # Errors
    /// A `script_exception` that says where the source cannot be read.
    pub fn parse(source: &str, language: Language, params: &BTreeMap<String, Value>) -> Result<Self> {
        if source.len() > MAX_LENGTH {
            return Err(Error::IllegalArgument(format!(
                "exceeded max allowed inline script size in bytes [{MAX_LENGTH}] with size [{}] for script",
                source.len()
            )));
        }
        let params = params.iter().map(|(name, value)| {
            let value = match value {
                Value::Bool(flag) => Val::Bool(*flag),
                other => match other.as_i64() {
                    Some(whole) if language == Language::Painless => Val::Int(whole),
                    _ => Val::Double(other.as_f64().unwrap_or(f64::NAN)),
                },
            };
            (name.clone(), value)
        });
        Ok(Self { root: parser::parse(source, language)?, language, params: params.collect() })
    }

    /// Evaluates to a number; `None` is null.
    ///
    /// # Errors
    /// Operands that do not fit, division of whole numbers by zero.
    pub fn number(&self, scope: &Scope<'_>) -> Result<Option<f64>> {
        match self.root.evaluate(self, scope)? {
            Val::Null => Ok(None),
            Val::Int(number) => Ok(Some(number as f64)),
            Val::Double(number) => Ok(Some(number)),
            Val::Bool(flag) if self.language == Language::Lucene => Ok(Some(f64::from(flag))),
            Val::Bool(_) => Err(compile_error("Cannot cast from [boolean] to [java.lang.Number].")),
            Val::Values => Err(compile_error("Cannot cast from [double[]] to [java.lang.Number].")),
        }
    }

    /// Evaluates to a boolean.
    ///
    /// # Errors
    /// As [`Self::number`], and what is no boolean.
    pub fn boolean(&self, scope: &Scope<'_>) -> Result<bool> {
        match self.root.evaluate(self, scope)? {
            Val::Bool(flag) => Ok(flag),
            Val::Null => Err(runtime_error("cannot cast def [null] to boolean")),
            Val::Int(_) => Err(runtime_error("cannot cast def [int] to boolean")),
            Val::Double(_) => Err(runtime_error("cannot cast def [double] to boolean")),
            Val::Values => Err(runtime_error("cannot cast def [double[]] to boolean")),
        }
    }
}

fn compile_error(reason: &str) -> Error {
    Error::Exception { kind: "script_exception", status: 400, reason: format!("compile error: {reason}") }
}

fn runtime_error(reason: &str) -> Error {
    Error::Exception { kind: "script_exception", status: 400, reason: format!("runtime error: {reason}") }
}

#[cfg(test)]
mod tests;
