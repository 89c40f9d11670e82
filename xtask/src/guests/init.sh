#!/bin/busybox sh
# Process 1 of a guest: runs the checks, one after the other, and powers off. What it says is read by `cargo xtask guests`:
#   @@ check NAME    a check begins
#   @@ run NAME      what a command says follows; in a line of its own, so that it can say anything
#   @@ ran CODE      and so it ended
#   @@ needs WHAT    what the check, or a part of it, cannot run without
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
# What is typed at the console is for programs, and not to be said again.
stty -echo </dev/console

thp=/sys/kernel/mm/transparent_hugepage

# Runs a command under a name.
run() {
    name=$1
    shift
    # The pipe has an end when the last process that could write to it has.
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

# Tells whether anonymous memory has folios of this many KiB.
has_folios() {
    [ -e $thp/hugepages-$1kB/enabled ]
}

for check in $(cat /checks/order); do
    echo "@@ check $check"
    (. /checks/$check.sh)
done
echo "@@ done"
poweroff -f
