//! Values, and the calls and indexes behind them.

use std::sync::{Arc, OnceLock};

use super::super::methods;
use super::super::syntax::{Block, Call, Expr, Position, Target};
use super::super::token::TokenKind;
use super::{ParseResult, Parser};

impl Parser {
    pub(super) fn postfix(&mut self) -> ParseResult<Expr> {
        let outer = std::mem::take(&mut self.height);
        let value = self.primary()?;
        let value = self.postfix_of(value)?;
        self.height = self.height.max(outer);
        Ok(value)
    }

    /// Parses calls and indexes behind a value.
    pub(super) fn postfix_of(&mut self, mut value: Expr) -> ParseResult<Expr> {
        loop {
            let at = self.at();
            let height = std::mem::take(&mut self.height);
            match self.kind() {
                TokenKind::Op(op @ ("." | "&.")) => {
                    let safe = *op == "&.";
                    self.next += 1;
                    value = self.member(value, safe)?;
                }
                TokenKind::Op("[") if !self.token().spaced => {
                    self.next += 1;
                    let args = self.arguments("]")?;
                    value = self.call(Some(value), "[]", args, at)?;
                }
                TokenKind::Op("::") if matches!(self.ahead(1), TokenKind::Name(_)) => {
                    self.next += 1;
                    value = self.member(value, false)?;
                }
                _ => {
                    self.height = height;
                    return Ok(value);
                }
            }
            self.link(height)?;
        }
    }

    fn member(&mut self, receiver: Expr, safe: bool) -> ParseResult<Expr> {
        let at = self.at();
        if self.is_op("(") {
            self.next += 1;
            let args = self.arguments(")")?;
            let name = self.method("call", at)?;
            return Ok(Expr::Call(Box::new(Call {
                receiver: Some(receiver),
                name,
                args,
                block: None,
                safe,
                at,
            })));
        }
        let start = self.next;
        let name = match self.advance() {
            TokenKind::Name(name) | TokenKind::Constant(name) => name,
            TokenKind::Keyword(word) => word.to_owned(),
            TokenKind::Label(name) => {
                // `cond ? a.b: c` is not told apart from a label by its letters alone.
                return self
                    .fault(at, format!("[{name}:] is not expected here: put a space before the colon"));
            }
            _ => {
                self.next = start;
                return self.unexpected();
            }
        };
        let is_assigned = self.is_op("=") || matches!(self.kind(), TokenKind::Op("||=" | "+=" | "-="));
        let name = if is_assigned && methods::find(&name).is_none() {
            return self.fault(at, format!("the attribute [{name}] cannot be assigned"));
        } else {
            self.method(&name, at)?
        };
        self.finish_call(Some(receiver), name, safe, at)
    }

    /// Parses the arguments and the block of a call behind its name.
    pub(super) fn finish_call(
        &mut self,
        receiver: Option<Expr>,
        name: &'static str,
        safe: bool,
        at: Position,
    ) -> ParseResult<Expr> {
        let mut args = Vec::new();
        let mut block = None;
        let mut is_command = false;
        if self.is_op("(") && !self.token().spaced {
            self.next += 1;
            args = self.arguments(")")?;
        } else if self.begins_argument(receiver.is_none()) {
            is_command = true;
            args = self.command_arguments()?;
        }
        if let Some((name, at)) = self.block_method.take() {
            block = Some(Block::Method(self.method(&name, at)?, at));
        }
        if self.is_op("{") && !is_command {
            block = Some(self.block("}")?);
        } else if self.is_keyword("do") && !self.is_loop_condition {
            block = Some(self.block("end")?);
        }
        Ok(Expr::Call(Box::new(Call { receiver, name, args, block, safe, at })))
    }

    /// Returns whether an argument without parentheses begins here.
    fn begins_argument(&self, is_function: bool) -> bool {
        if !self.token().spaced {
            // `value.is_a?String`
            let before = self.next.checked_sub(1).and_then(|before| self.tokens.get(before));
            let asks = before
                .is_some_and(|token| matches!(&token.kind, TokenKind::Name(name) if name.ends_with('?')));
            return asks && matches!(self.kind(), TokenKind::Constant(_) | TokenKind::Name(_));
        }
        let next_is_tight = self.tokens.get(self.next + 1).is_some_and(|token| !token.spaced);
        match self.kind() {
            TokenKind::Int(_)
            | TokenKind::Float(_)
            | TokenKind::Text(_)
            | TokenKind::Symbol(_)
            | TokenKind::Regex(..)
            | TokenKind::Words(_)
            | TokenKind::Name(_)
            | TokenKind::Constant(_)
            | TokenKind::Label(_)
            | TokenKind::State(_)
            | TokenKind::Group(_) => true,
            TokenKind::Keyword(word) => {
                matches!(*word, "nil" | "true" | "false" | "self" | "defined?" | "not")
            }
            TokenKind::Op("[") => is_function,
            TokenKind::Op("(") => true,
            TokenKind::Op("&" | "*") => next_is_tight,
            TokenKind::Op("!") => true,
            TokenKind::Op("-") => is_function && next_is_tight,
            _ => false,
        }
    }

    fn command_arguments(&mut self) -> ParseResult<Vec<Expr>> {
        let mut args = Vec::new();
        let mut pairs = Vec::new();
        loop {
            self.argument(&mut args, &mut pairs)?;
            if !self.take_op(",") {
                break;
            }
            self.skip_newlines();
        }
        if !pairs.is_empty() {
            args.push(Expr::Hash(pairs));
        }
        Ok(args)
    }

    /// Parses arguments up to the closing sign; `name: value` and `key => value` at the end make a hash.
    fn arguments(&mut self, close: &str) -> ParseResult<Vec<Expr>> {
        let outer = std::mem::replace(&mut self.is_loop_condition, false);
        let mut args = Vec::new();
        let mut pairs = Vec::new();
        loop {
            self.skip_newlines();
            if self.take_op(close) {
                break;
            }
            self.argument(&mut args, &mut pairs)?;
            self.skip_newlines();
            if !self.take_op(",") {
                self.skip_newlines();
                self.expect_op(close)?;
                break;
            }
        }
        self.is_loop_condition = outer;
        if !pairs.is_empty() {
            args.push(Expr::Hash(pairs));
        }
        Ok(args)
    }

    fn argument(&mut self, args: &mut Vec<Expr>, pairs: &mut Vec<(Expr, Expr)>) -> ParseResult<()> {
        if let TokenKind::Label(name) = self.kind().clone() {
            self.next += 1;
            self.skip_newlines();
            pairs.push((Expr::Symbol(Arc::from(name)), self.expression()?));
            return Ok(());
        }
        if self.is_op("*") {
            args.push(self.splat()?);
            return Ok(());
        }
        if self.is_op("&") {
            self.next += 1;
            let at = self.at();
            let TokenKind::Symbol(name) = self.advance() else {
                return self
                    .fault(at, "a block is given as `{ |value| … }`, or as the name of a method: &:name");
            };
            self.block_method = Some((name, at));
            return Ok(());
        }
        let value = self.expression()?;
        if self.take_op("=>") {
            self.skip_newlines();
            pairs.push((value, self.expression()?));
        } else {
            args.push(value);
        }
        Ok(())
    }

    fn block(&mut self, close: &'static str) -> ParseResult<Block> {
        self.next += 1;
        let outer = std::mem::replace(&mut self.is_loop_condition, false);
        self.scopes.push(Vec::new());
        let first = self.slots;
        let mut params = Vec::new();
        if self.take_op("||") {
            // No parameters.
        } else if self.take_op("|") {
            while !self.take_op("|") {
                params.push(self.parameter()?);
                if !self.take_op(",") && !self.is_op("|") {
                    return self.unexpected();
                }
            }
        }
        let body =
            self.deeper(|parser| parser.statements(if close == "end" { &["end", "rescue"] } else { &[] }));
        self.scopes.pop();
        self.is_loop_condition = outer;
        let body = body?;
        if close == "end" {
            self.expect_keyword("end")?
        } else {
            self.expect_op("}")?
        }
        Ok(Block::Code { params, body, own: (first..self.slots).collect() })
    }

    fn parameter(&mut self) -> ParseResult<Target> {
        if self.take_op("*") {
            let rest = match self.kind().clone() {
                TokenKind::Name(name) => {
                    self.next += 1;
                    Some(Box::new(Target::Local(self.declare_own(&name))))
                }
                _ => None,
            };
            return Ok(Target::Rest(rest));
        }
        if self.take_op("(") {
            let mut params = Vec::new();
            while !self.take_op(")") {
                params.push(self.parameter()?);
                if !self.take_op(",") && !self.is_op(")") {
                    return self.unexpected();
                }
            }
            return Ok(Target::Nested(params));
        }
        let start = self.next;
        match self.advance() {
            TokenKind::Name(name) => Ok(Target::Local(self.declare_own(&name))),
            _ => {
                self.next = start;
                self.unexpected()
            }
        }
    }

    /// Parses `A::B`.
    pub(super) fn constant_path(&mut self) -> ParseResult<String> {
        let TokenKind::Constant(mut path) = self.advance() else { return self.unexpected() };
        while self.is_op("::") {
            let TokenKind::Constant(name) = self.ahead(1).clone() else { break };
            self.next += 2;
            path = format!("{path}::{name}");
        }
        Ok(path)
    }

    fn constant(&mut self) -> ParseResult<Expr> {
        let at = self.at();
        self.take_op("::");
        let path = self.constant_path()?;
        if self.constants.contains(&path) {
            return Ok(Expr::State(self.state(&path, at)));
        }
        if self.is_op("(") && !self.token().spaced {
            return match methods::function(&path) {
                Some(name) => self.finish_call(None, name, false, at),
                None => self.fault(at, format!("the function [{path}] is not supported")),
            };
        }
        match methods::constant(&path) {
            Ok(name) => Ok(Expr::Constant(name)),
            Err(message) => self.fault(at, message),
        }
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        let (at, start) = (self.at(), self.next);
        match self.advance() {
            TokenKind::Int(number) => Ok(Expr::Int(number)),
            TokenKind::Float(number) => Ok(Expr::Float(number)),
            TokenKind::Symbol(name) => Ok(Expr::Symbol(Arc::from(name))),
            TokenKind::Group(group) => Ok(Expr::Group(group)),
            TokenKind::State(name) => Ok(Expr::State(self.state(&name, at))),
            TokenKind::Words(words) => {
                let text = |word: String| Expr::Text(vec![super::TextItem::Literal(Arc::from(word))]);
                Ok(Expr::Array(words.into_iter().map(text).collect()))
            }
            TokenKind::Text(items) => {
                let mut items = self.text_items(items)?;
                // Texts that follow one another are one.
                while let TokenKind::Text(more) = self.kind().clone() {
                    self.next += 1;
                    items.extend(self.text_items(more)?);
                }
                Ok(Expr::Text(items))
            }
            TokenKind::Regex(items, flags) => {
                let items = self.text_items(items)?;
                Ok(Expr::Regex { items, flags, at, compiled: OnceLock::new() })
            }
            TokenKind::Constant(_) | TokenKind::Op("::") => {
                self.next = start;
                self.constant()
            }
            TokenKind::Name(name) => self.name(&name, at),
            TokenKind::Keyword(word) => self.keyword(word, at),
            TokenKind::Op("(") => {
                let outer = std::mem::replace(&mut self.is_loop_condition, false);
                let inner = self.deeper(|parser| parser.statements(&[]));
                self.is_loop_condition = outer;
                let inner = inner?;
                self.expect_op(")")?;
                Ok(inner)
            }
            TokenKind::Op("[") => Ok(Expr::Array(self.arguments("]")?)),
            TokenKind::Op("{") => self.hash(),
            TokenKind::Op("->") => {
                self.fault(at, "lambdas are not supported: write the code where it is needed")
            }
            _ => {
                self.next = start;
                self.unexpected()
            }
        }
    }

    fn name(&mut self, name: &str, at: Position) -> ParseResult<Expr> {
        let assigns = matches!(
            self.kind(),
            TokenKind::Op(
                "=" | "+=" | "-=" | "*=" | "/=" | "||=" | "&&=" | "<<=" | "%=" | "**=" | "|=" | "&="
            )
        );
        let is_call = self.is_op("(") && !self.token().spaced;
        if !is_call {
            if assigns {
                return Ok(Expr::Local(self.declare(name)));
            }
            if let Some(slot) = self.local(name) {
                return Ok(Expr::Local(slot));
            }
        }
        if let Some(function) = self.function(name) {
            return self.function_call(function, at);
        }
        match methods::function(name) {
            Some(name) => self.finish_call(None, name, false, at),
            None => {
                let reason = methods::refused_function(name);
                self.fault(
                    at,
                    format!(
                        "there is no variable [{name}], and the function [{name}] is not supported{reason}"
                    ),
                )
            }
        }
    }

    fn keyword(&mut self, word: &'static str, at: Position) -> ParseResult<Expr> {
        match word {
            "nil" => Ok(Expr::Nil),
            "true" => Ok(Expr::True),
            "false" => Ok(Expr::False),
            "if" | "unless" => self.deeper(|parser| parser.branch(word == "unless")),
            "while" | "until" => self.deeper(|parser| parser.while_loop(word == "until")),
            "for" => self.deeper(Self::for_loop),
            "case" => self.deeper(Self::case),
            "begin" => self.deeper(Self::begin),
            "not" => Ok(Expr::Not(Box::new(self.expression()?))),
            "defined?" => {
                let is_enclosed = self.take_op("(");
                // A name that nothing declares is not defined.
                let unknown = matches!(self.kind(), TokenKind::Name(name) if self.local(name).is_none() && methods::function(name).is_none());
                let value = if unknown {
                    self.next += 1;
                    Expr::Nil
                } else {
                    self.ternary()?
                };
                if is_enclosed {
                    self.expect_op(")")?;
                }
                Ok(Expr::Defined(Box::new(value)))
            }
            "return" | "next" | "break" => {
                let is_bare =
                    matches!(self.kind(), TokenKind::Newline | TokenKind::End | TokenKind::Op("}" | ")"))
                        || matches!(
                            self.kind(),
                            TokenKind::Keyword("if" | "unless" | "end" | "while" | "until")
                        );
                let value = Box::new(if is_bare { Expr::Nil } else { self.expression()? });
                Ok(match word {
                    "return" => Expr::Return(value),
                    "next" => Expr::Next(value),
                    _ => Expr::Break(value),
                })
            }
            "def" => self.deeper(|parser| parser.function_definition(at)),
            "class" | "module" => {
                self.fault(at, format!("[{word}] is not supported: write the code where it is needed"))
            }
            other => {
                self.next = self.next.saturating_sub(1);
                if matches!(other, "redo" | "retry" | "yield" | "super" | "alias" | "self") {
                    return self.fault(at, format!("[{other}] is not supported"));
                }
                self.unexpected()
            }
        }
    }

    fn hash(&mut self) -> ParseResult<Expr> {
        let mut pairs = Vec::new();
        loop {
            self.skip_newlines();
            if self.take_op("}") {
                break;
            }
            let key = match self.kind().clone() {
                TokenKind::Label(name) => {
                    self.next += 1;
                    Expr::Symbol(Arc::from(name))
                }
                TokenKind::Text(items) if matches!(self.ahead(1), TokenKind::Op(":")) => {
                    self.next += 2;
                    let items = self.text_items(items)?;
                    match items.as_slice() {
                        [super::TextItem::Literal(name)] => Expr::Symbol(Arc::clone(name)),
                        _ => Expr::Text(items),
                    }
                }
                _ => {
                    let key = self.ternary()?;
                    self.skip_newlines();
                    self.expect_op("=>")?;
                    key
                }
            };
            self.skip_newlines();
            pairs.push((key, self.expression()?));
            self.skip_newlines();
            if !self.take_op(",") {
                self.expect_op("}")?;
                break;
            }
        }
        Ok(Expr::Hash(pairs))
    }
}
