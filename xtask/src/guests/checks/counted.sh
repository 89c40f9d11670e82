# Dirty logging by a clock that counts instructions: what a phase takes is the same whenever it runs.
if [ ! -e /dev/kvm ]; then
    needs "/dev/kvm: a hypervisor's level in the emulated processor, and KVM built into the kernel"
    return
fi
pmd=$(cat $thp/hpage_pmd_size)
bytes=$((pmd * 16))
# Whatever the kernel has left to do when it has booted is done. This takes no time: an idle processor's clock jumps.
sleep 60
for chunk in 0 $pmd; do
    for time in first second; do
        run split-$chunk.$time pagelab workload kvm-dirty-log --bytes $bytes --backing thp --rounds 1 --cycles 5 \
            --split-chunk $chunk --json
    done
done
