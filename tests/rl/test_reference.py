import pytest
import torch

from robowm.errors import UserError
from robowm.rl.reference import Reference, disagreement, disputed, is_due, moved_share, ranks


def test_ranks_count_from_the_lowest():
    assert ranks(torch.tensor([[3.0, -1.0, 2.0], [0.0, 1.0, 0.5]])).tolist() == [[2, 0, 1], [0, 2, 1]]


def test_disagreement_is_positive_where_the_main_metric_overrates():
    main = torch.tensor([[0.0, 1.0, 2.0]])
    others = torch.tensor([[[2.0, 1.0, 0.0]], [[2.0, 0.0, 1.0]]])
    u = disagreement(main, others)
    assert u.tolist() == [[-2.0, 0.5, 1.5]], "the best under main is worse under both others"
    assert (disagreement(main, main[None]) == 0).all()
    scaled = disagreement(main * 100 - 7, others)
    assert torch.equal(scaled, u), "units of the metrics do not matter"


def test_the_disputed_are_the_asked_share_of_the_overrated():
    u = torch.cat([torch.linspace(-5, 0, 50), torch.linspace(0.1, 10, 100)]).view(15, 10)
    for share in (0.05, 0.2):
        held = disputed(u, share)
        assert held.sum() == pytest.approx(100 * share, abs=1) and u[held].min() > u[~held].max()
    assert not disputed(-u.abs(), 0.2).any()


def test_the_share_follows_the_disagreement_inside_its_range():
    recent = torch.tensor([0.4, 0.6])
    assert moved_share(0.1, 0.5, recent) == 0.1
    assert moved_share(0.1, 0.7, recent) == pytest.approx(0.11) and moved_share(0.1, 0.3, recent) == pytest.approx(0.1 / 1.1)
    assert moved_share(0.2, 0.7, recent) == 0.2 and moved_share(0.02, 0.3, recent) == 0.02
    assert moved_share(0.1, 0.7, torch.zeros(0)) == 0.1


def test_the_reference_moves_when_it_is_far_or_old():
    assert not is_due(Reference(), 1e9, 10**9)
    assert is_due(Reference(limit=0.1), 0.11, 0) and not is_due(Reference(limit=0.1), 0.09, 10**9)
    assert is_due(Reference(every=15), 0.0, 15) and not is_due(Reference(every=15), 0.0, 14)


@pytest.mark.parametrize("wrong", [{"weight": -1.0}, {"share": 0.5}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=r"nft\.reference"):
        Reference(**wrong)
