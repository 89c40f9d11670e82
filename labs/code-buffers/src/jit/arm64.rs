//! The generator for arm64 (AAPCS64: argument and result are in x0).

use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::{DynasmApi, VecAssembler, dynasm};

use super::ROTATION;

pub(super) fn encode(constants: &[u64]) -> Vec<u8> {
    let mut ops = VecAssembler::<Aarch64Relocation>::new(0);
    for constant in constants {
        let part = |at: u32| (constant >> (16 * at)) as u32 & 0xffff;
        let (part0, part1, part2, part3) = (part(0), part(1), part(2), part(3));
        // arm64 has no rotation to the left.
        let right = 64 - ROTATION;
        dynasm!(ops
            ; .arch aarch64
            ; movz x1, part0
            ; movk x1, part1, lsl 16
            ; movk x1, part2, lsl 32
            ; movk x1, part3, lsl 48
            ; eor x0, x0, x1
            ; ror x0, x0, right
            ; add x0, x0, x1
        );
    }
    dynasm!(ops ; .arch aarch64 ; ret);
    ops.finalize().expect("code without labels")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::jit::compute;

    /// A program that calls the code with a number and writes the result to its standard output.
    const CALLER: &str = r#"
        #include <stdint.h>
        #include <stdio.h>
        extern uint64_t piece(uint64_t);
        int main(void) { printf("%llu\n", (unsigned long long)piece(0x0123456789abcdefULL)); return 0; }
    "#;

    #[test]
    fn generated_code_computes_the_expected_value_in_an_emulator() {
        let constants = [0, 1, u64::MAX, 0x8000_0000_0000_0001, 0x0123_4567_89ab_cdef, 0xffff_0000_ffff_0000];
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let bytes: Vec<String> = encode(&constants).iter().map(ToString::to_string).collect();
        std::fs::write(path("piece.s"), format!(".global piece\n.text\npiece: .byte {}\n", bytes.join(","))).unwrap();
        std::fs::write(path("caller.c"), CALLER).unwrap();
        let compiler = Command::new("aarch64-linux-gnu-gcc")
            .args(["-static", "-o"])
            .args([path("caller"), path("caller.c"), path("piece.s")])
            .output();
        let Ok(compiled) = compiler else {
            testing::skip("aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu)");
            return;
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let Ok(ran) = Command::new("qemu-aarch64").arg(path("caller")).output() else {
            testing::skip("qemu-aarch64 (qemu-user)");
            return;
        };
        let expected = compute(constants, 0x0123_4567_89ab_cdef).to_string();
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), expected);
    }
}
