#!/usr/bin/env python3
"""The schema that the program prints and the program itself agree about configuration files."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)

VALUES = [
    0, 1, 2, 7, 64, 65, 256, 257, 1024, 1025, 3600, 3601, -1, 1 << 26, (1 << 26) - 1, 1 << 50, (1 << 50) + 1,
    1.5, True, False, None, [], {}, "", "x", "dram", "nvme", "remote", "dram|nvme", "1GiB", "1 GiB", "64MiB",
    "1.5GiB", "1.GiB", "12XB", "/n", "/n,800GiB", "/n,12XB", ",64MiB", "dir:/r",
    "127.0.0.1:9464", "[::1]:9464", "localhost:9464", "127.0.0.1:", "127.0.0.1:9464x",
    ["dir:/r"], ["dir:/r", "dir:/s"], ["dir:/r", ""], ["dir:/r", 1],
]


def accepts(rule, value):
    """JSON Schema, as much of it as the schema uses."""
    if "anyOf" in rule:
        return any(accepts(r, value) for r in rule["anyOf"])
    if "enum" in rule:
        return value in rule["enum"]
    if rule["type"] == "boolean":
        return isinstance(value, bool)
    if rule["type"] == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)
                and rule["minimum"] <= value <= rule["maximum"])
    if rule["type"] == "array":
        return (isinstance(value, list) and len(value) >= rule["minItems"]
                and all(accepts(rule["items"], v) for v in value))
    return (isinstance(value, str) and len(value) >= rule.get("minLength", 0)
            and re.search(rule.get("pattern", ""), value) is not None)


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(subprocess.run([PROGRAM, "config", "schema"], check=True,
                                               stdout=subprocess.PIPE).stdout)

    def program_accepts(self, key, value):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({key: value}, f)
            f.flush()
            return subprocess.run([PROGRAM, "config", "check", f.name], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode == 0

    def test_what_the_schema_accepts_the_program_accepts(self):
        tried = 0
        for key, rule in self.schema["properties"].items():
            for value in VALUES:
                if accepts(rule, value):
                    tried += 1
                    self.assertTrue(self.program_accepts(key, value), f"{key}: {value!r}")
        self.assertGreater(tried, 40)

    def test_what_the_program_refuses_the_schema_refuses(self):
        """Values of a wrong type or outside the limits; the program also takes numbers as text."""
        for key, value in [("dram", "12XB"), ("dram", 1), ("depth", 257), ("depth", 0), ("kv-ack", "disk"),
                           ("nvme", ",64MiB"), ("remote", ""), ("remote", []), ("remote", ["dir:/r", ""]),
                           ("allow-other", 3), ("deadline", 3601), ("jobs", -1),
                           ("connections", 1.5)]:
            self.assertFalse(self.program_accepts(key, value), f"{key}: {value!r}")
            self.assertFalse(accepts(self.schema["properties"][key], value), f"{key}: {value!r}")

    def test_every_property_is_described_and_nothing_else_is_allowed(self):
        self.assertIs(self.schema["additionalProperties"], False)
        self.assertFalse(self.program_accepts("no-such-option", 1))
        for key, rule in self.schema["properties"].items():
            if key != "$schema":
                self.assertTrue(rule["description"].endswith("."), key)
                self.assertTrue("default" not in rule or accepts(rule, rule["default"]), key)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main()
