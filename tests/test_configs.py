"""Configs and code agree: every verb composes at every size, and its keys are its run()'s keywords."""

import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from robowm.apps.cli import VERBS, module_of
from robowm.apps.explain import choices, keywords_of
from robowm.apps.harness import RESERVED, compose_verb, config_folder, find
from robowm.flywheel.stages import expand
from robowm.seeds import check_seeds

CONFIGS = config_folder()
SIZES = choices(CONFIGS, "size")
EXPERIMENTS = choices(CONFIGS, "experiment")
DULL = ("plain", "filtered", "awr", "iql", "recap", "sirius", "iwr", "filtered_no_pretakeover", "demos+human")
FILLED = {"imagine": ["env=tabletop/push"]}  # beyond what ??? leaves open
WHERE = {"metaworld": ["env=metaworld/drawer_open"], "robosuite": ["env=robosuite/lift"]}  # for actors that need its keys


def app_of(verb):
    return import_module(f"robowm.apps.{module_of(verb)}").APP


def text_of(verb):
    return (CONFIGS / f"{module_of(verb)}.yaml").read_text()


@functools.cache
def composed(verb, *words):
    return compose_verb(verb, words)


def keys_of(verb, config):
    return {key for key in config if key not in (*RESERVED, *config.get("helpers", app_of(verb).helpers))} | {"output_dir"}


RECIPES = [("improve", f"recipe={name}") for name in choices(CONFIGS, "recipe")]
WEIGHTINGS = [("weigh", f"weighting={name}") for name in choices(CONFIGS, "weighting")]
CRITICS = [("train-critics", f"critic={name}") for name in choices(CONFIGS, "critic")]


@pytest.mark.parametrize("words", [*((verb,) for verb in VERBS), *RECIPES, *WEIGHTINGS, *CRITICS], ids=" ".join)
def test_keys_are_the_keywords_of_run(words):
    verb, config = words[0], composed(*words)
    run = find(config.get("run", app_of(verb).run), config["trusted"])
    kinds = {parameter.kind for parameter in inspect.signature(run).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    known, needed = keywords_of(run)
    assert set(needed) <= keys_of(verb, config) <= set(known)


def test_import_formats_match_their_readers():
    for name in choices(CONFIGS, "format"):
        config = composed("import", f"format={name}")
        assert keys_of("import", config) <= set(keywords_of(find(config["run"], config["trusted"]))[0])


@pytest.mark.parametrize("verb", VERBS)
def test_every_helper_is_referred_to(verb):
    texts = [path.read_text() for path in CONFIGS.rglob("*.yaml")]
    for helper in app_of(verb).helpers:
        assert any(re.search(rf"\$\{{{helper}[.}}]", text) for text in texts), helper


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_the_same_numbers(size):
    def names(node):
        return {key: names(value) if isinstance(value, dict) else None for key, value in node.items()}

    load = lambda name: OmegaConf.to_container(OmegaConf.load(CONFIGS / "size" / f"{name}.yaml"))  # noqa: E731
    assert names(load(size)) == names(load("tiny"))
    assert load(size)["name"] == size


def test_every_number_of_a_size_is_used():
    texts = "".join(path.read_text() for path in CONFIGS.rglob("*.yaml"))
    tiny = OmegaConf.to_container(OmegaConf.load(CONFIGS / "size" / "tiny.yaml"))
    unused = [
        f"{part}.{key}"
        for part, values in tiny.items()
        if isinstance(values, dict)
        for key in values
        if f"${{size.{part}.{key}}}" not in texts
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("verb", "group"),
    [
        ("collect", "env"),
        ("rollout", "actor"),
        ("train-policy", "policy"),
        ("train-world-model", "world_model"),
        ("improve", "tracking"),
        ("improve", "recipe"),
        ("train-critics", "steps_to_go"),
        ("train-critics", "critic"),
        ("takeover", "style"),
        ("takeover", "person"),
        ("weigh", "weighting"),
        ("bench", "suite"),
        ("bench", "env"),
        ("flywheel", "stages"),
        ("flywheel", "experiment"),
    ],
)
def test_every_choice_composes_and_its_targets_take_its_keys(verb, group):
    for choice in choices(CONFIGS, group):
        where = WHERE.get(choice.split("_")[0], []) if group in ("actor", "person") else []
        check_targets_take(composed(verb, f"{group}={choice}", *where))


def check_targets_take(node):
    if isinstance(node, list):
        for item in node:
            check_targets_take(item)
    if not isinstance(node, dict):
        return
    for item in node.values():
        check_targets_take(item)
    if "_target_" in node:
        module, _, name = node["_target_"].rpartition(".")
        known, needed = map(set, keywords_of(getattr(import_module(module), name)))
        given = {key for key in node if not key.startswith("_")}
        assert given <= known, (node["_target_"], given - known)
        if node["_target_"] != "robowm.nn.unet.VideoUNet" and not node.get("_partial_"):
            assert needed <= given, (node["_target_"], needed - given)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_composes_with_its_targets(verb):
    check_targets_take(composed(verb, *FILLED.get(verb, [])))


def stages_of(experiment, size, *words):
    config = composed("flywheel", f"experiment={experiment}", f"size={size}", *words)
    tasks = [config["task"]] if isinstance(config["task"], str) else config["task"]
    seeds = [config["train_seed"]] if isinstance(config["train_seed"], int) else config["train_seed"]
    known = {"offsets": config["offsets"], "per_task": config["per_task"]}
    return config, expand(config["stages"], tasks=tasks, train_seeds=seeds, common={"size": size}, **known)


@pytest.mark.parametrize(
    ("experiment", "size", "task"), [("demo", "tiny", "pick_place"), ("loop_small", "small", "insert"), ("loop_whole", "small", "push")]
)
def test_every_stage_composes_and_no_start_is_used_for_two_things(experiment, size, task):
    used = {}
    for stage in stages_of(experiment, size)[1]:
        if stage.name.startswith(f"{task}-0/"):
            config = composed(stage.verb, *stage.words())
            run = find(config.get("run", app_of(stage.verb).run), config["trusted"])
            assert keys_of(stage.verb, config) <= set(keywords_of(run)[0])
            for purpose, seeds in seeds_of(stage.verb, config):
                check_seeds(purpose, seeds)
                used.setdefault(purpose, {})[stage.name] = set(seeds)
    evaluations = [name for name in used["evaluation"] if "/evaluate_" in name]
    assert len({frozenset(used["evaluation"][name]) for name in evaluations}) == 1
    for name in evaluations[1:]:
        del used["evaluation"][name]
    for purpose, sets in used.items():
        assert sum(map(len, sets.values())) == len(set().union(*sets.values())), purpose


@pytest.mark.parametrize("task", ["discs", "tabletop_push_hidden", "metaworld_drawer_open"])
def test_every_stage_of_a_world_model_study_composes_and_held_out_starts_stay_apart(task):
    experiment = f"world_model_{task.split('_')[0]}"
    config, stages = stages_of(experiment, "small")
    assert config["task"] == task and f"outputs/{experiment}" == config["output_dir"]
    arms, used = set(), {}
    for stage in stages:
        composition = composed(stage.verb, *stage.words())
        run = find(composition.get("run", app_of(stage.verb).run), composition["trusted"])
        assert keys_of(stage.verb, composition) <= set(keywords_of(run)[0])
        arms.add(composition.get("arm"))
        for purpose, seeds in seeds_of(stage.verb, composition):
            check_seeds(purpose, seeds)
            used.setdefault(stage.name.split("/")[1] if purpose == "evaluation" else stage.name, set()).update(seeds)
    assert {pair[side] for pair in config["pairs"] for side in "ab"} <= arms
    assert sum(map(len, used.values())) == len(set().union(*used.values()))


@pytest.mark.parametrize(("choice", "verb"), [("loop_post_trained", "train-world-model"), ("loop_rl", "rl-world-model")])
def test_the_loop_may_imagine_with_a_post_trained_world_model(choice, verb):
    _, stages = stages_of("demo", "tiny", f"stages={choice}")
    by_name = {stage.name.split("/")[1]: stage for stage in stages}
    plain = {stage.name.split("/")[1] for stage in stages_of("demo", "tiny")[1]}
    assert by_name.keys() - plain == {"post_trained", "evaluate_post_trained"}
    assert "pick_place-0/post_trained" in by_name["imagined"].needs and "pick_place-0/world_model" in by_name["post_trained"].needs
    assert by_name["post_trained"].verb == verb
    config = composed(verb, *by_name["post_trained"].words())
    assert keys_of(verb, config) <= set(keywords_of(find(app_of(verb).run, config["trusted"]))[0])


def seeds_of(verb, config):
    """Return (purpose, start seeds) of a stage; a collection until so many successes may try three times as many."""
    if verb == "imagine":
        first = config["starts"]["first_seed"]
        return [("rollouts", range(first, first + config["starts"]["count"]))]
    if "first_seed" not in config:
        return []
    count = config["episodes"] or 3 * config["until_successes"]
    return [(config["purpose"], range(config["first_seed"], config["first_seed"] + count))]


def test_train_seeds_use_other_demonstrations_and_rollouts_but_the_same_evaluation_starts():
    _, stages = stages_of("loop_small", "small")
    starts = {}
    for stage in stages:
        if stage.name in [
            f"insert-{seed}/{name}" for seed in (0, 1) for name in ("demos", "rollouts", "imagined", "judged", "evaluate_both")
        ]:
            config = composed(stage.verb, *stage.words())
            for purpose, seeds in seeds_of(stage.verb, config):
                starts.setdefault(stage.name.split("/")[1], []).append((purpose, set(seeds)))
    for name, sets in starts.items():
        together = set().union(*(seeds for _, seeds in sets))
        if sets[0][0] in ("demonstrations", "rollouts"):
            assert sum(len(seeds) for _, seeds in sets) == len(together), name
        else:
            assert sets[0][1] == together, name


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_pairs_and_arms_written_down_beforehand_are_evaluated(experiment):
    config, stages = stages_of(experiment, "tiny")
    arms = {stage.overrides["arm"] for stage in stages if stage.verb == "evaluate" and stage.overrides.get("purpose") is None}
    models = {stage.overrides["arm"] for stage in stages if stage.verb == "evaluate-world-model" and "arm" in stage.overrides}
    assert set(config["arms"]) == arms and arms | models
    for pair in config["pairs"]:
        assert {pair["a"], pair["b"]} <= (models if pair.get("metric") == "fidelity" else arms), pair
    promised = {
        "+real+imagined": {("+real+imagined", "base_longer"), ("+real+imagined", "+real")},
        "habc": {(a, b) for a in ("habc", "habc_all") for b in DULL},
        "rac": {("rac", "hg_dagger"), ("rac", "demos"), ("hg_dagger", "demos")},
        "guided_ft1": {("guided_ft1", "unguided_matched"), ("guided_fs", "unguided_matched_fs"), ("pcg", "lpb")},
    }
    for arm, pairs in promised.items():
        assert arm not in arms or pairs <= {(pair["a"], pair["b"]) for pair in config["pairs"]}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_stage_of_an_experiment_composes(experiment):
    _, stages = stages_of(experiment, "tiny")
    alike = {}
    for stage in stages:
        groups = ("actor", "env", "guidance", "loss", "reward", "weighting", "critic", "style", "person")
        choices_made = {key: value for key, value in stage.overrides.items() if key in groups}
        alike.setdefault((stage.verb, tuple(sorted(stage.overrides)), str(choices_made)), stage)
    for stage in alike.values():
        composed(stage.verb, *stage.words())


@pytest.mark.parametrize("experiment", ["habc_tabletop", "habc_metaworld"])
def test_arms_of_habc_differ_in_weights_alone(experiment):
    config, stages = stages_of(experiment, "tiny")
    task = config["task"][0]
    arms = {stage.name.split("/")[1]: stage for stage in stages if stage.name.startswith(f"{task}-0/") and stage.verb == "improve"}
    assert len(arms) == len(config["arms"]) - 1
    bare = lambda stage: {key: value for key, value in stage.overrides.items() if key not in ("stores", "early_steps")}  # noqa: E731
    paths = lambda stage: [share["path"] for share in stage.overrides["stores"]]  # noqa: E731
    for name, stage in arms.items():
        assert bare(stage) == bare(arms["plain"]) and paths(stage) == paths(arms["plain"])
        used = {share[key] for share in stage.overrides["stores"] for key in ("weights", "early_weights") if key in share}
        assert {f"{task}-0/weigh_{sidecar}" for sidecar in used} <= set(stage.needs), name  # nothing reads a sidecar before it is there
        assert name == "plain" or used
    metrics = {pair.get("metric", "success") for pair in config["pairs"] if pair["a"] == "habc" and pair["b"] in DULL}
    assert metrics == {"success", "steps_to_success", "steps_to_success@solved"}


@pytest.mark.parametrize("experiment", ["habc_tabletop", "habc_metaworld", "rac"])
def test_starts_of_habc_and_rac_are_used_once(experiment):
    config, stages = stages_of(experiment, "small")
    used = {}
    for stage in stages:
        if stage.verb in ("collect", "rollout", "takeover") and stage.name.startswith(f"{config['task'][0]}-"):
            first = stage.overrides["first_seed"]
            count = stage.overrides.get("episodes") or stage.overrides.get("max_tries") or 500
            used[stage.name] = range(first, first + count)
            check_seeds("demonstrations" if stage.verb == "collect" else "rollouts", used[stage.name])
    assert len(used) in (9, 12) and sum(map(len, used.values())) == len(set().union(*used.values()))


def test_extra_training_arms_make_the_same_number_of_updates():
    _, stages = stages_of("demo", "tiny")
    arms = [composed(stage.verb, *stage.words()) for stage in stages if stage.verb == "improve"]
    assert len(arms) == 4
    kept = ("steps", "batch_size", "optim", "seed", "init_from")
    assert all({key: arm[key] for key in kept} == {key: arms[0][key] for key in kept} for arm in arms)


def test_a_wheel_finds_the_configs_inside_the_package(tmp_path, monkeypatch):
    import robowm

    package = tmp_path / "robowm"
    (package / "configs").mkdir(parents=True)
    (package / "configs" / "app.yaml").write_text("")
    monkeypatch.setattr(robowm, "__file__", str(package / "__init__.py"))
    assert config_folder() == Path(package / "configs")


def test_what_a_stage_is_to_make_reaches_its_verb_unmade(monkeypatch, tmp_path):
    from robowm.apps.flywheel import APP
    from robowm.apps.harness import launch
    from robowm.flywheel import loop

    given = {}

    @functools.wraps(loop.run)
    def seen(**arguments):
        given.update(arguments)

    monkeypatch.setattr(loop, "run", seen)
    assert launch(APP, ["experiment=rac", f"output_dir={tmp_path}"]) in (0, None)
    watcher = given["stages"]["evaluate_base"]["overrides"]["measures"]["recoveries"]["person"]
    assert watcher["_target_"] == "sim.experts.person.TabletopPerson" and watcher["task"] == "{task}"


@pytest.mark.parametrize("experiment", ["world_model_discs", "world_model_tabletop", "world_model_metaworld"])
def test_the_windows_that_the_documents_name_are_the_configs_ones(experiment):
    from robowm.rl.experience import Sampling
    from robowm.world_model.self_forcing import SelfForwarded, SelfRollout

    subject = OmegaConf.create(composed("flywheel", f"experiment={experiment}")["subject"])
    chunk = composed("train-world-model", f"world_model={subject.world_model}")["world_model"]["chunk"]
    assert (chunk, composed("evaluate-world-model")["horizon"]) == (4, 60)
    windows = [chunk * loss(depth=subject.further.depth).chunks for loss in (SelfRollout, SelfForwarded, Sampling)]
    assert windows == [24, 28, 28] and [round(60 / window, 1) for window in windows[:2]] == [2.5, 2.1]
    said = " ".join((CONFIGS.parent / "docs" / "results.md").read_text().split("<!-- results: begin")[0].split())
    assert all(
        text in said for text in (experiment, "self_rollout 24 frames", "up to 28", "2.5 and 2.1 times the window", "15 times its window")
    )
