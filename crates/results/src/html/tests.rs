use std::path::Path;
use std::process::Command;

use super::*;
use crate::sample;

/// The names of the elements in the order of their start tags; panics if an element is not closed.
pub(super) fn elements(html: &str) -> Vec<String> {
    const VOID: [&str; 4] = ["meta", "br", "hr", "wbr"];
    let (mut open, mut all): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let body = html.strip_prefix("<!doctype html>").expect("a doctype");
    let (before_style, rest) = body.split_once("<style>").unwrap();
    let (_, after_style) = rest.split_once("</style>").unwrap();
    for tag in [before_style, after_style].concat().split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("{tag:?} does not end"));
        let name = tag.split([' ', '/', '\n']).find(|part| !part.is_empty()).unwrap().to_string();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "closed by {tag:?}");
        } else {
            if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
                open.push(name.clone());
            }
            all.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    all
}

#[test]
fn shows_the_tracers_cost_next_to_the_change() {
    let page = report(&sample::with_controls());
    assert!(page.contains("tracer's cost</th>"));
    let row =
        page.split("<tr").find(|row| row.contains(">thp</th>") && row.contains("unproven")).expect("the row of thp");
    assert!(row.contains("+30.13") && row.contains("+31.13"), "{row}");
    assert!(!report(&sample::comparison()).contains("tracer's cost</th>"), "there is no bare arm");
}

#[test]
fn every_report_is_well_formed() {
    for comparison in [sample::comparison(), sample::hostile(), sample::empty()] {
        let elements = elements(&report(&comparison));
        assert!(elements.contains(&"h1".to_string()));
    }
}

#[test]
fn the_sample_shows_every_figure() {
    let html = report(&sample::comparison());
    let figures = elements(&html).iter().filter(|name| *name == "figure").count();
    assert_eq!(figures, 6, "changes and samples of wall and CPU time, coverage, memory");
    for text in [
        "<h1>thp is the best of 4 policies: 1.13 times as fast as default</h1>",
        "<p class=\"lead\">Wall time 11.",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "not advised, and the kernel gives the size to advised memory only",
        "answered by the tracer, not the kernel: prctl(PR_SET_THP_DISABLE)",
        "madvise(MADV_HUGEPAGE) after mmap and brk",
        "sort --parallel=1 -S 1G -o /dev/null words.txt",
        "AMD EPYC 7B13",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "derived",
        "block 0 is discarded",
        ", rejected</title>",
        "The baseline drifted",
    ] {
        assert!(html.contains(text), "{text}");
    }
    let marks = html.matches("<title>thp, block ").count();
    assert_eq!(marks, 2 * 16, "one mark for each run, in two figures");
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    for comparison in [sample::comparison(), sample::hostile()] {
        let html = report(&comparison);
        let elements = elements(&html);
        for forbidden in ["script", "iframe", "object", "embed", "img", "link", "base", "form", "a"] {
            assert!(!elements.contains(&forbidden.to_string()), "{forbidden}");
        }
        for forbidden in ["http://", "https://", "@import", "src=", "javascript:"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}

#[test]
fn what_comes_from_outside_is_text() {
    let html = report(&sample::hostile());
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!html.contains("<script") && !html.contains("</pre><"));
    assert!(!html.chars().any(|c| c.is_control() && c != '\n'), "control characters are written as escapes");
    assert!(!html.contains('\u{202e}'));
    assert!(html.contains("&amp;lt;"), "what looks escaped is escaped again");
    let inside_tags = html.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| tag);
    assert_eq!(inside_tags.filter(|tag| tag.contains("onload")).count(), 0);
}

#[test]
fn boots_are_a_page_of_the_same_kind() {
    let merged = crate::boots::sample();
    let html = boots::report(&merged);
    let elements = elements(&html);
    let tables = elements.iter().filter(|name| *name == "table").count();
    let metrics = merged.design.metrics.iter().filter(|metric| merged.arms[0].medians.contains_key(&metric.name));
    assert_eq!(tables, 1 + metrics.count(), "one for each metric, and the boots");
    for arm in &merged.design.arms {
        assert!(html.contains(&escape(&arm.label)), "{}", arm.label);
    }
    assert!(html.contains("What cannot be concluded") && html.contains("&lt;script&gt;host"));
    assert!(!html.contains("<script") && !html.chars().any(|c| c.is_control() && c != '\n'));
    assert_eq!(html.matches("<th>").count(), 0, "every heading of a table has a scope");
}

#[test]
fn code_in_a_remedy_is_set_as_code() {
    assert_eq!(marked("set `a<b` or `c`"), "set <code>a&lt;b</code> or <code>c</code>");
    assert_eq!(marked("one ` alone"), "one ` alone");
}

#[test]
fn advice_lists_what_was_tried() {
    let html = report(&sample::comparison());
    let (_, advice) = html.split_once("<h2 id=\"advice\">").unwrap();
    let (advice, _) = advice.split_once("</section>").unwrap();
    assert!(
        advice.contains("(254M in large pages, 256M by thp") && advice.contains("Tried, in this order"),
        "{advice}"
    );
    assert_eq!(advice.matches("<li>").count(), 2, "{advice}");
}

#[test]
fn figures_and_tables_have_descriptions() {
    let html = report(&sample::comparison());
    for svg in html.split("<svg ").skip(1) {
        let (tag, rest) = svg.split_once('>').unwrap();
        let named = rest.starts_with("<title id=") && rest.contains("<desc id=") && tag.contains("role=\"img\"");
        assert!(named || tag.contains("aria-hidden=\"true\""), "{tag}");
    }
    assert_eq!(html.matches("<th>").count(), 0, "every heading of a table has a scope");
    assert_eq!(html.matches("<table>").count(), html.matches("<caption>").count());
    let ids: Vec<&str> = html.split(" id=\"").skip(1).map(|part| part.split_once('"').unwrap().0).collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
}

/// A real browser shows the figures of the page, also at the width of a telephone.
#[test]
fn a_browser_shows_the_page() {
    let Some(browser) = browser() else {
        testing::skip("chromium");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (at, comparison) in [sample::comparison(), sample::hostile()].iter().enumerate() {
        let page = directory.path().join(format!("{at}.html"));
        std::fs::write(&page, report(comparison)).unwrap();
        let parsed = browse(browser, directory.path(), &["--dump-dom"], &page).expect("the browser ends");
        assert_eq!(parsed.matches("<figure>").count(), 6);
        assert_eq!(parsed.matches("</section>").count(), 10);
        assert!(!parsed.contains("<script"), "the browser finds no script");
        for width in [500, 1200] {
            let picture = directory.path().join(format!("{at}-{width}.png"));
            let size = format!("--window-size={width},2400");
            let shot = format!("--screenshot={}", picture.display());
            browse(browser, directory.path(), &[&size, &shot], &page).expect("the browser ends");
            let png = std::fs::read(&picture).unwrap();
            assert!(png.starts_with(b"\x89PNG") && png.len() > 60_000, "{} bytes of a picture", png.len());
        }
    }
}

/// A headless browser.
pub(super) fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|program| runs(program))
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The output of the browser for a page. A browser that crashes or hangs is started again with a new profile, because the browser is not
/// what is tested.
pub(super) fn browse(browser: &str, home: &Path, arguments: &[&str], page: &Path) -> Option<String> {
    (0..3).find_map(|attempt| {
        let profile = home.join(format!("profile-{attempt}"));
        browse_once(browser, &profile, arguments, page)
            .map_err(|problem| println!("{browser}, attempt {attempt}: {problem}"))
            .ok()
    })
}

fn browse_once(browser: &str, profile: &Path, arguments: &[&str], page: &Path) -> Result<String, String> {
    let output = Command::new("timeout")
        .args(["120", browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("timeout of coreutils");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}: {}", output.status, text(&output.stderr)))
    }
}

/// Writes the sample's report to a file for viewing: `PAGELAB_SAMPLE_REPORT=FILE cargo test -- --ignored`.
#[test]
#[ignore = "writes a file to look at"]
fn write_the_sample() {
    let path = std::env::var_os("PAGELAB_SAMPLE_REPORT").expect("PAGELAB_SAMPLE_REPORT names a file");
    let hostile = std::env::var_os("PAGELAB_HOSTILE").is_some();
    let comparison = if hostile { sample::hostile() } else { sample::comparison() };
    std::fs::write(path, report(&comparison)).unwrap();
}

/// A block number this large can only come from a store that another program changed.
#[test]
fn captions_keep_the_case_of_units() {
    let mut comparison = sample::with_own_metrics();
    comparison.design.metrics.iter_mut().filter(|one| one.name == "rps").for_each(|one| one.name = "ns_per_op".into());
    let observations = comparison.trials.iter_mut().flat_map(|record| &mut record.observations);
    observations.filter(|one| one.metric == "rps").for_each(|one| one.metric = "ns_per_op".into());
    sample::analyse(&mut comparison);
    let html = report(&comparison);
    assert!(html.contains("<figcaption>Wall time<") && html.contains("<figcaption>ns per op<"), "{html}");
    assert!(!html.contains("first-letter"), "no style changes it");
}

#[test]
fn a_block_of_any_number_is_drawn() {
    let mut comparison = sample::comparison();
    comparison.trials.last_mut().unwrap().trial.block = u32::MAX;
    assert!(report(&comparison).contains(&format!("block {}", u32::MAX)));
}
