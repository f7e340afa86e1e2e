/* Where this user's small state on this machine lies. */
#pragma once

/*
 * $XDG_STATE_HOME/mooncakefs, ~/.local/state/mooncakefs, or /var/tmp/mooncakefs-<uid>; made if
 * missing (0700). *ret is the caller's to free. 0 or -errno.
 */
int mc_local_state_dir(char **ret);
