//! The policy's JSON Schema, for editors and for the documentation.

use super::Policy;
use schemars::Schema;
use serde_json::Value;

/// JSON Schema (draft 2020-12) of a policy as indented text with a newline at its end.
pub fn schema() -> String {
    // Alternate form of `Value`'s Display is indented JSON; it cannot fail.
    format!("{:#}\n", Value::from(schemars::schema_for!(Policy)))
}

/// Schema of a text that matches a pattern.
pub(super) fn text(pattern: &str, description: &str) -> Schema {
    let mut schema = Schema::default();
    schema.insert("type".to_owned(), Value::from("string"));
    schema.insert("pattern".to_owned(), Value::from(pattern));
    schema.insert("description".to_owned(), Value::from(description));
    schema
}
