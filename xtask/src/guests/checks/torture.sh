# Programs that do what is hard for a tracer print the same as when they are left alone.
pmd=$(cat $thp/hpage_pmd_size)
policies="base thp"
if [ ! -e /checks/small ]; then
    if has_folios 64; then policies="$policies mthp-64k"; else needs "folios of 64K of anonymous memory for mthp-64k"; fi
    policies="$policies thp+no-guards hugetlb-$((pmd >> 20))m"
fi
for path in /torture/*; do
    program=${path##*/}
    run $program $path 1
    for policy in $policies; do
        case "$program $policy" in
        # Without a tracer the filter of base stands in the way of strict mode.
        "filters base") ;;
        *) run $program.$policy timeout -s KILL 40 pagelab exec -p $policy -- $path 1 ;;
        esac
    done
done
