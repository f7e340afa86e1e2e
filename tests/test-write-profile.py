#!/usr/bin/env python3
"""tools/write-profile.py against stand-ins for torch and the engines."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib")]
import fake_engine  # noqa: E402

CONFIG = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 16,
          "num_key_value_heads": 4, "head_dim": 8, "vocab_size": 200, "tie_word_embeddings": False}


class Profile(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.TemporaryDirectory()
        self.addCleanup(self.top.cleanup)
        self.packages = fake_engine.write(os.path.join(self.top.name, "packages"))

    def run_script(self, engine, config=None, env=None, code=0):
        with open(f"{self.top.name}/config.json", "w", encoding="utf-8") as f:
            json.dump(dict(CONFIG, **(config or {})), f)
        done = subprocess.run([sys.executable, "-B", f"{HERE}/../tools/write-profile.py", engine, self.top.name],
                              capture_output=True, text=True, check=False,
                              env=dict(os.environ, PYTHONPATH=self.packages, **(env or {})))
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr

    def test_names_types_and_shapes_are_the_state_dicts(self):
        p = self.run_script("vllm")
        self.assertEqual((p["format"], p["version"], p["engine"], p["engine_version"]),
                         ("engine-profile", 1, "vllm", "0.8-fake"))
        self.assertEqual(p["tensors"]["model.layers.1.self_attn.qkv_proj.weight"],
                         {"dtype": "BF16", "shape": [192, 128]})
        self.assertEqual(p["tensors"]["model.layers.0.self_attn.attn._k_scale"], {"dtype": "F32", "shape": []})
        self.assertEqual(len(p["tensors"]), 2 * 10 + 3)

    def test_of_tied_tensors_the_smallest_name_stays_and_parts_do_not(self):
        p = self.run_script("vllm", {"tie_word_embeddings": True})
        self.assertIn("lm_head.weight", p["tensors"])
        self.assertNotIn("model.embed_tokens.weight", p["tensors"])
        self.assertNotIn("model.first_row", p["tensors"])
        self.assertNotIn("model.nothing", p["tensors"])

    def test_ranks_that_differ_are_refused_and_only_the_first_writes(self):
        ranks = {"WORLD_SIZE": "2", "RANK": "0"}
        p = self.run_script("vllm", env=ranks)
        self.assertEqual(p["tensors"]["model.embed_tokens.weight"]["shape"], [128, 128])
        self.assertEqual(self.run_script("vllm", env=dict(ranks, RANK="1")), "")
        said = self.run_script("vllm", env=dict(ranks, OTHER_DTYPE="F32"), code=1)
        self.assertIn("lm_head.weight is {'dtype': 'F32'", said)

    def test_an_engine_without_the_names_is_told(self):
        os.unlink(f"{self.packages}/vllm/model_executor/model_loader/utils.py")
        self.assertIn("the engine has none of vllm.model_executor", self.run_script("vllm", code=1))

    def test_other_engines_and_functions_of_ones_own(self):
        p = self.run_script("transformers")
        self.assertEqual((p["engine"], p["engine_version"]), ("transformers", "4-fake"))
        with open(f"{self.packages}/mine.py", "w", encoding="utf-8") as f:
            f.write("import torch\ndef build(model):\n    with torch.device('meta'):\n"
                    "        return {'x': torch.empty((2, 3), torch.float32)}\n"
                    "def odd(model):\n    with torch.device('meta'):\n"
                    "        return {'x': torch.empty((2, 3), torch.qint8)}\n")
        self.assertEqual(self.run_script("mine:build")["tensors"], {"x": {"dtype": "F32", "shape": [2, 3]}})
        self.assertIn("x: safetensors has no type for torch.qint8", self.run_script("mine:odd", code=1))
        self.assertIn("no engine \"nobody\"", self.run_script("nobody", code=1))


if __name__ == "__main__":
    unittest.main()
