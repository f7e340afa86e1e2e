# What all scripts of the tests share; to be sourced by a bash script with MC_TMP set.
#
#   fact TEXT                          says what is being shown now; docs/SEMANTICS.md refers to these texts
#   fail TEXT                          says why, shows the end of $MC_TMP/log and ends the script
#   await WHAT COMMAND...              waits until the command succeeds; of its output the last is shown,
#                                      and only when it never does
#   await_from PID WHAT COMMAND...     the same, of a process that must not end before
#
# A function that does not exist ends the script; a program that is not installed is the script's matter.
#
# Waiting has one limit, far beyond what a busy machine needs: what is not there by then never comes.
readonly await_limit_s=120

fact() { echo "fact: $*"; }

fail()
{
	echo "FAILED: $*"
	[ ! -s "$MC_TMP/log" ] || tail -n 30 "$MC_TMP/log"
	exit 1
}

# Called by bash, in a process of its own.
command_not_found_handle()
{
	echo "$1: command not found" >&2
	case $1 in *_*) kill -TERM $$ ;; esac
	return 127
}

await() { await_from '' "$@"; }

await_from()
{
	local pid=$1 what=$2 end=$((SECONDS + await_limit_s))
	shift 2

	until "$@" >"$MC_TMP/awaited" 2>&1; do
		[ -z "$pid" ] || kill -0 "$pid" 2>/dev/null || fail "$what: the process ended"
		[ $SECONDS -lt $end ] || { cat "$MC_TMP/awaited"; fail "$what: not within $await_limit_s s"; }
		sleep 0.05
	done
}
