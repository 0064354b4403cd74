#!/bin/sh
# Environments of their own, under .peers, for what people would pick instead; then the table of all.
# Usage: scripts/peers.sh [--events N] [--only TEXT]
set -eu
cd "$(dirname "$0")/.."

flink=2.3.0
maven=https://repo1.maven.org/maven2/org/apache/flink

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

# Flink reads Parquet with two more jars.
fetch() {
    file=.peers/jars/$(basename "$1")
    [ -e "$file" ] || curl --silent --fail --location --output "$file" "$maven/$1" || echo "no $1" >&2
}

mkdir -p .peers/jars
install duckdb duckdb pyarrow
install polars polars pyarrow
install bytewax bytewax pyarrow
install pathway pathway pyarrow pandas
install flink "apache-flink==$flink" pyarrow
fetch "flink-sql-parquet/$flink/flink-sql-parquet-$flink.jar"
fetch flink-shaded-hadoop-2-uber/2.8.3-10.0/flink-shaded-hadoop-2-uber-2.8.3-10.0.jar
exec .venv/bin/python -m benchmarks.peers "$@"
