"""`mooncakefs reshard` from revisions, from its own results and from Mooncake's manifests, against the
independent slicer.

reshard_checks.py PROGRAM DIR CHECK… [SEED]; checks that use what an earlier one imported come after it
"""
import itertools
import json
import os
import random
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import checkpoints  # noqa: E402
import fake_engine  # noqa: E402
import models  # noqa: E402
import mooncake  # noqa: E402
import view_checks  # noqa: E402

PROGRAM, TOP = sys.argv[1:3]
CHECKS = [a for a in sys.argv[3:] if not a.isdigit()]
SEED = next((int(a) for a in sys.argv[3:] if a.isdigit()), random.SystemRandom().randrange(1 << 32))
RNG = random.Random(SEED)
REMOTE = ["--remote", f"dir:{TOP}/remote"]


def run(*args, code=0):
    done = subprocess.run([PROGRAM, *args, *REMOTE], capture_output=True, text=True, check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout[-300:], done.stderr)
    return done.stdout if code == 0 else done.stderr


def reshard(*args):
    return json.loads(run("reshard", *args, "--json").splitlines()[-1])


def exported(revision):
    """The ranks' directories of a revision as plain files, alone in a directory."""
    folder = os.path.join(TOP, "out", revision.replace("/", "-"))
    run("export", revision, folder)
    ranks = folder + "-ranks"
    os.makedirs(ranks)
    for name in os.listdir(folder):
        if name.startswith("rank-"):
            os.rename(os.path.join(folder, name), os.path.join(ranks, name))
    return ranks


def check(model, mesh, revision):
    view_checks.check(model, mesh, exported(revision))
    run("verify", revision)


def imported(model):
    view_checks.make(model, f"{TOP}/src/{model}")
    run("import", f"{TOP}/src/{model}", f"acme/{model}@r1")


def document(name, value):
    path = f"{TOP}/{name}.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)
    return path


def grid(rng, shape):
    """A tensor cut at random: (offset, shape) of disjoint boxes that cover it."""
    out = [([], [])]
    for dim in shape:
        cuts = sorted({0, dim, *(rng.randrange(dim) for _ in range(rng.randrange(3)))})
        out = [(off + [a], box + [b - a]) for off, box in out for a, b in zip(cuts, cuts[1:])]
    return out


def weights(rng, model):
    """A stored manifest of the model, its tensors in random pieces over a few payload files."""
    m = view_checks.model_of(model)
    root, group = f"{TOP}/payload/{model}", f"weights/default/{model}/step-1"
    os.makedirs(f"{root}/{group}/payload")
    tensors, fragments, files = [], [], [bytearray() for _ in range(3)]
    for name, dtype, shape in models.tensors(m.config):
        size = checkpoints.nbytes(dtype, [])
        data = checkpoints.pattern(name, 0, checkpoints.nbytes(dtype, shape))
        tensors.append(mooncake.descriptor(name, mooncake.TORCH[dtype], shape, size))
        for off, box in grid(rng, shape):
            k = rng.randrange(len(files))
            files[k] += bytes(rng.randrange(4) * 8)  # what no fragment claims
            fragments.append((name, off, box, size, f"{k}", len(files[k])))
            files[k] += view_checks.cut(data, shape, size, [range(o, o + n) for o, n in zip(off, box)])
    for k, data in enumerate(files):
        with open(f"{root}/{group}/payload/{k}", "wb") as f:
            f.write(data)
    rng.shuffle(fragments)
    path = mooncake.write(f"{TOP}/payload/{model}.json", mooncake.stored(tensors, fragments, group))
    return path, root, sum(map(len, files))


def from_mooncake():
    """Payload files → reshard → the slicer's bytes; config.json comes from a directory or a revision."""
    for model, mesh, other in (("qwen-moe", "tp4-ep2", "tp2-pp2"), ("deepseek-v3", "tp4-pp2", "tp1")):
        path, root, size = weights(RNG, model)
        view_checks.make(model, f"{TOP}/src/{model}")
        of = f"{TOP}/src/{model}" if model == "qwen-moe" else f"acme/{model}"
        if of.startswith("acme/"):
            run("import", f"{TOP}/src/{model}", f"{of}@r1")
        done = reshard(path, mesh, f"acme/{model}-{mesh}@r1", "--payload-root", root, "--model", of)
        assert done["read_bytes"] <= size and done["unlisted_tensors"] == 0, (done, size)
        check(model, mesh, f"acme/{model}-{mesh}@r1")
        # Its result is a source as any other.
        reshard(f"acme/{model}-{mesh}@r1", other, f"acme/{model}-{other}@r1")
        check(model, other, f"acme/{model}-{other}@r1")
        beside = sorted(os.listdir(f"{TOP}/out/acme-{model}-{mesh}@r1"))
        assert "config.json" in beside and ("tokenizer.json" in beside) == (model == "qwen-moe"), beside
        p = json.loads(run("plan", "--from", path, "--to", mesh, "--model", of, "--payload-root", root, "--json"))
        assert p["participants"][0]["ingress"] == 0 and p["moved_bytes"] > 0
    print("payload files of Mooncake's manifests under two layouts")


def bad_payload():
    path, root, _size = weights(RNG, "tied")
    more = ["--payload-root", root, "--model", f"{TOP}/src/tied"]
    view_checks.make("tied", f"{TOP}/src/tied")
    for args, code, text in (
            ([path, "tp2", "acme/bad@1"], 2, "Give --payload-root"),
            ([path, "tp2", "acme/bad@1", "--payload-root", root + "/none"], 1, "none"),
            ([path, "tp2", "acme/bad@1", "--payload-root", root], 1, "config.json"),
            (["acme/llama", "tp2", "acme/bad@1", *more], 2, "--payload-root needs"),
            ([path, "tp7", "acme/bad@1", *more], 1, "divided evenly"),
            ([f"{HERE}/../golden/mooncake-placement.json", "tp2", "acme/bad@1", *more], 2, "wanted, not where")):
        said = run("reshard", *args, code=code)
        assert text in said, (args, said)
    file = f"{root}/weights/default/tied/step-1/payload/1"
    os.truncate(file, os.path.getsize(file) - 1)
    assert "its fragments need" in run("reshard", path, "tp2", "acme/bad@1", *more, code=1)
    os.unlink(file)
    assert "No such file" in run("reshard", path, "tp2", "acme/bad@1", *more, code=1)
    assert "acme/bad" not in run("ls")
    print("payload that is not there is refused, nothing is visible")


def chains():
    """Padded, cut, replicated and stacked results are sources: any mesh from any other."""
    for model, meshes in (("llama", ["tp16", "tp4-pp3", "dp2-tp2"]), ("gpt-oss", ["tp4-ep2", "tp1"]),
                          ("mixtral", ["dp2-tp2-ep4", "tp2-pp2"])):
        source = f"acme/{model}@r1"
        imported(model)
        for mesh in meshes:
            to = f"acme/{model}-{mesh}@r1"
            reshard(source, mesh, to)
            check(model, mesh, to)
            again = reshard(source, mesh, to)
            assert again["written_bytes"] == 0, again
            source = to
    print("results are sources of further ones")


def sharded():
    """An engine's fused state: as the profile says, refused when it differs, and a source again."""
    for model in ("llama", "tied"):
        if model == "tied":
            imported(model)
        done = reshard(f"acme/{model}@r1", "tp4-vllm", f"acme/{model}-vllm@r1")
        assert done["unlisted_tensors"] == 0, done
        folder = f"{TOP}/out/{model}-vllm"
        run("export", f"acme/{model}-vllm@r1", folder)
        view_checks.sharded(model, 4, folder)
        assert not [n for n in os.listdir(folder) if n.endswith(".index.json")]
        reshard(f"acme/{model}-vllm@r1", "tp2-pp2", f"acme/{model}-back@r1")
        check(model, "tp2-pp2", f"acme/{model}-back@r1")
    # The rule alone does not make it what the engine holds.
    table = {"model.norm.weight": {"dtype": "BF16", "shape": [128]}}
    profile = document("profile", {"format": "engine-profile", "version": 1, "engine": "x",
                                   "engine_version": "1", "tensors": table})
    layout = document("sharded", {"format": "reshard-layout", "version": 1, "name": "sharded",
                                  "mesh": {"axes": [["tp", 1]]}, "rules": [{"match": "**", "replicate": True}],
                                  "emit": {"style": "sharded-state", "profile": profile}})
    said = run("reshard", "acme/llama@r1", layout, "acme/bad@1", code=1)
    assert "which is not in the profile" in said, said
    print("sharded state: the profile's, and a source again")


def stacked():
    """Experts in one tensor, a rank's own: a source again, and so is what is fused inside its rows."""
    rules = [{"match": "**.experts.*.{w1,w3}.weight", "split": [{"axis": "tp", "dim": 0}],
              "own": [{"axis": "ep", "index": 3, "count": 6}]},
             {"match": "**.experts.*.w2.weight", "split": [{"axis": "tp", "dim": 1}],
              "own": [{"axis": "ep", "index": 3, "count": 6}]}, {"match": "**", "replicate": True}]
    emit = {"style": "hf",
            "fuse": [{"name": "{1}.experts.{2}.w13.weight", "dim": 0,
                      "from": ["**.experts.*.w1.weight", "**.experts.*.w3.weight"]}],
            "stack": [{"name": "{1}.experts.w13_weight", "from": "**.experts.*.w13.weight", "index": 2},
                      {"name": "{1}.experts.w2_weight", "from": "**.experts.*.w2.weight", "index": 2}]}
    for rule in rules[:2]:
        rule["own"][0]["index"] = 2
    doc = {"format": "reshard-layout", "version": 1, "name": "stacked",
           "mesh": {"axes": [["ep", 3], ["tp", 2]]}, "rules": rules, "emit": emit}
    done = reshard("acme/mixtral@r1", document("stacked", doc), "acme/mixtral-stacked@r1")
    assert done["unlisted_tensors"] == 0, done
    head, _ = view_checks.header(f"{exported('acme/mixtral-stacked@r1')}/rank-00000/model.safetensors")
    assert head["model.layers.0.block_sparse_moe.experts.w13_weight"]["shape"] == [2, 64, 128], head.keys()
    reshard("acme/mixtral-stacked@r1", "tp4", "acme/mixtral-again@r1")
    check("mixtral", "tp4", "acme/mixtral-again@r1")
    print("fused and stacked experts are a source again")


def profiles():
    """A profile written from an engine: checked, registered, and what a layout must fit."""
    packages = fake_engine.write(f"{TOP}/packages")
    path, model = f"{TOP}/written.json", f"{TOP}/src/llama"
    subprocess.run([sys.executable, "-B", f"{HERE}/../../tools/write-profile.py", "vllm", model, "-o", path],
                   env=dict(os.environ, PYTHONPATH=packages), check=True)
    check_args = ["layout", "check", "tp1-vllm", "--model", model]
    assert "profile vllm-llama: every rank holds its" in run(*check_args)
    assert f"profile {path}: every rank holds its" in run(*check_args, "--profile", path)
    assert "dimension 0 is" in run("layout", "check", "tp2-vllm", "--model", model, "--profile", path, code=1)
    assert "--profile needs --model" in run("layout", "check", "tp2", "--profile", path, code=2)
    assert 'no profile "nobody"' in run(*check_args, "--profile", "nobody", code=1)
    with open(path, encoding="utf-8") as f:
        written = json.load(f)
    assert run("layout", "add", path).startswith("written: a profile")
    assert run("layout", "add", path).startswith("written: a profile")
    assert "written:" not in run("layout", "ls")
    assert "profile written: every" in run(*check_args, "--profile", "written")
    written["tensors"]["model.norm.weight"]["dtype"] = "F32"
    other = document("written-other", written)
    assert "model.norm.weight: type BF16, in the profile F32" in run(*check_args, "--profile", other, code=1)
    shutil.copy(other, path)
    assert "another profile" in run("layout", "add", path, code=1)
    print("a profile that an engine wrote, checked and registered")


def scattered():
    """What is fused inside its rows is listed row by row, and beyond 1,024 rows it is said to be missing."""
    imported("wide")
    doc = document("rows", {
        "format": "reshard-layout", "version": 1, "name": "rows", "mesh": {"axes": [["tp", 1]]},
        "rules": [{"match": "**", "replicate": True}],
        "emit": {"style": "hf", "fuse": [{"name": "model.layers.{1}.mlp.both.weight", "dim": 1,
                                          "from": ["model.layers.#.mlp.gate_proj.weight",
                                                   "model.layers.#.mlp.up_proj.weight"]}]}})
    done = reshard("acme/llama@r1", doc, "acme/llama-rows@r1")
    assert done["unlisted_tensors"] == 0, done
    reshard("acme/llama-rows@r1", "tp4", "acme/llama-rows@tp4")
    check("llama", "tp4", "acme/llama-rows@tp4")
    assert "2 tensors lie scattered" in run("reshard", "acme/wide@r1", doc, "acme/wide-rows@r1")
    said = run("reshard", "acme/wide-rows@r1", "tp4", "acme/bad@1", code=1)
    assert "no tensor matches model.layers.#.mlp.{gate,up}_proj.weight" in said, said
    print("fused rows are boxes, as far as a table can hold them")


def meshes_of(model):
    """tp × pp × ep as far as the model's widths, blocks and experts go."""
    config = view_checks.model_of(model).config
    experts = next((config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in config), 0)
    blocks = config.get("quantization_config", {}).get("quant_method") == "fp8"
    for tp, pp, ep in itertools.product((1, 2, 4, 8, 16), (1, 2), (1, 2, 4, 8)):
        inside = tp % ep == 0
        if (ep > 1 and ep > experts) or (not inside and ep % tp != 0) or (blocks and tp > 8):
            continue
        name = "-".join(f"{axis}{n}" for axis, n in (("tp", tp), ("pp", pp), ("ep", ep)) if n > 1)
        yield name or "tp1"


def grid_of(count=None):
    """Every mesh of every family, or count of each by lot; each from the result of the one before."""
    for model in ("llama", "qwen-moe", "mixtral", "deepseek-v3", "kimi-k2", "gpt-oss"):
        imported(model)
        source, meshes = f"acme/{model}@r1", list(meshes_of(model))
        for mesh in meshes if count is None else RNG.sample(meshes, count):
            to = f"acme/{model}-grid@{mesh}"
            assert reshard(source, mesh, to)["unlisted_tensors"] == 0, (model, mesh)
            view_checks.check(model, mesh, exported(to))
            shutil.rmtree(f"{TOP}/out")
            os.makedirs(f"{TOP}/out")
            source = to
        print(f"{model}: {len(meshes)} meshes")


def whole_grid():
    grid_of()


def part_of_the_grid():
    grid_of(6)


def main():
    print(f"seed {SEED}")
    for name in ("remote", "out", "src"):
        os.makedirs(f"{TOP}/{name}")
    for check_name in CHECKS:
        globals()[check_name]()
    shutil.rmtree(f"{TOP}/out")


if __name__ == "__main__":
    main()
