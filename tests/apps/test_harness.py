import json
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from robowm.apps.explain import user_error
from robowm.apps.harness import launch
from robowm.apps.sweeps import Sweep
from robowm.locks import exclusive
from tests.apps import fake


def run(app, *words):
    return launch(app, ["output_dir=out", "part.path=x", *words])


def test_groups_become_objects_nodes_stay_nodes_and_what_was_built_is_closed(fake_app):
    assert run(fake_app, "part=wide", "size=debug", "items=[{path: a}, {path: b}]") == 0
    assert (fake.LAST["part"].width, fake.LAST["part"].closed, fake.LAST["steps"]) == (100, True, 2)
    assert fake.LAST["model"] == {"_target_": "tests.apps.fake.Part", "width": 2}
    assert fake.LAST["items"] == [{"path": "a"}, {"path": "b"}]
    assert json.loads(Path("out/command.json").read_text())["config"]["part"]["width"] == 100


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["stepz=3"], "unknown key 'stepz' for robowm fake; did you mean 'steps'?"),
        (["part.widht=3"], "unknown key 'part.widht' for robowm fake in part; did you mean 'width'?"),
        (["size.stpes=3"], "unknown key 'size.stpes' for robowm fake in size; did you mean 'steps'?"),
        (["+optionl=1"], "unknown key 'optionl' for robowm fake; did you mean 'optional'?"),
        (["part=wyde"], "unknown choice part=wyde; did you mean 'wide'?"),
        (["size=debgu"], "unknown choice size=debgu; did you mean 'debug'?"),
        (["prat=wide"], "unknown key 'prat' for robowm fake; did you mean 'part'?"),
        (["part.path=???"], "missing: part.path; give e.g. part.path=..."),
        (["part.width=-1"], "part.width=-1; it must be a whole number of at least 1"),
        (["+part.height=1"], "unexpected keyword argument 'height'"),
        (["part._target_=tests.apps.fake.Prat"], "tests.apps.fake.Prat"),
        (["part._target_=os.system"], "_target_ os.system is outside the trusted packages ['tests']"),
        (["model._target_=os.system"], "_target_ os.system is outside the trusted packages ['tests']"),
        (["seed=7"], "seed 7 brings bad luck; take another"),
        (["+stores=[{path: nowhere}]"], "stores: nowhere does not exist; expected the folder of a store"),
        (["+stores={expert: nowhere}"], "stores: nowhere does not exist; expected the folder of a store"),
        (["seed=9"], "no space left on the disk (some/file)"),
        (["seed=10"], "is no rendering back-end; unset it, or use egl or osmesa"),
        (["steps=[1"], "steps=[1"),
    ],
)
def test_what_the_user_can_put_right_is_one_line_and_exit_code_2(fake_app, capfd, words, line):
    assert run(fake_app, *words) == 2
    err = capfd.readouterr().err
    assert line in err
    assert len(err.strip().splitlines()) == 1


def test_a_finished_run_says_what_it_measured_and_where_it_is(fake_app, capfd):
    assert run(fake_app, "part=wide") == 0
    *rows, last = capfd.readouterr().out.splitlines()
    assert rows == [f"fake/task  base  {metric}  0.4167 [0.25, 0.5]  n=12" for metric in ("success", "psnr@mean")]
    assert last.startswith("robowm fake: done in ") and last.endswith(", see out")


@pytest.mark.parametrize("word", ["seed=8", "part.width=13"])
def test_a_fault_of_ours_shows_its_traceback_and_exits_1(fake_app, capfd, word):
    assert run(fake_app, word) == 1
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert "a fault of ours" in err


def test_full_error_adds_the_traceback_of_a_user_error(fake_app, capfd, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert run(fake_app, "seed=7") == 2
    assert "Traceback" in capfd.readouterr().err


def test_a_second_run_into_a_folder_in_use_is_told(fake_app, capfd, monkeypatch, tmp_path):
    import multiprocessing

    monkeypatch.setattr("robowm.apps.harness.CLAIM_WAIT_S", 0.0)
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    holder = context.Process(target=hold, args=("out", ready, stop))
    holder.start()
    assert ready.wait(30)
    assert run(fake_app) == 2
    assert "out is in use by process" in capfd.readouterr().err
    assert not Path("out/command.json").exists()
    stop.set()
    holder.join()


def hold(folder, ready, stop):
    with exclusive(folder):
        ready.set()
        stop.wait(60)


def test_no_files_but_the_runs_own_are_left_in_the_launch_directory(fake_app):
    assert run(fake_app) == 0
    assert sorted(path.name for path in Path().iterdir()) == ["out"]
    assert sorted(path.name for path in Path("out").iterdir()) == [".lock", "command.json", "result.json"]


def test_a_sweep_finishes_its_other_jobs_and_says_which_failed(fake_app, capfd):
    assert run(fake_app, "-m", "seed=1,7,8,2") == 1
    out, err = capfd.readouterr()
    assert [json.loads(Path(f"out/{job}/result.json").read_text())["seed"] for job in (0, 3)] == [1, 2]
    assert not Path("out/1/result.json").exists()
    assert "2 of 4 jobs done" in out
    assert out.count("FAILED") == 2
    assert "seed 7 brings bad luck" in out
    assert "a fault of ours" in err


def test_a_sweep_that_succeeds_exits_0_and_separates_its_folders(fake_app):
    assert run(fake_app, "-m", "seed=1,2", "steps=3,4") == 0
    found = {json.dumps(json.loads(p.read_text()) | {"pid": 0}) for p in Path("out").glob("*/result.json")}
    assert found == {json.dumps({"seed": seed, "steps": steps, "pid": 0}) for seed in (1, 2) for steps in (3, 4)}


@pytest.mark.parametrize("word", ["output_dir=a,b", "output_dir=run-${part.width}"])
def test_a_folder_that_varies_with_the_job_is_taken_as_it_stands(fake_app, word):
    swept = [] if "," in word else ["part.width=5,6"]
    assert launch(fake_app, ["part.path=x", word, *swept, "-m"]) == 0
    folders = {path.parent.name for path in Path().glob("*/result.json")}
    assert folders == ({"a", "b"} if "," in word else {"run-5", "run-6"})


def test_a_sweep_with_a_misspelt_key_starts_no_job(fake_app, capfd):
    assert run(fake_app, "-m", "stepz=1,2") == 2
    assert "did you mean 'steps'?" in capfd.readouterr().err
    assert not list(Path().glob("out/*/result.json"))


def test_help_lists_keys_defaults_comments_and_choices(fake_app, capsys):
    assert launch(fake_app, ["--help"]) == 0
    text = capsys.readouterr().out
    assert "part=narrow  of  narrow, wide" in text
    assert "steps=20" in text and "how many" in text
    assert "part.path=???" in text and "where it comes from" in text
    assert "part.width=1" in text and "how wide" in text


def test_a_target_that_fails_to_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "sim_broken.py").write_text("raise RuntimeError('the library was built for another CPU')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InstantiationException) as caught:
        instantiate({"_target_": "sim_broken.Env"})
    assert "the library was built for another CPU" in str(user_error(caught.value))


def test_a_sweep_of_which_no_job_started_says_so_in_one_line(tmp_path, capfd):
    sweep = Sweep.__new__(Sweep)
    sweep.folder, sweep.lost = tmp_path, 'RuntimeError: Could not detect "srun"'
    assert sweep.report() == 2
    assert "no job started" in capfd.readouterr().err
