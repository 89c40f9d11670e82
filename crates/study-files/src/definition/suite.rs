//! Suites: benchmark sets that are defined once and whose workloads a study uses by name.

use std::collections::{BTreeMap, BTreeSet};

use super::extent::TextBudget;
use super::names::{Names, distinct};
use super::wire::{SUITE_SCHEMA, WireSuite, WireUse, WireVariant, WireWorkload};
use super::workload::{Shared, Workload, expanded, inputs};
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
    pub fn of_size(&self, size: Size) -> Result<Vec<Workload>, DefinitionError> {
        self.workloads(size, &BTreeMap::new(), &self.workload, &BTreeMap::new(), &TextBudget::new())
    }

    /// The workloads that a study uses, with the study's parameter values and variants.
    pub(super) fn of_study(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        used: &WireUse,
        variants: &BTreeMap<String, WireVariant>,
        budget: &TextBudget,
    ) -> Result<Vec<Workload>, DefinitionError> {
        let workloads = self.chosen(used).and_then(|chosen| self.workloads(size, overriding, chosen, variants, budget));
        workloads.map_err(|error| error.in_suite(&self.name))
    }

    /// The workloads that a study selects.
    pub(super) fn chosen(&self, used: &WireUse) -> Result<Vec<&WireWorkload>, DefinitionError> {
        let WireUse { name: _, only, without } = used;
        let names: Names<'_> = self.workload.iter().map(|workload| &workload.name).collect();
        for (key, named) in [("only", only), ("without", without)] {
            named.iter().try_for_each(|name| names.check(key, name))?;
        }
        let [only, without] = [only, without].map(|named| named.iter().collect::<BTreeSet<&String>>());
        let is_wanted = |name| (only.is_empty() || only.contains(name)) && !without.contains(name);
        Ok(self.workload.iter().filter(|workload| is_wanted(&workload.name)).collect())
    }

    fn workloads<'a>(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        chosen: impl IntoIterator<Item = &'a WireWorkload>,
        variants: &BTreeMap<String, WireVariant>,
        budget: &TextBudget,
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
        let shared = Shared { values: &values, inputs: &inputs, variants, budget };
        let workloads = chosen.into_iter().map(|workload| expanded(workload, &shared));
        let workloads = workloads.collect::<Result<Vec<_>, _>>()?;
        let of_suite = |workload| Workload { suite: Some(self.name.clone()), ..workload };
        Ok(workloads.concat().into_iter().map(of_suite).collect())
    }
}
