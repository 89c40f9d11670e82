# Dirty logging with the guest's own KVM. The output of a second run must be the same, except for times.
if [ ! -e /dev/kvm ]; then
    needs "/dev/kvm: a hypervisor's level in the emulated processor, and KVM built into the kernel"
    return
fi
bytes=33554432
if [ -e /checks/small ]; then bytes=8388608; fi
pmd=$(cat $thp/hpage_pmd_size)
if [ $pmd -gt $bytes ]; then bytes=$((pmd * 2)); fi
for chunk in 0 $pmd; do
    for time in first second; do
        run split-$chunk.$time timeout -s KILL 600 pagelab workload kvm-dirty-log --bytes $bytes --backing thp --rounds 1 \
            --split-chunk $chunk --json
        # The next run would not end either.
        if [ "$(cat /tmp/code)" != 0 ]; then return; fi
    done
done
