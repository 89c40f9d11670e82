//! Suites: benchmark sets that are defined once and whose workloads a study uses by name.

use std::collections::{BTreeMap, BTreeSet};

use super::extent::Room;
use super::names::{Names, distinct};
use super::wire::{SUITE_SCHEMA, WireSuite, WireUse, WireVariant, WireWorkload};
use super::workload::{Shared, Workload, inputs, multiplied};
use super::{DefinitionError, Size};

impl WireSuite {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description of the suite.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// All its workloads in one size.
    ///
    /// # Errors
    /// The first error in the suite.
    pub fn of_size(&self, size: Size) -> Result<Vec<Workload>, DefinitionError> {
        self.workloads(size, &BTreeMap::new(), &self.workload, &BTreeMap::new(), &Room::new())
    }

    /// The workloads that a study uses, with the study's own parameter values and variants.
    pub(super) fn of_study(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        used: &WireUse,
        variants: &BTreeMap<String, WireVariant>,
        room: &Room,
    ) -> Result<Vec<Workload>, DefinitionError> {
        let workloads =
            self.chosen(size, used).and_then(|chosen| self.workloads(size, overriding, chosen, variants, room));
        workloads.map_err(|error| error.in_suite(&self.name))
    }

    /// The workloads that a study selects.
    pub(super) fn chosen(&self, size: Size, used: &WireUse) -> Result<Vec<&WireWorkload>, DefinitionError> {
        let WireUse { name: _, only, without, quick_only } = used;
        let names: Names<'_> = self.workload.iter().map(|workload| &workload.name).collect();
        let quick_only = if size == Size::Quick { quick_only.as_slice() } else { &[] };
        for (key, named) in [("only", only.as_slice()), ("without", without), ("quick_only", quick_only)] {
            named.iter().try_for_each(|name| names.check(key, name))?;
        }
        let [only, without, quick_only] =
            [only.as_slice(), without, quick_only].map(|named| named.iter().collect::<BTreeSet<&String>>());
        let is_among = |named: &BTreeSet<&String>, name| named.is_empty() || named.contains(name);
        let is_wanted = |name| is_among(&only, name) && is_among(&quick_only, name) && !without.contains(name);
        Ok(self.workload.iter().filter(|workload| is_wanted(&workload.name)).collect())
    }

    fn workloads<'a>(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        chosen: impl IntoIterator<Item = &'a WireWorkload>,
        variants: &BTreeMap<String, WireVariant>,
        room: &Room,
    ) -> Result<Vec<Workload>, DefinitionError> {
        if self.schema != SUITE_SCHEMA {
            return Err(DefinitionError::SuiteSchema { found: self.schema.clone() });
        }
        let of_size = self.sizes.get(size.name()).ok_or_else(|| DefinitionError::no_size(size, self.sizes.keys()))?;
        let mut values: BTreeMap<String, String> =
            of_size.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        values.extend(overriding.clone());
        distinct("workload", self.workload.iter().map(|workload| &workload.name))?;
        let inputs = inputs(&self.input, &values)?;
        let shared = Shared { values: &values, inputs: &inputs, variants, room };
        let workloads = chosen.into_iter().map(|workload| multiplied(workload, &shared));
        let workloads = workloads.collect::<Result<Vec<_>, _>>()?;
        let of_suite = |workload| Workload { suite: Some(self.name.clone()), ..workload };
        Ok(workloads.concat().into_iter().map(of_suite).collect())
    }
}
