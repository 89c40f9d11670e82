//! How to have a policy permanently, without pagelab.

use policy::size::PageSize;
use policy::{DirectMapLeaves, Granularity, Modifier, PageSizes, Policy};
use study::adoption::Switch;
use study::comparison::Adoption;

use super::transparent;
use crate::{Host, THP, hugetlb_file, thp_size_enabled};

/// Ways to have `policy` permanently for a command on a host, the least intrusive first: the program's own switch, a wrapper or
/// library for the program alone, settings for programs that ask for large pages, settings for every program, boot options. The
/// first entry is sufficient by itself. Empty where nothing needs to be done, or the kernel cannot do it.
///
/// Sources: Documentation/admin-guide/mm/transhuge.rst (`transparent_hugepage=`, and `thp_anon=` since Linux 6.12) and
/// hugetlbpage.rst; prctl(2); systemd.exec(5) (`MemoryTHP=`, since systemd 260); tmpfiles.d(5); the glibc manual, Memory
/// Allocation Tunables (`glibc.malloc.hugetlb`, since 2.35); those of switches are in [`study::adoption`].
pub fn adoption(policy: &Policy, host: &Host, command: &[String]) -> Vec<Adoption> {
    let page_sizes = host.page_sizes();
    let mut ways: Vec<Adoption> =
        Switch::of(command, policy).into_iter().filter_map(|own| by_switch(policy, &own, host)).collect();
    ways.extend(match policy.granularity {
        Granularity::Default => Vec::new(),
        Granularity::Base => base(page_sizes),
        Granularity::Mthp(size) if page_sizes.mthp.contains(&size) => transparent_pages(size, host),
        Granularity::Thp => page_sizes.pmd.map(|pmd| transparent_pages(pmd, host)).unwrap_or_default(),
        Granularity::Hugetlb(size) if page_sizes.hugetlb.contains(&size) => hugetlb(size),
        Granularity::Mthp(_) | Granularity::Hugetlb(_) => Vec::new(),
        Granularity::DirectMap(DirectMapLeaves::Of(leaf)) => direct_map(leaf, page_sizes),
        // A boot without options has this.
        Granularity::DirectMap(DirectMapLeaves::Mixed) => Vec::new(),
    });
    let of_modifiers: Vec<Adoption> = policy.modifiers().iter().map(|modifier| of_modifier(*modifier)).collect();
    match (ways.first_mut(), &of_modifiers[..]) {
        (Some(first), others) => others.iter().for_each(|other| join(first, other)),
        (None, [first, others @ ..]) if !others.is_empty() => {
            let mut whole = first.clone();
            others.iter().for_each(|other| join(&mut whole, other));
            ways.push(whole);
        }
        (None, _) => {}
    }
    ways.extend(of_modifiers);
    ways
}

/// Combines two ways into one.
fn join(way: &mut Adoption, other: &Adoption) {
    way.scope = format!("{}; and {}", way.scope, other.scope);
    way.commands.extend_from_slice(&other.commands);
}

/// The switch, and the setting that it needs: where the program does not ask for large pages, a setting for every program.
fn by_switch(policy: &Policy, (switch, program): &(Switch, String), host: &Host) -> Option<Adoption> {
    let page_sizes = host.page_sizes();
    let option = format!("{program} {}", switch.options());
    let (needs, mut commands) = match (policy.granularity, policy.target(page_sizes)?) {
        (Granularity::Hugetlb(_), size) => (Some("a pool of N pages, until reboot (as root)"), vec![fill_pool(size)]),
        (_, size) if switch.asks() && is_had(size, false, host) => (None, Vec::new()),
        (_, size) if switch.asks() => {
            (Some("for programs that ask, until reboot (as root)"), only(size, "madvise", page_sizes))
        }
        (_, size) if is_had(size, true, host) => (None, Vec::new()),
        (_, size) => (Some("for every program, until reboot (as root)"), only(size, "always", page_sizes)),
    };
    let scope = match needs {
        Some(needs) => format!("{}; and {needs}", switch.what),
        None => switch.what.to_owned(),
    };
    commands.push(option);
    Some(Adoption { scope, commands })
}

/// Where settings cannot be read this is false, so that the commands that set them are given; they are correct in any case.
fn is_had(size: PageSize, for_all: bool, host: &Host) -> bool {
    transparent::is_had(size, for_all, host).unwrap_or(false)
}

fn way<const N: usize>(scope: &str, commands: [&str; N]) -> Adoption {
    Adoption { scope: scope.into(), commands: commands.map(String::from).to_vec() }
}

fn base(page_sizes: &PageSizes) -> Vec<Adoption> {
    let Some(pmd) = page_sizes.pmd else { return Vec::new() };
    vec![
        way(
            "one program and all it starts; pagelab sets PR_SET_THP_DISABLE and is then replaced by the program",
            ["pagelab exec -p base -- COMMAND"],
        ),
        way("one service: its unit, section [Service] (systemd 260 or later)", ["MemoryTHP=disable"]),
        way(
            "one program and all it starts: in its code, before memory is touched",
            ["prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);"],
        ),
        now("every program, until reboot (as root)", page_sizes, pmd, "never"),
        at_boot("every program, at each boot", &[(format!("{THP}/enabled"), "never")]),
        way("every program, at each boot: the kernel command line", ["transparent_hugepage=never"]),
    ]
}

/// Pages of one transparent size. malloc asks for them only while the top-level setting is `madvise`, whatever the setting of the
/// size (`madvise_thp` and `__malloc_thp_mode` in glibc).
fn transparent_pages(size: PageSize, host: &Host) -> Vec<Adoption> {
    const TUNABLE: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 COMMAND";
    const MALLOC: &str = "let the program's malloc ask for large pages (programs linked dynamically with glibc 2.35 or later; main \
                          arena only)";
    let page_sizes = host.page_sizes();
    let Some(pmd) = page_sizes.pmd else { return Vec::new() };
    let for_those_that_ask = is_had(size, false, host);
    let malloc_asks = host.value(&format!("{THP}/enabled")).is_ok_and(|word| word.as_deref() == Some("madvise"));
    let mut ways = Vec::new();
    if for_those_that_ask && malloc_asks {
        ways.push(way(MALLOC, [TUNABLE]));
    }
    if for_those_that_ask {
        ways.push(in_code());
    }
    if !(for_those_that_ask && malloc_asks) {
        let mut commands = only(size, "madvise", page_sizes);
        if size != pmd {
            commands.push(format!("echo madvise > {THP}/enabled"));
        }
        commands.push(TUNABLE.into());
        ways.push(Adoption { scope: format!("{MALLOC}; and for programs that ask, until reboot (as root)"), commands });
    }
    ways.push(now("programs that ask for it, until reboot (as root)", page_sizes, size, "madvise"));
    if !for_those_that_ask {
        ways.push(in_code());
    }
    let line = format!("thp_anon={size}:always");
    let (boot, line): (Vec<&str>, _) = if size == pmd {
        (Vec::new(), way("every program, at each boot: the kernel command line", ["transparent_hugepage=always"]))
    } else {
        (
            vec!["never"],
            way("every program, at each boot: the kernel command line (Linux 6.12; unnamed sizes are off)", [&line]),
        )
    };
    let settings = |value| {
        let file = if size == pmd { format!("{THP}/enabled") } else { thp_size_enabled(size) };
        let others = boot.iter().map(|never| (thp_size_enabled(pmd), *never));
        others.chain([(file, value)]).collect::<Vec<_>>()
    };
    ways.push(at_boot("programs that ask for it, at each boot", &settings("madvise")));
    ways.push(now("every program, until reboot (as root)", page_sizes, size, "always"));
    ways.push(at_boot("every program, at each boot", &settings("always")));
    ways.push(line);
    ways
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
        way(
            "let the program's malloc ask for pages of the pool (programs linked dynamically with glibc 2.35 or later; where the \
             pool is empty it takes smaller pages, silently); and the pool of N pages that it needs, until reboot (as root)",
            [&fill_pool(size), &tunable],
        ),
        way("or the program asks for them: in its code (length a multiple of the page size)", [&flags]),
        at_boot("the pool, at each boot", &pool),
        way("the pool, at boot before memory is fragmented: the kernel command line", [&line]),
    ]
}

fn fill_pool(size: PageSize) -> String {
    format!("echo N > {}", hugetlb_file(size, "nr_hugepages"))
}

/// Where the direct map already has the largest leaves, nothing needs to be done. The options are those of x86 (`nogbpages`,
/// `debug_pagealloc=`) and arm64 (`rodata=`): Documentation/admin-guide/kernel-parameters.txt.
fn direct_map(leaf: PageSize, page_sizes: &PageSizes) -> Vec<Adoption> {
    const LINE: &str = "every program and the kernel, at each boot: the kernel command line";
    match page_sizes.direct_map_leaves().iter().position(|size| *size == leaf) {
        Some(0) => vec![
            way(&format!("{LINE} (arm64)"), ["rodata=full"]),
            way(&format!("{LINE} (costs time of its own; CONFIG_DEBUG_PAGEALLOC)"), ["debug_pagealloc=on"]),
        ],
        Some(1) if page_sizes.base == PageSize::K4 => vec![way(&format!("{LINE} (x86)"), ["nogbpages"])],
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
        Modifier::NoHuge => way(
            "not huge: in the program's code, at its beginning (kept over fork and exec)",
            ["prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);"],
        ),
        Modifier::Prefault => way(
            "populated when mapped: in the program's code, after mmap (Linux 5.14)",
            ["madvise(address, length, MADV_POPULATE_WRITE);"],
        ),
    }
}

fn now(scope: &str, page_sizes: &PageSizes, size: PageSize, value: &str) -> Adoption {
    Adoption { scope: scope.into(), commands: only(size, value, page_sizes) }
}

/// The commands after which `size` is the only size and its setting is `value`, whatever was set before.
/// The PMD size follows the top-level file, as it does after boot.
fn only(size: PageSize, value: &str, page_sizes: &PageSizes) -> Vec<String> {
    let mut commands = Vec::new();
    if !page_sizes.mthp.is_empty() {
        commands.push(format!("for file in {THP}/hugepages-*/enabled; do echo never > $file; done"));
    }
    if page_sizes.pmd == Some(size) {
        commands.extend((!page_sizes.mthp.is_empty()).then(|| format!("echo inherit > {}", thp_size_enabled(size))));
        commands.push(format!("echo {value} > {THP}/enabled"));
    } else {
        commands.push(format!("echo {value} > {}", thp_size_enabled(size)));
    }
    commands
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
