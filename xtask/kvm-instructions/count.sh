#!/bin/sh
# Counts the instructions of KVM's stage 2 walks on arm64 (arch/arm64/kvm/hyp/pgtable.c of Debian's Linux 6.12), as
# studies/stage2-split.toml has them.
#
#     count.sh DIRECTORY        for downloads and builds: an empty one, or that of an earlier run
#
# It compiles the file of Debian's kernel with Debian's configuration and compiler, links it with a user-space program
# (harness.c, kernel.c), and runs it in QEMU's user emulation with a plugin that counts instructions (counter.c). It needs
# aarch64-linux-gnu-gcc, qemu-aarch64, gcc and apt, and no root. Nothing is installed.
#
# Differences from a kernel: the stack protector's canary is a variable instead of a field of the task (the same number of
# instructions), an hvc and a read of CurrentEL are replaced by a move, capabilities checked with a likely branch are present, and
# the harness provides table pages. The cost of get_page is read from the compiled mmu.c, which is not run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
release=6.12.117+deb12 version=6.12.117-1~deb12u1

if [ ! -d linux-source-6.12 ]; then
    mkdir -p apt/lists/partial apt/cache/archives/partial packages && : >apt/status
    cat >apt/conf <<CONF
APT::Architecture "arm64";
APT::Architectures {"arm64";};
Dir::State "$PWD/apt";
Dir::State::status "$PWD/apt/status";
Dir::Cache "$PWD/apt/cache";
CONF
    export APT_CONFIG="$PWD/apt/conf"
    apt-get -qq update
    (cd packages && apt-get -qq download "linux-headers-$release-common=$version" "linux-headers-$release-arm64=$version" \
        "linux-headers-$release-arm64-16k=$version" "linux-source-6.12=$version")
    for package in packages/*.deb; do dpkg-deb -x "$package" .; done
    tar -xf usr/src/linux-source-6.12.tar.xz --wildcards '*/arch/arm64/kvm/*'
    # Debian has no kernel with pages of 64K: uses that of 16K with the options that depend on the page size.
    cp -r "usr/src/linux-headers-$release-arm64-16k" "usr/src/linux-headers-$release-arm64-64k"
    sed -i 's/CONFIG_ARM64_16K_PAGES/CONFIG_ARM64_64K_PAGES/; s/PAGE_SIZE_16KB/PAGE_SIZE_64KB/; /CONFIG_ARM64_LPA2/d
        s/CONFIG_PAGE_SHIFT 14/CONFIG_PAGE_SHIFT 16/; s/CONFIG_PGTABLE_LEVELS 4/CONFIG_PGTABLE_LEVELS 3/' \
        "usr/src/linux-headers-$release-arm64-64k/include/generated/autoconf.h"
fi

common=usr/src/linux-headers-$release-common

# compiled GRANULE INPUT OUTPUT.s: compiles as the kernel's build does
compiled() {
    case $1 in 4k) own=usr/src/linux-headers-$release-arm64 ;; *) own=usr/src/linux-headers-$release-arm64-$1 ;; esac
    aarch64-linux-gnu-gcc -S -nostdinc -w -I$common/arch/arm64/include -I"$own/arch/arm64/include/generated" \
        -I$common/include -I"$own/include" -I$common/arch/arm64/include/uapi \
        -I"$own/arch/arm64/include/generated/uapi" -I$common/include/uapi -I"$own/include/generated/uapi" \
        -include $common/include/linux/compiler-version.h -include $common/include/linux/kconfig.h \
        -include $common/include/linux/compiler_types.h -D__KERNEL__ -mlittle-endian -DKASAN_SHADOW_SCALE_SHIFT= \
        -std=gnu11 -fshort-wchar -funsigned-char -fno-common -fno-PIE -fno-strict-aliasing -mgeneral-regs-only \
        -DCONFIG_CC_HAS_K_CONSTRAINT=1 -mabi=lp64 -mbranch-protection=pac-ret -fno-asynchronous-unwind-tables \
        -fno-unwind-tables -DARM64_ASM_ARCH='"armv8.5-a"' -Wa,-march=armv8.5-a -O2 -fno-allow-store-data-races \
        -fstack-protector-strong -fno-omit-frame-pointer -fno-optimize-sibling-calls -ftrivial-auto-var-init=zero \
        -fno-strict-overflow -fno-stack-check -fconserve-stack -DKBUILD_MODFILE='"x"' -DKBUILD_BASENAME='"x"' \
        -DKBUILD_MODNAME='"kvm"' "$2" -o "$3"
    sed -i -E 's/mrs\s+(x[0-9]+), *CurrentEL/mov \1, 8/; s/hvc\s+#0/mov x0, 0/; /^661:/{n;s/^\tb\t\.L.*/\tnop/}' "$3"
}

gcc -O2 -shared -fPIC -o counter.so "$here/counter.c"
for granule in 4k 16k 64k; do
    compiled $granule linux-source-6.12/arch/arm64/kvm/hyp/pgtable.c pgtable.s
    compiled $granule "$here/kernel.c" kernel.s
    aarch64-linux-gnu-gcc -march=armv8.5-a -O2 -static -o harness-$granule "$here/harness.c" pgtable.s kernel.s 2>&1 |
        grep -v warning || true
done
compiled 4k linux-source-6.12/arch/arm64/kvm/mmu.c mmu.s
aarch64-linux-gnu-gcc -march=armv8.5-a -c mmu.s -o mmu.o
aarch64-linux-gnu-objdump -d mmu.o --disassemble=kvm_host_get_page | sed -n '/<kvm_host_get_page>:/,$p'

# of GRANULE WHAT LEAF STEP: prints the instructions of a run over 1G
of() { qemu-aarch64 -plugin ./counter.so ./harness-"$1" "$2" 0x40000000 "$3" "$4"; }

printf 'granule leaf step map protect split protect-again\n'
for at in '4k 0x1000 0x40000' '4k 0x200000 0x40000' '4k 0x40000000 0x40000' '16k 0x4000 0x100000' \
    '16k 0x2000000 0x100000' '64k 0x10000 0x400000' '64k 0x20000000 0x400000'; do
    set -- $at
    for step in 0x40000000 "$3"; do
        map=$(of "$1" 0 "$2" $step) protect=$(of "$1" 1 "$2" $step)
        split=$(of "$1" 2 "$2" $step) again=$(of "$1" 3 "$2" $step)
        printf '%s %s %s %s %s %s %s\n' "$1" "$2" $step "$map" $((protect - map)) $((split - protect)) $((again - protect))
    done
done
