//! A subset of XPath 1.0: location paths of the abbreviated syntax, `|`, `string(…)`, `count(…)`, and predicates by position,
//! attribute, child, or text. Anything beyond is refused when the path is compiled, with its column.

use roxmltree::{Document, Node};
use serde_json::Value;

/// Most steps of a path.
const MAX_STEPS: usize = 64;
/// Most values that a path selects.
const MAX_VALUES: usize = 100_000;
/// Deepest nesting of elements that are written without prefixes; what is deeper is left out.
const MAX_DEPTH: usize = 200;
/// Most bytes of the values that a path selects: elements within each other have their text in common.
const MAX_SELECTED_BYTES: usize = 64 << 20;
/// Bytes of text whose copy counts as a visit.
const BYTES_PER_VISIT: usize = 256;
/// Most nodes that a path looks at.
const MAX_VISITS: usize = 10_000_000;

/// A compiled path.
#[derive(Debug)]
pub(super) struct XPath {
    function: Option<Function>,
    /// Alternatives.
    paths: Vec<LocationPath>,
    ignores_namespaces: bool,
}

/// Values of a path.
#[derive(Debug, PartialEq)]
pub(super) enum Selection {
    /// One for each node.
    Nodes(Vec<Value>),
    /// Result of a function.
    Single(Value),
}

#[derive(Clone, Copy, Debug)]
enum Function {
    Text,
    Count,
}

#[derive(Debug)]
struct LocationPath {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    /// `true` behind `//`: the step begins at all descendants.
    is_deep: bool,
    test: NodeTest,
    predicates: Vec<Predicate>,
}

#[derive(Debug)]
enum NodeTest {
    Element(NameTest),
    Attribute(NameTest),
    Text,
    Itself,
    Parent,
}

/// Name of an element or attribute; `None` for any.
#[derive(Debug)]
struct NameTest {
    local: Option<String>,
    namespace: NamespaceTest,
}

#[derive(Debug)]
enum NamespaceTest {
    /// The name has no prefix.
    Absent,
    Uri(String),
    /// The prefix of the document's root; `xmlns` is its default namespace.
    Prefix(String),
}

#[derive(Debug)]
enum Predicate {
    Position(usize),
    Last,
    Exists(Operand),
    Equals(Operand, String),
    Differs(Operand, String),
    Contains(Operand, String),
}

#[derive(Debug)]
enum Operand {
    Attribute(NameTest),
    Child(NameTest),
    Text,
    Itself,
}

/// A node of a selection: an element or text, or an attribute of an element by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Selected<'a, 'input> {
    Node(Node<'a, 'input>),
    Attribute(Node<'a, 'input>, usize),
}

impl XPath {
    /// Compiles a path.
    ///
    /// # Errors
    /// The syntax is wrong, or beyond the subset, with the column.
    pub(super) fn compile(
        text: &str,
        namespaces: &[(String, String)],
        ignores_namespaces: bool,
    ) -> Result<Self, String> {
        let mut compiler = Compiler { text, at: 0, namespaces };
        compiler.skip_space();
        let function = if compiler.take("string(") {
            Some(Function::Text)
        } else if compiler.take("count(") {
            Some(Function::Count)
        } else {
            None
        };
        let mut paths = vec![compiler.path()?];
        while compiler.take("|") {
            paths.push(compiler.path()?);
        }
        if function.is_some() && !compiler.take(")") {
            return compiler.refuse();
        }
        compiler.skip_space();
        if compiler.at < text.len() {
            return compiler.refuse();
        }
        Ok(Self { function, paths, ignores_namespaces })
    }

    /// Selects values of a document.
    ///
    /// # Errors
    /// The path looks at too many nodes, or selects too many values or bytes.
    pub(super) fn select(&self, document: &Document<'_>) -> Result<Selection, String> {
        let root = document.root_element();
        let mut walk = Walk { ignores_namespaces: self.ignores_namespaces, root, visits: 0 };
        let mut selected = Vec::new();
        for path in &self.paths {
            selected.extend(walk.path(path, document)?);
        }
        if self.paths.len() > 1 {
            dedup(&mut selected);
        }
        if selected.len() > MAX_VALUES {
            return Err(format!("a path selects more than {MAX_VALUES} values"));
        }
        Ok(match self.function {
            None => {
                let markup = |node: &Selected<'_, '_>| match (node, self.ignores_namespaces) {
                    (Selected::Node(element), true) if element.is_element() => {
                        let mut text = String::new();
                        write_without_prefixes(*element, MAX_DEPTH, &mut text);
                        text
                    }
                    _ => node.markup(document),
                };
                let (mut values, mut bytes) = (Vec::with_capacity(selected.len()), 0_usize);
                for node in &selected {
                    let text = markup(node);
                    bytes = bytes.saturating_add(text.len());
                    if bytes > MAX_SELECTED_BYTES {
                        return Err(format!("a path selects more than {MAX_SELECTED_BYTES} bytes"));
                    }
                    values.push(Value::String(text));
                }
                Selection::Nodes(values)
            }
            Some(Function::Count) => {
                Selection::Single(Value::String(format!("{:.1}", selected.len() as f64)))
            }
            Some(Function::Text) => {
                let text = selected.first().map(Selected::text).unwrap_or_default();
                Selection::Single(Value::String(text))
            }
        })
    }
}

struct Compiler<'a> {
    text: &'a str,
    at: usize,
    namespaces: &'a [(String, String)],
}

impl<'a> Compiler<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn refuse<T>(&self) -> Result<T, String> {
        let column = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        let found: String = self.rest().chars().take(20).collect();
        Err(format!(
            "[{found}] in column {column} is not supported; paths have names, *, @name, text(), ., .., // and predicates \
             such as [1], [@a='x'], [b='x'], [contains(@a, 'x')]"
        ))
    }

    fn path(&mut self) -> Result<LocationPath, String> {
        let mut steps = Vec::new();
        // Relative paths begin at the document, too.
        let mut is_deep = self.take("//");
        if !is_deep {
            self.take("/");
        }
        loop {
            if steps.len() >= MAX_STEPS {
                return Err(format!("the path has more than {MAX_STEPS} steps"));
            }
            steps.push(self.step(is_deep)?);
            is_deep = self.take("//");
            if !is_deep && !self.take("/") {
                return Ok(LocationPath { steps });
            }
        }
    }

    fn step(&mut self, is_deep: bool) -> Result<Step, String> {
        let test = if self.take("text()") {
            NodeTest::Text
        } else if self.take("..") {
            NodeTest::Parent
        } else if self.take(".") {
            NodeTest::Itself
        } else if self.take("@") {
            NodeTest::Attribute(self.name_test()?)
        } else {
            NodeTest::Element(self.name_test()?)
        };
        let mut predicates = Vec::new();
        while self.take("[") {
            predicates.push(self.predicate()?);
            if !self.take("]") {
                return self.refuse();
            }
        }
        Ok(Step { is_deep, test, predicates })
    }

    fn name_test(&mut self) -> Result<NameTest, String> {
        let first = self.name()?;
        // `::` follows the name of an axis.
        if self.rest().starts_with("::") || self.rest().starts_with('(') {
            return self.refuse();
        }
        if !self.rest().starts_with(':') {
            return Ok(NameTest { local: first, namespace: NamespaceTest::Absent });
        }
        let prefix = first.unwrap_or_default();
        let namespace = match self.namespaces.iter().find(|(name, _)| *name == prefix) {
            Some((_, uri)) => NamespaceTest::Uri(uri.clone()),
            None if self.namespaces.is_empty() => NamespaceTest::Prefix(prefix),
            None => return Err(format!("the prefix [{prefix}] is not in the option [namespaces]")),
        };
        self.at += 1;
        Ok(NameTest { local: self.name()?, namespace })
    }

    /// Takes a name; `None` for `*`.
    fn name(&mut self) -> Result<Option<String>, String> {
        if self.take("*") {
            return Ok(None);
        }
        let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
        let rest = self.rest();
        let length = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let starts = rest.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
        if length == 0 || !starts {
            return self.refuse();
        }
        self.at += length;
        Ok(rest.get(..length).map(str::to_owned))
    }

    fn predicate(&mut self) -> Result<Predicate, String> {
        self.skip_space();
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let number = self.rest().get(..digits).and_then(|digits| digits.parse().ok());
            let Some(number) = number else { return self.refuse() };
            self.at += digits;
            return Ok(Predicate::Position(number));
        }
        if self.take("last()") {
            return Ok(Predicate::Last);
        }
        if self.take("contains(") {
            let operand = self.operand()?;
            if !self.take(",") {
                return self.refuse();
            }
            let text = self.literal()?;
            return if self.take(")") { Ok(Predicate::Contains(operand, text)) } else { self.refuse() };
        }
        let operand = self.operand()?;
        if self.take("!=") {
            return Ok(Predicate::Differs(operand, self.literal()?));
        }
        if self.take("=") {
            return Ok(Predicate::Equals(operand, self.literal()?));
        }
        Ok(Predicate::Exists(operand))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        Ok(if self.take("@") {
            Operand::Attribute(self.name_test()?)
        } else if self.take("text()") {
            Operand::Text
        } else if self.take(".") {
            Operand::Itself
        } else {
            Operand::Child(self.name_test()?)
        })
    }

    fn literal(&mut self) -> Result<String, String> {
        self.skip_space();
        let quote = self.rest().chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let Some(quote) = quote else { return self.refuse() };
        let Some((text, _)) = self.rest().get(1..).and_then(|rest| rest.split_once(quote)) else {
            return self.refuse();
        };
        self.at += text.len() + 2;
        Ok(text.to_owned())
    }
}

/// Evaluation of paths within a bound of visited nodes.
struct Walk<'a, 'input> {
    ignores_namespaces: bool,
    root: Node<'a, 'input>,
    visits: usize,
}

impl<'a, 'input> Walk<'a, 'input> {
    fn visit(&mut self) -> Result<(), String> {
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return Err(format!("a path looks at more than {MAX_VISITS} nodes"));
        }
        Ok(())
    }

    fn path(
        &mut self,
        path: &LocationPath,
        document: &'a Document<'input>,
    ) -> Result<Vec<Selected<'a, 'input>>, String> {
        let mut selected = vec![Selected::Node(document.root())];
        for step in &path.steps {
            let mut next: Vec<Selected<'a, 'input>> = Vec::new();
            for from in &selected {
                let Selected::Node(from) = from else { continue };
                if step.is_deep {
                    for node in from.descendants() {
                        self.step(step, node, &mut next)?;
                    }
                } else {
                    self.step(step, *from, &mut next)?;
                }
            }
            if step.is_deep {
                // Descendants of several nodes may be the same ones.
                dedup(&mut next);
            }
            selected = next;
        }
        Ok(selected)
    }

    fn step(
        &mut self,
        step: &Step,
        from: Node<'a, 'input>,
        selected: &mut Vec<Selected<'a, 'input>>,
    ) -> Result<(), String> {
        self.visit()?;
        let mut found: Vec<Selected<'a, 'input>> = Vec::new();
        match &step.test {
            NodeTest::Itself => found.push(Selected::Node(from)),
            NodeTest::Parent => found.extend(from.parent().map(Selected::Node)),
            NodeTest::Attribute(name) => {
                for (at, attribute) in from.attributes().enumerate() {
                    self.visit()?;
                    if self.is_named(name, attribute.name(), attribute.namespace()) {
                        found.push(Selected::Attribute(from, at));
                    }
                }
            }
            NodeTest::Element(_) | NodeTest::Text => {
                for child in from.children() {
                    self.visit()?;
                    let is_selected = match &step.test {
                        NodeTest::Element(name) => self.is_element(name, child),
                        _ => child.is_text(),
                    };
                    if is_selected {
                        found.push(Selected::Node(child));
                    }
                }
            }
        }
        for predicate in &step.predicates {
            let last = found.len();
            let mut kept = Vec::with_capacity(last);
            for (at, node) in found.into_iter().enumerate() {
                if self.holds(predicate, node, at + 1, last)? {
                    kept.push(node);
                }
            }
            found = kept;
        }
        selected.extend(found);
        Ok(())
    }

    fn holds(
        &mut self,
        predicate: &Predicate,
        node: Selected<'_, '_>,
        position: usize,
        last: usize,
    ) -> Result<bool, String> {
        Ok(match predicate {
            Predicate::Position(number) => *number == position,
            Predicate::Last => position == last,
            Predicate::Exists(operand) => self.any(operand, node, |_| true)?,
            Predicate::Equals(operand, text) => self.any(operand, node, |value| value == text)?,
            Predicate::Differs(operand, text) => self.any(operand, node, |value| value != text)?,
            Predicate::Contains(operand, text) => {
                self.any(operand, node, |value| value.contains(text.as_str()))?
            }
        })
    }

    /// Returns whether a value of an operand passes a test.
    fn any(
        &mut self,
        operand: &Operand,
        node: Selected<'_, '_>,
        mut test: impl FnMut(&str) -> bool,
    ) -> Result<bool, String> {
        let element = match (operand, node) {
            (Operand::Itself, node) => return Ok(test(&self.text(node)?)),
            (_, Selected::Attribute(..)) => return Ok(false),
            (_, Selected::Node(element)) => element,
        };
        match operand {
            Operand::Attribute(name) => {
                for attribute in element.attributes() {
                    self.visit()?;
                    if self.is_named(name, attribute.name(), attribute.namespace()) && test(attribute.value())
                    {
                        return Ok(true);
                    }
                }
            }
            Operand::Child(_) | Operand::Text | Operand::Itself => {
                for child in element.children() {
                    self.visit()?;
                    let is_selected = match operand {
                        Operand::Child(name) => self.is_element(name, child),
                        _ => child.is_text(),
                    };
                    if is_selected && test(&self.text(Selected::Node(child))?) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Returns the text of a node; its descendants and bytes count as visits.
    fn text(&mut self, node: Selected<'_, '_>) -> Result<String, String> {
        if let Selected::Node(node) = node {
            for descendant in node.descendants() {
                self.visit()?;
                let text = descendant.text().filter(|_| descendant.is_text()).unwrap_or_default();
                self.visits = self.visits.saturating_add(text.len() / BYTES_PER_VISIT);
            }
        }
        Ok(node.text())
    }

    fn is_element(&self, name: &NameTest, node: Node<'_, '_>) -> bool {
        let tag = node.tag_name();
        node.is_element() && self.is_named(name, tag.name(), tag.namespace())
    }

    fn is_named(&self, test: &NameTest, local: &str, namespace: Option<&str>) -> bool {
        let is_local = test.local.as_deref().is_none_or(|name| name == local);
        is_local
            && (self.ignores_namespaces
                || match &test.namespace {
                    NamespaceTest::Absent => test.local.is_none() || namespace.is_none(),
                    NamespaceTest::Uri(uri) => namespace == Some(uri),
                    NamespaceTest::Prefix(prefix) => {
                        let prefix = Some(prefix.as_str()).filter(|prefix| *prefix != "xmlns");
                        namespace.is_some() && self.root.lookup_namespace_uri(prefix) == namespace
                    }
                })
    }
}

/// Leaves the first of equal nodes, in the order of the document.
fn dedup(selected: &mut Vec<Selected<'_, '_>>) {
    let key = |node: &Selected<'_, '_>| match node {
        Selected::Node(node) => (node.id().get(), 0),
        Selected::Attribute(node, at) => (node.id().get(), at + 1),
    };
    selected.sort_by_key(key);
    selected.dedup_by_key(|node| key(node));
}

impl Selected<'_, '_> {
    /// Text of a node, of all its descendants, or of an attribute.
    fn text(&self) -> String {
        match self {
            Self::Attribute(node, at) => {
                node.attributes().nth(*at).map(|attribute| attribute.value().to_owned()).unwrap_or_default()
            }
            Self::Node(node) if node.is_text() => node.text().unwrap_or_default().to_owned(),
            Self::Node(node) => {
                node.descendants().filter(Node::is_text).filter_map(|text| text.text()).collect()
            }
        }
    }

    /// The node as it is written: an element with its tags, a text with its escapes, the value of an attribute.
    fn markup(&self, document: &Document<'_>) -> String {
        match self {
            Self::Node(node) if node.is_text() => escaped(node.text().unwrap_or_default()),
            Self::Node(node) => document.input_text().get(node.range()).unwrap_or_default().to_owned(),
            Self::Attribute(..) => self.text(),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Writes an element without prefixes and declarations of namespaces.
fn write_without_prefixes(element: Node<'_, '_>, depth: usize, out: &mut String) {
    let name = element.tag_name().name();
    out.push('<');
    out.push_str(name);
    for attribute in element.attributes() {
        let value = escaped(attribute.value()).replace('"', "&quot;");
        out.push_str(&format!(" {}=\"{value}\"", attribute.name()));
    }
    if !element.has_children() {
        out.push_str("/>");
        return;
    }
    out.push('>');
    for child in element.children() {
        if child.is_text() {
            out.push_str(&escaped(child.text().unwrap_or_default()));
        } else if child.is_element() && depth > 0 {
            write_without_prefixes(child, depth - 1, out);
        }
    }
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}
