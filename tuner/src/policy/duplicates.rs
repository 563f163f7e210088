//! Refuses a mapping that has the same key twice.
//!
//! YAML forbids it, but the typed parser notices only some cases, and points at the mapping instead
//! of the key.

use super::error::Complaint;
use super::written::shown;
use serde::de::{self, DeserializeSeed};
use std::collections::BTreeSet;

/// Reads the whole text once; an error is a syntax error or a key that is there twice.
pub(super) fn check(text: &str) -> Result<(), serde_yaml::Error> {
    AnyNode.deserialize(serde_yaml::Deserializer::from_str(text))
}

struct AnyNode;

impl<'de> DeserializeSeed<'de> for AnyNode {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

impl<'de> de::Visitor<'de> for AnyNode {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a policy")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while map.next_key_seed(NewKey { seen: &mut seen })?.is_some() {
            map.next_value_seed(AnyNode)?;
        }
        Ok(())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while sequence.next_element_seed(AnyNode)?.is_some() {}
        Ok(())
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(de::Error::custom(Complaint::new("a YAML tag has no meaning in a policy", "take out the `!…`")))
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

/// A key that must not be in `seen` yet.
struct NewKey<'a> {
    seen: &'a mut BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl de::Visitor<'_> for NewKey<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        if self.seen.insert(key.to_owned()) {
            return Ok(());
        }
        let message = format!("{} is here twice in the same mapping", shown(key));
        Err(E::custom(Complaint::new(message, "keep the one that is meant and take out the other")))
    }
}
