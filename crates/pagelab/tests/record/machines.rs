//! Tests of recordings of whole machines, by physical addresses.

use super::*;

/// Records a bare machine that runs this code.
fn record_machine(bench: &Bench, options: &[&str], emulator: &str, machine: &[&str], code: &[u8]) -> Ran {
    std::fs::write(bench.path("code"), code).unwrap();
    let mut command = vec![emulator, "-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"];
    command.extend(machine);
    record(bench, &[options, &["--system"]].concat(), &command).ran()
}

/// Machine code for QEMU's `virt` machine: stores a word to the third megabyte, loads from the next page, reads the serial port,
/// and switches the machine off (PSCI SYSTEM_OFF).
const ARM_CODE: [u32; 8] = [
    0xd2a0_0000 | 0x4030 << 5, // movz x0, #0x4030, lsl #16
    0xd2a0_0001 | 0x0900 << 5, // movz x1, #0x0900, lsl #16
    0xf900_0001,               // str  x1, [x0]
    0xf940_0002 | 0x200 << 10, // ldr  x2, [x0, #0x1000]
    0xb940_0023 | 6 << 10,     // ldr  w3, [x1, #0x18]
    0xd2a0_0000 | 0x8400 << 5, // movz x0, #0x8400, lsl #16
    0xf280_0000 | 8 << 5,      // movk x0, #8
    0xd400_0002,               // hvc  #0
];

#[test]
fn a_machine_is_recorded_with_physical_addresses() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    let code: Vec<u8> = ARM_CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-smp", "2", "-device", &loader];
    for options in [&[][..], &["--lossless"]] {
        record_machine(&bench, options, "qemu-system-aarch64", &machine, &code).assert_exit(0, &[]);
        sound(&bench, "trace");
        let lines = dumped(&bench, "trace");
        let touched: Vec<(u64, &str, u64)> = lines
            .iter()
            .filter(|line| line["run"].is_u64() && line["kind"] != "fetch")
            .map(|line| {
                (line["address"].as_u64().unwrap(), line["kind"].as_str().unwrap(), line["accesses"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(touched, [(0x4030_0000, "store", 1), (0x4030_1000, "load", 1)]);
        let fetched = lines.iter().filter(|line| line["kind"] == "fetch");
        assert!(fetched.clone().count() > 0 && fetched.clone().all(|line| line["address"] == 0x4020_0000));
        let memory: Vec<&Value> = events(&lines, "region").collect();
        assert!(
            memory.len() == 1 && memory[0]["address"] == 0x4000_0000 && memory[0]["bytes"] == 64 << 20,
            "{memory:?}"
        );
        let info = info(&bench, "trace");
        assert_eq!((&info["header"]["system"], &info["header"]["architecture"]), (&true.into(), &"aarch64".into()));
        // QEMU 10 executes the beginning of the block with the device access two more times: for that instruction alone,
        // and for the instructions after it.
        let again = if options.is_empty() && !qemu_before(&bench, 10) { 3 } else { 0 };
        assert_eq!((&info["total"]["instructions"], &info["total"]["data_accesses"]), (&(8 + again).into(), &2.into()));
        assert_eq!((&info["outside_accesses"], &info["outside_instructions"]), (&1.into(), &0.into()));
    }
    bench.pagelab(&["trace", "info", "trace"]).ran().assert_stdout(&["physical, of a whole machine", "1 data access "]);
}

/// The first processor runs an endless loop, and the second is off.
#[test]
fn a_machine_ends_when_as_much_is_recorded_as_was_asked_for() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    // The code is `b .+4` and a branch back.
    let code: Vec<u8> = [0x1400_0001u32, 0x1400_0000 | 0x3ff_ffff].iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-smp", "2", "-device", &loader];
    for (options, recorded) in [
        (&["--max", "5000"][..], 5000),
        (&["--max", "5000", "--lossless"], 5000),
        (&["--max", "2500", "--skip", "10000", "--window", "1000"], 2500),
    ] {
        let ran = record_machine(&bench, options, "qemu-system-aarch64", &machine, &code);
        ran.assert_exit(0, &["instructions of each processor are recorded (--max), so the machine was ended"]);
        sound(&bench, "trace");
        let fetches = info(&bench, "trace")["total"]["fetches"].as_u64().unwrap();
        // A block is recorded as a whole, so a few more instructions may be recorded.
        assert!((recorded..recorded + 20).contains(&fetches), "{options:?}: {fetches}");
    }
}

#[test]
fn a_machine_is_simulated_under_its_direct_map() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    let code: Vec<u8> = ARM_CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    // The last -m takes effect: the machine has 2G from address 1G on, so that every page size fits.
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-m", "2G", "-device", &loader];
    record_machine(&bench, &[], "qemu-system-aarch64", &machine, &code).assert_exit(0, &[]);
    let sim = |policies: &str| bench.pagelab(&["sim", "trace", "-m", "cortex-a57", "-p", policies, "--json"]).ran();
    let document = sim("direct-map-4k,direct-map-2m,direct-map-1g").json();
    let simulations = document["traces"][0]["simulations"].as_array().unwrap();
    let found: Vec<[u64; 3]> = simulations
        .iter()
        .map(|of| ["walks", "walk_references"].map(|key| of[key].as_u64().unwrap()))
        .zip(simulations.iter().map(|of| of["mapped"][0]["leaf_bytes"].as_u64().unwrap()))
        .map(|([walks, references], leaf_bytes)| [leaf_bytes, walks, references])
        .collect();
    // Two pages of data and one of code are all within 2M: the first walk reads every level, the other walks read only the
    // last table.
    assert_eq!(found, [[1 << 12, 3, 4 + 2], [1 << 21, 1, 3], [1 << 30, 1, 2]]);
    sim("base").assert_exit(2, &["physical addresses", "direct-map-2m"]);
}

#[test]
fn a_machine_that_is_killed_has_its_whole_blocks() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    // Machine code that stores to one page after the other, prints a character, and loops forever.
    const CODE: [u32; 10] = [
        0xd2a0_0000 | 0x4030 << 5,         // movz x0, #0x4030, lsl #16
        0xd280_0001 | 64 << 5,             // movz x1, #64
        0xf900_0001,                       // str x1, [x0]
        0x9140_0400,                       // add x0, x0, #1, lsl #12
        0xf100_0421,                       // subs x1, x1, #1
        0x5400_0001 | (0x7_ffff - 2) << 5, // b.ne -3
        0xd2a0_0002 | 0x0900 << 5,         // movz x2, #0x0900, lsl #16
        0xd280_0003 | 0x78 << 5,           // movz x3, #'x'
        0x3900_0043,                       // strb w3, [x2]
        0x1400_0000,                       // b .
    ];
    let code: Vec<u8> = CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(bench.path("code"), code).unwrap();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["qemu-system-aarch64", "-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"];
    let serial = format!("file:{}", bench.word("serial"));
    let machine =
        [&machine[..], &["-M", "virt", "-cpu", "cortex-a57", "-device", &loader, "-serial", &serial]].concat();
    let mut command = record(&bench, &["--system"], &machine);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let running = command.begin();
    let pagelab = running.id();
    // Before the child executes QEMU, it is a fork of pagelab.
    let is_machine = || {
        let words = emulator(pagelab).and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok());
        words.is_some_and(|words| words.contains("-qmp"))
    };
    assert!(common::within(common::LIMIT, is_machine));
    let has_stored = || std::fs::read_to_string(bench.path("serial")).is_ok_and(|written| written == "x");
    assert!(common::within(common::LIMIT, has_stored));
    // The loop executes instructions too, and after a number of instructions the plugin must write a block.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(Command::new("kill").args(["-KILL", &emulator(pagelab).unwrap()]).status().unwrap().success());
    cut_off(&bench, "trace", &running.ran(), 137);
    let lines = dumped(&bench, "trace");
    assert_eq!(order(&lines, 0, 0x4030_0000, 64), (0..64).collect::<Vec<_>>());
    assert!(events(&lines, "region").count() > 0);
}

/// Firmware for a PC: stores to 64K, loads from the next page, and exits through the test device.
const PC_CODE: [u8; 16] = [
    0xb8, 0x00, 0x10, // mov ax, 0x1000
    0x8e, 0xd8, // mov ds, ax
    0xa2, 0x00, 0x00, // mov [0], al
    0xa0, 0x00, 0x10, // mov al, [0x1000]
    0xb0, 0x01, // mov al, 1
    0xe6, 0xf4, // out 0xf4, al
    0xf4, // hlt
];

#[test]
fn counts_instructions_of_firmware_and_records_its_accesses() {
    if !needs(&[recording("qemu-system-x86_64")]) {
        return;
    }
    let bench = Bench::new();
    let mut firmware = vec![0; 1 << 16];
    firmware[..PC_CODE.len()].copy_from_slice(&PC_CODE);
    // The first instruction, at the reset vector, jumps to the beginning.
    firmware[0xfff0..0xfff3].copy_from_slice(&[0xe9, 0x0d, 0x00]);
    let exit = "isa-debug-exit,iobase=0xf4,iosize=1";
    let machine = ["-bios", &bench.word("code"), "-device", exit];
    record_machine(&bench, &[], "qemu-system-x86_64", &machine, &firmware).assert_exit(3, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let (data, fetched) = runs(&lines);
    assert_eq!(data, [(0, "store".to_owned(), 1), (1, "load".to_owned(), 1)]);
    assert_eq!(lines.iter().find(|line| line["run"].is_u64()).unwrap()["address"], 0x1_0000);
    let info = info(&bench, "trace");
    // A block is counted when it starts, so the block in which the machine ends counts as a whole, including the instruction
    // after the exit. QEMU 10 ends blocks at a device access, so its block may have ended there.
    let (outside, executed) = (info["outside_instructions"].as_u64(), info["total"]["instructions"].as_u64());
    assert!(executed == Some(8) || executed == Some(7) && !qemu_before(&bench, 8), "{info}");
    assert_eq!((fetched, outside), (0, executed));
    // If this QEMU does not show to which of two memory ranges an address belongs, recording is refused.
    let split = ["-m", "4G", "-bios", &bench.word("code"), "-device", exit];
    let ran = record_machine(&bench, &[], "qemu-system-x86_64", &split, &firmware);
    match ran.code {
        Some(3) => sound(&bench, "trace"),
        _ => drop(ran.assert_exit(2, &["is in several parts", "-m 2G", "before anything was recorded"])),
    }
}

#[test]
fn refuses_commands_that_are_no_machine() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    record(&bench, &["--system"], &["/bin/true"]).ran().assert_exit(2, &["/bin/true", "qemu-system-x86_64"]);
    record(&bench, &["--system", "--arch", "x86_64"], &["/bin/true"]).ran().assert_exit(2, &["--arch"]);
    if needs(&[recording("qemu-system-x86_64")]) {
        let kvm = ["qemu-system-x86_64", "-accel", "kvm"];
        record(&bench, &["--system"], &kvm).ran().assert_exit(2, &["kvm", "-accel tcg"]);
        if needs(&[("/dev/kvm", Path::new("/dev/kvm").exists())]) {
            // Settings in a file are not visible in the arguments, so pagelab asks QEMU itself.
            std::fs::write(bench.path("config"), "[machine]\n  accel = \"kvm\"\n").unwrap();
            let kvm = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-readconfig", &bench.word("config")];
            record(&bench, &["--system"], &kvm).ran().assert_exit(2, &["KVM is on", "-accel tcg"]);
            assert!(!bench.path("trace").exists());
        }
        let wrong = ["qemu-system-x86_64", "-M", "no-such-machine"];
        record(&bench, &["--system"], &wrong).ran().assert_exit(2, &["before anything was recorded"]);
    }
}
