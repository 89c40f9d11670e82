//! Attacks with images of page tables in which entries are changed.

use testing::{Random, mutation};

use super::{Attack, can_attack};

const FORMATS: [&str; 4] = ["x86-64", "arm64-4k-48", "sv48+svnapot", "arm64-s2-16k-40"];

#[test]
fn changed_tables_end_with_an_answer_or_an_error() {
    if !can_attack() {
        return;
    }
    let (attack, mut random) = (Attack::on("image"), Random::new());
    for format in FORMATS {
        let build =
            ["table", "build", "-f", format, "--map", "0:0x40000000:4M:rw", "-o", "image", "--base", "0x80000000"];
        attack.with(b"", &"a new image", &build).assert_exit(0, &[]);
        let sound = std::fs::read(attack.bench.path("image")).unwrap();
        let check = ["table", "check", "image", "-f", format, "--base", "0x80000000", "--root"];
        attack.with(&sound, &"sound", &[&check[..], &["0x80000000"]].concat()).assert_exit(0, &[]);
        for number in 0..mutation::count(4) {
            let mut image = sound.clone();
            for _ in 0..=random.below(4) {
                // Most of an image is zero, so an entry that is not zero is chosen.
                let entries: Vec<usize> = (0..image.len() / 8).filter(|at| image[at * 8..][..8] != [0; 8]).collect();
                let Some(at) = entries.get(random.below(entries.len().max(1) as u64) as usize) else { break };
                let entry = &mut image[at * 8..][..8];
                match random.below(3) {
                    0 => entry.copy_from_slice(&random.number().to_le_bytes()),
                    1 => entry[random.below(8) as usize] ^= 1 << random.below(8),
                    // The entry then points to any table of the image, including its own table and the root.
                    _ => entry[1..4].copy_from_slice(&[random.below(8) as u8 * 16, 0, 0]),
                }
            }
            if random.below(4) == 0 {
                random.change_bytes(&mut image);
            }
            let root = ["0x80000000".to_owned(), format!("{:#x}", random.number())];
            let root = &root[usize::from(random.below(8) == 0)];
            attack.with(&image, &format_args!("mutation {number} of {format}"), &[&check[..], &[root]].concat());
        }
    }
}
