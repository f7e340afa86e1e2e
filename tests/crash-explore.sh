#!/bin/bash
# Crash exploration in process, without the bounds of the default run: every sequence of three
# operations on the KV log, and ten times the histories of the NVMe tier.
# timeout: 3000
set -eu
export MC_LONG=1 CK_TIMEOUT_MULTIPLIER=10
"$MC_BUILD/tests/test-kv-log-crash"
"$MC_BUILD/tests/test-nvme-crash"
