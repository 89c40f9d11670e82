//! Compiles C programs that tests write.

use std::process::Command;

use super::Bench;

/// Compiles a C program with this body of `main`.
pub fn c_program(bench: &Bench, name: &str, body: &str) -> Vec<String> {
    let source = bench.path(&format!("{name}.c"));
    let headers = ["stdlib", "string", "sys/mman", "sys/prctl", "unistd"].map(|name| format!("#include <{name}.h>\n"));
    std::fs::write(&source, format!("#define _GNU_SOURCE\n{}int main(void) {{ {body} }}\n", headers.concat())).unwrap();
    let program = bench.word(name);
    let compiled = Command::new("gcc").args(["-O1", "-o", &program]).arg(&source).status().unwrap();
    assert!(compiled.success(), "{body}");
    vec![program]
}

/// C code that maps `length` bytes, makes a call about this memory, and touches it.
pub fn touches(length: &str, flags: &str, call: &str) -> String {
    format!(
        "char *at = mmap(0, {length}, PROT_READ | PROT_WRITE, {flags} | MAP_ANONYMOUS, -1, 0); {call}; \
         for (size_t i = 0; i < ({length}); i += 4096) at[i] = 1;"
    )
}
