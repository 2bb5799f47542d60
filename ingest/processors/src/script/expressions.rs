//! From tokens to the tree of a script: expressions.

use std::sync::Arc;

use super::collection::{has_lambdas, takes_lambdas};
use super::lexer::TokenKind;
use super::methods::is_method;
use super::parser::{MAX_DEPTH, Parser, Result};
use super::pattern::ScriptPattern;
use super::static_function::StaticFunction;
use super::tree::{Assignment, Binary, Class, Expression, Lambda, Link, Literal, Node, Statement, ValueType};

/// Most expressions within one another, members and calls in a row included.
const MAX_HEIGHT: usize = 100;
/// Most compiled regular expressions of a script.
const MAX_PATTERNS: usize = 100;

/// Operators between two values, with their precedence. `instanceof` stands with the comparisons.
const OPERATORS: [(&str, usize, Binary); 23] = [
    ("||", 0, Binary::Or),
    ("&&", 1, Binary::And),
    ("|", 2, Binary::BitOr),
    ("^", 3, Binary::BitXor),
    ("&", 4, Binary::BitAnd),
    ("==", 5, Binary::Equal),
    ("!=", 5, Binary::NotEqual),
    ("===", 5, Binary::Equal),
    ("!==", 5, Binary::NotEqual),
    ("<=", 6, Binary::LessOrEqual),
    (">=", 6, Binary::GreaterOrEqual),
    ("<", 6, Binary::Less),
    (">", 6, Binary::Greater),
    ("<<", 7, Binary::ShiftLeft),
    (">>", 7, Binary::ShiftRight),
    (">>>", 7, Binary::ShiftRightUnsigned),
    ("=~", 8, Binary::Find),
    ("==~", 8, Binary::Match),
    ("+", 9, Binary::Add),
    ("-", 9, Binary::Subtract),
    ("*", 10, Binary::Multiply),
    ("/", 10, Binary::Divide),
    ("%", 10, Binary::Remainder),
];

impl Parser {
    pub(super) fn expression(&mut self) -> Result<Node> {
        let node = self.nested(Self::assignment)?;
        self.checked(node)
    }

    fn assignment(&mut self) -> Result<Node> {
        let target = self.conditional()?;
        let offset = self.offset();
        let operator = match self.peek() {
            TokenKind::Symbol("=") => Assignment::Set,
            TokenKind::Symbol("+=") => Assignment::Compute(Binary::Add),
            TokenKind::Symbol("-=") => Assignment::Compute(Binary::Subtract),
            TokenKind::Symbol("*=") => Assignment::Compute(Binary::Multiply),
            TokenKind::Symbol("/=") => Assignment::Compute(Binary::Divide),
            TokenKind::Symbol("%=") => Assignment::Compute(Binary::Remainder),
            TokenKind::Symbol("&=") => Assignment::Compute(Binary::BitAnd),
            TokenKind::Symbol("|=") => Assignment::Compute(Binary::BitOr),
            TokenKind::Symbol("^=") => Assignment::Compute(Binary::BitXor),
            TokenKind::Symbol("<<=") => Assignment::Compute(Binary::ShiftLeft),
            TokenKind::Symbol(">>=") => Assignment::Compute(Binary::ShiftRight),
            TokenKind::Symbol(symbol @ ("->" | "::")) => {
                return Err((offset, format!("[{symbol}] is supported only in the arguments of methods")));
            }
            _ => return Ok(target),
        };
        if !target.is_assignable() {
            return Err((target.offset, "Left-hand side cannot be assigned a value.".to_owned()));
        }
        self.at += 1;
        let value = self.expression()?;
        Ok(Node::new(offset, Expression::Assign(operator, Box::new(target), Box::new(value))))
    }

    fn conditional(&mut self) -> Result<Node> {
        let condition = self.binary(0)?;
        let offset = self.offset();
        if self.accept("?:") {
            let otherwise = self.expression()?;
            return Ok(Node::new(offset, Expression::Elvis(Box::new(condition), Box::new(otherwise))));
        }
        if !self.accept("?") {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        let choices = (Box::new(condition), Box::new(then), Box::new(otherwise));
        Ok(Node::new(offset, Expression::Conditional(choices.0, choices.1, choices.2)))
    }

    /// Returns the operator that stands here, with its precedence; `None` for the operator of `instanceof`.
    fn operator(&self) -> Option<(usize, Option<Binary>)> {
        Some(match self.peek() {
            TokenKind::Name(name) if name == "instanceof" => (6, None),
            TokenKind::Symbol(symbol) => {
                let (_, level, operator) = OPERATORS.iter().find(|(known, ..)| known == symbol)?;
                (*level, Some(*operator))
            }
            _ => return None,
        })
    }

    /// Parses operators of a precedence, and of higher ones.
    fn binary(&mut self, minimum: usize) -> Result<Node> {
        let mut left = self.unary()?;
        loop {
            let offset = self.offset();
            let (level, operator) = match self.operator() {
                Some((level, operator)) if level >= minimum => (level, operator),
                _ => return Ok(left),
            };
            if operator.is_none() {
                self.at += 1;
                let of = self.value_type()?;
                left = self.checked(Node::new(offset, Expression::InstanceOf(Box::new(left), of)))?;
                continue;
            }
            let mut links = Vec::new();
            while let Some((same, Some(operator))) = self.operator()
                && same == level
            {
                let offset = self.offset();
                self.at += 1;
                links.push(Link { offset, operator, operand: self.binary(level + 1)? });
            }
            left = self.checked(Node::new(offset, Expression::Chain(Box::new(left), links)))?;
        }
    }

    /// Refuses an expression that is nested too deeply to be evaluated.
    fn checked(&self, node: Node) -> Result<Node> {
        match node.height > MAX_HEIGHT {
            true => Err((node.offset, format!("an expression is nested deeper than {MAX_HEIGHT} levels"))),
            false => Ok(node),
        }
    }

    fn value_type(&mut self) -> Result<ValueType> {
        let offset = self.offset();
        let TokenKind::Name(name) = self.next() else { return Err((offset, "expected a type".to_owned())) };
        ValueType::parse(&name).ok_or_else(|| (offset, format!("Not a type [{name}].")))
    }

    fn unary(&mut self) -> Result<Node> {
        self.nested(Self::unary_within)
    }

    fn unary_within(&mut self) -> Result<Node> {
        let offset = self.offset();
        if self.accept("!") {
            return Ok(Node::new(offset, Expression::Not(Box::new(self.unary()?))));
        }
        if self.accept("-") {
            return Ok(Node::new(offset, Expression::Minus(Box::new(self.unary()?))));
        }
        if self.accept("~") {
            return Ok(Node::new(offset, Expression::Complement(Box::new(self.unary()?))));
        }
        if self.accept("+") {
            return self.unary();
        }
        for (symbol, delta) in [("++", 1), ("--", -1)] {
            if self.accept(symbol) {
                let target = self.unary()?;
                return self.increment(offset, target, delta, true);
            }
        }
        if self.is_symbol(0, "(")
            && self.is_symbol(2, ")")
            && let TokenKind::Name(name) = self.peek_at(1)
            && let Some(of) = ValueType::parse(name)
        {
            self.at += 3;
            return Ok(Node::new(offset, Expression::Cast(of, Box::new(self.unary()?))));
        }
        let node = self.postfix()?;
        for (symbol, delta) in [("++", 1), ("--", -1)] {
            if self.accept(symbol) {
                return self.increment(offset, node, delta, false);
            }
        }
        Ok(node)
    }

    fn increment(&self, offset: usize, target: Node, delta: i64, prefix: bool) -> Result<Node> {
        if !target.is_assignable() {
            return Err((offset, "Left-hand side cannot be assigned a value.".to_owned()));
        }
        Ok(Node::new(offset, Expression::Increment(Box::new(target), delta, prefix)))
    }

    fn postfix(&mut self) -> Result<Node> {
        let mut node = self.primary()?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > MAX_DEPTH {
                return Err((self.offset(), "an expression has too many members in a row".to_owned()));
            }
            let offset = self.offset();
            let null_safe = self.is_symbol(0, "?.");
            if self.accept(".") || self.accept("?.") {
                let name = match self.next() {
                    TokenKind::Name(name) => name,
                    TokenKind::Int(position) => position.to_string(),
                    _ => {
                        self.at -= 1;
                        return Err(self.unexpected("expected a name"));
                    }
                };
                let target = Box::new(node);
                node = match self.is_symbol(0, "(") {
                    true => {
                        let arguments = self.call_arguments(true)?;
                        if !is_method(&name) {
                            return Err((offset, format!("the method [{name}] is not supported")));
                        }
                        if arguments.iter().any(has_lambdas) && !takes_lambdas(&name) {
                            let reason = format!("the method [{name}] with a lambda is not supported");
                            return Err((offset, reason));
                        }
                        Node::new(offset, Expression::Call { target, name, arguments, null_safe })
                    }
                    false => Node::new(offset, Expression::Member { target, name, null_safe }),
                };
            } else if self.accept("[") {
                let key = self.expression()?;
                self.expect("]")?;
                node = Node::new(offset, Expression::Index(Box::new(node), Box::new(key)));
            } else {
                return Ok(node);
            }
        }
    }

    /// Parses arguments without lambdas.
    pub(super) fn arguments(&mut self) -> Result<Vec<Node>> {
        self.call_arguments(false)
    }

    fn call_arguments(&mut self, with_lambdas: bool) -> Result<Vec<Node>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            let argument = match self.lambda()? {
                Some(lambda) => lambda,
                None => self.expression()?,
            };
            if !with_lambdas && matches!(argument.expression, Expression::Lambda(_)) {
                return Err((
                    argument.offset,
                    "a lambda is supported only in the arguments of methods".to_owned(),
                ));
            }
            arguments.push(argument);
            if self.accept(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    /// Parses a lambda or a reference to a function, where one stands here.
    fn lambda(&mut self) -> Result<Option<Node>> {
        let offset = self.offset();
        if let Some(node) = self.function_reference()? {
            return Ok(Some(node));
        }
        let mut names = Vec::new();
        let length = if let (TokenKind::Name(name), true) = (self.peek(), self.is_symbol(1, "->")) {
            names.push(name.clone());
            2
        } else if self.is_symbol(0, "(") {
            let mut at = 1;
            while let TokenKind::Name(name) = self.peek_at(at) {
                // A type may stand before the name.
                let typed = usize::from(matches!(self.peek_at(at + 1), TokenKind::Name(_)));
                match self.peek_at(at + typed) {
                    TokenKind::Name(named) if typed == 1 => names.push(named.clone()),
                    _ => names.push(name.clone()),
                }
                at += typed + 1;
                at += usize::from(self.is_symbol(at, ","));
            }
            if !self.is_symbol(at, ")") || !self.is_symbol(at + 1, "->") {
                return Ok(None);
            }
            at + 2
        } else {
            return Ok(None);
        };
        self.at += length;
        self.scopes.push(Vec::new());
        let parameters = names.into_iter().map(|name| self.declare(name)).collect::<Result<_>>()?;
        let body = match self.is_symbol(0, "{") {
            true => self.nested(Self::block)?,
            false => vec![Statement::Return(Some(self.expression()?))],
        };
        self.scopes.pop();
        Ok(Some(Node::new(offset, Expression::Lambda(Box::new(Lambda { parameters, body })))))
    }

    /// Parses a reference such as `Character::isUpperCase`, where one stands here.
    fn function_reference(&mut self) -> Result<Option<Node>> {
        let offset = self.offset();
        let TokenKind::Name(class) = self.peek().clone() else { return Ok(None) };
        let mut length = 1;
        while matches!(self.peek_at(length), TokenKind::Symbol("." | "[" | "]"))
            || (matches!(self.peek_at(length), TokenKind::Name(_)) && self.is_symbol(length - 1, "."))
        {
            length += 1;
        }
        let TokenKind::Name(method) = self.peek_at(length + 1).clone() else { return Ok(None) };
        if !self.is_symbol(length, "::") {
            return Ok(None);
        }
        self.at += length + 2;
        if method == "new" && self.is_symbol(0, ")") && ValueType::find(&class).is_some() {
            // The type of an array.
            return Ok(Some(Node::new(offset, Expression::Literal(Literal::Null))));
        }
        if !StaticFunction::is_class(&class) || method == "new" {
            return Err((offset, format!("[{class}::{method}] is not supported in ingest pipelines")));
        }
        self.scopes.push(Vec::new());
        let slot = self.declare(format!("{class}::{method}"))?;
        self.scopes.pop();
        let parameter = Node::new(offset, Expression::Variable(slot));
        let call = match StaticFunction::find(&class, &method) {
            Some(function) => Expression::Static(function, vec![parameter]),
            None if ValueType::find(&class).is_some() => {
                let target = Box::new(parameter);
                Expression::Call { target, name: method, arguments: Vec::new(), null_safe: false }
            }
            None => {
                return Err((offset, format!("[{class}::{method}] is not supported in ingest pipelines")));
            }
        };
        let body = vec![Statement::Return(Some(Node::new(offset, call)))];
        let lambda = Lambda { parameters: vec![slot], body };
        Ok(Some(Node::new(offset, Expression::Lambda(Box::new(lambda)))))
    }

    fn primary(&mut self) -> Result<Node> {
        let offset = self.offset();
        let literal = |literal| Ok(Node::new(offset, Expression::Literal(literal)));
        match self.peek().clone() {
            TokenKind::Int(number) => {
                self.at += 1;
                literal(Literal::Int(number))
            }
            TokenKind::Double(number) => {
                self.at += 1;
                literal(Literal::Double(number))
            }
            TokenKind::Text(text) => {
                self.at += 1;
                literal(Literal::Text(text.into()))
            }
            TokenKind::Symbol("(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Symbol("[") => self.collection(),
            TokenKind::Pattern(text, flags) => {
                self.at += 1;
                // Two expressions are compiled of it.
                self.patterns += 2;
                if self.patterns > MAX_PATTERNS {
                    let reason = format!("the script has more than {MAX_PATTERNS} regular expressions");
                    return Err((offset, reason));
                }
                let pattern = ScriptPattern::compile(&text, &flags).map_err(|reason| (offset, reason))?;
                Ok(Node::new(offset, Expression::Pattern(Arc::new(pattern))))
            }
            TokenKind::Name(name) => self.name(offset, name),
            _ => Err(self.unexpected("expected an expression")),
        }
    }

    fn collection(&mut self) -> Result<Node> {
        let offset = self.offset();
        self.expect("[")?;
        if self.accept(":") {
            self.expect("]")?;
            return Ok(Node::new(offset, Expression::Map(Vec::new())));
        }
        let (mut items, mut members) = (Vec::new(), Vec::new());
        while !self.accept("]") {
            if !items.is_empty() || !members.is_empty() {
                self.expect(",")?;
            }
            let item = self.expression()?;
            if self.accept(":") {
                members.push((item, self.expression()?));
            } else {
                items.push(item);
            }
        }
        match (items.is_empty(), members.is_empty()) {
            (false, false) => Err((offset, "a list has no keys".to_owned())),
            (true, false) => Ok(Node::new(offset, Expression::Map(members))),
            _ => Ok(Node::new(offset, Expression::List(items))),
        }
    }

    fn name(&mut self, offset: usize, name: String) -> Result<Node> {
        self.at += 1;
        let node = |expression| Ok(Node::new(offset, expression));
        match name.as_str() {
            "true" | "false" => return node(Expression::Literal(Literal::Bool(name == "true"))),
            "null" => return node(Expression::Literal(Literal::Null)),
            "new" => return self.create(offset),
            _ => {}
        }
        if let Some((_, slot)) = self.scopes.iter().flatten().find(|(known, _)| *known == name) {
            return node(Expression::Variable(*slot));
        }
        match name.as_str() {
            "ctx" | "params" if self.in_function => {
                let reason =
                    format!("cannot resolve symbol [{name}]: pass it to the function as an argument");
                return Err((offset, reason));
            }
            "ctx" => return node(Expression::Context),
            "params" => return node(Expression::Params),
            _ => {}
        }
        if self.is_symbol(0, ".")
            && let TokenKind::Name(function) = self.peek_at(1).clone()
            && StaticFunction::is_class(&name)
        {
            let Some(found) = StaticFunction::find(&name, &function) else {
                return Err((offset, format!("[{name}.{function}] is not supported in ingest pipelines")));
            };
            self.at += 2;
            let arguments = match found.is_constant() {
                true => Vec::new(),
                false => self.call_arguments(found.takes_lambdas())?,
            };
            return node(Expression::Static(found, arguments));
        }
        if self.is_symbol(0, "(") {
            let arguments = self.arguments()?;
            let number = self.function_number(&name, arguments.len(), offset)?;
            return node(Expression::Function(number, arguments));
        }
        Err((offset, format!("cannot resolve symbol [{name}]")))
    }

    /// Parses what stands behind `new`.
    fn create(&mut self, offset: usize) -> Result<Node> {
        let TokenKind::Name(name) = self.next() else {
            self.at -= 1;
            return Err(self.unexpected("expected a class"));
        };
        if self.is_symbol(0, "[") && self.is_symbol(1, "]") && ValueType::find(&name).is_some() {
            self.at += 2;
            self.expect("{")?;
            let mut items = Vec::new();
            while !self.accept("}") {
                if !items.is_empty() {
                    self.expect(",")?;
                }
                items.push(self.expression()?);
            }
            return Ok(Node::new(offset, Expression::List(items)));
        }
        let unsupported = || (offset, format!("Not a type [{name}]: [new {name}] is not supported"));
        let class = Class::parse(&name).ok_or_else(unsupported)?;
        let arguments = self.arguments()?;
        let most = if class == Class::StringTokenizer { 2 } else { 1 };
        let least = usize::from(class == Class::StringTokenizer);
        match (least..=most).contains(&arguments.len()) {
            true => Ok(Node::new(offset, Expression::New(class, arguments))),
            false => Err((offset, format!("[new {name}] does not take {} arguments", arguments.len()))),
        }
    }
}
