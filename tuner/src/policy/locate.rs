//! Where a value stands in a policy text.
//!
//! The YAML parser tells the place of a value only together with an error. So this walks to the value
//! once more and raises an error there: the parser itself then says line and column, whatever the
//! style of the text (blocks, braces, anchors).

use serde::de::{self, DeserializeSeed, IgnoredAny};

/// One step down from the document's root.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    /// Into a mapping.
    Field(&'a str),
    /// Into a sequence.
    Item(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(name: &'a str) -> Step<'a> {
        Step::Field(name)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Step<'static> {
        Step::Item(index)
    }
}

/// Place of the value at `path`, or of the nearest value above it that the text has.
pub(super) fn locate(text: &str, path: &[Step<'_>]) -> Option<serde_yaml::Location> {
    (0..=path.len()).rev().find_map(|length| {
        let walk = Walk { path: path.get(..length)? };
        let error = walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
        error.location()
    })
}

struct Walk<'a> {
    path: &'a [Step<'a>],
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            deserializer.deserialize_any(Arrived)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> de::Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the value looked for")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.path.split_first() {
                Some((Step::Field(name), rest)) if *name == key => {
                    map.next_value_seed(Walk { path: rest })?
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let more = match self.path.split_first() {
                Some((Step::Item(wanted), rest)) if *wanted == index => {
                    sequence.next_element_seed(Walk { path: rest })?.is_some()
                }
                _ => sequence.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Refuses every value, which is how the parser tells where it stands.
struct Arrived;

impl de::Visitor<'_> for Arrived {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("to be told where this stands")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, path: &[Step<'_>]) -> Option<(usize, usize)> {
        locate(text, path).map(|location| (location.line(), location.column()))
    }

    #[test]
    fn finds_values_in_blocks_and_braces() {
        let text = "a: 1\nb:\n  - x: { y: 2 }\n  - x: { y: [3, 4], z: {} }\n";
        assert_eq!(place(text, &["a".into()]), Some((1, 4)));
        assert_eq!(place(text, &["b".into(), 0.into(), "x".into(), "y".into()]), Some((3, 13)));
        assert_eq!(place(text, &["b".into(), 1.into(), "x".into(), "y".into(), 1.into()]), Some((4, 17)));
        assert_eq!(place(text, &["b".into(), 1.into(), "x".into(), "z".into()]), Some((4, 24)));
    }

    #[test]
    fn falls_back_to_what_is_there() {
        assert_eq!(place("a: { b: 1 }", &["a".into(), "missing".into()]), Some((1, 4)));
        assert_eq!(place("a: { b: 1 }", &["missing".into()]), Some((1, 1)));
    }
}
