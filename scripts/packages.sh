# Read by other scripts: packages of the system, where they can be installed.

say() { printf 'setup: %s\n' "$1"; }
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_install() {
    say "installing $* through apt-get"
    # Without a network it would try for very long.
    { timeout 300 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 600 \
        apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
}
