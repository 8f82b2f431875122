"""Absorbing guided successes: which part sees what, in which order; that the parts themselves are right is tested where they live."""

from functools import partial

import pytest

from robowm.data.shares import StoreShare
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation import collect
from robowm.flywheel import absorb
from tests.evaluation.test_collect import RecordedEnv
from tests.fakes import NoisePolicy


class Parts:
    """Records what each part was asked for. Collecting is the real one."""

    def __init__(self):
        self.calls = []

    def __call__(self, part, **asked):
        self.calls.append((part, asked))
        return {"line": len(self.calls)}

    def policy(self, **asked):
        self("policy", **asked)
        return NoisePolicy()

    def run(self, tmp_path, parts=("fresh", "further"), **options):
        given = {name: partial(self, name) if name in parts else None for name in ("fresh", "further")}
        settings = {"env": RecordedEnv(), "successes": 3, "max_steps": 12, "stop_after_success": 2, **given, **options}
        return absorb.run(
            init_from="base",
            stores=["demos"],
            rollouts=["rollouts"],
            output_dir=tmp_path,
            dynamics=partial(self, "dynamics"),
            phases=partial(self, "phases"),
            policy=self.policy,
            **settings,
        )


def named(shares, root):
    """Return {name of the store: share}."""
    return {str(share.path).removeprefix(f"{root}/"): share.share for share in shares}


def test_each_iteration_guides_and_trains_the_policy_of_the_one_before(tmp_path):
    parts = Parts()
    assert parts.run(tmp_path, iterations=2) == {"line": 10}
    assert [name for name, _ in parts.calls] == ["dynamics", "phases", "policy", "fresh", "further"] * 2
    first, second = dict(parts.calls[:5]), dict(parts.calls[5:])
    one, two = tmp_path / "iteration1", tmp_path / "iteration2"
    assert first["policy"] == {"path": absorb.Path("base"), "dynamics": one / "dynamics", "phases": one / "phases"}
    assert [second[name]["encoder"] for name in ("dynamics", "phases")] == [one / "further"] * 2
    assert second["policy"]["path"] == one / "further"
    assert first["further"]["init_from"] == one / "fresh" and second["further"]["init_from"] == two / "fresh"
    assert [first["further"]["output_dir"], second["further"]["output_dir"]] == [one / "further", tmp_path]


def test_who_learns_from_what(tmp_path):
    parts = Parts()
    parts.run(tmp_path, iterations=2)
    last = dict(parts.calls[5:])
    guided = ["iteration1/guided", "iteration2/guided"]
    assert named(last["dynamics"]["stores"], tmp_path) == {"demos": 1, "rollouts": 1, guided[0]: 1}
    assert named(last["phases"]["stores"], tmp_path) == {"demos": 1}
    assert named(last["fresh"]["stores"], tmp_path) == {"demos": None, guided[0]: None, guided[1]: None}
    assert named(last["further"]["stores"], tmp_path) == pytest.approx({"demos": 0.2, guided[0]: 0.4, guided[1]: 0.4})


def test_guided_episodes_are_successes_from_new_starts_each_iteration(tmp_path):
    Parts().run(tmp_path, iterations=2, first_seed=11_000)
    seeds = [[meta.source.seed for meta in EpisodeStore.open(tmp_path / f"iteration{i}/guided").metas] for i in (1, 2)]
    kept = [seed for seed in range(11_000, 11_020) if seed % 3][:6]
    assert seeds == [kept[:3], kept[3:]]
    assert {meta.source.round for meta in EpisodeStore.open(tmp_path / "iteration2/guided").metas} == {2}


def test_called_again_it_collects_nothing_anew(tmp_path, monkeypatch):
    Parts().run(tmp_path, iterations=1)

    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(collect, "run_episodes", never)
    parts = Parts()
    parts.run(tmp_path, iterations=1)
    assert parts.calls[-1][1]["output_dir"] == tmp_path


@pytest.mark.parametrize("part", ["fresh", "further"])
def test_a_single_training_is_the_result(tmp_path, part):
    parts = Parts()
    parts.run(tmp_path, parts=(part,))
    assert parts.calls[-1][0] == part and parts.calls[-1][1]["output_dir"] == tmp_path


def test_a_mixture_keeps_the_proportions_of_demonstrations():
    demos = [StoreShare("a", 1.0), StoreShare("b", 3.0)]
    assert named(absorb.mixture(demos, [StoreShare("g")], 0.6), "") == pytest.approx({"a": 0.1, "b": 0.3, "g": 0.6})


@pytest.mark.parametrize("options", [{"parts": ()}, {"iterations": 0}, {"guided_share": 1.0}])
def test_nothing_to_do_is_one_line(tmp_path, options):
    with pytest.raises(UserError, match="give fresh, further or both"):
        Parts().run(tmp_path, **options)
