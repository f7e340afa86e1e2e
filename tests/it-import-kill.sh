#!/bin/bash
# An import that is killed at any point is resumed by the same command: same id, hardly anything read
# twice, nothing half visible.
set -euo pipefail

exec python3 -B "$(dirname "$0")/lib/import_kill.py" "$MC_BUILD/mooncakefs" "$MC_TMP" "$@"
