# Dirty logging by a clock that counts instructions: what a phase takes is the same whenever it runs.
if [ ! -e /dev/kvm ]; then
    needs "/dev/kvm: a hypervisor's level in the emulated processor, and KVM built into the kernel"
    return
fi
pmd=$(cat $thp/hpage_pmd_size)
bytes=33554432
if [ $pmd -gt $bytes ]; then bytes=$pmd; fi
# Whatever the kernel has left to do when it has booted is done. This takes no time: an idle processor's clock jumps.
sleep 60
# With --pause, so is what a phase defers when the next one begins: KVM frees the tables of a split after a grace period of RCU.
for chunk in 0 $pmd; do
    for time in first second; do
        run split-$chunk.$time timeout -s KILL 600 pagelab workload kvm-dirty-log --bytes $bytes --backing thp --rounds 1 \
            --cycles 9 --pause 1s --split-chunk $chunk --json
        if [ "$(cat /tmp/code)" != 0 ]; then return; fi
    done
done
