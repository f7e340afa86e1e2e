/* Private to the binder. */
#pragma once

#include "manifest/binder.h"

/* Sets round of every piece, and n_rounds. Channel numbers are < n_channels. */
int mc_binder_colour(struct mc_binding *b, uint32_t n_channels);
/* Pieces are in round order; sets max_egress, max_ingress and makespan. */
int mc_binder_simulate(struct mc_binding *b, uint32_t n_channels);
