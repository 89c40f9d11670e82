//! Series over sizes in a study: the figures derived for each layout, and those measured on each host.

mod derived;

use policy::machine::Machine;
use study::comparison::Comparison;
use study::metric::Provenance;
use study_files::definition::Definition;
use study_files::series::{Column, Filled, Series};

use self::derived::{ALL, Layout, Quantity};

/// Checks that the series of a study can be derived.
///
/// # Errors
/// An unknown name, or a size that a layout cannot map.
pub fn check(definition: &Definition) -> Result<(), String> {
    definition.series.iter().try_for_each(|series| of_series(series).map(drop))
}

/// The quantity that a series derives, and its layouts.
fn of_series(series: &Series) -> Result<(Quantity, Vec<Layout>), String> {
    let name = &series.name;
    let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    let found = ALL.iter().find(|(known, _)| *known == series.what);
    let wrong = || format!("series {name:?}: what: there is no {:?}; there are {}", series.what, known.join(", "));
    let (_, what) = found.ok_or_else(wrong)?;
    let read = |text: &String| Layout::read(text).map_err(|error| format!("series {name:?}: {error}"));
    Ok((*what, series.layouts.iter().map(read).collect::<Result<_, _>>()?))
}

/// The series of a study with their figures. `latest` gives, for a workload, the label of each host and the latest
/// comparison there.
pub fn filled(definition: &Definition, latest: &dyn Fn(&str) -> Vec<(String, Comparison)>) -> Vec<Filled> {
    let fill = |series: &Series| {
        let (what, layouts) = of_series(series).ok()?;
        let derived = series.layouts.iter().zip(&layouts).map(|(name, layout)| Column {
            name: name.clone(),
            provenance: Provenance::Derived,
            held_bytes: series.sizes.iter().map(|bytes| Some(layout.held_bytes(what, *bytes)? as f64)).collect(),
            layout: None,
        });
        let measured = latest(&series.name).into_iter().filter_map(|(host, comparison)| {
            let layout = of_machine(what, &comparison.machine, series, &layouts);
            measured(series, host, &comparison, layout)
        });
        Some(Filled {
            name: series.name.clone(),
            source: series.source.clone(),
            sizes: series.sizes.clone(),
            columns: derived.chain(measured.collect::<Vec<_>>()).collect(),
        })
    };
    definition.series.iter().filter_map(fill).collect()
}

/// The medians under the baseline in a comparison; `None` if there are none.
fn measured(series: &Series, name: String, comparison: &Comparison, layout: Option<String>) -> Option<Column> {
    let medians = &comparison.analysis.as_ref()?.arms.get(comparison.design.baseline)?.medians;
    let held = |bytes: &u64| medians.get(&Series::metric(*bytes)).copied();
    let held_bytes: Vec<Option<f64>> = series.sizes.iter().map(held).collect();
    let is_any = held_bytes.iter().any(Option::is_some);
    is_any.then_some(Column { name, provenance: Provenance::Measured, held_bytes, layout })
}

/// The layout that a machine without large leaves has. It is selected by the base page size, and for page tables also by the
/// instruction set. The kernel does not report its number of levels, so this returns the first layout that may match.
fn of_machine(what: Quantity, machine: &Machine, series: &Series, layouts: &[Layout]) -> Option<String> {
    let family = match machine.arch.as_str() {
        "x86_64" => "x86-64",
        "aarch64" => "arm64-",
        "riscv64" => "sv",
        _ => "no format",
    };
    let is_own = |(name, layout): &(&String, &Layout)| {
        layout.base_bytes() == machine.page_sizes.base.bytes()
            && !name.contains(' ')
            && (what == Quantity::PageCache || name.starts_with(family))
    };
    series.layouts.iter().zip(layouts).find(is_own).map(|(name, _)| name.clone())
}
