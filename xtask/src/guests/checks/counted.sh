# Dirty logging with a clock that counts instructions: the duration of a phase is the same in every run.
if [ ! -e /dev/kvm ]; then
    needs "/dev/kvm: a hypervisor's level in the emulated processor, and KVM built into the kernel"
    return
fi
pmd=$(cat $thp/hpage_pmd_size)
bytes=33554432
if [ $pmd -gt $bytes ]; then bytes=$pmd; fi
# Waits until the kernel has finished the work that is left after booting. This takes no time: an idle processor's clock jumps.
sleep 60
# With --pause, the deferred work of a phase ends before the next one: KVM frees the tables of a split after an RCU grace period.
for chunk in 0 $pmd; do
    for time in first second; do
        run split-$chunk.$time timeout -s KILL 600 pagelab workload kvm-dirty-log --bytes $bytes --backing thp --rounds 1 \
            --cycles 9 --pause 1s --split-chunk $chunk --json
        if [ "$(cat /tmp/code)" != 0 ]; then return; fi
    done
done
