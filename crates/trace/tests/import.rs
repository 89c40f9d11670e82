//! Imports the output of other tools: captured lines, wrong lines, arbitrary bytes.

use proptest::prelude::*;
use trace::import::{ImportError, Tool, import};
use trace::{Block, Filter, Reader, Run};

fn runs(tool: Tool, text: &[u8]) -> Result<Vec<(u32, Vec<Run>)>, ImportError> {
    let file = import(tool, text, Vec::new())?;
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut runs = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        let Block::Runs { thread, chunk, .. } = block else { panic!("{block:?}") };
        runs.push((thread, chunk.runs().collect()));
    }
    assert!(reader.is_whole());
    Ok(runs)
}

fn tuples(runs: &[Run]) -> Vec<(u64, u8, u32)> {
    runs.iter().map(|run| (run.page, run.kind.bits(), run.accesses)).collect()
}

/// Lines as valgrind 3.19 prints them.
const LACKEY: &str = "\
==2163== Lackey, an example Valgrind tool
==2163== Command: /bin/true
I  04001090,3
I  04001093,5
 S 1ffeffee38,8
I  04001098,3
 L 1ffeffee38,8
 M 04021ffc,8
";

#[test]
fn lackey() {
    let found = runs(Tool::Lackey, LACKEY.as_bytes()).unwrap();
    let expected =
        [(0x4001, 1, 3), (0x1ff_effe, 14, 2), (0x4021, 14, 1), (0x4022, 14, 1), (0x4021, 4, 1), (0x4022, 4, 1)];
    assert_eq!(found.len(), 1);
    assert_eq!(tuples(&found[0].1), expected);
}

/// Lines as DynamoRIO 10 prints them.
const VIEW: &str = "\
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:     1871042 <marker: version 6>
           8           1:     1871042 ifetch       3 byte(s) @ 0x00007f50a1d4e090 48 89 e7             mov    %rsp -> %rdi
           9           2:     1871042 ifetch       8 byte(s) @ 0x00007f50a1d4e093 48 8d 34 25 00 20 40 lea    0x00402000 -> %rsi
           9           2:     1871042                                             00
          10           2:     1871042 write        8 byte(s) @ 0x00007ffd34a1fe38 by PC 0x00007f50a1d4e093
          11           2:     1871043 read         8 byte(s) @ 0x00007ffd34a1fe38 by PC 0x00007f50a1d4e093
          12           2:     1871042 <thread 1871042 exited>
View tool results:
              2 : total instructions
";

#[test]
fn drmemtrace_view() {
    let found = runs(Tool::View, VIEW.as_bytes()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].0, tuples(&found[0].1)), (0, vec![(0x7_f50a_1d4e, 1, 2), (0x7_ffd3_4a1f, 4, 1)]));
    assert_eq!((found[1].0, tuples(&found[1].1)), (1, vec![(0x7_ffd3_4a1f, 2, 1)]));
}

#[test]
fn champsim() {
    let mut record = [0u8; 64];
    record[..8].copy_from_slice(&0x40_1000u64.to_le_bytes());
    record[16..24].copy_from_slice(&0x7000u64.to_le_bytes());
    record[32..40].copy_from_slice(&0x6000u64.to_le_bytes());
    record[56..64].copy_from_slice(&0x6008u64.to_le_bytes());
    let found = runs(Tool::ChampSim, &[record, record].concat()).unwrap();
    assert_eq!(tuples(&found[0].1), [(0x401, 1, 2), (6, 2, 2), (7, 4, 1), (6, 2, 2), (7, 4, 1)]);
    // It loads from and stores to the same address.
    record[16..24].copy_from_slice(&0x6008u64.to_le_bytes());
    record[32..40].fill(0);
    assert_eq!(tuples(&runs(Tool::ChampSim, &record).unwrap()[0].1), [(0x401, 1, 1), (6, 2 + 4 + 8, 2)]);
    let cut = runs(Tool::ChampSim, &[&record[..], &[1, 2, 3]].concat()).unwrap_err().to_string();
    assert!(cut.starts_with("3 bytes are left after 1 records"), "{cut}");
}

/// Lines as perf 6.1 prints them.
const PERF: &str = "\
 4120     7f2a0c0400a8     55d0c1c2f1b4
 4121     7f2a0c0410a8     55d0c1c2f1b4
 4120                0     55d0c1c2f1b4
 4120 ffff9c8e4012f000     ffffffff9b2003f0
";

#[test]
fn perf_samples_are_marked() {
    let found = runs(Tool::Perf, PERF.as_bytes()).unwrap();
    assert_eq!(found.iter().map(|(thread, runs)| (*thread, runs.len())).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    let file = import(Tool::Perf, PERF.as_bytes(), Vec::new()).unwrap();
    assert_eq!(Reader::new(&file[..]).unwrap().header().filter, Filter::Sampled);
}

#[test]
fn the_line_that_is_wrong_is_named() {
    for (tool, text, line) in [
        (Tool::Lackey, "I  04001090,3\nhello\n", "line 2: found \"hello\""),
        (Tool::Lackey, " L xyz,8\n", "line 1: found \" L xyz,8\""),
        (Tool::View, "  1  2:  77 ifetch 3 byte(s) at 0x10\n", "line 1"),
        (Tool::View, VIEW.lines().last().unwrap().trim_start_matches(' '), "no memory access"),
        (Tool::View, "a program's own words\n", "line 1: found \"a program's own words\""),
        (Tool::Perf, "perf 4120 7f 55\n", "line 1"),
        (Tool::Perf, "", "no memory access"),
        (Tool::Lackey, "\x1f\u{8b}", "line 1"),
    ] {
        let message = runs(tool, text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(line), "{tool:?} {text:?}: {message}");
        assert!(message.contains(tool.expects()), "{message}");
    }
    let message = runs(Tool::ChampSim, b"\xfd7zXZ\0\0").unwrap_err().to_string();
    assert!(message.contains("xz -d"), "{message}");
    let long = vec![b'a'; 1 << 20];
    assert!(runs(Tool::Lackey, &long).unwrap_err().to_string().len() < 300);
}

proptest! {
    #![proptest_config(testing::properties(200))]

    #[test]
    fn any_bytes_are_refused_or_imported(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "[ILSM]?[ a-f0-9x,:@<>\n]{0,80}") {
        for tool in Tool::ALL {
            let _ = runs(tool, &bytes);
            let _ = runs(tool, text.as_bytes());
        }
    }
}
