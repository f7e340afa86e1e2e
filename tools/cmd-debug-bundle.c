/* mooncakefs debug-bundle: one text file with what a report about a fault needs. */
#include "tools/command.h"
#include "tools/control-client.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FILE_BYTES (64 * 1024) /* of one file of /proc */

static void title(FILE *out, const char *name)
{
	fprintf(out, "\n==== %s\n", name);
}

static void put_file(FILE *out, const char *path)
{
	char buf[4096];
	size_t n, total = 0;
	FILE *f = fopen(path, "re");

	title(out, path);
	if (f == NULL) {
		fprintf(out, "%s\n", strerror(errno));
		return;
	}
	while (total < FILE_BYTES && (n = fread(buf, 1, sizeof(buf), f)) > 0) {
		fwrite(buf, 1, n, out);
		total += n;
	}
	fclose(f);
}

/* What the daemon answers to a command; that it does not is worth knowing, too. */
static json_t *put_answer(FILE *out, struct mc_client *c, const char *command)
{
	struct mc_err err = {0};
	json_t *result = NULL;

	title(out, command);
	if (mc_client_command(c, command, &result, &err) < 0)
		fprintf(out, "%s\n", err.text);
	else if (json_is_string(result))
		fputs(json_string_value(result), out);
	else
		json_dumpf(result, out, JSON_INDENT(2));
	fputc('\n', out);
	return result;
}

static void put_process(FILE *out, pid_t pid)
{
	static const char *const files[] = {"status", "limits", "io", "cgroup", "cmdline"};
	char path[64];

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		put_file(out, path);
	}
}

static void put_all(FILE *out, struct mc_client *c)
{
	static const char *const commands[] = {"config", "events", "metrics"};
	static const char *const pids[] = {"pid", "worker_pid"};
	json_t *status;
	struct utsname u;

	fprintf(out, "mooncakefs %s, %s\n", MC_VERSION, c->mount.path);
	if (uname(&u) == 0)
		fprintf(out, "%s %s %s %s\n", u.sysname, u.release, u.version, u.machine);
	status = put_answer(out, c, "status");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		json_decref(put_answer(out, c, commands[i]));
	for (size_t i = 0; i < sizeof(pids) / sizeof(*pids); i++)
		put_process(out,
			(pid_t)json_integer_value(
				json_object_get(json_object_get(status, "mount"), pids[i])));
	put_file(out, "/proc/meminfo");
	put_file(out, "/proc/self/mountinfo");
	put_file(out, "/etc/os-release");
	json_decref(status);
}

int mc_cmd_debug_bundle(const struct mc_options *o)
{
	struct mc_err err = {0};
	struct mc_client c;
	FILE *out;
	int fd, r = mc_client_open(o->n_args > 1 ? o->args[1] : NULL, &c, &err);

	if (r < 0)
		return mc_fail(&err, r);
	/* Not for everybody: events may hold names. */
	fd = open(o->args[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	out = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (out == NULL) {
		r = mc_err_set(&err, -errno, "%s: %s", o->args[0], strerror(errno));
	} else {
		put_all(out, &c);
		r = ferror(out) ? -EIO : 0;
		if (fclose(out) != 0 || r < 0)
			r = mc_err_set(&err, -EIO, "%s: cannot be written", o->args[0]);
	}
	mc_client_close(&c);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_JSON))
		printf("{\"ok\":true}\n");
	else
		printf("%s\n", o->args[0]);
	return MC_EXIT_OK;
}
