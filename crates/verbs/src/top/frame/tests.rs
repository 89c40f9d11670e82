use super::super::browse::{Key, Sort};
use super::super::sample;
use super::super::view::RefreshCost;
use super::*;

const SHOWN: Shown = Shown { page: 5, lines: 5 };
const PLAIN: TerminalStyle = TerminalStyle { colours: false, unicode: true };

fn table() -> Browse {
    Browse::new(Sort::Resident, String::new())
}

fn drawn(browse: &Browse, width: u16, height: u16) -> String {
    text_of(&frame(&sample::view(), browse, PLAIN, width, height).cells)
}

#[test]
fn a_wide_frame_shows_everything() {
    let golden = "\
pagelab top  5 processes, 1 not looked at yet                                                      every 2 s
memory         21G available of 32G · 5G free in blocks of 2M and more
free by order  4K 45.0M · 8K 41.1M · 16K 31.4M · 32K 36.6M · 64K 20.4M · 128K 15.8M · 256K 701M · 512K 978M
               1M 1.26G · 2M 1.40G · 4M 3.41G
faults         12.4k/s · 0/s waited for I/O · over 2 s
given          64K 120/s, fell back 0/s, 3.20k folios · 2M 14/s, fell back 3.0/s (18%), 1.80k folios
khugepaged     collapsed 1.5/s · no free block 0/s · too many absent, swapped or shared 20/s · passes 12
compaction     waited for 3.0/s · got a block 2.0/s · got none 1.0/s · kcompactd woken 0/s
               pages moved 900/s
split          folios 0/s · PMD leaves 4.0/s
pools          2M 64 pages, 10 free
    PID NAME            RESIDENT FAULTS/s    4K    2M FOLIOS   TO WIN WHY IT IS NOT LARGER
   4242 java               4.00G      3.2   12%   88%     5%    ~262M not advised, and the kernel gives the…
     77 redis-server        812M    12.3k  100%    0%     0%     806M the process disabled THP for itself (…
      1 systemd              12M        0  100%    0%     0%        0
   4300 e\\x1b[31mvil\\n        8M        -     …     …      …        … not looked at yet
   4301 größe                 3M        -     ?     ?      ?        ? not permitted: root may, and the user…
4242 java: 3.52G by 2M, 500M by 4K (folios: 200M of 64K) (3 s ago); not advised, and the kernel gives the
  size to advised memory only
q end  Enter inspect  s sort  / filter  ? help";
    let drawn = drawn(&table(), 108, 48);
    let lines: Vec<&str> = drawn.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.join("\n"), golden, "{drawn}");
    assert_eq!(drawn.lines().count(), 48, "the table is above, and the selected process below");
}

#[test]
fn a_terminal_of_80_columns_keeps_what_matters() {
    let golden = "\
pagelab top  5 processes, 1 not looked at yet                          every 2 s
faults         12.4k/s · 0/s waited for I/O · over 2 s
    PID NAME            RESIDENT    4K    2M   TO WIN WHY IT IS NOT LARGER
   4242 java               4.00G   12%   88%    ~262M not advised, and the kern…
     77 redis-server        812M  100%    0%     806M the process disabled THP …
      1 systemd              12M  100%    0%        0
   4300 e\\x1b[31mvil\\n        8M     …     …        … not looked at yet
   4301 größe                 3M     ?     ?        ? not permitted: root may, …

4242 java: 3.52G by 2M, 500M by 4K (folios: 200M of 64K) (3 s ago); not advised,
  and the kernel gives the size to advised memory only
q end  Enter inspect  s sort  / filter  ? help";
    assert_eq!(drawn(&table(), 80, 12), golden, "{}", drawn(&table(), 80, 12));
}

#[test]
fn narrow_and_tiny_terminals_show_processes_first() {
    assert_eq!(
        drawn(&table(), 40, 6),
        "\
pagelab top  5 processes, 1 not looked …
    PID NAME           4K    2M   TO WIN
   4242 java          12%   88%    ~262M
     77 redis-serv…  100%    0%     806M
      1 systemd      100%    0%        0
q end  Enter inspect  s sort  / filter …"
    );
    assert_eq!(drawn(&table(), 12, 2), "NAME\njava");
}

/// Page sizes and what could be larger are the last columns to be dropped, and most lines show processes.
#[test]
fn every_usual_terminal_shows_page_sizes_and_what_could_be_larger() {
    let mut view = sample::view();
    let java = view.rows.iter().find(|row| row.name == "java").unwrap().clone();
    view.rows = (1..=100).map(|pid| Row { pid, ..java.clone() }).collect();
    for (width, height, least, also) in [
        (40, 12, 6, &["PID"][..]),
        (60, 20, 12, &["PID", "RESIDENT"]),
        (80, 24, 15, &["PID", "RESIDENT", "WHY IT IS NOT LARGER"]),
        (120, 40, 26, &["PID", "RESIDENT", "FAULTS/s", "FOLIOS", "WHY IT IS NOT LARGER"]),
    ] {
        let drawn = frame(&view, &table(), PLAIN, width, height);
        let text = text_of(&drawn.cells);
        let heading = text.lines().find(|line| line.contains("NAME")).unwrap();
        for column in ["NAME", "4K", "2M", "TO WIN"].iter().chain(also) {
            assert!(heading.contains(column), "{width}x{height}: {column} in\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.contains(" java ")).count(), drawn.shown.page, "{text}");
        assert!(drawn.shown.page >= least, "{width}x{height}: {} processes\n{text}", drawn.shown.page);
        assert!(
            text.lines().any(|line| line.contains("12%") && line.contains("88%") && line.contains("262M")),
            "{text}"
        );
    }
}

#[test]
fn a_text_is_folded_and_ends_with_its_last_line() {
    let mut browse = table();
    browse.show("a title".into(), &format!("one\n{}\nlast", "word ".repeat(10)));
    let drawn = frame(&sample::view(), &browse, PLAIN, 20, 5);
    assert_eq!(drawn.shown, Shown { page: 3, lines: 5 });
    browse.press(Key::End, &sample::view(), drawn.shown);
    let text = text_of(&frame(&sample::view(), &browse, PLAIN, 20, 5).cells);
    assert_eq!(text, "a title\n    word word word\n    word word word\nlast\nlines 3 to 5 of 5");
}

/// Every page is drawn within the frame, for all frame sizes.
#[test]
fn no_size_is_too_small_or_too_large() {
    let mut help = table();
    help.press(Key::Char('?'), &sample::view(), SHOWN);
    let mut typing = table();
    for key in [Key::Char('/'), Key::Char('x')] {
        typing.press(key, &sample::view(), SHOWN);
    }
    for browse in [table(), help, typing] {
        for width in [0, 1, 2, 3, 7, 8, 15, 16, 31, 59, 60, 79, 100, 300] {
            for height in [0, 1, 2, 3, 4, 5, 7, 11, 12, 13, 24, 60] {
                let cells = frame(&sample::view(), &browse, PLAIN, width, height).cells;
                assert_eq!((cells.area.width, cells.area.height), (width, height));
                assert!(!text_of(&cells).contains('\u{1b}'));
            }
        }
    }
}

#[test]
fn an_interval_that_was_lengthened_says_so_and_why() {
    let mut view = sample::view();
    view.pace = RefreshCost { every_s: 6.25, requested_s: 2.0, frame_s: 0.025 };
    let text = text_of(&frame(&view, &table(), PLAIN, 100, 30).cells);
    assert!(text.lines().next().unwrap().ends_with("every 6.3 s"), "{text}");
    let why = "every 6.3 s and not 2 s: a frame costs 25 ms of CPU time, and top stays below 1 % of a processor";
    assert!(text.contains(why), "{text}");
    // This note must be visible even in a small frame.
    let text = text_of(&frame(&view, &table(), PLAIN, 40, 12).cells);
    assert!(text.contains("every 6.3 s and not 2 s: a frame"), "{text}");
}

#[test]
fn the_selected_process_is_visible() {
    let view = sample::view();
    let mut browse = table();
    browse.press(Key::End, &view, SHOWN);
    let text = drawn(&browse, 80, 6);
    assert!(text.contains("größe") && !text.contains("java"), "{text}");
    let cells = frame(&view, &browse, PLAIN, 80, 6).cells;
    let reversed = |y: u16| cells[(0, y)].modifier.contains(Modifier::REVERSED);
    assert_eq!((0..6).filter(|y| reversed(*y)).collect::<Vec<u16>>(), [4]);
}

#[test]
fn without_colours_nothing_is_coloured_and_without_utf8_all_is_ascii() {
    let is_coloured = |style_options: TerminalStyle| {
        let cells = frame(&sample::view(), &table(), style_options, 120, 40).cells;
        cells.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(is_coloured(TerminalStyle { colours: true, unicode: true }));
    assert!(!is_coloured(PLAIN));
    let cells = frame(&sample::view(), &table(), TerminalStyle { colours: false, unicode: false }, 120, 40).cells;
    let text = text_of(&cells);
    assert!(text.is_ascii() && text.contains("gr\\u00f6\\u00dfe"), "{text}");
}

#[test]
fn one_frame_leaves_three_quarters_of_the_terminal_to_processes() {
    for (height, expected) in [(24, 5), (12, 2), (4, 1)] {
        let text = full_text(&sample::view(), &table(), 80, Some(height), usize::MAX);
        let header = text.lines().position(str::is_empty).unwrap();
        assert!(header <= expected && text.starts_with("pagelab top") && text.contains("redis-server"), "{text}");
    }
    let all = full_text(&sample::view(), &table(), 80, None, usize::MAX);
    assert!(all.contains("khugepaged") && all.contains("pools"), "{all}");
}

#[test]
fn one_frame_has_every_process_that_the_filter_lets_through() {
    let text = full_text(&sample::view(), &table(), 100, None, usize::MAX);
    let names = ["java", "redis-server", "systemd", "e\\x1b[31mvil\\n", "größe"];
    assert!(names.iter().all(|name| text.contains(name)) && !text.contains("q end"), "{text}");
    let filtered = full_text(&sample::view(), &Browse::new(Sort::Pid, "THP".into()), 100, None, usize::MAX);
    assert!(filtered.contains("redis-server") && !filtered.contains("java"), "{filtered}");
    assert!(!full_text(&sample::view(), &table(), 100, None, 1).contains("redis"));
}
