//! Compares the configurations of kernels ([`differences`]).

use std::collections::BTreeSet;

use guest::{Image, Options};
use study_files::definition::Boot;

/// Maximum number of options listed by name; the others are only counted.
const MAX_LISTED: usize = 16;
/// Prefixes of relevant options that are listed last, because they depend on devices and hypervisors more than on page
/// sizes.
const LAST_PREFIXES: [&str; 3] = ["BALLOON", "CMA", "ZSWAP"];
/// Options that make memory or page tables much more expensive. They are named if both kernels have them.
const EXPENSIVE: [&str; 9] = [
    "DEBUG_PAGEALLOC_ENABLE_DEFAULT",
    "DEBUG_VM",
    "INIT_ON_ALLOC_DEFAULT_ON",
    "INIT_ON_FREE_DEFAULT_ON",
    "KASAN",
    "KCSAN",
    "PAGE_POISONING",
    "PAGE_TABLE_CHECK_ENFORCED",
    "PROVE_LOCKING",
];
/// Prefixes of options that affect memory management, or the speed of the whole kernel.
const RELEVANT_PREFIXES: [&str; 44] = [
    "ARCH_WANT_HUGE",
    "ARM64_16K_PAGES",
    "ARM64_4K_PAGES",
    "ARM64_64K_PAGES",
    "ARM64_CONTPTE",
    "BALLOON",
    "CC_OPTIMIZE",
    "CC_VERSION_TEXT",
    "CMA",
    "COMPACTION",
    "DEBUG_",
    "FRONTSWAP",
    "FTRACE",
    "HUGETLB",
    "HZ",
    "INIT_ON_",
    "KASAN",
    "KCSAN",
    "KFENCE",
    "KSM",
    "LOCKDEP",
    "LRU_GEN",
    "LTO",
    "MEMCG",
    "MEMORY",
    "MIGRATION",
    "MITIGATION",
    "NR_CPUS",
    "NUMA",
    "PAGE_",
    "PER_VMA_LOCK",
    "PGTABLE",
    "PREEMPT",
    "PROVE_",
    "PT_",
    "READ_ONLY_THP",
    "RISCV_ISA_SVNAPOT",
    "SHUFFLE_PAGE",
    "SLUB",
    "SWAP",
    "THP_",
    "TRANSPARENT_HUGEPAGE",
    "USERFAULTFD",
    "ZSWAP",
];

/// How the configurations of the kernels that pagelab boots differ, as a sentence; `None` if there are fewer than two images.
pub fn differences(boots: &[Boot]) -> Option<String> {
    let (baseline, others): (Vec<&Boot>, Vec<&Boot>) = boots.iter().partition(|boot| boot.is_baseline);
    let images = baseline
        .into_iter()
        .chain(others)
        .filter_map(|boot| Some((boot.name.as_str(), boot.guest.as_ref()?.image.as_str())));
    let images: Vec<(&str, &str)> = images.collect();
    let [(first, old), others @ ..] = &images[..] else { return None };
    let sentences = others.iter().map(|(name, new)| match () {
        () if new == old => format!("{name} is the same image as {first}"),
        () => difference_of_images((*first, *old), (*name, *new)),
    });
    let sentences: Vec<String> = sentences.collect();
    (!sentences.is_empty()).then(|| format!("{}.", sentences.join("; ")))
}

fn difference_of_images(old: (&str, &str), new: (&str, &str)) -> String {
    let options_of = |(name, path): (&str, &str)| {
        let image = Image::read(path.as_ref()).ok();
        let config = image.as_ref().and_then(guest::config);
        config.map(|(_, options)| options).ok_or_else(|| {
            format!(
                "{} and {} are not compared: {name} has no config-RELEASE next to its image, and no .config in its tree",
                new.0, old.0
            )
        })
    };
    match (options_of(old), options_of(new)) {
        (Ok(old_options), Ok(new_options)) => difference((old.0, &old_options), (new.0, &new_options)),
        (Err(why), _) | (_, Err(why)) => why,
    }
}

/// `new against old: HZ 250 -> 1000, KSM y -> not set; other options that differ: 7`
fn difference((old, old_options): (&str, &Options), (new, new_options): (&str, &Options)) -> String {
    let all: BTreeSet<&String> = old_options
        .keys()
        .chain(new_options.keys())
        .filter(|name| old_options.get(*name) != new_options.get(*name))
        .collect();
    if all.is_empty() {
        return format!("{new} has the configuration of {old}");
    }
    let stem = |name: &str| name.trim_start_matches("CONFIG_").to_owned();
    let is_relevant = |name: &&&String| RELEVANT_PREFIXES.iter().any(|prefix| stem(name).starts_with(prefix));
    let (mut relevant, others): (Vec<&String>, Vec<&String>) = all.iter().partition(is_relevant);
    relevant.sort_by_key(|name| LAST_PREFIXES.iter().any(|prefix| stem(name).starts_with(prefix)));
    let value = |options: &Options, name: &String| options.get(name).map_or("not set".to_owned(), Clone::clone);
    let change =
        |name: &&String| format!("{} {} -> {}", stem(name), value(old_options, name), value(new_options, name));
    let mut parts: Vec<String> = relevant.iter().take(MAX_LISTED).map(change).collect();
    if relevant.len() > MAX_LISTED {
        parts.push(format!("and {} more of this kind", relevant.len() - MAX_LISTED));
    }
    let listed = if parts.is_empty() { "no option of memory management differs".to_owned() } else { parts.join(", ") };
    format!(
        "{new} against {old}: {listed}; other options that differ: {}{}",
        others.len(),
        expensive(old_options, new_options)
    )
}

/// `; both have INIT_ON_ALLOC_DEFAULT_ON`: options that make memory expensive on both kernels.
fn expensive(old: &Options, new: &Options) -> String {
    let is_set =
        |options: &Options, name: &str| options.get(&format!("CONFIG_{name}")).is_some_and(|value| value == "y");
    let both: Vec<&str> = EXPENSIVE.into_iter().filter(|name| is_set(old, name) && is_set(new, name)).collect();
    if both.is_empty() { String::new() } else { format!("; both have {}", both.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(all: &[(&str, &str)]) -> Options {
        all.iter().map(|(name, value)| (format!("CONFIG_{name}"), (*value).to_owned())).collect()
    }

    #[test]
    fn options_of_memory_are_named_and_others_are_counted() {
        let old = options(&[("HZ", "250"), ("KSM", "y"), ("SOUND", "m"), ("X86", "y")]);
        let new = options(&[("HZ", "1000"), ("SOUND", "y"), ("X86", "y")]);
        let text = difference(("old", &old), ("new", &new));
        assert_eq!(text, "new against old: HZ 250 -> 1000, KSM y -> not set; other options that differ: 1");
        assert_eq!(difference(("old", &old), ("new", &old)), "new has the configuration of old");
        let others = options(&[("HZ", "250"), ("KSM", "y"), ("X86", "y")]);
        assert!(
            difference(("old", &old), ("new", &others))
                .contains("no option of memory management differs; other options that differ: 1")
        );
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let names: Vec<String> = (0..20).map(|number| format!("PAGE_{number:02}")).collect();
        let new = options(&names.iter().map(|name| (name.as_str(), "y")).collect::<Vec<_>>());
        let text = difference(("old", &Options::new()), ("new", &new));
        assert!(text.contains("PAGE_15 not set -> y, and 4 more of this kind; other options that differ: 0"), "{text}");
    }

    #[test]
    fn devices_come_last_and_what_is_expensive_on_both_is_named() {
        let both = [("INIT_ON_ALLOC_DEFAULT_ON", "y"), ("CMA", "n"), ("PREEMPT_LAZY", "n")];
        let (old, mut new) = (options(&both), options(&both));
        new.extend(options(&[("CMA", "y"), ("PREEMPT_LAZY", "y")]));
        let text = difference(("old", &old), ("new", &new));
        assert!(
            text.contains(
                "PREEMPT_LAZY n -> y, CMA n -> y; other options that differ: 0; both have INIT_ON_ALLOC_DEFAULT_ON"
            ),
            "{text}"
        );
    }
}
