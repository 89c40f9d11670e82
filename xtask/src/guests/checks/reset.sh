# The guest is reset while settings are changed by a lease, whose holder has no time to restore them.
pmd=$(cat $thp/hpage_pmd_size)
pool=/sys/kernel/mm/hugepages/hugepages-$((pmd >> 10))kB/nr_hugepages
pagelab exec -p hugetlb-$((pmd >> 20))m --hugetlb-pool $((pmd * 2)) -- sleep 600 >/dev/null 2>&1 &
for second in $(seq 60); do
    if [ "$(cat $pool)" != 0 ]; then break; fi
    sleep 1
done
run lent cat $pool
run boot cat /proc/sys/kernel/random/boot_id
run journal cat /var/lib/pagelab/lease.jsonl
echo "@@ done"
echo "@@ reset"
sleep 600
