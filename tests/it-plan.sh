#!/bin/bash
# What `mooncakefs plan` prints has the planner's properties, and is Mooncake's plan between Mooncake's
# manifests.
set -euo pipefail

here=$(dirname "$0")
exec python3 -B "$here/lib/plan_checks.py" "$MC_BUILD/mooncakefs" "$MC_TMP" "$here/golden" \
	golden payload counts four_axes egress random_plans order presets "$@"
