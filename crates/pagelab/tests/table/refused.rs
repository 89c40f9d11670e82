//! Tests of arguments that the subcommands of `table` refuse.

use super::*;

#[test]
fn wrong_arguments_end_with_2_and_say_what_was_expected() {
    let bench = Bench::new();
    for (words, parts) in [
        ("decode -f x86_64 67", &["there is no format \"x86_64\"", "nearest is \"x86-64\"", "list formats"][..]),
        ("decode -f x86-64+svnapot 67", &["no option \"svnapot\"", "no-nx"]),
        ("decode -f x86-64", &["required", "ENTRY"]),
        ("decode 67", &["required", "--format"]),
        ("decode -f x86-64 12345zz", &["hexadecimal", "\"12345zz\""]),
        ("decode -f x86-64 11111111111111111", &["does not fit in 64 bits"]),
        ("decode -f x86-64 --level 1 67", &["no level \"1\"", "PML4 (pgd), PDPT (pud), PD (pmd) or PT (pte)"]),
        ("decode -f arm64-16k-47 --level 0 67", &["no level \"0\"", "level 1 (pgd), level 2 (pmd) or level 3 (pte)"]),
        ("decode -f x86-64 pmx=67", &["no level \"pmx\""]),
        ("decode -f x86-64 PMD", &["expected an entry after \"PMD\""]),
        ("decode -f x86-64 --va canonical", &["--va", "hexadecimal"]),
        ("build -f x86-64", &["required", "--map"]),
        ("build -f x86-64 --map 0:0", &["VA:PA:SIZE", "2 parts"]),
        ("build -f x86-64 --map ffff8880:0:4K", &["hexadecimal begins with 0x"]),
        ("build -f x86-64 --map 0:0:4K:rz", &["no permission 'z'"]),
        (
            "build -f x86-64 --map 0x1800:0:4K",
            &["--map 0x1800:0:4K", "input address 0x1800", "multiple of the page size 0x1000"],
        ),
        ("build -f x86-64 --map 0:0x800:4K", &["output address 0x800"]),
        ("build -f x86-64 --map 0:0:5000", &["length 0x1388"]),
        ("build -f x86-64 --map 0:0:0", &["empty"]),
        (
            "build -f x86-64 --map 0x800000000000:0:4K",
            &["0x800000000000", "copies of the highest bit above its 48 bits"],
        ),
        ("build -f x86-64+phys40 --map 0:0x10000000000:4K", &["0x10000000000", "40 bits"]),
        (
            "build -f x86-64 --map 0:0:2M --map 0x1000:0:4K",
            &["--map 0x1000:0:4K", "0x1000 is already mapped", "PD (pmd) entry"],
        ),
        ("build -f arm64-4k-48 --map 0:0:2M --map 0x1000:0:4K", &["level 2 (pmd) entry"]),
        ("build -f arm64-64k-48 --map 0:0:64K --largest 4K", &["no leaf of at most 4K", "64K, 512M"]),
        ("build -f x86-64 --map 0:0:4K:w", &["cannot be read", "x86-64 entries cannot express"]),
        ("build -f sv39 --map 0:0:4K:rw,m=1", &["this memory type"]),
        ("build -f x86-64 --map 0:0:64G --largest 4K --limit 1M", &["do not fit in 1M", "--limit"]),
        ("build -f x86-64 --base 0x80000000000000 --map 0:0:4K", &["--base", "52 bits"]),
        (
            "build -f x86-64+phys40 --base 0xfffffff000 --map 0:0:4K",
            &["do not fit in the 4K from --base 0xfffffff000", "40-bit physical address space", "lower"],
        ),
        ("decode -f arm64-4k-48+phys41 67", &["no option \"phys41\"", "40, 42"]),
        ("decode -f arm64-s2-4k-42+phys40 67", &["no option \"phys40\"", "no fewer than of IPA"]),
        ("build -f sv39+phys40 --map 0:0x10000000000:4K", &["0x10000000000", "40 bits"]),
        ("build -f x86-64 --base 4 --map 0:0:4K", &["--base 0x4", "aligned"]),
        (
            "build -f x86-64 --map 0:0:4K -o /nonexistent/image",
            &["/nonexistent/image cannot be written", "No such file"],
        ),
        ("build -f x86-64 --map 0:0:4K -o /tmp", &["/tmp cannot be written", "directory"]),
        ("check", &["required", "IMAGE"]),
        ("check x -f x86-64 --root 0", &["required", "--base"]),
        ("split --format x86-64", &["stage 2", "arm64-s2-4k-48"]),
        ("split --granule 8k", &["8k", "16k"]),
        ("split --granule 16k --chunk 2M --bytes 1G", &["--chunk 2M", "16K, 32M"]),
        ("split --granule 4k --bytes 3K", &["--bytes 3K", "multiple"]),
        ("split --granule 4k --bytes 0", &["empty"]),
        ("split --bytes 4T", &["at most 2T"]),
        ("split --granule 4k --bytes 1T", &["40 bits"]),
        ("split --rounds 0", &["1..=1000"]),
        ("split --granule 4k --format arm64-s2-4k-40", &["cannot be used with"]),
        ("split --variant faster", &["faster", "skip-level3"]),
    ] {
        table_in(&bench, &words.split(' ').collect::<Vec<_>>()).assert_exit(2, parts);
    }
}
