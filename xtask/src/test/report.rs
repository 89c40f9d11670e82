//! Parses nextest's report in JUnit's format, `target/nextest/PROFILE/junit.xml`: each test ([`Case`]) with its outcome, its time
//! and, if it failed, its output.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::tally::{Failure, Tally};
use super::watch::Watched;

/// A test that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The program and the test, separated by a blank.
    pub test: String,
    /// The start time; `None` if the report has none or it cannot be parsed.
    pub started: Option<SystemTime>,
    /// The duration in seconds.
    pub time_s: f64,
    /// The output of a failed test; `None` if it passed.
    pub failure: Option<String>,
}

pub fn cases(report: &str) -> Vec<Case> {
    report.split("<testcase ").skip(1).map(case).collect()
}

/// The cases that passed, and those that failed. Each failure has the state of the host before it.
pub fn tally(cases: &[Case], host: &Watched) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        match &case.failure {
            None => drop(tally.passed.insert(case.test.clone())),
            Some(output) => {
                let host = case.started.map(|started| host.before(started));
                tally.failed.push(Failure { host, ..Failure::of_test(&case.test, Some(output)) });
            }
        }
    }
    tally
}

fn case(text: &str) -> Case {
    let (head, rest) = text.split_once('>').unwrap_or((text, ""));
    let value = |name: &str| attribute(head, name).map(unescaped).unwrap_or_default();
    let body = if head.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or_default() };
    let failed = body.contains("<failure") || body.contains("<error");
    Case {
        test: format!("{} {}", value("classname"), value("name")),
        started: attribute(head, "timestamp").and_then(time),
        time_s: value("time").parse().unwrap_or(0.0),
        failure: failed.then(|| output(body)),
    }
}

/// The output of a failed test, followed by the reason of the failure.
fn output(body: &str) -> String {
    let between = |name: &str| {
        let text = body.split_once(&format!("<{name}"))?.1.split_once(&format!("</{name}>"))?.0;
        Some(unescaped(text.split_once('>')?.1))
    };
    let parts = ["system-out", "system-err", "failure", "error"].into_iter().filter_map(between);
    parts.filter(|part| !part.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

fn attribute<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = head.split('"');
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if key.trim().trim_end_matches('=') == name {
            return Some(value);
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

/// A time in RFC 3339 format: `2026-11-26T14:05:06.789+01:00`.
fn time(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once('T')?;
    let numbers = |text: &str, mark: char| text.split(mark).map(str::parse).collect::<Result<Vec<i64>, _>>().ok();
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let zone = rest.find(['+', '-', 'Z'])?;
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':')?.try_into().ok()?;
    let east_s = match zone.split_at(1) {
        ("Z", _) => 0,
        (sign, offset) => {
            let [hours, minutes] = numbers(offset, ':')?.try_into().ok()?;
            let offset_s = hours * 3600 + minutes * 60;
            if sign == "-" { -offset_s } else { offset_s }
        }
    };
    let unix_s = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - east_s;
    let fraction_s: f64 = format!("0.{fraction}").parse().ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_s).ok()?) + Duration::from_secs_f64(fraction_s))
}

/// The days of a date in the Gregorian calendar since 1970. Years are taken to begin in March, so that a leap day is
/// the last day of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::watch::Watch;
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0">
    <testsuite name="study::runner" tests="3" failures="1">
        <testcase name="a::one" classname="study::runner" timestamp="2026-11-26T14:05:06.500+01:00" time="0.125"/>
        <testcase name="two" classname="study::runner" timestamp="now" time="0.1">
            <system-out>&lt;failure</system-out>
        </testcase>
        <testcase name="of &lt;T&gt;" classname="study" time="20.5">
            <failure message="it panicked" type="test failure">at a line</failure>
            <system-out>seed 7: &quot;x&quot;</system-out>
            <system-err></system-err>
        </testcase>
    </testsuite>
</testsuites>
"#;

    #[test]
    fn distinguishes_passed_and_failed_tests() {
        let tally = tally(&cases(REPORT), &Watch::begin().unwrap().end());
        assert_eq!(tally.passed.into_iter().collect::<Vec<_>>(), ["study::runner a::one", "study::runner two"]);
        let [failure] = &tally.failed[..] else { panic!("{:?}", tally.failed) };
        let repeat = "PAGELAB_TEST_SEED=7 cargo test -p study --lib -- --exact 'of <T>'";
        assert_eq!((failure.test.as_str(), failure.repeat.as_deref()), ("study of <T>", Some(repeat)));
    }

    #[test]
    fn a_case_has_its_time_and_the_output_of_a_failure() {
        let cases = cases(REPORT);
        let started = UNIX_EPOCH + Duration::from_millis(1_795_698_306_500);
        assert_eq!((cases[0].started, cases[0].time_s), (Some(started), 0.125));
        assert_eq!((cases[1].started, cases[1].failure.as_deref()), (None, None));
        assert_eq!(cases[2].failure.as_deref(), Some("seed 7: \"x\"\nat a line"));
    }

    #[test]
    fn days_are_counted_across_leap_years() {
        // The expected numbers are those of `date -u -d DAY +%s`, divided by 86400.
        let days = [((1970, 1, 1), 0), ((2000, 2, 29), 11016), ((2026, 11, 26), 20783), ((2100, 3, 1), 47541)];
        for ((year, month, day), expected) in days {
            assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
        }
    }
}
