#!/bin/bash
# What `mooncakefs reshard` writes has the bytes that an independent slicer cuts, from every kind of source.
set -euo pipefail

export XDG_STATE_HOME=$MC_TMP/state
exec python3 -B "$(dirname "$0")/lib/reshard_checks.py" "$MC_BUILD/mooncakefs" "$MC_TMP" \
	chains stacked scattered sharded from_mooncake bad_payload profiles "$@"
