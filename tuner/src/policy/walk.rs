//! A walk through a policy text beside the typed parser: finds the place of a value, and refuses a mapping
//! that has the same key twice.
//!
//! The YAML parser tells the place of a value only together with an error, so the walk raises one at the
//! value that is looked for: then the parser says line and column, whatever the style of the text (blocks,
//! braces, anchors). YAML forbids doubled keys, but the typed parser notices only some, and points at the
//! mapping.

use super::error::Complaint;
use super::written::shown;
use serde::de::{self, DeserializeSeed};
use std::collections::BTreeSet;

/// Reads the whole text once; an error is a syntax error or a key that is there twice.
pub(super) fn check(text: &str) -> Result<(), serde_yaml::Error> {
    Walk { to: None }.deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Line of the value at `path`; `None` where the text has no such value.
pub(super) fn line_of(text: &str, path: &str) -> Option<usize> {
    let steps = steps(path);
    let walk = Walk { to: Some(&steps) };
    Some(walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?.location()?.line())
}

/// Place of the value at `path`, such as `targets[0].match`, or of the nearest value above it that the text
/// has.
pub(super) fn locate(text: &str, path: &str) -> Option<serde_yaml::Location> {
    let steps = steps(path);
    (0..=steps.len()).rev().find_map(|length| {
        let walk = Walk { to: steps.get(..length) };
        walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?.location()
    })
}

/// The keys and indexes of a path.
fn steps(path: &str) -> Vec<&str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect()
}

/// Reads any value; refuses the one at the end of the path `to`, which is how the parser tells where it
/// stands.
#[derive(Clone, Copy)]
struct Walk<'p> {
    to: Option<&'p [&'p str]>,
}

impl<'p> Walk<'p> {
    /// The walk into the entry with this key or index.
    fn into_entry(self, entry: &str) -> Walk<'p> {
        let rest = self.to.and_then(<[_]>::split_first).filter(|(step, _)| **step == entry);
        Walk { to: rest.map(|(_, rest)| rest) }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.to {
            Some([]) => deserializer.deserialize_any(Arrived),
            _ => deserializer.deserialize_any(self),
        }
    }
}

/// Values that are neither mappings nor sequences: nothing to walk into.
macro_rules! leaves {
    ($($visit:ident($type:ty)),*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de> de::Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a policy")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key_seed(NewKey { seen: &mut seen })? {
            map.next_value_seed(self.into_entry(&key))?;
        }
        Ok(())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let mut index = 0;
        while sequence.next_element_seed(self.into_entry(&index.to_string()))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(de::Error::custom(Complaint::new("a YAML tag has no meaning in a policy", "take out the `!…`")))
    }

    leaves!(visit_str(&str), visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64));

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Refuses every value.
struct Arrived;

impl de::Visitor<'_> for Arrived {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("to be told where this stands")
    }
}

/// A key that must not be in `seen` yet.
struct NewKey<'a> {
    seen: &'a mut BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = String;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl de::Visitor<'_> for NewKey<'_> {
    type Value = String;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.seen.insert(key.to_owned()) {
            return Ok(key.to_owned());
        }
        let message = format!("{} is here twice in the same mapping", shown(key));
        Err(E::custom(Complaint::new(message, "keep the one that is meant and take out the other")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, path: &str) -> Option<(usize, usize)> {
        locate(text, path).map(|location| (location.line(), location.column()))
    }

    #[test]
    fn finds_values_in_blocks_and_braces() {
        let text = "a: 1\nb:\n  - x: { y: 2 }\n  - x: { y: [3, 4], z: {} }\n";
        assert_eq!(place(text, "a"), Some((1, 4)));
        assert_eq!(place(text, "b[0].x.y"), Some((3, 13)));
        assert_eq!(place(text, "b[1].x.y[1]"), Some((4, 17)));
        assert_eq!(place(text, "b[1].x.z"), Some((4, 24)));
    }

    #[test]
    fn a_line_is_that_of_the_value_itself() {
        let text = "a: 1\nb:\n  - x: { y: 2 }\n    z:\n      - 3\n";
        let lines =
            ["a", "b[0].x.y", "b[0].z[0]", "b[0].x.none", "b[1]", "none"].map(|path| line_of(text, path));
        assert_eq!(lines, [Some(1), Some(3), Some(5), None, None, None]);
    }

    #[test]
    fn falls_back_to_what_is_there() {
        assert_eq!(place("a: { b: 1 }", "a.missing"), Some((1, 4)));
        assert_eq!(place("a: { b: 1 }", "missing"), Some((1, 1)));
    }
}
