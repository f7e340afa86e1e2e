/*
 * One of Mooncake's stored manifests as a checkpoint: its payload objects are files of a remote,
 * found by their object keys, and its fragments are the tensor table. Nothing in it says what the
 * bytes must be, so the files are known by place, size and time only: a change while they are in
 * use is an error, one before is not seen.
 */
#pragma once

#include "manifest/manifest.h"
#include "manifest/weight-manifest.h"
#include "tier/remote.h"

/*
 * payload: where object keys are paths, borrowed during the call; every object is looked at and
 * must be a plain file that holds its fragments. NULL: nobody looks, and the result is good for
 * plans only. model: what is known about the model, strings are copied. The result belongs to the
 * caller; it has one entry for each object, each of the size it has (or needs), and is never
 * published. -EBADMSG: a key that is no path below the root, a dtype that safetensors does not
 * have; -EINVAL: a payload file that is missing, short or no file; each with a text. -ENOMEM.
 */
int mc_weight_payload(const struct mc_weight_manifest *w, struct mc_remote *payload,
	const struct mc_model *model, struct mc_manifest **ret, struct mc_err *err);
