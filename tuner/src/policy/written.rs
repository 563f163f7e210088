//! How values that are written as text with a unit enter and leave YAML.
//!
//! The text is read inside serde's visitor: only there does the parser attach line and column to an
//! error. The units themselves are in the sibling modules.

use super::error::Complaint;
use serde::{Deserializer, Serializer, de};

/// A value that is one scalar in YAML.
pub(super) trait Written: Sized + std::fmt::Display {
    /// What is expected, for messages: "a size such as 64MiB".
    const EXPECTED: &'static str;

    /// Reads it.
    fn read(text: &str) -> Result<Self, Complaint>;
}

struct WrittenVisitor<T>(std::marker::PhantomData<T>);

impl<T: Written> de::Visitor<'_> for WrittenVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }
}

pub(super) fn deserialize<'de, T: Written, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_str(WrittenVisitor(std::marker::PhantomData))
}

pub(super) fn serialize<T: Written, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Implements `Serialize`, `Deserialize` and `JsonSchema` for a [`Written`] type.
macro_rules! written {
    ($type:ident, $pattern:expr, $description:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                super::written::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                super::written::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                super::schema::text($pattern, $description)
            }
        }
    };
}
pub(super) use written;

/// A text of the policy inside a message: escaped and cut, so that a message stays one short line.
pub(super) fn shown(text: &str) -> String {
    /// Longer quotes make the message hard to read.
    const CHARACTERS_SHOWN_MAX: usize = 60;
    let mut escaped: String =
        text.chars().take(CHARACTERS_SHOWN_MAX).collect::<String>().escape_debug().collect();
    if text.chars().nth(CHARACTERS_SHOWN_MAX).is_some() {
        escaped.push('…');
    }
    format!("\"{escaped}\"")
}
