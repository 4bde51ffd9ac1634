import doctest
from pathlib import Path


def test_examples_of_the_readme(eagle3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds").symlink_to(eagle3)
    readme = Path(__file__).parents[1] / "README.md"
    failed, tried = doctest.testfile(str(readme), module_relative=False)
    assert tried > 10
    assert failed == 0
