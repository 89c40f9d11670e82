# Settings are restored when the holder of the lease is killed.
settings() {
    cat $thp/enabled $thp/hugepages-*/enabled $thp/khugepaged/pages_to_scan /sys/kernel/mm/hugepages/*/nr_hugepages 2>/dev/null; true
}

# Waits up to half a minute until the settings equal, or do not equal, those before.
wait_until() {
    for second in $(seq 30); do
        if [ "$(settings)" $1 "$before" ]; then return 0; fi
        sleep 1
    done
    return 1
}

pmd=$(cat $thp/hpage_pmd_size)
pool=hugetlb-$((pmd >> 20))m
before=$(settings)
pagelab exec -p $pool --hugetlb-pool $((pmd * 2)) -- sleep 600 >/dev/null 2>&1 &
wait_until != && run lent cat /var/lib/pagelab/lease.jsonl
kill -9 $!
wait_until = && run returned settings
run before echo "$before"
run after settings
run restore pagelab restore
