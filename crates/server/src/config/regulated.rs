//! `regulated = true`, or `[regulated]` with what services may do.

use countersign_kernel::registry::Signatures;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegulatedSection {
    /// Every act of a person is signed.
    pub enabled: bool,
    pub services: Services,
}

/// How actors of kind `service` are known on a regulated server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Services {
    /// They sign, like people.
    #[default]
    Signed,
    /// A bearer token will do.
    Token,
}

impl RegulatedSection {
    pub const fn signatures(self) -> Option<Signatures> {
        match (self.enabled, self.services) {
            (false, _) => None,
            (true, Services::Signed) => Some(Signatures::All),
            (true, Services::Token) => Some(Signatures::People),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default)]
    services: Services,
}

const fn yes() -> bool {
    true
}

impl<'de> Deserialize<'de> for RegulatedSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SwitchOrTable)
    }
}

struct SwitchOrTable;

impl<'de> Visitor<'de> for SwitchOrTable {
    type Value = RegulatedSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a table with `enabled` and `services`")
    }

    fn visit_bool<E: de::Error>(self, enabled: bool) -> Result<RegulatedSection, E> {
        Ok(RegulatedSection { enabled, ..RegulatedSection::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RegulatedSection, A::Error> {
        let Table { enabled, services } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RegulatedSection { enabled, services })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn regulated_is_a_switch_or_a_table() {
        let signatures = |toml: &str, variables: &[(&str, &str)]| {
            let engine = load(toml, variables).expect("a configuration").engine();
            (engine.regulated, engine.signatures)
        };
        let (all, people) = ((true, Some(Signatures::All)), (true, Some(Signatures::People)));
        assert_eq!(signatures("", &[]), (false, None));
        assert_eq!(signatures("regulated = false", &[]), (false, None));
        assert_eq!(signatures("regulated = true", &[]), all);
        assert_eq!(signatures("[regulated]", &[]), all);
        assert_eq!(signatures("[regulated]\nservices = \"signed\"", &[]), all);
        assert_eq!(signatures("[regulated]\nservices = \"token\"", &[]), people);
        assert_eq!(signatures("[regulated]\nenabled = false\nservices = \"token\"", &[]), (false, None));
        assert_eq!(signatures("regulated = true", &[("COUNTERSIGN_REGULATED__SERVICES", "token")]), people);
        assert_eq!(signatures("", &[("COUNTERSIGN_REGULATED", "true")]), all);
    }
}
