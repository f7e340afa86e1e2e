"""The planner's properties as `mooncakefs plan` shows them, checked by enumeration and by executing.

plan_checks.py PROGRAM DIR GOLDEN CHECK… [SEED]
"""
import itertools
import json
import math
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import checkpoints  # noqa: E402
import models  # noqa: E402
import mooncake  # noqa: E402

PROGRAM, TOP, GOLDEN = sys.argv[1:4]
CHECKS = [a for a in sys.argv[4:] if not a.isdigit()]
SEED = next((int(a) for a in sys.argv[4:] if a.isdigit()), random.SystemRandom().randrange(1 << 32))
RNG = random.Random(SEED)
MIB = 1 << 20


def run(*args, code=0):
    done = subprocess.run([PROGRAM, "plan", *args], capture_output=True, text=True, check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout[:300], done.stderr)
    return done.stdout if code == 0 else done.stderr


def plan(*args):
    return json.loads(run(*args, "--json"))


def checkpoint(name, tensors):
    """Headers over holes: {tensor: (dtype, shape)}, in the order given."""
    folder = os.path.join(TOP, name)
    os.makedirs(folder, exist_ok=True)
    checkpoints.write_safetensors(f"{folder}/model.safetensors",
                                  [(n, d, s) for n, (d, s) in tensors.items()])
    return folder


def layout(name, axes, rules, **more):
    path = os.path.join(TOP, name + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dict({"format": "reshard-layout", "version": 1, "name": name,
                        "mesh": {"axes": axes}, "rules": rules}, **more), f)
    return path


def even(name, sizes):
    """A layout that cuts dimension d of every tensor into sizes[d] parts; one replica axis r."""
    axes = [["r", sizes.get("r", 1)]] + [[f"d{d}", n] for d, n in sizes.items() if d != "r"]
    split = [{"axis": f"d{d}", "dim": d} for d, n in sizes.items() if d != "r" and n > 1]
    rule = {"match": "**", "split": split} if split else {"match": "**", "replicate": True}
    return layout(name, axes, [rule])


def boxes(sizes, shape):
    """What each participant of even() holds: [(offset, length) a dimension]."""
    cut = [(d, n) for d, n in sizes.items() if d != "r"]
    out = []
    for _ in range(sizes.get("r", 1)):
        for at in itertools.product(*(range(n) for _, n in cut)):
            box = [(0, n) for n in shape]
            for (d, n), i in zip(cut, at):
                box[d] = (i * shape[d] // n, shape[d] // n)
            out.append(box)
    return out


def ids(shape, box):
    """Element numbers of a box, in the order of its own dense array."""
    out = [0]
    for (off, n), dim in zip(box, shape):
        out = [o * dim + i for o in out for i in range(off, off + n)]
    return out


def runs(region):
    for at in itertools.product(*(range(n) for n in region["counts"])):
        yield (region["src_offset"] + sum(i * s for i, s in zip(at, region["src_strides"])),
               region["dst_offset"] + sum(i * s for i, s in zip(at, region["dst_strides"])))


def execute(p, held, wanted):
    """Moves element numbers as the plan says: each wanted byte is written once, with what it is.

    held, wanted: {tensor: {participant: element numbers}}, elements of one byte.
    """
    out = {t: {j: [None] * len(v) for j, v in of.items()} for t, of in wanted.items()}
    moved = [0] * len(p["participants"])
    for late in (False, True):
        for c in p["classes"]:
            for link in c["links"]:
                if (link["kind"] == "copy") != late:
                    continue
                for t in c["tensors"][link["tensors"][0]:link["tensors"][1]]:
                    src = (out if late else held)[t][link["src"]]
                    dst, n = out[t][link["dst"]], link["region"]["inner_bytes"]
                    for s, d in runs(link["region"]):
                        assert dst[d:d + n] == [None] * n, (t, link, "written twice")
                        dst[d:d + n] = src[s:s + n]
                        if link["kind"] == "move":
                            moved[link["src"]] += n
    assert out == wanted, "some byte is missing or wrong"
    assert [x["egress"] for x in p["participants"]] == moved, moved


def check_binding(p):
    b = p["binding"]
    sent, received = {}, {}
    for r in range(b["rounds"]):
        pieces = [x for x in b["pieces"] if x["round"] == r]
        assert pieces and len({x["src"] for x in pieces}) == len(pieces), r
        assert len({x["dst"] for x in pieces}) == len(pieces), r
    for x in b["pieces"]:
        assert 0 < x["bytes"] <= 64 * MIB, x
        sent.setdefault(x["src"], []).append(x["bytes"])
        received.setdefault(x["dst"], []).append(x["bytes"])
    busiest = [len(v) for v in (*sent.values(), *received.values())]
    assert b["rounds"] == max(busiest, default=0), (b["rounds"], busiest)
    assert sum(map(sum, sent.values())) == p["moved_bytes"]
    most = max((sum(v) for v in (*sent.values(), *received.values())), default=0)
    assert most == max(b["max_egress"], b["max_ingress"])
    assert b["makespan_bytes"] <= 2 * most, (b["makespan_bytes"], most)
    return b["makespan_bytes"] / most if most else 1.0


def random_plans(rng=RNG, count=60):
    """Properties 1 and 7 and rounds, over random cuts, with shared participants and with nodes."""
    for i in range(count):
        rank = rng.randint(1, 3)
        shapes = {f"t{k}": [rng.choice((4, 8, 12)) for _ in range(rank)] for k in range(3)}
        model = checkpoint(f"random-{i}", {t: ("U8", s) for t, s in shapes.items()})
        sides = []
        for _ in range(2):
            sizes = {d: rng.choice((1, 2, 4)) for d in range(rank)}
            sides.append(dict(sizes, r=rng.choice((1, 1, 2))))
        world = [math.prod(s.values()) for s in sides]
        same, nodes = i % 3 == 1, i % 3 == 2
        base = 0 if same else world[0]
        n = max(world) if same else sum(world)
        at = [rng.randrange(3) if nodes else k for k in range(n)]
        more = ["--same"] if same else []
        if nodes:
            path = os.path.join(TOP, f"nodes-{i}")
            with open(path, "w", encoding="utf-8") as f:
                f.write("".join(f"node-{x}\n" for x in at))
            more = ["--nodes", path]
        p = plan("--model", model, "--from", even(f"from-{i}", sides[0]),
                 "--to", even(f"to-{i}", sides[1]), *more)
        held, wanted, expected = {}, {}, 0
        for t, shape in shapes.items():
            held[t] = {j: ids(shape, b) for j, b in enumerate(boxes(sides[0], shape))}
            wanted[t] = {base + j: ids(shape, b) for j, b in enumerate(boxes(sides[1], shape))}
            for node in set(at):
                have = {x for j, v in held[t].items() if at[j] == node for x in v}
                expected += len({x for j, v in wanted[t].items() if at[j] == node for x in v} - have)
        execute(p, held, wanted)
        for x in (x for c in p["classes"] for x in c["links"]):
            assert (at[x["src"]] == at[x["dst"]]) == (x["kind"] != "move"), (x, at)
        assert p["moved_bytes"] == expected, (p["moved_bytes"], expected, sides, more)
        check_binding(p)
    print(f"{count} random plans move what is missing and no more")


def counts():
    """Property 3: regions of even cuts, and those of experts that become columns."""
    model = checkpoint("counts", {"t": ("U8", [48, 96])})
    for p, q in itertools.product((1, 2, 3, 4, 6, 8, 12, 16), repeat=2):
        got = plan("--model", model, "--from", even("p", {0: p, 1: q}), "--to", even("q", {0: q, 1: p}))
        assert got["regions"] == (p + q - math.gcd(p, q)) ** 2, (p, q, got["regions"])
    model = checkpoint("experts", {"t": ("BF16", [8, 8192, 8192])})
    got = plan("--model", model, "--from", even("ep8", {0: 8}), "--to", even("tp8", {2: 8}))
    links = [x["region"] for c in got["classes"] for x in c["links"]]
    assert got["regions"] == len(links) == 64
    assert all(r["counts"] == [8192] and r["inner_bytes"] == 2048 for r in links)
    print("regions are p + q - gcd, and 64 of 8192 runs")


def four_axes():
    """Property 4."""
    model = checkpoint("four", {f"layer.{i}.w": ("BF16", [8, 8, 2]) for i in range(4)})

    def mesh(name, dp, pp, ep, tp):
        return layout(name, [["dp", dp], ["pp", pp], ["ep", ep], ["tp", tp]],
                      [{"match": "layer.#.w", "split": [{"axis": "ep", "dim": 0}, {"axis": "tp", "dim": 1}]}],
                      layers={"prefix": "layer.", "count": 4, "split": "even"})
    p = plan("--model", model, "--from", mesh("from4", 2, 2, 8, 4), "--to", mesh("to4", 4, 4, 2, 8))
    routes = {(x["src"] // 32 % 2, (x["dst"] - 128) // 16 % 4) for c in p["classes"] for x in c["links"]}
    assert p["moved_bytes"] == 4096 and p["local_bytes"] == 0, p["moved_bytes"]
    assert routes == {(0, 0), (0, 1), (1, 2), (1, 3)}, routes
    print("four axes to four axes: 4096 bytes on four routes")


def egress(rng=RNG, count=12):
    """Property 2, by enumeration of all sets of holders; Mooncake's placements can hold anything."""
    cases = [[("ab", 3 * MIB), ("bc", 3 * MIB), ("ac", 3 * MIB)], [("abcd", 8 * MIB)]]
    for _ in range(count):
        people = "abcdefg"[:rng.randint(2, 7)]
        cases.append([("".join(rng.sample(people, rng.randint(1, len(people)))),
                       rng.randint(1, 9) * MIB) for _ in range(rng.randint(1, 5))])
    for case in cases:
        people = sorted({h for holders, _ in case for h in holders})
        tensors = [mooncake.descriptor(f"t{i}", "uint8", [n // 1024, 1024], 1) for i, (_, n) in enumerate(case)]
        parts = {h: [(f"t{i}", [0, 0], [n // 1024, 1024], 1) for i, (holders, n) in enumerate(case)
                     if h in holders] for h in people}
        want = {"z": [(f"t{i}", [0, 0], [n // 1024, 1024], 1) for i, (_, n) in enumerate(case)]}
        source = mooncake.write(f"{TOP}/egress/from.json", mooncake.placement(tensors, parts))
        target = mooncake.write(f"{TOP}/egress/to.json", mooncake.placement(tensors, want))
        best = max((sum(n for holders, n in case if set(holders) <= set(h)) / len(h)
                    for k in range(1, len(people) + 1) for h in itertools.combinations(people, k)))
        said = run("--from", source, "--to", target).splitlines()
        line = next(x for x in said if x.startswith("egress")).split()
        assert abs(int(line[6].rstrip(",")) - best) <= 1, (line, best, case)
        assert best - 1 <= int(line[1]) <= best + MIB, (line, best, case)
    print(f"{len(cases)} sets of holders: the largest egress is the enumerated bound")


def order():
    """Property 5: files and tensors in another order give the same bytes of plan."""
    config = models.resized(models.MODELS["llama-3-8b"], 2, 4).config
    named = list(models.tensors(config))
    out = []
    for name, files in (("order-a", [named]), ("order-b", [named[::2], named[1::2]])):
        folder = os.path.join(TOP, name)
        os.makedirs(folder, exist_ok=True)
        for i, part in enumerate(files):
            checkpoints.write_safetensors(f"{folder}/{'ba'[i]}.safetensors", part)
        checkpoints.write_json(f"{folder}/config.json", config)
        out.append(run("--model", folder, "--from", "tp4", "--to", "tp2-pp2", "--json"))
    assert out[0] == out[1]
    print("the plan does not depend on the order of files and tensors")


def presets():
    """Makespan against its bound, for a model of real shapes."""
    for model, start, end in (("llama-3-8b", "tp8", "tp4"), ("mixtral-8x7b", "ep8", "tp8"),
                              ("qwen-moe", "tp4", "tp2-pp2")):
        m = models.resized(models.MODELS[model], 4)
        folder = os.path.join(TOP, model)
        checkpoints.write(m, list(models.tensors(m.config)), folder)
        p = plan("--model", folder, "--from", start, "--to", end)
        ratio = check_binding(p)
        num, den = p["bound_egress"]
        most = p["binding"]["max_egress"]
        assert most * den <= num + MIB * den, (model, most, num / den)
        assert ratio <= 1.1, (model, ratio)
        print(f"{model} {start} -> {end}: makespan {ratio:.3f} of its bound, egress {most * den / num:.4f}")


def golden():
    """Mooncake's own plan between its own manifests, field by field."""
    stored, target = f"{GOLDEN}/mooncake-stored.json", f"{GOLDEN}/mooncake-placement.json"
    with open(target, encoding="utf-8") as f:
        place = json.load(f)
    fragment = {p["participant_id"]: p["fragments"][0]["placement_fragment_id"] for p in place["parts"]}
    want = [{"counts": [2], "inner_bytes": 4, "source_fragment_id": f"f{f}", "source_offset": 4 * w,
             "source_strides": [12], "target_fragment_id": fragment[f"worker-{w}"], "target_offset": 8 * f,
             "target_participant_id": f"worker-{w}", "target_strides": [4],
             "tensor_id": "model.layers.0.mlp.up_proj.weight"} for w in range(3) for f in range(2)]
    assert plan("--from", stored, "--to", target) == want
    # Whoever both placements name keeps what it holds.
    assert "moved     0 B" in run("--from", target, "--to", target)
    # A stored manifest to a layout: the tensors are the manifest's.
    p = plan("--from", stored, "--to", even("halves", {1: 2}))
    assert (p["moved_bytes"], p["regions"]) == (48, 4), p
    # A changed id is refused.
    place["placement_set_id"] = "set-1"
    bad = mooncake.write(f"{TOP}/bad/placement.json", place)
    assert "placement_id is sha256:a3a8" in run("--from", stored, "--to", bad, code=1)
    print("Mooncake's golden plan, field by field")


def payload():
    """--payload-root looks at every object; nothing outside the root is reached."""
    tensors = [mooncake.descriptor("a", "uint8", [4, 4], 1)]
    halves = even("halves2", {0: 2})

    def tried(obj, at, root, code, text):
        fragments = [("a", [0, 0], [4, 4], 1, obj, at)]
        path = mooncake.write(f"{TOP}/payload/m.json", mooncake.stored(tensors, fragments))
        said = run("--from", path, "--to", halves, "--payload-root", root, code=code)
        assert text in said, (obj, said)
    root = f"{TOP}/payload/root"
    folder = f"{root}/weights/default/model/step-1/payload"
    os.makedirs(folder + "/deep")
    with open(folder + "/0", "wb") as f:
        f.write(bytes(20))
    os.symlink("/etc/passwd", folder + "/link")
    os.symlink("/etc", folder + "/etc")
    os.mkfifo(folder + "/fifo")
    tried("0", 4, root, 0, "moved")
    tried("0", 0, "dir:" + root, 0, "moved")
    tried("0", 5, root, 1, "has 20 bytes, its fragments need 21")
    tried("1", 0, root, 1, "No such file")
    tried("deep", 0, root, 1, "is no plain file")
    tried("fifo", 0, root, 1, "is no plain file")
    tried("link", 0, root, 1, "is no plain file")
    tried("etc/passwd", 0, root, 1, "payload/etc/passwd")
    tried("../../../../../../etc/passwd", 0, root, 1, "no path below the root")
    tried("/0", 0, root, 1, "no path below the root")
    tried("a//b", 0, root, 1, "no path below the root")
    tried("0", 0, root + "/none", 1, "none")
    assert "--payload-root needs" in run("--model", root, "--to", halves, "--payload-root", root, code=2)
    print("payload objects are looked at, and stay below their root")


def main():
    print(f"seed {SEED}")
    for name in CHECKS:
        globals()[name]()


if __name__ == "__main__":
    main()
