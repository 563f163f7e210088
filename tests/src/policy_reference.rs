//! `deploy/docs/policy-reference.md`: every field of a policy, made of the schema that the agent itself
//! prints.

use serde_json::{Map, Value};
use std::fmt::Write;

/// The page. A section for the policy itself, then one for each of the types that it is made of.
pub fn page(schema: &Value) -> String {
    let mut page = String::from(
        "# Policy reference\n\n\
         Every field of a policy, its type, its default and what it means. `policies/default.yaml` is the same as a file to \
         begin with; `sexton policy check FILE` shows what is wrong with one, and `sexton policy schema` prints what this \
         page is made of.\n",
    );
    section(&mut page, "The policy", schema);
    for (name, definition) in schema.get("$defs").and_then(Value::as_object).into_iter().flatten() {
        section(&mut page, name, definition);
    }
    page
}

fn section(page: &mut String, name: &str, definition: &Value) {
    let _ = writeln!(page, "\n## {name}\n\n{}", one_line(text(definition, "description")));
    if let Some(properties) = definition.get("properties").and_then(Value::as_object) {
        fields(page, properties, &required(definition));
    }
    if let Some(values) = definition.get("oneOf").and_then(Value::as_array) {
        let _ = writeln!(page, "\n| value | meaning |\n|---|---|");
        for value in values {
            let _ = writeln!(page, "| `{}` | {} |", text(value, "const"), cell(text(value, "description")));
        }
    }
    if let Some(pattern) = definition.get("pattern").and_then(Value::as_str) {
        let _ = writeln!(page, "\nWritten as `{pattern}`.");
    }
}

fn fields(page: &mut String, properties: &Map<String, Value>, required: &[&str]) {
    let _ = writeln!(page, "\n| field | type | default | meaning |\n|---|---|---|---|");
    for (name, property) in properties {
        let is_required = required.contains(&name.as_str());
        let (default, meaning) = default_and_meaning(property, is_required);
        let _ = writeln!(page, "| `{name}` | {} | {default} | {} |", kind(property), cell(&meaning));
    }
}

/// A default stands in the schema, or as words at the end of the description, where it is no value.
fn default_and_meaning(property: &Value, is_required: bool) -> (String, String) {
    let description = one_line(text(property, "description"));
    let (meaning, words) = match description.rsplit_once("Default: ") {
        Some((meaning, words)) => (meaning.trim().to_owned(), words.trim_end_matches('.').to_owned()),
        None => (description, String::new()),
    };
    let default = match property.get("default") {
        _ if is_required => "required".to_owned(),
        // That of each field stands in its own section.
        Some(Value::Object(_)) => "see there".to_owned(),
        Some(Value::String(value)) => format!("`{value}`"),
        Some(value) if words.is_empty() => format!("`{value}`"),
        _ if words.is_empty() => "none".to_owned(),
        _ => cell(&words),
    };
    (default, meaning)
}

/// A type, with a link to its section where it has one.
fn kind(property: &Value) -> String {
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = property.get("anyOf").and_then(Value::as_array) {
        let kinds: Vec<String> = choices.iter().map(kind).filter(|kind| kind != "null").collect();
        return kinds.join(" or ");
    }
    match property.get("type") {
        Some(Value::String(name)) if name == "array" => {
            format!("list of {}", property.get("items").map_or_else(|| "anything".to_owned(), kind))
        }
        Some(Value::String(name)) if name == "object" => "map".to_owned(),
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

fn required(definition: &Value) -> Vec<&str> {
    let names = definition.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As it stands in a table.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_values_and_patterns_are_listed() {
        let page = page(&json!({
            "description": "A\npolicy.",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "description": "Its name | title." },
                "mode": { "$ref": "#/$defs/Mode", "default": "advise", "description": "What is done. Default: advise." },
                "days": { "type": "array", "items": { "$ref": "#/$defs/Mode" }, "description": "When. Default: always." },
                "part": { "anyOf": [{ "$ref": "#/$defs/Size" }, { "type": "null" }], "description": "How much." },
            },
            "$defs": {
                "Mode": { "oneOf": [{ "const": "act", "description": "Acts." }] },
                "Size": { "pattern": "^[0-9]+$", "type": "string", "description": "Bytes." },
            },
        }));
        for line in [
            "| `name` | string | required | Its name \\| title. |",
            "| `mode` | [Mode](#mode) | `advise` | What is done. |",
            "| `days` | list of [Mode](#mode) | always | When. |",
            "| `part` | [Size](#size) | none | How much. |",
            "| `act` | Acts. |",
            "Written as `^[0-9]+$`.",
        ] {
            assert!(page.lines().any(|known| known == line), "{line}\n{page}");
        }
    }
}
