#!/bin/busybox sh
# Process 1 of a guest: runs the checks one after the other, and powers off. `cargo xtask guests` parses its output:
#   @@ check NAME    a check begins
#   @@ run NAME      the output of a command follows, starting on a new line, so that it can be any text
#   @@ ran CODE      the command has ended with this exit code
#   @@ needs WHAT    what the check, or a part of it, needs and is not available
[ $$ = 1 ] || exit 1
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root /var/lib
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ip link set lo up
# Input on the console is for programs, and must not be echoed.
stty -echo </dev/console

thp=/sys/kernel/mm/transparent_hugepage

# Runs a command, and prints its output under a name.
run() {
    name=$1
    shift
    # The pipe reaches its end when the last process that can write to it has exited.
    { "$@" 2>/tmp/err </dev/null; echo $? >/tmp/code; } | cat >/tmp/out
    echo "@@ run $name"
    cat /tmp/out
    echo
    echo "@@ said"
    cat /tmp/err
    echo
    echo "@@ ran $(cat /tmp/code)"
}

needs() {
    echo "@@ needs $*"
}

# Whether the kernel has a setting for anonymous folios of this size in KiB.
has_folios() {
    [ -e $thp/hugepages-$1kB/enabled ]
}

for check in $(cat /checks/order); do
    echo "@@ check $check"
    (. /checks/$check.sh)
done
echo "@@ done"
poweroff -f
