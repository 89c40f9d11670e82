# Folios of 64K beside the entries that map them: somebody outside reads the process's page tables.
case "$(uname -m)" in
aarch64 | riscv64) ;;
*) needs "an architecture whose entries say that a group of them is one" && return ;;
esac
if ! has_folios 64; then
    needs "folios of 64K of anonymous memory"
    return
fi
if [ $(looks page) != 4096 ]; then
    needs "base pages of 4K: groups of others are larger than 64K"
    return
fi
pagelab exec -p mthp-64k -- looks 4194304 /tmp/looked hold /tmp/answer </dev/console >/dev/console 2>/tmp/err
run looked cat /tmp/looked /tmp/err
run answer cat /tmp/answer
bits=$(sed -n 's/^entries \([0-9]*\) .*/\1/p' /tmp/answer)
case "$(uname -m)" in
aarch64) format=arm64-4k-$bits architecture=arm64 ;;
riscv64) format=sv$bits+svnapot architecture=riscv64 ;;
esac
run architecture echo $architecture
run decoded pagelab table decode --format $format --json $(sed -n 's/^entries //p' /tmp/answer | cut -d ' ' -f 2-17)
