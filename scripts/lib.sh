# Sourced by the scripts beside it: where the repository is, and an environment with what uv.lock names.
# shellcheck shell=bash

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# Tests start hundreds of Pythons: compiled modules are kept, also where the environment forbids it or .venv is not ours.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$ROOT/.cache/pycache"

fail() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# Prints the path of uv: the machine's, else one fetched from PyPI with the machine's Python into .cache/.
find_uv() {
    if command -v uv; then return; fi
    local own="$ROOT/.cache/bin/uv" made
    if [ ! -x "$own" ]; then
        command -v python3 >/dev/null || fail "Python 3.11 or newer is needed, and there is no python3 on PATH"
        mkdir -p "$ROOT/.cache/bin"
        made=$(mktemp -d "$ROOT/.cache/bin/uv-XXXXXX")
        # shellcheck disable=SC2064
        trap "rm -rf '$made'" RETURN
        python3 -m venv "$made/venv" >/dev/null 2>&1 ||
            fail "python3 cannot make a virtual environment: install python3-venv, or uv"
        "$made/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv </dev/null >&2 ||
            fail "uv could not be fetched with pip: is there a network? Or install uv yourself"
        mv -f "$made/venv/bin/uv" "$own"    # whole or not at all: two scripts may run side by side
    fi
    printf '%s\n' "$own"
}

# make_environment [uv sync options]: .venv with exactly the locked versions. Quick if there is nothing to do.
make_environment() {
    local uv said
    uv=$(find_uv) || exit 1
    if [ ! -d .venv ]; then printf '%s: making the environment (once)\n' "${0##*/}" >&2; fi
    if said=$("$uv" sync --frozen --inexact --quiet --all-extras --python ">=3.11" "$@" </dev/null 2>&1); then return; fi
    printf '%s\n' "$said" >&2
    fail "no environment; hatcast needs Python 3.11 or newer (here: $(python3 --version 2>&1 || true)) and, once, a network"
}
