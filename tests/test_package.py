from importlib import metadata, resources

from basinscope._version import __version__


def test_installed_version_is_the_one_in_the_source():
    assert metadata.version("basinscope") == __version__


def test_type_information_is_shipped():
    assert resources.files("basinscope").joinpath("py.typed").is_file()
