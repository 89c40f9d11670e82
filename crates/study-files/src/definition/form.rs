//! The form of a table in the publication that the study repeats (its origin): named configurations, each a workload under a
//! policy, compared with the first one.

use super::names::Names;
use super::wire::{WireForm, WireFormRow};
use super::{DefinitionError, Measure, Published, Workload};

/// A table in the origin's form.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Where the table was published.
    pub source: String,
    /// Metrics in addition to the primary one, each with the heading of its column.
    pub columns: Vec<(String, String)>,
    /// Rows in the origin's order. All are compared with the first row.
    pub rows: Vec<FormRow>,
}

/// A configuration in the origin's table.
#[derive(Clone, Debug, PartialEq)]
pub struct FormRow {
    /// The origin's name for the configuration.
    pub name: String,
    /// The corresponding workload, or one of its variants: a row of the matrix.
    pub workload: String,
    /// The policy under which the workload runs.
    pub policy: String,
    /// Rank in the origin's order, lowest cost first. Configurations of equal rank cost the same. Absent if the origin
    /// does not rank it.
    pub place: Option<u32>,
    /// The origin's figure for the change of this row against the first row.
    pub published: Option<Published>,
}

impl Form {
    /// Converts a form. `all` are the workloads of every size; rows of workloads that this size leaves out are dropped.
    pub(super) fn of(
        wire: &WireForm,
        all: &[Workload],
        workloads: &[Workload],
        policies: &[String],
    ) -> Result<Form, DefinitionError> {
        let names: Vec<String> = all.iter().flat_map(Workload::row_names).collect();
        let run: Vec<String> = workloads.iter().flat_map(Workload::row_names).collect();
        let (names, policies): (Names<'_>, Names<'_>) = (names.iter().collect(), policies.iter().collect());
        let rows = wire.row.iter().map(|row| {
            names.check("form.row.workload", &row.workload)?;
            policies.check("form.row.policy", &row.policy)?;
            FormRow::of(row, wire)
        });
        let mut rows: Vec<FormRow> = rows.collect::<Result<_, _>>()?;
        rows.retain(|row| run.contains(&row.workload));
        match rows.len() {
            0 | 1 => Err(DefinitionError::Count { key: "form.row", expected: "two or more", found: rows.len() }),
            _ => Ok(Form {
                source: wire.source.clone(),
                columns: wire.columns.iter().map(|text| column(text)).collect(),
                rows,
            }),
        }
    }
}

/// Parses `METRIC=HEADING`; a metric alone is its own heading.
fn column(text: &str) -> (String, String) {
    let (metric, heading) = text.split_once('=').unwrap_or((text, text));
    (metric.to_owned(), heading.to_owned())
}

impl FormRow {
    fn of(wire: &WireFormRow, form: &WireForm) -> Result<FormRow, DefinitionError> {
        let first = form.row.first().map_or("", |first| first.name.as_str());
        let published = wire.change.as_ref().map(|change| -> Result<Published, DefinitionError> {
            Ok(Published {
                what: format!("{} against {first}", wire.name),
                workload: Some(wire.workload.clone()),
                suite: None,
                variant: None,
                policy: Some(wire.policy.clone()),
                boot: None,
                metric: None,
                measure: Measure::Change,
                ratio: super::published::ratio("form.row.change", change)?,
                change: change.clone(),
                source: form.source.clone(),
                differs: form.differs.clone(),
            })
        });
        Ok(FormRow {
            name: wire.name.clone(),
            workload: wire.workload.clone(),
            policy: wire.policy.clone(),
            place: wire.place,
            published: published.transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::definition::{Size, Wire};

    fn study(workload: &str, change: &str) -> Result<super::Form, String> {
        let text = format!(
            r#"{{ "schema": "pagelab.study/1", "name": "x", "question": "?", "policies": ["base", "thp"],
            "sizes": {{ "standard": {{}} }}, "workload": [{{ "name": "a", "command": ["true"] }}],
            "form": {{ "source": "a list", "row": [{{ "name": "one", "workload": "a", "policy": "base", "place": 1 }},
            {{ "name": "two", "workload": "{workload}", "policy": "thp", "change": "{change}" }}] }} }}"#
        );
        let wire: Wire = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let definition = wire.of_size(Size::Standard).map_err(|error| error.to_string())?;
        definition.form.ok_or_else(|| "no form".to_owned())
    }

    #[test]
    fn a_form_names_workloads_and_policies_of_the_study() {
        let form = study("a", "+3%").unwrap();
        assert_eq!((form.rows[0].place, form.rows[1].place), (Some(1), None));
        let published = form.rows[1].published.clone().unwrap();
        assert_eq!((published.what.as_str(), published.ratio), ("two against one", 1.03));
        assert!(study("b", "+3%").unwrap_err().contains("form.row.workload"));
        assert!(study("a", "3").unwrap_err().contains("change"));
    }
}
