# Written by firstlight 0.1.0: the first task of the playbook; nothing is done where dpkg was not interrupted.
say() { printf 'firstlight: %s\n' "$*" >&2; }
as_root() { "$@"; }
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

# The packages in some of dpkg's states, among those that are to be installed, removed or purged: half_done i HUFWt
half_done() {
    dpkg-query --show --showformat '${db:Status-Abbrev}${binary:Package}\n' 2> /dev/null | sed -n "s/^[$1][$2].//p"
}

# apt install with these words, where on paper it removes nothing: repair --fix-broken
repair() {
    on_paper="$(apt install --simulate "$@" 2>&1)" || {
        apt update || :
        on_paper="$(apt install --simulate "$@" 2>&1)" || {
            say "packages are half installed, and apt cannot finish them: $on_paper"
            return 0
        }
    }
    if printf '%s\n' "$on_paper" | grep -q '^Remv \|^Purg '; then
        say "packages are half installed, and apt would remove others to finish them; decide, then run this again:"
        say "  apt-get install $*"
        return 0
    fi
    apt install --yes "$@" > /dev/null
}

# A start that was killed inside apt: dpkg does nothing for anybody until what it had begun is finished, and a program
# of a package that is half installed looks as if it were there.
finish_packages() {
    command -v apt-get > /dev/null 2>&1 || return 0
    [ -n "$(half_done a-z HUFWt)" ] || find /var/lib/dpkg/updates -name '[0-9]*' | grep -q . || return 0
    say "dpkg was interrupted: finishing that first, with dpkg --configure -a"
    apt check > /dev/null 2>&1 || : # waits while another apt is at work
    as_root dpkg --configure -a > /dev/null || :
    removed="$(half_done rp HUFWt)" torn="$(half_done ih H)"
    # shellcheck disable=SC2086 # names of packages are words
    [ -z "$removed" ] || as_root dpkg --remove --force-remove-reinstreq $removed > /dev/null
    # shellcheck disable=SC2086
    [ -z "$torn" ] || repair --reinstall $torn
    if [ -n "$(half_done a-z HUFWt)" ] || ! apt check > /dev/null 2>&1; then
        repair --fix-broken
    fi
}

finish_packages
