#!/bin/sh
# An example for sites (Epilog= in slurm.conf, slurm.conf(5)); slurmd runs it as root after a job's last process.
# A job that is killed as a cgroup takes pagelab's watchdog along: what a task that runs as root had changed then is put
# back here, by its journal. What prolog.sh had granted is taken back. An epilog that fails drains the node, which is
# right where a setting could not be put back, or where another pagelab has the settings: the next task would measure
# under them.
pagelab=/usr/local/bin/pagelab
kept=/run/pagelab-prolog.$SLURM_JOB_ID
failed=0

"$pagelab" restore >/dev/null || failed=1
if [ -f "$kept" ]; then
    while read -r file before; do
        echo "$before" >"$file" || failed=1
    done <"$kept"
    [ $failed = 1 ] || rm -f "$kept"
fi
exit $failed
