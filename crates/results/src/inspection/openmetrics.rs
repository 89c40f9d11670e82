//! Summaries of inspected processes as OpenMetrics text, for a collector
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use policy::cause::Cause;
use policy::census::{Backing, Folio, Mapping};
use policy::inspect::Summary;

use crate::openmetrics::{self, Family, Labels};

pub fn text(summaries: &[Summary]) -> String {
    openmetrics::text(&families(summaries))
}

fn families(summaries: &[Summary]) -> [Family; 4] {
    let one = |value: fn(&Summary) -> u64| summaries.iter().map(move |one| (process(one), value(one)));
    let memory = summaries.iter().flat_map(|one| {
        one.census.rows().map(|(mapping, bytes)| ([process(one), mapped(mapping)].concat(), bytes)).collect::<Vec<_>>()
    });
    let cause = summaries.iter().filter_map(|one| {
        let (cause, bytes) = one.first_cause.as_ref()?;
        Some(([process(one), vec![("cause", code(cause))]].concat(), *bytes))
    });
    [
        Family::gauge(
            "pagelab_memory_bytes",
            "Present memory of a process, by what backs it, the leaf that maps it and the folio behind it.",
            memory,
        ),
        Family::gauge(
            "pagelab_could_be_larger_bytes",
            "Memory of a process that could be mapped by larger pages than it is.",
            one(|one| one.could_be_larger_bytes),
        ),
        Family::gauge(
            "pagelab_bloat_bytes",
            "Memory that larger pages would add to a process.",
            one(|one| one.bloat_bytes),
        ),
        Family::gauge(
            "pagelab_first_cause_bytes",
            "Memory of a process that is not larger for the cause that explains most.",
            cause,
        ),
    ]
}

/// The name of a cause in documents. It does not contain the cause's counts.
pub(crate) fn code(cause: &Cause) -> String {
    let value = serde_json::to_value(cause).unwrap_or_default();
    value["code"].as_str().unwrap_or("unexplained").to_string()
}

fn process(one: &Summary) -> Labels {
    vec![("pid", one.process.pid.to_string()), ("name", one.process.name.clone())]
}

fn mapped(mapping: &Mapping) -> Labels {
    let (folio, part) = match mapping.folio {
        Folio::Unknown => ("unknown".to_string(), "unknown"),
        Folio::Whole(size) => (size.bytes().to_string(), "whole"),
        Folio::Part(size) => (size.bytes().to_string(), "part"),
    };
    vec![
        ("backing", backing(mapping.backing).to_string()),
        ("leaf_bytes", mapping.leaf.bytes().to_string()),
        ("folio_bytes", folio),
        ("folio_mapped", part.to_string()),
    ]
}

/// The value for a backing in labels.
pub(crate) fn backing(backing: Backing) -> &'static str {
    match backing {
        Backing::Anonymous => "anonymous",
        Backing::Hugetlb => "hugetlb",
        Backing::Shmem => "shmem",
        Backing::File => "file",
        Backing::Zero => "zero",
    }
}

#[cfg(test)]
mod tests {
    use policy::census::Census;
    use policy::inspect::Process;
    use policy::size::PageSize;

    use super::*;

    fn sample() -> Summary {
        let mut census = Census::default();
        let mapping = |leaf, folio| Mapping { backing: Backing::Anonymous, leaf, folio };
        census.add(mapping(PageSize::K4, Folio::Unknown), 4096);
        census.add(mapping(PageSize::K4, Folio::Part(PageSize::K64)), 8192);
        census.add(mapping(PageSize::M2, Folio::Whole(PageSize::M2)), 2 << 20);
        Summary {
            process: Process { pid: 7, name: "a\"\\\n\u{1b}é".into(), ..Process::default() },
            census,
            resident_bytes: (2 << 20) + 12288,
            could_be_larger_bytes: 12288,
            bloat_bytes: 100,
            first_cause: Some((Cause::NotAdvised, 12288)),
            partial: Vec::new(),
        }
    }

    #[test]
    fn the_text_is_what_the_specification_asks_for() {
        let text = text(&[sample()]);
        assert!(text.ends_with("# EOF\n"), "{text}");
        let name = "a\\\"\\\\\\\\n\\\\x1bé";
        let line = format!(
            "pagelab_memory_bytes{{pid=\"7\",name=\"{name}\",backing=\"anonymous\",leaf_bytes=\"4096\",folio_bytes=\"65536\",folio_mapped=\"part\"}} 8192"
        );
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        assert!(text.contains("cause=\"not_advised\"} 12288"), "{text}");
        for line in text.lines() {
            assert!(line.starts_with('#') || line.starts_with("pagelab_"), "{line}");
        }
        assert_eq!(super::text(&[]).matches("# TYPE").count(), 4);
    }
}
