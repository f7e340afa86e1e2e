/*
 * The keeper of a mount.
 *
 * Invariants: 1. One thread, and between two workers none: a fork is always safe. 2. From the
 * worker's word that the mount is about to end the keeper has no device, so that the mount's end is
 * seen by those who wait for it. 3. A worker that is not ready gets no signal but the one that ends
 * a mount which nobody has seen yet; what came meanwhile is sent when it is. 4. The death of the
 * keeper is the worker's: the kernel kills it.
 */
#include "tools/keeper.h"

#include "fs/log.h"
#include "fs/mountpoint.h"
#include "fs/takeover.h"
#include "tier/cleanup.h"
#include "tier/lock.h"
#include "tools/command.h"
#include "tools/keeper-line.h"
#include "tools/keeper-program.h"
#include "tools/keeper-watch.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define MINUTE_NS (60000 * MS)
#define TRIAL_NS (30000 * MS)
#define TRIED_NS (10000 * MS) /* after so long in service a new program is not undone */
#define PAUSE_MS 50 /* before the third worker in a minute; twice that before each further one */
#define PAUSE_MAX_MS 2000

static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
#define N_HANDLED (sizeof(handled) / sizeof(*handled))

void mc_keeper_none(struct mc_keeper *k, const char *why)
{
	*k = (struct mc_keeper){.why_not = why, .device = -1, .line = -1, .signals = -1};
}

int mc_keeper_open(struct mc_keeper *k)
{
	struct mc_inherited from;
	int r = mc_program_inherited(&from);

	mc_keeper_none(k, NULL);
	k->is_try = from.is_try;
	k->device = from.device;
	k->line = from.line;
	if (r < 0 || from.table >= 0)
		return r < 0 ? r : mc_takeover_from(from.table, &k->takeover);
	r = mc_program_note(k);
	if (r < 0 || mc_takeover_open(&k->takeover) < 0)
		k->why_not = "the system gives no shared memory";
	return 0;
}

void mc_keeper_close(struct mc_keeper *k)
{
	mc_takeover_close(k->takeover);
	free(k->line_words);
	k->takeover = NULL;
	k->line_words = NULL;
}

/* Signals become readable; those that the caller had blocked do not stay so for workers. */
static int take_signals(struct mc_keeper *k)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < N_HANDLED; i++)
		sigaddset(&set, handled[i]);
	sigprocmask(SIG_BLOCK, &set, &k->before);
	for (size_t i = 0; i < N_HANDLED; i++)
		sigdelset(&k->before, handled[i]);
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signals < 0 ? -errno : 0;
}

static void leave_signals(struct mc_keeper *k)
{
	if (k->signals >= 0)
		close(k->signals);
	k->signals = -1;
	sigprocmask(SIG_SETMASK, &k->before, NULL);
}

static void close_line(struct mc_keeper *k)
{
	if (k->line >= 0)
		close(k->line);
	k->line = -1;
}

/* What the keeper has and a worker does not need. Does not return when another program is to be
 * the worker. */
static void become_worker(struct mc_keeper *k, pid_t keeper, int line)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(MC_EXIT_FAILED);
	leave_signals(k);
	k->line = line;
	/* Relative paths of options are of that directory. */
	if (k->device >= 0 && chdir(k->cwd) < 0)
		mc_log(MC_LOG_WARNING, "directory", "path=\"%s\" error=\"%s\"", k->cwd,
			strerror(errno));
	if (k->replaced) {
		int r = mc_program_execute(k, line);

		mc_log(MC_LOG_ERROR, "upgrade", "program=\"%s\" error=\"%s\"", k->program,
			strerror(-r));
		_exit(MC_EXIT_FAILED);
	}
}

/* 0 in the worker, 1 in the keeper, -errno. */
static int start_worker(struct mc_keeper *k)
{
	pid_t keeper = getpid();
	int line[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0)
		return -errno;
	mc_takeover_head(k->takeover)->workers++;
	k->ready = k->drained = false;
	mc_watch_begin(k);
	fflush(NULL);
	k->worker = fork();
	if (k->worker < 0) {
		r = -errno;
		close(line[0]);
		close(line[1]);
		k->worker = 0;
		return r;
	}
	if (k->worker == 0) {
		close(line[0]);
		become_worker(k, keeper, line[1]);
		return 0;
	}
	close(line[1]);
	k->line = line[0];
	return 1;
}

void mc_keeper_leave_directory(const struct mc_keeper *k)
{
	if (k->background && chdir("/") < 0)
		mc_log(MC_LOG_WARNING, "directory", "path=/ error=\"%s\"", strerror(errno));
}

static void send_pending(struct mc_keeper *k)
{
	for (size_t i = 0; i < N_HANDLED; i++)
		if ((k->pending >> handled[i] & 1) != 0)
			kill(k->worker, handled[i]);
	k->pending = 0;
}

static void hear(struct mc_keeper *k)
{
	int fd;
	char word;

	while ((word = mc_line_hear(k->line, false, &fd)) != 0) {
		if (word == MC_WORD_MOUNTED && k->device < 0)
			k->device = steal_fd(fd);
		if (fd >= 0)
			close(fd);
		if (word == MC_WORD_READY) {
			k->ready = true;
			k->ready_ns = mc_now_ns();
			k->away = false;
			if (k->reloaded)
				k->pending |= 1u << SIGHUP;
			mc_daemon_ready(k->daemon);
			mc_keeper_leave_directory(k);
			send_pending(k);
		}
		if (word == MC_WORD_DRAINED)
			k->drained = true;
		if (word == MC_WORD_STOPPING) {
			k->stopping = true;
			if (k->device >= 0)
				close(k->device);
			k->device = -1;
			mc_line_say(k->line, word, -1);
		}
	}
}

/* Whether the program that lies where ours lay can go on: asked before the worker is bothered. */
static void begin_upgrade(struct mc_keeper *k)
{
	pid_t pid;

	if (!k->ready || k->trial != 0 || k->stopping || !mc_takeover_on(k->takeover))
		return;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		leave_signals(k);
		mc_program_execute(k, -1);
		_exit(MC_EXIT_FAILED);
	}
	k->trial = pid > 0 ? pid : 0;
	k->trial_until_ns = mc_now_ns() + TRIAL_NS;
	mc_log(MC_LOG_INFO, "upgrade", "program=\"%s\"", k->program);
}

static void end_trial(struct mc_keeper *k, int status)
{
	k->trial = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		mc_log(MC_LOG_ERROR, "upgrade-refused",
			"program=\"%s\" code=%d text=\"it does not start with these options, or "
			"keeps another table: mount anew\"",
			k->program, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	} else if (k->worker != 0 && k->ready && !k->stopping) {
		k->upgrading = true;
		kill(k->worker, SIGUSR2);
	}
}

/* Whether the worker is gone: *ret_status. */
static bool reap(struct mc_keeper *k, int *ret_status)
{
	bool gone = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == k->trial)
			end_trial(k, status);
		if (pid == k->worker) {
			k->worker = 0;
			*ret_status = status;
			gone = true;
		}
	}
	return gone;
}

static void obey(struct mc_keeper *k, int sig, pid_t from)
{
	bool ends = sig == SIGTERM || sig == SIGINT, own = k->worker != 0 && from == k->worker;

	k->reloaded = k->reloaded || sig == SIGHUP;
	if ((sig == SIGHUP || sig == SIGUSR2) && !own)
		k->undone = false;
	if (sig == SIGUSR2 && k->undone)
		mc_log(MC_LOG_WARNING, "upgrade-refused",
			"program=\"%s\" text=\"it failed before\"", k->program);
	else if (sig == SIGUSR2)
		begin_upgrade(k);
	else if (k->worker != 0 && (k->ready || (ends && k->device < 0)))
		kill(k->worker, sig);
	else
		k->pending |= 1u << sig;
}

/* Waits for signals and words, ms at most; -1: as long as it takes. */
static void wait_some(struct mc_keeper *k, int ms, int *ret_status, bool *ret_gone)
{
	struct pollfd p[2] = {
		{.fd = k->signals, .events = POLLIN}, {.fd = k->line, .events = POLLIN}};
	struct signalfd_siginfo s;

	if (ms < 0 || ms > mc_watch_wait_ms(k))
		ms = mc_watch_wait_ms(k);
	if (poll(p, 2, k->trial != 0 && ms > 1000 ? 1000 : ms) < 0)
		return;
	mc_watch_look(k);
	if (k->trial != 0 && mc_now_ns() > k->trial_until_ns)
		kill(k->trial, SIGKILL);
	if (k->line >= 0 && p[1].revents != 0)
		hear(k);
	if (k->line >= 0 && (p[1].revents & POLLHUP) != 0)
		close_line(k); /* its death is the next to come */
	while (read(k->signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		if (s.ssi_signo == SIGCHLD)
			*ret_gone = reap(k, ret_status) || *ret_gone;
		else
			obey(k, (int)s.ssi_signo, (pid_t)s.ssi_pid);
	}
}

/* Until the worker is gone. Its status, as waitpid has it. */
static int attend(struct mc_keeper *k)
{
	bool gone = false;
	int status = 0;

	while (!gone)
		wait_some(k, -1, &status, &gone);
	if (k->line >= 0)
		hear(k);
	close_line(k);
	return status;
}

static int exit_code(const struct mc_keeper *k, int status)
{
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "mooncakefs: the daemon was ended by signal %d (%s)%s\n", WTERMSIG(status),
		strsignal(WTERMSIG(status)), k->stopping ? "" : " before it was ready");
	return MC_EXIT_FAILED;
}

/* Nobody will serve the mount any more. */
static int give_up(struct mc_keeper *k, const char *why)
{
	mc_log(MC_LOG_ERROR, "gave-up", "mountpoint=\"%s\" why=\"%s\"", k->mountpoint, why);
	if (mc_mountpoint_mounted(k->mountpoint))
		mc_mountpoint_unmount(k->mountpoint);
	close(k->device);
	k->device = -1;
	return MC_EXIT_FAILED;
}

/* Deaths within a minute, this one included. */
static unsigned count_death(struct mc_keeper *k)
{
	uint64_t now = mc_now_ns();
	unsigned n = 0;

	k->deaths[k->n_deaths++ % MC_KEEPER_DEATHS] = now;
	for (unsigned i = 0; i < MC_KEEPER_DEATHS && i < k->n_deaths; i++)
		n += now - k->deaths[i] < MINUTE_NS;
	return n;
}

static bool to_end(const struct mc_keeper *k)
{
	return (k->pending & (1u << SIGTERM | 1u << SIGINT)) != 0;
}

/* Before another worker; not when the mount is to end. */
static void pause_for(struct mc_keeper *k, uint64_t ms)
{
	uint64_t until = mc_now_ns() + (ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS) * MS;
	bool gone = false;
	int status;

	for (uint64_t now = mc_now_ns(); now < until && !to_end(k); now = mc_now_ns())
		wait_some(k, (int)((until - now) / MS) + 1, &status, &gone);
}

/* No remote answers. What the kernel reads alone goes on; other requests wait for the next worker.
 */
static int wait_for_remote(struct mc_keeper *k)
{
	if (!k->away)
		mc_log(MC_LOG_ERROR, "worker-waits",
			"text=\"no remote answers, so no worker can take over: tried again until "
			"one "
			"does\"");
	k->away = true;
	pause_for(k, PAUSE_MAX_MS);
	return to_end(k) ? give_up(k, "it is to end, and no remote answers") : -1;
}

/* Whether the worker died of the program that it executed: the keeper's own image goes on. */
static bool undo(struct mc_keeper *k)
{
	bool tried = k->ready && mc_now_ns() - k->ready_ns >= TRIED_NS;

	k->on_trial = k->on_trial && !tried;
	if (!k->replaced || (k->ready && !k->on_trial))
		return false;
	k->replaced = k->on_trial = false;
	k->undone = true;
	k->n_deaths = 0;
	mc_log(MC_LOG_ERROR, "upgrade-undone",
		"program=\"%s\" text=\"its worker died: the program that the mount began with "
		"goes on; put things right and send SIGUSR2 again\"",
		k->program);
	return true;
}

/* The worker is gone: the exit code to end with, -1: another one is to follow. */
static int judge(struct mc_keeper *k, int status)
{
	const char *why = mc_takeover_why_not(k->takeover);
	bool drained = k->drained && k->upgrading;
	unsigned deaths;

	if (k->stopping || k->device < 0)
		return exit_code(k, status);
	k->upgrading = false;
	if (drained) {
		k->replaced = k->on_trial = true;
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == MC_WORKER_AWAY && !k->on_trial)
		return wait_for_remote(k);
	deaths = count_death(k);
	mc_log(MC_LOG_ERROR, "worker-died", "signal=%d code=%d deaths=%u",
		WIFSIGNALED(status) ? WTERMSIG(status) : 0,
		WIFEXITED(status) ? WEXITSTATUS(status) : 0, deaths);
	if (why == NULL)
		why = mc_watch_judge(k);
	if (why != NULL)
		return give_up(k, why);
	if (undo(k))
		return -1;
	if (deaths >= MC_KEEPER_DEATHS)
		return give_up(k, "too many workers died within a minute");
	if (deaths >= 3)
		pause_for(k, (uint64_t)PAUSE_MS << (deaths - 3));
	return -1;
}

int mc_keeper_run(struct mc_keeper *k)
{
	int code = -1, r;

	if (k->takeover == NULL || k->line >= 0)
		return -1;
	r = take_signals(k);
	mc_watch_open(k);
	while (r == 0 && code < 0) {
		r = start_worker(k);
		if (r == 0)
			return -1;
		if (r > 0)
			code = judge(k, attend(k));
		else if (k->device >= 0)
			code = judge(k, W_EXITCODE(MC_EXIT_FAILED, 0));
		else
			break;
		r = 0;
	}
	if (code >= 0)
		return code;
	leave_signals(k);
	mc_keeper_close(k);
	k->why_not = "the system gives no second process";
	return -1;
}
