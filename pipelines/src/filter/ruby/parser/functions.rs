//! Functions that a script defines. They may be called before their definition, and may call themselves.

use std::sync::Arc;

use super::super::syntax::{Call, Expr, Function, Position, Target};
use super::super::token::TokenKind;
use super::{ParseResult, Parser};

/// Most functions of a script.
const MAX_FUNCTIONS: usize = 200;

impl Parser {
    /// Finds the names of all functions.
    pub(super) fn name_functions(&mut self) {
        for pair in self.tokens.windows(2) {
            if let [def, name] = pair
                && def.kind == TokenKind::Keyword("def")
                && let TokenKind::Name(name) = &name.kind
                && self.functions.len() < MAX_FUNCTIONS
                && !self.functions.iter().any(|(have, _)| have == name)
            {
                self.functions.push((name.clone(), None));
            }
        }
    }

    /// Forgets functions that have another meaning in a file of scripts.
    pub(in super::super) fn exclude_functions(&mut self, names: &[&str]) {
        self.functions.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// Returns whether a constant is set here.
    pub(in super::super) fn begins_constant(&self) -> bool {
        matches!(self.ahead(1), TokenKind::Op("="))
    }

    /// Returns whether a function that the script may call is defined here.
    pub(in super::super) fn begins_function(&self) -> bool {
        matches!(self.ahead(1), TokenKind::Name(name) if self.function(name).is_some())
    }

    /// Parses the value of a constant, which outlives events.
    pub(in super::super) fn constant_assignment(&mut self, name: String) -> ParseResult<Expr> {
        self.advance();
        self.expect_op("=")?;
        self.skip_newlines();
        let value = self.expression()?;
        let target = Target::State(Arc::from(name.as_str()));
        self.constants.push(name);
        Ok(Expr::Assign(target, Box::new(value)))
    }

    /// Returns the number of local variables of the scope.
    pub(in super::super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns whether a function has variables that outlive an event.
    pub(in super::super) fn functions_have_state(&self) -> bool {
        self.functions_have_state
    }

    /// Returns the number of a function.
    pub(super) fn function(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|(have, _)| have == name)
    }

    /// Returns all functions by their numbers.
    pub(in super::super) fn take_functions(&mut self) -> Vec<Option<Arc<Function>>> {
        std::mem::take(&mut self.functions).into_iter().map(|(_, function)| function).collect()
    }

    /// Parses the arguments of a call.
    pub(super) fn function_call(&mut self, function: usize, at: Position) -> ParseResult<Expr> {
        match self.finish_call(None, "call", false, at)? {
            Expr::Call(call) => match *call {
                Call { args, block: None, .. } => Ok(Expr::CallFunction { function, args, at }),
                _ => self.fault(at, "functions of a script take no blocks"),
            },
            _ => self.unexpected(),
        }
    }

    /// Parses a function behind `def`.
    pub(in super::super) fn function_definition(&mut self, at: Position) -> ParseResult<Expr> {
        if self.is_in_function {
            return self.fault(at, "[def] within a function is not supported: put it before that");
        }
        let TokenKind::Name(name) = self.kind().clone() else { return self.unexpected() };
        let Some(number) = self.function(&name) else {
            let message = match self.functions.len() < MAX_FUNCTIONS {
                true => format!("[def {name}] is not expected here"),
                false => format!("the script defines more than {MAX_FUNCTIONS} functions"),
            };
            return self.fault(at, message);
        };
        if self.functions.get(number).is_some_and(|(_, function)| function.is_some()) {
            return self.fault(at, format!("the function [{name}] is defined twice"));
        }
        self.advance();
        let parameters = self.parameters()?;
        let first = parameters.iter().cloned().enumerate().map(|(slot, name)| (name, slot)).collect();
        let scopes = std::mem::replace(&mut self.scopes, vec![first]);
        let slots = std::mem::replace(&mut self.slots, parameters.len());
        let has_state = std::mem::replace(&mut self.has_state, false);
        self.is_in_function = true;
        let body = self.begin()?;
        self.is_in_function = false;
        self.functions_have_state |= self.has_state;
        self.has_state |= has_state;
        self.scopes = scopes;
        let slots = std::mem::replace(&mut self.slots, slots);
        let function = Function { name: name.clone(), parameters: parameters.len(), slots, body };
        if let Some((_, parsed)) = self.functions.get_mut(number) {
            *parsed = Some(Arc::new(function));
        }
        Ok(Expr::Symbol(Arc::from(name)))
    }

    fn parameters(&mut self) -> ParseResult<Vec<String>> {
        let is_enclosed = self.take_op("(");
        let mut parameters = Vec::new();
        while let TokenKind::Name(name) = self.kind().clone() {
            self.advance();
            parameters.push(name);
            if !self.take_op(",") {
                break;
            }
        }
        if is_enclosed {
            if !self.is_op(")") {
                return self.fault(
                    self.at(),
                    "parameters of functions are names: default values and other forms are not supported",
                );
            }
            self.expect_op(")")?;
        }
        Ok(parameters)
    }
}
