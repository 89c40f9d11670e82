//! Checks which crate depends on which, and that every dependency is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::Finding;
use super::tree::Tree;

/// For each crate of the workspace, the crates that it may use, including those that only its tests use. The purpose of a crate
/// is to forbid dependencies, so a new crate must be listed here.
const MAY_USE: [(&str, &[&str]); 24] = [
    ("validation", &[]),
    ("guest", &["testing"]),
    ("testing", &[]),
    ("paging", &["testing"]),
    ("trace", &["testing"]),
    ("policy", &["testing"]),
    ("study", &["policy", "testing"]),
    ("study-files", &["policy", "study", "testing"]),
    ("host", &["policy", "paging", "testing"]),
    ("lease", &["host", "policy", "testing"]),
    ("census", &["host", "policy", "testing"]),
    // Only a benchmark uses `study`.
    ("tracer", &["host", "policy", "study", "testing", "validation"]),
    ("platform", &["census", "host", "lease", "tracer", "policy", "study", "testing"]),
    ("workloads", &["host", "policy", "paging", "testing"]),
    ("model", &["policy", "paging", "trace", "testing"]),
    ("results", &["policy", "study", "study-files", "testing"]),
    ("stacks", &["host", "policy", "testing"]),
    ("qemu-plugin", &["trace"]),
    (
        "verbs",
        &[
            "policy",
            "study",
            "study-files",
            "host",
            "lease",
            "census",
            "tracer",
            "platform",
            "workloads",
            "model",
            "results",
            "stacks",
            "paging",
            "trace",
            "guest",
            "testing",
        ],
    ),
    (
        "kvm-split",
        &[
            "verbs",
            "policy",
            "study",
            "study-files",
            "host",
            "census",
            "tracer",
            "workloads",
            "results",
            "paging",
            "testing",
        ],
    ),
    ("code-buffers", &["verbs", "policy", "host", "census", "tracer", "workloads", "results", "testing"]),
    ("direct-map", &["verbs", "policy", "host", "lease", "platform", "tracer", "results", "testing"]),
    // The program itself only calls `verbs`, and names its labs; the other crates are for its tests.
    (
        "pagelab",
        &[
            "verbs",
            "kvm-split",
            "code-buffers",
            "direct-map",
            "policy",
            "study",
            "host",
            "lease",
            "tracer",
            "platform",
            "workloads",
            "results",
            "trace",
            "validation",
            "testing",
        ],
    ),
    ("xtask", &["validation", "guest"]),
];

/// External crates that only one crate may use: those for storing and drawing, and those that read programs.
const ONLY: [(&str, &[&str]); 2] = [
    ("results", &["rusqlite", "arrow", "parquet", "plotters"]),
    ("stacks", &["framehop", "gimli", "object", "addr2line", "cpp_demangle", "rustc-demangle"]),
];

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    /// The directory of the crate, relative to the workspace.
    pub directory: String,
    /// The root files of the crate's library and programs, relative to the workspace.
    pub roots: Vec<String>,
    pub dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub struct Dependency {
    /// The name of the package.
    pub package: String,
    /// The name of the crate in source code.
    pub extern_name: String,
    /// Whether only tests, benches and examples use the dependency.
    pub only_tests: bool,
}

#[derive(Clone, Debug)]
pub struct Workspace {
    pub members: Vec<Member>,
}

/// The part of the output of `cargo metadata` that is used here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_members: Vec<String>,
    workspace_root: String,
    resolve: MetadataResolve,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    manifest_path: String,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    kind: Vec<String>,
    src_path: String,
}

#[derive(Deserialize)]
struct MetadataResolve {
    nodes: Vec<MetadataNode>,
}

#[derive(Deserialize)]
struct MetadataNode {
    id: String,
    deps: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    pkg: String,
    dep_kinds: Vec<MetadataKind>,
}

#[derive(Deserialize)]
struct MetadataKind {
    kind: Option<String>,
}

impl Workspace {
    /// Reads the output of `cargo metadata`.
    pub fn read(root: &Path) -> Result<Workspace, String> {
        let output = crate::cargo(root)
            .args(["metadata", "--format-version", "1", "--quiet"])
            .output()
            .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let metadata = serde_json::from_slice(&output.stdout);
        Ok(Workspace::of(&metadata.map_err(|error| format!("cannot read cargo metadata: {error}"))?))
    }

    fn of(metadata: &Metadata) -> Workspace {
        let packages: BTreeMap<&str, &MetadataPackage> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
        let relative = |path: &str| {
            path.strip_prefix(&metadata.workspace_root).unwrap_or(path).trim_start_matches('/').to_string()
        };
        let member = |id: &String| {
            let package = packages.get(id.as_str())?;
            let node = metadata.resolve.nodes.iter().find(|node| node.id == *id)?;
            let is_root = |target: &&MetadataTarget| {
                target.kind.iter().any(|kind| ["lib", "bin", "cdylib"].contains(&kind.as_str()))
            };
            let dependency = |dependency: &MetadataDependency| {
                let package = packages.get(dependency.pkg.as_str())?.name.clone();
                let only_tests = dependency.dep_kinds.iter().all(|kind| kind.kind.as_deref() == Some("dev"));
                Some(Dependency { package, extern_name: dependency.name.clone(), only_tests })
            };
            Some(Member {
                name: package.name.clone(),
                directory: relative(package.manifest_path.trim_end_matches("/Cargo.toml")),
                roots: package.targets.iter().filter(is_root).map(|target| relative(&target.src_path)).collect(),
                dependencies: node.deps.iter().filter_map(dependency).collect(),
            })
        };
        Workspace { members: metadata.workspace_members.iter().filter_map(member).collect() }
    }
}

/// Findings about dependencies.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = prohibitions(workspace);
    findings.extend(unused(workspace, tree));
    findings.extend(unused_in_workspace(workspace, tree));
    findings
}

fn prohibitions(workspace: &Workspace) -> Vec<Finding> {
    let names: BTreeSet<&str> = workspace.members.iter().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for member in &workspace.members {
        let manifest = format!("{}/Cargo.toml", member.directory);
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == member.name) else {
            let message = "unknown crate: list in xtask/src/tidy/crates.rs which crates it may use";
            findings.push(Finding::new(&manifest, 0, message));
            continue;
        };
        for dependency in member.dependencies.iter().map(|dependency| dependency.package.as_str()) {
            if names.contains(dependency) && !allowed.contains(&dependency) {
                let message = format!("{} must not depend on {dependency}; it may use {allowed:?}", member.name);
                findings.push(Finding::new(&manifest, 0, message));
            }
            let owner = ONLY.iter().find(|(_, dependencies)| dependencies.contains(&dependency));
            if let Some((owner, _)) = owner.filter(|(owner, _)| member.name != *owner) {
                let message = format!("only {owner} may depend on {dependency}; use its interface");
                findings.push(Finding::new(&manifest, 0, message));
            }
        }
    }
    findings
}

fn unused(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &workspace.members {
        let below = format!("{}/", member.directory);
        for dependency in &member.dependencies {
            if !tree.rust_below(&below).any(|file| has_word(&file.code, &dependency.extern_name)) {
                let message = format!("{} is not used in {below}; remove the dependency", dependency.package);
                findings.push(Finding::new(&format!("{}/Cargo.toml", member.directory), 0, message));
            }
        }
    }
    findings
}

fn unused_in_workspace(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let Some(manifest) = tree.get("Cargo.toml") else { return Vec::new() };
    let used = |name: &str| {
        let depends = |dependency: &Dependency| dependency.package == name;
        workspace.members.iter().any(|member| member.name == name || member.dependencies.iter().any(depends))
            || workspace.members.iter().filter_map(|member| tree.get(&format!("{}/Cargo.toml", member.directory))).any(
                |manifest| {
                    manifest
                        .text
                        .lines()
                        .any(|line| line.split(['=', '.']).next().is_some_and(|key| key.trim() == name))
                },
            )
    };
    workspace_dependencies(&manifest.text)
        .filter(|(_, name)| !used(name))
        .map(|(line, name)| {
            Finding::new("Cargo.toml", line, format!("no crate uses the workspace's {name}; remove it"))
        })
        .collect()
}

/// The entries of `[workspace.dependencies]`, with line and name.
fn workspace_dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let section = manifest.lines().zip(1..).skip_while(|(line, _)| line.trim() != "[workspace.dependencies]").skip(1);
    section
        .take_while(|(line, _)| !line.starts_with('['))
        .filter_map(|(line, number)| Some((number, line.split_once('=')?.0.trim())))
        .filter(|(_, name)| !name.starts_with('#'))
}

/// Whether the code contains this word.
pub fn has_word(code: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(part_of_word)
            && !code[at + word.len()..].chars().next().is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, dependencies: &[(&str, &str)]) -> Member {
        Member {
            name: name.into(),
            directory: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            dependencies: dependencies
                .iter()
                .map(|(package, extern_name)| Dependency {
                    package: package.to_string(),
                    extern_name: extern_name.to_string(),
                    only_tests: false,
                })
                .collect(),
        }
    }

    fn messages(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn every_forbidden_edge_is_found_and_no_allowed_one() {
        for (from, to) in [
            ("platform", "model"),
            ("model", "host"),
            ("results", "platform"),
            ("host", "lease"),
            ("host", "study"),
            ("census", "study"),
            ("lease", "tracer"),
            ("census", "tracer"),
            ("tracer", "census"),
            ("workloads", "tracer"),
            ("workloads", "census"),
            ("results", "model"),
            ("paging", "study"),
            ("study", "host"),
            ("study", "paging"),
            ("study", "study-files"),
            ("platform", "study-files"),
            ("policy", "study"),
            ("policy", "host"),
            ("platform", "trace"),
            ("stacks", "tracer"),
        ] {
            let workspace = Workspace { members: vec![member(from, &[(to, to)]), member(to, &[])] };
            let found = messages(&prohibitions(&workspace));
            assert_eq!(found.lines().count(), 1);
            assert!(found.contains(&format!("{from} must not depend on {to}")), "{found}");
        }
        let workspace = Workspace {
            members: vec![member("host", &[("policy", "policy"), ("libc", "libc")]), member("policy", &[])],
        };
        assert_eq!(prohibitions(&workspace), []);
    }

    #[test]
    fn libraries_of_one_crate_belong_to_it() {
        let workspace =
            |name| Workspace { members: vec![member(name, &[("rusqlite", "rusqlite"), ("plotters", "plotters")])] };
        assert_eq!(prohibitions(&workspace("verbs")).len(), 2);
        assert_eq!(prohibitions(&workspace("results")), []);
        let found = prohibitions(&Workspace { members: vec![member("census", &[("object", "object")])] });
        assert!(messages(&found).contains("only stacks may depend on object"));
    }

    #[test]
    fn an_unlisted_crate_is_found() {
        assert!(messages(&prohibitions(&Workspace { members: vec![member("utils", &[])] })).contains("unknown crate"));
    }

    #[test]
    fn a_dependency_counts_as_used_by_its_name_in_code_only() {
        let workspace = Workspace { members: vec![member("platform", &[("perf-event2", "perf_event")])] };
        let used = |source| unused(&workspace, &Tree::of(&[("crates/platform/src/lib.rs", source)])).is_empty();
        assert!(used("use perf_event::Builder;"));
        assert!(!used("// perf_event\nuse my_perf_event2::Builder; const A: &str = \"perf_event\";"));
    }

    #[test]
    fn an_entry_of_the_workspace_that_no_crate_takes_is_found() {
        let manifest = "[workspace.dependencies]\nlibc = \"0.2\"\n# a comment = 1\nrand = { version = \"1\" }\n\n[profile.release]\nlto = 1\n";
        let tree = Tree::of(&[("Cargo.toml", manifest)]);
        let workspace = Workspace { members: vec![member("host", &[("libc", "libc")])] };
        assert_eq!(
            messages(&unused_in_workspace(&workspace, &tree)),
            "Cargo.toml:4: no crate uses the workspace's rand; remove it\n"
        );
    }

    #[test]
    fn metadata_becomes_members_with_the_names_that_source_uses() {
        let metadata = serde_json::json!({
            "packages": [
                {"id": "m", "name": "platform", "manifest_path": "/w/crates/platform/Cargo.toml",
                 "targets": [{"kind": ["lib"], "src_path": "/w/crates/platform/src/lib.rs"},
                             {"kind": ["test"], "src_path": "/w/crates/platform/tests/a.rs"}]},
                {"id": "p", "name": "perf-event2", "manifest_path": "/r/Cargo.toml", "targets": []},
            ],
            "workspace_members": ["m"], "workspace_root": "/w",
            "resolve": {"nodes": [{"id": "m", "deps": [{"name": "perf_event", "pkg": "p", "dep_kinds": [{"kind": "dev"}]}]},
                          {"id": "p", "deps": []}]},
        });
        let workspace = Workspace::of(&serde_json::from_value(metadata).unwrap());
        let [platform] = workspace.members.as_slice() else { panic!("{workspace:?}") };
        assert_eq!(
            (platform.directory.as_str(), platform.roots.as_slice()),
            ("crates/platform", &["crates/platform/src/lib.rs".to_string()][..])
        );
        assert_eq!(
            (platform.dependencies[0].package.as_str(), platform.dependencies[0].extern_name.as_str()),
            ("perf-event2", "perf_event")
        );
        assert!(platform.dependencies[0].only_tests);
    }
}
