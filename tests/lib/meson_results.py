"""Reads meson's testlog.json and prints "passed failed skipped", counted in single checks, and then
the names of the programs that failed.

A program of the Check library reports how many checks it ran; any other program counts as one.
"""
import json
import re
import sys

_TOTALS = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", re.M)


def count(lines):
    passed = failed = skipped = 0
    names = []
    for line in lines:
        test = json.loads(line)
        if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            names.append(test["name"].rsplit(" / ", 1)[-1])
        totals = _TOTALS.search(test.get("stdout") or "")
        if test["result"] == "SKIP":
            skipped += 1
        elif totals:
            checks, failures, errors = map(int, totals.groups())
            bad = failures + errors
            # A program that fails after its checks, for instance by a leak, is one failure more.
            bad += test["result"] != "OK" and bad == 0
            passed, failed = passed + checks - failures - errors, failed + bad
        elif test["result"] in ("OK", "EXPECTEDFAIL"):
            passed += 1
        else:
            failed += 1
    return passed, failed, skipped, *names


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as log:
        print(*count(log))
