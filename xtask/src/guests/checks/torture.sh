# Programs that do what is hard for a tracer print the same as when they are left alone.
pmd=$(cat $thp/hpage_pmd_size)
policies="base thp"
if [ ! -e /checks/small ]; then
    if has_folios 64; then policies="$policies mthp-64k"; else needs "folios of 64K of anonymous memory for mthp-64k"; fi
    policies="$policies thp+no-guards"
    # Programs map a few megabytes some thousand times. Each takes a page of the pool, and an emulator fills one of 512M in seconds.
    if [ $pmd -le 33554432 ]; then policies="$policies hugetlb-$((pmd >> 20))m"; else needs "pages of a pool of 32M at most for hugetlb"; fi
fi
for path in /torture/*; do
    program=${path##*/}
    run $program $path 1
    for policy in $policies; do
        case "$program $policy" in
        # Without a tracer the filter of base stands in the way of strict mode.
        "filters base") ;;
        *) run $program.$policy timeout -s KILL 120 pagelab exec -p $policy -- $path 1 ;;
        esac
    done
done
