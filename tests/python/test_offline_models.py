"""Published models by name without a network."""

import os
import subprocess
import sys

import pytest

from stitchcuda import offline_models

PYTHON = os.path.join(os.path.dirname(__file__), "..", "..", "python")


def test_only_files_that_use_it_are_touched(monkeypatch):
    monkeypatch.setattr(offline_models.importlib.util, "find_spec", lambda name: None)
    assert not offline_models.wanted_by("import transformers")
    monkeypatch.setattr(offline_models.importlib.util, "find_spec", lambda name: object())
    assert offline_models.wanted_by("from transformers import AutoConfig") and not offline_models.wanted_by("import torch")


FAKE = """
class AutoConfig:
    @staticmethod
    def from_pretrained(name):
        if name == "cached":
            return "config from the cache"
        raise OSError("offline")
class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(name, config=None):
        if name == "cached":
            return "model from the cache"
        raise OSError("offline")
    @staticmethod
    def from_config(config):
        class Model:
            training = True
            def eval(self):
                self.training = False
                return self
        model = Model()
        model.config = config
        return model
def GPT2Config(**arguments):
    return ("gpt2", arguments)
"""

CHECK = """
from stitchcuda import offline_models
offline_models.install()
offline_models.install()
import os, transformers as t
assert os.environ["HF_HUB_OFFLINE"] == "1"
assert t.AutoConfig.from_pretrained("cached") == "config from the cache"
assert t.AutoModelForCausalLM.from_pretrained("cached") == "model from the cache"
config = t.AutoConfig.from_pretrained("gpt2")
assert config == ("gpt2", {})
for model in (t.AutoModelForCausalLM.from_pretrained("gpt2", config=config), t.AutoModelForCausalLM.from_pretrained("gpt2")):
    assert model.config == config and not model.training
for call in (t.AutoConfig.from_pretrained, t.AutoModelForCausalLM.from_pretrained):
    try:
        call("a/model/of/nobody")
    except OSError:
        continue
    raise SystemExit("an unknown name must stay an error")
"""


def test_the_cache_comes_first_then_the_table(tmp_path):
    (tmp_path / "transformers.py").write_text(FAKE)
    env = {**os.environ, "PYTHONPATH": f"{PYTHON}:{tmp_path}"}
    env.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run([sys.executable, "-c", CHECK], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_configuration_of_the_table_is_one_of_the_library():
    transformers = pytest.importorskip("transformers")
    for name, (cls, arguments) in offline_models._CONFIGS.items():
        config = getattr(transformers, cls)(**arguments)
        for key, value in arguments.items():
            assert list(getattr(config, key)) == list(value) if isinstance(value, list) and key != "attention_types" else hasattr(config, key), (name, key)
