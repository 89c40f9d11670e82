//! Attacks with files of machines, kernels, studies and suites in which lines are changed.

use std::fs;

use testing::{Random, mutation};

use super::{Attack, can_attack};

fn file(path: &str) -> String {
    fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Changes the file in many ways, and runs each of these command lines on it.
fn attacked(name: &'static str, text: &str, all: &[&[&str]]) {
    if !can_attack() {
        return;
    }
    let (attack, mut random) = (Attack::on(name), Random::new());
    for words in all {
        attack.with(text.as_bytes(), &"sound", words).assert_exit(0, &[]);
    }
    for number in 0..mutation::count(10) {
        let mut content = random.change_lines(text).into_bytes();
        if random.below(8) == 0 {
            random.change_bytes(&mut content);
        }
        for words in all {
            attack.with(&content, &format_args!("mutation {number}"), words);
        }
    }
}

#[test]
fn changed_machines_end_with_an_answer_or_an_error() {
    let machine = file("machines/cascade-lake.toml");
    attacked("machine.toml", &machine, &[&["sim", "chase", "-m", "machine.toml", "--largest", "64K"]]);
}

#[test]
fn changed_studies_end_with_an_answer_or_an_error() {
    let study = file("studies/base-64k.toml");
    attacked("study.toml", &study, &[&["study", "status", "study.toml"]]);
}
