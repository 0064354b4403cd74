#!/bin/sh
# Make .venv with the locked dependencies, and see that Java 17 or newer is there for Spark.
set -eu
cd "$(dirname "$0")/.."

. scripts/packages.sh
stop() { printf 'setup: %s\n' "$1" >&2; exit 1; }

find_python() {
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

make_venv() {
    "$python" -m venv .venv 2>/dev/null && return
    # Debian's python3 comes without the venv module.
    rm -rf .venv
    if can_apt; then apt_install python3-venv; fi
    "$python" -m venv .venv || stop "install your system's python3-venv package, then run this again."
}

java_is_new_enough() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
    [ "${version:-0}" -ge 17 ]
}

python=$(find_python)
[ -n "$python" ] || stop "Python 3.11 or newer is needed; install it, or name it with PYTHON=/path/to/python3 make setup."
[ -x .venv/bin/python ] || make_venv
say "installing the locked dependencies (a minute or two the first time)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .

if ! java_is_new_enough && can_apt; then
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless
fi
java_is_new_enough || say "Spark needs Java 17 or newer, and so do its tests; install a JRE (for example openjdk-17-jre-headless) or set JAVA_HOME. All else works without."
touch .venv/.ready
say "ready"
