/* The table of all commands and what their help explains, the only place where one is described. */
#include "tools/command.h"

#include <limits.h>

static const char import_details[] =
	"SRC is the directory that holds the checkpoint. A symbolic link that leaves SRC is "
	"imported as\n"
	"what it points to, so a snapshot of the Hugging Face cache works; one inside stays a "
	"link.\n"
	"REV is made from the content when it is not given (12 digits of the manifest id), so "
	"importing\n"
	"the same again gives the same revision. A revision never changes: the name of an existing "
	"one\n"
	"with other content is refused. The newest import is what ORG/MODEL alone means.\n\n"
	"Nothing is visible before everything is on the remote. After an interruption give the "
	"same\n"
	"command again: what was finished is not read again.\n\n"
	"With --reference nothing is copied: SRC already lies on the remote, below its directory "
	"(dir:)\n"
	"or export (nfs:). On NFS it is given by its path below the export, or by the path under "
	"which\n"
	"this machine has the export mounted. The files must not change afterwards; if they do, "
	"reading\n"
	"them fails instead of giving other bytes.\n";

static const char ls_details[] = "Lists the revisions of all checkpoints, of one ORG or of one "
				 "ORG/MODEL; with @REV the files of\n"
				 "that revision.\n";

static const char verify_details[] =
	"Every chunk of the revision (the newest without @REV) must exist with its size, and its\n"
	"bytes must have its SHA-256; files taken by reference must be unchanged. Of several\n"
	"remotes every copy is looked at, those of the manifest, too; with --from those on one of\n"
	"them. Each damage is printed with file, range, chunk and remote; the exit code is then\n"
	"3.\n";

static const char repair_details[] =
	"Looks at every copy as verify does. One that is missing or wrong gets the bytes of a "
	"right\n"
	"one: on another of the remotes, on those of --from, or in the file below --source. What\n"
	"is right is not written. Files taken by reference are only looked at. It may run beside\n"
	"mounts, and may be killed and begun again. Each damage is printed with what became of\n"
	"it; the exit code is 3 when something is left.\n";

static const char export_details[] = "Writes the revision (the newest without @REV) to DEST, which "
				     "must not exist or be empty: bytes,\n"
				     "modes, times, links and holes as they were imported. Every "
				     "block is checked on the way, and a\n"
				     "file gets its name when it is complete.\n";

static const char rebalance_details[] =
	"Give all remotes, a new one among them, with the names and weights that mounts give, too, "
	"and\n"
	"the numbers of copies: --replicas, --kv-replicas. Each object is copied to where it\n"
	"belongs, and then removed from where it does not. A remote that is to leave gets\n"
	"#weight=0 and holds nothing afterwards. It may run beside imports and mounts, and may be\n"
	"killed and begun again. All remotes must be there; the exit code is 3 when an object has\n"
	"no copy with the right bytes.\n";

static const char gc_details[] =
	"Finds chunks that no READY revision refers to, and files that interrupted work left\n"
	"unpublished, and with --delete removes them. Revisions are taken out with 'mooncakefs "
	"rm'.\n"
	"What was written or found by an import within the grace period stays. It may run beside\n"
	"imports and mounts on any node, and may be killed and begun again. If a revision cannot\n"
	"be read, nothing is removed. A chunk that a revision needs and that is missing is named;\n"
	"the exit code is then 3.\n";

static const char fsck_details[] =
	"DIR is the directory of --nvme, while no daemon uses it. Its tiers are read: the\n"
	"journals, every block of every file in the checkpoint cache, every object of the KV log.\n"
	"What is damaged is named with file and place. Files that nobody owns, as a daemon leaves\n"
	"them that was killed, are named and are no damage. Sizes and capacities never change.\n\n"
	"Without --repair nothing on disk is changed. With it what is damaged is dropped: a block\n"
	"is fetched again when it is read, a KV object with copies on remotes is read from there;\n"
	"one whose last copy is damaged is named as lost, and is gone.\n\n"
	"DEVICE is the block device or file of a block tier, likewise while no daemon uses it.\n"
	"One that lies below a directory is checked with it, since its journal is there.\n\n"
	"A MOUNTPOINT is checked in use: its daemon reads all that lies on NVMe now, as its scrub\n"
	"does, and deals with what is damaged, with or without --repair: right bytes are fetched,\n"
	"other copies serve. A last copy is named in its log, and stays.\n\n"
	"Exit codes: 0 no damage; 1 there was damage, and it is repaired; 3 something remains\n"
	"wrong; 4 a process uses the directory.\n";

static const char rm_details[] =
	"Takes the revision out of the catalogue; mounts stop showing it. The space is free after\n"
	"'mooncakefs gc --delete', once the grace period is over. If it was the newest, the one\n"
	"published before it is what ORG/MODEL alone means.\n";

static const char layout_details[] =
	"LAYOUT is a document (a path that ends in .json, see docs/LAYOUT.md), a mesh such as\n"
	"tp8-pp2, or the name of a registered layout.\n"
	"check: reads it and, with --model, compiles it, compares each rank with the profile (its\n"
	"own or --profile) and prints what each rank holds.\n"
	"show: the same and the rule that holds for each tensor.\n"
	"add: registers a document with the remote; it is then a directory of every view. An\n"
	"engine's profile is registered under its file's name.\n"
	"ls: the registered layouts. rm: takes one out; readers of its views keep what they have "
	"open.\n";

static const char plan_details[] =
	"Prints totals, bounds and ratios to them; with --json the whole plan. Between two of\n"
	"Mooncake's manifests the plan is in Mooncake's terms, fragment to fragment. From its\n"
	"stored manifest to a layout the tensors are the manifest's.\n";

static const char reshard_details[] =
	"Writes the files of views/ORG/MODEL@REV/LAYOUT as a new revision: rank-00000/… and the\n"
	"files beside the weights. Each source byte is read once. Nothing is visible before all\n"
	"is there; the same command resumes an interrupted run, which reads and writes only what\n"
	"that had not done. The new revision can be a source again.\n\n"
	"SRC may also be one of Mooncake's stored manifests (*.json) with --payload-root, and\n"
	"--model for config.json and the files beside the weights. LAYOUT may be a document.\n";

static const char mount_details[] =
	"MOUNTPOINT is an existing directory. The tree shows every READY revision below\n"
	"checkpoints/ORG/MODEL@REV, and checkpoints/ORG/MODEL as a link to the newest; new "
	"revisions\n"
	"appear by themselves. Only kv/ and layouts/ can be written to.\n\n"
	"The command returns when the tree answers; the daemon then logs to the system log and "
	"ends with\n"
	"'mooncakefs umount' or SIGTERM. What is on NVMe is found again by the next mount.\n";

static const char config_details[] =
	"check FILE: reports every mistake of a configuration file with its line.\n"
	"show: the values a mount with these options (--config FILE, …) would use, and where each "
	"comes\n"
	"from; with MOUNTPOINT those of the mount there.\n"
	"schema: the JSON schema of configuration files, for editors and deployment tools.\n";

static const char status_details[] =
	"MOUNTPOINT may be left out when there is one mount. What is not as it should be comes "
	"first;\n"
	"--json prints everything that the daemon says about itself.\n";

static const char stats_details[] = "Counters since the mount; with --watch a line a second of "
				    "what changed. --json prints one\n"
				    "object of numbers a line.\n";

static const char files_details[] =
	"PATH is a file, a directory (all files below it) or a pattern in quotes, in the mount; a "
	"list may\n"
	"come from --files-from. Views are taken only where they are named.\n";

static const char warm_details[] =
	"PATH is a file, a directory (all files below it) or a pattern in quotes, in the mount; a "
	"list may\n"
	"come from --files-from. Views are taken only where they are named.\n\n"
	"Returns when the tier holds every byte; below DRAM that is durable. Exit code 5: it does "
	"not, "
	"for\n"
	"instance because it does not fit. Without --tier it goes to NVMe, to the block tier where "
	"the\n"
	"mount has no NVMe, or to DRAM where it has neither.\n";

static const char evict_details[] =
	"PATH is a file, a directory (all files below it) or a pattern in quotes, in the mount; a "
	"list may\n"
	"come from --files-from. The last good copy never goes, nor what is pinned or in use; what "
	"stays is\n"
	"told with the reason, and the exit code is then 1.\n";

static const char bundle_details[] =
	"FILE gets what a report about a fault needs: versions, status, configuration, metrics, "
	"the "
	"last\n"
	"events, limits of the process. Names of files may stand in the events; no contents do.\n";

const struct mc_command mc_command_table[] = {
	{"import", MC_IN_IMPORT, "SRC ORG/MODEL[@REV]", 2, 2,
		"Copy a checkpoint directory to the remote as a new revision.", import_details,
		mc_cmd_import},
	{"ls", MC_IN_LS, "[ORG[/MODEL[@REV]]]", 0, 1, "List checkpoints, or the files of one.",
		ls_details, mc_cmd_ls},
	{"verify", MC_IN_VERIFY, "ORG/MODEL[@REV]", 1, 1,
		"Check that the remote holds every byte of a revision.", verify_details,
		mc_cmd_verify},
	{"repair", MC_IN_REPAIR, "ORG/MODEL[@REV]", 1, 1,
		"Put right bytes back where copies of a revision are missing or wrong.",
		repair_details, mc_cmd_repair},
	{"export", MC_IN_EXPORT, "ORG/MODEL[@REV] DEST", 2, 2,
		"Write a revision back as plain files.", export_details, mc_cmd_export},
	{"rm", MC_IN_RM, "ORG/MODEL@REV", 1, 1, "Take a revision out of the catalogue.", rm_details,
		mc_cmd_rm},
	{"rebalance", MC_IN_REBALANCE, "", 0, 0,
		"Move copies to where they belong after a change of remotes.", rebalance_details,
		mc_cmd_rebalance},
	{"gc", MC_IN_GC, "", 0, 0, "Find and remove what no revision on the remote uses.",
		gc_details, mc_cmd_gc},
	{"fsck", MC_IN_FSCK, "DIR [DEVICE]|DEVICE|MOUNTPOINT", 1, 2,
		"Check the local tiers of a node, and repair them.", fsck_details, mc_cmd_fsck},
	{"layout", MC_IN_LAYOUT, "add|check|ls|rm|show [LAYOUT]", 1, 2,
		"Check, show, register or remove parallel layouts.", layout_details, mc_cmd_layout},
	{"plan", MC_IN_PLAN, "", 0, 0, "Plan which bytes go where, from one layout to another.",
		plan_details, mc_cmd_plan},
	{"reshard", MC_IN_RESHARD, "SRC LAYOUT ORG/MODEL[@REV]", 3, 3,
		"Write a checkpoint under a layout as a new revision.", reshard_details,
		mc_cmd_reshard},
	{"mount", MC_IN_MOUNT, "MOUNTPOINT", 1, 1,
		"Show the checkpoints of a remote as a tree of files.", mount_details,
		mc_cmd_mount},
	{"umount", MC_IN_UMOUNT, "MOUNTPOINT", 1, 1, "Unmount, and wait for the daemon's end.",
		"When the mount is in use its users are listed and the exit code is 4.\n",
		mc_cmd_umount},
	{"status", MC_IN_STATUS, "[MOUNTPOINT]", 0, 1, "Say how a mount is.", status_details,
		mc_cmd_status},
	{"stats", MC_IN_STATS, "[MOUNTPOINT]", 0, 1, "Show the counters of a mount.", stats_details,
		mc_cmd_stats},
	{"du", MC_IN_DU, "PATH…", 0, UINT_MAX, "Show how much of files each tier holds.",
		files_details, mc_cmd_du},
	{"warm", MC_IN_WARM, "PATH…", 0, UINT_MAX, "Bring files into a tier.", warm_details,
		mc_cmd_warm},
	{"evict", MC_IN_EVICT, "PATH…", 0, UINT_MAX, "Take files out of a tier.", evict_details,
		mc_cmd_evict},
	{"pin", MC_IN_PIN, "PATH…", 0, UINT_MAX, "Keep files from being evicted.", files_details,
		mc_cmd_pin},
	{"unpin", MC_IN_UNPIN, "PATH…", 0, UINT_MAX, "Let files be evicted again.", files_details,
		mc_cmd_unpin},
	{"refresh", MC_IN_REFRESH, "[MOUNTPOINT]", 0, 1,
		"Have the remote's catalogue asked again for what is new.", NULL, mc_cmd_refresh},
	{"debug-bundle", MC_IN_DEBUG_BUNDLE, "FILE [MOUNTPOINT]", 1, 2,
		"Write down what a report about a fault needs.", bundle_details,
		mc_cmd_debug_bundle},
	{"config", MC_IN_CONFIG, "check|show|schema [FILE|MOUNTPOINT]", 1, 2,
		"Check a configuration file, show effective values.", config_details,
		mc_cmd_config},
	{"version", MC_IN_VERSION, "", 0, 0,
		"Print the version and what the program was built with.", NULL, mc_cmd_version},
	{"help", MC_IN_HELP, "[COMMAND]", 0, 1, "Explain the program or one command.", NULL,
		mc_cmd_help},
};
const unsigned mc_command_count = sizeof(mc_command_table) / sizeof(*mc_command_table);

const struct mc_exit_code mc_exit_codes[] = {
	{MC_EXIT_OK, UINT_MAX, "Done."},
	{MC_EXIT_FAILED, ~MC_IN_FSCK, "Failed; the reason is on standard error."},
	{MC_EXIT_REPAIRED, MC_IN_FSCK, "fsck: there was damage, and it is repaired."},
	{MC_EXIT_USAGE, UINT_MAX, "Wrong usage: the command line or a configuration file."},
	{MC_EXIT_DAMAGED, MC_IN_VERIFY | MC_IN_REPAIR | MC_IN_GC | MC_IN_FSCK | MC_IN_REBALANCE,
		"verify, repair, gc, rebalance, fsck: bytes are missing or wrong. fsck: or it "
		"could not look "
		"at all "
		"of them."},
	{MC_EXIT_BUSY, MC_IN_UMOUNT | MC_IN_FSCK,
		"umount, fsck: the mount or the directory is in use."},
	{MC_EXIT_INCOMPLETE, MC_IN_WARM, "warm: the tier does not hold everything."},
};
const unsigned mc_exit_code_count = sizeof(mc_exit_codes) / sizeof(*mc_exit_codes);
