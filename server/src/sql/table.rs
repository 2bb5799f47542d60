//! Draws an answer of the format `jdbc` as a table.

use serde_json::Value;

/// Widest column, in letters; longer cells are cut.
const MAX_WIDTH: usize = 80;

/// Draws a table: numbers to the right, the rest to the left.
pub(crate) fn draw(answer: &Value) -> String {
    let empty = Vec::new();
    let array = |name: &str| answer.get(name).and_then(Value::as_array).unwrap_or(&empty);
    let text = |column: &Value, name: &str| column.get(name).and_then(Value::as_str).map(str::to_owned);
    let schema = array("schema");
    let names: Vec<String> = schema
        .iter()
        .map(|column| text(column, "alias").or_else(|| text(column, "name")).unwrap_or_default())
        .collect();
    let numeric: Vec<bool> = schema
        .iter()
        .map(|column| {
            matches!(
                column.get("type").and_then(Value::as_str),
                Some("byte" | "short" | "integer" | "long" | "unsigned_long" | "float" | "double")
            )
        })
        .collect();
    let rows: Vec<Vec<String>> = array("datarows")
        .iter()
        .map(|row| row.as_array().into_iter().flatten().map(cell).collect())
        .collect();
    let width = |at: usize, name: &String| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(name.chars().count())
    };
    let widths: Vec<usize> = names.iter().enumerate().map(|(at, name)| width(at, name)).collect();
    let rule = widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("+");
    let line = |cells: &[String]| {
        let drawn: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(at, width)| {
                let cell = cells.get(at).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                match numeric.get(at) {
                    Some(true) => format!(" {space}{cell} "),
                    _ => format!(" {cell}{space} "),
                }
            })
            .collect();
        format!("|{}|", drawn.join("|"))
    };
    let mut out = format!("+{rule}+\n{}\n+{rule}+\n", line(&names));
    for row in &rows {
        out.push_str(&line(row));
        out.push('\n');
    }
    out.push_str(&format!("+{rule}+"));
    out
}

/// Shows a value on one line.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match text.char_indices().nth(MAX_WIDTH) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_to_the_right() {
        let answer = json!({
            "schema": [{"name": "a", "type": "keyword"}, {"name": "count(*)", "alias": "n", "type": "integer"}],
            "datarows": [["x\ny", 1], [null, 20]],
        });
        let expected =
            "+------+----+\n| a    |  n |\n+------+----+\n| x y  |  1 |\n| null | 20 |\n+------+----+";
        assert_eq!(draw(&answer), expected);
    }
}
