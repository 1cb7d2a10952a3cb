#!/usr/bin/env bash
# Installs what a lock names, every package by its hash: locks/install.sh .venv/bin locks/dev.lock [OPTION…]
# By uv, in a tenth of pip's time. By pip where uv cannot be had or does not succeed, and where pip was told more than below: of
# another place for packages, say, or a proxy. uv would not know of it.
set -euo pipefail
bin=$1
lock=$2
shift 2
pip=("$bin/pip" --disable-pip-version-check install --quiet --require-hashes)

has_uv() {
    local known='cache-dir|cert|default-timeout|timeout|retries|find-links|disable-pip-version-check' told
    told=$("$bin/pip" config list)
    if grep -qvE "^$|\.($known)=" <<< "$told"; then return 1; fi
    # Without its errors: what pip then says of the lock itself is what matters.
    "${pip[@]}" --retries 1 --only-binary :all: -r "$(dirname "$0")/uv.lock" 2> /dev/null
}

if has_uv; then
    "$bin/uv" pip install --quiet --python "$bin/python" --require-hashes "$@" -r "$lock" && exit
    echo "locks/install.sh: uv did not install $lock; pip tries." >&2
fi
"${pip[@]}" -r "$lock"
