//! The page of a study: its content, and how a browser lays it out.

use std::path::Path;

use super::report;
use crate::html::tests::{browse, browser, elements};
use crate::matrix::sample::{with_large_report, with_report};

#[test]
fn every_part_of_a_study_is_on_its_page() {
    with_large_report(|of| {
        let html = report(of);
        for heading in [
            "Findings",
            "Matrix",
            "Changes against the baseline",
            "Boots compared",
            "Win shares",
            "As the origin has it",
            "Memory against speed",
            "Coverage",
            "Drift",
            "Tables",
            "Hosts",
            "Where each row comes from",
        ] {
            assert!(html.contains(&format!(">{heading}</h2>")), "{heading}");
        }
        for text in [
            "The origin&#39;s claim is, here, ",
            "Missing: one boot.",
            "no free one",
            "pagelab show 13",
            " if all were equal.",
        ] {
            assert!(html.contains(text), "{text}");
        }
    });
}

#[test]
fn every_figure_leads_to_what_made_it() {
    with_large_report(|of| {
        let html = report(of);
        let after =
            |text: &str| html.split(text).skip(1).map(|rest| rest.split('"').next().unwrap()).collect::<Vec<_>>();
        let ids: std::collections::BTreeSet<&str> = after(" id=\"").into_iter().collect();
        let links = after("href=\"#");
        assert!(links.len() > of.matrix.rows.len() * of.matrix.policies.len(), "{}", links.len());
        let lost: Vec<&&str> = links.iter().filter(|link| !ids.contains(**link)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!(after(" id=\"").len(), ids.len(), "ids are unique");
    });
}

#[test]
fn nothing_is_fetched_nothing_runs_and_figures_have_descriptions() {
    with_large_report(|of| {
        let html = report(of);
        let elements = elements(&html);
        for forbidden in ["script", "iframe", "object", "embed", "img", "link", "base", "form", "b"] {
            assert!(!elements.contains(&forbidden.to_owned()), "{forbidden}");
        }
        for forbidden in ["http://", "https://", "@import", "src=", "javascript:"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        for svg in html.split("<svg ").skip(1) {
            let (tag, rest) = svg.split_once('>').unwrap();
            let is_named = rest.starts_with("<title id=") && rest.contains("<desc id=") && tag.contains("role=\"img\"");
            assert!(is_named || tag.contains("aria-hidden=\"true\""), "{tag}");
        }
        assert_eq!(html.matches("<th>").count(), 0, "every heading of a table has a scope");
        assert_eq!(html.matches("<table>").count(), html.matches("<caption>").count());
    });
}

/// A script that reports the width of the page and of its window, and which elements are wider than the window and do
/// not scroll.
const MEASURE: &str = "<script>addEventListener('load', () => {
    const root = document.documentElement, wide = [];
    for (const one of document.querySelectorAll('body *')) {
        if (one.closest('.wide') || one.closest('svg') || one.closest('.patterns')) continue;
        if (one.getBoundingClientRect().right > innerWidth + 1) wide.push(one.tagName + '.' + one.className);
    }
    root.setAttribute('data-seen', innerWidth + ' ' + root.scrollWidth + ' ' + wide.slice(0, 5).join(','));
})</script>";

/// As laid out by a browser at this width: the widths of the window and of the page, and the elements that do not fit.
fn laid_out(browser: &str, directory: &Path, html: &str, width: u32) -> (u32, u32, String) {
    let (before, after) = html.split_once("<meta http-equiv").unwrap();
    let measured = format!("{before}{MEASURE}{}", after.split_once('>').unwrap().1);
    let (page, frame) = (directory.join("measured.html"), directory.join("frame.html"));
    std::fs::write(&page, measured).unwrap();
    // A browser window cannot be as narrow as a telephone, but a frame inside it can.
    let script = "<script>addEventListener('message', event => document.title = event.data)</script>";
    let framed = format!(
        "<!doctype html>{script}<iframe src=\"measured.html\" width=\"{width}\" height=\"900\" style=\"border:0\"></iframe>"
    );
    std::fs::write(&frame, framed).unwrap();
    let script_in_frame = MEASURE
        .replace("root.setAttribute('data-seen', ", "parent.postMessage(")
        .replace("join(','));", "join(','), '*');");
    let measured = std::fs::read_to_string(&page).unwrap().replace(MEASURE, &script_in_frame);
    std::fs::write(&page, measured).unwrap();
    let arguments = ["--dump-dom", "--virtual-time-budget=5000", "--window-size=2600,1000"];
    // The browser may print the document before the message from the frame has arrived, so this is repeated.
    let seen = (0..3).find_map(|_| {
        let parsed = browse(browser, directory, &arguments, &frame).expect("the browser ends");
        Some(parsed.split_once("<title>")?.1.split_once("</title>")?.0.to_owned())
    });
    let seen = seen.expect("the frame's message");
    let mut words = seen.splitn(3, ' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    (number(), number(), words.next().unwrap().to_owned())
}

#[test]
fn a_browser_shows_the_page_at_every_width() {
    let Some(browser) = browser() else {
        testing::skip("chromium");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PAGELAB_SCREENSHOTS").map(std::path::PathBuf::from);
    with_large_report(|of| {
        let html = report(of);
        let page = directory.path().join("study.html");
        std::fs::write(&page, &html).unwrap();
        let parsed = browse(browser, directory.path(), &["--dump-dom"], &page).expect("the browser ends");
        assert_eq!(parsed.matches("<figure>").count(), html.matches("<figure>").count());
        assert!(!parsed.contains("<script"), "the browser finds no script");
        for width in [400, 1200, 2400] {
            let (window, needed, wide) = laid_out(browser, directory.path(), &html, width);
            assert!(window == width && needed <= width && wide.is_empty(), "at {width} it takes {needed}: {wide}");
            for is_dark in [false, true] {
                let name = format!("study-{width}{}.png", if is_dark { "-dark" } else { "" });
                let picture = kept.as_deref().unwrap_or(directory.path()).join(name);
                let (size, shot) =
                    (format!("--window-size={width},6000"), format!("--screenshot={}", picture.display()));
                let mut arguments = vec![size.as_str(), shot.as_str()];
                arguments.extend(is_dark.then_some("--blink-settings=preferredColorScheme=0"));
                browse(browser, directory.path(), &arguments, &page).expect("the browser ends");
                let png = std::fs::read(&picture).unwrap();
                assert!(png.starts_with(b"\x89PNG") && png.len() > 60_000, "{} bytes of a picture", png.len());
            }
        }
        let pdf = directory.path().join("study.pdf");
        let print = format!("--print-to-pdf={}", pdf.display());
        browse(browser, directory.path(), &[&print, "--no-pdf-header-footer"], &page).expect("the browser ends");
        assert!(std::fs::read(&pdf).unwrap().starts_with(b"%PDF"), "it prints");
    });
}

#[test]
fn a_study_without_figures_has_a_page_too() {
    with_report(|of| {
        let none: Vec<_> = of.matrix.rows.iter().skip(1).cloned().collect();
        let matrix = study_files::matrix::Matrix::of(&of.matrix.policies, &of.matrix.baseline, none, &[]);
        let html = report(&crate::matrix::Report { matrix: &matrix, ..of.clone() });
        elements(&html);
        assert!(html.contains("No policy can be compared with default yet: no free one."), "{html}");
    });
}
