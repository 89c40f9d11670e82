# Inspects the page sizes of a program, with large pages forbidden and allowed.
pmd=$(cat $thp/hpage_pmd_size)
bytes=$((pmd * 4))
if [ $bytes -lt 16777216 ]; then bytes=16777216; fi
before=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/enabled)
run bytes echo $bytes
for setting in never always; do
    echo $setting >$thp/enabled
    run inspect.$setting pagelab inspect --json -- looks $bytes /tmp/looked
    run looked.$setting cat /tmp/looked
done
echo $before >$thp/enabled
# Advised memory that is read before it is written. A kernel before 6.15 or so replaces the huge zero page by base pages.
before=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/enabled)
echo madvise >$thp/enabled
ln -s /bin/read_first /tmp/write_first
for program in /bin/read_first /tmp/write_first; do
    run inspect.${program##*/} pagelab inspect --json -- $program $bytes $pmd /tmp/by_pmd
    run by_pmd.${program##*/} cat /tmp/by_pmd
done
echo $before >$thp/enabled
