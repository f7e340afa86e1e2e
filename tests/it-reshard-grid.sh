#!/bin/bash
# Reshards over the grid of tp, pp and ep for all families have the bytes of the independent slicer: some by
# lot, or all of them with the argument whole_grid.
set -euo pipefail

export XDG_STATE_HOME=$MC_TMP/state
exec python3 -B "$(dirname "$0")/lib/reshard_checks.py" "$MC_BUILD/mooncakefs" "$MC_TMP" "${@:-part_of_the_grid}"
