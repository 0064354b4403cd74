#!/bin/sh
# Environments of their own, under .peers, for what people would pick instead; then the table of all over W1-W3,
# and that of NEXMark. With options, only the former.
# Usage: scripts/peers.sh [--events N] [--only TEXT]
set -eu
cd "$(dirname "$0")/.."

# One environment each: their versions of pyarrow and numpy do not agree. A peer that cannot be installed is named in
# the table, and the others go on.
install() {
    home=.peers/$1
    shift
    [ -e "$home/.ready" ] && return
    .venv/bin/python -m venv "$home"
    if "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; then
        touch "$home/.ready"
    else
        echo "$home: not installed: $*" >&2
        rm -rf "$home"
    fi
}

mkdir -p .peers
install duckdb duckdb==2.0.0 pyarrow
install polars polars==2.1.0 pyarrow
install bytewax bytewax==0.21.1 pyarrow
install pathway pathway==0.33.0 pyarrow pandas
install flink apache-flink==2.3.0 pyarrow
.venv/bin/python -m scripts.peer_jars || true
.venv/bin/python -m benchmarks.peers "$@"
[ $# -gt 0 ] || .venv/bin/python -m benchmarks nexmark --peers
