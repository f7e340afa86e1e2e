/* See nfs-fixture.h. The script's path comes from the build in the environment: MC_NFS_SERVER. */
#include "tests/nfs-fixture.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/mc-test-nfs-XXXXXX";
static char url[300], export[100];

int nfs_fixture_order(const char *order)
{
	const char *script = getenv("MC_NFS_SERVER");
	char cmd[600];
	FILE *out;
	int status;

	snprintf(cmd, sizeof(cmd), "'%s' %s '%s'", script != NULL ? script : "tests/lib/nfs-server",
		order, dir);
	out = popen(cmd, "r");
	if (out == NULL)
		return -1;
	if (fgets(url, sizeof(url), out) != NULL)
		url[strcspn(url, "\n")] = '\0';
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool nfs_fixture_start(void)
{
	if (mkdtemp(dir) == NULL)
		return false;
	snprintf(export, sizeof(export), "%s/export", dir);
	if (nfs_fixture_order("start") == 0 && url[0] != '\0')
		return true;
	nfs_fixture_end();
	return false;
}

const char *nfs_fixture_url(void)
{
	return url;
}

const char *nfs_fixture_export(void)
{
	return export;
}

static int number_after(const char *key)
{
	const char *at = strstr(url, key);

	return at == NULL ? -1 : atoi(at + strlen(key));
}

int nfs_fixture_port(void)
{
	return number_after("nfsport=");
}

int nfs_fixture_mount_port(void)
{
	return number_after("mountport=");
}

int nfs_fixture_pid(void)
{
	char path[100];
	int pid = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/pid", dir);
	f = fopen(path, "r");
	if (f == NULL)
		return -1;
	if (fscanf(f, "%d", &pid) != 1)
		pid = -1;
	fclose(f);
	return pid;
}

void nfs_fixture_revive(void)
{
	int pid = nfs_fixture_pid();

	if (pid < 0 || kill(pid, 0) < 0)
		ck_assert_int_eq(nfs_fixture_order("restart"), 0);
}

void nfs_fixture_end(void)
{
	char cmd[100];

	nfs_fixture_order("stop");
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd) != 0)
		fprintf(stderr, "cannot remove %s\n", dir);
}
