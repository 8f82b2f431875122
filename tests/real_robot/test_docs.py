"""The page for newcomers: every command of ours on it composes, with the variables it names for the simulated robot."""

import re
import shlex
from pathlib import Path

import pytest

from real_robot.commands import opened
from robowm.apps.harness import compose_verb, config_folder
from robowm.apps.help import compose_config

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "so101.md").read_text()
SIM = {
    "$ROBOT": "robot=sim robot.speed=4 operator=scripted",
    "$TELEOP": "teleop=sim_expert",
    '"$TASK"': "task='put the red cube into the blue tray'",
}
SO101 = {
    "$ROBOT": "robot.type=so101_follower robot.port=/dev/ttyACM0 "
    "robot.cameras={front:{type:opencv,index_or_path:0,width:640,height:480,fps:30}}",
    "$TELEOP": "teleop.type=so101_leader teleop.port=/dev/ttyACM1",
    '"$TASK"': "task='put the red cube into the blue tray'",
}


def commands():
    text = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    return [line.split("   #")[0].strip() for line in text.splitlines() if line.startswith(("eval python -m real_robot", "robowm "))]


@pytest.mark.parametrize("variables", [SIM, SO101], ids=["sim", "so101"])
@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_page_composes(line, variables):
    for name, value in variables.items():
        line = line.replace(name, value)
    words = shlex.split(line.removeprefix("eval "))
    if words[0] == "robowm":
        compose_verb(words[1], words[2:])
    else:
        compose_config(f"real_robot/{words[2].removeprefix('real_robot.')}", config_folder(), opened(words[3:]))


def test_the_page_has_all_steps():
    verbs = {line.split()[3] if line.startswith("eval") else line.split()[1] for line in commands()}
    assert verbs >= {"real_robot.collect", "real_robot.replay", "real_robot.deploy", "train-policy", "train-critics", "weigh", "improve"}
