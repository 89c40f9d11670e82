# Large folios with the contiguous bit in their page table entries: the host reads the process's page tables.
page=$(looks page)
case "$(uname -m) $page" in
"aarch64 4096") architecture=arm64 folio=65536 policy=mthp-64k of=arm64-4k- ;;
"aarch64 16384") architecture=arm64 folio=2097152 policy=mthp-2m of=arm64-16k- ;;
# Linux uses the bit for hugetlb pages (arch/riscv/mm/hugetlbpage.c), and not for other folios.
"riscv64 4096") architecture=riscv64 folio=65536 policy=hugetlb-64k of=sv ;;
*) needs "an architecture whose entries say that a group of them is one" && return ;;
esac
kib=$((folio >> 10))
case $policy in
mthp-*) has_folios $kib || { needs "folios of ${kib}K of anonymous memory" && return; } ;;
*) [ -e /sys/kernel/mm/hugepages/hugepages-${kib}kB ] || { needs "a pool of pages of ${kib}K" && return; } ;;
esac
pagelab exec -p $policy -- looks $((folio * 64)) /tmp/looked hold /tmp/answer </dev/console >/dev/console 2>/tmp/err
run looked cat /tmp/looked /tmp/err
run answer cat /tmp/answer
bits=$(sed -n 's/^entries \([0-9]*\) .*/\1/p' /tmp/answer)
case $architecture in
arm64) format=$of$bits ;;
riscv64) format=$of$bits+svnapot ;;
esac
run architecture echo $architecture
run page echo $page
run folio echo $folio
run decoded pagelab table decode --format $format --json $(sed -n 's/^entries //p' /tmp/answer | cut -d ' ' -f 2-17)
