"""Shares of a mixture: what an audit of claimed successes does to them."""

import pytest

from robowm.artefacts import write_artefact
from robowm.data.fake import fake_store
from robowm.data.shares import StoreShare, as_shares, held, open_shares
from robowm.errors import UserError


def audit(folder, store, true, false, fingerprint="f"):
    confusion = {"true_positive": true, "false_positive": false, "true_negative": 0, "false_negative": 0}
    inputs = {"imagined": store.fingerprint()}
    write_artefact(folder, kind="imagined_vs_real", fingerprint=fingerprint, inputs=inputs, config={}, confusion=confusion)
    return folder


def test_a_share_follows_how_many_claims_held(tmp_path):
    stores = [fake_store(tmp_path / name, [5, 6]) for name in "ab"]
    folder = audit(tmp_path / "audit", stores[1], true=43, false=55)
    shares, _, inputs = open_shares([{"path": stores[0].path}, {"path": stores[1].path, "share": 0.5, "audit": folder}])
    assert shares[0].share == 1 and shares[1].share == pytest.approx(0.5 * 0.44)
    assert inputs == {"store0": stores[0].fingerprint(), "store1": stores[1].fingerprint(), "store1.audit": "f"}
    assert "audit" not in shares[1].settings() and shares[1].settings()["share"] == shares[1].share


@pytest.mark.parametrize(("true", "false", "expected"), [(0, 0, 1 / 2), (0, 98, 1 / 100), (98, 0, 99 / 100)])
def test_no_count_makes_a_share_of_0_or_1(true, false, expected):
    assert held({"true_positive": true, "false_positive": false}) == expected


def test_an_audit_of_another_store_is_refused(tmp_path):
    audited, other = fake_store(tmp_path / "a", [5]), fake_store(tmp_path / "b", [6])
    folder = audit(tmp_path / "audit", audited, 1, 1)
    with pytest.raises(UserError, match="run evaluate-imagined on it"):
        open_shares([{"path": other.path, "audit": folder}])
    with pytest.raises(UserError, match="does not exist"):
        open_shares([{"path": other.path, "audit": tmp_path / "nothing"}])


def test_without_shares_stores_count_by_their_steps(tmp_path):
    paths = [fake_store(tmp_path / "a", [5, 10]).path, fake_store(tmp_path / "b", [60]).path]
    shares, _, _ = open_shares([{"path": path, "share": None} for path in paths])
    assert [share.share for share in shares] == [15, 60]


def test_some_shares_alone_are_refused():
    with pytest.raises(UserError, match="give each store a number, or none of them"):
        as_shares([{"path": "a", "share": None}, {"path": "b", "share": 0.5}])


def test_a_store_may_be_given_as_its_path_alone():
    assert as_shares(["a", {"path": "b", "share": 2}]) == [StoreShare("a"), StoreShare("b", 2)]


@pytest.mark.parametrize(
    ("stores", "words"),
    [
        ("data/demos", "give a list"),
        ({"path": "data/demos"}, "give a list"),
        ([{"pth": "a"}], "no key 'pth'; did you mean 'path'"),
        ([{"path": "a", "shre": 2}], "no key 'shre'; did you mean 'share'"),
        ([{"share": 2}], "names no path"),
        ([3], "3 is no store"),
    ],
)
def test_stores_that_are_not_stores_are_one_line(stores, words):
    with pytest.raises(UserError, match=words):
        as_shares(stores)
