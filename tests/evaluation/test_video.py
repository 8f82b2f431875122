import av
import numpy as np
import pytest

from robowm.errors import UserError
from robowm.evaluation.video import GAP, side_by_side, write_video


def decode(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        facts = (stream.codec_context.name, stream.codec_context.pix_fmt, float(stream.average_rate))
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)], facts


def test_a_browser_can_play_it_and_colours_stay(tmp_path):
    red, blue = np.zeros((2, 6, 32, 32, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    blue[3:] //= 2
    write_video(tmp_path / "a.mp4", {"external": red, "wrist": blue}, fps=10.0)
    frames, facts = decode(tmp_path / "a.mp4")
    assert facts == ("h264", "yuv420p", 10.0) and len(frames) == 6
    assert frames[0].shape == (128, 128 + GAP + 128, 3)
    np.testing.assert_allclose(frames[0][64, 64], [255, 0, 0], atol=6)
    np.testing.assert_allclose(frames[0][64, 200], [0, 0, 255], atol=6)
    np.testing.assert_allclose(frames[5][64, 200], [0, 0, 127], atol=6)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_sides_are_even_and_unequal_cameras_fit():
    joined = side_by_side({"a": np.ones((1, 33, 47, 3), np.uint8), "b": np.ones((1, 16, 16, 3), np.uint8)}, min_side=1)
    assert joined.shape == (1, 34, 68, 3)
    assert joined[0, 0, 0, 0] == 1 and joined[0, 0, 60, 0] == 0 and joined[0, 16, 60, 0] == 1


def test_no_camera_is_an_error():
    with pytest.raises(UserError, match="at least one camera"):
        side_by_side({})
    with pytest.raises(UserError, match="at least one camera"):
        side_by_side({"external_mask": np.ones((1, 16, 16, 3), np.uint8)})


def test_masks_are_not_filmed():
    one, two = (np.full((1, 16, 16, 3), value, np.uint8) for value in (10, 255))
    assert np.array_equal(side_by_side({"external": one, "external_mask": two}), side_by_side({"external": one}))
