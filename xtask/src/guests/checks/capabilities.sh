# Which page each kind of memory gets, in each way and size. The file systems are on disks that the host made; swap is zram.
for module in $(cat /modules/order); do
    insmod /modules/$module || needs "module $module"
done 2>/tmp/insmod
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
directories=
set -- a b c
for type in ext4 xfs btrfs; do
    mkdir -p /mnt/$type
    if mount -t $type /dev/vd$1 /mnt/$type; then directories="$directories --directory /mnt/$type"; else needs "$type"; fi
    shift
done
mkdir -p /mnt/overlay /mnt/ext4/lower /mnt/ext4/upper /mnt/ext4/work
layers=lowerdir=/mnt/ext4/lower,upperdir=/mnt/ext4/upper,workdir=/mnt/ext4/work
if mount -t overlay -o $layers overlay /mnt/overlay; then
    directories="$directories --directory /mnt/overlay"
else
    needs "overlay"
fi
for huge in always within_size advise; do
    mkdir -p /mnt/$huge
    mount -t tmpfs -o huge=$huge tmp /mnt/$huge && directories="$directories --directory /mnt/$huge"
done
if [ -e /sys/block/zram0 ]; then
    echo 1G >/sys/block/zram0/disksize
    mkswap /dev/zram0 && swapon /dev/zram0
else
    needs "zram"
fi >/dev/null
run version pagelab --version
run whole pagelab capabilities --json $directories
run again pagelab capabilities --json --quick $directories
