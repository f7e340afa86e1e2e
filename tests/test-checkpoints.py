#!/usr/bin/env python3
"""Facts about the generated checkpoints: public tensor counts, the pattern, the file format."""
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import checkpoints  # noqa: E402
import models  # noqa: E402


class Shapes(unittest.TestCase):
    def test_tensor_counts_are_those_of_the_published_models(self):
        for name, count in (("llama-3-8b", 291), ("llama-3-70b", 723), ("qwen2-0.5b", 290),
                            ("qwen-moe", 18867), ("mixtral-8x7b", 995), ("deepseek-v3", 90427),
                            ("deepseek-v3-mtp", 91991), ("kimi-k2", 139583),
                            ("gpt-oss-20b", 459)):
            named = [t[0] for t in models.tensors(models.MODELS[name].config)]
            self.assertEqual(len(named), count, name)
            self.assertEqual(len(set(named)), count, name)

    def test_sizes_and_file_counts_are_those_of_the_published_models(self):
        for name, size, files in (("llama-3-8b", 16060522496, 4),
                                  ("llama-3-70b", 141107412992, 30),
                                  ("qwen2-0.5b", 988065536, 1), ("qwen-moe", 61064245248, 16),
                                  ("mixtral-8x7b", 93405585408, 19),
                                  ("deepseek-v3-mtp", 688574839360, 163),
                                  ("kimi-k2", 1029173249888, 61)):
            m = models.MODELS[name]
            named = list(models.tensors(m.config))
            self.assertEqual(sum(checkpoints.nbytes(t[1], t[2]) for t in named), size, name)
            self.assertEqual(len(checkpoints.shards(m, named)), files, name)

    def test_scaling_keeps_the_names_and_divides_the_widths(self):
        full, small = models.MODELS["mixtral-8x7b"], models.MODELS["mixtral-8x7b"]
        small = models.resized(small, layers=2, scale=8)
        names = {t[0]: t for t in models.tensors(full.config)}
        for name, _dtype, shape in models.tensors(small.config):
            want = [n if n == 8 else n // 8 for n in names[name][2]]
            self.assertEqual(list(shape), want, name)


class Pattern(unittest.TestCase):
    def test_every_word_follows_the_formula(self):
        s, n = checkpoints.seed("a.weight"), 300000
        data = checkpoints.pattern("a.weight", 0, 8 * n)
        for w in list(range(0, n, 997)) + [n - 1]:
            want = (s + w * checkpoints.STEP) % 2**64
            self.assertEqual(int.from_bytes(data[8 * w:8 * w + 8], "little"), want, w)

    def test_any_slice_equals_that_slice_of_the_whole(self):
        whole = checkpoints.pattern("b", 0, 4001)
        for begin, end in ((0, 1), (7, 9), (8, 16), (3, 4001), (1234, 3999), (4000, 4001)):
            self.assertEqual(checkpoints.pattern("b", begin, end - begin), whole[begin:end])


class Files(unittest.TestCase):
    def test_a_written_checkpoint_reads_back(self):
        m = models.resized(models.MODELS["tiny"], layers=1, scale=4)
        with tempfile.TemporaryDirectory() as dest:
            checkpoints.write(m, models.tensors(m.config), dest, "pattern")
            with open(os.path.join(dest, "model.safetensors.index.json"), encoding="utf-8") as f:
                index = json.load(f)
            want = {t[0]: t for t in models.tensors(m.config)}
            self.assertEqual(set(index["weight_map"]), set(want))
            for file in set(index["weight_map"].values()):
                with open(os.path.join(dest, file), "rb") as f:
                    data = f.read()
                n = int.from_bytes(data[:8], "little")
                entries = json.loads(data[8:8 + n])
                entries.pop("__metadata__")
                end = 0
                for name, e in sorted(entries.items(), key=lambda i: i[1]["data_offsets"]):
                    self.assertEqual((e["dtype"], tuple(e["shape"])), want[name][1:], name)
                    self.assertEqual(e["data_offsets"][0], end, name)
                    end = e["data_offsets"][1]
                    got = data[8 + n + e["data_offsets"][0]:8 + n + end]
                    self.assertEqual(got, checkpoints.pattern(name, 0, len(got)), name)
                self.assertEqual(len(data), 8 + n + end)

    def test_a_hub_cache_snapshot_is_links_to_blobs(self):
        m = models.resized(models.MODELS["tiny"], layers=1, scale=4)
        with tempfile.TemporaryDirectory() as top:
            plain = os.path.join(top, "plain")
            checkpoints.write(m, models.tensors(m.config), plain)
            snapshot = checkpoints.to_hub_cache(plain, os.path.join(top, "hub"), m.repo, "r1")
            config = os.path.join(snapshot, "config.json")
            self.assertTrue(os.readlink(config).startswith("../../blobs/"))
            with open(config, encoding="utf-8") as f:
                self.assertEqual(json.load(f)["model_type"], "llama")
            self.assertTrue(os.path.exists(os.path.join(snapshot, "original", "params.json")))


if __name__ == "__main__":
    unittest.main()
