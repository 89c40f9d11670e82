//! How to have a policy for good, without pagelab.

use study::comparison::Adoption;
use study::policy::{Geometry, Granularity, Modifier, Policy};
use study::size::PageSize;

use crate::host::{THP, hugetlb_file, thp_size_enabled};

/// Ways to have `policy` permanently on a kernel with this geometry, the narrowest first; empty where
/// nothing needs to be done, or the kernel cannot do it.
///
/// Sources: Documentation/admin-guide/mm/transhuge.rst (`transparent_hugepage=`, and `thp_anon=` since
/// Linux 6.12) and hugetlbpage.rst; prctl(2); systemd.exec(5) (`MemoryTHP=`, since systemd 260);
/// tmpfiles.d(5); the glibc manual, Memory Allocation Tunables (`glibc.malloc.hugetlb`, since 2.35).
pub fn adoption(policy: &Policy, geometry: &Geometry) -> Vec<Adoption> {
    let mut ways = match policy.granularity {
        Granularity::Default => Vec::new(),
        Granularity::Base => base(geometry),
        Granularity::Mthp(size) if geometry.mthp.contains(&size) => mthp(size, geometry),
        Granularity::Thp => geometry.pmd.map(|pmd| thp(pmd, geometry)).unwrap_or_default(),
        Granularity::Hugetlb(size) if geometry.hugetlb.contains(&size) => hugetlb(size),
        Granularity::Mthp(_) | Granularity::Hugetlb(_) => Vec::new(),
        Granularity::DirectMap(leaf) => direct_map(leaf, geometry),
    };
    ways.extend(policy.modifiers().iter().map(|modifier| of_modifier(*modifier)));
    ways
}

fn way<const N: usize>(scope: &str, commands: [&str; N]) -> Adoption {
    Adoption { scope: scope.into(), commands: commands.map(String::from).to_vec() }
}

fn base(geometry: &Geometry) -> Vec<Adoption> {
    let Some(pmd) = geometry.pmd else { return Vec::new() };
    vec![
        way("one service: its unit, section [Service] (systemd 260 or later)", ["MemoryTHP=disable"]),
        way(
            "one program and all it starts: in its code, before memory is touched",
            ["prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);"],
        ),
        now("every program, until reboot (as root)", geometry, pmd, "never"),
        at_boot("every program, at each boot", &[(format!("{THP}/enabled"), "never")]),
        way("every program, at each boot: the kernel command line", ["transparent_hugepage=never"]),
    ]
}

fn mthp(size: PageSize, geometry: &Geometry) -> Vec<Adoption> {
    let Some(pmd) = geometry.pmd else { return Vec::new() };
    let boot = |value| [(thp_size_enabled(pmd), "never"), (thp_size_enabled(size), value)];
    let line = format!("thp_anon={size}:always");
    vec![
        now("programs that ask for it, until reboot (as root)", geometry, size, "madvise"),
        in_code(),
        at_boot("programs that ask for it, at each boot", &boot("madvise")),
        now("every program, until reboot (as root)", geometry, size, "always"),
        at_boot("every program, at each boot", &boot("always")),
        way("every program, at each boot: the kernel command line (Linux 6.12; unnamed sizes are off)", [&line]),
    ]
}

fn thp(pmd: PageSize, geometry: &Geometry) -> Vec<Adoption> {
    vec![
        now("programs that ask for it, until reboot (as root)", geometry, pmd, "madvise"),
        in_code(),
        way(
            "one program's malloc, main arena only (glibc 2.35; acts only while transparent_hugepage/enabled is madvise)",
            ["GLIBC_TUNABLES=glibc.malloc.hugetlb=1 COMMAND"],
        ),
        at_boot("programs that ask for it, at each boot", &[(format!("{THP}/enabled"), "madvise")]),
        now("every program, until reboot (as root)", geometry, pmd, "always"),
        at_boot("every program, at each boot", &[(format!("{THP}/enabled"), "always")]),
        way("every program, at each boot: the kernel command line", ["transparent_hugepage=always"]),
    ]
}

fn hugetlb(size: PageSize) -> Vec<Adoption> {
    let pool = [(hugetlb_file(size, "nr_hugepages"), "N")];
    let shift = size.bytes().trailing_zeros();
    let flags = format!(
        "mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | ({shift} << MAP_HUGE_SHIFT), -1, 0);"
    );
    let tunable = format!("GLIBC_TUNABLES=glibc.malloc.hugetlb={} COMMAND", size.bytes());
    let line = super::pool::boot_option(size, "N");
    vec![
        way("the program must ask for them: in its code (length a multiple of the page size)", [&flags]),
        way("or its malloc (glibc 2.35; smaller pages, silently, where the pool is empty)", [&tunable]),
        way(
            "the pool of N pages that it needs, until reboot (as root)",
            [&format!("echo N > {}", hugetlb_file(size, "nr_hugepages"))],
        ),
        at_boot("the pool, at each boot", &pool),
        way("the pool, at boot before memory is fragmented: the kernel command line", [&line]),
    ]
}

/// Where the direct map is as large as it can be there is nothing to do. The options are those of x86
/// (`nogbpages`, `debug_pagealloc=`) and arm64 (`rodata=`): Documentation/admin-guide/kernel-parameters.txt.
fn direct_map(leaf: PageSize, geometry: &Geometry) -> Vec<Adoption> {
    const LINE: &str = "every program and the kernel, at each boot: the kernel command line";
    match geometry.direct_map_leaves().iter().position(|size| *size == leaf) {
        Some(0) => vec![
            way(&format!("{LINE} (arm64)"), ["rodata=full"]),
            way(&format!("{LINE} (costs time of its own; CONFIG_DEBUG_PAGEALLOC)"), ["debug_pagealloc=on"]),
        ],
        Some(1) if geometry.base == PageSize::K4 => vec![way(&format!("{LINE} (x86)"), ["nogbpages"])],
        _ => vec![way(&format!("{LINE}: without these"), ["nogbpages", "debug_pagealloc=on", "rodata=full"])],
    }
}

fn in_code() -> Adoption {
    way(
        "how a program asks: in its code, after mmap and before the first touch",
        ["madvise(address, length, MADV_HUGEPAGE);"],
    )
}

fn of_modifier(modifier: Modifier) -> Adoption {
    match modifier {
        Modifier::NoGuards => way(
            "without guard pages: in the program's code, leave them out; or (Linux 6.13) install them without \
             splitting the mapping",
            ["madvise(guard, length, MADV_GUARD_INSTALL);"],
        ),
        Modifier::NoHuge => {
            way("not huge: in the program's code, after mmap", ["madvise(address, length, MADV_NOHUGEPAGE);"])
        }
        Modifier::Prefault => way(
            "populated when mapped: in the program's code, after mmap (Linux 5.14)",
            ["madvise(address, length, MADV_POPULATE_WRITE);"],
        ),
    }
}

/// The commands after which `size` is the only size and its setting is `value`, whatever was set before.
/// The PMD size follows the top-level file, as it does after boot.
fn now(scope: &str, geometry: &Geometry, size: PageSize, value: &str) -> Adoption {
    let mut commands = Vec::new();
    if !geometry.mthp.is_empty() {
        commands.push(format!("for file in {THP}/hugepages-*/enabled; do echo never > $file; done"));
    }
    if geometry.pmd == Some(size) {
        commands.extend((!geometry.mthp.is_empty()).then(|| format!("echo inherit > {}", thp_size_enabled(size))));
        commands.push(format!("echo {value} > {THP}/enabled"));
    } else {
        commands.push(format!("echo {value} > {}", thp_size_enabled(size)));
    }
    Adoption { scope: scope.into(), commands }
}

/// A file of systemd-tmpfiles, which writes at boot what differs from the kernel's defaults: the PMD size
/// follows the top-level file, every other size is off.
fn at_boot(scope: &str, settings: &[(String, &str)]) -> Adoption {
    const FILE: &str = "/etc/tmpfiles.d/page-size.conf";
    let lines: Vec<String> = settings.iter().map(|(path, value)| format!("w {path} - - - - {value}")).collect();
    let quoted: Vec<String> = lines.iter().map(|line| format!("'{line}'")).collect();
    let script = format!("printf '%s\\n' {} > {FILE}", quoted.join(" "));
    Adoption {
        scope: format!("{scope} (as root)"),
        commands: vec![script, format!("systemd-tmpfiles --create {FILE}")],
    }
}
