from robowm.jsonl import append_lines, recover_lines


def test_lines_come_back_and_a_half_written_one_is_cut_off(tmp_path):
    path = tmp_path / "a.jsonl"
    assert recover_lines(path) == []
    append_lines(path, [{"a": 1}, {"a": 2}])
    with path.open("a") as file:
        file.write('{"a": 3')
    assert recover_lines(path) == [{"a": 1}, {"a": 2}]
    append_lines(path, [{"a": 4}])
    assert recover_lines(path) == [{"a": 1}, {"a": 2}, {"a": 4}]
