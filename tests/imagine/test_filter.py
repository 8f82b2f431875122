from robowm.imagine.filter import count, decide


def test_every_fate_has_its_reason():
    assert decide(None, 0, None) == "no success"
    assert decide(3, 4, True) == "success too early"
    assert decide(4, 4, None) == decide(4, 4, True) == "kept"
    assert decide(4, 4, False) == "noise draws disagree"


def test_counts_name_every_fate():
    assert count(["kept", "no success", "kept"]) == {"kept": 2, "no success": 1, "success too early": 0, "noise draws disagree": 0}
