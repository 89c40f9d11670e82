# The effect of programs on memory under three policies. The host makes the model's predictions.
case "$(uname -m)" in
x86_64) needs "another architecture: \`cargo xtask truth\` has programs on x86-64" && return ;;
esac
# Larger folios with base pages of 64K are not modelled. thp is included because a comparison needs two policies.
if [ "$(looks page)" = 65536 ]; then
    policies=base,thp
elif has_folios 64; then
    policies=base,mthp-64k,thp
    run reuses pagelab exec -p mthp-64k -- looks reuses
else
    needs "folios of 64K of anonymous memory"
    return
fi
run page looks page
run reclaims looks reclaims
run vdso looks vdso
# The model uses the layout without randomisation.
echo 0 >/proc/sys/kernel/randomize_va_space
while read -r name words; do
    run $name pagelab compare -p $policies --json --prove-all --khugepaged off --blocks 1 --min-blocks 1 \
        --max-time 1h --store /tmp/store.$name -- $words
    rm -f /tmp/store.$name
done </programs/list
echo 2 >/proc/sys/kernel/randomize_va_space
