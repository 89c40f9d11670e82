//! Files on hugetlbfs, as a table and as a part of documents.

use policy::hugetlb::{HugetlbFile, HugetlbFiles};
use policy::size::format_bytes;
use serde_json::{Value, json};

use crate::grid::last_folded;
use crate::text::{fold, printable};

/// The most files that the table shows.
const MAX_ROWS: usize = 20;
/// The most processes that are named for a file.
const MAX_HOLDERS: usize = 4;

/// The table, with what to do; empty without files and without anything that could not be read.
pub fn table(all: &HugetlbFiles, width: usize) -> String {
    let mut lines = Vec::new();
    let bytes: u64 = all.files.iter().map(|file| file.bytes).sum();
    if !all.files.is_empty() {
        let files =
            if all.files.len() == 1 { "1 file holds".into() } else { format!("{} files hold", all.files.len()) };
        lines.push(format!("on hugetlbfs {files} {} of the pools' pages", format_bytes(bytes)));
        let rows = all.files.iter().take(MAX_ROWS).map(|file| row(file, all.unseen_processes));
        lines.push(last_folded(["file", "page", "holds", "length", "mapped or open in"], rows, width));
    }
    let rest = all.files.get(MAX_ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|file| file.bytes).sum();
        lines.push(format!("and {} more with {} (--json lists them)", rest.len(), format_bytes(bytes)));
    }
    if all.files.iter().any(|file| file.holders.is_empty()) {
        lines.push("a file that no process has keeps its pages until it is removed: rm FILE".into());
    }
    if all.is_cut {
        lines.push("there are more entries on hugetlbfs than were read".into());
    }
    lines.extend(all.unread.iter().map(|why| format!("not read: {}", printable(why))));
    lines
        .into_iter()
        .map(|line| if line.contains('\n') { line } else { fold(&line, width, 2) })
        .collect::<Vec<_>>()
        .join("\n")
}

fn row(file: &HugetlbFile, unseen_processes: u64) -> [String; 5] {
    [
        file.path.clone(),
        file.page_size.map_or("?".into(), |size| size.to_string()),
        format_bytes(file.bytes),
        format_bytes(file.length_bytes),
        holders(&file.holders, unseen_processes),
    ]
}

fn holders(pids: &[u32], unseen_processes: u64) -> String {
    let named: Vec<String> = pids.iter().take(MAX_HOLDERS).map(u32::to_string).collect();
    match (pids.len().saturating_sub(MAX_HOLDERS), unseen_processes) {
        (0, 0) if pids.is_empty() => "no process".into(),
        (0, unseen) if pids.is_empty() => format!("none seen ({unseen} may not be looked into)"),
        (0, _) => named.join(", "),
        (more, _) => format!("{} and {more} more", named.join(", ")),
    }
}

/// The files as a part of a document (docs/reference/formats/inspect.md).
pub fn json(all: &HugetlbFiles) -> Value {
    let files = all.files.iter().map(|file| {
        json!({
            "path": file.path,
            "page_bytes": file.page_size.map(|size| size.bytes()),
            "bytes": file.bytes,
            "length_bytes": file.length_bytes,
            "holders": file.holders,
        })
    });
    json!({
        "files": files.collect::<Vec<_>>(),
        "is_cut": all.is_cut,
        "unseen_processes": all.unseen_processes,
        "unread": all.unread,
    })
}

#[cfg(test)]
mod tests {
    use policy::size::PageSize;

    use super::*;

    fn file(path: &str, holders: &[u32]) -> HugetlbFile {
        let (page_size, holders) = (Some(PageSize::M2), holders.to_vec());
        HugetlbFile { path: path.into(), page_size, bytes: 2 << 20, length_bytes: 4 << 20, holders }
    }

    #[test]
    fn files_are_listed_with_their_holders_and_names_do_not_disturb() {
        let mut all = HugetlbFiles {
            files: vec![file("/dev/hugepages/a\u{1b}[2J", &[]), file("/dev/hugepages/b", &[1, 2, 3, 4, 5, 6])],
            ..HugetlbFiles::default()
        };
        let text = table(&all, 100);
        for part in ["2 files hold 4M", "a\\x1b[2J", "no process", "1, 2, 3, 4 and 2 more", "rm FILE"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        all.unseen_processes = 7;
        assert!(table(&all, 200).contains("none seen (7 may not be looked into)"));
        assert_eq!(json(&all)["files"][1]["holders"][5], 6);
    }

    #[test]
    fn a_long_list_ends_with_the_rest_and_an_empty_one_is_nothing() {
        assert_eq!(table(&HugetlbFiles::default(), 100), "");
        let files = (0..23).map(|at| file(&format!("/huge/{at}"), &[1])).collect();
        let text = table(&HugetlbFiles { files, is_cut: true, ..HugetlbFiles::default() }, 100);
        assert!(text.contains("and 3 more with 6M") && text.contains("more entries"), "{text}");
        assert!(!text.contains("rm FILE"), "{text}");
    }
}
