use super::*;
use proptest::prelude::*;

const WHOLE: &str = include_str!("../../../../fixtures/machine.toml");

fn refusal(changed: &[(&str, &str)]) -> String {
    let text = changed.iter().fold(WHOLE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    read("test.toml", &text).map(|machine| format!("{machine:?}")).unwrap_err().to_string()
}

#[test]
fn every_built_in_machine_is_valid_and_cites_a_source() {
    for (name, _) in BUILT_IN {
        let machine = built_in(name).unwrap();
        assert_eq!(machine.name, name);
        assert!(machine.figures.iter().any(|figure| matches!(figure.provenance, Provenance::Source(_))), "{name}");
    }
}

#[test]
fn reads_values_and_their_provenance() {
    let machine = read("test.toml", WHOLE).unwrap();
    assert_eq!((machine.tlbs[0].sets, machine.tlbs[0].ways), (16, 4));
    let assumed = machine.figures.iter().filter(|figure| matches!(figure.provenance, Provenance::Assumed(_))).count();
    assert_eq!((machine.figures.len(), assumed), (8, 4));
}

#[test]
fn names_the_key_of_an_impossible_value() {
    let entries = "entries = { is = 64,";
    for (from, to, key, words) in [
        ("ways = { is = 4,", "ways = { is = 5,", "tlb[0].ways", "divisor of the 64"),
        ("ways = { is = 4,", "ways = { is = 0,", "tlb[0].ways", "at least one way"),
        (entries, "entries = { is = 0,", "tlb[0].entries", "at least one entry"),
        (entries, "entries = { is = 4294967292,", "tlb[0].entries", "at most 4194304"),
        (entries, "entries = { is = 12,", "tlb[0].entries", "power of two"),
        (r#""2M""#, r#""3M""#, "tlb[0].holds", "power of two"),
        (r#""2M""#, r#""1K""#, "tlb[0].holds", "4K or more"),
        (r#""4K", "2M""#, r#""2M""#, "tlb", "holds pages of 4K"),
        (r#"is = "lru""#, r#"is = "mru""#, "tlb[0].replacement", "lru, plru, random, fifo, srrip"),
        (r#"is = "lru""#, r#"is = "srrip""#, "tlb[0].replacement", "a trace merges consecutive uses into runs"),
        (r#"["x86-64"]"#, r#"["sv39"]"#, "formats", "x86_64"),
        (r#"["x86-64"]"#, r#"["x86"]"#, "formats", r#"found "x86"; expected x86-64, x86-64-la57, arm64-GRANULE-BITS"#),
        (
            r#"["x86-64"]"#,
            r#"["x86-64+svnapot"]"#,
            "formats",
            r#"found "x86-64+svnapot"; expected an option of "x86-64" in place of "svnapot": physBITS"#,
        ),
        (r#""2M""#, r#""3M""#, "tlb[0].holds", r#"found "3M"; expected a page size: a power of two"#),
        (r#"assumed = "as others""#, r#"assumed = " ""#, "tlb[0].ways.assumed", "why it is assumed"),
        (r#"manual = "the manual""#, r#"manual = """#, "sources.manual", "what the source is"),
        (r#"name = "test""#, r#"name = """#, "name", "without control characters"),
        (r#"name = "test""#, r#"name = "a\u001b[31m""#, "name", "without control characters"),
        (r#"processor = "a test""#, r#"processor = "a\nb""#, "processor", "without control characters"),
        (r#"name = "L1""#, r#"name = " ""#, "tlb[0].name", "a name"),
        ("walkers = { is = 1", "walkers = { is = 0", "walker.walkers", "at least one"),
        (r#"assumed = "as others""#, r#"source = "hearsay""#, "tlb[0].ways.source", "[sources]"),
        (r#", assumed = "as others""#, "", "tlb[0].ways", "`source`"),
        ("level = 1", "level = 5", "tlb[0].level", "1 to 4"),
        ("level = 1", "level = 0", "tlb[0].level", "1 to 4"),
        ("level = 1", "level = 3", "tlb", "level 3 without level 2; expected consecutive levels from 1 on"),
    ] {
        let message = refusal(&[(from, to)]);
        assert!(
            message.starts_with(&format!("test.toml: {key}: found ")) && message.contains(words),
            "{to}: {message}"
        );
    }
}

/// The machine file with a second TLB: a copy of the first with another level, other accesses and other sizes.
fn with_second_tlb(level: &str, serves: &str, holds: &str) -> String {
    let tlb = &WHOLE[WHOLE.find("[[tlb]]").unwrap()..WHOLE.find("[walker]").unwrap()];
    let changes = [("level = 1", level), (r#"["fetch", "load", "store"]"#, serves), (r#"["4K", "2M"]"#, holds)];
    let changed = changes.iter().fold(tlb.to_owned(), |text, (from, to)| text.replace(from, to));
    format!("{}{changed}[walker]", &WHOLE[..WHOLE.find("[walker]").unwrap()]) + WHOLE.split("[walker]").nth(1).unwrap()
}

#[test]
fn refuses_two_tlbs_for_the_same_pages_and_accesses() {
    let message =
        read("test.toml", &with_second_tlb("level = 1", r#"["store"]"#, r#"["2M", "1G"]"#)).unwrap_err().to_string();
    let expected = "test.toml: tlb[1]: found a second TLB of level 1 for stores of 2M pages, in addition to \"L1\"; expected one for \
                    each level, kind of access and page size: otherwise it is undefined which of the two holds a page";
    assert_eq!(message, expected);
    for (level, holds) in [("level = 1", r#"["1G"]"#), ("level = 2", r#"["4K", "2M"]"#)] {
        let machine = read("test.toml", &with_second_tlb(level, r#"["store"]"#, holds)).unwrap();
        assert_eq!(machine.tlbs.len(), 2, "{level} {holds}");
    }
}

#[test]
fn reads_and_validates_kernel_costs() {
    let with = |text: &str| read("test.toml", &format!("{WHOLE}[kernel_costs]\n{text}"));
    let figure = |key: &str, is: u32| format!("{key} = {{ is = {is}, assumed = \"a test\" }}\n");
    let zeroing =
        |page: &str, cycles| format!("[[kernel_costs.zeroing]]\npage = \"{page}\"\n{}", figure("cycles", cycles));
    let faults = figure("fault_cycles", 1000) + &figure("copy_4k_cycles", 700);
    let machine = with(&(faults.clone() + &zeroing("2M", 9000) + &zeroing("4K", 100))).unwrap();
    let costs = machine.kernel_costs.unwrap();
    assert_eq!((costs.fault_cycles, costs.copy_4k_cycles), (1000, 700));
    assert_eq!(
        costs.zeroing.iter().map(|one| (one.page_bytes, one.cycles)).collect::<Vec<_>>(),
        [(4096, 100), (2 << 20, 9000)]
    );
    assert!(machine.figures.iter().any(|figure| figure.key == "kernel_costs.zeroing[1].cycles"));
    assert!(read("test.toml", WHOLE).unwrap().kernel_costs.is_none(), "the section is optional");
    for (text, words) in [
        (faults.clone() + &zeroing("4K", 100) + &zeroing("4K", 90), "kernel_costs.zeroing[1].page: found 4K"),
        (faults.clone() + &zeroing("4K", 0), "kernel_costs.zeroing[0].cycles: found 0; expected at least one cycle"),
        (faults.clone() + "zeroing = []\n", "kernel_costs.zeroing: found none"),
        (
            figure("fault_cycles", 0) + &figure("copy_4k_cycles", 1) + &zeroing("4K", 1),
            "kernel_costs.fault_cycles: found 0",
        ),
        (faults.clone() + "speed = 3\n" + &zeroing("4K", 1), "unknown field `speed`"),
    ] {
        let message = with(&text).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn refuses_formats_of_another_architecture_or_stage() {
    let stage2 = |format: &str| {
        let figure = |(key, is): (&str, &str)| format!("{key} = {{ is = {is}, assumed = \"a test\" }}\n");
        let keys = [("format", format), ("page", "\"2M\""), ("tlb_entries", "16"), ("tlb_ways", "4")];
        read("test.toml", &format!("{WHOLE}[stage2]\n{}", keys.map(figure).concat()))
    };
    assert!(stage2("\"x86-64\"").is_ok());
    for foreign in ["\"arm64-s2-4k-40\"", "\"sv39x4\""] {
        let message = stage2(foreign).unwrap_err().to_string();
        assert!(
            message.contains("stage2.format: found") && message.contains("a stage 2 format of x86_64"),
            "{message}"
        );
    }
    let first = |architecture: &str, format: &str| refusal(&[("\"x86_64\"", architecture), ("[\"x86-64\"]", format)]);
    assert!(first("\"riscv64\"", "[\"sv39x4\"]").contains("a stage 1 format of riscv64"));
    assert!(first("\"aarch64\"", "[\"arm64-s2-4k-40\"]").contains("a stage 1 format of aarch64"));
}

#[test]
fn refuses_a_value_without_provenance() {
    let message = refusal(&[("{ is = 64, source = \"manual\" }", "64")]);
    assert!(
        message.contains("expected a figure: { is = VALUE, source = KEY }") && message.contains("line 13"),
        "{message}"
    );
}

#[test]
fn refuses_unknown_keys_and_other_versions() {
    let message = refusal(&[("level = 1", "level = 1\nspeed = 3")]);
    assert!(message.contains("unknown field `speed`") && message.contains("line 11"), "{message}");
    assert!(refusal(&[("machine/1", "machine/2")]).contains(r#"expected "pagelab.machine/1""#));
    assert!(matches!(built_in("zen-9"), Err(MachineError::Unknown { nearest: "zen-2", .. })));
}

#[test]
fn coalesces_and_coalescing_needs_require_each_other() {
    let with = |text: &str| {
        let cycles = "hit_cycles = { is = 0,";
        WHOLE.replace(cycles, &format!("{text}\n{cycles}"))
    };
    let four = with(
        r#"coalesces = { is = "4", source = "manual" }
coalescing_needs = { is = "contiguity", source = "manual" }"#,
    );
    let machine = read("test.toml", &four).unwrap();
    assert_eq!(machine.tlbs[0].stored_bytes(4096, 4096, 65536), Some(16384));
    assert_eq!(machine.tlbs[0].stored_bytes(4096, 4096, 8192), Some(8192));
    for (text, key) in [
        (r#"coalesces = { is = "4", source = "manual" }"#, "tlb[0].coalescing_needs"),
        (r#"coalesces = { is = "5", source = "manual" }"#, "tlb[0].coalesces"),
        (r#"coalescing_needs = { is = "bit", source = "manual" }"#, "tlb[0].coalesces"),
    ] {
        let message = read("test.toml", &with(text)).unwrap_err().to_string();
        assert!(message.contains(key), "{message}");
    }
    let unbounded = four.replace(r#"is = "4""#, r#"is = "full""#);
    assert!(read("test.toml", &unbounded).unwrap_err().to_string().contains("a group has no end"));
}

#[test]
fn stores_a_large_page_as_the_largest_supported_size() {
    let a57 = built_in("cortex-a57").unwrap();
    let stored = |level, leaf, group| {
        let tlb = a57.tlbs.iter().find(|tlb| tlb.level == level && tlb.serves.contains(&AccessKind::Load)).unwrap();
        tlb.stored_bytes(leaf, group, group)
    };
    assert_eq!((stored(1, 2 << 20, 2 << 20), stored(2, 2 << 20, 2 << 20)), (Some(1 << 20), Some(2 << 20)));
    assert_eq!((stored(1, 4096, 65536), stored(2, 4096, 65536)), (Some(65536), Some(65536)));
}

#[test]
fn each_large_size_has_half_the_second_level_entries_of_4k_since_sunny_cove() {
    for name in ["ice-lake", "sapphire-rapids"] {
        let machine = built_in(name).unwrap();
        let entries = |bytes: u64| {
            let second = machine.tlbs.iter().filter(|tlb| tlb.level == 2 && tlb.serves.contains(&AccessKind::Load));
            let best = second.max_by_key(|tlb| tlb.stored_bytes(bytes, bytes, bytes)).unwrap();
            assert_eq!(best.stored_bytes(bytes, bytes, bytes), Some(bytes), "{name}");
            (best.entries(), best.ways)
        };
        assert_eq!([entries(4096), entries(2 << 20), entries(1 << 30)], [(2048, 16), (1024, 8), (1024, 8)], "{name}");
    }
}

proptest! {
    #![proptest_config(testing::properties(64))]

    #[test]
    fn any_value_results_in_a_machine_or_an_error_that_names_the_file(
        line in 0..WHOLE.lines().count(),
        value in prop_oneof![
            any::<u64>().prop_map(|number| number.to_string()),
            any::<i8>().prop_map(|number| number.to_string()),
            "[a-z0-9\\[\\]{}=\", -]{0,12}",
        ],
    ) {
        let changed = |(at, text): (usize, &str)| match text.split_once("is = ") {
            Some((before, after)) if at == line => {
                let rest = after.split_once(',').map_or("", |(_, rest)| rest);
                format!("{before}is = {value},{rest}")
            }
            _ if at == line => value.clone(),
            _ => text.to_owned(),
        };
        let text: Vec<String> = WHOLE.lines().enumerate().map(changed).collect();
        if let Err(error) = read("test.toml", &text.join("\n")) {
            prop_assert!(error.to_string().starts_with("test.toml: "), "{}", error);
        }
    }
}

#[test]
fn recognises_processors_by_their_numbers() {
    let of = |cpu: &str| -> Vec<&str> {
        BUILT_IN.iter().map(|(name, _)| *name).filter(|name| built_in(name).unwrap().is_cpu(cpu)).collect()
    };
    assert_eq!(of("AuthenticAMD/25/1"), ["zen-3"]);
    assert_eq!(of("AuthenticAMD/25/17"), ["zen-4"]);
    assert_eq!(of("AuthenticAMD/23/49"), ["zen-2"]);
    assert_eq!(of("GenuineIntel/6/143"), ["sapphire-rapids"]);
    assert_eq!(of("0x41/0xd0c"), ["neoverse-n1"]);
    assert!(["AuthenticAMD/25/999", "", "0x41", "x/y/z", "GenuineIntel/6/-"].iter().all(|cpu| of(cpu).is_empty()));
}
