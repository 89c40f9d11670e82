# Eager splitting of the guest's own KVM. /checks/given contains the memory (bytes), the chunk and the backings.
. /checks/given
if [ ! -e /dev/kvm ]; then
    needs "/dev/kvm: a hypervisor's level in the emulated processor, and KVM built into the kernel"
    return
fi
counts=/sys/module/pgtable/parameters
run release uname -r
run version pagelab --version
# Waits until the kernel has finished the work that is left after booting. With the instruction clock this takes no time, because an
# idle processor's clock jumps.
if [ ! -e $counts ]; then sleep 60; fi

# split NAME BACKING MODE CHUNK OPTIONS
split() {
    title=$1 backing=$2 mode=$3 chunk_bytes=$4
    shift 4
    # Base pages take several faults each in every cycle, which execute most of all instructions.
    if [ $backing = thp ]; then cycles=2; else cycles=1; fi
    if [ -e $counts ]; then
        cycles=1
        run $title.before grep . $counts/*
    fi
    run $title timeout -s KILL 7200 pagelab workload kvm-dirty-log --bytes $bytes --backing $backing --mode $mode \
        --split-chunk $chunk_bytes --rounds 1 --cycles $cycles --json "$@"
    if [ -e $counts ]; then run $title.after grep . $counts/*; fi
}
for backing in $backings; do
    # Enabling logging does not depend on later writes, so pages are only read, which takes no fault.
    split $backing.enable $backing enable $chunk --write-percent 0
    if [ -e $counts ]; then continue; fi
    split $backing.protect $backing enable 0 --write-percent 0
    # All pages are written and cleared again. The second time they are mapped by base pages, whatever the size was before.
    split $backing.clear $backing clear $chunk
done
