# Follows the guide literally as a user with sudo rights: each command of its first comparison, from installing the package to
# adopting a setting and reverting it. A part of inside.sh.

# The commands of a page, one per line: its code blocks without a language, except outputs and files.
commands() {
    awk '/^```/ { inside = !inside; told = $0 != "```" || output; output = 0; next }
        /^-->/ { output = 1 }
        inside && /^\[/ { told = 1 }
        inside && !told' "/srv/packages/$1"
}
# The program of a page: its Perl code block.
program() { awk '/^```/ { inside = $0 == "```perl"; next } inside' "/srv/packages/$1"; }
# Runs a command of the guide, and writes its output to a file.
follow() {
    local said=$1 line=$2
    as_user bash -c "$line" </dev/null >"$said" 2>&1 || { cat "$said"; return 1; }
}
THP=/sys/kernel/mm/transparent_hugepage/enabled
heap_is() { grep -E "^ heap .* by $2\\??(,|$)" "$1" || { cat "$1"; return 1; }; }

guide() {
    cd /srv/home-of-tester
    cp /srv/packages/*.deb .
    program first-comparison.md >walk.pl
    local line said=/srv/guide
    mkdir -p $said
    while read -r line; do
        case $line in
            "sudo apt install"*) check "guide: $line" follow $said/install "$line" ;;
            "echo madvise"*)
                # From here on, the machine's setting is restored on any failure.
                before=$(sed 's/.*\[\(.*\)\].*/\1/' $THP)
                trap 'echo $before >$THP' EXIT
                check "guide: $line" follow $said/madvise "$line"
                ;;
            "echo always"*)
                check "guide: given up, the program runs" follow $said/inspect3 "pagelab inspect -- perl walk.pl"
                check "guide: given up, the heap has small pages" heap_is $said/inspect3 4K
                # Debian's kernels use `always`; this one may have another value.
                line=${line/always/$before}
                check "guide: $line" follow $said/undo "$line"
                check "guide: the setting is as before" grep -qF "[$before]" $THP
                ;;
            "pagelab inspect"*)
                check "guide: $line" follow $said/inspect1 "$line"
                check "guide: the heap has small pages, and why" heap_is $said/inspect1 4K
                check "guide: the reason is the guide's" grep -q "not advised, and the kernel gives" $said/inspect1
                ;;
            "sudo pagelab compare"*)
                check "guide: $line" follow $said/compare "$line"
                if grep -q undecided $said/compare; then
                    # The guide mentions this for a noisy machine.
                    line=${line/5m/15m}
                    check "guide, undecided, with more time: $line" follow $said/compare "$line"
                fi
                sed 's/^/  | /' $said/compare
                check "guide: thp is best" grep -qE "^thp is the best of 2 policies" $said/compare
                check "guide: and says how to adopt it" grep -qF "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 COMMAND" $said/compare
                line="sudo $(grep -oE 'pagelab show [0-9]+ --adopt all' $said/compare)"
                check "guide: $line" follow $said/adopt "$line"
                ;;
            GLIBC_TUNABLES*inspect*)
                check "guide: $line" follow $said/inspect2 "$line"
                check "guide: adopted, the heap has large pages" heap_is $said/inspect2 2M
                ;;
            *) check "guide: $line" follow $said/other "$line" ;;
        esac
    done < <(commands first-comparison.md)
    check "guide: what was changed is undone" test -s $said/undo
    line="sudo apt purge pagelab"
    check "guide: how to remove it" grep -qF "$line" /srv/packages/installing.md
    check "guide: $line" follow $said/purge "$line"
    check "guide: the program is gone" test ! -e /usr/bin/pagelab
}
