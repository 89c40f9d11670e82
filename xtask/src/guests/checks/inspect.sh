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
