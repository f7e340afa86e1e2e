/* Writing the framing of a record again: its payload is whole, header or key and checksums are not.
 * For kv-log-fsck.c: nobody else writes to the segment. */
#pragma once

#include "tier/kv-log-impl.h"

/* room: bytes from the record's start that nobody else needs; of a key that has become longer the
 * front is kept: names are the journal's. Not synced. -ENOSPC: another record lies in this one. */
int mc_kv_record_mend(struct mc_kv_log *log, uint32_t slot, uint64_t room);
