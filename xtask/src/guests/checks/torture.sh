# Programs that are hard to trace print the same as without a tracer.
pmd=$(cat $thp/hpage_pmd_size)
policies="base thp"
if [ ! -e /checks/small ]; then
    if has_folios 64; then policies="$policies mthp-64k"; else needs "folios of 64K of anonymous memory for mthp-64k"; fi
    policies="$policies thp+no-guards"
    # Programs map a few megabytes some thousand times. Each mapping takes a hugetlb page, and an emulator needs seconds to fill one
    # of 512M.
    if [ $pmd -le 33554432 ]; then policies="$policies hugetlb-$((pmd >> 20))m"; else needs "pages of a pool of 32M at most for hugetlb"; fi
fi
for path in /torture/*; do
    program=${path##*/}
    run $program $path 1
    for policy in $policies; do
        case "$program $policy" in
        # Without a tracer the filter of base prevents strict mode.
        "filters base") ;;
        *) run $program.$policy timeout -s KILL 120 pagelab exec -p $policy -- $path 1 ;;
        esac
    done
done
