/*
 * What an open and a close through FUSE cost at least: a file system of one empty file whose
 * daemon answers every request at once from one thread, and one line of JSON.
 *
 *   fuse-open DIR COUNT      mounts on DIR, opens and closes COUNT times, unmounts
 */
#include "fs/fuse.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_INO 2
#define LONG_S 86400.0

static const struct stat dir_attr = {
	.st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR | 0755, .st_nlink = 2};
static const struct stat file_attr = {.st_ino = FILE_INO, .st_mode = S_IFREG | 0444, .st_nlink = 1};

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	fuse_reply_attr(req, ino == FILE_INO ? &file_attr : &dir_attr, LONG_S);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct fuse_entry_param e = {.ino = FILE_INO,
		.attr = file_attr,
		.attr_timeout = LONG_S,
		.entry_timeout = LONG_S};

	(void)parent;
	if (strcmp(name, "file") != 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &e);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.getattr = on_getattr, .lookup = on_lookup, .open = on_open, .release = on_release};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void *serve(void *session)
{
	fuse_session_loop(session);
	return NULL;
}

static double measure(const char *dir, long count)
{
	char path[4096];
	double begin = 0;

	snprintf(path, sizeof(path), "%s/file", dir);
	for (long i = -count / 10; i < count; i++) {
		int fd;

		if (i == 0)
			begin = now_s();
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			err(1, "%s", path);
		close(fd);
	}
	return now_s() - begin;
}

int main(int argc, char **argv)
{
	char name[] = "fuse-open";
	char *own[] = {name, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, own);
	struct fuse_session *session;
	pthread_t thread;
	double seconds;
	long count;

	if (argc != 3)
		errx(2, "usage: fuse-open DIR COUNT");
	count = atol(argv[2]);
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (session == NULL || fuse_session_mount(session, argv[1]) != 0)
		errx(1, "cannot mount on %s", argv[1]);
	if (pthread_create(&thread, NULL, serve, session) != 0)
		errx(1, "thread");
	seconds = measure(argv[1], count);
	if (umount2(argv[1], MNT_DETACH) != 0)
		err(1, "umount %s", argv[1]);
	pthread_join(thread, NULL); /* the loop ends with the connection */
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	fuse_opt_free_args(&args);
	printf("{\"opens\": %ld, \"seconds\": %.6f}\n", count, seconds);
	return 0;
}
