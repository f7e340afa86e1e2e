#!/bin/bash
# 10,000,000 verified reads of 4 to 64 KiB under random faults: it-fault-reads.sh until it has so many.
# Takes an hour or more. MC_READS=n for another number, MC_SEED=n repeats the order of the faults.
# timeout: 60000
MC_READS=${MC_READS:-10000000} exec "$(dirname "$0")/it-fault-reads.sh"
