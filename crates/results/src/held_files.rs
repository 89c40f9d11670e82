//! The memory that files on hugetlbfs and tmpfs hold, as a table and as a part of documents.

use policy::held_files::{FileWithMemory, FilesWithMemory};
use policy::size::{PageSize, format_bytes};
use serde_json::{Value, json};

use crate::grid::last_folded;
use crate::text::{fold, printable};

/// Maximum number of files in the table.
const MAX_ROWS: usize = 20;
/// Maximum number of processes named for a file.
const MAX_HOLDERS: usize = 4;

/// The table of files on hugetlbfs, with what to do about them; empty if there are no files and all could be read.
pub fn hugetlb_table(all: &FilesWithMemory, width: usize) -> String {
    let bytes = all.files.iter().map(|file| file.bytes).sum();
    let head = format!("on hugetlbfs {} {} of the pools' pages", hold(all), format_bytes(bytes));
    let is_free = all.files.iter().any(|file| file.holders.is_empty());
    let advice = is_free.then_some("a file that no process has keeps its pages until it is removed: rm FILE");
    let rows = all.files.iter().take(MAX_ROWS).map(|file| row(file, all.unseen_processes));
    let table = last_folded(["file", "page", "holds", "length", "mapped or open in"], rows, width);
    listed(all, head, table, advice, width)
}

/// The table of files on tmpfs that hold more memory than their length, with what to do about them; empty if there are
/// no such files and all could be read.
pub fn tmpfs_table(all: &FilesWithMemory, base: PageSize, width: usize) -> String {
    let bytes = all.files.iter().map(|file| file.bytes).sum();
    let surplus = all.files.iter().map(|file| file.surplus_bytes(base)).sum();
    let head = format!(
        "on tmpfs with large pages {} {}, {} more than their length",
        hold(all),
        format_bytes(bytes),
        format_bytes(surplus)
    );
    let advice = "with huge=within_size a file gets no large page that extends beyond its end: remount the tmpfs with it, and \
                  rewrite the files";
    let rows = all.files.iter().take(MAX_ROWS).map(|file| {
        let [path, _, rest @ ..] = row(file, all.unseen_processes);
        let [holds, length, holders] = rest;
        [path, holds, length, holders]
    });
    let table = last_folded(["file", "holds", "length", "mapped or open in"], rows, width);
    listed(all, head, table, Some(advice), width)
}

fn hold(all: &FilesWithMemory) -> String {
    if all.files.len() == 1 { "1 file holds".into() } else { format!("{} files hold", all.files.len()) }
}

fn listed(all: &FilesWithMemory, head: String, table: String, advice: Option<&str>, width: usize) -> String {
    let mut lines = Vec::new();
    if !all.files.is_empty() {
        lines.extend([head, table]);
    }
    let rest = all.files.get(MAX_ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|file| file.bytes).sum();
        lines.push(format!("and {} more with {} (--json lists them)", rest.len(), format_bytes(bytes)));
    }
    lines.extend(advice.filter(|_| !all.files.is_empty()).map(str::to_owned));
    if all.is_cut {
        lines.push("there are more entries than were read".into());
    }
    lines.extend(all.unread.iter().map(|why| format!("not read: {}", printable(why))));
    lines
        .into_iter()
        .map(|line| if line.contains('\n') { line } else { fold(&line, width, 2) })
        .collect::<Vec<_>>()
        .join("\n")
}

fn row(file: &FileWithMemory, unseen_processes: u64) -> [String; 5] {
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
        (0, unseen) if pids.is_empty() => format!("none seen ({unseen} processes cannot be inspected)"),
        (0, _) => named.join(", "),
        (more, _) => format!("{} and {more} more", named.join(", ")),
    }
}

/// The files as a part of a JSON document (docs/reference/formats/inspect.md).
pub fn json(all: &FilesWithMemory) -> Value {
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
    use super::*;

    fn file(path: &str, holders: &[u32]) -> FileWithMemory {
        let (page_size, holders) = (Some(PageSize::M2), holders.to_vec());
        FileWithMemory { path: path.into(), page_size, bytes: 2 << 20, length_bytes: 4 << 20, holders }
    }

    #[test]
    fn files_are_listed_with_their_holders_and_escaped_names() {
        let mut all = FilesWithMemory {
            files: vec![file("/dev/hugepages/a\u{1b}[2J", &[]), file("/dev/hugepages/b", &[1, 2, 3, 4, 5, 6])],
            ..FilesWithMemory::default()
        };
        let text = hugetlb_table(&all, 100);
        for part in ["2 files hold 4M", "a\\x1b[2J", "no process", "1, 2, 3, 4 and 2 more", "rm FILE"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        all.unseen_processes = 7;
        assert!(hugetlb_table(&all, 200).contains("none seen (7 processes cannot be inspected)"));
        assert_eq!(json(&all)["files"][1]["holders"][5], 6);
    }

    #[test]
    fn a_long_list_ends_with_the_rest_and_an_empty_one_is_nothing() {
        assert_eq!(hugetlb_table(&FilesWithMemory::default(), 100), "");
        let files = (0..23).map(|at| file(&format!("/huge/{at}"), &[1])).collect();
        let text = hugetlb_table(&FilesWithMemory { files, is_cut: true, ..FilesWithMemory::default() }, 100);
        assert!(text.contains("and 3 more with 6M") && text.contains("more entries"), "{text}");
        assert!(!text.contains("rm FILE"), "{text}");
    }

    #[test]
    fn files_on_tmpfs_are_listed_with_what_they_hold_beyond_their_length() {
        let file = FileWithMemory { length_bytes: 10_000, page_size: None, ..file("/tmp/a", &[]) };
        let all = FilesWithMemory { files: vec![file], ..FilesWithMemory::default() };
        let text = tmpfs_table(&all, PageSize::K4, 100);
        for part in ["1 file holds 2M, 1.99M more", "/tmp/a", "no process", "huge=within_size"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.lines().nth(1).unwrap().contains("page"), "{text}");
        assert_eq!(tmpfs_table(&FilesWithMemory::default(), PageSize::K4, 100), "");
    }
}
