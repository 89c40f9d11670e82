use super::*;

fn sweep() -> Sweep {
    let geometry = |page_bytes, sets, ways, misses| TlbGeometry { page_bytes, sets, ways, misses };
    Sweep {
        per: Per::Instructions(1000),
        geometries: vec![
            geometry(4096, 1, 1, 1000),
            geometry(4096, 1, 3, 900),
            geometry(4096, 1, 8, 100),
            geometry(4096, 2, 8, 10),
            geometry(4096, 2, 1, 0),
            geometry(65536, 1, 1, 1),
        ],
        footprints: vec![(4096, 8192), (65536, 65536)],
    }
}

#[test]
fn a_curve_has_one_set_and_then_eight_ways() {
    assert_eq!(sweep().curve(4096), [(1, 1000), (8, 100), (16, 10)]);
    assert_eq!((sweep().page_sizes(), sweep().rates()), (vec![4096, 65536], Some((1.0, 1000.0))));
}

#[test]
fn a_tlb_needs_the_fewest_entries_with_few_misses() {
    // Per 1000 of 100,000 runs: 10, 9, 1, 0.1 and 0 misses; two pages are touched.
    let sweep = Sweep { per: Per::Runs(100_000), ..sweep() };
    let smallest = [9.5, 0.5, 0.1].map(|max_rate| sweep.smallest(4096, max_rate));
    assert_eq!(smallest, [SmallestTlb::Entries(2), SmallestTlb::Entries(2), SmallestTlb::Entries(2)]);
    let without = |entries: u32| {
        let geometries = sweep.geometries.iter().filter(|of| of.sets * of.ways != entries).copied().collect();
        Sweep { geometries, ..sweep.clone() }
    };
    let sweep = without(2);
    assert_eq!(sweep.smallest(4096, 9.5), SmallestTlb::Entries(3));
    assert_eq!(sweep.smallest(4096, 0.5), SmallestTlb::Entries(16));
    assert_eq!(sweep.smallest(4096, 0.05), SmallestTlb::MoreThan(16));
    assert_eq!(sweep.smallest(4096, 0.001), SmallestTlb::FirstTouches);
}

#[test]
fn the_more_misses_the_darker() {
    let sweep = sweep();
    let heats = [0, 1, 10, 1000].map(|misses| (sweep.heat(misses) * 3.0).round());
    assert_eq!(heats, [0.0, 0.0, 1.0, 3.0]);
    let shading = sweep.shading(4096);
    let lines: Vec<&str> = shading.lines().collect();
    assert_eq!(lines, ["   sets  ways 1 to 8", "      1  ████▓▓", "      2  ··░░"], "{shading}");
    assert_eq!(Sweep::default().heat(7), 0.0);
    let one = Sweep { geometries: vec![TlbGeometry { page_bytes: 4096, sets: 1, ways: 4, misses: 7 }], ..sweep };
    assert_eq!(one.shading(4096), "   sets  ways 4 to 4\n      1  ██\n");
    let many = |ways| TlbGeometry { page_bytes: 4096, sets: 1, ways, misses: 7 };
    let many = Sweep { geometries: (1..=128).map(many).collect(), ..one };
    let line = format!("   sets  ways 1 to 128, one in 4\n      1  {}\n", "██".repeat(32));
    assert_eq!(many.shading(4096), line);
}

#[test]
fn rates_never_round_to_nothing() {
    let shown = [0.0, 0.0001, 0.25, 12.34, 123_456.7].map(rate_in_words);
    assert_eq!(shown, ["0", "<0.001", "0.250", "12.3", "123,457"]);
}
