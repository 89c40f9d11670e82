//! Benchmark sets that are described once: a study names a suite and has its workloads.

use std::collections::BTreeMap;

use super::wire::{SUITE_SCHEMA, WireSuite, WireUse, WireVariant};
use super::workload::{Workload, inputs, multiplied};
use super::{DefinitionError, Size, distinct, one_of};

impl WireSuite {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// All its workloads at a size.
    ///
    /// # Errors
    /// Whatever is wrong with it first.
    pub fn of_size(&self, size: Size) -> Result<Vec<Workload>, DefinitionError> {
        self.workloads(size, &BTreeMap::new(), None, &BTreeMap::new())
    }

    /// The workloads that a study has of it, with the study's own values of parameters and its variants.
    pub(super) fn of_study(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        used: &WireUse,
        variants: &BTreeMap<String, WireVariant>,
    ) -> Result<Vec<Workload>, DefinitionError> {
        self.workloads(size, overriding, Some(used), variants).map_err(|error| error.in_suite(&self.name))
    }

    fn workloads(
        &self,
        size: Size,
        overriding: &BTreeMap<String, String>,
        used: Option<&WireUse>,
        variants: &BTreeMap<String, WireVariant>,
    ) -> Result<Vec<Workload>, DefinitionError> {
        if self.schema != SUITE_SCHEMA {
            return Err(DefinitionError::SuiteSchema { found: self.schema.clone() });
        }
        let of_size = self.sizes.get(size.name()).ok_or_else(|| DefinitionError::no_size(size, self.sizes.keys()))?;
        let mut values: BTreeMap<String, String> =
            of_size.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        values.extend(overriding.clone());
        distinct("workload", self.workload.iter().map(|workload| &workload.name))?;
        let names: Vec<String> = self.workload.iter().map(|workload| workload.name.clone()).collect();
        let (only, without) = used.map(|used| (used.only.as_slice(), used.without.as_slice())).unwrap_or_default();
        only.iter().try_for_each(|name| one_of("only", name, &names))?;
        without.iter().try_for_each(|name| one_of("without", name, &names))?;
        let quick_only =
            used.map(|used| used.quick_only.as_slice()).filter(|_| size == Size::Quick).unwrap_or_default();
        quick_only.iter().try_for_each(|name| one_of("quick_only", name, &names))?;
        let is_among = |wanted: &[String], name: &String| wanted.is_empty() || wanted.contains(name);
        let is_wanted = |name: &String| is_among(only, name) && is_among(quick_only, name) && !without.contains(name);
        let inputs = inputs(&self.input, &values)?;
        let wanted = self.workload.iter().filter(|workload| is_wanted(&workload.name));
        let workloads = wanted.map(|workload| multiplied(workload, &values, &inputs, variants));
        let workloads = workloads.collect::<Result<Vec<_>, _>>()?;
        let of_suite = |workload| Workload { suite: Some(self.name.clone()), ..workload };
        Ok(workloads.concat().into_iter().map(of_suite).collect())
    }
}
