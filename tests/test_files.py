import os
import stat
import threading

import pytest

import basinscope as bs
from basinscope.files import whole_file, write_whole


def test_a_reader_sees_the_old_content_or_the_new(tmp_path):
    path = tmp_path / "deep" / "file"
    write_whole(path, b"old")
    with whole_file(path) as file:
        file.write(b"new, but not ")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"finished")
    assert path.read_bytes() == b"new, but not finished"
    assert os.listdir(path.parent) == ["file"]


def test_a_writer_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def interrupted():
        with whole_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_content_and_name_are_on_disk_when_it_returns(tmp_path, monkeypatch):
    synced, own = [], threading.get_ident()

    def fsync(handle):
        if threading.get_ident() == own:  # a store of an earlier test may still flush its files behind
            synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file", b"content")
    assert synced == [False, True]  # the file before its folder
    with whole_file(tmp_path / "file", flush=False) as file:
        file.write(b"faster")
    assert len(synced) == 2


def test_what_a_killed_writer_left_is_overwritten(tmp_path):
    (tmp_path / "file.part").write_bytes(b"left over, and longer than what comes")
    write_whole(tmp_path / "file", b"short")
    assert (tmp_path / "file").read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["link", "device or pipe", "folder"])
def test_only_regular_files_are_replaced(tmp_path, kind):
    path, target = tmp_path / "file", tmp_path / "target"
    target.write_bytes(b"kept")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(bs.InputError, match=f"is a {kind}: expected a regular file"):
        write_whole(path, b"new")
    assert not stat.S_ISREG(path.lstat().st_mode)
    assert target.read_bytes() == b"kept"
    with pytest.raises(bs.InputError, match="/dev/null is a device"):
        write_whole("/dev/null", b"new")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(bs.InputError, match=r"cannot write .*: Not a directory — choose another place"):
        write_whole(tmp_path / "file" / "inside", b"new")
