/* The table of all commands and what their help explains, the only place where one is described. */
#include "tools/command.h"

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

static const char verify_details[] = "Every chunk of the revision (the newest without @REV) must "
				     "exist with its size, and its bytes\n"
				     "must have its SHA-256; files taken by reference must be "
				     "unchanged. Each damage is printed with\n"
				     "file, range and chunk; the exit code is then 3.\n";

static const char export_details[] = "Writes the revision (the newest without @REV) to DEST, which "
				     "must not exist or be empty: bytes,\n"
				     "modes, times, links and holes as they were imported. Every "
				     "block is checked on the way, and a\n"
				     "file gets its name when it is complete.\n";

static const char gc_details[] =
	"Finds chunks that no READY revision refers to, and files that interrupted work left\n"
	"unpublished, and with --delete removes them. Revisions are taken out with 'mooncakefs "
	"rm'.\n"
	"What was written or found by an import within the grace period stays. It may run beside\n"
	"imports and mounts on any node, and may be killed and begun again. If a revision cannot\n"
	"be read, nothing is removed. A chunk that a revision needs and that is missing is named;\n"
	"the exit code is then 3.\n";

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
	"ls: the registered layouts.\n";

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
	"appear by themselves. Only kv/ can be written to.\n\n"
	"The command returns when the tree answers; the daemon then logs to the system log and "
	"ends with\n"
	"'mooncakefs umount' or SIGTERM. What is on NVMe is found again by the next mount.\n";

static const char config_details[] =
	"check FILE: reports every mistake of a configuration file with its line.\n"
	"show: the values a mount with these options (--config FILE, …) uses, and where each comes "
	"from.\n"
	"schema: the JSON schema of configuration files, for editors and deployment tools.\n";

const struct mc_command mc_command_table[] = {
	{"import", MC_IN_IMPORT, "SRC ORG/MODEL[@REV]", 2, 2,
		"Copy a checkpoint directory to the remote as a new revision.", import_details,
		mc_cmd_import},
	{"ls", MC_IN_LS, "[ORG[/MODEL[@REV]]]", 0, 1, "List checkpoints, or the files of one.",
		ls_details, mc_cmd_ls},
	{"verify", MC_IN_VERIFY, "ORG/MODEL[@REV]", 1, 1,
		"Check that the remote holds every byte of a revision.", verify_details,
		mc_cmd_verify},
	{"export", MC_IN_EXPORT, "ORG/MODEL[@REV] DEST", 2, 2,
		"Write a revision back as plain files.", export_details, mc_cmd_export},
	{"rm", MC_IN_RM, "ORG/MODEL@REV", 1, 1, "Take a revision out of the catalogue.", rm_details,
		mc_cmd_rm},
	{"gc", MC_IN_GC, "", 0, 0, "Find and remove what no revision on the remote uses.",
		gc_details, mc_cmd_gc},
	{"layout", MC_IN_LAYOUT, "add|check|ls|show [LAYOUT]", 1, 2,
		"Check, show or register parallel layouts.", layout_details, mc_cmd_layout},
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
	{"config", MC_IN_CONFIG, "check|show|schema [FILE]", 1, 2,
		"Check a configuration file, show effective values.", config_details,
		mc_cmd_config},
	{"version", MC_IN_VERSION, "", 0, 0,
		"Print the version and what the program was built with.", NULL, mc_cmd_version},
	{"help", MC_IN_HELP, "[COMMAND]", 0, 1, "Explain the program or one command.", NULL,
		mc_cmd_help},
};
const unsigned mc_command_count = sizeof(mc_command_table) / sizeof(*mc_command_table);

const struct mc_exit_code mc_exit_codes[] = {
	{MC_EXIT_OK, "Done."},
	{MC_EXIT_FAILED, "Failed; the reason is on standard error."},
	{MC_EXIT_USAGE, "Wrong usage: the command line or a configuration file."},
	{MC_EXIT_DAMAGED, "verify, gc: bytes are missing or wrong."},
	{MC_EXIT_BUSY, "umount: the mount is in use."},
};
const unsigned mc_exit_code_count = sizeof(mc_exit_codes) / sizeof(*mc_exit_codes);
