# Arms over boots: each of two boots measures with its own direct map, in a store of its own. The host merges the stores.
boot=with-1g
if grep -q nogbpages /proc/cmdline; then boot=without-1g; fi
run meminfo.$boot grep DirectMap /proc/meminfo
run study.$boot pagelab study run /checks/direct-map.toml --size quick --only page-faults --only memfd-pread --store /tmp/$boot.sqlite
run store.$boot sh -c "gzip -c /tmp/$boot.sqlite | base64"
