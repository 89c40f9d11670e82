#!/bin/sh
# An example for sites (Prolog= in slurm.conf, slurm.conf(5)); slurmd runs it as root before a job's first process.
# It grants the jobs of some partitions what a user cannot set: in the partition `pagelab-64` programs that ask have folios
# of 64K and of no other size (the policy mthp-64k; in `pagelab-2048` it is thp), and there is a pool of huge pages.
# What was there before is kept for epilog.sh. Such a partition gives whole nodes (OverSubscribe=EXCLUSIVE).
# Whatever goes wrong here changes no more: a prolog that fails drains the node.
thp=/sys/kernel/mm/transparent_hugepage
kept=/run/pagelab-prolog.$SLURM_JOB_ID

case $SLURM_JOB_PARTITION in
pagelab-*) wanted=$thp/hugepages-${SLURM_JOB_PARTITION#pagelab-}kB/enabled ;;
*) exit 0 ;;
esac
[ -f "$wanted" ] || exit 0

umask 077
grant() { # FILE VALUE; where a file lists choices, the one in brackets is set
    before=$(sed 's/.*\[\(.*\)\].*/\1/' "$1") || exit 0
    [ "$before" = "$2" ] && return
    echo "$1 $before" >>"$kept" && echo "$2" >"$1" || exit 0
}

for size in "$thp"/hugepages-*kB/enabled; do
    [ "$size" = "$wanted" ] || grant "$size" never
done
grant "$wanted" madvise
grant /proc/sys/vm/nr_hugepages 512
exit 0
