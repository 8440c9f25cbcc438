"""Arguments that a class needs: told by its own file, by a file beside, or asked for with a line that works."""

import ast
import itertools
import json
import shlex

import pytest

from gradscope.errors import TargetError
from gradscope.target import load
from gradscope.target.arguments.settings import settings_read

CONFIGURED = """
    from dataclasses import dataclass

    @dataclass
    class Inner:
        num_blocks: int
        activation: str = "relu"

    @dataclass
    class Config:
        width: int
        body: Inner

    class Net(nn.Module):
        def __init__(self, cfg: Config):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(cfg.width, cfg.width) for _ in range(cfg.body.num_blocks))

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x)
            return x
"""
READING = """
    class Net(nn.Module):
        def __init__(self, args):
            super().__init__()
            self.args = args
            self.blocks = nn.ModuleList(nn.Linear(args.width, args.width) for _ in range(args.num_blocks))

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x) * self.args.scale
            return x
"""
BY_KEY = READING.replace("args.width", 'args["net"]["width"]').replace("args.num_blocks", 'args["net"]["num_blocks"]')


def built(path, **arguments):
    subject = load(path, arguments=arguments)
    return len(subject.model.blocks), subject.model.blocks[0].in_features, subject.notes


def pasted(path):
    """Load a target with the arguments that its error says to give."""
    with pytest.raises(TargetError) as caught:
        load(path)
    words = shlex.split(caught.value.hint)
    given = dict(word.split("=", 1) for before, word in itertools.pairwise(words) if before == "-a")
    return built(path, **{key: ast.literal_eval(value) for key, value in given.items()})


@pytest.mark.parametrize("code", [CONFIGURED, READING, BY_KEY.replace("* self.args.scale", "")])
def test_the_line_to_paste_gives_every_setting_that_is_read(write, code):
    assert pasted(write(code))[:2] == (4, 64)


def test_settings_read_later_are_asked_for_as_well(write):
    with pytest.raises(TargetError) as caught:
        load(write(READING))
    assert "-a num_blocks=4 -a width=64 -a scale=64" in caught.value.hint


def test_a_call_in_the_file_tells_the_arguments(write):
    made = "cfg = Config(width=5, body=Inner(DEPTH))\n        net = Net(cfg)"
    code = CONFIGURED + f"\n    DEPTH = 1 + 2\n    def main():\n        {made}\n"
    num_blocks, width, notes = built(write(code))
    assert (num_blocks, width) == (3, 5)
    assert notes == ("Built as line 30 of user_model.py builds it; -a key=value changes it.",)
    assert built(write(code), width=7)[:2] == (3, 7)


def test_settings_inside_of_a_plain_dict_of_the_file_can_be_changed(write):
    made = 'cfg = {"net": {"width": 5, "num_blocks": 3}}\n        return Net(cfg)'
    code = BY_KEY.replace("* self.args.scale", "") + f"\n    def main():\n        {made}\n"
    assert built(write(code))[:2] == (3, 5)
    assert built(write(code), **{"net.num_blocks": 2})[:2] == (2, 5)
    with pytest.raises(TargetError):
        load(write(code), arguments={"net.depth": 2})


def test_a_call_that_reads_data_tells_nothing(write):
    code = READING + "\n    def main():\n        data = open('train.txt').read()\n        net = Net(data)\n"
    assert pasted(write(code))[:2] == (4, 64)


def test_the_command_line_of_the_file_tells_its_defaults(write):
    parser = """
    def parse():
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("data")
        parser.add_argument("--width", type=int, default=6)
        parser.add_argument("--num-blocks", type=int, default=2, help="how deep")
        parser.add_argument("--scale", type=float, required=True, default=0.5)
        return parser.parse_args()

    if __name__ == "__main__":
        args = parse()
        net = Net(args)
    """
    assert built(write(READING + parser))[:2] == (2, 6)
    assert built(write(READING + parser.replace("net = Net(args)", "")))[:2] == (2, 6)
    plain = READING.replace("self, args", "self, width, num_blocks, scale").replace("self.args = args", "")
    plain = plain.replace("self.args.scale", "0.5").replace("args.", "")
    call = "Net(args.width, num_blocks=args.num_blocks, scale=1)"
    assert built(write(plain + parser.replace("Net(args)", call)))[:2] == (2, 6)


@pytest.mark.parametrize("name", ["user_model.json", "config.json"])
def test_a_file_beside_tells_the_settings(write, tmp_path, name):
    path = write(BY_KEY.replace("self.args.scale", "1"))
    (tmp_path / name).write_text(json.dumps({"net": {"width": 9, "num_blocks": 1}}))
    num_blocks, width, notes = built(path)
    assert (num_blocks, width) == (1, 9)
    assert notes == (f"Built with what {name} says; -a key=value changes it.",)


def test_a_file_beside_that_is_of_something_else_tells_nothing(write, tmp_path):
    path = write(READING.replace("* self.args.scale", ""))
    (tmp_path / "config.json").write_text(json.dumps({"editor": "vi"}))
    assert pasted(path)[:2] == (4, 64)


def test_a_class_that_is_built_in_the_file_is_the_one_meant(write):
    other = READING.replace("class Net", "class Other")
    code = READING + other + "\n    from types import SimpleNamespace\n    def main():\n        "
    code += "return Other(SimpleNamespace(width=3, num_blocks=1, scale=1.0))\n"
    assert built(write(code))[:2] == (1, 3)


def test_settings_that_are_looped_over_are_asked_for_with_an_entry(write):
    code = READING.replace("* self.args.scale", "").replace("args.num_blocks", "len(args.tasks.items())")
    assert pasted(write(code))[:2] == (1, 64)


def test_what_is_read_of_one_configuration_is_not_asked_for_of_another():
    def reads_nothing(settings):
        raise AttributeError("'int' object has no attribute 'depth'")

    assert settings_read(lambda settings: settings.width) == {"width": 64}
    assert settings_read(reads_nothing) == {}
