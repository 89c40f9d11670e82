# The packages of /srv/packages in a fresh Debian: `inside.sh install`, `run`, `remove` and `guide`, one after the other. Each check
# prints a line; the first failure ends the phase.
set -u
export DEBIAN_FRONTEND=noninteractive HOME=/srv/home-of-root
quietly() { "$@" >/srv/said 2>&1 || { cat /srv/said; return 1; }; }
check() {
    local name=$1
    shift
    if quietly "$@"; then echo "ok: $name"; else echo "failed: $name: $*"; exit 1; fi
}
says() {
    local part=$1
    shift
    "$@" >/srv/part 2>&1 || { cat /srv/part; return 1; }
    grep -qF -e "$part" /srv/part || { cat /srv/part; return 1; }
}
refuses() {
    local part=$1
    shift
    if "$@" >/srv/part 2>&1; then cat /srv/part; return 1; fi
    grep -qF -e "$part" /srv/part || { cat /srv/part; return 1; }
}
as_root() { "$@"; }
as_user() { setpriv --reuid=tester --regid=tester --init-groups env HOME=/srv/home-of-tester "$@"; }
# All files except the data of apt, dpkg and man, and the files of this test.
list() {
    find / -xdev \( -path /srv -o -path /tmp -o -path '/var/lib/apt/*' -o -path '/var/cache/*' -o -path '/var/log/*' \) -prune \
        -o ! -path '/var/lib/dpkg/*-old' ! -path '/var/lib/dpkg/lock*' ! -path '/var/lib/dpkg/triggers/*' -printf '%y %m %p %l\n' |
        LC_ALL=C sort
}

install() {
    mkdir -p /srv/home-of-root
    check "apt-get update" apt-get update -q
    check "a user" useradd --home-dir /srv/home-of-tester --create-home tester
    check "who may sudo" apt-get install -y -q sudo
    # A program that looks up users through the C library loads this module, which makes static programs crash.
    check "a module that knows users" apt-get install -y -q libnss-systemd
    echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/91yes
    echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester
    local both="/srv/packages/pagelab_*.deb /srv/packages/pagelab-recorder_*.deb"
    if [ -d /srv/emulator ]; then
        check "apt brings no emulator without plugins" sh -c "! apt-get install -s $both | grep 'Inst qemu-user'"
        emulator_of_the_guide
    else
        check "apt brings the emulator" says "Inst qemu-user" sh -c "apt-get install -s $both"
        check "apt installs it" apt-get install -y -q qemu-user
    fi
    # Other packages are installed before this point. From here on only pagelab's packages are installed and removed.
    list >/srv/before
    check "apt installs the program" apt-get install -y -q /srv/packages/pagelab_*.deb
    check "apt installs the recorder" apt-get install -y -q /srv/packages/pagelab-recorder_*.deb
    check "dpkg finds its files whole" dpkg --verify pagelab pagelab-recorder
    check "dpkg has nothing to warn of" test -z "$(dpkg-query --show 'pagelab*' 2>&1 >/dev/null)"
    dpkg-query --show --showformat '  ${Package} ${Version}\n' 'pagelab*'
}

# If Debian's own emulator does not support plugins: unpacks Debian 12's emulator next to the installed files, as in the guide.
emulator_of_the_guide() {
    check "apt installs Debian's own qemu-user" apt-get install -y -q qemu-user
    cd /srv/emulator
    local line
    while read -r line; do
        case $line in *record*) continue ;; esac
        check "guide: $line" as_user bash -c "$line"
    done < <(commands installing.md | sed -n '/libglib/,$p')
    check "Debian 12's emulator starts" /opt/qemu/bin/qemu-x86_64 --version
}

run() {
    check "the version names the commit" says "(" pagelab --version
    echo "  $(pagelab --version)"
    check "man pagelab" says "which page size" env MANPAGER=cat man pagelab
    check "man pagelab-compare" says "--precision" env MANPAGER=cat man pagelab-compare
    check "man pagelab-trace-cut" says "pagelab-trace-cut" env MANPAGER=cat man pagelab-trace-cut
    check "the book is there" test -s /usr/share/doc/pagelab/html/index.html -a \
        -s /usr/share/doc/pagelab/html/explain/limits.html -a -s /usr/share/doc/pagelab/html/explain/model.html
    check "bash completes" bash -c '. /usr/share/bash-completion/completions/pagelab && complete -p pagelab &&
        COMP_WORDS=(pagelab compa) COMP_CWORD=1 && _pagelab pagelab compa pagelab && [ "${COMPREPLY[*]}" = compare ]'
    check "zsh and fish find theirs" test -s /usr/share/zsh/vendor-completions/_pagelab -a \
        -s /usr/share/fish/vendor_completions.d/pagelab.fish
    check "a study" says "stage2-split" pagelab study list
    check "a machine" says "neoverse-n1" pagelab list machines
    if [ -d /srv/emulator ]; then
        check "record says that Debian's own emulator has no plugins" refuses "was built without plugins" \
            pagelab record -o /srv/none -- /bin/true
        export PATH=/opt/qemu/bin:$PATH
    fi
    check "a command runs as another user" says "daemon" pagelab exec --user daemon -p base -- id -un
    for who in as_root as_user; do
        local room=/srv/room-$who
        mkdir -p $room
        [ $who = as_root ] || chown tester: $room
        cd $room
        check "$who: doctor" $who pagelab doctor
        check "$who: demo" $who pagelab demo --html report.html
        sed -n '1,12s/^/  | /p' /srv/said
        check "$who: the report" grep -q "</html>" report.html
        check "$who: list comparisons" $who pagelab list comparisons
        check "$who: record" $who pagelab record -o trace -- /bin/ls /
        check "$who: trace info" $who pagelab trace info trace
        check "$who: sim on machines by name" $who pagelab sim trace -m neoverse-n1 -m rva23
    done
}

remove() {
    cd /
    check "apt removes" apt-get purge -y -q pagelab pagelab-recorder
    list >/srv/after
    check "nothing is left" diff /srv/before /srv/after
    # man itself removes its cached pages.
    check "no file has the name" test -z \
        "$(find / -xdev \( -path /srv -o -path /var/cache/man \) -prune -o -iname '*pagelab*' -print)"
}

. /srv/packages/guide.sh
"$1"
