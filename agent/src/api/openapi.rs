//! The document that describes the API: OpenAPI 3.1, served as it is committed. A test makes it from the
//! types that the paths answer with, and compares.

/// The committed document.
pub const DOCUMENT: &str = include_str!("../../openapi.json");

#[cfg(test)]
mod generator;
