#!/usr/bin/env python3
"""Writes the preset layouts as a C table: embed.py OUT FILE.json …"""
import os
import sys

out = ['/* Generated from the JSON files beside embed.py. */', '#include "manifest/preset.h"', '']
names = []
for path in sys.argv[2:]:
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, "rb") as f:
        data = f.read()
    c_name = "preset_" + name.replace("-", "_")
    out.append("static const char %s[] = {" % c_name)
    for at in range(0, len(data), 20):
        out.append("\t" + " ".join("%d," % b for b in data[at:at + 20]))
    out.append("\t0};")
    names.append((name, c_name))
out.append("const struct mc_preset_text mc_preset_texts[] = {")
out.extend('\t{"%s", %s, sizeof(%s) - 1},' % (name, c, c) for name, c in names)
out.append("\t{NULL, NULL, 0},")
out.append("};")
with open(sys.argv[1], "w", encoding="utf-8") as f:
    f.write("\n".join(out) + "\n")
