# The boot after the reset: the journal is in its place, as if it had been kept on a disk.
chmod 700 /var/lib/pagelab
chmod 600 /var/lib/pagelab/lease.jsonl
pmd=$(cat $thp/hpage_pmd_size)
run pool cat /sys/kernel/mm/hugepages/hugepages-$((pmd >> 10))kB/nr_hugepages
run next cat /proc/sys/kernel/random/boot_id
run restore pagelab restore --json
run again pagelab restore --json
run left ls /var/lib/pagelab
