# The page sizes of a program's memory under each policy, as pagelab and as the kernel report them.
pmd=$(cat $thp/hpage_pmd_size)
bytes=$((pmd * 4))
if [ $bytes -lt 16777216 ]; then bytes=16777216; fi
policies="base thp"
if has_folios 64; then policies="$policies mthp-64k"; else needs "folios of 64K of anonymous memory for mthp-64k"; fi
policies="$policies hugetlb-$((pmd >> 20))m"
if [ ! -e /checks/small ]; then policies="$policies thp+no-guards thp+prefault base+prefault"; fi
for policy in $policies; do
    run exec.$policy pagelab exec -p $policy -- looks $bytes
done
run compare pagelab compare -p $(echo $policies | tr ' ' ,) --json --prove-all --blocks 1 --min-blocks 1 \
    --max-time 1h --store /tmp/store -- looks $bytes /dev/null
